"""What the group coordinator needs of the rest of the broker, as narrow protocols (shell).

`broker/world.py`, `broker/replication/partition.py` and the configuration implement them; tests may pass less.
"""

import random
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.disk import InThread, StorageError
    from barnabas.storage.log import Appended, Read
    from barnabas.storage.producers import Origin
    from barnabas.wire.errors import ErrorCode
    from barnabas.wire.records import Batch
    from barnabas.wire.topics import TopicPartition


# Properties and not attributes: an attribute of a protocol must be settable, and its type must be the same. These are
# only read, so a subtype or a read-only attribute is enough.


class GroupConfig(Protocol):
    """Kafka's properties of groups and offsets, under their names in Kafka."""

    @property
    def group_min_session_timeout_ms(self) -> int: ...
    @property
    def group_max_session_timeout_ms(self) -> int: ...
    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...
    @property
    def group_max_size(self) -> int: ...
    @property
    def offset_metadata_max_bytes(self) -> int: ...
    @property
    def offsets_commit_required_acks(self) -> int: ...
    @property
    def offsets_commit_timeout_ms(self) -> int: ...
    @property
    def offsets_load_buffer_size(self) -> int: ...
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...
    @property
    def offsets_retention_minutes(self) -> int: ...
    @property
    def offsets_topic_compression_codec(self) -> int: ...
    @property
    def offsets_topic_num_partitions(self) -> int: ...


class GroupWorld(Protocol):
    """Wall clock, random numbers and threads (`broker.world.World`, which describes the two kinds of threads)."""

    @property
    def rng(self) -> random.Random: ...
    @property
    def in_thread(self) -> "InThread": ...
    @property
    def in_request_thread(self) -> "InThread": ...
    @property
    def now_ms(self) -> "Callable[[], int]": ...


class LogEnds(Protocol):
    """The offsets at which a log starts and ends; the log end offset is that of the next record."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class SizeLimit(Protocol):
    """The topic's limit on the size of a batch."""

    @property
    def max_message_bytes(self) -> int: ...


class OffsetsPartition(Protocol):
    """One partition of `__consumer_offsets` that this broker leads (`broker.replication.partition.Partition`)."""

    @property
    def topic_partition(self) -> "TopicPartition": ...
    @property
    def is_leader(self) -> bool: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log(self) -> LogEnds | None: ...
    @property
    def config(self) -> SizeLimit: ...

    def read(self, offset: int, *, max_bytes: int, end_offset: int, at_least_one: bool) -> "Read | ErrorCode":
        """The batches from `offset` up to `end_offset`; `at_least_one` lets the first exceed `max_bytes`."""
        ...

    def append_as_leader(self, batch: "Batch", origin: "Origin", required_acks: int = -1) -> "Appended | ErrorCode":
        """Append one batch, in one synchronous step. `required_acks` -1 fails below `min.insync.replicas`."""
        # Synchronous, so that no event of the group can come between the append and the replay (`Shards._follow`).
        ...

    async def await_high_watermark(self, end_offset: int, deadline: float) -> "ErrorCode":
        """Wait until everything below `end_offset` is committed: NONE, or an error. `deadline`: trio's clock, s."""
        ...

    def fail_storage(self, error: "StorageError") -> object:
        """Take the partition's log directory offline after a failed read."""
        ...
