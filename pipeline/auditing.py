"""The audit (edge): compares the brokers' responses to clients with the content of logs.

    audit(spark, ["ledger-p0.jsonl"], Segments(["b1/data", "b2/data", "b3/data"]))
    audit(spark, ["ledgers/"], Topics("127.0.0.1:9092", ["letters"]))
    audit(spark, [], [Archive("letters.archive"), Topics("127.0.0.1:9092", ["letters"])])    # are they the same?

*Theory of operation.* Ledgers and logs are read once, into narrow rows that Spark keeps on its local disks; then the
plans of `checks.py` run over them. Findings are rows as well. The driver gets one row for each replica and partition
(number of records, first and last offset), counts of findings, and the first few of each kind.
"""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.pipeline.checks import Checks
from barnabas.pipeline.findings import Audit, Count, Finding, Held, Share
from barnabas.pipeline.layout import Holding
from barnabas.pipeline.ledgers import UNREADABLE, read_ledgers
from barnabas.pipeline.logs import Log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = TypeVar("Row", Count, Finding)
# A single lost segment makes millions of findings, and the driver has to hold what it prints.
EXAMPLES = 10  # of each kind of finding
BARS = 100  # of a plot
COMPRESSED = "spark.sql.inMemoryColumnarStorage.compressed"
LEDGER = """
    event string, time double, topic string, partition int, offset bigint, producer string, sequence bigint,
    digest bigint, count bigint
"""
SUSPECT = "replica string, topic string, partition int"
HELD = "replica string, topic string, partition int, start bigint, mark bigint, compacted boolean"


def audit(
    spark: "SparkSession",
    ledgers: Sequence[str],
    log: Log | Sequence[Log],
    *,
    compacted: Collection[str] = (),
    transactional: Collection[str] = (),
    examples: int = EXAMPLES,
) -> Audit:
    """Compare ledgers (files or directories of them) with logs, and several logs with each other.

    Records of `compacted` topics may be missing. For `transactional` topics gaps are checked in segments only, because
    a consumer does not get the markers.
    """
    began = time.monotonic()
    logs: list[Log] = list(log) if isinstance(log, Sequence) else [log]
    # The holdings are read before the rows, so that every record below a high watermark of theirs
    # is among the rows.
    holdings_of = [(each, each.holdings()) for each in logs]
    said = read_ledgers(spark, ledgers) if ledgers else spark.createDataFrame([], LEDGER)
    said = _about(said, logs)
    with _Kept(spark) as keep:
        ledger = keep(said)
        rows = keep(_union(each.rows(spark) for each in logs))
        held = _what_is_held(rows)
        holdings = _complete([holding for _, holdings in holdings_of for holding in holdings], held, logs)
        # An audit of nothing would end without a finding, as if all were well.
        if not holdings:
            raise ValueError("nothing lies there: these directories, topics or archives have no such partition")
        # Control batches take offsets. Only logs that show them can tell a marker from a missing
        # record.
        marked = {holding.replica for log, holdings in holdings_of if log.shows_markers for holding in holdings}
        events = _what_was_said(ledger)
        known = _held_frame(spark, holdings, _vouched(events), compacted)
        checks = Checks(ledger, rows, known, sorted({each.replica for each in holdings}), keep)
        found = checks.all()
        suspects = [
            each[:3]
            for each in held
            if each.topic not in compacted
            and (each.topic not in transactional or each.replica in marked)
            and _has_holes(each, holdings)
        ]
        # The check of gaps sorts rows, which is the slowest plan of all. So only partitions with
        # fewer records than offsets are given to it.
        if suspects:
            found = found.unionByName(checks.gaps(spark.createDataFrame(suspects, SUSPECT)))
        findings = keep(found)
        # These plans read the kept rows, and nothing is computed twice.
        counts = _counts(findings)
        lines = Counter[str]()
        for each in events:
            lines[each.event] += each.lines
        return Audit(
            counts=counts,
            examples=_examples(findings, examples) if counts else [],
            held=held,
            unreadable_lines=lines.pop(UNREADABLE, 0),
            events=dict(sorted(lines.items())),
            spread=_spread(findings, max(each.last_offset + 1 for each in held)) if counts and held else [],
            timeline=_timeline(ledger, events),
            seconds=round(time.monotonic() - began, 3),
        )


def _about(ledger: "DataFrame", logs: Sequence[Log]) -> "DataFrame":
    """Without events of other topics than those that are looked at."""
    from pyspark.sql import functions as f

    if not all(each.topics for each in logs):
        return ledger
    # A ledger may be about a whole cluster. A record of another topic would be reported as lost.
    wanted = {topic for each in logs for topic in each.topics}
    return ledger.where(f.col("topic").isNull() | f.col("topic").isin(wanted))


class _Kept(ExitStack):
    """Frames that several plans use, kept on local disks to the end."""

    def __init__(self, spark: "SparkSession") -> None:
        super().__init__()
        self._spark = spark

    def __enter__(self) -> "_Kept":
        # Without compression, because to look for a dictionary of each column would take longer
        # than all else that is done to a row.
        before = self._spark.conf.get(COMPRESSED)
        self._spark.conf.set(COMPRESSED, "false")
        self.callback(self._spark.conf.set, COMPRESSED, before)
        return self

    def __call__(self, frame: "DataFrame") -> "DataFrame":
        """This frame, made once."""
        from pyspark import StorageLevel

        kept = frame.persist(StorageLevel.DISK_ONLY)
        self.callback(kept.unpersist)
        return kept


def _union(frames: "Iterable[DataFrame]") -> "DataFrame":
    from functools import reduce

    return reduce(lambda one, other: one.unionByName(other), frames)


