"""The two arguments of every handler beside the request: `Broker`, the live parts, and `Call`, the caller.

Authorization: handlers ask `Call.authorize` wherever Kafka asks its authorizer. Without an authorizer, and for a call
of this broker to itself, `Call.authorizer` is None and everything is allowed. No client can make such a call.
"""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.coordinators.transactions.connections import COMMITTERS_MAX, SenderConnections
from barnabas.security.acls.acls import CLUSTER_NAME, NUMBERS_OF_OPERATIONS, OPERATIONS_OF, address_text
from barnabas.wire.apis import APIS
from barnabas.world.connection_order import LatestConnections
from barnabas.world.turns import LargeTurns

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.cluster.dynamic_config import DynamicConfig
    from barnabas.broker.cluster.registration import Registration
    from barnabas.broker.cluster.token_store import TokenStore
    from barnabas.broker.cluster.topics import Topics
    from barnabas.broker.interception import Interception, Seen
    from barnabas.broker.peers.controller_peer import ControllerPeer
    from barnabas.broker.peers.peer import Peers
    from barnabas.broker.tally import ApiTally, Tally
    from barnabas.config.live import BrokerConfig
    from barnabas.controller.candidate import Candidate
    from barnabas.controller.store.store import MetadataStore
    from barnabas.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.coordinators.transactions.producer_ids import ProducerIds
    from barnabas.coordinators.transactions.state import Producer
    from barnabas.coordinators.transactions.verification import Verification
    from barnabas.quotas.quotas import Quotas
    from barnabas.replication.alter_partition import AlterPartition
    from barnabas.replication.fetch_sessions import FetchSessions
    from barnabas.replication.fetcher_pool import FetcherPool
    from barnabas.replication.log_dir_moves import Moves
    from barnabas.replication.replicas import Replicas
    from barnabas.replication.topic_configs import TopicConfigs
    from barnabas.security.acls.authorization import Authorization
    from barnabas.security.acls.authorizer import Authorizer
    from barnabas.security.secured import SecuredListeners
    from barnabas.world.metadata import ClusterMetadata
    from barnabas.world.time_spent import TimeSpent
    from barnabas.world.world import World

COLD_READS_MAX = 8  # of trio's 40 threads: the others stay free for writes, flushes and the store

ANONYMOUS = "User:ANONYMOUS"  # every caller on a listener without authentication, clients and brokers

# The operations allowed on each resource type without an authorizer, as a bit field of AclOperation codes (KIP-430).
AUTHORIZED_OPERATIONS = {
    resource_type: sum(1 << NUMBERS_OF_OPERATIONS[operation] for operation in operations)
    for resource_type, operations in OPERATIONS_OF.items()
}

# Kafka's name of the audit log. Refusals are logged at INFO and permissions at DEBUG; checks that only filter what an
# answer lists are not logged.
audit = logging.getLogger("kafka.authorizer.logger")


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
    quotas: "Quotas"
    tally: "Tally"
    secured: "SecuredListeners | None" = None  # None if every listener is of PLAINTEXT
    authorization: "Authorization | None" = None  # None without `authorizer.class.name`
    interception: "Interception | None" = None  # None outside tests
    marker_senders: SenderConnections = field(default_factory=SenderConnections)
    # The latest connection of each producer that sends TxnOffsetCommit.
    committers: "LatestConnections[Producer]" = field(default_factory=lambda: LatestConnections(COMMITTERS_MAX))
    turns: LargeTurns = field(default_factory=LargeTurns)
    # Limits the threads that wait for data outside the page cache.
    cold_reads: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(COLD_READS_MAX))


class Connection(Protocol):
    """The connection of a request (`server.connections.Connection`)."""

    muted_until: float
    software: tuple[str, str] | None

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
    authorizer: "Authorizer | None" = None  # None: everything is allowed
    tally: "ApiTally | None" = None  # None for a request of this broker itself
    began: float = 0.0  # when the connection had the whole request (the pace's clock, s)
    spent: "TimeSpent | None" = None  # None while no quota of request time is set
    audited: set[tuple[str, str]] | None = None  # operations and resources of which the audit log has a line
    seen: "Seen | None" = None  # None outside tests
    begun: object = None  # what the step that read the request has done, for its handler (`now/`); None: nothing
    is_control: bool | None = None  # whether a controller may have sent it; None until that is asked

    @property
    def connection_number(self) -> int:
        """Rises with each connection that this broker accepts."""
        return 0 if self.connection is None else self.connection.number

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection. A system call."""
        return self.connection is not None and self.connection.has_hung_up()

    def authorize(
        self, operation: str, resource_type: str, resource_name: str = "", *, is_filter: bool = False
    ) -> bool:
        """Whether this caller may do `operation` on the resource; the cluster needs no name.

        `is_filter` if the answer leaves out what is not allowed, without an error.
        """
        if self.authorizer is None:
            return True
        name = CLUSTER_NAME if resource_type == "Cluster" else resource_name
        host = address_text(self.client_address)
        allowed = self.authorizer.authorize(self.principal, host, operation, resource_type, name)
        if not is_filter and audit.isEnabledFor(logging.DEBUG if allowed else logging.INFO):
            self._log(operation, f"{resource_type}:LITERAL:{name}", allowed=allowed)
        return allowed

    @property
    def quota_user(self) -> tuple[str, str]:
        """The user and the client id whose quotas hold for this call."""
        return self.principal.partition(":")[2], self.client_id or ""

    def throttle(self, throttled_ms: int) -> None:
        """Let the connection read no further request for this time, once the response is sent (KIP-219)."""
        if self.connection is not None and throttled_ms > 0:
            muted_until = trio.current_time() + throttled_ms / 1000
            self.connection.muted_until = max(self.connection.muted_until, muted_until)

    def may_any(self, operation: str, resource_type: str) -> bool:
        """Whether there may be a resource of this type on which the caller may do `operation`."""
        if self.authorizer is None:
            return True
        return self.authorizer.authorize_any(
            self.principal, address_text(self.client_address), operation, resource_type
        )

    def allowed_operations(self, resource_type: str, resource_name: str = "") -> int:
        """What the caller may do on a resource, as a bit field of AclOperation codes (KIP-430)."""
        if self.authorizer is None:
            return AUTHORIZED_OPERATIONS[resource_type]
        name = CLUSTER_NAME if resource_type == "Cluster" else resource_name
        host = address_text(self.client_address)
        return self.authorizer.allowed_operations(self.principal, host, resource_type, name)

    @property
    def rights(self) -> tuple[str, str, int] | None:
        """What an answer depends on beside the request, if it shows what the caller may see; None: on nothing."""
        if self.authorizer is None:
            return None
        return self.principal, address_text(self.client_address), self.authorizer.changes

    def _log(self, operation: str, resource: str, *, allowed: bool) -> None:
        # Each operation on a resource is logged once for a request, as in Kafka: a request can repeat it
        # with four bytes (a partition), which take far less time than a line.
        if self.audited is None:
            self.audited = set()
        if (operation, resource) in self.audited:
            return
        self.audited.add((operation, resource))

        # Clients choose these texts, so they are escaped: a name with a line break must not forge a line.
        audit.log(
            logging.DEBUG if allowed else logging.INFO,
            "Principal = %s is %s Operation = %s from host = %s on resource = %s for request = %s",
            _printable(self.principal),
            "Allowed" if allowed else "Denied",
            operation,
            address_text(self.client_address),
            _printable(resource),
            APIS[self.api_key].name,
        )


def _printable(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
