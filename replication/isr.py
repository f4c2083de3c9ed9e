"""A leader's decisions about the ISR and the high watermark (pure; reference C.5, C.6).

A follower reports its progress only by its fetch offset: a Fetch from offset n means that the replica has every record
below n. From successive fetches the leader derives when a follower was last caught up:

    fetch offset >= the leader's log end offset now                         -> caught up now
    fetch offset >= the leader's log end offset at the previous fetch       -> caught up at the previous fetch
    else                                                                    -> unchanged

A follower is in sync if it was caught up less than `replica.lag.time.max.ms` ago. A *stuck* follower no longer fetches;
a *slow* one fetches but falls behind; a *bootstrapping* one has not reached the high watermark yet.

The high watermark is the smallest log end offset of the leader and the maximal ISR, so each record below it is on every
replica that may become leader. Consumers read up to it, and acks=all waits for it. The maximal ISR is the ISR plus the
members of a requested ISR (`partition.py`). The controller may accept or refuse the request: in both cases no member
of the ISR lacks an acknowledged record.
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
    """The last Fetch of a fetch session. All partitions of the session share it, also those that the Fetch did not name
    because nothing changed. So quiet partitions cost nothing, and their follower still counts as alive."""

    last_fetch_ms: float = NEVER
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # of that Fetch; a broker that registered again has a newer one


class Arrival(NamedTuple):
    """When a fetch arrived, by a number that counts up, and on which connection."""

    mark: int
    connection: int


@dataclass(slots=True)
class Follower:
    """What a leader knows of one follower of one partition in its current leader epoch."""

    broker_id: int
    last_caught_up_ms: float = NEVER
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    broker_epoch: int = UNKNOWN_BROKER_EPOCH
    leader_end_offset: int = UNKNOWN_OFFSET  # the leader's log end offset at the last fetch
    fetched_ms: float = NEVER  # the last fetch that named this partition or found it changed
    arrival: Arrival | None = None  # of that fetch
    followed_after: int = 0  # mark of an earlier fetch, whose response the follower had when it sent the last one
    pulse: Pulse = field(default_factory=Pulse)

    def fetched(self, fetch_offset: int, leader_end_offset: int, now_ms: float, pulse: Pulse, arrival: Arrival) -> None:
        """The follower fetched from `fetch_offset` while the leader's log ended at `leader_end_offset`."""
        # A fetch may have been under way for long, also while this process was stopped. But on one connection a
        # follower sends it after the response to its previous fetch, so after that one's arrival (`confirmation.py`).
        if self.arrival is not None and self.arrival.connection == arrival.connection:
            self.followed_after = self.arrival.mark
        self.arrival = arrival
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        # On a busy partition a follower is always one fetch behind. It counts as caught up at its previous fetch, if it
        # has everything that the log held then.
        elif fetch_offset >= self.leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.leader_end_offset = max(self.leader_end_offset, leader_end_offset)
        self.fetched_ms = now_ms
        self.pulse = pulse

    def parted(self) -> None:
        """The follower no longer fetches this partition in that session. It may still fetch others in it."""
        # The two properties are fixed first: later fetches of the session must not keep this partition in sync.
        self.last_caught_up_ms = self.caught_up_ms
        self.fetched_ms = self.last_fetch_ms
        self.pulse = Pulse()

    @property
    def member_epoch(self) -> int:
        """The latest broker epoch of its fetches, which AlterPartition sends for an ISR member (KIP-903)."""
        return max(self.broker_epoch, self.pulse.broker_epoch)

    @property
    def last_fetch_ms(self) -> float:
        """The time of the last Fetch, of this partition or of its session; monotonic ms."""
        return max(self.fetched_ms, self.pulse.last_fetch_ms)

    @property
    def caught_up_ms(self) -> float:
        """When the follower last had the whole log; monotonic ms."""
        # The follower had the whole log at its last own fetch. A change would have made the session plan the partition,
        # so the log was still the same at the session's last Fetch.
        if self.log_end_offset >= self.leader_end_offset != UNKNOWN_OFFSET:
            return max(self.last_caught_up_ms, self.pulse.last_fetch_ms)
        return self.last_caught_up_ms


