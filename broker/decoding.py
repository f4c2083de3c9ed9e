"""Decoding what strangers send: in bounded steps, and with a limit to the memory that it takes.

A frame of two bytes an element becomes objects of sixty to two hundred bytes each, so its length says little of what it
costs. A small one is decoded at once. Of any other the first step is done on the event loop, which is all of it for an
ordinary Produce, whose bytes are records; the others go to a request thread. One request may become
`DECODED_BYTES_MAX` of objects; all together `DECODED_BYTES_ALL` and one more: those that become large are decoded one
after the other, and the next begins when there is room. Whoever only waits meanwhile and holds much makes room after
`STALLED_SECONDS` (`Connections.sweep`).
"""

from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import trio

from barnabas.broker.pacing import STEPS_AT_A_TIME
from barnabas.broker.waiting import resting
from barnabas.storage.disk import InThread
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation

SMALL_FRAME_BYTES = 4096  # decoded at once: 2 µs for every three bytes at worst, and half a megabyte of objects
# What is counted is an upper estimate of what objects take: 50,000 partitions of a Fetch stay below this. It also
# bounds how long the interpreter takes to free them, which is one step: 5 ms.
DECODED_BYTES_MAX = 1 << 24
CONTROLLER_KEYS = frozenset({4, 5, 6})  # LeaderAndIsr, StopReplica, UpdateMetadata
CONTROLLER_BYTES_MAX = 1 << 28  # a controller speaks of every partition of its cluster at once, of 400,000 for example
LARGE_BYTES = 1 << 20  # from here on it is one of the large ones
DECODED_BYTES_ALL = 1 << 25  # handling one takes several times as much: rows of answers, what is kept by partition


class Holder(Protocol):
    """A connection."""

    decoded_bytes: int  # what its request in hand became, if that is much


class DecodedMemory:
    """What large requests in hand have become, all connections together."""

    def __init__(self) -> None:
        self._held_bytes = 0
        self._one_by_one = trio.StrictFIFOLock()
        self._released = trio.Event()
        self.is_awaited = False  # one waits for others to let go

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """For one that becomes large: alone, and while there is room."""
        with resting():
            await self._one_by_one.acquire()
        try:
            while self._held_bytes >= DECODED_BYTES_ALL:
                self.is_awaited = True
                self._released = trio.Event()
                with resting():
                    await self._released.wait()
            self.is_awaited = False
            yield
        finally:
            self._one_by_one.release()

    def hold(self, holder: Holder, decoded_bytes: int) -> None:
        """Say what this connection's request in hand takes; 0 when it is answered."""
        self._held_bytes += decoded_bytes - holder.decoded_bytes
        holder.decoded_bytes = decoded_bytes
        self._released.set()


class Charged(NamedTuple):
    """Whose request it is, and what its memory counts against."""

    memory: DecodedMemory
    holder: Holder


class _Decoding:
    """A request that is being decoded."""

    def __init__(self, steps: Generator[int, None, tuple[m.Message, int]], bytes_max: int) -> None:
        self.message: m.Message | None = None
        self.decoded_bytes = 0
        self._steps = steps
        self._bytes_max = bytes_max

    def advance(self, count: int) -> None:
        """Do so many steps."""
        try:
            for _ in range(count):
                self.decoded_bytes = next(self._steps)
        except StopIteration as stop:
            self.message, self.decoded_bytes = stop.value
        if self.decoded_bytes > self._bytes_max:
            raise ProtocolViolation(f"a request becomes more than {self._bytes_max} bytes of objects")


async def decode(
    cls: type[m.Message], version: int, frame: memoryview, position: int, charged: Charged, in_thread: InThread
) -> m.Message:
    """The request in this frame, which is not small; ProtocolViolation when it is none, or too large."""
    is_controllers = cls.API_KEY in CONTROLLER_KEYS
    steps = m.decode_steps(cls, version, frame, position)
    decoding = _Decoding(steps, CONTROLLER_BYTES_MAX if is_controllers else DECODED_BYTES_MAX)
    decoding.advance(1)
    while decoding.message is None and decoding.decoded_bytes < LARGE_BYTES:
        await in_thread(decoding.advance, STEPS_AT_A_TIME)
    if decoding.message is None:
        async with charged.memory.room():
            while decoding.message is None:
                await in_thread(decoding.advance, STEPS_AT_A_TIME)
            charged.memory.hold(charged.holder, decoding.decoded_bytes)
    return decoding.message
