"""Ledgers: the brokers' responses to clients, as rows.

Two kinds of JSON lines are read, also mixed. Lines of the cluster tests' ledgers have the kind of event in `event`:

    acked    the record was acknowledged at this offset (null: without an offset)
    failed   the record could not be delivered: the log has it once, or not at all
    read     a consumer got this record
    sent     how many records a producer has passed to its client, in `count`

with `topic`, `partition`, `offset`, `producer`, `sequence` and `digest`: the first twelve hexadecimal digits of the
value's SHA-1. Kafka's VerifiableProducer and VerifiableConsumer (`--verbose`) say it in `name`: producer_send_success,
producer_send_error, record_data, with the `value` itself. Other events are counted, and no more.

A value identifies its record if it begins with the producer's name, a dot and the record's number in the order of
sending ("p0.17 ..."), as VerifiableProducer's values do with `--value-prefix`. Other records are identified by offset
and digest alone. `with_stamp` does the same for values in a log. A digest is kept as a number of 48 bits, which Spark
can compare and aggregate without a sort.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.disk import join
from barnabas.storage.osdisk import OsDisk

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

EVENTS_OF_VERIFIABLE = {"producer_send_success": "acked", "producer_send_error": "failed", "record_data": "read"}
LINE = """
    event string, time double, topic string, partition int, offset bigint, producer string, sequence bigint,
    digest string, count bigint, name string, value string, timestamp bigint, broken string
"""
SUFFIXES = (".jsonl", ".json", ".ndjson")
DIGEST_DIGITS = 12
STAMP_BYTES = 256  # a longer name of a producer is not recognised
UNREADABLE = "unreadable"  # the event of a line that is no JSON object


def find_ledgers(paths: Sequence[str]) -> list[str]:
    """The files that these paths mean: a directory stands for the JSON files in it. ValueError if it has none."""
    disk = OsDisk()
    found: list[str] = []
    for path in paths:
        if not disk.is_directory(path):
            found.append(path)
            continue
        inside = [join(path, name) for name in disk.list(path) if name.endswith(SUFFIXES)]
        if not inside:
            raise ValueError(f"{path} has no ledgers ({', '.join(SUFFIXES)})")
        found += inside
    return found


def read_ledgers(spark: "SparkSession", paths: Sequence[str]) -> "DataFrame":
    """Every line as event, time, topic, partition, offset, producer, sequence, digest and count."""
    from pyspark.sql import functions as f

    lines = spark.read.schema(LINE).option("columnNameOfCorruptRecord", "broken").json(find_ledgers(paths))
    event_of = f.create_map(*(f.lit(word) for pair in EVENTS_OF_VERIFIABLE.items() for word in pair))
    event = f.coalesce("event", event_of[f.col("name")], f.col("name"), f.lit(UNREADABLE))
    is_verifiable = f.col("event").isNull() & event.isin("acked", "failed", "read")
    value = f.encode(f.coalesce("value", f.lit("")), "UTF-8")
    said = lines.select(
        event.alias("event"),
        f.coalesce(f.col("time"), f.col("timestamp") / 1000).alias("time"),
        "topic",
        "partition",
        "offset",
        "count",
        f.col("producer").alias("from"),
        f.col("sequence").alias("number"),
        _as_number(f.col("digest")).alias("sum"),
        f.when(is_verifiable, value).alias("said"),
    )
    return with_stamp(said).select(
        "event",
        "time",
        "topic",
        "partition",
        "offset",
        f.coalesce("producer", "from").alias("producer"),
        f.coalesce("sequence", "number").alias("sequence"),
        f.coalesce("digest", "sum").alias("digest"),
        "count",
    )


def with_stamp(frame: "DataFrame") -> "DataFrame":
    """With what a value in bytes (`said`) tells: producer, sequence, null where it does not say, and digest.

    In steps, for Spark computes again what is used twice in one step.
    """
    from pyspark.sql import functions as f

    word = f.substring_index(f.substring("said", 1, STAMP_BYTES).cast("string"), " ", 1)
    begun = frame.withColumn("word", word).withColumn("ending", f.substring_index("word", ".", -1))
    has_dot = f.length("ending") < f.length("word")
    numbered = begun.withColumn("sequence", f.when(has_dot, f.col("ending").try_cast("bigint")))
    name = f.substring("word", f.lit(1), f.length("word") - f.length("ending") - 1)
    producer = f.when(f.col("sequence").isNotNull(), name)
    digest = _as_number(f.substring(f.sha1("said"), 1, DIGEST_DIGITS))
    return numbered.withColumns({"producer": producer, "digest": digest}).drop("said", "word", "ending")


def _as_number(digits: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.conv(digits, 16, 10).cast("bigint")
