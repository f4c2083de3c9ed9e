"""Compares records in blocks of 64; only records of differing blocks are compared one by one.

*Theory of operation.* A *block* is 64 neighbouring offsets of a partition, or 64 neighbouring numbers of one producer.
Every *source* (each replica; the acknowledged records; the records that were read) reduces its rows of a block to a few
numbers that do not depend on their order: how many rows there are, which of the 64 (one bit each), and a sum of hashes.
Sources with the same numbers have the same records: two that differ have the same sum once in 2**40 times. Logs and
ledgers are nearly in order, so a task reduces them before anything is shuffled, and Spark shuffles blocks, not records.

A block is *odd* if its numbers do not prove that everything is right there; `checks.py` looks for errors in its rows.
So checking a long history takes little more time than reading it, unless many blocks are odd: after compaction, for
example, or if producers kept no ledger.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

BLOCK_BITS = 6  # 64 neighbours: as many as a number has bits
HASH_SHIFT = 24  # 40 bits of a hash are left: the sum of millions of them stays a number of 64 bits


def odd_places(rows: "DataFrame", holders: "DataFrame") -> "DataFrame":
    """The odd blocks of offsets: topic, partition and block.

    A block is not odd if each replica has the same contents and no offset twice, and if the mean of the hashes of the
    acknowledged records, and that of the read ones, equals the mean of the records in the log: then every record was
    acknowledged, and each one equally often.
    """
    from pyspark.sql import functions as f

    is_log = f.col("event") == "log"
    place = ["topic", "partition", "block"]
    sums = rows.groupBy("event", "replica", "topic", "partition", _block("offset").alias("block")).agg(
        f.count("*").alias("records"),
        f.count("digest").alias("values"),  # markers have none
        _bits("offset").alias("which"),
        # The sum may overflow. It is unknown then, and an unknown block is looked at record by
        # record.
        f.try_sum(f.when(f.col("digest").isNotNull(), _hash("offset", "digest"))).alias("said"),
        f.try_sum(_hash("offset", "content")).alias("content"),
    )
    number = {name: f.max(f.when(is_log, f.col(name))).alias(name) for name in ("values", "said")}
    # Equal hashes of all numbers stand for equal numbers, so that one comparison is enough for any
    # count of replicas.
    look = f.when(is_log, f.xxhash64("records", "values", "which", "said", "content"))
    blocks = sums.groupBy(*place).agg(
        f.count_if(is_log).alias("logs"),
        f.bool_and(~is_log | _is_once()).alias("once"),
        (f.min(look) == f.max(look)).alias("alike"),
        *number.values(),
        *(
            f.max(f.when(f.col("event") == event, f.col(name))).alias(f"{event}_{name}")
            for event in ("acked", "read")
            for name in ("values", "said")
        ),
    )
    is_well = (f.col("logs") == f.col("replicas")) & f.col("once") & f.col("alike")
    for event in ("acked", "read"):
        said = f.col(f"{event}_said")
        values = f.col(f"{event}_values")
        # Two means are equal if the cross products of sums and counts are. That needs no division,
        # which would round.
        same_mean = f.try_multiply(said, f.col("values")) == f.try_multiply(f.col("said"), values)
        is_well &= values.isNull() | same_mean

    return _odd(_with_holders(blocks, holders), is_well).select(*place)


def odd_identities(rows: "DataFrame", holders: "DataFrame") -> "DataFrame":
    """The blocks of producers' numbers to be looked at: topic, producer and block.

    Books are kept: an acknowledgement adds its record once for each replica of its partition, and each record that lies
    there is taken away. All is well where nothing is left, and nothing was acknowledged, or lies in one place, twice.
    """
    from pyspark.sql import functions as f

    is_acked = f.col("event") == "acked"
    who = ["topic", "producer", "block"]
    said = rows.where(is_acked | (f.col("event") == "log"))
    sums = said.groupBy("event", "replica", "topic", "partition", "producer", _block("sequence").alias("block")).agg(
        f.count("*").alias("records"),
        _bits("sequence").alias("which"),
        f.try_sum(_hash("partition", "offset", "sequence", "digest")).alias("said"),
    )

    # An acknowledgement counts once if no replica holds the partition: so its block does not sum up
    # to 0.
    times = f.when(is_acked, f.coalesce("replicas", f.lit(1))).otherwise(-1)
    blocks = (
        _with_holders(sums, holders)
        .groupBy(*who)
        .agg(
            f.bool_and(_is_once()).alias("once"),
            f.sum(f.when(is_acked, f.col("records"))).alias("acks"),
            f.bit_or(f.when(is_acked, f.col("which"))).alias("acked"),
            f.sum(f.col("records") * times).alias("left"),
            f.try_sum(f.try_multiply(f.col("said"), times)).alias("said_left"),
        )
    )
    # The bits show numbers that were acknowledged twice: then there are more acknowledgements than
    # bits.
    is_well = f.col("once") & (f.col("acks") == f.bit_count("acked")) & (f.col("left") == 0) & (f.col("said_left") == 0)
    return _odd(blocks, is_well).select(*who)


def rows_in(rows: "DataFrame", blocks: "DataFrame", key: "Sequence[str]", number: str) -> "DataFrame":
    """The rows that these blocks are about."""
    numbered = rows.withColumn("block", _block(number))
    # A semi-join keeps each row once, whatever the number of blocks that it matches.
    return numbered.join(blocks, [*key, "block"], "left_semi").drop("block")


def _odd(blocks: "DataFrame", is_well: "Column") -> "DataFrame":
    """What is unknown is not well."""
    from pyspark.sql import functions as f

    return blocks.where(~f.coalesce(is_well, f.lit(False)))


def _with_holders(rows: "DataFrame", holders: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    return rows.join(f.broadcast(holders), ["topic", "partition"], "left")


def _block(number: str) -> "Column":
    from pyspark.sql import functions as f

    return f.shiftright(number, BLOCK_BITS)


def _bits(number: str) -> "Column":
    """Which numbers of the block there are."""
    from pyspark.sql import functions as f

    return f.bit_or(f.expr(f"shiftleft(1L, int({number} & {(1 << BLOCK_BITS) - 1}))"))


def _is_once() -> "Column":
    """Whether no number of the block is there twice."""
    from pyspark.sql import functions as f

    return f.col("records") == f.bit_count("which")


def _hash(*columns: str) -> "Column":
    from pyspark.sql import functions as f

    return f.shiftrightunsigned(f.xxhash64(*columns), HASH_SHIFT)
