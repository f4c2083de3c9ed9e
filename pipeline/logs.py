"""The logs of an audit: the replicas' segments, topics as a consumer reads them, or an archive.

Each of the three has the same rows (`ROW`), and describes its partitions (`Holding`). A row is a record, or a problem:
a range of offsets that cannot be read. `digest` is the value's, as in ledgers; `content` is a hash of key, value,
headers and timestamp, by which replicas are compared; `first_offset` and `last_offset` are the range of a problem.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.pipeline.layout import Holding, list_holdings, name_directories
from barnabas.pipeline.ledgers import with_stamp
from barnabas.pipeline.manifest import Archive as Directory
from barnabas.pipeline.manifest import read_archive
from barnabas.pipeline.plan import ranges_of, records_of
from barnabas.pipeline.topics import ClusterError, said
from barnabas.storage.osdisk import OsDisk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ROW = ("replica", "topic", "partition", "offset", "digest", "content", "producer", "sequence", "control", "problem",
       "first_offset", "last_offset")  # fmt: skip
ASK_SECONDS = 30.0


class Log(Protocol):
    """Something that holds records."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics that it is asked for; none for all of them."""

    @property
    def shows_markers(self) -> bool:
        """Whether control records are among the rows, so that every offset is accounted for."""

    def rows(self, spark: "SparkSession") -> "DataFrame":
        """One row a record, with the columns of `ROW`."""

    def holdings(self) -> list[Holding]:
        """What is held of each partition, as far as it is known before the rows are."""

    @property
    def complete(self) -> str | None:
        """The replica that should hold every partition that another one holds; None if there is none such."""


@dataclass(frozen=True)
class Segments:
    """The data directories of one broker or of several; each broker is a replica."""

    directories: Sequence[str]
    topics: Sequence[str] = ()
    live: bool = False

    @property
    def shows_markers(self) -> bool:
        return True

    def rows(self, spark: "SparkSession") -> "DataFrame":
        from pyspark.sql import functions as f

        from barnabas.pipeline.segments import FORMAT, register

        name_directories(OsDisk(), self.directories)  # a missing one is reported here, not by a task
        register(spark)
        columns = "replica,topic,partition,offset,timestamp_ms,key,value,headers,control,base_offset,last_offset"
        reader = spark.read.format(FORMAT).option("replicas", ",".join(self.directories))
        reader = reader.option("topics", ",".join(self.topics)).option("live", str(self.live).lower())
        frame = reader.option("columns", columns + ",problem,segment,position").load()
        text = f.format_string("%s, byte %d: %s", "segment", "position", "problem")
        placed = frame.withColumn("problem", f.when(f.col("problem").isNotNull(), text))
        return _normalised(placed, f.col("timestamp_ms"))

    def holdings(self) -> list[Holding]:
        disk = OsDisk()
        return _merged(list_holdings(disk, name_directories(disk, self.directories), self.topics))

    @property
    def complete(self) -> str | None:
        return None  # a broker need not have a replica of everything


@dataclass(frozen=True)
class Topics:
    """Topics as a consumer gets them from a running cluster, committed or not.

    `prefix` is taken off their names, so that topics which were restored under other names can be compared. `by_order`:
    records are numbered again in each partition, for a restored topic has no holes and begins at 0.
    """

    bootstrap: str
    topics: Sequence[str]
    name: str = "topic"
    prefix: str = ""
    by_order: bool = False

    @property
    def shows_markers(self) -> bool:
        return False

    def rows(self, spark: "SparkSession") -> "DataFrame":
        from pyspark.sql import functions as f

        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", ",".join(self.topics)).option("includeHeaders", "true")
        frame = reader.load().withColumn("topic", f.expr(f"substring(topic, {len(self.prefix) + 1})"))
        return _normalised(_without_batches(frame, self.name, self.by_order), f.unix_millis("timestamp"))

    def holdings(self) -> list[Holding]:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        wrong = [topic for topic in self.topics if not topic.startswith(self.prefix)]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} does not begin with {self.prefix}")

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "barnabas-audit", "log_level": 2})
        try:
            found = []
            for topic in self.topics:
                partitions = consumer.list_topics(topic, timeout=ASK_SECONDS).topics[topic].partitions
                if not partitions:
                    raise ValueError(f"{self.bootstrap} has no topic {topic}")
                for partition in sorted(partitions):
                    place = TopicPartition(topic, partition)
                    low, high = consumer.get_watermark_offsets(place, timeout=ASK_SECONDS)
                    start, end = (0, high - low) if self.by_order else (low, high)
                    found.append(Holding(self.name, topic.removeprefix(self.prefix), partition, start, end))
            return found
        except KafkaException as error:
            raise ClusterError(f"{self.bootstrap}: {said(error)}") from error
        finally:
            consumer.close()

    @property
    def complete(self) -> str | None:
        return self.name


