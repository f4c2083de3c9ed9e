"""What shards need of the rest of the broker, as narrow protocols.

`world/world.py` and `replication/partition.py` implement them; tests may pass less.
"""

from typing import TYPE_CHECKING, Protocol

from barnabas.world.waiting import Watched

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from barnabas.storage.disk import InThread, StorageError
    from barnabas.storage.log import Appended
    from barnabas.storage.producers import Origin
    from barnabas.storage.segments import Read
    from barnabas.storage.verification import Guard
    from barnabas.wire.errors import ErrorCode
    from barnabas.wire.records import Batch
    from barnabas.wire.topics import TopicPartition


# Properties and not attributes: an attribute of a protocol must be settable, and its type must be the same. These are
# only read, so a subtype or a read-only attribute is enough.


class ShardWorld(Protocol):
    """Threads for the broker's own work (`broker.world.World`)."""

    @property
    def in_thread(self) -> "InThread": ...


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


class ShardPartition(Watched, Protocol):
    """One partition of an internal topic that this broker leads (`broker.replication.partition.Partition`)."""

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

    def append_as_leader(
        self,
        batch: "Batch",
        origin: "Origin",
        required_acks: int = -1,
        *,
        guard: "Guard | None" = None,
        is_verifying: bool = False,
    ) -> "Appended | ErrorCode":
        """Append one batch, in one synchronous step. `required_acks` -1 fails below `min.insync.replicas`.

        With `is_verifying` a batch that begins a transaction needs the `guard` of its verification (KIP-890).
        """
        # This is synchronous, so that no other event can come between the append and the replay
        # (`Runtime.step`).
        ...

    def await_high_watermark(self, end_offset: int, deadline: float) -> "Awaitable[ErrorCode]":
        """Wait until everything below `end_offset` is committed: NONE, or an error. `deadline`: trio's clock, s."""
        ...

    def confirm(self, deadline: float) -> "Awaitable[ErrorCode]":
        """Wait until it is certain that no other broker led before the call: NONE, or an error."""
        ...

    def fail_storage(self, error: "StorageError") -> object:
        """Take the partition's log directory offline after a failed read."""
        ...
