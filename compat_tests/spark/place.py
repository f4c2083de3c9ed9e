"""The argument of a script: a session, brokers with topics of its own, streaming queries that end in a table.

Topics and their records are made by confluent-kafka, which can say a record's partition, time and headers; Spark is
asked through its options as its documentation names them (`kafka_isolation_level` is `kafka.isolation.level`).
Whatever is awaited has a deadline.
"""

import contextlib
import os
import pathlib
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

Seen = TypeVar("Seen")

AWAIT_SECONDS = 90.0
TICK = "200 milliseconds"
NEW_YEAR_MS = 1_704_067_200_000  # 2024-01-01T00:00:00Z, for records whose time matters
JAVA_EXCEPTION = re.compile(r"\b(?:org\.apache|java)\.[\w.]*?(\w+(?:Exception|Error)):")
NUMBERED = ("partition", "offset", "CAST(value AS STRING) AS value")


class Record(NamedTuple):
    """A record as a producer gives it."""

    value: str | bytes | None
    key: str | bytes | None = None
    partition: int = 0
    timestamp_ms: int = 0  # now
    headers: tuple[tuple[str, bytes | None], ...] = ()


def numbered(numbers: Iterable[int], partitions: int = 1) -> list[Record]:
    """Records whose values are these numbers, dealt out to the partitions."""
    return [Record(str(number), partition=number % partitions) for number in numbers]


def until(look: Callable[[], Seen], is_there: Callable[[Seen], object]) -> Seen:
    """What `look` sees once it is there."""
    deadline = time.monotonic() + AWAIT_SECONDS
    while not is_there(seen := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{seen!r:.2000} has not become what was waited for")
        time.sleep(0.1)  # the pace of looking
    return seen


@dataclass
class Place:
    """The brokers and the session of one script."""

    spark: "SparkSession"
    bootstrap: str
    brokers: int
    pids: Mapping[str, int]  # by address
    directory: pathlib.Path
    script: str
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = _asker(self.bootstrap)
        self.directory.mkdir(parents=True)

    # -- topics and records

    def topic(self, name: str, partitions: int = 1, **configs: str | int) -> str:
        """A new topic of this script's, once every partition has a leader that answers. Nothing in it is too old."""
        full_name = f"{self.script}-{name}"
        settings = {"retention.ms": "-1", **{key.replace("_", "."): str(value) for key, value in configs.items()}}
        new = NewTopic(full_name, partitions, replication_factor=self.brokers, config=settings)
        until(lambda: self._is_created(new), bool)
        self.await_partitions(full_name, partitions)
        return full_name

    def _is_created(self, new: NewTopic) -> bool:
        """Create it; False if the topic of this name that was deleted is not quite gone."""
        try:
            self.admin.create_topics([new])[new.topic].result(30)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    def more_partitions(self, topic: str, partitions: int) -> None:
        self.admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
        self.await_partitions(topic, partitions)

    def await_partitions(self, topic: str, partitions: int) -> None:
        """Until every broker tells of so many partitions, and their leaders serve them."""
        for address in self.bootstrap.split(","):
            asked = _asker(address)
            until(lambda asked=asked: partitions_of(asked, topic), lambda seen: len(seen) == partitions)
        for partition in range(partitions):
            until(lambda partition=partition: self.end_offset(topic, partition), lambda end: end is not None)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        for address in self.bootstrap.split(","):
            asked = _asker(address)
            until(lambda asked=asked: topic in asked.list_topics(timeout=30).topics, lambda there: not there)

    def configure(self, topic: str, **configs: str | int) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource("TOPIC", topic, incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def send(self, topic: str, records: Iterable[Record], **settings: str | int) -> None:
        """Have these records acknowledged, in order within each partition."""
        named = {key.replace("_", "."): value for key, value in settings.items()}
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "log_level": 0, **named})
        refused: list[object] = []
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers) or None,
                on_delivery=lambda error, _: error and refused.append(error),
            )
            producer.poll(0)
        left = producer.flush(AWAIT_SECONDS)
        assert (left, refused) == (0, []), f"{left} records are not acknowledged, {refused[:3]} are refused"

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        wanted = TopicPartition(topic, partition, before)
        for future in self.admin.delete_records([wanted]).values():
            future.result(30)

    def start_offset(self, topic: str, partition: int = 0) -> int | None:
        return self._offset(topic, partition, OffsetSpec.earliest())

    def end_offset(self, topic: str, partition: int = 0) -> int | None:
        return self._offset(topic, partition, OffsetSpec.latest())

    def _offset(self, topic: str, partition: int, spec: OffsetSpec) -> int | None:
        admin = _asker(self.bootstrap)  # an older one does not look for partitions that were added
        (asked,) = admin.list_offsets({TopicPartition(topic, partition): spec}, request_timeout=10).values()
        with contextlib.suppress(KafkaException):  # the leader is not there yet
            return int(asked.result(15).offset)
        return None

    def leader(self, topic: str, partition: int = 0) -> str:
        """The address of the leader."""
        metadata = self.admin.list_topics(topic, timeout=30)
        broker = metadata.brokers[metadata.topics[topic].partitions[partition].leader]
        return f"{broker.host}:{broker.port}"

    def kill(self, address: str) -> None:
        """SIGKILL to the broker at this address."""
        os.kill(self.pids[address], signal.SIGKILL)

    # -- Spark

    def sql(self, text: str) -> "DataFrame":
        return self.spark.sql(text)

    def read(self, **options: object) -> "DataFrame":
        """A batch from the source."""
        return self.spark.read.format("kafka").options(**self._options(options)).load()

    def stream(self, **options: object) -> "DataFrame":
        return self.spark.readStream.format("kafka").options(**self._options(options)).load()

    def write(self, frame: "DataFrame", **options: object) -> None:
        """A batch into the sink."""
        frame.write.format("kafka").options(**self._options(options)).save()

    def table(self, frame: "DataFrame", *columns: str, name: str = "table") -> "Table":
        """Where the rows of a stream go: see `Table`."""
        return Table(self, frame.selectExpr(*(columns or NUMBERED)), self.directory / name)

    def to_kafka(self, frame: "DataFrame", name: str = "sink", **options: object) -> "StreamingQuery":
        """Start a query that ends in the sink."""
        writer = frame.writeStream.format("kafka").options(**self._options(options))
        checkpoint = str(self.directory / f"{name}-checkpoint")
        return writer.option("checkpointLocation", checkpoint).trigger(processingTime=TICK).start()

    def view(self, frame: "DataFrame", name: str) -> "DataFrame":
        """Give the rows a name for SQL."""
        frame.createOrReplaceTempView(name)
        return frame

    def _options(self, options: Mapping[str, object]) -> dict[str, str]:
        named = {key.replace("_", "."): str(value) for key, value in options.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, **named}


