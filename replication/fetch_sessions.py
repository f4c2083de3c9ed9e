"""The leader's side of incremental fetch sessions (KIP-227), for consumers and followers.

A session remembers the partitions that a client fetches and the offsets in its last response. A request names only
changes, and a response holds only partitions with news. A session keeps one `Waiter` registered on its partitions
*between* requests. The next request plans only *due* partitions: those that changed meanwhile, those that the request
names, and those left over from the last response (errors, and records that did not fit). So a Fetch costs in proportion
to the changes. `handlers/fetch.py` uses a session so:

    id 0, epoch 0    full request; may create a session           id n, epoch 0   close session n, then as id 0
    id 0, epoch -1   full request without a session               id n, epoch -1  close session n, then as id 0
    id n, epoch e    incremental: e must follow the last epoch (errors 70, 71)

The number of sessions and the number of all their partitions are limited (`FetchSessions`). A client without a session
goes on with full requests.
"""

import random
from collections import OrderedDict
from typing import TYPE_CHECKING

import trio

from barnabas.replication.isr import Pulse
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_SESSION_ID
from barnabas.world.freeing import emptied, emptied_by_topic
from barnabas.world.pacing import paced
from barnabas.world.waiting import Waiter

if TYPE_CHECKING:
    from barnabas.replication.isr import Follower
    from barnabas.replication.partition import Partition

EPOCH_MAX = 2**31 - 1
PARTITIONS_PER_SLOT = 100  # on average over all slots; a partition takes some 300 bytes
EVICTION_SECONDS = 120.0  # Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS
LOOK_SECONDS = 10.0  # between two checks for unused sessions

Topic = str | bytes  # its name (Fetch up to 12) or its id (13 and later)
Named = dict[Topic, "dict[int, Wanted]"]  # by topic and partition index


class Wanted:
    """One partition that a Fetch requests, and the offsets that the session's last response had for it."""

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
        self.name: str | None = None  # of a topic that is requested by id, once it was found
        self.fetch_offset = 0
        self.max_bytes = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        self.log_start_offset = -1
        self.forget_sent()
        self.follower: Follower | None = None  # if a follower fetches: its state at the leader's partition
        self.watched: Partition | None = None  # the partition that the session's waiter is registered with

    def forget_sent(self) -> None:
        """The client has not taken over the offsets of the last row: they are sent again."""
        # No partition has these offsets, so the next row counts as news.
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def part(self) -> None:
        """End the follower's progress here: later fetches of the session no longer count for this partition."""
        if self.follower is not None:
            self.follower.parted()
            self.follower = None


class FetchSession:
    """The session of one consumer or follower: its partitions, in the order in which they are served."""

    def __init__(self, session_id: int, now: float, *, of_follower: bool) -> None:
        self.session_id = session_id
        # The request that creates the session has epoch 0, and the client's next one has 1.
        self.epoch = 1
        self.made_at = self.used_at = now
        self.of_follower = of_follower
        self.uses_topic_ids = False  # Fetch 13 and later; a session uses either ids or names
        self.rack = ""  # of the last request
        self._wanted: Named = {}
        self.partition_count = 0
        self.waiter = Waiter(sleeps_through_commits=of_follower)
        self.pulse = Pulse()
        self.due: dict[Wanted, None] = {}  # planned by the next request even if they did not change
        self._is_closed = False  # a request of the session may still be under way
        # The waiter reports changed partitions; a plan needs the `Wanted` of each.
        self._by_partition: dict[Partition, Wanted] = {}

    @property
    def value(self) -> tuple[bool, int]:
        """What the session is worth: the one with the lowest value is evicted first."""
        # Followers' sessions are worth more than consumers', then sessions with more partitions, as
        # in Kafka.
        return self.of_follower, self.partition_count

    def want_all(self, named: Named, count: int) -> None:
        """Take over the `count` partitions of a full request. The caller makes them due."""
        self._wanted = named
        self.partition_count = count

    def want(self, wanted: Wanted) -> None:
        """Add or update a partition, and make it due."""
        of_topic = self._wanted.setdefault(wanted.topic, {})
        self.partition_count += wanted.partition_index not in of_topic
        of_topic[wanted.partition_index] = wanted
        self.due[wanted] = None

    def find(self, topic: Topic, partition_index: int) -> Wanted | None:
        """This partition of the session, or None."""
        return self._wanted.get(topic, {}).get(partition_index)

    def ask_from(self, rack: str) -> None:
        """Note the rack of the consumer (KIP-392)."""
        # After a change another replica may be nearer, so the preferred replica of all partitions is planned again.
        if rack != self.rack:
            self.rack = rack
            for of_topic in self._wanted.values():
                self.due.update(dict.fromkeys(of_topic.values()))

    @property
    def is_watching(self) -> bool:
        """Whether a partition of the session is hosted here, so that a change can wake a request."""
        return bool(self._by_partition)

    def forget(self, topic: Topic, partition_index: int) -> None:
        """Remove a partition from the session; unknown ones are ignored."""
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
        """Watch `partition`, which the plan of `wanted` has just found, for changes; None if it is not hosted here.

        The caller does not await between the plan and this call.
        """
        if wanted.watched is partition:
            if partition is not None and not self._is_closed:
                # The plan itself may have changed the partition (a follower's Fetch may raise the high watermark). Its
                # row includes that change, so it is no reason to plan again. The change has ended the registration of
                # the waiter, so it is registered again.
                self.waiter.dirty.pop(partition, None)
                self.waiter.register([partition])
            return
        # The partition is not hosted any more, or is another object: its topic was created again, or the replica came
        # back.
        if wanted.watched is not None:
            self.waiter.unregister([wanted.watched])
            self._by_partition.pop(wanted.watched, None)
        wanted.watched = partition
        if partition is not None and not self._is_closed:
            self.waiter.register([partition])
            self._by_partition[partition] = wanted

    def take_due(self) -> list[Wanted]:
        """The partitions to plan now. Left-over ones come first, for fairness, then those that changed."""
        due = self.due
        self.due = {}
        for changed in self.waiter.take_dirty():
            wanted = self._by_partition.get(changed)  # type: ignore[call-overload]  # only partitions are watched here
            if wanted is not None:
                due[wanted] = None
        return list(due)

    def close(self) -> None:
        """Register with no partition from now on. `free` removes the registrations that exist."""
        # A request that is still under way must not register the waiter after `free`.
        self._is_closed = True

    async def free(self) -> None:
        """Remove all registrations and free the memory, with checkpoints in between."""
        # A cancellation must wait: a registration that remained would keep the waiter in the
        # partition.
        with trio.CancelScope(shield=True):
            async for partition in paced(list(self._by_partition)):
                self.waiter.unregister([partition])
        await emptied(self._by_partition)
        await emptied(self.due)
        await emptied_by_topic(self._wanted)


