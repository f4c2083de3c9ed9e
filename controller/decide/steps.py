"""What decisions are made of: steps, each a record with what must be written for it and what is sent once it is true.

A decision is a list of steps. A *step* is one record (state.py) with the store operations that must succeed before the
record is true, and with what brokers are sent once it is. The context writes all operations of a decision in one
batch, each step's as one multi fenced by the controller epoch, replays the records whose operations succeeded, and
sends what they tell. A step without operations concerns only what the controller alone knows.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.controller.image.state import Record
from barnabas.controller.store.store import Op
from barnabas.wire.topics import TopicPartition


class TellLeaderAndIsr(NamedTuple):
    """These brokers learn the partition's leader, and every broker its metadata."""

    topic_partition: TopicPartition
    broker_ids: tuple[int, ...]
    is_new: bool = False


class TellMetadata(NamedTuple):
    """Every broker learns the metadata of these partitions."""

    topic_partitions: tuple[TopicPartition, ...]


class TellStop(NamedTuple):
    """The broker stops hosting the partition, and deletes its log if asked to."""

    topic_partition: TopicPartition
    broker_id: int
    delete: bool


Tell = TellLeaderAndIsr | TellMetadata | TellStop


class Step(NamedTuple):
    """A record, what must be written for it to be true, and what is sent when it is."""

    record: Record
    ops: tuple[Op, ...] = ()
    tells: tuple[Tell, ...] = ()


@dataclass(slots=True)
class Decision:
    """Steps, and before them `prepare`, multis whose failure is no error: parents to create, children to delete."""

    steps: list[Step] = field(default_factory=list)
    prepare: list[tuple[Op, ...]] = field(default_factory=list)

    def extend(self, other: "Decision") -> None:
        """Append another decision that was made on the same image and concerns other records."""
        self.steps += other.steps
        self.prepare += other.prepare
