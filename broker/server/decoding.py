"""Decodes requests in bounded steps, and limits the memory of the decoded objects.

An element of two bytes becomes an object of 60 to 200 bytes, so the length of a frame says little about its cost.
`dispatch.respond` decodes frames of up to SMALL_FRAME_BYTES itself, and does the first step of longer ones, which is
the whole of an ordinary Produce; what is left goes through `decoded`.

Limits: one request may become DECODED_BYTES_MAX of objects (CONTROLLER_BYTES_MAX from the controller). Large requests
are decoded one after the other, and the next one begins while all together hold less than DECODED_BYTES_ALL; so the
total is DECODED_BYTES_ALL and one request. While another request waits for room, `Connections.sweep` closes a
connection whose large request has done nothing but wait for STALLED_SECONDS.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

import trio

from barnabas.broker.freeing import take_apart
from barnabas.broker.pacing import STEPS_AT_A_TIME, complete
from barnabas.broker.resting import resting
from barnabas.storage.disk import InThread
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation

SMALL_FRAME_BYTES = 4096  # decoded at once: 2 µs for every three bytes at worst, and half a megabyte of objects
# The decoder counts an upper estimate of what objects take: a Fetch of 50,000 partitions stays below this.
DECODED_BYTES_MAX = 1 << 24
CONTROLLER_KEYS = frozenset({4, 5, 6})  # LeaderAndIsr, StopReplica, UpdateMetadata
CONTROLLER_BYTES_MAX = 1 << 28  # one request may name every partition of the cluster, 400,000 for example
LARGE_BYTES = 1 << 20  # of decoded objects: from here on a request needs `DecodedMemory.room`
# Produce, Fetch, ListOffsets, OffsetCommit, OffsetFetch, FindCoordinator, DescribeGroups, DeleteRecords,
# OffsetForLeaderEpoch, DeleteGroups, DescribeProducers, DescribeTransactions: no code keeps a list of such a request
# after it is answered, or of its response after it is encoded. So both may be taken apart.
NOT_KEPT_KEYS = frozenset({0, 1, 2, 8, 9, 10, 15, 21, 23, 42, 61, 65})
# Low, because handling a request takes several times its own memory: rows of the response, tables by partition.
DECODED_BYTES_ALL = 1 << 22


class Holder(Protocol):
    """A connection."""

    decoded_bytes: int  # memory of the request that is being handled; 0 if it is not large


class DecodedMemory:
    """The memory of the large requests that are being handled, all connections together."""

    def __init__(self) -> None:
        self._held_bytes = 0
        # Strict: a connection that sends large requests one after the other must not pass those that wait.
        self._one_by_one = trio.StrictFIFOLock()
        self._released = trio.Event()
        self.is_awaited = False  # a request waits until others release memory

    @asynccontextmanager
    async def room(self) -> AsyncIterator[None]:
        """Within this block one large request is decoded, alone. Waits for its turn, and for DECODED_BYTES_ALL."""
        # The request has changed nothing yet, so the connection may be closed while it waits here.
        with resting():
            await self._one_by_one.acquire()
        try:
            try:
                while self._held_bytes >= DECODED_BYTES_ALL:
                    # Lets the sweep close a connection whose large request only waits: it might wait for minutes.
                    self.is_awaited = True
                    self._released = trio.Event()
                    with resting():
                        await self._released.wait()
            finally:
                self.is_awaited = False  # also when the connection that waited here is closed
            yield
        finally:
            self._one_by_one.release()

    def hold(self, holder: Holder, decoded_bytes: int) -> None:
        """Set the memory of the request that this connection handles; 0 when it is answered."""
        self._held_bytes += decoded_bytes - holder.decoded_bytes
        holder.decoded_bytes = decoded_bytes
        self._released.set()


class Charged(NamedTuple):
    """The account of a request: the limit that its memory counts against, and its connection."""

    memory: DecodedMemory
    holder: Holder


class Decoding:
    """A request that is being decoded."""

    __slots__ = ("_bytes_max", "_steps", "decoded_bytes", "is_whole", "message")

    def __init__(self, message: m.Message, version: int, frame: memoryview, position: int) -> None:
        self.message = message
        self.is_whole = False
        self.decoded_bytes = 0
        self._steps = m.decode_steps(message, version, frame, position)
        self._bytes_max = CONTROLLER_BYTES_MAX if message.API_KEY in CONTROLLER_KEYS else DECODED_BYTES_MAX

    @property
    def needs_account(self) -> bool:
        """Whether there are steps to do, or the message is too large to be freed in one step."""
        return not self.is_whole or self.decoded_bytes >= LARGE_BYTES

    def advance(self, count: int) -> None:
        """Do at most `count` steps; ProtocolViolation when the objects exceed the limit."""
        # Runs in a thread, too, so it changes nothing but this object and its message. `decoded` charges the shared
        # memory afterwards, on the event loop.
        try:
            for _ in range(count):
                self.decoded_bytes = next(self._steps)
        except StopIteration as stop:
            self.is_whole, self.decoded_bytes = True, stop.value
        # One check for all steps: each step is bounded, so they cannot exceed the limit by much.
        if self.decoded_bytes > self._bytes_max:
            raise ProtocolViolation(f"a request becomes more than {self._bytes_max} bytes of objects")

    async def end(self, charged: Charged, in_thread: InThread) -> None:
        """Free the message, after its response is made or when it gets none."""
        self._steps.close()
        # A handler of another API may have stored parts of a message that was handed out, so only references are
        # dropped. A message that was not decoded to its end was never handed out.
        is_kept = self.is_whole and self.message.API_KEY not in NOT_KEPT_KEYS
        if self.decoded_bytes >= LARGE_BYTES and not is_kept:
            # Left to the interpreter, a large message would be freed in one step of the event loop.
            with trio.CancelScope(shield=True):
                await complete(take_apart(self.message), in_thread)
        charged.memory.hold(charged.holder, 0)


@asynccontextmanager
async def decoded(decoding: Decoding, charged: Charged, in_thread: InThread) -> AsyncIterator[m.Message]:
    """Within this block: the whole request, whose first step is done. It is freed at the end.

    ProtocolViolation when the frame is malformed, or becomes more objects than the limit.
    """
    try:
        while not decoding.is_whole and decoding.decoded_bytes < LARGE_BYTES:
            await in_thread(decoding.advance, STEPS_AT_A_TIME)
        if not decoding.is_whole:
            async with charged.memory.room():
                try:
                    while not decoding.is_whole:
                        await in_thread(decoding.advance, STEPS_AT_A_TIME)
                except BaseException:
                    # Inside `room`: the memory is free before the next large request begins.
                    await decoding.end(charged, in_thread)
                    raise
                # Charged before `room` ends, so the next large request sees it.
                charged.memory.hold(charged.holder, decoding.decoded_bytes)
        yield decoding.message
    finally:
        await decoding.end(charged, in_thread)
