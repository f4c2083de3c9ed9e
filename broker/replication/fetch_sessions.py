"""Incremental fetch sessions (KIP-227): the broker remembers what a consumer wants and what its last response said.

A consumer of a thousand partitions would name all of them in each Fetch and be answered about all of them. With a
session it names the changes only, and the answer holds only partitions that have something new. So that such a fetch
costs in proportion to what changed, the session keeps one `Waiter` registered on its partitions *between* requests:
partitions that change while the consumer is busy gather on the dirty list, once each, and the next request plans those
alone, together with what the request itself changed and what was left over (errors, and data that did not fit).

    id 0, epoch 0    full request; a session may be made          id n, epoch 0   close session n, then the same
    id 0, epoch -1   full request, no session                     id n, epoch -1  close session n, full request
    id n, epoch e    incremental: e must follow the last one (70, 71 otherwise)

There are so many slots, and for each slot so many partitions, which sessions share: a client may name partitions that
do not exist. When all are taken a new session displaces others, or is not made: the consumer then goes on with full
requests. First to go is one that was not used for two minutes. Otherwise the least valuable one, if it is less valuable
than the new one: of a consumer rather than of a follower, then the one with fewer partitions. A session of less than
two minutes is safe from that, unless it is a consumer's and a follower needs the slot. A session that grows beyond what
is left ends (70), where Kafka counts slots alone.

A session that was not used for two minutes ends although its slot is not needed: most likely its consumer has gone, and
otherwise the consumer names its partitions again. Kafka keeps such a session.
"""

import random
from collections import OrderedDict
from typing import TYPE_CHECKING

import trio

from barnabas.broker.freeing import emptied, emptied_by_topic
from barnabas.broker.pacing import paced
from barnabas.broker.replication.isr import Pulse
from barnabas.broker.replication.waiting import Waiter
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_SESSION_ID

if TYPE_CHECKING:
    from barnabas.broker.replication.isr import Follower
    from barnabas.broker.replication.partition import Partition

EPOCH_MAX = 2**31 - 1
PARTITIONS_PER_SLOT = 100  # on average over all slots, of some 300 bytes each
EVICTION_SECONDS = 120.0  # Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS
LOOK_SECONDS = 10.0

Topic = str | bytes  # its name (Fetch up to 12) or its id (13 and later)
Named = dict[Topic, "dict[int, Wanted]"]  # by topic and partition index


