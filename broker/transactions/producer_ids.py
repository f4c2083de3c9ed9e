"""Ids for idempotent producers, handed out from blocks that the controller gives (reference E.5).

No id is ever handed out twice in a cluster: the controller moves /latest_producer_id_block on before it answers with a
block of (usually 1000) ids, and a broker forgets the rest of its block when it stops. The next block is asked for when
nine tenths of this one are used, so that a producer rarely waits; the first one when the first producer comes.

Only `run` asks, one request at a time, for all who wait: a caller that is cancelled takes no other
else's block away. A caller that finds no id left waits for the attempt that is under way, or for the next; when that
fails, or takes too long, it gets COORDINATOR_LOAD_IN_PROGRESS, which clients retry.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import trio

from barnabas.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

PREFETCH_TENTHS = 9
RETRY_BACKOFF_MS = 50  # Kafka's; between two attempts, when one failed
WAIT_MS_MAX = 1_000  # shorter than any client's request timeout: an answer to retry on is better than none

Block = tuple[int, int]  # first id and count
Allocate = Callable[[], Awaitable[Block | ErrorCode]]


@dataclass(eq=False, slots=True)
class _Attempt:
    """One request for a block, and those who wait for its end."""

    ended: trio.Event = field(default_factory=trio.Event)
    failed: bool = False


class ProducerIds:
    """This broker's supply of producer ids. `allocate` asks the controller for a block."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._next_id = 0
        self._end = 0  # of the block in use, exclusive
        self._prefetch_from = 0
        self._next_block: Block | None = None
        self._attempt = _Attempt()
        self._wanted = trio.Event()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Fetch blocks when they are wanted, until cancelled. While this does not run, no caller gets an id."""
        task_status.started()
        while True:
            await self._wanted.wait()
            block = await self._allocate()
            attempt, self._attempt, self._wanted = self._attempt, _Attempt(), trio.Event()
            attempt.failed = not self._accept(block)
            attempt.ended.set()
            if attempt.failed:
                await trio.sleep(RETRY_BACKOFF_MS / 1000)

    async def next_id(self) -> int | None:
        """An id that no producer has; None while the controller allocates no block of ids."""
        with trio.move_on_after(WAIT_MS_MAX / 1000):
            while True:
                producer_id = self._take()
                if producer_id is not None:
                    return producer_id
                attempt = self._attempt
                await attempt.ended.wait()
                if attempt.failed:
                    break
        return None

    def _take(self) -> int | None:
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
        self._next_id, self._end, self._next_block = first, first + count, None
        self._prefetch_from = first + count * PREFETCH_TENTHS // 10

    def _accept(self, block: Block | ErrorCode) -> bool:
        """Keep a block for when the one in use is empty; False when there is none to keep."""
        if isinstance(block, ErrorCode):
            logger.info("no block of producer ids: the controller answered %s", block.name)
            return False
        first, count = block
        if count <= 0 or first < self._end:  # blocks of one store only go up
            logger.error(
                "the controller gave %d producer ids from %d, where some beyond %d were due: a block that is not used",
                count,
                first,
                self._end,
            )
            return False
        self._next_block = block
        return True
