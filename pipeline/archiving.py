"""Archive topics (edge): a streaming query of Spark writes each batch to Parquet and then to the archive's manifest.

Theory of operation. Spark plans a batch (offset ranges of partitions), writes the plan into its checkpoint, and calls
`BatchWriter` with the records (`foreachBatch`). The writer writes them, counts what it wrote, and commits
(manifest.py); then Spark marks the batch as done. A kill at any moment leaves one of three states, from which the next
run continues: planned, not committed: Spark passes the same offsets again, and leftovers are deleted; committed, not
marked: Spark passes them again, and the writer skips them, because the manifest has the batch; marked: the next batch
is planned.

The manifest has the plan's offsets. So a checkpoint that does not belong to the archive (an old copy, for example) is
detected before anything is written: it plans a batch for which the manifest has other offsets.
"""

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from barnabas.pipeline.manifest import (
    PATH_SCHEMA,
    RECORDS_SCHEMA,
    Archive,
    ArchiveError,
    Batch,
    Offsets,
    Range,
    planned_offsets,
)
from barnabas.pipeline.topics import Cluster
from barnabas.wire.sentinels import EARLIEST  # Spark writes the same number into its offsets

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH_RECORDS_MAX = 500_000  # a killed run repeats at most so many; a batch of many more only makes larger files
LOOK_SECONDS = 0.5  # how soon a stop is seen
MS_A_DAY = 86_400_000
SPARK_TIMESTAMP_MAX_MS = ((1 << 63) - 1) // 1000  # Spark's source multiplies by 1000, exactly
OVERFLOW = "java.lang.ArithmeticException"  # what its multiplication throws
HEADER_BYTES = "aggregate(headers, 0L, (total, h) -> total + octet_length(h.key) + coalesce(octet_length(h.value), 0))"
RECORD_BYTES = f"coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0) + coalesce({HEADER_BYTES}, 0)"


@dataclass(frozen=True)
class Source:
    """What is archived, and how it is read."""

    bootstrap_servers: str
    topics: Sequence[str] = ()
    pattern: str | None = None  # of Java's regular expressions, over whole names
    starting: str = "earliest"
    isolation: str = "read_committed"
    batch_records_max: int = BATCH_RECORDS_MAX
    options: Mapping[str, str] | None = None  # of Spark's Kafka source, `kafka.…` for its consumers

    def wants(self, topic: str) -> bool:
        """Whether this topic is among them."""
        return re.fullmatch(self.pattern, topic) is not None if self.pattern else topic in self.topics

    def to_options(self, starting: str | None = None) -> dict[str, str]:
        if bool(self.topics) == bool(self.pattern):
            raise ArchiveError("which topics? Give names or a pattern")
        chosen = {"subscribePattern": self.pattern} if self.pattern else {"subscribe": ",".join(self.topics)}
        return {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            **chosen,
            "startingOffsets": starting or self.starting,
            "includeHeaders": "true",
            "kafka.isolation.level": self.isolation,
            "maxOffsetsPerTrigger": str(self.batch_records_max),
            **(self.options or {}),
        }


@dataclass(frozen=True)
class Archived:
    """What a run has added."""

    batches: int
    records: int
    bytes: int
    seconds: float