class Table:
    """A Parquet table that a query fills, exactly once; with its checkpoint, so that the query may end and go on."""

    def __init__(self, place: Place, frame: "DataFrame", path: pathlib.Path) -> None:
        self._place = place
        self._frame = frame
        self._path = path
        self.batches: list[int] = []  # how many rows each batch took from the source

    def start(self, every: str = TICK) -> "StreamingQuery":
        """Start, or go on from the checkpoint."""
        return self._writer().trigger(processingTime=every).start()

    def catch_up(self) -> list[list[Any]]:
        """Run over what is there now (`availableNow`), and end; all rows that the table holds then."""
        query = self._writer().trigger(availableNow=True).start()
        self.end(query)
        return self.rows()

    def end(self, query: "StreamingQuery") -> None:
        """Await the end of a query that ends by itself; what made it fail is raised."""
        if not query.awaitTermination(int(AWAIT_SECONDS)):
            query.stop()
            raise AssertionError(f"the query has not ended: {query.lastProgress}")
        self._note(query)

    def stop(self, query: "StreamingQuery") -> None:
        query.stop()
        self._note(query)

    def rows(self) -> list[list[Any]]:
        """What was written, sorted."""
        return sorted(plain(self.frame()))

    def frame(self) -> "DataFrame":
        return self._place.spark.read.schema(self._frame.schema).parquet(str(self._path))

    def await_rows(self, count: int, query: "StreamingQuery") -> list[list[Any]]:
        """Wait until a running query has written so many rows; what made it fail is raised."""

        def look() -> int:
            if failed := query.exception():
                raise failed
            return self.frame().count() if self._path.exists() else 0

        until(look, lambda rows: rows >= count)
        return self.rows()

    def _writer(self) -> Any:
        writer = self._frame.writeStream.format("parquet").option("path", str(self._path))
        return writer.option("checkpointLocation", f"{self._path}-checkpoint")

    def _note(self, query: "StreamingQuery") -> None:
        self.batches += [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def plain(frame: "DataFrame") -> list[list[Any]]:
    """The rows as lists of what JSON can say."""
    return [[_plain(value) for value in row] for row in frame.collect()]


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("latin-1")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, int | float | str | bool) else str(value)


def _asker(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def partitions_of(admin: AdminClient, topic: str) -> list[int]:
    """The partitions with a leader, in a broker's Metadata response."""
    known = admin.list_topics(timeout=30).topics.get(topic)
    return [] if known is None else [number for number, found in known.partitions.items() if found.leader >= 0]


def failure(action: Callable[[], object]) -> list[str]:
    """Why Spark says that this failed: its conditions and the exceptions of Java's classes, without what varies."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        action()
    except (PySparkException, Py4JJavaError) as error:
        said = str(error)
        found = sorted(set(JAVA_EXCEPTION.findall(said)))
        _, _, why = said.partition("terminated with exception: ")  # a streaming query's own words, behind its ids
        if isinstance(error, PySparkException) or not found:
            found.append(_without_chance(why.partition("SQLSTATE")[0] or said.splitlines()[0]))
        return found
    raise AssertionError("it did not fail")


def _without_chance(text: str) -> str:
    """The text in one line, without ids and numbers."""
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}", "ID", text)
    return re.sub(r"\s+", " ", re.sub(r"-*\d+", "N", text))[:1000].strip()
