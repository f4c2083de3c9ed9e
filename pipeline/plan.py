"""The plan of a restore, which is made before the first record and kept until the last (pure).

Theory of operation. The records of an archive's partition have an order (batch, offset), so each has a place in it:
0, 1, 2, … The plan has the target's log end before the first record, `base`. If no other client writes to the
partition, each record gets the next offset. So the record with place n gets offset `base + n`, and the log end alone
shows how many are there already. So a restore can be resumed without a stored position: after a kill, a retry of
Spark's, or an error of the client, a task reads the log end, skips `end - base` records, and continues. A record that
is acknowledged with another offset shows that another client writes to the partition.

The plan also has the number of batches at that time, because the archive may grow meanwhile, and the selection, because
another selection would change the places.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from barnabas.pipeline.manifest import FORMAT, Batch, Range

OffsetRange = tuple[int, int]  # from (included), to (excluded)
Partition = tuple[str, int]


class RestoreError(RuntimeError):
    """The restore cannot begin or continue; the message has the reason."""


@dataclass(frozen=True)
class Selection:
    """Which records are restored, and under which names of topics."""

    topics: tuple[str, ...] | None = None  # None: all
    renamed: dict[str, str] = field(default_factory=dict)
    prefix: str = ""
    offsets: dict[Partition, OffsetRange] = field(default_factory=dict)  # of other partitions: all
    since_ms: int | None = None
    until_ms: int | None = None  # excluded

    def target(self, topic: str) -> str:
        """The topic that the records go to."""
        return self.renamed.get(topic, self.prefix + topic)

    def takes_part_of_partitions(self) -> bool:
        return bool(self.offsets) or self.since_ms is not None or self.until_ms is not None

    def chosen(self, archived: Iterable[str]) -> list[str]:
        """The topics that are restored; what is asked for must be there."""
        known = set(archived)
        wanted = set(known if self.topics is None else self.topics)
        named = wanted | set(self.renamed) | {topic for topic, _ in self.offsets}
        if named - known:
            raise RestoreError(f"the archive has no topic {', '.join(sorted(named - known))}")
        targets = [self.target(topic) for topic in sorted(wanted)]
        twice = sorted({target for target in targets if targets.count(target) > 1})
        if twice:
            raise RestoreError(f"more than one topic would go to {', '.join(twice)}")
        return sorted(wanted)

    def to_json(self) -> dict[str, object]:
        offsets = [[*partition, *span] for partition, span in sorted(self.offsets.items())]
        return {**asdict(self), "topics": sorted(self.topics) if self.topics else None, "offsets": offsets}


@dataclass(frozen=True)
class PartitionPlan:
    """One partition of the archive and where its records go."""

    topic: str
    partition: int
    target: str
    base: int
    records: int

    def done(self, log_end_offset: int) -> int:
        """How many records are there already, judged by the log end."""
        done = log_end_offset - self.base
        if not 0 <= done <= self.records:
            raise RestoreError(
                f"{self.target}-{self.partition} ends at offset {log_end_offset}; the restore began at {self.base} and "
                f"has {self.records} records for it. Another producer writes to it, or it was created again"
            )
        return done


@dataclass(frozen=True)
class Plan:
    """All of it."""

    cluster_id: str
    batches: int
    selection: dict[str, object]
    partitions: tuple[PartitionPlan, ...]

    @property
    def records(self) -> int:
        return sum(found.records for found in self.partitions)

    def to_json(self) -> dict[str, object]:
        return {"format": FORMAT, **asdict(self)}

    def check_same(self, cluster_id: str, selection: Selection, where: str) -> None:
        """RestoreError unless this plan is of the same cluster and selection."""
        if self.cluster_id != cluster_id:
            raise RestoreError(f"{where} is of a restore into cluster {self.cluster_id}, this is {cluster_id}")
        if self.selection != json.loads(json.dumps(selection.to_json())):
            raise RestoreError(
                f"{where} is of a restore of {json.dumps(self.selection)}. "
                "Another one needs a state of its own (--state)"
            )


def plan_from_json(text: str, where: str) -> Plan:
    """A plan that was kept."""
    value = json.loads(text)
    if value.get("format") != FORMAT:
        raise RestoreError(f"{where} has format {value.get('format')}; this version reads {FORMAT}")
    partitions = tuple(PartitionPlan(**found) for found in value["partitions"])
    return Plan(value["cluster_id"], value["batches"], value["selection"], partitions)


def make_plan(
    cluster_id: str, batches: int, selection: Selection, counts: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> Plan:
    """From how many records each partition of the archive has, and where each target partition ends."""
    partitions = [
        PartitionPlan(topic, number, selection.target(topic), ends[selection.target(topic), number], count)
        for (topic, number), count in sorted(counts.items())
    ]
    return Plan(cluster_id, batches, json.loads(json.dumps(selection.to_json())), tuple(partitions))


def records_of(batches: Iterable[Batch], topics: Iterable[str]) -> dict[Partition, int]:
    """How many records the manifest has of each partition of these topics."""
    wanted = set(topics)
    counts = dict[Partition, int]()
    for found in ranges_of(batches):
        if found.topic in wanted:
            key = (found.topic, found.partition)
            counts[key] = counts.get(key, 0) + found.records
    return counts


def ranges_of(batches: Iterable[Batch]) -> Iterable[Range]:
    return (found for batch in batches for found in batch.ranges)


def parse_offsets(text: str) -> tuple[Partition, OffsetRange]:
    """TOPIC:PARTITION:FROM:TO, as the command line takes it."""
    topic, *numbers = text.split(":")
    try:
        partition, first, end = map(int, numbers)
    except ValueError as error:
        raise ValueError(f"{text!r} is not TOPIC:PARTITION:FROM:TO") from error
    return (topic, partition), (first, end)
