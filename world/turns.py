"""Who is next when work has to be done one after the other because each takes much memory (shell).

Waiting for a turn is waiting for the processor, never for a client: a turn ends with the work, and a request that
begins to wait for something else gives its turn back (`resting.py`). A connection goes behind those that began to wait
up to as much later as it has spent lately. So one that sends such work again and again waits for itself, not others for
it; and connections that are always new do not keep another one waiting.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from barnabas.world.resting import Asker, asker, resting


class Turn:
    """One of the places of `Turns`, until it is given back."""

    __slots__ = ("_began", "_owner", "_turns")

    def __init__(self, turns: "Turns", owner: Asker | None) -> None:
        self._turns: Turns | None = turns
        self._owner = owner
        self._began = trio.current_time()

    def give_back(self) -> None:
        """Let the next one begin. Further calls do nothing."""
        turns = self._turns
        if turns is None:
            return
        self._turns = None
        if self._owner is not None:
            self._owner.spent_seconds += trio.current_time() - self._began
        turns.release()


class Turns:
    """So many works go on at a time."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: dict[trio.Event, float] = {}  # each with its place in the order, the smallest first

    async def take(self) -> Turn:
        """Wait for a turn, which the caller gives back. The running task's connection pays for it."""
        owner = asker.get()
        if self._free:
            self._free -= 1
            return Turn(self, owner)

        # The broker's own work has no connection and comes first. A connection goes behind those that come within the
        # time that it has spent lately, but not behind all new ones, or a client that opens a new connection each
        # time would always be first.
        woken = trio.Event()
        self._waiting[woken] = -1.0 if owner is None else trio.current_time() + owner.spent_seconds
        try:
            await woken.wait()
        except BaseException:
            # The task was cancelled; if it had got the place at the same moment, another one gets
            # it.
            if self._waiting.pop(woken, None) is None:
                self.release()
            raise
        return Turn(self, owner)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Within this block: a turn of the running task's connection, unless it has one; until the request waits."""
        connection = asker.get()
        if connection is not None and connection.turn is not None:
            yield
            return

        # The request is either not begun or done, so its connection may be closed while it waits here.
        with resting():
            turn = await self.take()
        if connection is not None:
            connection.turn = turn
        try:
            yield
        finally:
            turn.give_back()
            if connection is not None and connection.turn is turn:
                connection.turn = None

    def release(self) -> None:
        """Give a place to the next of those that wait; called by `Turn`."""
        if not self._waiting:
            self._free += 1
            return
        # Of equals the first that came is next.
        woken = min(self._waiting, key=self._waiting.__getitem__)
        del self._waiting[woken]
        woken.set()


LARGE_AT_A_TIME = 2  # handling a large request takes several times its own memory: rows of the response, tables


class LargeTurns:
    """The turns of requests that become many objects, and of responses that are converted for old clients."""

    # There are two queues, because a controller must not wait while clients send large requests.
    __slots__ = ("of_clients", "of_controllers")

    def __init__(self) -> None:
        self.of_clients = Turns(LARGE_AT_A_TIME)
        self.of_controllers = Turns(1)
