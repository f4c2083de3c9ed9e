"""Ids for idempotent producers, from blocks that the controller allocates (reference E.5).

No id is ever given out twice in a cluster: the controller writes /latest_producer_id_block before it answers with a
block (usually 1000 ids), and a broker that stops never reuses the rest of its block. The first block is requested with
the first producer, each further one when nine tenths of the current block are used, so a producer rarely waits.

A caller that finds no id waits for the attempt that is running, or for the next one. If that fails or takes too long,
the client gets COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from barnabas.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

PREFETCH_TENTHS = 9
RETRY_BACKOFF_MS = 50  # after a failed attempt; Kafka's value
WAIT_MS_MAX = 1_000  # shorter than any client's request timeout, so that the client gets an error that it retries

Block = tuple[int, int]  # first id and count
Allocate = Callable[[], Awaitable[Block | ErrorCode]]


@dataclass(eq=False, slots=True)
class _Attempt:
    """One request for a block; callers wait for `ended`."""

    ended: trio.Event = field(default_factory=trio.Event)
    failed: bool = False


class ProducerIds:
    """This broker's supply of producer ids. `allocate` asks the controller for a block."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        # An empty block, already behind its prefetch mark: the first `_take` requests the first block.
        self._next_id = 0
        self._end = 0  # of the block in use, exclusive
        self._prefetch_from = 0
        self._next_block: Block | None = None
        self._attempt = _Attempt()
        self._wanted = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch blocks when they are wanted, until cancelled. While this does not run, no caller gets a new block."""
        task_status.started()
        while True:
            await self._wanted.wait()
            # This task alone asks, one request at a time, for all waiting callers: a caller that is
            # cancelled must not take along a block that others wait for.
            block = await self._allocate()
            # The attempt is replaced before `ended` is set: a caller that finds this block used up
            # as well waits for the next attempt. `_wanted` is replaced, too, because this block
            # meets all demands that came during the request.
            attempt, self._attempt, self._wanted = self._attempt, _Attempt(), trio.Event()
            attempt.failed = not self._accept(block)
            attempt.ended.set()
            if attempt.failed:
                await trio.sleep(RETRY_BACKOFF_MS / 1000)

    async def next_id(self) -> int | None:
        """An id that no producer has; None while the controller allocates no block of ids."""
        with trio.move_on_after(WAIT_MS_MAX / 1000):
            while True:
                # The caller tries again after each attempt, because others may have used up the new
                # block.
                producer_id = self._take()
                if producer_id is not None:
                    return producer_id
                attempt = self._attempt
                await attempt.ended.wait()
                if attempt.failed:
                    break
        return None

    def _take(self) -> int | None:
        # This is synchronous: no other caller can take the same id.
        if self._next_id == self._end and self._next_block is not None:
            self._begin(self._next_block)
        producer_id = self._next_id if self._next_id < self._end else None
        if producer_id is not None:
            self._next_id += 1
        if self._next_block is None and self._next_id >= self._prefetch_from:
            self._wanted.set()
        return producer_id

    def _begin(self, block: Block) -> None:
        first, count = block
        self._next_id = first
        self._end = first + count
        self._next_block = None
        self._prefetch_from = first + count * PREFETCH_TENTHS // 10

    def _accept(self, block: Block | ErrorCode) -> bool:
        """Store the next block. False if the controller gave none, or an unusable one."""
        if isinstance(block, ErrorCode):
            logger.info("no block of producer ids: the controller answered %s", block.name)
            return False
        # The blocks of one store only go up. With an id that another producer has, the batches of one of the two would
        # be dropped as duplicates.
        first, count = block
        if count <= 0 or first < self._end:
            logger.error(
                "the controller gave %d producer ids from %d: expected ids from %d on; the block is ignored",
                count,
                first,
                self._end,
            )
            return False

        self._next_block = block
        return True