class BatchWriter:
    """Takes the batches of one query (`foreachBatch`); it is called on a thread of Spark's."""

    def __init__(self, archive: Archive, cluster: Cluster, checkpoint: "Path", first_batch: int) -> None:
        self.added: list[Batch] = []
        self.failure: Exception | None = None
        self._between_batches = threading.Lock()
        self._stopping = False
        self.on_batch: Callable[[Batch], None] = lambda _: None
        self._archive = archive
        self._cluster = cluster
        self._checkpoint = checkpoint
        self._first_batch = first_batch

    def __call__(self, frame: "DataFrame", spark_batch: int) -> None:
        with self._between_batches:
            if self._stopping:
                raise ArchiveError("the query is being stopped")  # this batch is made again when the query goes on
            try:
                self._take(frame, spark_batch)
            except (ArchiveError, OSError) as error:
                self.failure = error  # Spark tells of it only as text
                raise

    def stop(self) -> None:
        """Wait until no batch is being written, and take no more."""
        with self._between_batches:
            self._stopping = True

    def _take(self, frame: "DataFrame", spark_batch: int) -> None:
        number = self._first_batch + spark_batch
        next_offsets = planned_offsets(self._checkpoint, spark_batch)
        present = self._archive.batch(number)
        # A run was killed between the commit and Spark's own mark, so Spark passes this batch
        # again.
        if present is not None:
            if present.next_offsets != next_offsets:
                raise ArchiveError(
                    f"the checkpoint {self._checkpoint} is not the one that {self._archive.path} was written with: "
                    f"batch {number} ends elsewhere. Bring back the right one, or ask to go on after the last offsets "
                    "of the manifest (--from-manifest)"
                )
            return

        # The Java process of a killed run may still write for a moment: it must not meet this
        # attempt in one directory.
        run = secrets.token_hex(4)
        written = write_records(frame, self._archive, Batch(number, run, next_offsets, ()))
        check_ranges(written, next_offsets)
        # The topics' settings are written before the batch counts: from them a restore creates each
        # topic that has records.
        self._describe_topics(next_offsets)
        self._archive.commit(written)
        self.added.append(written)
        self.on_batch(written)

    def _describe_topics(self, offsets: Offsets) -> None:
        """Keep what it takes to create the topics again, of those that are new or have grown."""
        known = self._archive.topics()
        changed = [name for name, of in offsets.items() if known.get(name, {}).get("partitions") != len(of)]
        if changed:
            described = {name: asdict(topic) for name, topic in self._cluster.describe(changed).items()}
            self._archive.write(self._archive.topics_file, {**known, **described})


def write_records(frame: "DataFrame", archive: Archive, batch: Batch) -> Batch:
    """Write the records of a batch, and say what its files hold."""
    from pyspark.sql import functions as f

    session = frame.sparkSession  # of this query alone; settings made here touch no other
    # Spark's default is INT96, which Parquet has deprecated and some readers lack.
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    session.conf.set("spark.sql.shuffle.partitions", "1")  # the counts of a batch are few, and 200 tasks take a second
    directory = str(archive.records / batch.directory)
    days = f.floor(f.unix_millis("timestamp") / MS_A_DAY).cast("int")  # of UTC, whatever the session's time zone
    records = frame.withColumnRenamed("timestampType", "timestamp_type").withColumn("date", f.date_from_unix_date(days))
    writer = records.write.partitionBy("topic", "date").option("compression", "zstd")
    writer.parquet(directory)
    schema = f"{RECORDS_SCHEMA}, {PATH_SCHEMA}"
    # The files themselves are counted: `frame` would be read from Kafka once more, where retention
    # may have removed records meanwhile.
    stored = session.read.schema(schema).option("basePath", str(archive.records)).parquet(directory)
    return Batch(batch.number, batch.run, batch.next_offsets, ranges_of(stored))


def ranges_of(records: "DataFrame") -> tuple[Range, ...]:
    """The records of each partition, counted."""
    from pyspark.sql import functions as f

    size = f.expr(RECORD_BYTES)
    milliseconds = f.unix_millis("timestamp")
    counted = records.groupBy("topic", "partition").agg(
        f.min("offset").alias("first_offset"),
        f.max("offset").alias("last_offset"),
        f.count("*").alias("records"),
        f.sum(size).alias("bytes"),
        f.max(size).alias("largest_record_bytes"),
        f.min(milliseconds).alias("earliest_timestamp_ms"),
        f.max(milliseconds).alias("latest_timestamp_ms"),
    )
    found = [Range(**row.asDict()) for row in counted.collect()]
    return tuple(sorted(found, key=lambda one: (one.topic, one.partition)))


def check_ranges(batch: Batch, next_offsets: Offsets) -> None:
    """What was written is of the planned offsets, and no record is there twice."""
    for found in batch.ranges:
        end = next_offsets.get(found.topic, {}).get(found.partition, 0)
        if found.last_offset >= end or found.records > found.last_offset - found.first_offset + 1:
            raise ArchiveError(f"batch {batch.number} was to end at offset {end}, and holds {found}")


