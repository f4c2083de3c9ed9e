"""The two arguments of every handler beside the request: `Broker`, the live parts, and `Call`, the caller."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.broker.response_memory import ResponseMemory
from barnabas.broker.transactions.connections import SenderConnections

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.cluster.dynamic_config import DynamicConfig
    from barnabas.broker.cluster.registration import Registration
    from barnabas.broker.cluster.token_store import TokenStore
    from barnabas.broker.cluster.topics import Topics
    from barnabas.broker.config.live import BrokerConfig
    from barnabas.broker.config.topic_configs import TopicConfigs
    from barnabas.broker.groups.coordinator import GroupCoordinator
    from barnabas.broker.metadata import ClusterMetadata
    from barnabas.broker.peers.controller_peer import ControllerPeer
    from barnabas.broker.peers.peer import Peers
    from barnabas.broker.replication.alter_partition import AlterPartition
    from barnabas.broker.replication.fetch_sessions import FetchSessions
    from barnabas.broker.replication.fetcher_pool import FetcherPool
    from barnabas.broker.replication.log_dir_moves import Moves
    from barnabas.broker.replication.replicas import Replicas
    from barnabas.broker.transactions.coordinator import TransactionCoordinator
    from barnabas.broker.transactions.producer_ids import ProducerIds
    from barnabas.broker.transactions.verification import Verification
    from barnabas.broker.world import World
    from barnabas.controller.candidate import Candidate
    from barnabas.controller.store.store import MetadataStore

COLD_READS_MAX = 8  # of trio's 40 threads: the others stay free for writes, flushes and the store

ANONYMOUS = "User:ANONYMOUS"  # every caller, clients and brokers, while there is no authentication

# The operations allowed on each resource type without an authorizer, as a bit field of AclOperation codes (KIP-430).
AUTHORIZED_OPERATIONS = {"Cluster": 0b1111110100000, "Group": 0b101001000, "Topic": 0b110111111000}


@dataclass(frozen=True, slots=True)
class Broker:
    """The live parts of one broker, built once in `serve.py`."""

    world: "World"
    config: "BrokerConfig"
    broker_id: int
    cluster_id: str
    store: "MetadataStore"
    metadata: "ClusterMetadata"
    replicas: "Replicas"
    fetchers: "FetcherPool"
    moves: "Moves"
    topics: "Topics"
    topic_configs: "TopicConfigs"
    dynamic_config: "DynamicConfig"
    groups: "GroupCoordinator"
    transactions: "TransactionCoordinator"
    verification: "Verification"
    producer_ids: "ProducerIds"
    alter_partition: "AlterPartition"
    candidate: "Candidate"
    registration: "Registration"
    peers: "Peers"
    controller_peer: "ControllerPeer"
    fetch_sessions: "FetchSessions"
    tokens: "Callable[[], TokenStore]"  # made at the first call, for few brokers have tokens
    marker_senders: SenderConnections = field(default_factory=SenderConnections)
    responses: ResponseMemory = field(default_factory=ResponseMemory)
    # Limits the threads that wait for data outside the page cache.
    cold_reads: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(COLD_READS_MAX))


class Connection(Protocol):
    """The connection of a request (`server.connection.Connection`)."""

    @property
    def number(self) -> int: ...
    def has_hung_up(self) -> bool:
        """Whether the client has closed it."""
        ...


@dataclass(slots=True)
class Call:
    """The caller of one request; made by the connection, or by `dispatch.answer_own` for a request of this broker."""

    api_key: int
    version: int
    client_id: str | None
    principal: str
    client_address: str
    listener: str
    connection: "Connection | None" = None  # None for a request of this broker itself
    security_protocol: str = "PLAINTEXT"  # of the listener
    is_token_authenticated: bool = False  # by a delegation token

    @property
    def connection_number(self) -> int:
        """Rises with each connection that this broker accepts."""
        return 0 if self.connection is None else self.connection.number

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection. A system call."""
        return self.connection is not None and self.connection.has_hung_up()

    def authorize(self, operation: str, resource_type: str, resource_name: str = "") -> bool:
        """Whether this caller may do `operation` on the resource. Handlers call it wherever Kafka authorizes."""
        # Without an authorizer everything is allowed, as in Kafka.
        return True
