"""Makes a leader certain that it has no successor, for answers that would be wrong if it had one (shell).

A leader that was stopped for a while, or that the controller cannot reach, does not know that another broker leads now,
and its state is old. But its successor was elected from the ISR, and followed this leader until then. So each member of
the ISR is awaited to fetch from this leader after the question came.

A fetch that arrives may have been under way for long, also while this process was stopped. So what counts is not its
arrival: on one connection a follower sends it after the response to its fetch before, and so after the arrival of that
one. Two fetches of each follower are needed. They take milliseconds, as a follower that waits for records gets its
response at once.
"""

from typing import Protocol

from barnabas.broker.replication.isr import Follower
from barnabas.broker.replication.waiting import Decisions, Watched, wake
from barnabas.wire.errors import ErrorCode

# For answers that make a consumer begin elsewhere. A leader needs milliseconds, and one of the past never succeeds.
CONFIRMED_SECONDS = 1.0


class Confirmed(Watched, Protocol):
    """What this file needs of a `Partition`."""

    doubt: int  # the mark of the last `confirm` that is not answered; 0: none

    @property
    def is_leader(self) -> bool: ...
    @property
    def leading_since(self) -> int: ...
    @property
    def followers(self) -> dict[int, Follower]: ...

    def is_in_maximal_isr(self, replica: int) -> bool:
        """Whether a leader may be elected from this replica."""
        ...


async def confirm(partition: Confirmed, mark: int, deadline: float) -> ErrorCode:
    """Wait until no other broker can have led the partition before the mark. The caller must be the leader.

    NONE, NOT_LEADER_OR_FOLLOWER, or REQUEST_TIMED_OUT at `deadline` (trio's clock, s).
    """
    leading_since = partition.leading_since

    def outcome(_: int) -> ErrorCode | None:
        if not partition.is_leader or partition.leading_since != leading_since:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.NONE if _is_followed_after(partition, mark) else None

    decisions = Decisions([partition], outcome)
    if not decisions.look():
        partition.doubt = mark
        wake(partition)  # the followers' fetches that wait are answered (`is_doubted_before`)
        await decisions.wait(deadline)
    (decided,) = decisions.decided
    return ErrorCode.REQUEST_TIMED_OUT if decided is None else decided


def is_doubted_before(partition: Confirmed, replica_id: int) -> bool:
    """Whether `confirm` waits for another fetch of this follower, which is therefore answered at once."""
    follower = partition.followers.get(replica_id)
    is_awaited = follower is not None and follower.followed_after < partition.doubt
    return is_awaited and partition.is_in_maximal_isr(replica_id)


def settles_doubt(partition: Confirmed) -> bool:
    """Whether `confirm` need not wait any more, after a follower's fetch."""
    if not partition.doubt or not _is_followed_after(partition, partition.doubt):
        return False
    partition.doubt = 0
    return True


def _is_followed_after(partition: Confirmed, mark: int) -> bool:
    """Whether each follower from which a leader may be elected followed this leader after the mark."""
    return all(
        each.followed_after > mark
        for replica, each in partition.followers.items()
        if partition.is_in_maximal_isr(replica)
    )
