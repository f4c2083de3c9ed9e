"""Frees many objects in steps.

When the last reference to a list or dict goes, the interpreter frees it and its elements in one step, at 50 to 120 ns
an object: a request of 100,000 partitions, its rows and the handler's own tables would hold the event loop for 10 ms
each.
"""

from typing import TypeVar

import trio

from barnabas.wire.records import Steps
from barnabas.wire.runtime import Struct
from barnabas.world.rows import Rows

Key = TypeVar("Key")
Value = TypeVar("Value")
Inner = TypeVar("Inner")

FREED_AT_A_TIME = 1000  # objects of a message
STRUCTURES_AT_A_TIME = 250  # with lists, which are looked into
ENTRIES_AT_A_TIME = 500  # of a table: each may hold several objects


def take_apart(message: Struct) -> Steps[None]:
    """Empty the lists of this message and of the structures in them, in steps, and the tables that `Rows` are made of.

    No other code may use these lists and tables.
    """
    # Depth first, and from the end of each list: nothing is moved, and a list is empty before it is freed.
    lists = _lists_of(message)
    freed = 0
    while lists:
        items = lists[-1]
        if not items:
            lists.pop()
        elif isinstance(items, dict):
            freed += FREED_AT_A_TIME // STRUCTURES_AT_A_TIME
            items.popitem()
        # A structure is taken out before its lists are emptied; freed with them, it would be one long step again.
        elif isinstance(last := items[-1], Struct) and last.ARRAYS:
            del items[-1]
            lists += _lists_of(last)
            freed += FREED_AT_A_TIME // STRUCTURES_AT_A_TIME
        else:
            freed += min(len(items), FREED_AT_A_TIME)
            del items[-FREED_AT_A_TIME:]
        if freed >= FREED_AT_A_TIME:
            freed = 0
            yield None


def _lists_of(struct: Struct) -> list[list[object] | dict[object, object]]:
    # A struct in the middle of which decoding ended may lack a field.
    values = [getattr(struct, name, None) for name in struct.ARRAYS]
    values = [value.of if isinstance(value, Rows) else value for value in values]
    return [value for value in values if isinstance(value, list | dict)]


async def emptied(*tables: dict[Key, Value] | list[Value]) -> None:
    """Empty large tables of a handler that ends, with checkpoints. At most ENTRIES_AT_A_TIME entries stay in each."""
    for table in tables:
        while len(table) > ENTRIES_AT_A_TIME:
            if isinstance(table, list):
                del table[-ENTRIES_AT_A_TIME:]
            else:
                for _ in range(ENTRIES_AT_A_TIME):
                    table.popitem()
            # Handlers call this in `finally`: a cancelled request frees its tables in steps, too.
            with trio.CancelScope(shield=True):
                await trio.lowlevel.checkpoint()


async def emptied_by_topic(tables: dict[Key, dict[Inner, Value]]) -> None:
    """Empty a table of tables (topic -> partition -> value, say), with checkpoints."""
    # The count goes across the inner tables, because many of them may be small.
    left = ENTRIES_AT_A_TIME
    while tables:
        _, of_topic = tables.popitem()
        left -= 1
        while of_topic:
            of_topic.popitem()
            left -= 1
            if left <= 0:
                left = ENTRIES_AT_A_TIME
                with trio.CancelScope(shield=True):
                    await trio.lowlevel.checkpoint()
