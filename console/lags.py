"""How far groups are behind: in records, and in seconds.

The coordinator of a group knows its committed offsets. The lag in records needs the high watermark, and the lag in
seconds the timestamp of the first record that is not consumed. The leader of the partition has both: if that is this
broker, both are read from its log at each scrape. Another leader is asked, at most every REFRESH_SECONDS: by two
ListOffsets for its high watermarks and its first offsets, and by a Fetch for each first batch that is not known yet,
which is what any consumer could ask. A timestamp does not change, so it is kept as long as the group has committed the
same offset and the record is there.

Records of aborted transactions count as records, as they do for the lag of offsets. Markers do not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import trio

from barnabas.broker.call import Broker
from barnabas.console.unread import FIRST_BATCH_BYTES, GoOn, first_time
from barnabas.controller.channels import Peer
from barnabas.coordinators.groups.classic.state import Group
from barnabas.replication.partition import Partition
from barnabas.storage.disk import StorageError
from barnabas.wire import messages as m
from barnabas.wire.compression import CorruptRecords
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.sentinels import CONSUMER, EARLIEST, FETCH_BY_NAME_VERSION, LATEST, NO_OFFSET
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from barnabas.world.pacing import complete, paced

REFRESH_SECONDS = 5.0
ANSWER_MS = 1000.0  # a leader that does not answer in time is asked again after REFRESH_SECONDS
LOOKUPS_MAX = 200  # batches that are fetched of one leader at a time: the others follow with the next refresh
BATCHES_MAX = 10  # read for one timestamp: some have only markers, or have lost their end in a compaction
CLIENT_ID = "broker-{}-metrics"


class Lag(NamedTuple):
    """How far a group is behind in a partition; None: not known now."""

    records: int | None
    seconds: float | None


class _Place(NamedTuple):
    key: TopicPartition
    offset: int  # the first that is neither consumed nor deleted
    topic_id: bytes  # a topic that is deleted and created again has other records


_Committed = tuple[TopicPartition, int]  # and the offset that a group has committed there


class GroupLags:
    """The lags of the groups that this broker coordinates."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends: dict[TopicPartition, int] = {}  # high watermarks of leaders elsewhere, when they were asked
        self._starts: dict[TopicPartition, int] = {}  # and their first offsets, where a group is behind
        self._times: dict[_Place, int] = {}  # the timestamps of first records that are not consumed, ms
        self._peers: dict[int, Peer] = {}  # closed with all others when the broker stops
        self._asked_at = -REFRESH_SECONDS  # trio's clock, s

    def of(self, key: TopicPartition, offset: int) -> Lag:
        """The lag of a group that has committed this offset, as the last `refresh` found it."""
        # The high watermark of a leader elsewhere may be REFRESH_SECONDS old: so may be both lags.
        end = self._end_of(key)
        if end is None:
            return Lag(None, None)
        if offset >= end:
            return Lag(0, 0.0)
        timestamp = self._times.get(self._place(key, offset))
        age_ms = None if timestamp is None else max(0, self._broker.world.now_ms() - timestamp)
        return Lag(end - offset, None if age_ms is None else age_ms / 1000)

    async def refresh(self, groups: Iterable[Group]) -> None:
        """Read what is not known: from the logs here, and from other leaders if it is time to ask them."""
        committed: dict[_Committed, None] = {}
        async for group in paced(groups):
            async for key, stored in paced(list(group.recorded.offsets.items())):
                committed[key, stored.commit.offset] = None
        # Several groups may have consumed up to the same place, and share its timestamp. The times of places that no
        # group has committed any more are dropped.
        places = {self._place(*each): None async for each in paced(list(committed))}
        self._times = {place: time for place, time in self._times.items() if place in places}

        elsewhere: dict[int, list[_Committed]] = {}
        async for key, offset in paced(list(committed)):
            partition = self._led_here(key)
            if partition is not None:
                # This broker may have become the leader since it asked another one.
                self._ends.pop(key, None)
                await self._read_here(partition, self._place(key, offset))
            elif (leader := self._broker.metadata.leader_of(*key)) is not None:
                elsewhere.setdefault(leader, []).append((key, offset))

        # Other leaders are asked at this interval only: their load must not depend on how often this broker is scraped.
        now = trio.current_time()
        if now - self._asked_at >= REFRESH_SECONDS:
            self._asked_at = now

            # A leader that does not answer leaves no end: an old one would hide how far the groups fall behind.
            self._ends = {}
            async with trio.open_nursery() as nursery:
                for leader, asked in elsewhere.items():
                    nursery.start_soon(self._ask, leader, asked)
            known = {key for asked in elsewhere.values() for key, _ in asked}
            self._starts = {key: start for key, start in self._starts.items() if key in known}

    def _place(self, key: TopicPartition, offset: int) -> _Place:
        """Where the first record is that a group has not consumed, which has committed this offset."""
        partition = self._led_here(key)
        topic = self._broker.metadata.topics.get(key.topic)
        if partition is not None and partition.log is not None:
            start_offset = partition.log.log_start_offset
        else:
            start_offset = self._starts.get(key, 0)
        # The records at the committed offset may have been deleted: the first one that is left counts.
        return _Place(key, max(offset, start_offset), ZERO_TOPIC_ID if topic is None else topic.topic_id)

    def _led_here(self, key: TopicPartition) -> Partition | None:
        partition = self._broker.replicas.get(*key)
        return None if isinstance(partition, ErrorCode) or not partition.is_leader else partition

    def _end_of(self, key: TopicPartition) -> int | None:
        partition = self._led_here(key)
        return self._ends.get(key) if partition is None else partition.high_watermark

    # -- this broker's logs

    async def _read_here(self, partition: Partition, place: _Place) -> None:
        offset = place.offset
        for _ in range(BATCHES_MAX):
            if place in self._times or partition.log is None or offset >= partition.high_watermark:
                return
            # Records may have been deleted during the awaits below, in an earlier round.
            offset = max(offset, partition.log.log_start_offset)

            records = await self._batch_at(partition, offset)
            if not records:
                return

            # A batch may hold nothing but a marker, or records before the offset.
            found = await self._first_time(records, offset)
            if isinstance(found, int):
                self._times[place] = found
                return
            offset = found.next_offset

    async def _batch_at(self, partition: Partition, offset: int) -> bytes:
        """The first batch that reaches the offset; nothing if there is none, or its log cannot be read."""
        read = partition.read(
            offset, max_bytes=FIRST_BATCH_BYTES, end_offset=partition.high_watermark, at_least_one=True
        )
        if isinstance(read, ErrorCode) or read.slice is None:
            return b""
        try:
            return await self._broker.world.in_thread(read.slice.read)
        except StorageError as error:
            partition.fail_storage(error)
            return b""
        finally:
            read.slice.release()

    async def _first_time(self, records: bytes | memoryview, offset: int) -> int | GoOn:
        try:
            return await complete(first_time(memoryview(records), offset), self._broker.world.in_request_thread)
        # The timestamp stays unknown here. A consumer that reads the batch gets the error, and the log names the batch.
        except CorruptRecords:
            return GoOn(offset)

    # -- other leaders

    async def _ask(self, leader: int, committed: Sequence[_Committed]) -> None:
        # The versions are negotiated on each connection: another broker may be older, or Apache Kafka's.
        peer = self._peers.get(leader)
        if peer is None:
            client_id = CLIENT_ID.format(self._broker.broker_id)
            peer = self._peers[leader] = self._broker.peers.broker(leader, client_id, negotiates=True)
        try:
            self._ends |= await _offsets_of(peer, {key for key, _ in committed}, LATEST)
            behind = [(key, offset) for key, offset in committed if offset < self._ends.get(key, NO_OFFSET)]
            if not behind:
                return
            self._starts |= await _offsets_of(peer, {key for key, _ in behind}, EARLIEST)

            unknown = {place: None for each in behind if (place := self._place(*each)) not in self._times}

            # Batches are fetched one after the other: the leader's clients come first, and this is no hurry.
            for place in list(unknown)[:LOOKUPS_MAX]:
                fetched = await peer.ask(_fetch(place.key, place.offset), ANSWER_MS, FETCH_BY_NAME_VERSION)
                await self._take(place, fetched)
        # What the leader has not answered is not shown; the next refresh asks again.
        except PeerLost:
            return

    async def _take(self, place: _Place, fetched: m.Message) -> None:
        if not isinstance(fetched, m.FetchResponse) or not fetched.responses:
            return
        # An error leaves the records empty: the leader has changed, say, or this broker may not read the
        # topic. Then the lag in seconds is not shown.
        records = fetched.responses[0].partitions[0].records
        if not isinstance(records, bytes | bytearray | memoryview) or not records:
            return
        found = await self._first_time(bytes(records), place.offset)
        if isinstance(found, int):
            self._times[place] = found