class Wanted:
    """One partition that a fetch wants, and what the last response said of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "follower",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "name",
        "partition_index",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
        "watched",
    )

    def __init__(self, topic: Topic, partition_index: int) -> None:
        self.topic = topic
        self.partition_index = partition_index
        self.name: str | None = None  # of a topic that is asked for by id, once it was found
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.follower: Follower | None = None  # if a follower fetches: what the leader's partition knows of it
        self.watched: Partition | None = None  # the partition whose changes the session's waiter hears

    def part(self) -> None:
        """The follower does not fetch this any more, so its fetching other partitions says nothing about this one."""
        if self.follower is not None:
            self.follower.parted()
            self.follower = None


class FetchSession:
    """What one consumer wants, in the order in which it is served."""

    def __init__(self, session_id: int, now: float, *, of_follower: bool) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.made_at = self.used_at = now
        self.of_follower = of_follower
        self.uses_topic_ids = False  # Fetch 13 and later; a session keeps to ids or to names
        self.rack = ""  # of the last request
        self._wanted: Named = {}
        self.partition_count = 0
        self.waiter = Waiter(sleeps_through_commits=of_follower)
        self.pulse = Pulse()
        self.due: dict[Wanted, None] = {}  # to be planned at the next request whatever the waiter says
        self._is_closed = False  # a request of it may still be under way
        self._by_partition: dict[Partition, Wanted] = {}

    @property
    def value(self) -> tuple[bool, int]:
        """What it is worth to keep."""
        return self.of_follower, self.partition_count

    def want_all(self, named: Named, count: int) -> None:
        """A full request named these. The caller makes them due."""
        self._wanted, self.partition_count = named, count

    def want(self, wanted: Wanted) -> None:
        """Add or update a partition; it is due at once."""
        of_topic = self._wanted.setdefault(wanted.topic, {})
        self.partition_count += wanted.partition_index not in of_topic
        of_topic[wanted.partition_index] = wanted
        self.due[wanted] = None

    def find(self, topic: Topic, partition_index: int) -> Wanted | None:
        """This partition, if the consumer wants it."""
        return self._wanted.get(topic, {}).get(partition_index)

    def ask_from(self, rack: str) -> None:
        """The consumer is in this rack. If it is a new one, another replica may be nearer: all partitions are due."""
        if rack != self.rack:
            self.rack = rack
            for of_topic in self._wanted.values():
                self.due.update(dict.fromkeys(of_topic.values()))

    @property
    def is_watching(self) -> bool:
        """Whether there is a partition here from which news may come."""
        return bool(self._by_partition)

    def forget(self, topic: Topic, partition_index: int) -> None:
        """The consumer does not want this partition any more."""
        of_topic = self._wanted.get(topic, {})
        wanted = of_topic.pop(partition_index, None)
        if wanted is not None:
            if not of_topic:
                del self._wanted[topic]
            self.partition_count -= 1
            wanted.part()
            self.due.pop(wanted, None)
            self.watch(wanted, None)

    def watch(self, wanted: Wanted, partition: "Partition | None") -> None:
        """Hear of changes of `partition` from now on, which is where `wanted` was found."""
        if wanted.watched is partition:
            if partition is not None and not self._is_closed:
                self.waiter.dirty.pop(partition, None)  # it was looked at just now, perhaps changed by that
                self.waiter.register([partition])  # which took the waiter off it
            return
        if wanted.watched is not None:
            self.waiter.unregister([wanted.watched])
            self._by_partition.pop(wanted.watched, None)
        wanted.watched = partition
        if partition is not None and not self._is_closed:
            self.waiter.register([partition])
            self._by_partition[partition] = wanted

    def take_due(self) -> list[Wanted]:
        """What must be planned now: left-overs first, for fairness, then what changed."""
        due = self.due
        self.due = {}
        for changed in self.waiter.take_dirty():
            wanted = self._by_partition.get(changed)  # type: ignore[call-overload]  # only partitions are watched here
            if wanted is not None:
                due[wanted] = None
        return list(due)

    def close(self) -> None:
        """Watch nothing more from now on; `free` ends what is watched already."""
        self._is_closed = True

    async def free(self) -> None:
        """Stop watching, and free what is kept of each partition; others run in between."""
        with trio.CancelScope(shield=True):
            async for partition in paced(list(self._by_partition)):
                self.waiter.unregister([partition])
        await emptied(self._by_partition)
        await emptied(self.due)
        await emptied_by_topic(self._wanted)


class FetchSessions:
    """All sessions of a broker, the least recently used first; at most `max.incremental.fetch.session.cache.slots`."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._closed: list[FetchSession] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, now: float, slots: int, partition_count: int, *, of_follower: bool = False) -> FetchSession | None:
        """A new session for so many partitions, or None when every slot is in better use."""
        value = of_follower, partition_count
        if partition_count > slots * PARTITIONS_PER_SLOT:
            return None
        while len(self._sessions) >= slots or self.partition_count + partition_count > slots * PARTITIONS_PER_SLOT:
            if not self._evict(now, value):
                return None
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._rng.randrange(1, EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, now, of_follower=of_follower)
        return session

    def has_room_for(self, session: FetchSession, slots: int) -> bool:
        """Whether this session, which may have grown, fits in beside the others."""
        return session.session_id not in self._sessions or self.partition_count <= slots * PARTITIONS_PER_SLOT

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions together keep."""
        return sum(session.partition_count for session in self._sessions.values())

    def continue_session(
        self, session_id: int, epoch: int, now: float, *, uses_topic_ids: bool = False
    ) -> FetchSession | ErrorCode:
        """The session that an incremental request goes on with, its epoch advanced."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        """End a session; unknown ids are ignored, as the client only tidies up."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
            self._closed.append(session)

    async def run(self) -> None:
        """End sessions that are not used any more, for ever."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            while (oldest := next(iter(self._sessions.values()), None)) is not None:
                if trio.current_time() - oldest.used_at <= EVICTION_SECONDS:
                    break
                self.close(oldest.session_id)
            await self.free_closed()

    async def free_closed(self) -> None:
        """Free the sessions that were closed. One of 50,000 partitions takes some milliseconds."""
        while self._closed:
            await self._closed.pop().free()

    def _evict(self, now: float, value: tuple[bool, int]) -> bool:
        """Close a session that is worth less than one of this value; False when there is none."""
        if not self._sessions:
            return False
        victim = next(iter(self._sessions.values()))
        if now - victim.used_at <= EVICTION_SECONDS:
            of_follower, _ = value
            exposed = [each for each in self._sessions.values() if _is_exposed(each, of_follower)]
            if not exposed:
                return False
            victim = min(exposed, key=lambda each: each.value)
            if victim.value >= value:
                return False
        self.close(victim.session_id)
        return True


def _is_exposed(session: FetchSession, of_follower: bool) -> bool:
    """Whether a session that is in use may be displaced, by one of a follower or by anybody's."""
    return session.used_at - session.made_at > EVICTION_SECONDS or (of_follower and not session.of_follower)
