"""Who is in sync, and how far the partition is committed: a leader's decisions as pure functions (reference C.5, C.6).

*What the leader knows.* Followers tell nothing but where they want to read: a fetch from offset n says that everything
below n is on that replica. From the row of its fetches the leader derives when a follower last had all there was, in
a way that a follower which always fetches, and is always a little behind, counts as caught up:

    fetch at or beyond the leader's log end                                 -> caught up now
    fetch at or beyond where the log ended when it fetched before           -> caught up then
    else                                                                    -> as before

*In sync* is who caught up less than `replica.lag.time.max.ms` ago. Three kinds of replicas are not: a *stuck* one, that
fetches no more; a *slow* one, that fetches and falls behind; a *bootstrapping* one, which has not come to the high
watermark for the first time. Time is the measure because it does not depend on the load: by the number of messages
(`replica.lag.max.messages`, off unless it is set) a burst of writes puts everybody out of sync for a moment.

*The high watermark* is the smallest log end offset over the leader and all who are, or are about to be, in sync:
everything below it is on every replica that may become leader, so it is what consumers may see and what acks=all waits
for. The leader's own share is its *acknowledgeable* offset, which stays behind the log end while a demanded flush is
outstanding.

*The ISR* changes only when the controller has agreed. Meanwhile the high watermark counts those that are to join and
still those that are to leave (the maximal ISR): whichever way the answer falls, no replica in the ISR misses a record
that was acknowledged.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.wire.sentinels import UNKNOWN_BROKER_EPOCH

UNKNOWN_OFFSET = -1
NEVER = -math.inf


@dataclass(slots=True)
class Pulse:
    """When a follower last fetched in a session: of all its partitions, also those that it did not name because
    nothing changed. So a quiet partition costs nothing, and yet it is known that its follower is alive."""

    last_fetch_ms: float = NEVER
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # that the request carried: the broker may have registered again since


@dataclass(slots=True)
class Follower:
    """What a leader knows of one follower under its leader epoch."""

    broker_id: int
    last_caught_up_ms: float = NEVER
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    leader_end_offset: int = UNKNOWN_OFFSET  # where the leader's log ended at the last fetch
    fetched_ms: float = NEVER  # the last fetch in which this partition was looked at
    pulse: Pulse = field(default_factory=Pulse)

    def fetched(self, fetch_offset: int, leader_end_offset: int, now_ms: float, pulse: Pulse) -> None:
        """It asked for what follows `fetch_offset`, when the leader's log ended at `leader_end_offset`."""
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self.leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)
        self.fetched_ms = now_ms
        self.pulse = pulse

    def parted(self) -> None:
        """It does not fetch this partition in that session any more, though perhaps others."""
        self.last_caught_up_ms, self.fetched_ms = self.caught_up_ms, self.last_fetch_ms
        self.pulse = Pulse()

    @property
    def member_epoch(self) -> int:
        """The broker epoch that it named last, under which it may become a member of the ISR."""
        return max(self.broker_epoch, self.pulse.broker_epoch)

    @property
    def last_fetch_ms(self) -> float:
        """When it last fetched."""
        return max(self.fetched_ms, self.pulse.last_fetch_ms)

    @property
    def caught_up_ms(self) -> float:
        """When it last had everything that there was."""
        if self.log_end_offset >= self.leader_end_offset != UNKNOWN_OFFSET:
            # Until it is looked at again, the partition did not change before the session's last fetch.
            return max(self.last_caught_up_ms, self.pulse.last_fetch_ms)
        return self.last_caught_up_ms


class LagLimits(NamedTuple):
    """How far behind a follower in sync may be."""

    time_ms: float  # replica.lag.time.max.ms
    messages: int  # replica.lag.max.messages; 0: any number


def is_caught_up(follower: Follower, leader_end_offset: int, now_ms: float, limits: LagLimits) -> bool:
    """Whether a follower is in sync, by what is known of it."""
    if follower.log_end_offset == leader_end_offset:
        return True
    if 0 < limits.messages < leader_end_offset - follower.log_end_offset:
        return False
    return now_ms - follower.caught_up_ms <= limits.time_ms


def decide_high_watermark(
    current: int, leader_share: int, followers: Iterable[Follower], is_awaited: Callable[[Follower], bool]
) -> int:
    """The high watermark after these positions became known: it never falls.

    `leader_share` is the leader's acknowledgeable offset. A follower that is awaited and has not fetched under this
    leader epoch (`UNKNOWN_OFFSET`) holds the high watermark where it is.
    """
    candidate = leader_share
    for follower in followers:
        if follower.log_end_offset < candidate and is_awaited(follower):
            candidate = follower.log_end_offset
    return max(current, candidate)


def may_join(follower: Follower, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower has come far enough for the ISR: to what is committed, and into this leader's own epoch.

    A high watermark that this leader does not know yet may lie anywhere up to where its epoch began.
    """
    return follower.log_end_offset >= max(high_watermark, epoch_start_offset)


def decide_shrunk(
    in_sync: Collection[int],
    followers: Mapping[int, Follower],
    leader_end_offset: int,
    now_ms: float,
    limits: LagLimits,
) -> list[int]:
    """The in-sync replicas without those that are stuck or too slow; the leader itself is no follower and stays."""
    return [
        each
        for each in in_sync
        if each not in followers or is_caught_up(followers[each], leader_end_offset, now_ms, limits)
    ]


def decide_low_watermark(
    leader_start_offset: int, live_replicas: Iterable[int], followers: Mapping[int, Follower]
) -> int:
    """The smallest log start offset over the live replicas: what lies below is deleted wherever it could be read.

    It is unknown (-1) while a live follower has not fetched under this leader epoch.
    """
    return min(
        [leader_start_offset, *(followers[each].log_start_offset for each in live_replicas if each in followers)]
    )
