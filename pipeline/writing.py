"""The restoring task: one partition's records, in order, through a stock client (runs in Spark's Python workers).

Theory of operation. Rows come as Arrow batches, sorted by partition and place. For each partition the task reads the
log end, skips the records that are there (plan.py explains why the log end is enough), and passes the rest to an
idempotent producer of confluent-kafka, with partition, timestamp and headers. Two checks detect another producer that
writes to the partition: the first record is sent alone and must get the expected offset, so that at most one record is
misplaced; and the offset of every acknowledgement is compared with the expected one.

An error is returned as a row with a `problem`, not raised: other partitions continue, and the driver gets the texts of
all errors. After an error of the client this run does no more at the partition; the next run continues.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.pipeline.fencing import at_work
from barnabas.pipeline.plan import PartitionPlan, RestoreError
from barnabas.pipeline.topics import Cluster

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer
    from pyarrow import RecordBatch, Schema

INPUT_COLUMNS = ["topic", "partition", "target", "base", "records", "timestamp_ms", "key", "value", "headers"]
RESULT_SCHEMA = "target STRING, partition INT, skipped BIGINT, written BIGINT, problem STRING"
POLL_EVERY_RECORDS = 500
FLUSH_SECONDS = 330.0  # longer than librdkafka tries a record (message.timeout.ms, 300 s): it reports before

PRODUCER = {
    "log_level": "3",  # errors; librdkafka warns of a producer id that it has to ask for twice, and then has it
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": "50",  # for full batches: no caller waits for a single record
    "batch.num.messages": "10000",
    "queue.buffering.max.kbytes": "65536",  # a task's share of an executor's memory
    "message.max.bytes": "1000000000",  # the topic's own limit decides
    "batch.size": "1000000",
}


class Row(NamedTuple):
    """A record and where it goes."""

    plan: PartitionPlan
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@dataclass
class Outcome:
    """What became of one partition."""

    target: str
    partition: int
    skipped: int = 0
    written: int = 0
    problem: str | None = None


def restore_task(
    bootstrap_servers: str, client: Mapping[str, str], compression: str, state: str
) -> "Callable[[Iterator[RecordBatch]], Iterator[RecordBatch]]":
    """The function that Spark runs on each task's rows (`mapInArrow`)."""

    def run(batches: "Iterator[RecordBatch]") -> "Iterator[RecordBatch]":
        import pyarrow

        options = {**PRODUCER, "compression.type": compression, **client, "bootstrap.servers": bootstrap_servers}
        with at_work(state):
            for plan, rows in groupby(rows_of(batches), key=itemgetter(0)):
                outcome = PartitionWriter(plan, options).write(rows)
                yield pyarrow.RecordBatch.from_pylist([asdict(outcome)], schema=result_schema())

    return run


def result_schema() -> "Schema":
    import pyarrow as pa

    numbers = [("partition", pa.int32()), ("skipped", pa.int64()), ("written", pa.int64())]
    return pa.schema([("target", pa.string()), *numbers, ("problem", pa.string())])


def rows_of(batches: "Iterator[RecordBatch]") -> Iterator[Row]:
    """The rows of Arrow batches; consecutive rows of a partition share its plan."""
    plan = None
    place = None
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in INPUT_COLUMNS]
        for topic, partition, target, base, records, timestamp_ms, key, value, headers in zip(*columns, strict=True):
            if plan is None or place != (topic, partition):
                place = (topic, partition)
                plan = PartitionPlan(topic, partition, target, base, records)
            pairs = [(header["key"], header["value"]) for header in headers] if headers else None
            yield Row(plan, timestamp_ms, key, value, pairs)


@cache
def cluster_of(bootstrap_servers: str, client: tuple[tuple[str, str], ...]) -> Cluster:
    """One for each worker, which does many tasks: a new client may need a second to get to know the cluster."""
    return Cluster(bootstrap_servers, dict(client))


class PartitionWriter:
    """Writes the missing records of one partition."""

    def __init__(self, plan: PartitionPlan, options: Mapping[str, str]) -> None:
        self._plan = plan
        self._options = dict(options)
        self._outcome = Outcome(plan.target, plan.partition)
        self._expected = plan.base  # the offset that the next acknowledgement must have

    def write(self, rows: Iterator[Row]) -> Outcome:
        """Every row up to the last, or to the first problem; the producer is gone afterwards."""
        from confluent_kafka import KafkaException, Producer

        producer = Producer({**self._options, "on_delivery": self._delivered})
        try:
            self._outcome.skipped = self._plan.done(self._log_end())
            self._expected += self._outcome.skipped
            self._send_all(producer, rows)
        except (RestoreError, KafkaException) as error:
            self._outcome.problem = self._outcome.problem or str(error)
        finally:
            producer.purge(in_flight=False)  # after a problem nothing that still waits may follow
            producer.flush(FLUSH_SECONDS)
            for _ in rows:
                pass  # the rows of the next partition come after these

        return self._outcome

    def _log_end(self) -> int:
        own = {name: value for name, value in self._options.items() if name not in {*PRODUCER, "compression.type"}}
        place = (self._plan.target, self._plan.partition)
        return cluster_of(self._options["bootstrap.servers"], tuple(own.items())).end_offsets([place])[place]

    def _send_all(self, producer: "Producer", rows: Iterator[Row]) -> None:
        count = 0
        for row in rows:
            count += 1
            if count <= self._outcome.skipped:
                continue
            self._send(producer, row)
            # Another producer at this partition shows in the offset of the first acknowledgement.
            # So it is waited for before thousands of records are at wrong offsets.
            if count == self._outcome.skipped + 1:
                producer.flush(FLUSH_SECONDS)  # the first goes alone
            elif count % POLL_EVERY_RECORDS == 0:
                producer.poll(0)
            self._stop_at_problem()

        producer.flush(FLUSH_SECONDS)
        self._stop_at_problem()
        if self._expected != self._plan.base + self._plan.records or count != self._plan.records:
            raise RestoreError(
                f"{self._plan.topic}-{self._plan.partition}: the plan has {self._plan.records} records, the archive "
                f"gave {count}, and the log ends at {self._expected} instead of {self._plan.base + self._plan.records}"
            )

    def _send(self, producer: "Producer", row: Row) -> None:
        while True:
            try:
                producer.produce(
                    self._plan.target,
                    row.value,
                    row.key,
                    self._plan.partition,
                    timestamp=row.timestamp_ms,
                    headers=row.headers,
                )
                return
            except BufferError:  # the producer's queue is full: let some be acknowledged
                producer.poll(1)
                self._stop_at_problem()

    def _delivered(self, error: "KafkaError | None", message: "Message") -> None:
        if self._outcome.problem is not None:
            return
        if error is not None:
            self._outcome.problem = f"{self._plan.target}-{self._plan.partition}: {error.str()}"
        elif message.offset() != self._expected:
            self._outcome.problem = (
                f"{self._plan.target}-{self._plan.partition}: the record for offset {self._expected} came to be at "
                f"{message.offset()}: another producer writes to this partition, and it differs from the archive now"
            )
        else:
            self._expected += 1
            self._outcome.written += 1

    def _stop_at_problem(self) -> None:
        if self._outcome.problem is not None:
            raise RestoreError(self._outcome.problem)
