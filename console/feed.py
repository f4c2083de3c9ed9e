"""The live feed of the page, as Server-Sent Events: `GET /v1/feed?topics=a,b&groups=g`, each name quoted by itself.

One `Waiter` for each feed is registered with the replicas here that are looked at, as those of waiting Fetches are.
So a change costs one entry of a dict, and the feed is woken at most every TICK_SECONDS. It sends the rows that changed,
of each the fields that changed. While no browser looks there is no waiter and no task.

Events, each with a JSON document:

    cluster      brokers, the controller, counts: as `GET /v1/cluster`
    partitions   {"rows": [...], "gone": [[topic, partition], ...], "now_ms": ...}; the first time, whole rows
    group        as `GET /v1/groups/{group}`, or {"group": ..., "error": ...}
    story        {"events": [...]}

A comment is sent at least every SWEEP_SECONDS, so that a client that has left is noticed.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import unquote

import trio

from barnabas.broker.call import Broker
from barnabas.broker.life import Life
from barnabas.console.asking import Asking, asking_for
from barnabas.console.cluster_views import cluster_state
from barnabas.console.exchange import Answer, BadRequest, HttpRequest, Send, error_answer
from barnabas.console.group_views import group_state
from barnabas.console.long_json import json_text, long_json_text
from barnabas.console.offsets import UNKNOWN, Ends, ends_of
from barnabas.console.replica_rows import ELSEWHERE, Row, is_settled, replica_row
from barnabas.console.story import Story, may_read
from barnabas.replication.partition import Partition
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import PartitionInfo
from barnabas.world.net import ConnectionLost
from barnabas.world.pacing import paced
from barnabas.world.waiting import Waiter

FEEDS_MAX = 16
PARTITIONS_MAX = 1000  # of one feed
TOPICS_MAX = 200
GROUPS_MAX = 10
TICK_SECONDS = 0.1
MOVES_SECONDS = 0.2  # between two events about offsets: one of a hundred busy partitions takes a millisecond
SWEEP_SECONDS = 1.0
STORY_MAX = 200  # lines in one event
EVENT_STREAM = "text/event-stream"


@dataclass(slots=True)
class Feeds:
    """How many feeds are open."""

    count: int = 0


async def feed(life: Life, story: Story, feeds: Feeds, request: HttpRequest) -> Answer:
    """`GET /v1/feed`: 503 if FEEDS_MAX are open."""
    if feeds.count >= FEEDS_MAX:
        return error_answer(503, f"{FEEDS_MAX} feeds are open already", [("retry-after", "5")])
    asking = asking_for(life, request)
    topics = _names(request, "topics")
    groups = _names(request, "groups")
    if len(groups) > GROUPS_MAX:
        raise BadRequest(f"a feed has at most {GROUPS_MAX} groups")
    if len(topics) > TOPICS_MAX:
        raise BadRequest(f"a feed has at most {TOPICS_MAX} topics")

    async def write(send: Send) -> None:
        # The feed counts from here on only, because the body of an answer to HEAD is never written.
        feeds.count += 1
        try:
            await _Feed(life, asking, story, topics).run(send, groups)
        finally:
            feeds.count -= 1

    return Answer(200, EVENT_STREAM, write)


def _names(request: HttpRequest, name: str) -> list[str]:
    # A group's id may have a comma. So each name is quoted by itself, and then the list as every parameter.
    return [unquote(each) for each in request.query.get(name, "").split(",") if each]


class _Feed:
    """One open feed."""

    def __init__(self, life: Life, asking: Asking, story: Story, topics: Iterable[str]) -> None:
        self._life = life
        self._asking = asking
        self._broker: Broker = asking.broker
        self._story = story
        self._topics = dict.fromkeys(topics)
        self._waiter = Waiter()
        self._hosted: dict[TopicPartition, Partition] = {}  # the waiter is registered with these
        self._keys: dict[Partition, TopicPartition] = {}
        self._infos: dict[TopicPartition, PartitionInfo] = {}  # what was sent
        self._rows: dict[TopicPartition, Row] = {}  # what was sent
        self._ends: dict[TopicPartition, Ends] = {}  # of partitions that are led elsewhere
        self._unsettled: dict[TopicPartition, None] = {}
        self._group_states: dict[str, Row] = {}
        self._pending: list[bytes] = []  # events of groups
        self._cluster_stamp: tuple[object, object] | None = None
        self._story_number = max(0, story.count - STORY_MAX)

    async def run(self, send: Send, groups: Iterable[str]) -> None:
        """Send until the client leaves or the broker ends."""
        try:
            async with trio.open_nursery() as nursery:
                for group in groups:
                    nursery.start_soon(self._follow_group, group)
                if self._topics:
                    nursery.start_soon(self._follow_ends)
                # The client may leave at any time. Out of the nursery, ConnectionLost would come as an ExceptionGroup.
                with suppress(ConnectionLost):
                    await self._follow(send)
                nursery.cancel_scope.cancel()
        finally:
            self._waiter.unregister(self._hosted.values())

    async def _follow(self, send: Send) -> None:
        sweep_at = sent_at = moved_at = trio.current_time() - SWEEP_SECONDS
        while self._life.broker is self._broker:
            now = trio.current_time()
            events = []
            is_sweep = now - sweep_at >= SWEEP_SECONDS

            # Once a second everything is looked at: rights, topics that came or went, and how long a follower is
            # behind, which changes without an event.
            if is_sweep:
                sweep_at = now
                events += await self._cluster_event()
                gone = self._find_partitions()
            else:
                gone = []
            # A new leader is shown in each tick, offsets in every other one.
            with_moves = is_sweep or now - moved_at >= MOVES_SECONDS
            moved_at = now if with_moves else moved_at
            events += await self._partition_events(gone, everything=is_sweep, with_moves=with_moves)
            events += self._pending
            self._pending = []
            events += self._story_event()

            if events or now - sent_at >= SWEEP_SECONDS:
                sent_at = now
                await send(b"".join(events) or b": nothing is new\n\n")
            # The first sleep lasts a whole tick, so that many changes make one event. The second ends with a change.
            await trio.sleep_until(now + TICK_SECONDS)
            await self._waiter.wait(now + 2 * TICK_SECONDS)

    # -- the cluster and its story

    async def _cluster_event(self) -> list[bytes]:
        """The state of the cluster, if it may have changed."""
        broker = self._broker
        authorizer = None if broker.authorization is None else broker.authorization.authorizer

        # Each UpdateMetadata brings a new dict of brokers.
        stamp = (broker.metadata.brokers, None if authorizer is None else authorizer.changes)
        before = self._cluster_stamp
        if before is not None and before[0] is stamp[0] and before[1] == stamp[1]:
            return []
        self._cluster_stamp = stamp
        return [event("cluster", await cluster_state(self._asking))]

    def _story_event(self) -> list[bytes]:
        if self._story.count == self._story_number:
            return []

        # Lines are counted even for a caller who may not read them: with a right that comes later it sees later lines.
        found = self._story.after(self._story_number, STORY_MAX)
        self._story_number = self._story.count
        if not may_read(self._asking):
            return []
        return [event("story", {"events": [each._asdict() for each in found]})]

    # -- partitions

    def _find_partitions(self) -> list[TopicPartition]:
        """Register with what is new, and return what is gone: deleted, or no longer shown to this caller."""
        metadata = self._broker.metadata
        wanted: dict[TopicPartition, None] = {}
        for name in self._topics:
            topic = metadata.topics.get(name)
            if topic is not None and self._asking.sees(name):
                wanted.update((TopicPartition(name, index), None) for index in sorted(topic.partitions))
        shown = dict.fromkeys(list(wanted)[:PARTITIONS_MAX])
        gone = [key for key in self._rows if key not in shown]
        for key in gone:
            del self._rows[key]
            self._infos.pop(key, None)
            self._unsettled.pop(key, None)

        # A replica may have been moved away and come back as another object.
        hosted = {}
        for key in shown:
            partition = self._broker.replicas.get(*key)
            if isinstance(partition, Partition):
                hosted[key] = partition
        left = [partition for key, partition in self._hosted.items() if hosted.get(key) is not partition]

        # To register again changes nothing where the waiter is registered already.
        self._waiter.unregister(left)
        self._waiter.register(hosted.values())
        self._hosted = hosted
        self._keys = {partition: key for key, partition in hosted.items()}
        for key in shown:
            self._rows.setdefault(key, {})
        return gone

    async def _partition_events(self, gone: list[TopicPartition], *, everything: bool, with_moves: bool) -> list[bytes]:
        """What changed since the last event: leaders, and `with_moves` offsets; with `everything` all is looked at."""
        metadata = self._broker.metadata

        # A follower's progress wakes no waiter, so a partition whose followers are behind is looked at in each tick.
        due = dict(self._unsettled) if with_moves else {}
        for changed in self._waiter.take_dirty() if with_moves else ():
            key = self._keys.get(changed)  # type: ignore[call-overload]  # a Waiter knows less of what it waits for
            if key is not None:
                due[key] = None
        rows = []
        async for key in paced(list(self._rows)):
            # UpdateMetadata replaces this object, so a new leader elsewhere is seen without a look at the row.
            info = metadata.partition(*key)
            if info is None or not (everything or key in due or self._infos.get(key) is not info):
                continue
            # As text at once: to encode a thousand rows together would take many milliseconds.
            if (changes := self._changes(key, info)) is not None:
                rows.append(json_text(changes))
        if not rows and not gone:
            return []
        head = json_text({"gone": gone, "now_ms": self._broker.world.now_ms()})
        return [event_of("partitions", f'{{"rows": [{", ".join(rows)}], {head[1:]}')]

    def _changes(self, key: TopicPartition, info: PartitionInfo) -> Row | None:
        """The fields of a partition's row that changed, with its name; None if there are none."""
        self._infos[key] = info
        row = replica_row(self._broker, key, info, self._ends.get(key, UNKNOWN))
        if is_settled(row):
            self._unsettled.pop(key, None)
        else:
            self._unsettled[key] = None

        # The first row of a partition is whole, also when the partition was gone and is back.
        before = self._rows.get(key)
        self._rows[key] = row
        if not before:
            return row
        changes = {name: value for name, value in row.items() if before[name] != value}
        return {"topic": key.topic, "partition": key.partition} | changes if changes else None

    async def _follow_ends(self) -> None:
        """Ask the leaders elsewhere for the ends of partitions that have no replica here."""
        while True:
            await trio.sleep(SWEEP_SECONDS)
            elsewhere = [key for key, row in self._rows.items() if row.get("role") == ELSEWHERE]
            if elsewhere:
                self._ends = await ends_of(self._asking, elsewhere)

    # -- groups

    async def _follow_group(self, name: str) -> None:
        """Look at a group once a second."""
        while True:
            # A group that does not exist may be created later: the page waits for it.
            try:
                state = await group_state(self._asking, name)
            except BadRequest as error:
                state = {"group": name, "error": str(error)}
            if state != self._group_states.get(name):
                self._group_states[name] = state
                self._pending.append(event_of("group", await long_json_text(state)))
            await trio.sleep(SWEEP_SECONDS)


def event(name: str, value: object) -> bytes:
    """One Server-Sent Event."""
    return event_of(name, json_text(value))


def event_of(name: str, text: str) -> bytes:
    """The same, of JSON without line breaks."""
    return f"event: {name}\ndata: {text}\n\n".encode("utf-8", "replace")