class FetchSessions:
    """All sessions of a broker: at most `max.incremental.fetch.session.cache.slots` of them.

    When the slots or the partitions are used up, a new session evicts others or is not created. The first victim is a
    session that was not used for `EVICTION_SECONDS`; otherwise the session with the lowest `value`, if that is below
    the value of the new one.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # by id, the least recently used first
        self._closed: list[FetchSession] = []  # to be freed by `run`
        self.evictions = 0  # sessions that gave way to others

    def __len__(self) -> int:
        return len(self._sessions)

    def create(self, now: float, slots: int, partition_count: int, *, of_follower: bool = False) -> FetchSession | None:
        """A new session for `partition_count` partitions; None if there is no room and no session to evict."""
        value = of_follower, partition_count
        # Kafka limits the slots alone. Here partitions are limited too: a client may name any number, existing or not.
        if partition_count > slots * PARTITIONS_PER_SLOT:
            return None
        while len(self._sessions) >= slots or self.partition_count + partition_count > slots * PARTITIONS_PER_SLOT:
            if not self._evict(now, value):
                return None
        # The id is random, as in Kafka: after a restart of the broker, a client's old id hardly
        # names a new session.
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._rng.randrange(1, EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, now, of_follower=of_follower)
        return session

    def get(self, session_id: int) -> FetchSession | None:
        """The session with this id."""
        return self._sessions.get(session_id)

    def has_room_for(self, session: FetchSession, slots: int) -> bool:
        """Whether a session that may have grown still fits beside the others."""
        # A session that was closed meanwhile is no longer counted.
        return session.session_id not in self._sessions or self.partition_count <= slots * PARTITIONS_PER_SLOT

    @property
    def partition_count(self) -> int:
        """The number of partitions in all sessions."""
        return sum(session.partition_count for session in self._sessions.values())

    def continue_session(
        self, session_id: int, epoch: int, now: float, *, uses_topic_ids: bool = False
    ) -> FetchSession | ErrorCode:
        """The session of an incremental request, with its epoch advanced.

        Errors: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        # A request or a response was lost: both sides may differ in what the session holds. The error makes the client
        # send a full request.
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        # The epoch wraps to 1: 0 means a full request.
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session_id)
        return session

    def close(self, session_id: int) -> None:
        """End a session. Unknown ids are ignored: the client only wants the session to be gone."""
        session = self._sessions.pop(session_id, None)
        # The memory is freed later, in steps: callers close a session without an await, and it may
        # have many partitions.
        if session is not None:
            session.close()
            self._closed.append(session)

    async def run(self) -> None:
        """Close and free unused sessions; for ever."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            # Kafka keeps an unused session until its slot is needed. Here it ends: most likely its client has gone. If
            # not, the client sends a full request after the error.
            while (oldest := next(iter(self._sessions.values()), None)) is not None:
                if trio.current_time() - oldest.used_at <= EVICTION_SECONDS:
                    break
                self.close(oldest.session_id)
            await self.free_closed()

    async def free_closed(self) -> None:
        """Free the closed sessions. A session with 50,000 partitions takes some milliseconds."""
        while self._closed:
            await self._closed.pop().free()

    def _evict(self, now: float, value: tuple[bool, int]) -> bool:
        """Close one session to make room for a session of this value; False if none may be closed."""
        if not self._sessions:
            return False
        # A session that was not used for two minutes goes first, whatever its value.
        victim = next(iter(self._sessions.values()))
        if now - victim.used_at <= EVICTION_SECONDS:
            of_follower, _ = value
            exposed = [each for each in self._sessions.values() if _is_exposed(each, of_follower)]
            if not exposed:
                return False
            victim = min(exposed, key=lambda each: each.value)
            # A session of the same value stays: two clients would otherwise evict each other again
            # and again.
            if victim.value >= value:
                return False
        self.close(victim.session_id)
        self.evictions += 1
        return True


def _is_exposed(session: FetchSession, of_follower: bool) -> bool:
    """Whether a new session, perhaps a follower's, may evict this one although it is in use."""
    # Young sessions are safe (KIP-227), or clients would evict each other in turn. But a follower may evict a young
    # session of a consumer.
    return session.used_at - session.made_at > EVICTION_SECONDS or (of_follower and not session.of_follower)
