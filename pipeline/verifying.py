"""Verifies a restore: compares every restored record with the archive, in a Spark plan.

Theory of operation. The n-th archived record of a partition belongs at `base + n` (plan.py). Both sides get that place:
the archive by counting in order, the topics by their offsets, read from `base` to `base + records`. A full outer join
then finds records that are missing, that were not archived, or that differ in timestamp, key, value or headers; only
counts for each partition go to the driver. If the target was compacted since, the compacted records count as missing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.pipeline.manifest import Archive, read_archive
from barnabas.pipeline.plan import Plan, Selection
from barnabas.pipeline.restoring import selected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPARED = ("timestamp", "key", "value", "headers")
KEYS = ("target", "partition", "place")


@dataclass(frozen=True)
class Compared:
    """What a comparison found in one partition."""

    target: str
    partition: int
    identical: int
    missing: int
    additional: int
    different: int


def verify(
    spark: "SparkSession",
    archive: Archive,
    plan: Plan,
    selection: Selection,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
) -> list[Compared]:
    """Compare each record of a plan with what its target has at its place; `options` are of Spark's Kafka source."""
    if not plan.records:
        return []
    archived = archived_places(spark, archive, plan, selection).alias("a")
    restored = restored_places(spark, plan, bootstrap_servers, options or {}).alias("r")
    return counted(archived.join(restored, list(KEYS), "full_outer"))


def archived_places(spark: "SparkSession", archive: Archive, plan: Plan, selection: Selection) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    rows = [(one.topic, one.target) for one in plan.partitions]
    targets = spark.createDataFrame(sorted(set(rows)), "topic STRING, target STRING")
    order = Window.partitionBy("topic", "partition").orderBy("batch", "offset")
    records = read_archive(spark, archive.path, batches=plan.batches)
    chosen = selected(records, sorted({one.topic for one in plan.partitions}), selection)
    placed = chosen.withColumn("place", f.row_number().over(order).cast("long") - 1)
    return placed.join(f.broadcast(targets), "topic").select(*KEYS, *COMPARED, f.lit(True).alias("there"))


def restored_places(
    spark: "SparkSession", plan: Plan, bootstrap_servers: str, options: Mapping[str, str]
) -> "DataFrame":
    from pyspark.sql import functions as f

    bases = [(one.target, one.partition, one.base) for one in plan.partitions]
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in plan.partitions:
        starts.setdefault(one.target, {})[str(one.partition)] = one.base
        ends.setdefault(one.target, {})[str(one.partition)] = one.base + one.records
    reader = spark.read.format("kafka").options(
        **{
            "kafka.bootstrap.servers": bootstrap_servers,
            "assign": json.dumps({target: sorted(map(int, of)) for target, of in starts.items()}),
            "startingOffsets": json.dumps(starts),
            "endingOffsets": json.dumps(ends),
            "includeHeaders": "true",
            **options,
        }
    )
    planned = spark.createDataFrame(bases, "target STRING, partition INT, base BIGINT")
    records = reader.load().withColumnRenamed("topic", "target").join(f.broadcast(planned), ["target", "partition"])
    placed = records.withColumn("place", f.col("offset") - f.col("base"))
    return placed.select(*KEYS, *COMPARED, f.lit(True).alias("there"))


def counted(joined: "DataFrame") -> list[Compared]:
    """Counts for each partition of a full outer join of archived (`a`) and restored (`r`) records."""
    from pyspark.sql import functions as f

    both = f.col("a.there").isNotNull() & f.col("r.there").isNotNull()
    same = f.lit(True)
    for name in COMPARED:
        same &= f.col(f"a.{name}").eqNullSafe(f.col(f"r.{name}"))
    rows = (
        joined.groupBy("target", "partition")
        .agg(
            f.count_if(both & same).alias("identical"),
            f.count_if(f.col("r.there").isNull()).alias("missing"),
            f.count_if(f.col("a.there").isNull()).alias("additional"),
            f.count_if(both & ~same).alias("different"),
        )
        .sort("target", "partition")
        .collect()
    )
    return [Compared(**row.asDict()) for row in rows]