async def _offsets_of(peer: Peer, keys: Iterable[TopicPartition], timestamp: int) -> Mapping[TopicPartition, int]:
    """The first or the last offset of each partition, where the leader says it. PeerLost."""
    request = m.ListOffsetsRequest
    asked: dict[str, list[m.ListOffsetsRequest.ListOffsetsPartition]] = {}
    for topic, index in keys:
        asked.setdefault(topic, []).append(request.ListOffsetsPartition(partition_index=index, timestamp=timestamp))
    topics = [request.ListOffsetsTopic(name=name, partitions=rows) for name, rows in asked.items()]
    response = await peer.ask(request(replica_id=CONSUMER, topics=topics), ANSWER_MS)
    return _offsets_in(response) if isinstance(response, m.ListOffsetsResponse) else {}


def _offsets_in(response: m.ListOffsetsResponse) -> Mapping[TopicPartition, int]:
    return {
        TopicPartition(topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if row.error_code == ErrorCode.NONE
    }


def _fetch(key: TopicPartition, offset: int) -> m.FetchRequest:
    request = m.FetchRequest
    partition = request.FetchPartition(
        partition=key.partition, fetch_offset=offset, partition_max_bytes=FIRST_BATCH_BYTES
    )
    topic = request.FetchTopic(topic=key.topic, partitions=[partition])
    return request(max_wait_ms=0, min_bytes=0, max_bytes=FIRST_BATCH_BYTES, topics=[topic])
