"""What the group coordinator needs of the rest of the broker, as narrow protocols.

`broker/world.py`, `broker/replication/partition.py` and the configuration satisfy them; a test may hand in less.
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


class GroupConfig(Protocol):
    """Kafka's properties of groups and offsets; read at each use, so that a change acts at once."""

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
    """Wall clock, chance and threads (`broker.world.World`)."""

    @property
    def rng(self) -> random.Random: ...
    @property
    def in_thread(self) -> "InThread": ...
    @property
    def in_request_thread(self) -> "InThread": ...
    @property
    def now_ms(self) -> "Callable[[], int]": ...


class LogEnds(Protocol):
    """Where a log starts and ends."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...


class SizeLimit(Protocol):
    """The topic's limit on a batch."""

    @property
    def max_message_bytes(self) -> int: ...


class OffsetsPartition(Protocol):
    """One partition of `__consumer_offsets` that this broker leads (`broker.partition.Partition`)."""

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
        """Records from `offset` on, never past `end_offset`."""
        ...

    def append_as_leader(self, batch: "Batch", origin: "Origin", required_acks: int = -1) -> "Appended | ErrorCode":
        """Append one batch, in one synchronous step."""
        ...

    async def await_high_watermark(self, end_offset: int, deadline: float) -> "ErrorCode":
        """NONE once everything below `end_offset` is committed."""
        ...

    def fail_storage(self, error: "StorageError") -> object:
        """A read failed: the directory goes offline."""
        ...
