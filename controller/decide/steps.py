"""The parts of a decision (pure): steps.

A *step* is one record (state.py) with the store operations that make it true, and with what brokers are sent when it is
true. The context writes all operations of a decision in one batch, those of each step as one multi fenced by the
controller epoch. It replays the records whose operations succeeded, and sends what belongs to them. A step without
operations concerns only what is in no node.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.controller.image.state import Record
from barnabas.controller.store.store import Op
from barnabas.wire.topics import TopicPartition


class TellLeaderAndIsr(NamedTuple):
    """Send these brokers their role in the partition, and every broker its metadata."""

    topic_partition: TopicPartition
    broker_ids: tuple[int, ...]
    is_new: bool = False


class TellMetadata(NamedTuple):
    """Send every broker the metadata of these partitions."""

    topic_partitions: tuple[TopicPartition, ...]


class TellStop(NamedTuple):
    """Ask the broker to stop its replica and, with `delete`, to delete the log."""

    topic_partition: TopicPartition
    broker_id: int
    delete: bool


Tell = TellLeaderAndIsr | TellMetadata | TellStop


class Step(NamedTuple):
    """A record, the operations that make it true, and what is sent when it is."""

    record: Record
    # The operations are one multi: none of them is carried out if one is refused.
    ops: tuple[Op, ...] = ()
    tells: tuple[Tell, ...] = ()


@dataclass(slots=True)
class Decision:
    """Steps, and before them `prepare`, multis whose refusal is no error: parents to create, children to delete."""

    steps: list[Step] = field(default_factory=list)
    prepare: list[tuple[Op, ...]] = field(default_factory=list)

    def extend(self, other: "Decision") -> None:
        """Append another decision that was made on the same image and concerns other records."""
        self.steps += other.steps
        self.prepare += other.prepare
