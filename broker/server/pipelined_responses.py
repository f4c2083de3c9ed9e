"""What a connection owes its client: answers that wait, while the requests behind them are begun.

Kafka reads the next request of a connection when the last one is answered, so a producer that waits for all in-sync
replicas has one batch on its way to them at a time, however many it has sent. Here a Produce whose records are in the
log, and which only waits for its acknowledgement, lets the next Produce begin: followers fetch several batches at once.
What clients may rely on is the same: records are appended in the order of the requests, and answers leave in it. Every
other request waits until nothing is owed, for it may ask about what was written.
"""

import trio

from barnabas.broker.net import Stream
from barnabas.broker.replication.waiting import Waiter, Watched, resting
from barnabas.broker.server.dispatch import PRODUCE_KEY, Owed, Pieces
from barnabas.storage.disk import InThread

PRODUCE_START = PRODUCE_KEY.to_bytes(2, "big")
OWED_MAX = 5  # as many as an idempotent producer may have on their way


class OwedAnswers(Waiter):
    """A connection's answers that have not left yet, in the order of the requests."""

    __slots__ = ("_answers", "_receiving", "_watched")

    def __init__(self) -> None:
        super().__init__()
        self._answers: list[Owed | Pieces] = []  # a few: a deque's first block would cost every idle connection
        self._watched: dict[Watched, None] = {}
        self._receiving: trio.CancelScope | None = None

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, answer: Owed | Pieces) -> None:
        """This is owed too, behind the others."""
        self._answers.append(answer)
        if isinstance(answer, Owed):
            watched = answer.later.outcomes.watched
            self._watched.update(dict.fromkeys(watched))
            self.register(watched)

    def touch(self, changed: Watched) -> None:
        super().touch(changed)
        if self._receiving is not None:
            self._receiving.cancel()

    async def take_due(self, in_thread: InThread) -> Pieces:
        """The pieces of the answers that can leave now, from the oldest on."""
        if self.take_dirty():
            for answer in self._answers:
                if isinstance(answer, Owed):
                    answer.later.outcomes.look()
        pieces: Pieces = []
        while self._answers and self._deadline <= trio.current_time():
            answer = self._answers.pop(0)
            pieces += await answer.pieces(in_thread) if isinstance(answer, Owed) else answer
        if not self._answers:
            self.abandon()
        return pieces

    def abandon(self) -> None:
        """Nothing is owed any more."""
        self._answers.clear()
        self.unregister(self._watched)
        self._watched.clear()

    @property
    def _deadline(self) -> float:
        """When the oldest answer can leave at the latest; in the past where it can now."""
        oldest = self._answers[0]
        if isinstance(oldest, Owed) and not oldest.later.outcomes.are_decided:
            return oldest.later.deadline
        return 0.0

    async def wait_for_due(self) -> None:
        """Return when something can leave, or may."""
        await self.wait(self._deadline)

    async def receive(self, stream: Stream, max_bytes: int) -> bytes | None:
        """What has arrived at the stream; None when something can leave, or may, before that."""
        with trio.CancelScope(deadline=self._deadline) as receiving:
            self._receiving = receiving
            try:
                with resting():
                    return await stream.receive_some(max_bytes)
            finally:
                self._receiving = None
        return None


def is_produce(frame: memoryview) -> bool:
    """Whether this request may begin while answers are owed."""
    return frame[:2] == PRODUCE_START
