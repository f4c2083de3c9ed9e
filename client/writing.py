"""Writing records to one topic: batches for each partition, idempotent unless it is switched off.

`add` keeps a record until a batch is full; `flush` sends what is there and waits until it is acknowledged. A batch is
sent again after an error that says so, with the numbers that it had, so that the leader writes it once (KIP-98). A
batch that is refused because of a record is divided, until what stands before that record is written.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import randrange
from typing import NamedTuple

from barnabas.client.cluster import OUTDATED, Cluster
from barnabas.client.errors import ClientError, Refused, Unreachable, check
from barnabas.client.partitioner import partition_of
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode, error_of
from barnabas.wire.record_reader import Record
from barnabas.wire.records import build_batch
from barnabas.wire.topics import TopicPartition

BATCH_BYTES = 256 << 10  # of the records of one partition, before compression
BATCH_RECORDS_MAX = 10_000
RECORD_OVERHEAD_BYTES = 24
ALL = -1  # of acks
NO_PRODUCER = -1
SEQUENCES = 1 << 31

# The batch is larger than max.message.bytes of the topic, or than a segment of its log.
TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
# Each of them may be because of one record.
DIVIDED = TOO_LARGE | {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}
# The batch is in the log: an earlier attempt was carried out, and its answer was lost.
WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


@dataclass(slots=True)
class _Pending:
    """The records of one partition that are not sent yet, and the number of the next one."""

    records: list[Record] = field(default_factory=list)
    size_bytes: int = 0
    sequence: int = 0


class _Batch(NamedTuple):
    """Records of one partition as they are sent; `sequence` is the number of the first one."""

    records: list[Record]
    sequence: int
    data: bytes | bytearray | memoryview


class RecordRefused(Refused):
    """A record that its topic does not take. It is not written; `number` is what `add` was given with it."""

    def __init__(self, what: str, number: int, code: int, message: str | None) -> None:
        super().__init__(what, code, message)
        self.number = number


class Writer:
    """Writes to one topic. Not for concurrent use. `acks` is ALL or 1; `partition_count` may grow.

    `taken` counts the records that were given to it, `written` those of them that are acknowledged. After a failure it
    takes no more: whether its last batches are written is not known, so their numbers cannot be used for others.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition_count: int,
        *,
        acks: int = ALL,
        codec: Codec = Codec.NONE,
        idempotent: bool = True,
    ) -> None:
        self.partition_count = partition_count
        self.taken = 0
        self.written = 0
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._codec = codec
        self._is_idempotent = idempotent and acks == ALL
        self._producer = (NO_PRODUCER, NO_PRODUCER)  # id and epoch
        self._pending: dict[int, _Pending] = {}
        # Where records without a key go until the next flush. Many short runs would fill the first partition alone.
        self._round = self._led_from(randrange(partition_count))
        self._failure: ClientError | None = None  # the first one

    async def add(
        self,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        timestamp_ms: int,
        partition: int | None = None,
        *,
        number: int = 0,
    ) -> None:
        """Take one record; sends all batches when one is full. `number` is for RecordRefused. Refused, Unreachable."""
        if partition is None:
            # A record without a key stays with the others of its batch, so that batches are few and
            # large.
            partition = self._round if key is None else partition_of(key, self.partition_count)
        pending = self._pending.setdefault(partition, _Pending())
        # The leader chooses the offset, so its place is free for the number.
        pending.records.append(Record(number, timestamp_ms, key, value, list(headers)))
        self.taken += 1
        pending.size_bytes += len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
        for name, content in headers:
            pending.size_bytes += len(name) + len(content or b"") + RECORD_OVERHEAD_BYTES
        # All partitions are sent then, so that a record of a quiet one does not wait for the end.
        if pending.size_bytes >= BATCH_BYTES or len(pending.records) >= BATCH_RECORDS_MAX:
            await self.flush()

    async def flush(self) -> None:
        """Send what was taken, and return when all of it is acknowledged. Refused, Unreachable.

        What other partitions have is sent also after the failure of one.
        """
        waiting = [partition for partition, pending in self._pending.items() if pending.records]
        if waiting and self._failure is None:
            try:
                await self._flush(waiting)
            except ClientError as error:
                self._failure = self._failure or error
        if self._failure is not None:
            raise self._failure

    async def _flush(self, waiting: Sequence[int]) -> None:
        # A producer id is asked for when there is something to write, since each one is kept by the
        # brokers for a while.
        if self._is_idempotent and self._producer[0] == NO_PRODUCER:
            self._producer = await self._init_producer_id()
        # Each batch is made once: a repetition has the same bytes, and so the same sequence numbers.
        batches: dict[int, deque[_Batch]] = {}
        for partition in waiting:
            pending = self._pending[partition]
            batches[partition] = deque([self._batch(pending.records, pending.sequence)])
            pending.records = []
            pending.size_bytes = 0

        retry = self._cluster.retry()
        while batches:
            failed = await self._send(batches)
            if failed is not None and not await retry.pause():
                raise failed
        # Records without a key go to the next partition from now on: whole batches, as the Java client spreads them.
        self._round = self._led_from(self._round + 1)

    def _led_from(self, begin: int) -> int:
        """The first partition from `begin` on that has a leader; `begin` if none has one."""
        turn = [(begin + step) % self.partition_count for step in range(self.partition_count)]
        leaderless = self._cluster.leaderless(self._topic)

        return next((partition for partition in turn if partition not in leaderless), turn[0])

    async def _send(self, batches: dict[int, deque[_Batch]]) -> ClientError | None:
        """Send the first batch of each partition, and remove those that are written.

        The last error after which the others may be sent again, if there was one.
        """
        failed: ClientError | None
        keys = [TopicPartition(self._topic, partition) for partition in batches]
        by_leader, failed = await self._cluster.by_leader(keys)
        for leader, led in by_leader.items():
            rows = [
                m.ProduceRequest.PartitionProduceData(
                    index=key.partition, records=memoryview(batches[key.partition][0].data)
                )
                for key in led
            ]
            request = m.ProduceRequest(
                acks=self._acks,
                timeout_ms=round(self._cluster.answer_seconds * 1000),
                topic_data=[m.ProduceRequest.TopicProduceData(name=self._topic, partition_data=rows)],
            )
            # The batch may be written. An idempotent one is not written twice; a plain one may be.
            try:
                response = await self._cluster.ask_broker(leader, request)
            except Unreachable as error:
                self._cluster.forget(self._topic)
                failed = error
                continue
            assert isinstance(response, m.ProduceResponse)
            for topic in response.responses:
                for row in topic.partition_responses:
                    failed = self._take(batches, row) or failed
        return failed

    def _take(
        self, batches: dict[int, deque[_Batch]], row: m.ProduceResponse.PartitionProduceResponse
    ) -> ClientError | None:
        """Note what became of the first batch of a partition; the error after which it may be sent again."""
        waiting = batches[row.index]
        first = waiting[0]
        if row.error_code in WRITTEN:
            waiting.popleft()
            self.written += len(first.records)
            self._pending[row.index].sequence = (first.sequence + len(first.records)) % SEQUENCES
            if not waiting:
                del batches[row.index]
            return None

        # The limit of the topic may be lower than the size of a batch. Nothing is written, so its numbers are free.
        if row.error_code in DIVIDED and len(first.records) > 1:
            half = len(first.records) // 2
            waiting.popleft()
            waiting.appendleft(self._batch(first.records[half:], first.sequence + half))
            waiting.appendleft(self._batch(first.records[:half], first.sequence))
            return None

        failure = self._failure_of(row, first)
        if not error_of(row.error_code).retriable:
            self._failure = self._failure or failure
            del batches[row.index]
            return None
        # Other retriable errors, such as too few in-sync replicas, come from the right leader.
        if row.error_code in OUTDATED:
            self._cluster.forget(self._topic)
        return failure

    def _failure_of(self, row: m.ProduceResponse.PartitionProduceResponse, batch: _Batch) -> Refused:
        """The error in words; of one record if the batch has one."""
        number = batch.records[0].offset
        if row.error_code in TOO_LARGE:
            what = f"topic {self._topic!r} does not take a record of {len(batch.data):,} bytes"
            step = f"raise its limit with `topics set {self._topic} max.message.bytes=...`"
            return RecordRefused(what, number, row.error_code, step)
        what = f"partition {self._topic}-{row.index}"
        if row.error_code in DIVIDED:
            why = next((each.batch_index_error_message for each in row.record_errors), None)
            return RecordRefused(what, number, row.error_code, why or row.error_message)
        return Refused(what, row.error_code, row.error_message)

    def _batch(self, records: list[Record], sequence: int) -> _Batch:
        producer_id, epoch = self._producer
        sequence %= SEQUENCES
        batch = build_batch(
            records,
            timestamp_ms=records[0].timestamp,
            codec=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence if producer_id != NO_PRODUCER else -1,
        )
        return _Batch(records, sequence, batch.data)

    async def _init_producer_id(self) -> tuple[int, int]:
        retry = self._cluster.retry()
        request = m.InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=0, producer_id=NO_PRODUCER, producer_epoch=NO_PRODUCER
        )
        while True:
            response = await self._cluster.ask_any(request)
            assert isinstance(response, m.InitProducerIdResponse)
            if not error_of(response.error_code).retriable or not await retry.pause():
                break
        check("a producer id", response.error_code)
        return response.producer_id, response.producer_epoch