# -- what comes to the driver


def _what_is_held(rows: "DataFrame") -> list[Held]:
    """How many records each replica has of each partition, from where to where."""
    from pyspark.sql import functions as f

    key = ["replica", "topic", "partition"]
    records = rows.where(f.col("offset").isNotNull()).groupBy(*key)
    counted = records.agg(f.count("*"), f.count_if("control"), f.min("offset"), f.max("offset"))
    return sorted(Held(*row) for row in counted.collect())


def _complete(said: Sequence[Holding], held: Sequence[Held], logs: Sequence[Log]) -> list[Holding]:
    """What the logs say that they hold; then what was found without a word; then what should be there, and is not."""
    known = {each[:3]: each for each in said}
    for each in held:
        found = Holding(*each[:3], each.first_offset, each.last_offset + 1)
        # What a log says of itself is more exact: its log start may lie above the first record that
        # was found.
        known.setdefault(each[:3], found)
    places = dict.fromkeys(each[1:] for each in known)
    for log in logs:
        # A complete replica that lacks a partition has lost it, so it is compared as one with no
        # records.
        for topic, partition in places if log.complete is not None else ():
            key = (log.complete or "", topic, partition)
            known.setdefault(key, Holding(*key, 0, 0))
    return list(known.values())


def _has_holes(held: Held, holdings: Sequence[Holding]) -> bool:
    """Whether offsets are missing: as many records as offsets, from the log start on, leave no room for a hole.

    Two records at one offset could hide one; they are a finding of their own.
    """
    starts = [each.log_start_offset for each in holdings if each[:3] == held[:3]]
    begins_late = held.first_offset > min(starts, default=held.first_offset)
    return begins_late or held.records != held.last_offset - held.first_offset + 1


class _Said(NamedTuple):
    """The lines of the ledgers that say the same of a partition."""

    event: str
    topic: str | None
    partition: int | None
    lines: int
    last_offset: int | None
    first_time: float | None
    last_time: float | None


def _what_was_said(ledger: "DataFrame") -> list[_Said]:
    """How many events there are of each partition, up to which offset, and when."""
    from pyspark.sql import functions as f

    numbers = [f.count("*"), f.max("offset"), f.min("time"), f.max("time")]
    return [_Said(*row) for row in ledger.groupBy("event", "topic", "partition").agg(*numbers).collect()]


def _vouched(said: Sequence[_Said]) -> dict[tuple[str | None, int | None], int]:
    """Up to which offset records were acknowledged or read, by partition: so far the high watermark was."""
    found: dict[tuple[str | None, int | None], int] = {}
    for each in said:
        if each.event in ("acked", "read") and each.last_offset is not None:
            place = each.topic, each.partition
            found[place] = max(found.get(place, 0), each.last_offset + 1)
    return found


def _held_frame(
    spark: "SparkSession",
    holdings: Sequence[Holding],
    vouched: Mapping[tuple[str | None, int | None], int],
    compacted: Collection[str],
) -> "DataFrame":
    rows = [
        (
            *each[:3],
            each.log_start_offset,
            # A checkpoint is written every few seconds, so what clients were answered may prove a
            # higher high watermark.
            max(each.high_watermark, vouched.get((each.topic, each.partition), 0)),
            each.topic in compacted,
        )
        for each in holdings
    ]
    return spark.createDataFrame(rows, HELD)


def _counts(findings: "DataFrame") -> list[Count]:
    counted = findings.groupBy("kind", "topic", "partition").count()
    return _in_order(Count(*row) for row in counted.collect())


def _examples(findings: "DataFrame", wanted: int) -> list[Finding]:
    """The first few of each kind."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = ["topic", "partition", "offset", "replica", "text"]
    numbered = findings.withColumn("rank", f.row_number().over(Window.partitionBy("kind").orderBy(*order)))
    first = numbered.where(f.col("rank") <= wanted).select(*Finding._fields)
    return _in_order(Finding(*row) for row in first.collect())


def _in_order(rows: Iterable[Row]) -> list[Row]:
    """Sorted by one column after the other; what is unknown comes first."""
    return sorted(rows, key=lambda row: [(value is not None, value) for value in row])


def _spread(findings: "DataFrame", end_offset: int) -> list[Share]:
    """Findings by where they lie, in bars of equal width from offset 0 to the end of the longest partition."""
    from pyspark.sql import functions as f

    # This is a division that rounds up, so that there are no more than BARS bars.
    width = max(-(-end_offset // BARS), 1)
    bar = f.floor(f.col("offset") / width) * width
    counted = findings.where(f.col("offset").isNotNull()).groupBy("kind", bar.alias("start")).count()
    return sorted(Share(row["kind"], float(row["start"]), row["count"]) for row in counted.collect())


def _timeline(ledger: "DataFrame", events: Sequence[_Said]) -> list[Share]:
    """How many answers came when, in bars of equal length, in seconds from the first."""
    from pyspark.sql import functions as f

    shown = ("acked", "failed", "read")
    firsts = [each.first_time for each in events if each.event in shown and each.first_time is not None]
    lasts = [each.last_time for each in events if each.event in shown and each.last_time is not None]
    if not firsts:
        return []
    first = min(firsts)
    # All answers may have the same time, and the width must not be zero.
    width = max((max(lasts) - min(firsts)) / BARS, 0.001)
    said = ledger.where(f.col("event").isin(*shown) & f.col("time").isNotNull())
    bar = f.floor((f.col("time") - first) / width) * width
    counted = said.groupBy("event", bar.alias("start")).count()
    return sorted(Share(row["event"], round(row["start"], 3), row["count"]) for row in counted.collect())
