"""Consumers without a group: they read partitions of a topic repeatedly, from leaders and from followers.

A `Reader` fetches each partition from its leader, or from the follower that the leader named (KIP-392). It behaves like
Kafka's client: a position moves behind the last batch in a response; after an error it looks for the leader again;
after OFFSET_OUT_OF_RANGE it continues at the beginning or at the end. Sometimes it goes back to the beginning and reads
everything again, because a batch that was served once must be served again.

Each batch in a response is noted (`READ`); records are not decoded.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple

import trio

from barnabas.storage.entries import walk_buffer
from barnabas.testing.simulation.history import READ, Event, History
from barnabas.testing.simulation.party import Lost, Party
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import checksum, read_batch_header

EARLIEST, LATEST = -2, -1
FETCH_WAIT_MS = 800
FETCH_BYTES = 1 << 16


class ReaderPlan(NamedTuple):
    """How a reader behaves."""

    topic: str
    rack: str = ""  # what a follower's rack is compared with
    pause_seconds: float = 0.5
    goes_back: float = 0.01  # how often a position returns to the beginning, per fetch
    says_epoch: bool = True


def note_read(
    history: History, name: str, topic: str, topic_id: bytes, partition: int, records: object, position: int
) -> int:
    """Note each whole batch that was served to a reader at this position; the offset behind the last one, or -1."""
    if not isinstance(records, memoryview):
        raise TypeError(f"records are decoded as a view of the frame, not as {type(records).__name__}")
    end_offset = -1
    now_ms = history.now_ms()
    for span, data in walk_buffer(records):
        header = read_batch_header(data)

        # The checksum is computed from the bytes: that in the header may be another one.
        digest = checksum(data)
        end_offset = span.last_offset + 1
        history.note(
            Event(
                now_ms,
                READ,
                topic,
                partition,
                span.base_offset,
                name,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                digest,
                0,
                topic_id,
                position=position,
            )
        )
        position = end_offset

    return end_offset


class Reader:
    """One consumer of one topic."""

    isolation_level = 0  # read_uncommitted
    fetch_bytes = FETCH_BYTES

    def __init__(self, party: Party, history: History, plan: ReaderPlan) -> None:
        self.party = party
        self.plan = plan
        self.served = 0  # batches
        self._history = history
        self._positions: dict[int, int] = {}
        self._read_at: dict[int, int] = {}  # partition -> the follower that the leader names
        self._topic_id = b""
        self._stopping = False

    @property
    def progress(self) -> int:
        """How far it has come."""
        return self.served

    def stop(self) -> None:
        """Read no more."""
        self._stopping = True

    async def run(self) -> None:
        """Read until stopped."""
        while not self._stopping:
            try:
                await self._round()
            except Lost:
                self.party.view.forget(self.plan.topic)
                await self.party.pause()
            await trio.sleep(self.party.rng.expovariate(1 / self.plan.pause_seconds))
        self.party.close()

    async def _round(self) -> None:
        """One fetch from each broker that has something for us."""
        topic = self.plan.topic
        view = self.party.view
        if topic not in view.topic_ids:
            await self.party.refresh(topic)
        topic_id = view.topic_ids.get(topic)
        if topic_id is None:
            self._positions.clear()
            await self.party.pause()
            return

        if topic_id != self._topic_id:
            self._topic_id = topic_id
            self._positions.clear()
            self._read_at.clear()

        asked: dict[int, list[int]] = {}
        for partition in view.partitions_of(topic):
            leader_id = view.places[topic, partition].leader_id
            asked.setdefault(self._read_at.get(partition, leader_id), []).append(partition)
        for broker_id, partitions in asked.items():
            await self._fetch(broker_id, partitions, topic_id)

    async def _fetch(self, broker_id: int, partitions: Iterable[int], topic_id: bytes) -> None:
        if broker_id not in self.party.view.brokers:
            raise Lost(f"no broker {broker_id}")
        link = await self.party.broker(broker_id)
        rows = [self._row(partition) for partition in partitions]
        request = m.FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self.fetch_bytes,
            isolation_level=self.isolation_level,
            topics=[m.FetchRequest.FetchTopic(topic=self.plan.topic, topic_id=topic_id, partitions=rows)],
            rack_id=self.plan.rack,
        )
        answer = await link.ask(request, m.FetchResponse)
        if answer.error_code:
            raise Lost(f"fetch is answered with {answer.error_code}")
        for row in answer.responses[0].partitions if answer.responses else ():
            await self._take(row)

    def _row(self, partition: int) -> m.FetchRequest.FetchPartition:
        rng: random.Random = self.party.rng
        if rng.random() < self.plan.goes_back:
            self._positions[partition] = 0
        epoch = self.party.view.places[self.plan.topic, partition].leader_epoch
        return m.FetchRequest.FetchPartition(
            partition=partition,
            fetch_offset=self._positions.get(partition, 0),
            partition_max_bytes=self.fetch_bytes,
            current_leader_epoch=epoch if self.plan.says_epoch else -1,
        )

    async def _take(self, row: m.FetchResponse.PartitionData) -> None:
        partition = row.partition_index
        code = row.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._read_at.pop(partition, None)
            await self._look_up(partition)
        elif code != ErrorCode.NONE:
            self._read_at.pop(partition, None)
            raise Lost(f"{self.plan.topic}-{partition}: {code}")
        elif row.preferred_read_replica >= 0:
            self._read_at[partition] = row.preferred_read_replica
        elif row.records:
            self.served += 1
            name = self.party.name
            topic = self.plan.topic
            position = self._positions.get(partition, 0)
            end = note_read(self._history, name, topic, self._topic_id, partition, row.records, position)
            self._positions[partition] = max(position, end)

    async def _look_up(self, partition: int) -> None:
        """Where the log begins or ends."""
        where = self.party.rng.choice((EARLIEST, LATEST))
        asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=where)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=self.plan.topic, partitions=[asked])
        link = await self.party.leader_of(self.plan.topic, partition)
        answer = await link.ask(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), m.ListOffsetsResponse)
        row = answer.topics[0].partitions[0]
        if row.error_code:
            raise Lost(f"list offsets is answered with {row.error_code}")
        self._positions[partition] = max(row.offset, 0)
