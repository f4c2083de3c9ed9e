"""Decodes requests in bounded steps, and limits the memory of the decoded objects.

An element of two bytes becomes an object of 60 to 200 bytes, so the length of a frame says little about its cost.
`dispatch.respond` decodes frames of up to SMALL_FRAME_BYTES itself, and does the first step of longer ones, which is
the whole of an ordinary Produce; what is left goes through `decoded`.

Limits: one request may become DECODED_BYTES_MAX of objects (CONTROLLER_BYTES_MAX from the controller). Those above
LARGE_BYTES are decoded and handled a few at a time (`turns.py`), and count as memory of their connection.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.storage.disk import InThread
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.world.freeing import take_apart
from barnabas.world.pacing import STEPS_AT_A_TIME, complete
from barnabas.world.resting import resting
from barnabas.world.turns import Turns

if TYPE_CHECKING:
    from barnabas.broker.server.connections import Connection, Connections

SMALL_FRAME_BYTES = 4096  # decoded at once: 2 µs for every three bytes at worst, and half a megabyte of objects
# The decoder counts an upper estimate of what objects take: a Fetch of 50,000 partitions stays below this.
DECODED_BYTES_MAX = 1 << 24
CONTROLLER_KEYS = frozenset({4, 5, 6})  # LeaderAndIsr, StopReplica, UpdateMetadata
CONTROLLER_BYTES_MAX = 1 << 28  # one request may name every partition of the cluster, 400,000 for example
LARGE_BYTES = 1 << 20  # of decoded objects: from here on a request needs a turn, and counts
# APIs of whose messages no code keeps a list once the response is encoded, or the request cancelled. So the request and
# the response may be taken apart. The other APIs are those of the controller and of group members.
NOT_KEPT_KEYS = frozenset(
    {
        *(0, 1, 2),  # Produce, Fetch, ListOffsets
        *(8, 9, 10, 15, 42),  # OffsetCommit, OffsetFetch, FindCoordinator, DescribeGroups, DeleteGroups
        *(19, 20, 37),  # CreateTopics, DeleteTopics, CreatePartitions
        *(45, 56),  # AlterPartitionReassignments, AlterPartition
        *(21, 23, 61, 65),  # DeleteRecords, OffsetForLeaderEpoch, DescribeProducers, DescribeTransactions
        *(24, 27),  # AddPartitionsToTxn, WriteTxnMarkers
        *(30, 31, 49, 51),  # CreateAcls, DeleteAcls, AlterClientQuotas, AlterUserScramCredentials
        *(33, 34, 35, 44),  # AlterConfigs, AlterReplicaLogDirs, DescribeLogDirs, IncrementalAlterConfigs
        41,  # DescribeDelegationToken
    }
)


class Charged(NamedTuple):
    """The account of a request: its connection, which holds the memory, and the turns of large requests."""

    connections: "Connections"
    connection: "Connection"
    turns: Turns

    def hold(self, decoded_bytes: int) -> None:
        """Set what the request takes; 0 when it is answered."""
        self.connections.hold_decoded(self.connection, decoded_bytes)


class Decoding:
    """A request that is being decoded."""

    __slots__ = ("_steps", "decoded_bytes", "is_control", "is_whole", "message")

    def __init__(
        self, message: m.Message, version: int, frame: memoryview, position: int, *, is_control: bool = False
    ) -> None:
        self.message = message
        self.is_whole = False
        self.decoded_bytes = 0
        self._steps = m.decode_steps(message, version, frame, position)
        self.is_control = is_control  # a controller may have sent it

    @property
    def needs_account(self) -> bool:
        """Whether there are steps to do, or the message is too large to be freed in one step."""
        return not self.is_whole or self.decoded_bytes >= LARGE_BYTES

    def advance(self, count: int) -> None:
        """Do at most `count` steps; ProtocolViolation when the objects exceed the limit."""
        # Runs in a thread, too, so it changes nothing but this object and its message. `decoded` counts the memory
        # afterwards, on the event loop.
        try:
            for _ in range(count):
                self.decoded_bytes = next(self._steps)
        except StopIteration as stop:
            self.is_whole = True
            self.decoded_bytes = stop.value
        # One check for all steps: each step is bounded, so they cannot exceed the limit by much.
        bytes_max = CONTROLLER_BYTES_MAX if self.is_control else DECODED_BYTES_MAX
        if self.decoded_bytes > bytes_max:
            raise ProtocolViolation(f"a request becomes more than {bytes_max} bytes of objects")

    def unbegun(self) -> AbstractContextManager[None]:
        """Within this block the request has not begun: its connection may be closed, unless a controller's."""
        # Frames of clients that wait for a thread may be most of the memory: closing connections has to free it.
        return nullcontext() if self.is_control else resting(keeps_turn=True)

    async def end(self, charged: Charged, in_thread: InThread) -> None:
        """Free the message, after its response is made or when it gets none."""
        self._steps.close()
        # A handler of an API that is not in NOT_KEPT_KEYS may have stored parts of the message, so only references are
        # dropped. A message that was not decoded to its end was never handed out.
        is_kept = self.is_whole and self.message.API_KEY not in NOT_KEPT_KEYS
        if self.decoded_bytes >= LARGE_BYTES and not is_kept:
            # Left to the interpreter, a large message would be freed in one step of the event loop.
            with trio.CancelScope(shield=True):
                await complete(take_apart(self.message), in_thread)
        charged.hold(0)


@asynccontextmanager
async def decoded(decoding: Decoding, charged: Charged, in_thread: InThread) -> AsyncIterator[m.Message]:
    """Within this block: the whole request, whose first step is done. It is freed at the end.

    ProtocolViolation when the frame is malformed, or becomes more objects than the limit.
    """
    try:
        with decoding.unbegun():
            while not decoding.is_whole and decoding.decoded_bytes < LARGE_BYTES:
                await in_thread(decoding.advance, STEPS_AT_A_TIME)
        charged.hold(decoding.decoded_bytes)
        if decoding.is_whole:
            yield decoding.message
            return

        async with charged.turns.turn():
            with decoding.unbegun():
                while not decoding.is_whole:
                    await in_thread(decoding.advance, STEPS_AT_A_TIME)
                    charged.hold(decoding.decoded_bytes)

            yield decoding.message
    finally:
        await decoding.end(charged, in_thread)
