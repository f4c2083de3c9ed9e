"""Decoding what strangers send: in bounded steps, and with a limit to the memory that it takes.

A frame of two bytes an element becomes objects of sixty to two hundred bytes each, so its length says little of what it
costs. A small one is decoded at once. Of any other the first step is done on the event loop, which is all of it for an
ordinary Produce, whose bytes are records; the others go to a request thread. One request may become
`DECODED_BYTES_MAX` of objects; all together `DECODED_BYTES_ALL` and one more: those that become large are decoded one
after the other, and the next begins when there is room. A request that only waits meanwhile and holds much makes room
after `STALLED_SECONDS` (`Connections.sweep`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import trio

from barnabas.broker.freeing import take_apart
from barnabas.broker.pacing import STEPS_AT_A_TIME, complete
from barnabas.broker.replication.waiting import resting
from barnabas.storage.disk import InThread
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation

SMALL_FRAME_BYTES = 4096  # decoded at once: 2 µs for every three bytes at worst, and half a megabyte of objects
# What is counted is an upper estimate of what objects take: 50,000 partitions of a Fetch stay below this.
DECODED_BYTES_MAX = 1 << 24
CONTROLLER_KEYS = frozenset({4, 5, 6})  # LeaderAndIsr, StopReplica, UpdateMetadata
CONTROLLER_BYTES_MAX = 1 << 28  # a controller speaks of every partition of its cluster at once, of 400,000 for example
LARGE_BYTES = 1 << 20  # from here on it is one of the large ones
# Produce, Fetch, ListOffsets, OffsetCommit, OffsetFetch, DeleteRecords, OffsetForLeaderEpoch: of their requests no list
# is kept by anybody when they are answered, and of their answers none when it is encoded.
NOT_KEPT_KEYS = frozenset({0, 1, 2, 8, 9, 21, 23})
DECODED_BYTES_ALL = 1 << 22  # handling one takes several times as much: rows of answers, what is kept by partition


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

    def __init__(self, message: m.Message, version: int, frame: memoryview, position: int) -> None:
        self.message = message
        self.is_whole = False
        self.decoded_bytes = 0
        self._steps = m.decode_steps(message, version, frame, position)
        self._bytes_max = CONTROLLER_BYTES_MAX if message.API_KEY in CONTROLLER_KEYS else DECODED_BYTES_MAX

    def advance(self, count: int) -> None:
        """Do so many steps."""
        try:
            for _ in range(count):
                self.decoded_bytes = next(self._steps)
        except StopIteration as stop:
            self.is_whole, self.decoded_bytes = True, stop.value
        if self.decoded_bytes > self._bytes_max:
            raise ProtocolViolation(f"a request becomes more than {self._bytes_max} bytes of objects")

    async def end(self, charged: Charged, in_thread: InThread) -> None:
        """It is answered, or is not to be: free what it became, in steps where that is much."""
        self._steps.close()
        is_kept = self.is_whole and self.message.API_KEY not in NOT_KEPT_KEYS
        if self.decoded_bytes >= LARGE_BYTES and not is_kept:
            with trio.CancelScope(shield=True):
                await complete(take_apart(self.message), in_thread)
        charged.memory.hold(charged.holder, 0)


@asynccontextmanager
async def decoded(
    cls: type[m.Message], version: int, frame: memoryview, position: int, charged: Charged, in_thread: InThread
) -> AsyncIterator[m.Message]:
    """The request in this frame, which is not small, until it is answered.

    ProtocolViolation when it is none, or too large.
    """
    decoding = _Decoding(cls(), version, frame, position)
    try:
        decoding.advance(1)
        while not decoding.is_whole and decoding.decoded_bytes < LARGE_BYTES:
            await in_thread(decoding.advance, STEPS_AT_A_TIME)
        if not decoding.is_whole:
            async with charged.memory.room():
                try:
                    while not decoding.is_whole:
                        await in_thread(decoding.advance, STEPS_AT_A_TIME)
                except BaseException:
                    await decoding.end(charged, in_thread)  # before the next one begins
                    raise
                charged.memory.hold(charged.holder, decoding.decoded_bytes)
        yield decoding.message
    finally:
        await decoding.end(charged, in_thread)
