"""One partition of an internal topic that this broker leads, and the state that its log says."""

from typing import Generic, NamedTuple, TypeVar

from barnabas.coordinators.runtime.ports import ShardPartition
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET

State = TypeVar("State")

# The error of a failed append -> the error for clients. They did not name the partition of the
# internal topic, so the append's own codes would mislead them. On the errors here they look up the
# coordinator again and retry.
NOT_STORED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


class Shard(Generic[State]):
    """A partition with its state, from one election to its end. Compared by identity."""

    __slots__ = ("index", "is_again", "log", "partition", "refusal", "state")

    def __init__(self, index: int, partition: ShardPartition, state: State, *, is_again: bool = False) -> None:
        self.index = index
        self.partition = partition
        # The log when the shard was made. The partition gets another one when it moves to another directory.
        self.log = partition.log
        self.state = state
        # Whether this process had a shard of the partition before. A request for that one may arrive only now, and its
        # client may have gone on at another coordinator.
        self.is_again = is_again
        self.refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # the error for all requests; NONE while it serves them

    @property
    def has_failed(self) -> bool:
        """Whether its log could not be loaded."""
        return self.refusal is ErrorCode.COORDINATOR_NOT_AVAILABLE

    def is_committed(self, offset: int) -> bool:
        """Whether the high watermark has passed the record at `offset`; True for NO_OFFSET."""
        return self.partition.high_watermark > offset


class Stored(NamedTuple):
    """The outcome of an append: its error, or the offset of the last record (NO_OFFSET where nothing was appended)."""

    error_code: ErrorCode
    last_offset: int = NO_OFFSET
