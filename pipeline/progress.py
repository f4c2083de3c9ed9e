"""The progress of a job (edge): a line that changes on a terminal, plain lines elsewhere; always on standard error."""

import sys
import time
from types import TracebackType
from typing import Protocol

import click

PLAIN_EVERY_SECONDS = 10.0  # into a file or a pipe, not more often than a person reads
UNITS = ["B", "kB", "MB", "GB", "TB"]


def in_units(count_bytes: float) -> str:
    """A number of bytes as people say it."""
    for unit in UNITS[:-1]:
        if count_bytes < 1000:
            return f"{count_bytes:.0f} {unit}" if unit == "B" else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1000
    return f"{count_bytes:.1f} {UNITS[-1]}"


def in_words(records: int, count_bytes: int | None, seconds: float) -> str:
    """What was done, and how fast."""
    size = f", {in_units(count_bytes)}" if count_bytes is not None else ""
    rate = f", {records / seconds:,.0f} a second" if seconds > 0 and records else ""
    return f"{records:,} records{size} in {seconds:.1f} s{rate}"


class Shown(Protocol):
    """Something that shows progress while it is entered."""

    def __enter__(self) -> "Shown": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None: ...

    def tell(self, done: int, total: int | None, note: str) -> None:
        """So many records, of so many if that is known."""


class Silent:
    """No progress: for programs, which read standard output."""

    def __enter__(self) -> "Silent":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def tell(self, done: int, total: int | None, note: str) -> None:
        pass


class Lines(Silent):
    """Plain lines."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._printed_at = float("-inf")

    def tell(self, done: int, total: int | None, note: str) -> None:
        now = time.monotonic()
        if now - self._printed_at >= PLAIN_EVERY_SECONDS:
            self._printed_at = now
            of = f" of {total:,}" if total is not None else ""
            click.echo(f"{self._title}: {done:,}{of} records, {note}", err=True)


class Bar:
    """One line of a terminal, made by rich."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._title = title
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, done: int, total: int | None, note: str) -> None:
        of = f" of {total:,}" if total is not None else ""
        words = f"{self._title}: {done:,}{of} records, {note}"
        self._progress.update(self._task, completed=done, total=total, description=words)


def shown(title: str, as_json: bool) -> Shown:
    """What fits the reader: a terminal or a file."""
    if as_json:
        return Silent()
    return Bar(title) if sys.stderr.isatty() else Lines(title)
