"""What the group coordinator needs of the rest of the broker, as narrow protocols (shell).

`world/world.py` and the configuration implement them; tests may pass less. The partition is in `shards/ports.py`.
"""

import random
from typing import TYPE_CHECKING, Protocol

from barnabas.coordinators.runtime.ports import ShardWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.disk import InThread


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
    def group_members_max_bytes(self) -> int: ...
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


class GroupWorld(ShardWorld, Protocol):
    """Wall clock, random numbers and threads (`broker.world.World`, which describes the two kinds of threads)."""

    @property
    def rng(self) -> random.Random: ...
    @property
    def in_request_thread(self) -> "InThread": ...
    @property
    def now_ms(self) -> "Callable[[], int]": ...
    @property
    def memory_bytes(self) -> int: ...
