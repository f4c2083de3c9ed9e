"""How far a command is, on standard error where that is a terminal.

    with progress("produce", size_bytes, "B") as advance:
        advance(len(line))

tqdm draws it. Its import takes 30 ms, so it comes only where something is drawn, and the line appears after a second.
In files and pipes nothing is written. tqdm and rich take as long to import; tqdm is one package instead of four.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

DELAY_SECONDS = 1.0
Item = TypeVar("Item")


@contextmanager
def progress(
    label: str, total: float | None, unit: str, *, beside_output: bool = False
) -> Iterator[Callable[[int], object]]:
    """A function that is given how much was done. Without a total it shows the amount and the rate.

    `beside_output`: what is printed meanwhile would run into the line, so it is drawn only if that goes elsewhere.
    """
    if not sys.stderr.isatty() or (beside_output and sys.stdout.isatty()):
        yield lambda amount: None
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


def counted(
    items: Iterable[Item], label: str, total: float | None, unit: str, *, beside_output: bool = False
) -> Iterator[Item]:
    """The same items, counted as they are taken."""
    with progress(label, total, unit, beside_output=beside_output) as advance:
        for item in items:
            yield item
            advance(1)
