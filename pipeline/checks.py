"""The checks of an audit, each a Spark plan from rows to findings.

*Theory of operation.* Two group-bys join ledgers and logs. By *identity* (topic, producer, sequence): how often each
replica has a record, at which offsets, and at which offset it was acknowledged; that finds lost, duplicated and moved
records, and records without a producer. By *place* (topic, partition, offset): what each replica has at an offset, and
what consumers got from it; that finds phantom reads and replicas that diverge. All aggregates are numbers, so Spark
aggregates by hashing. Before each group-by, `agreement.py` removes the blocks of records in which everything agrees,
usually nearly all. Only order and gaps need a window over sorted rows: over the acknowledged rows of each producer, and
over partitions with fewer records than offsets.

Not reported: records below a replica's log start (retention, DeleteRecords); records missing from a compacted topic;
differences at or above the high watermark, which is the highest offset that a checkpoint, an acknowledgement or a read
proves; offsets that a corrupt batch takes away, which is one finding of its own.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from barnabas.pipeline.agreement import odd_identities, odd_places, rows_in
from barnabas.pipeline.findings import Finding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# All checks have the columns of `Finding`, so their results can be put together.
FINDING = "kind string, topic string, partition int, offset bigint, replica string, text string"
PLACE = ("topic", "partition")


class Checks:
    """The plans over one ledger and one log. `held` has a row for each replica and partition: start and mark.

    `keep` keeps a frame on disk for as long as the findings are needed.
    """

    def __init__(
        self,
        ledger: "DataFrame",
        log: "DataFrame",
        held: "DataFrame",
        replicas: Sequence[str],
        keep: "Callable[[DataFrame], DataFrame]",
    ) -> None:
        from pyspark.sql import functions as f

        self._ledger = ledger
        self._log = log.where(f.col("problem").isNull()).withColumn("event", f.lit("log"))
        self._problems = log.where(f.col("problem").isNotNull())
        self._held = held
        self._holders = held.groupBy(*PLACE).agg(f.count("*").alias("replicas"))
        self._replicas = list(enumerate(replicas))
        self._keep = keep

    def all(self) -> "DataFrame":
        """Every finding but gaps."""
        found = self.corrupt().unionByName(self.out_of_order())
        for more in (self.by_identity(), self.by_offset()):
            found = found if more is None else found.unionByName(more)
        return found

    def _odd(self, rows: "DataFrame", blocks: "DataFrame", key: Sequence[str], number: str) -> "DataFrame | None":
        """The rows in these blocks; None if there are none."""
        kept = self._keep(blocks)
        if not kept.count():  # after the count Spark knows how large this frame is, and plans with that
            return None
        return rows_in(rows, kept, key, number)

    # -- by who a record is

    def by_identity(self) -> "DataFrame | None":
        """Lost, duplicated, moved, and sent by no producer: of records that say who they are."""
        from pyspark.sql import functions as f

        said = self._ledger.where(f.col("event").isin("acked", "failed") & f.col("sequence").isNotNull())
        # Producers without a ledger, such as other programs that write to the topic, cannot be
        # judged.
        known = self._ledger.where(f.col("event").isin("acked", "failed", "sent")).select("producer").distinct()
        stamped = self._log.where(f.col("sequence").isNotNull())
        lying = stamped.join(f.broadcast(known), "producer", "left_semi")
        shared = ["event", "topic", "partition", "offset", "producer", "sequence", "digest"]
        rows = lying.select("replica", *shared).unionByName(said.select(*shared), allowMissingColumns=True)
        odd = self._odd(rows, odd_identities(rows, self._holders), ["topic", "producer"], "sequence")
        if odd is None:
            return None
        # The partition is no part of the identity, so a record in two partitions is one record
        # twice.
        records = odd.groupBy("topic", "producer", "sequence").agg(*self._identity_sums())
        sent = self._ledger.where(f.col("event") == "sent").groupBy("producer").agg(f.max("count").alias("sent"))
        records = records.join(f.broadcast(sent), "producer", "left")
        return self._findings(self._with_holders(records), self._judged_by_identity())

    def _identity_sums(self) -> "list[Column]":
        from pyspark.sql import functions as f

        acked = f.col("event") == "acked"
        offset = f.col("offset")
        digest = f.col("digest")
        sums = [
            f.min("partition").alias("partition"),
            f.count_if(acked).alias("acks"),
            f.min(f.when(acked, offset)).alias("said"),
            f.max(f.when(acked, offset)).alias("said_last"),
            f.min(f.when(acked, digest)).alias("said_digest"),
            f.count_if(f.col("event") == "failed").alias("failures"),
        ]
        for index, replica in self._replicas:
            here = f.col("replica") == replica
            sums += [
                f.count_if(here).alias(f"n{index}"),
                f.min(f.when(here, offset)).alias(f"first{index}"),
                f.max(f.when(here, offset)).alias(f"last{index}"),
                f.min(f.when(here, digest)).alias(f"least{index}"),
                f.max(f.when(here, digest)).alias(f"most{index}"),
            ]

        return sums

    def _judged_by_identity(self) -> "list[Column]":
        from pyspark.sql import functions as f

        said = f.col("said")
        was_acked = f.col("acks") > 0
        name = f.concat(f.coalesce("producer", f.lit("")), f.lit("."), "sequence")
        as_said = _any(
            (f.col(f"n{i}") > 0)
            & ((f.col(f"least{i}") == f.col("said_digest")) | (f.col(f"most{i}") == f.col("said_digest")))
            for i, _ in self._replicas
        )

        # A record whose offset was in no answer may have been one of those that are gone.
        is_excused = f.col("compacted") | _any(
            self._holds(i) & (f.coalesce(said, f.lit(0)) < f.col(f"start{i}")) for i, _ in self._replicas
        )
        twice = _any(f.col(f"n{i}") > 1 for i, _ in self._replicas)
        two_acks = (said != f.col("said_last")) & ~twice
        # A replica that has the record twice is reported for that, and says nothing about order.
        elsewhere = [
            f.when((f.col(f"n{i}") == 1) & (f.col(f"first{i}") != said), f.col(f"first{i}")) for i, _ in self._replicas
        ]
        moved = f.least(*elsewhere, f.lit(None))
        copies = f.greatest(*self._columns("n"), f.lit(0))
        where = [f.least(*self._columns("first"), f.lit(None)), f.greatest(*self._columns("last"), f.lit(None))]
        at = f.coalesce(f.concat(f.lit(" at offset "), said), f.lit(""))
        return [
            _when(
                (was_acked & ~as_said & ~is_excused) | two_acks,
                "lost",
                f.concat(name, f.lit(" was acknowledged"), at, f.lit(", "), self._instead(copies, two_acks)),
                offset=said,
            ),
            _when(
                twice,
                "duplicated",
                f.format_string("%s lies there %d times, from offset %d to %d", name, copies, *where),
                offset=where[0],
            ),
            _when(
                moved.isNotNull() & as_said & ~twice & ~two_acks,
                "reordered",
                f.format_string("%s was acknowledged at offset %d and lies at %d", name, said, moved),
                offset=said,
            ),
            _when(
                (f.col("acks") == 0) & (f.col("failures") == 0) & (f.col("sequence") >= f.col("sent")),
                "phantom",
                f.format_string("%s lies there; %s sent %d records", name, f.col("producer"), f.col("sent")),
                offset=where[0],
            ),
        ]

    def _instead(self, copies: "Column", two_acks: "Column") -> "Column":
        from pyspark.sql import functions as f

        altered = f.when(copies > 0, f.lit("and has another value")).otherwise("and lies nowhere")
        return f.when(two_acks, f.concat(f.lit("and also at "), f.col("said_last"))).otherwise(altered)

    # -- by where a record lies

    def by_offset(self) -> "DataFrame | None":
        """Phantom reads, diverging replicas, two records at one offset, lost records that do not say who they are."""
        from pyspark.sql import functions as f

        said = self._ledger.where(f.col("event").isin("acked", "read") & f.col("offset").isNotNull())
        shared = ["event", "topic", "partition", "offset", "sequence", "digest"]
        lying = self._log.select("replica", "content", *shared)
        rows = lying.unionByName(said.select(*shared), allowMissingColumns=True)
        odd = self._odd(rows, odd_places(rows, self._holders), PLACE, "offset")
        if odd is None:
            return None
        places = odd.groupBy("topic", "partition", "offset").agg(*self._offset_sums())
        findings = self._findings(self._with_holders(places), self._judged_by_offset())
        return self._without_corrupt(findings)

    def _offset_sums(self) -> "list[Column]":
        from pyspark.sql import functions as f

        digest = f.col("digest")
        sums: list[Column] = []
        unnamed = (f.col("event") == "acked") & f.col("sequence").isNull()  # the others are judged by identity
        for word, is_it in (("read", f.col("event") == "read"), ("unnamed", unnamed)):
            sums += [f.min(f.when(is_it, digest)).alias(word), f.max(f.when(is_it, digest)).alias(f"{word}_last")]
        for index, replica in self._replicas:
            here = f.col("replica") == replica
            sums += [
                f.count_if(here).alias(f"n{index}"),
                f.max(f.when(here, f.col("content"))).alias(f"content{index}"),
                f.max(f.when(here, digest)).alias(f"digest{index}"),
            ]
        return sums

    def _judged_by_offset(self) -> "list[Column]":
        from pyspark.sql import functions as f

        offset = f.col("offset")
        is_gone = _any(self._holds(i) & (offset < f.col(f"start{i}")) for i, _ in self._replicas)
        is_there = _any(f.col(f"n{i}") > 0 for i, _ in self._replicas)
        counts = f.col("mark") > offset
        # A replica that lacks the offset has no content, and is compared with no other one here.
        contents = [f.when(f.col(f"n{i}") > 0, f.col(f"content{i}")) for i, _ in self._replicas]
        is_excused = is_gone | (f.col("compacted") & ~is_there)
        judged = [
            _when(
                self._is_not_there("read") & ~is_excused,
                "phantom",
                f.concat(f.lit("a consumer was handed another record than "), self._what_lies_there(is_there)),
            ),
            _when(
                self._is_not_there("unnamed") & ~is_excused,
                "lost",
                f.concat(f.lit("another record was acknowledged than "), self._what_lies_there(is_there)),
            ),
            _when(
                counts & (f.least(*contents, f.lit(None)) != f.greatest(*contents, f.lit(None))),
                "diverging",
                f.concat(f.lit("the replicas hold different records: "), self._contents(contents)),
            ),
        ]
        for i, replica in self._replicas:
            is_missing = self._holds(i) & (f.col(f"n{i}") == 0) & (offset >= f.col(f"start{i}"))
            has_nothing = f.lit(f"{replica} has nothing there, and another replica has a record")
            judged += [
                _when(counts & is_there & is_missing & ~f.col("compacted"), "diverging", has_nothing, replica=replica),
                _when(f.col(f"n{i}") > 1, "duplicated", f.lit("two records have this offset"), replica=replica),
            ]

        return judged

    def _is_not_there(self, word: str) -> "Column":
        """Whether an answer named something at this offset that no replica has there."""
        from pyspark.sql import functions as f

        agrees = _any((f.col(f"digest{i}") == f.col(word)) for i, _ in self._replicas)
        return f.col(word).isNotNull() & (~agrees | (f.col(word) != f.col(f"{word}_last")))

    def _what_lies_there(self, is_there: "Column") -> "Column":
        from pyspark.sql import functions as f

        return f.when(is_there, f.lit("the one that lies there")).otherwise("nothing, which lies there")

    def _contents(self, contents: "Sequence[Column]") -> "Column":
        from pyspark.sql import functions as f

        named = [
            f.concat(f.lit(f"{replica} "), f.coalesce(f.hex(content), f.lit("none")))
            for (_, replica), content in zip(self._replicas, contents, strict=True)
        ]
        return f.concat_ws(", ", *named)

    # -- in order

    def out_of_order(self) -> "DataFrame":
        """Acknowledged records that lie right behind a later one of the same producer."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        acked = self._ledger.where((f.col("event") == "acked") & f.col("offset").isNotNull())
        before = f.lag("sequence").over(Window.partitionBy(*PLACE, "producer").orderBy("offset"))
        late = acked.select(*PLACE, "producer", "sequence", "offset", before.alias("before"))
        text = f.format_string(
            "%s.%d lies behind %s.%d", f.col("producer"), f.col("sequence"), f.col("producer"), f.col("before")
        )
        return self._findings(late, [_when(f.col("sequence") < f.col("before"), "reordered", text)])

    def corrupt(self) -> "DataFrame":
        """The batches that cannot be read."""
        from pyspark.sql import functions as f

        rows = self._problems.withColumnRenamed("replica", "where").withColumn("offset", f.col("first_offset"))
        text = f.concat(f.lit("replica "), f.col("where"), f.lit(", "), f.col("problem"))
        return self._findings(rows, [_when(f.lit(True), "corrupt", text, replica=f.col("where"))])

    def gaps(self, suspects: "DataFrame") -> "DataFrame":
        """Offsets that are missing from the partitions of these replicas: rows of replica, topic and partition."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        key = ["replica", *PLACE]
        columns = ["replica", *PLACE, "first_offset", "last_offset"]
        records = self._log.withColumns({"first_offset": f.col("offset"), "last_offset": f.col("offset")})
        problems = self._problems.where(f.col("first_offset").isNotNull())
        taken = records.select(*columns).unionByName(problems.select(*columns))
        taken = taken.join(f.broadcast(suspects), key, "left_semi")
        before = Window.partitionBy(*key).orderBy("first_offset").rowsBetween(Window.unboundedPreceding, -1)
        rows = taken.select(*key, "first_offset", f.max("last_offset").over(before).alias("before"))
        starts = self._held.select(*key, f.col("start"))
        rows = rows.join(f.broadcast(starts), key).withColumnRenamed("replica", "where")
        rows = rows.withColumn("offset", f.coalesce(f.col("before") + 1, f.col("start")))
        missing = rows.where(f.col("first_offset") > f.col("offset")).groupBy(*PLACE, "offset", "first_offset")
        said = missing.agg(f.concat_ws(", ", f.sort_array(f.collect_set("where"))).alias("where"))
        text = f.format_string("no offsets %d to %d on %s", "offset", f.col("first_offset") - 1, "where")
        return self._findings(said, [_when(f.lit(True), "gap", text, replica=f.col("where"))])

    # -- what they have in common

    def _findings(self, rows: "DataFrame", judged: "list[Column]") -> "DataFrame":
        from pyspark.sql import functions as f

        found = rows.select(f.explode(f.array_compact(f.array(*judged))).alias("found"))
        return found.select(*(f.col(f"found.{name}").alias(name) for name in Finding._fields))

    def _with_holders(self, rows: "DataFrame") -> "DataFrame":
        """With who holds the partition from where on, up to where it counts, and whether it is compacted."""
        from pyspark.sql import functions as f

        starts = [
            f.min(f.when(f.col("replica") == replica, f.col("start"))).alias(f"start{i}")
            for i, replica in self._replicas
        ]
        held = self._held.groupBy(*PLACE).agg(
            *starts, f.max("mark").alias("mark"), f.max("compacted").alias("compacted")
        )
        return rows.join(f.broadcast(held), [*PLACE], "left").na.fill({"mark": 0, "compacted": False})

    def _without_corrupt(self, findings: "DataFrame") -> "DataFrame":
        """Without what a corrupt batch of the same replica explains."""
        from pyspark.sql import functions as f

        ranges = self._problems.where(f.col("first_offset").isNotNull()).select(
            f.col("replica").alias("in"),
            f.col("topic").alias("of"),
            f.col("partition").alias("number"),
            "first_offset",
            "last_offset",
        )
        is_explained = (
            (f.col("kind") == "diverging")
            & (f.col("replica") == f.col("in"))
            & (f.col("topic") == f.col("of"))
            & (f.col("partition") == f.col("number"))
            & f.col("offset").between(f.col("first_offset"), f.col("last_offset"))
        )
        return findings.join(f.broadcast(ranges), is_explained, "left_anti")

    def _holds(self, index: int) -> "Column":
        from pyspark.sql import functions as f

        return f.col(f"start{index}").isNotNull()

    def _columns(self, name: str) -> "list[Column]":
        from pyspark.sql import functions as f

        return [f.col(f"{name}{index}") for index, _ in self._replicas]


def _any(conditions: "Iterable[Column]") -> "Column":
    """Whether one of them holds; null, which is unknown, does not."""
    from functools import reduce

    from pyspark.sql import functions as f

    known = [f.coalesce(condition, f.lit(False)) for condition in conditions]
    return reduce(lambda one, other: one | other, known, f.lit(False))


def _when(
    condition: "Column",
    kind: str,
    text: "Column",
    *,
    offset: "Column | None" = None,
    replica: "Column | str | None" = None,
) -> "Column":
    """A finding if this holds, else null."""
    from pyspark.sql import functions as f

    values = {
        "kind": f.lit(kind),
        "topic": f.col("topic"),
        "partition": f.col("partition"),
        "offset": f.col("offset") if offset is None else offset,
        "replica": f.lit(replica),  # `f.lit` leaves a column as it is
        "text": text,
    }
    types = dict(column.split() for column in FINDING.split(", "))
    finding = f.struct(*(value.cast(types[name]).alias(name) for name, value in values.items()))
    return f.when(f.coalesce(condition, f.lit(False)), finding)
