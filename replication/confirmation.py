"""Makes a leader certain that it has no successor, for answers that would be wrong if it had one (shell).

A leader that was stopped for a while, or that the controller cannot reach, does not know that another broker leads now,
and its state is old. But its successor was elected from the ISR, and followed this leader until then. So each member of
the ISR is awaited to fetch from this leader after the question came.

A fetch that arrives may have been under way for long, also while this process was stopped. So what counts is not its
arrival: on one connection a follower sends it after the response to its fetch before, and so after the arrival of that
one. Two fetches of each follower are needed. They take milliseconds, as a follower that waits for records gets its
response at once.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol, TypeVar

import trio

from barnabas.replication.isr import Follower
from barnabas.wire.errors import ErrorCode
from barnabas.world.freeing import emptied
from barnabas.world.pacing import paced
from barnabas.world.resting import resting
from barnabas.world.waiting import Waiter, Watched, wake_followers

# The time limit for answers that must not come from a deposed leader: it never succeeds. A real one needs milliseconds.
CONFIRMED_SECONDS = 1.0


class Confirmed(Watched, Protocol):
    """What this file needs of a `Partition`."""

    confirmation: "Confirmation | None"  # None before the first question

    @property
    def is_leader(self) -> bool: ...
    @property
    def leading_since(self) -> int: ...
    @property
    def followers(self) -> dict[int, Follower]: ...

    def is_in_maximal_isr(self, replica: int) -> bool:
        """Whether a leader may be elected from this replica."""
        ...

    def mark(self) -> int:
        """A number above the marks of all fetches and questions until now, those of other partitions included."""
        ...


Leader = TypeVar("Leader", bound=Confirmed)


class _Question:
    __slots__ = ("answered", "mark", "outcome")

    def __init__(self, mark: int) -> None:
        self.mark = mark
        self.answered = trio.Event()
        self.outcome = ErrorCode.REQUEST_TIMED_OUT

    def answer(self, outcome: ErrorCode) -> None:
        self.outcome = outcome
        self.answered.set()


class Confirmation(Waiter):
    """The questions that wait at one partition. It is woken in their place: there may be thousands of them."""

    __slots__ = ("_leading_since", "_partition", "_questions", "awaited_mark")

    def __init__(self, partition: Confirmed) -> None:
        super().__init__()
        self._partition = partition
        self._leading_since = partition.leading_since
        self._questions: OrderedDict[int, _Question] = OrderedDict()  # by their marks, which count up
        # The mark of the newest question, 0 if no follower's fetch is awaited. It stays after a
        # question timed out: the next one usually follows soon, and a follower that is silent
        # leaves the ISR.
        self.awaited_mark = 0

    def ask(self) -> _Question:
        """Begin to wait for the followers. `forget` ends it."""
        if not self.awaited_mark:
            self._leading_since = self._partition.leading_since
        question = _Question(self._partition.mark())
        self.awaited_mark, self._questions[question.mark] = question.mark, question
        self.look()
        if not question.answered.is_set():
            wake_followers(self._partition)  # their fetches that wait are answered (`is_fetch_awaited`)
        return question

    def forget(self, question: _Question) -> None:
        self._questions.pop(question.mark, None)

    def act_on(self, _: Watched) -> None:
        """Answer what can be answered, in the step of the change."""
        self.look()

    def touch(self, _: Watched) -> None:
        """The same."""
        self.look()

    def look(self) -> None:
        """Answer the questions after which each follower has followed; all of them if the role is over."""
        # This runs at each fetch of a follower, and usually nothing is asked.
        if not self.awaited_mark:
            return
        partition = self._partition
        questions = self._questions
        leads = partition.is_leader and partition.leading_since == self._leading_since

        # A leader may be elected from the maximal ISR, so its followers count.
        followed = [
            each.followed_after for replica, each in partition.followers.items() if partition.is_in_maximal_isr(replica)
        ]
        settled = min(followed, default=self.awaited_mark + 1) if leads else self.awaited_mark + 1
        while questions and next(iter(questions)) < settled:
            _, question = questions.popitem(last=False)
            question.answer(ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.awaited_mark < settled:
            self.awaited_mark = 0
        else:
            partition.waiters[self] = None


async def confirm(partition: Confirmed, deadline: float) -> ErrorCode:
    """Wait until no other broker can have led the partition before the call. The caller must be the leader.

    NONE, NOT_LEADER_OR_FOLLOWER, or REQUEST_TIMED_OUT at `deadline` (trio's clock, s).
    """
    return (await confirm_all([partition], deadline))[partition]


async def confirm_all(partitions: Iterable[Leader], deadline: float) -> dict[Leader, ErrorCode]:
    """As `confirm`, for several partitions at once: the same fetches of a follower answer for all of them."""
    asked: list[tuple[Leader, Confirmation, _Question]] = []
    outcomes: dict[Leader, ErrorCode] = {}
    try:
        async for partition in paced(partitions):
            confirmation = partition.confirmation = partition.confirmation or Confirmation(partition)
            asked.append((partition, confirmation, confirmation.ask()))
        with trio.move_on_at(deadline), resting():
            async for _, _, question in paced(asked):
                if not question.answered.is_set():
                    await question.answered.wait()
    finally:
        with trio.CancelScope(shield=True):
            async for partition, confirmation, question in paced(asked):
                confirmation.forget(question)
                outcomes[partition] = question.outcome
            await emptied(asked)

    return outcomes


def awaited_mark_of(partition: Confirmed) -> int:
    """The mark of the newest question; 0 if no fetch of a follower is awaited."""
    return 0 if partition.confirmation is None else partition.confirmation.awaited_mark


def is_fetch_awaited(partition: Confirmed, replica_id: int) -> bool:
    """Whether `confirm` waits for another fetch of this follower, which is therefore answered at once."""
    # This is asked at each fetch, and usually nothing waits.
    if partition.confirmation is None:
        return False
    follower = partition.followers.get(replica_id)
    is_awaited = follower is not None and follower.followed_after < partition.confirmation.awaited_mark
    return is_awaited and partition.is_in_maximal_isr(replica_id)
