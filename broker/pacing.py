"""Loops over what may be long, that give others a turn now and then: no step may hold the loop for long."""

from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import trio

ROWS_AT_A_TIME = 500  # rows of an answer: half a millisecond or so

Each = TypeVar("Each")


async def paced(rows: Iterable[Each]) -> AsyncIterator[Each]:
    """These, one after the other. Others run in between, so `rows` must be nobody else's."""
    for number, row in enumerate(rows, 1):
        yield row
        if number % ROWS_AT_A_TIME == 0:
            await trio.lowlevel.checkpoint()
