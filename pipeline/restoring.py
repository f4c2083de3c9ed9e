"""Restore an archive into topics (edge): same partition, order, key, value, headers, timestamp; resumable at any time.

Theory of operation. Topics that are missing are created as the archive knows them; then the plan is made and kept in
the state directory (plan.py), and Spark sorts each partition's records by place and hands every partition to a task
that writes what is missing (writing.py). The same restore, started again, goes on where the target's logs end.

Offsets: the n-th record of a partition gets offset `base + n`. If the archive has every offset from 0 on and the topic
is new, records get their old offsets; gaps (compaction, transaction markers) disappear. All timestamps are written as
CreateTime.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.pipeline.fencing import alone
from barnabas.pipeline.manifest import Archive, Batch, read_archive
from barnabas.pipeline.plan import (
    Partition,
    Plan,
    RestoreError,
    Selection,
    make_plan,
    plan_from_json,
    ranges_of,
    records_of,
)
from barnabas.pipeline.topics import Cluster, ClusterError, Topic
from barnabas.pipeline.writing import INPUT_COLUMNS, RESULT_SCHEMA, Outcome, restore_task

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ARROW_RECORDS_MAX = 10_000
ARROW_BYTES_MAX = 16 * 1024 * 1024  # of keys, values and headers in one Arrow batch: what a task holds at once
TASKS_MAX = 10_000
LOOK_SECONDS = 1.0  # how often progress is reported
PLAN_FILE = "plan.json"

# What a topic is created with in spite of the archive. Records with old timestamps must neither be
# refused nor deleted at once.
RESTORED_CONFIGS = {"message.timestamp.type": "CreateTime"}
KEPT_FOREVER = {"retention.ms": "-1", "retention.bytes": "-1"}
LEFT_OUT = {
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
}


@dataclass(frozen=True)
class Target:
    """Where records go, and how."""

    bootstrap_servers: str
    client: Mapping[str, str] | None = None  # configuration of librdkafka
    compression: str = "lz4"
    keep_retention: bool = False  # the archive's retention for created topics, not retention without end
    append: bool = False  # into topics that hold records already


@dataclass(frozen=True)
class Restored:
    """What a run has done."""

    plan: Plan
    created: tuple[str, ...]
    skipped: int  # they were there before this run
    written: int
    seconds: float


def restore(
    spark: "SparkSession",
    path: str | Path,
    target: Target,
    selection: Selection | None = None,
    *,
    state: str | Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Restored:
    """Write the records that an archive has, or a selection of them, into topics; again, to go on after a failure.

    `state` is a directory for the plan; without it the archive keeps it, one for each cluster. `on_progress` gets
    (records there, records in all) about once a second. Raises ArchiveError, RestoreError and ClusterError.
    """
    began = time.monotonic()
    selection = selection or Selection()
    archive = Archive(path)
    cluster = Cluster(target.bootstrap_servers, target.client)
    folder = Path(state) if state is not None else archive.path / "restores" / cluster.cluster_id()
    folder.mkdir(parents=True, exist_ok=True)
    # A restore that goes on has created its topics in an earlier run, and reports none.
    created: tuple[str, ...] = ()
    outcomes: list[Outcome] = []
    # The log ends show the progress only while no task of another run writes.
    with alone(folder):
        plan = find_plan(folder / PLAN_FILE, cluster, selection)
        if plan is None:
            plan, created = begin(spark, archive, cluster, target, selection)
            # The plan is durable before the first record is written: it has the log ends of that
            # moment, from which a later run sees what is written already.
            archive.write(folder / PLAN_FILE, plan.to_json())
        # Partitions that are complete are left out, so that Spark does not read their records
        # again.
        done = records_there(plan, cluster)
        missing = replace(
            plan, partitions=tuple(one for one in plan.partitions if done[one.target, one.partition] < one.records)
        )
        if missing.partitions:
            with Telling(plan, cluster, on_progress):
                outcomes = run_tasks(spark, archive, missing, selection, target, folder)

    problems = [f"{one.target}-{one.partition}: {one.problem}" for one in outcomes if one.problem]
    ended = {(one.target, one.partition) for one in outcomes}
    problems += [  # no row of theirs came to a task, so no task could report it
        f"{one.target}-{one.partition}: the plan has {one.records} records for it, the archive gave none"
        for one in missing.partitions
        if (one.target, one.partition) not in ended
    ]
    if problems:
        raise RestoreError("\n".join(problems))
    written = sum(one.written for one in outcomes)
    return Restored(plan, created, plan.records - written, written, time.monotonic() - began)


def find_plan(file: Path, cluster: Cluster, selection: Selection) -> Plan | None:
    """The plan of a restore that was begun, if it is the same."""
    if not file.exists():
        return None
    plan = plan_from_json(file.read_text(encoding="utf-8"), str(file))
    # With another selection the n-th record would be another one, and the log end would not say
    # whether it is written.
    plan.check_same(cluster.cluster_id(), selection, str(file))
    return plan


def begin(
    spark: "SparkSession", archive: Archive, cluster: Cluster, target: Target, selection: Selection
) -> tuple[Plan, tuple[str, ...]]:
    """Create what is missing and make the plan; nothing is written to a topic yet."""
    batches = archive.batches()
    # A topic that was deleted while it was archived has records, and no settings.
    topics = selection.chosen({*archive.topics(), *(found.topic for found in ranges_of(batches))})
    refuse_timestamp_zero(spark, archive, batches, topics)
    counts = count_records(spark, archive, batches, topics, selection)
    created = prepare_topics(archive, cluster, target, {topic: selection.target(topic) for topic in topics}, counts)
    ends = cluster.end_offsets((selection.target(topic), partition) for topic, partition in counts)
    full = sorted({topic for (topic, _), end in ends.items() if end > 0})
    if full and not target.append:
        raise RestoreError(
            f"{', '.join(full)}: there are records already. To restore behind them, ask for it (--append); to restore "
            "under another name, give --prefix or --rename"
        )
    return make_plan(cluster.cluster_id(), len(batches), selection, counts, ends), created


def count_records(
    spark: "SparkSession", archive: Archive, batches: Sequence[Batch], topics: Sequence[str], selection: Selection
) -> dict[Partition, int]:
    """How many records of each partition are restored: as the manifest says, or counted where only some are."""
    # The manifest knows the counts of whole partitions, so nothing has to be read.
    if not selection.takes_part_of_partitions():
        return records_of(batches, topics)
    records = selected(read_archive(spark, archive.path, batches=len(batches)), topics, selection)
    counted = records.groupBy("topic", "partition").count().collect()
    return {(row["topic"], row["partition"]): row["count"] for row in counted}


def selected(records: "DataFrame", topics: Sequence[str], selection: Selection) -> "DataFrame":
    """The records of an archive that a selection names."""
    from pyspark.sql import functions as f

    records = records.where(f.col("topic").isin(*topics))
    for (topic, partition), (first, end) in sorted(selection.offsets.items()):
        elsewhere = (f.col("topic") != topic) | (f.col("partition") != partition)
        # A range limits its own partition alone. The records of all others pass.
        records = records.where(elsewhere | ((f.col("offset") >= first) & (f.col("offset") < end)))
    if selection.since_ms is not None:
        records = records.where(f.unix_millis("timestamp") >= selection.since_ms)
    if selection.until_ms is not None:
        records = records.where(f.unix_millis("timestamp") < selection.until_ms)
    return records


def refuse_timestamp_zero(
    spark: "SparkSession", archive: Archive, batches: Sequence[Batch], topics: Sequence[str]
) -> None:
    """librdkafka takes the timestamp 0 for "now": a record of the first millisecond of 1970 cannot be written."""
    from pyspark.sql import functions as f

    suspicious = {
        found.topic
        for found in ranges_of(batches)
        if found.topic in topics and found.earliest_timestamp_ms <= 0 <= found.latest_timestamp_ms
    }
    if not suspicious:
        return
    records = read_archive(spark, archive.path, batches=len(batches)).where(f.col("topic").isin(*suspicious))
    for row in records.where(f.unix_millis("timestamp") == 0).select("topic", "partition", "offset").limit(1).collect():
        raise RestoreError(
            f"{row['topic']}-{row['partition']} has a record with the timestamp 0 at offset {row['offset']}; the "
            "client would write the present time instead. Leave it out by an offset range"
        )


def prepare_topics(
    archive: Archive, cluster: Cluster, target: Target, targets: Mapping[str, str], counts: Mapping[Partition, int]
) -> tuple[str, ...]:
    """Create the target topics that are missing; refuse those that cannot take the records as they are."""
    known = archive.topics()
    present = cluster.partition_counts()
    brokers = cluster.brokers()
    missing = {}
    for topic, name in targets.items():
        # Records go back into the partitions from which they came, so the target needs as many of
        # them.
        needed = 1 + max((partition for of, partition in counts if of == topic), default=0)
        if name not in present:
            if topic not in known:
                raise RestoreError(f"{archive.topics_file} does not describe {topic}: create the topic {name} first")
            missing[name] = as_created(known[topic], brokers, target.keep_retention)
            continue
        if present[name] < needed:
            raise RestoreError(f"{name} has {present[name]} partitions, and {topic} had records in {needed}")
        if cluster.configs(name).get("message.timestamp.type") == "LogAppendTime":
            raise RestoreError(f"{name} has message.timestamp.type=LogAppendTime: every timestamp would be lost")

    cluster.create(missing)
    return tuple(missing)


def as_created(known: Mapping[str, object], brokers: int, keep_retention: bool) -> Topic:
    """A topic of the archive, as it is created in a cluster of so many brokers."""
    partitions = known["partitions"]
    replicas = known["replication_factor"]
    archived = known["configs"]
    assert isinstance(partitions, int)
    assert isinstance(replicas, int)
    assert isinstance(archived, dict)
    # A cluster for tests often has fewer brokers than the one that was archived.
    replicas = min(replicas, brokers)
    configs = {name: value for name, value in archived.items() if name not in LEFT_OUT}
    if int(configs.get("min.insync.replicas", 1)) > replicas:
        del configs["min.insync.replicas"]  # nothing could be written
    kept = {} if keep_retention else KEPT_FOREVER
    return Topic(partitions, replicas, {**configs, **RESTORED_CONFIGS, **kept})


def records_there(plan: Plan, cluster: Cluster) -> dict[Partition, int]:
    """How many records of each target partition are restored."""
    ends = cluster.end_offsets((one.target, one.partition) for one in plan.partitions)
    return {(one.target, one.partition): one.done(ends[one.target, one.partition]) for one in plan.partitions}


class Telling:
    """While it is entered, a thread tells how far the target's logs are."""

    def __init__(self, plan: Plan, cluster: Cluster, on_progress: Callable[[int, int], None] | None) -> None:
        self._plan = plan
        self._cluster = cluster
        self._on_progress = on_progress
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        if self._on_progress is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._on_progress is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self._on_progress is not None
        while True:
            # The last report follows the end, so that it shows all records.
            over = self._over.wait(LOOK_SECONDS)
            try:
                self._on_progress(sum(records_there(self._plan, self._cluster).values()), self._plan.records)
            except (ClusterError, RestoreError):
                return  # the tasks meet it too, and report it
            if over:
                return


