"""How far a command is, on standard error where that is a terminal (edge).

    with progress("produce", size_bytes, "B") as advance:
        advance(len(line))

tqdm draws it. Its import takes 30 ms, so it comes only where something is drawn, and the line appears after a second.
In files and pipes nothing is written, or a line every ten seconds for work that takes minutes. tqdm and rich take as
long to import; tqdm is one package instead of four.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

DELAY_SECONDS = 1.0
LINE_SECONDS = 10.0  # not more often than a person reads
Item = TypeVar("Item")


@contextmanager
def progress(
    label: str, total: float | None, unit: str, *, beside_output: bool = False, lines: bool = False
) -> Iterator[Callable[[int], object]]:
    """A function that is given how much was done. Without a total it shows the amount and the rate.

    `beside_output`: what is printed meanwhile would run into the line, so it is drawn only if that goes elsewhere.
    `lines`: without a terminal it is a line of text now and then.
    """
    if not sys.stderr.isatty() or (beside_output and sys.stdout.isatty()):
        yield _line_writer(label, total, unit) if lines else lambda amount: None
        return
    from tqdm import tqdm

    # The line is taken away at the end: the message of the command says what was done.
    with tqdm(
        total=total,
        desc=label,
        unit=unit,
        unit_scale=True,
        delay=DELAY_SECONDS,
        leave=False,
        dynamic_ncols=True,
        file=sys.stderr,
    ) as bar:
        yield bar.update


def _line_writer(label: str, total: float | None, unit: str) -> Callable[[int], object]:
    began = said = time.monotonic()
    done = 0

    def advance(amount: int) -> None:
        nonlocal done, said
        done += amount
        now = time.monotonic()
        if now - said >= LINE_SECONDS:
            said = now
            of = "" if total is None else f" of {total:,.0f}"
            left = "" if total is None else time_left_text(done, total - done, now - began)
            print(f"{label}: {done:,}{of}{unit}{left}", file=sys.stderr, flush=True)

    return advance


def print_beside(text: str) -> None:
    """Print a line on standard output. A line that shows progress is taken away for it, and drawn again."""
    drawn = sys.modules.get("tqdm")
    if drawn is None:
        print(text, flush=True)
    else:
        drawn.tqdm.write(text)
        sys.stdout.flush()


def counted(
    items: Iterable[Item], label: str, total: float | None, unit: str, *, beside_output: bool = False
) -> Iterator[Item]:
    """The same items, counted as they are taken."""
    with progress(label, total, unit, beside_output=beside_output) as advance:
        for item in items:
            yield item
            advance(1)


def time_left_text(done: float, left: float, seconds: float) -> str:
    """How long it takes still, at the speed so far, as the end of a line; empty while nothing was done."""
    if done <= 0 or seconds <= 0:
        return ""
    left_seconds = round(left * seconds / done)
    minutes, seconds_left = divmod(left_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f", {hours}:{minutes:02}:{seconds_left:02} left"
