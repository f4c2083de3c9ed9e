"""The progress of a job (edge): a line that changes on a terminal, plain lines elsewhere; always on standard error."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

import click

if TYPE_CHECKING:
    from pyspark import StatusTracker
    from pyspark.sql import SparkSession

LOOK_SECONDS = 0.5  # between two questions to Spark
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
        """So much is done, of so much if that is known."""


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

    def __init__(self, title: str, unit: str) -> None:
        self._title = title
        self._unit = unit
        self._printed_at = float("-inf")

    def tell(self, done: int, total: int | None, note: str) -> None:
        now = time.monotonic()
        if now - self._printed_at >= PLAIN_EVERY_SECONDS:
            self._printed_at = now
            click.echo(_words(self._title, done, total, self._unit, note), err=True)


class Bar:
    """One line of a terminal, made by rich."""

    def __init__(self, title: str, unit: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._title = title
        self._unit = unit
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> "Bar":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def tell(self, done: int, total: int | None, note: str) -> None:
        words = _words(self._title, done, total, self._unit, note)
        self._progress.update(self._task, completed=done, total=total, description=words)


def _words(title: str, done: int, total: int | None, unit: str, note: str) -> str:
    of = f" of {total:,}" if total is not None else ""
    return f"{title}: {done:,}{of} {unit}, {note}"


def shown(title: str, as_json: bool, unit: str = "records") -> Shown:
    """What fits the reader: a terminal or a file."""
    if as_json:
        return Silent()
    return Bar(title, unit) if sys.stderr.isatty() else Lines(title, unit)


@contextmanager
def tasks_shown(spark: "SparkSession", title: str, as_json: bool) -> Iterator[None]:
    """Show what Spark does while the block runs: it plans the work itself, so only its tasks can be counted."""
    tracker = spark.sparkContext.statusTracker()
    over = threading.Event()

    def look(bar: Shown) -> None:
        while not over.wait(LOOK_SECONDS):
            running = running_tasks(tracker)
            if running is not None:
                bar.tell(*running)

    with shown(title, as_json, "tasks") as bar:
        looker = threading.Thread(target=look, args=(bar,), name="progress", daemon=True)
        looker.start()
        try:
            yield
        finally:
            # The session ends after the block, and then Spark cannot be asked any more.
            over.set()
            looker.join()


def running_tasks(tracker: "StatusTracker") -> tuple[int, int, str] | None:
    """How many tasks of the running stages are done, of how many, and which stages these are; None between jobs."""
    running = tracker.getActiveStageIds()
    stages = [stage for number in running if (stage := tracker.getStageInfo(number)) is not None]
    if not stages:
        return None
    done = sum(stage.numCompletedTasks for stage in stages)
    names = ", ".join(str(stage.stageId) for stage in stages)
    return done, sum(stage.numTasks for stage in stages), f"stage {names}"
