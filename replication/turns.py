"""Turns: of several control requests about one partition, one works on it at a time, in the order of their arrival.

A request enters the lines of all its partitions in one step. It then gets those partitions whose lines it heads, in one
or several portions; a partition whose earlier request waits for the disk holds up no other. Two requests that meet at
several partitions cannot block each other, because one of them is first in all lines.

    with turns.of(keys) as turn:
        async for some in turn:
            ...                     # nothing else works on these keys; the next portion, or the end, gives them back
"""

from collections import deque
from collections.abc import AsyncIterator, Hashable, Iterable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Generic, Self, TypeVar

import trio

Key = TypeVar("Key", bound=Hashable)


class Turns(Generic[Key]):
    """The lines of all keys. An idle key has none."""

    def __init__(self) -> None:
        self.heads: dict[Key, Turn[Key]] = {}
        self.behind: dict[Key, deque[Turn[Key]]] = {}  # only of keys for which a second request waits

    def of(self, keys: Iterable[Key]) -> "Turn[Key]":
        """The turn of a request about these keys; `with` enters their lines."""
        return Turn(self, keys)

    @asynccontextmanager
    async def alone(self, key: Key) -> AsyncIterator[None]:
        """`async with turns.alone(key):` within the block nothing else works on this key."""
        with self.of([key]) as turn:
            await anext(turn)
            yield


class Turn(Generic[Key]):
    """The place of one request in the lines of its keys."""

    def __init__(self, turns: Turns[Key], keys: Iterable[Key]) -> None:
        self._turns = turns
        self._waiting = dict.fromkeys(keys)
        self._granted: dict[Key, None] = {}  # heads their lines, not given to the request yet
        self._held: dict[Key, None] = {}
        self._wake = trio.Event()

    def __enter__(self) -> Self:
        for key in self._waiting:
            if key in self._turns.heads:
                self._turns.behind.setdefault(key, deque()).append(self)
            else:
                self._turns.heads[key] = self
                self._granted[key] = None
        for key in self._granted:
            del self._waiting[key]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for key in self._waiting:
            line = self._turns.behind[key]
            line.remove(self)
            if not line:
                del self._turns.behind[key]
        self._waiting.clear()
        for key in [*self._granted, *self._held]:
            self._pass_on(key)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Key]:
        """Give back the keys of the last portion, and wait for the next. StopAsyncIteration after the last one."""
        for key in self._held:
            self._pass_on(key)
        self._held = {}
        while not self._granted:
            if not self._waiting:
                raise StopAsyncIteration
            self._wake = trio.Event()
            await self._wake.wait()
        self._held = self._granted
        self._granted = {}
        return list(self._held)

    def give_back(self, key: Key) -> None:
        """End the work on one key of the portion early."""
        del self._held[key]
        self._pass_on(key)

    def _pass_on(self, key: Key) -> None:
        line = self._turns.behind.get(key)
        if line is None:
            del self._turns.heads[key]
            return
        head = self._turns.heads[key] = line.popleft()
        if not line:
            del self._turns.behind[key]
        del head._waiting[key]
        head._granted[key] = None
        head._wake.set()
