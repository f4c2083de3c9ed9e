"""What a fetcher works with: the partition that is followed, the leader that is asked, and the broker around both."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.wire.apis import inter_broker_versions

if TYPE_CHECKING:
    import trio

    from barnabas.broker.logs.partition_logs import Logs
    from barnabas.broker.replication.waiting import Waiter
    from barnabas.broker.world import World
    from barnabas.storage.disk import StorageError
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog
    from barnabas.wire import messages as m
    from barnabas.wire.errors import ErrorCode
    from barnabas.wire.topics import TopicPartition

# A leader that has not heard of its role yet is about to. So the first rest is short, and each one after it, until the
# leader answers, twice as long, up to replica.fetch.backoff.ms; Kafka's are all of that length.
FIRST_REST_SECONDS = 0.05
FETCH_KEY = 1


class FetcherConfig(Protocol):
    """The broker properties that this file and `log_dir_moves.py` read; BrokerConfig."""

    inter_broker_protocol_version: str
    num_replica_alter_log_dirs_threads: int | None
    num_replica_fetchers: int
    replica_fetch_backoff_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_min_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_socket_timeout_ms: int


class Leader(Protocol):
    """A broker that is followed, and asked: RemotePeer."""

    async def ask(self, request: "m.Message", deadline_ms: float, version_max: int | None = None) -> "m.Message": ...

    def close(self) -> None: ...


class OpenPeer(Protocol):
    """Make a peer of the broker with this id; its requests carry the client id."""

    def __call__(self, broker_id: int, client_id: str) -> Leader: ...


class Followable(Protocol):
    """What a fetcher fills: a Partition that follows, or the FutureReplica of one."""

    waiters: "dict[Waiter, None]"
    fetched_by_id: bool

    @property
    def topic_partition(self) -> "TopicPartition": ...
    @property
    def log(self) -> "PartitionLog | None": ...
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...

    def follow_to(self, leader_high_watermark: int) -> None: ...
    def truncated(self) -> None: ...
    def fail_storage(self, error: "StorageError") -> "ErrorCode": ...


class Followed:
    """One partition as its fetcher knows it: under one leader epoch, until it leaves."""

    __slots__ = (
        "cut_ended",
        "failed",
        "is_truncating",
        "key",
        "leader_epoch",
        "next_rest_seconds",
        "partition",
        "rests_until",
    )

    def __init__(self, partition: Followable, *, is_truncating: bool) -> None:
        self.key = partition.topic_partition
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_truncating = is_truncating  # the end of its log is to be compared with the leader's before it fetches
        self.rests_until = -math.inf
        self.next_rest_seconds = FIRST_REST_SECONDS
        self.failed = False
        self.cut_ended: trio.Event | None = None  # a truncation is under way


@dataclass(frozen=True, slots=True)
class FetcherDeps:
    """What every fetcher of a broker works with."""

    broker_id: int
    broker_epoch: Callable[[], int]
    config: FetcherConfig
    world: "World"
    logs: "Logs"
    flusher: "Flusher"
    open_peer: OpenPeer

    @property
    def fetch_version(self) -> int:
        """In which version a leader is asked for records."""
        return inter_broker_versions(self.config.inter_broker_protocol_version)[FETCH_KEY]

    @property
    def fetcher_count(self) -> int:
        """How many fetchers a leader has at most; the property may be anything."""
        return max(self.config.num_replica_fetchers, 1)
