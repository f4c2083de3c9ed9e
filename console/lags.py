"""How far groups are behind: in records, and in seconds.

The coordinator of a group knows its committed offsets. The lag in records needs the high watermark, and the lag in
seconds the timestamp of the first record that is not consumed. The leader of the partition has both: if that is this
broker, both are read from its log at each scrape. Another leader is asked, at most every REFRESH_SECONDS: by one
ListOffsets for its high watermarks, and by a Fetch for each first batch that is not known yet, which is what any
consumer could ask. A timestamp does not change, so it is kept as long as the group has committed the same offset.

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
from barnabas.wire.sentinels import CONSUMER, FETCH_BY_NAME_VERSION, LATEST, NO_OFFSET
from barnabas.wire.topics import TopicPartition
from barnabas.world.pacing import complete, paced

REFRESH_SECONDS = 5.0
ANSWER_MS = 1000.0  # a leader that does not answer in time is asked again after REFRESH_SECONDS
LOOKUPS_MAX = 200  # batches that are fetched of one leader at a time: the others follow with the next refresh
BATCHES_MAX = 10  # that are read for one timestamp: markers, and batches whose end compaction has removed
CLIENT_ID = "broker-{}-metrics"


class Lag(NamedTuple):
    """How far a group is behind in a partition; None: not known now."""

    records: int | None
    seconds: float | None


class _Place(NamedTuple):
    key: TopicPartition
    offset: int  # the first that is not consumed


class GroupLags:
    """The lags of the groups that this broker coordinates."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends: dict[TopicPartition, int] = {}  # high watermarks of leaders elsewhere, when they were asked
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
        timestamp = self._times.get(_Place(key, offset))
        age_ms = None if timestamp is None else max(0, self._broker.world.now_ms() - timestamp)
        return Lag(end - offset, None if age_ms is None else age_ms / 1000)

    async def refresh(self, groups: Iterable[Group]) -> None:
        """Read what is not known: from the logs here, and from other leaders if it is time to ask them."""
        places: dict[_Place, None] = {}
        async for group in paced(groups):
            async for key, stored in paced(list(group.recorded.offsets.items())):
                places[_Place(key, stored.commit.offset)] = None
        # Several groups may have consumed up to the same place, and share its timestamp. What no group
        # has committed any more is forgotten.
        self._times = {place: time for place, time in self._times.items() if place in places}

        elsewhere: dict[int, list[_Place]] = {}
        async for place in paced(list(places)):
            partition = self._led_here(place.key)
            if partition is not None:
                # This broker may have become the leader since it asked another one.
                self._ends.pop(place.key, None)
                await self._read_here(partition, place)
            elif (leader := self._broker.metadata.leader_of(*place.key)) is not None:
                elsewhere.setdefault(leader, []).append(place)

        # However often it is scraped: the load of the other brokers must not depend on that.
        now = trio.current_time()
        if elsewhere and now - self._asked_at >= REFRESH_SECONDS:
            self._asked_at = now
            known = {place.key for asked in elsewhere.values() for place in asked}
            self._ends = {key: end for key, end in self._ends.items() if key in known}
            async with trio.open_nursery() as nursery:
                for leader, asked in elsewhere.items():
                    nursery.start_soon(self._ask, leader, asked)

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
            # Records may have been deleted since: the first one that is left counts.
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
        # A consumer that reads it gets the error, and the log says which batch it is.
        except CorruptRecords:
            return GoOn(offset)

    # -- other leaders

    async def _ask(self, leader: int, places: Sequence[_Place]) -> None:
        # The versions are negotiated on each connection: another broker may be older, or Apache Kafka's.
        peer = self._peers.get(leader)
        if peer is None:
            client_id = CLIENT_ID.format(self._broker.broker_id)
            peer = self._peers[leader] = self._broker.peers.broker(leader, client_id, negotiates=True)
        try:
            response = await peer.ask(_list_offsets(places), ANSWER_MS)
            if isinstance(response, m.ListOffsetsResponse):
                self._ends |= _ends_in(response)

            unknown = [
                place
                for place in places
                if place not in self._times and place.offset < self._ends.get(place.key, NO_OFFSET)
            ]
            # One after the other: a leader serves its clients first, and this is no hurry.
            for place in unknown[:LOOKUPS_MAX]:
                fetched = await peer.ask(_fetch(place.key, place.offset), ANSWER_MS, FETCH_BY_NAME_VERSION)
                await self._take(place, fetched)
        # Its high watermarks stay as they were; the next refresh asks again.
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


def _list_offsets(places: Iterable[_Place]) -> m.ListOffsetsRequest:
    request = m.ListOffsetsRequest
    asked: dict[str, dict[int, None]] = {}
    for place in places:
        asked.setdefault(place.key.topic, {})[place.key.partition] = None
    return request(
        replica_id=CONSUMER,
        topics=[
            request.ListOffsetsTopic(
                name=name,
                partitions=[request.ListOffsetsPartition(partition_index=each, timestamp=LATEST) for each in indexes],
            )
            for name, indexes in asked.items()
        ],
    )


def _ends_in(response: m.ListOffsetsResponse) -> Mapping[TopicPartition, int]:
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