class AskedIsr(NamedTuple):
    """An ISR that the leader asks the controller for with AlterPartition."""

    in_sync_replicas: list[int]
    leader_epoch: int
    partition_epoch: int  # of the state that the change is based on
    broker_epochs: dict[int, int]  # follower id -> broker epoch of its Fetch; the controller refuses old ones (KIP-903)


class LagLimits(NamedTuple):
    """How far behind an in-sync follower may be."""

    time_ms: float  # replica.lag.time.max.ms
    messages: int  # replica.lag.max.messages; 0: no limit


def is_caught_up(
    follower: Follower, leader_end_offset: int, now_ms: float, limits: LagLimits, awaited_mark: int = 0
) -> bool:
    """Whether a follower is in sync, by its last fetches. A question with `awaited_mark` waits for them."""
    # As in Kafka, a follower with the whole log stays in sync although it does not fetch: the ISR of a quiet partition
    # need not change. If a question awaits its fetch, only the time limit counts, or the question might wait for ever.
    if follower.log_end_offset == leader_end_offset and follower.followed_after >= awaited_mark:
        return True
    # The limit on messages is off by default: a burst of writes would put all followers out of sync for a moment. The
    # limit on time does not depend on the load.
    if 0 < limits.messages < leader_end_offset - follower.log_end_offset:
        return False
    return now_ms - follower.caught_up_ms <= limits.time_ms


def decide_high_watermark(
    current: int, acknowledgeable_offset: int, followers: Iterable[Follower], is_awaited: Callable[[Follower], bool]
) -> int:
    """The new high watermark, at least `current`.

    `acknowledgeable_offset` is the leader's: it stays behind the log end offset while a demanded flush is outstanding.
    `is_awaited` says whether the high watermark waits for a follower.
    """
    candidate = acknowledgeable_offset
    for follower in followers:
        # The cheap comparison comes first, as this runs after each append: `is_awaited` takes clock and metadata.
        if follower.log_end_offset < candidate and is_awaited(follower):
            candidate = follower.log_end_offset
    # A follower that has not fetched in this leader epoch has UNKNOWN_OFFSET (-1): it keeps the high watermark where it
    # is. Records that were committed once stay committed.
    return max(current, candidate)


def may_join(follower: Follower, high_watermark: int, epoch_start_offset: int) -> bool:
    """Whether a follower has reached the high watermark and this leader's epoch, so that it may join the ISR."""
    # The previous leader's high watermark may be higher than the one known here, but not above `epoch_start_offset`.
    return follower.log_end_offset >= max(high_watermark, epoch_start_offset)


def decide_shrunk(
    in_sync: Collection[int],
    followers: Mapping[int, Follower],
    leader_end_offset: int,
    now_ms: float,
    limits: LagLimits,
    awaited_mark: int,
) -> list[int]:
    """The in-sync replicas without the stuck and the slow ones. The leader is not in `followers` and stays."""
    return [
        each
        for each in in_sync
        if each not in followers or is_caught_up(followers[each], leader_end_offset, now_ms, limits, awaited_mark)
    ]


def decide_low_watermark(
    leader_start_offset: int, live_replicas: Iterable[int], followers: Mapping[int, Follower]
) -> int:
    """The low watermark of DeleteRecords (KIP-107): the smallest log start offset of the live replicas.

    -1 (unknown) while a live follower has not fetched in this leader epoch.
    """
    # UNKNOWN_OFFSET is below every offset, so one unknown start makes the result unknown.
    return min(
        [leader_start_offset, *(followers[each].log_start_offset for each in live_replicas if each in followers)]
    )