@dataclass(frozen=True)
class Archive:
    """An archive that `barnabas pipeline archive` wrote."""

    path: str
    topics: Sequence[str] = ()
    name: str = "archive"
    by_order: bool = False

    @property
    def shows_markers(self) -> bool:
        return False

    def rows(self, spark: "SparkSession") -> "DataFrame":
        from pyspark.sql import functions as f

        frame = read_archive(spark, self.path)
        if self.topics:
            frame = frame.where(f.col("topic").isin(list(self.topics)))
        return _normalised(_without_batches(frame, self.name, self.by_order), f.unix_millis("timestamp"))

    def holdings(self) -> list[Holding]:
        # The manifest gives the ranges: a partition whose first file is gone would else seem to
        # begin later.
        batches = Directory(self.path).batches()
        ranges = [each for each in ranges_of(batches) if not self.topics or each.topic in self.topics]
        if self.by_order:
            counts = records_of(batches, {each.topic for each in ranges})
            return [Holding(self.name, *place, 0, count) for place, count in counts.items()]
        spans = ((each.topic, each.partition, each.first_offset, each.last_offset + 1) for each in ranges)
        return _merged(Holding(self.name, *span) for span in spans)

    @property
    def complete(self) -> str | None:
        return self.name


def _without_batches(frame: "DataFrame", name: str, by_order: bool) -> "DataFrame":
    """With the columns that only segments know, for a source that has none; `by_order`, with new offsets from 0 on."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    if by_order:
        order = Window.partitionBy("topic", "partition").orderBy("offset")
        frame = frame.withColumn("offset", f.row_number().over(order).cast("bigint") - 1)
    return frame.withColumns(
        {
            "replica": f.lit(name),
            "control": f.lit(False),
            "problem": f.lit(None).cast("string"),
            "base_offset": f.col("offset"),
            "last_offset": f.col("offset"),
        }
    )


def _normalised(frame: "DataFrame", timestamp_ms: "Column") -> "DataFrame":
    """The columns of `ROW`, from those of a source."""
    from pyspark.sql import functions as f

    # A null adds nothing to this hash, so which of the two are null is hashed as well.
    nulls = f.col("key").isNull().cast("int") * 2 + f.col("value").isNull().cast("int")
    content = f.xxhash64(nulls, "key", "value", "headers", timestamp_ms)
    is_record = f.col("problem").isNull()
    is_control = f.coalesce("control", f.lit(False))
    value = f.when(is_record & ~is_control, f.coalesce("value", f.lit(bytearray())))
    stamped = with_stamp(frame.withColumn("said", value))
    return stamped.select(
        "replica",
        "topic",
        "partition",
        "offset",
        "digest",
        f.when(is_record, content).alias("content"),
        "producer",
        "sequence",
        is_control.alias("control"),
        "problem",
        f.when(~is_record, f.col("base_offset")).alias("first_offset"),
        f.when(~is_record, f.col("last_offset")).alias("last_offset"),
    )


def _merged(holdings: Iterator[Holding]) -> list[Holding]:
    """One for each replica and partition: a broker that was moving a log between disks has it in two directories."""
    found: dict[tuple[str, str, int], Holding] = {}
    for each in holdings:
        before = found.get(each[:3], each)
        start = min(before.log_start_offset, each.log_start_offset)
        found[each[:3]] = Holding(*each[:3], start, max(before.high_watermark, each.high_watermark))
    return list(found.values())