def run_tasks(
    spark: "SparkSession", archive: Archive, plan: Plan, selection: Selection, target: Target, state: Path
) -> list[Outcome]:
    """One task for each partition of the plan, on Spark's executors; what became of each."""
    session = spark.newSession()  # settings made here touch no other query
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(arrow_records(archive, plan)))
    rows = planned_rows(session, archive, plan, selection)
    task = restore_task(target.bootstrap_servers, target.client or {}, target.compression, str(state.absolute()))
    written = rows.select(*INPUT_COLUMNS).mapInArrow(task, RESULT_SCHEMA).collect()
    return [Outcome(**row.asDict()) for row in written]


def arrow_records(archive: Archive, plan: Plan) -> int:
    """How many records of the largest size that the archive knows an Arrow batch may hold."""
    largest = max((found.largest_record_bytes for found in ranges_of(archive.batches()[: plan.batches])), default=1)
    return max(1, min(ARROW_RECORDS_MAX, ARROW_BYTES_MAX // max(1, largest)))


def planned_rows(session: "SparkSession", archive: Archive, plan: Plan, selection: Selection) -> "DataFrame":
    """The records of the plan's partitions, one Spark partition for each, sorted by place."""
    from pyspark.sql import functions as f

    tasks = min(len(plan.partitions), TASKS_MAX)
    lanes = lanes_of(session, tasks)
    table = [
        (one.topic, one.partition, one.target, one.base, one.records, lanes[index % tasks])
        for index, one in enumerate(plan.partitions)
    ]
    schema = "topic STRING, partition INT, target STRING, base BIGINT, records BIGINT, lane INT"
    planned = session.createDataFrame(table, schema)
    topics = sorted({one.topic for one in plan.partitions})
    records = selected(read_archive(session, archive.path, batches=plan.batches), topics, selection)
    rows = records.join(f.broadcast(planned), ["topic", "partition"])
    ordered = rows.repartition(tasks, "lane").sortWithinPartitions("topic", "partition", "batch", "offset")
    return ordered.withColumn("timestamp_ms", f.unix_millis("timestamp"))


def lanes_of(session: "SparkSession", tasks: int) -> list[int]:
    """A number for each task that Spark's hash sends there: else some tasks get two partitions, and some none."""
    from pyspark.sql import functions as f

    candidates = session.range(tasks * (tasks.bit_length() + 8) * 4).select(f.col("id").cast("int").alias("lane"))
    place: Column = f.pmod(f.hash("lane"), f.lit(tasks))
    rows = candidates.groupBy(place.alias("task")).agg(f.min("lane").alias("lane")).collect()
    found = {row["task"]: row["lane"] for row in rows}
    return [found.get(task, task) for task in range(tasks)]
