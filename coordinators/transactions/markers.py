"""Writes markers into partitions that this broker leads: for WriteTxnMarkers, and for its own coordinator's decisions.

A coordinator whose broker leads the partition, and is its only in-sync replica, needs no request: `WriteAtOnce` appends
the marker in the step that decided (`sender.py`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import ABORT, COMMIT, Batch, build_control_batch
from barnabas.wire.sentinels import ACKS_ALL
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.storage.log import Appended


class Ending(NamedTuple):
    """How a transaction ends."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class TopicTimes(Protocol):
    """What is read of a topic's configuration."""

    @property
    def message_timestamp_type(self) -> str: ...


class MarkedPartition(Protocol):
    """What is needed of a partition on this broker (`replication/partition.py`)."""

    @property
    def config(self) -> TopicTimes: ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def leading_since(self) -> int: ...
    @property
    def in_sync_replicas(self) -> "Collection[int]": ...

    def append_as_leader(self, batch: Batch, origin: Origin, required_acks: int = ...) -> "Appended | ErrorCode": ...
    def outcome(self, end_offset: int, leading_since: int, required_acks: int) -> ErrorCode | None: ...


class MarkedPartitions(Protocol):
    """The partitions with a replica on this broker (`replication/replicas.py`)."""

    def get(self, topic: str, index: int) -> MarkedPartition | ErrorCode: ...


class GroupMarkers(Protocol):
    """What lets committed offsets take effect (`GroupCoordinator`)."""

    def end_transaction(
        self, partition_index: int, marker: Batch, producer_id: int, *, committed: bool
    ) -> tuple[ErrorCode, int]: ...


def append_marker(
    partition: MarkedPartition, groups: GroupMarkers, named: TopicPartition, ending: Ending, now_ms: int
) -> ErrorCode | int:
    """Append the marker to this partition: its end offset, up to which it is to be committed, or an error.

    Errors: UNSUPPORTED_FOR_MESSAGE_FORMAT (`__transaction_state`, where no transaction writes); those of the append.
    """
    # AddPartitionsToTxn of a broker may name this topic. A Java broker that loads the log would
    # take the marker for a state of an id.
    if named.topic == TRANSACTION_TOPIC:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    batch = build_control_batch(
        COMMIT if ending.is_commit else ABORT,
        coordinator_epoch=ending.coordinator_epoch,
        producer_id=ending.producer_id,
        producer_epoch=ending.producer_epoch,
        timestamp_ms=now_ms,
        uses_log_append_time=partition.config.message_timestamp_type == "LogAppendTime",
    )
    if named.topic == GROUP_TOPIC:
        error, last_offset = groups.end_transaction(
            named.partition, batch, ending.producer_id, committed=ending.is_commit
        )
        return error or last_offset + 1

    appended = partition.append_as_leader(batch, Origin.COORDINATOR, ACKS_ALL)
    return appended if isinstance(appended, ErrorCode) else appended.last_offset + 1


class WriteAtOnce:
    """Writes markers of this broker's own decisions, where that takes one step."""

    def __init__(self, partitions: MarkedPartitions, groups: GroupMarkers, now_ms: Callable[[], int]) -> None:
        self._partitions = partitions
        self._groups = groups
        self._now_ms = now_ms

    def __call__(self, named: TopicPartition, ending: Ending) -> bool:
        """Whether the marker is in the partition and committed. If not it is to be sent, as any other.

        It may have been appended then, if a flush is awaited: a second marker ends nothing.
        """
        partition = self._partitions.get(*named)
        # With other replicas the marker is committed later.
        if isinstance(partition, ErrorCode) or not partition.is_leader or len(partition.in_sync_replicas) > 1:
            return False
        end_offset = append_marker(partition, self._groups, named, ending, self._now_ms())
        if isinstance(end_offset, ErrorCode):
            return False
        return partition.outcome(end_offset, partition.leading_since, ACKS_ALL) is ErrorCode.NONE
