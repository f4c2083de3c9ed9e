"""Planted bugs that a hostile client shows (`bugs.py`, kind `hostile`).

shared_turns       the controller's requests take turns with those of clients, which keep them while they wait
smallest_pays      memory is not taken from the connection that holds most, but from the one that holds least
refused_members    a group that is not the largest has to wait until the largest one shrinks by itself
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio

from barnabas.broker.server import connections, decoding, dispatch
from barnabas.coordinators.groups.memory import GroupMemory
from barnabas.world import memory, resting, turns

if TYPE_CHECKING:
    from barnabas.coordinators.groups.classic.state import Group
    from barnabas.coordinators.groups.memory import Held
    from barnabas.storage.disk import InThread
    from barnabas.wire import messages as m

Replacement = tuple[object, str, object]


def _shared_turns() -> list[Replacement]:
    right = decoding.decoded

    def begin(self: turns.LargeTurns) -> None:
        """One request at a time, of clients and controllers."""
        self.of_clients = self.of_controllers = turns.Turns(1)

    def rest(self: "resting._Resting") -> None:
        """It will go on, so it keeps its turn."""
        self._asker = resting.asker.get()
        if self._asker is not None:
            self._asker.rests += 1
            self._began = trio.current_time()

    @asynccontextmanager
    async def decoded(
        request: decoding.Decoding, charged: decoding.Charged, in_thread: "InThread"
    ) -> "AsyncIterator[m.Message]":
        """Every request needs a turn."""
        async with charged.turns.turn(), right(request, charged, in_thread) as message:
            yield message

    return [
        (turns.LargeTurns, "__init__", begin),
        (resting._Resting, "__enter__", rest),
        (dispatch, "decoded", decoded),
        # The requests of the simulated cluster are small.
        (dispatch, "SMALL_FRAME_BYTES", 100),
        (decoding, "LARGE_BYTES", 200),
    ]


def _smallest_pays() -> list[Replacement]:
    right = memory.Account.__init__

    def begin(self: "memory.Account[memory.Each]", limit_bytes: int, **how: object) -> None:
        """Owners of anything are counted."""
        right(self, limit_bytes, weighs_time=bool(how.get("weighs_time", True)), evicted_bytes_min=1)

    def worst(self: "memory.Account[memory.Each]", now: float) -> "memory.Each | None":
        """The one that holds least."""
        owners = [owner for owners in self._classes for owner in owners if owner.is_evictable]
        return min(owners, key=lambda owner: owner.held_bytes, default=None)

    return [
        (memory.Account, "__init__", begin),
        (memory.Account, "worst", worst),
        (connections, "EVICTED_BYTES_MIN", 1),
    ]


def _refused_members() -> list[Replacement]:
    def to_shed(self: GroupMemory, asking: "Group | None", grown_bytes: int, now: float) -> "Held | None":
        """What groups have, they keep."""
        return None

    return [(GroupMemory, "to_shed", to_shed)]


HOSTILE_BUGS: dict[str, Callable[[], list[Replacement]]] = {
    "shared_turns": _shared_turns,
    "smallest_pays": _smallest_pays,
    "refused_members": _refused_members,
}
