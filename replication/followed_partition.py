"""The interfaces and data that a `Fetcher` works with: its partitions, its leader and its dependencies."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.replication.follower_state import EPOCH_IN_FETCH_VERSION, Position
from barnabas.wire import messages as m
from barnabas.wire.apis import inter_broker_versions
from barnabas.wire.topics import ZERO_TOPIC_ID

if TYPE_CHECKING:
    import trio

    from barnabas.config.live import TopicConfig
    from barnabas.replication.logs.partition_logs import Logs
    from barnabas.storage.disk import StorageError
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog
    from barnabas.wire.errors import ErrorCode
    from barnabas.wire.topics import TopicPartition
    from barnabas.world.tally import TopicTally
    from barnabas.world.waiting import Waiter
    from barnabas.world.world import World

# After a leader election a follower often asks before the new leader has got its LeaderAndIsr,
# which then arrives soon. So the first delay is short, and each further one is twice as long, up to
# replica.fetch.backoff.ms, until a Fetch succeeds. In Kafka every delay has that length.
FIRST_DELAY_SECONDS = 0.05
FETCH_KEY = 1  # the API key of Fetch


class FetcherConfig(Protocol):
    """The broker properties that fetchers and `log_dir_moves.py` read. Implemented by BrokerConfig."""

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
    """The broker that a fetcher asks. Implemented by RemotePeer and LocalLeader."""

    async def ask(
        self,
        request: m.Message,
        deadline_ms: float,
        version_max: int | None = None,
        *,
        body: bytes | None = None,
        scope: "trio.CancelScope | None" = None,
    ) -> m.Message:
        """As `RemotePeer.ask`."""
        ...

    def close(self) -> None:
        """As `Peer.close`."""


class OpenPeer(Protocol):
    """What sends requests to the broker with this id. Its requests carry the client id."""

    def __call__(self, broker_id: int, client_id: str) -> Leader: ...


class Throttle(Protocol):
    """The rate of this broker's throttled replicas (KIP-73). Implemented by ReplicationThrottle."""

    def covers(self, config: "TopicConfig", partition: int) -> bool: ...
    def note(self, size_bytes: int) -> None: ...
    def throttle_seconds(self) -> float: ...


class Followable(Protocol):
    """A replica that a fetcher appends to. Implemented by Partition and FutureReplica."""

    waiters: "dict[Waiter, None]"
    fetched_by_id: bool

    @property
    def topic_partition(self) -> "TopicPartition": ...
    @property
    def config(self) -> "TopicConfig": ...
    @property
    def log(self) -> "PartitionLog | None": ...
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def tally(self) -> "TopicTally": ...

    def follow_to(self, leader_high_watermark: int) -> None: ...
    def truncated(self) -> None: ...
    def fail_storage(self, error: "StorageError") -> "ErrorCode": ...


class Followed:
    """The state of one partition in its fetcher, for one leader epoch. Replaced when the partition gets a new role."""

    __slots__ = (
        "cut_ended",
        "delayed_until",
        "failed",
        "is_in_sync",
        "is_truncating",
        "key",
        "lag",
        "leader_epoch",
        "next_delay_seconds",
        "partition",
    )

    def __init__(self, partition: Followable, *, is_truncating: bool) -> None:
        self.key = partition.topic_partition
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_truncating = is_truncating  # the log's end must be compared with the leader's before the first Fetch
        # Whether the last response reached the leader's high watermark; False before any in this leader epoch.
        self.is_in_sync = False
        self.lag = 0  # records that were missing up to the leader's high watermark, at the last response
        self.delayed_until = -math.inf  # trio's clock
        self.next_delay_seconds = FIRST_DELAY_SECONDS
        self.failed = False  # not fetched until the next role
        self.cut_ended: trio.Event | None = None  # set when the running truncation ends; None while there is none

    def back_off(self, seconds_max: float, now: float) -> None:
        """Delay the next Fetch, from `now` on, twice as long as the last time, until one succeeds."""
        seconds = min(self.next_delay_seconds, seconds_max)
        self.next_delay_seconds = 2 * seconds
        self.delayed_until = now + seconds

    def has_fetched(self, log_end_offset: int, high_watermark: int) -> None:
        """A response was appended: the log ends here now, and the leader's high watermark is this."""
        self.next_delay_seconds = FIRST_DELAY_SECONDS
        self.is_in_sync = high_watermark <= log_end_offset
        self.lag = max(0, high_watermark - log_end_offset)

    def is_covered_by(self, throttle: Throttle) -> bool:
        """Whether this replica is throttled."""
        return throttle.covers(self.partition.config, self.key.partition)


def held_back(throttle: Throttle | None, followed: Iterable[Followed], now: float) -> Iterator[Followed]:
    """The throttled replicas that are delayed now, out of sync, because more was received than the rate allows."""
    seconds = 0.0 if throttle is None else throttle.throttle_seconds()
    # Throttling is rare, so usually no replica is looked at.
    if throttle is None or not seconds:
        return
    for each in followed:
        if not each.is_in_sync and each.is_covered_by(throttle):
            each.delayed_until = max(each.delayed_until, now + seconds)
            yield each


def position_of(followed: Followed, log: "PartitionLog", fetch_version: int) -> Position:
    """The position from which to fetch the partition with this log."""
    # The leader compares nothing with epoch -1, and need not: the fetcher has truncated the log before its first Fetch,
    # or the log is empty.
    epoch = log.epochs.latest_epoch if fetch_version >= EPOCH_IN_FETCH_VERSION else None
    return Position(
        (log.topic_id if followed.partition.fetched_by_id else None) or ZERO_TOPIC_ID,
        followed.leader_epoch,
        log.log_end_offset,
        -1 if epoch is None else epoch,
        log.log_start_offset,
    )


@dataclass(frozen=True, slots=True)
class FetcherDeps:
    """The dependencies of every fetcher of a broker."""

    broker_id: int
    broker_epoch: Callable[[], int]
    config: FetcherConfig
    world: "World"
    logs: "Logs"
    flusher: "Flusher"
    open_peer: OpenPeer
    throttle: Throttle | None = None  # None for moves between log directories: `LocalLeader` paces them

    @property
    def fetch_version(self) -> int:
        """The Fetch version for the configured inter.broker.protocol.version."""
        # Brokers do not negotiate this version, as in Kafka: all of them know the configured level.
        return inter_broker_versions(self.config.inter_broker_protocol_version)[FETCH_KEY]

    @property
    def fetcher_count(self) -> int:
        """The largest number of fetchers for one leader."""
        # The property may be 0 or negative.
        return max(self.config.num_replica_fetchers, 1)