def archive(
    spark: "SparkSession",
    path: "str | Path",
    source: Source,
    *,
    every_seconds: float | None = None,
    from_manifest: bool = False,
    client: Mapping[str, str] | None = None,
    on_batch: Callable[[Batch], None] | None = None,
    stop: threading.Event | None = None,
) -> Archived:
    """Add the topics' new records to the archive in `path`; may be called repeatedly.

    Ends when the archive has all records that existed at the start; with `every_seconds` it continues until `stop` is
    set, and ends between two batches. `from_manifest` starts a new checkpoint after the offsets of the manifest.
    `client` is configuration of librdkafka for metadata requests. Raises ArchiveError, ClusterError, Spark's errors.
    """
    from pyspark.errors import StreamingQueryException

    began = time.monotonic()
    place = Archive(path)
    place.make()
    with place.lock():
        batches = place.batches()
        checkpoint, first_batch = place.checkpoint(batches, from_manifest)
        cluster = Cluster(source.bootstrap_servers, client)
        is_new_query = bool(batches) and first_batch == len(batches)
        after = starting_offsets(reached(batches), source, cluster.partition_counts()) if is_new_query else None
        options = source.to_options(after)
        place.remove_leftovers(batches)
        writer = BatchWriter(place, cluster, checkpoint, first_batch)
        if on_batch is not None:
            writer.on_batch = on_batch
        records = spark.readStream.format("kafka").options(**options).load()

        # The location is no URI: Hadoop takes this text as it is, and what a URI escapes (a space,
        # "ü") would be another directory.
        stream = records.writeStream.foreachBatch(writer).option("checkpointLocation", f"file://{checkpoint}")
        trigger = (
            stream.trigger(availableNow=True)
            if every_seconds is None
            else stream.trigger(processingTime=f"{round(every_seconds * 1000)} milliseconds")
        )
        try:
            await_query(trigger.start(), writer, stop)
        except StreamingQueryException as error:
            if OVERFLOW not in str(error):
                raise
            raise ArchiveError(unreadable_times(cluster, source)) from error

    added = writer.added
    seconds = time.monotonic() - began
    return Archived(len(added), sum(one.records for one in added), sum(one.bytes for one in added), seconds)


def unreadable_times(cluster: Cluster, source: Source) -> str:
    """Which records Spark cannot read because of their timestamps."""
    counts = cluster.partition_counts()
    wanted = [(topic, number) for topic, count in counts.items() if source.wants(topic) for number in range(count)]
    found = cluster.first_records_since(wanted, SPARK_TIMESTAMP_MAX_MS + 1)
    records = [
        f"{topic}-{number} at offset {offset} has the timestamp {timestamp_ms}"
        for (topic, number), (offset, timestamp_ms) in sorted(found.items())
    ]
    places = "\n".join(records) or "none is to be found now"
    return (
        "Spark cannot read a record whose timestamp, in microseconds, has no place in 64 bits (after the year 294246)."
        f" The first of each partition:\n{places}\ndocs/spark.md says how to go on."
    )


def reached(batches: Sequence[Batch]) -> Offsets:
    """How far the archive is in each partition. Not every batch has every topic: a run may have been of other ones."""
    offsets: Offsets = {}
    for batch in batches:
        for topic, of in batch.next_offsets.items():
            offsets.setdefault(topic, {}).update(of)
    return offsets


def starting_offsets(next_offsets: Offsets, source: Source, partition_counts: Mapping[str, int]) -> str:
    """Where a query begins that goes on after the manifest; Spark demands every partition that there is by now."""
    starting = {
        topic: {str(number): next_offsets.get(topic, {}).get(number, EARLIEST) for number in range(count)}
        for topic, count in partition_counts.items()
        if source.wants(topic)
    }
    return json.dumps(starting)


def await_query(query: "StreamingQuery", writer: BatchWriter, stop: threading.Event | None) -> None:
    """Wait for the query's end, or bring it about between two batches."""
    from pyspark.errors import StreamingQueryException

    try:
        while not query.awaitTermination(LOOK_SECONDS):
            if stop is not None and stop.is_set():
                break
    except StreamingQueryException as error:
        if writer.failure is not None:
            raise writer.failure from error
        raise
    finally:
        # `query.stop` interrupts the thread that calls the writer, so no batch may be under way
        # then.
        writer.stop()
        query.stop()
