"""Ledgers: what clients were told, as rows.

Two kinds of JSON lines are read, also mixed. The ledgers of the cluster tests say in `event` what happened:

    acked    a producer was told that its record lies at this offset (null: that it is there)
    failed   a producer was told that its record could not be delivered: it lies there once, or not at all
    read     a consumer was handed this record
    sent     how many records a producer has handed to its client, in `count`

with `topic`, `partition`, `offset`, `producer`, `sequence` and `digest`: the first twelve hexadecimal digits of the
value's SHA-1. Kafka's VerifiableProducer and VerifiableConsumer (`--verbose`) say it in `name`: producer_send_success,
producer_send_error, record_data, with the `value` itself. Other events are counted, and no more.

A value tells who it is if it begins with its producer's name, a dot and its number in the order of sending
("p0.17 ..."); VerifiableProducer's values do with `--value-prefix`. Records that do not are known by their offset and
digest alone. `stamp` is the same for values in a log. A digest is kept as a number of 48 bits: what Spark can compare
and aggregate without a sort.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from barnabas.storage.disk import OsDisk, join

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
    told = f.create_map(*(f.lit(word) for pair in EVENTS_OF_VERIFIABLE.items() for word in pair))
    producer, sequence, digest = stamp(f.encode(f.col("value"), "UTF-8"))
    is_verifiable = f.col("event").isNull()
    event = f.coalesce("event", told[f.col("name")], f.col("name"), f.lit(UNREADABLE))
    is_about_record = event.isin("acked", "failed", "read")
    return lines.select(
        event.alias("event"),
        f.coalesce(f.col("time"), f.col("timestamp") / 1000).alias("time"),
        "topic",
        "partition",
        "offset",
        f.when(is_verifiable & is_about_record, producer).otherwise(f.col("producer")).alias("producer"),
        f.when(is_verifiable & is_about_record, sequence).otherwise(f.col("sequence")).alias("sequence"),
        f.when(is_verifiable & is_about_record, digest).otherwise(_as_number(f.col("digest"))).alias("digest"),
        "count",
    )


def stamp(value: "Column") -> "tuple[Column, Column, Column]":
    """Producer, sequence (null where it does not say) and digest of a value in bytes; a null is as if empty."""
    from pyspark.sql import functions as f

    there = f.coalesce(value, f.lit(bytearray()))
    word = f.substring_index(f.substring(there, 1, STAMP_BYTES).cast("string"), " ", 1)
    number = f.substring_index(word, ".", -1)
    sequence = number.try_cast("bigint")
    producer = f.when(sequence.isNotNull(), f.substring(word, f.lit(1), f.length(word) - f.length(number) - 1))
    return producer, sequence, _as_number(f.substring(f.sha1(there), 1, DIGEST_DIGITS))


def _as_number(digits: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.conv(digits, 16, 10).cast("bigint")
