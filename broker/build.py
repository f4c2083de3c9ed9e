"""The live parts of a broker, made in the order in which they need each other."""

from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.call import Broker
from barnabas.broker.cluster.deleted_topics import (
    deleted_partitions,
    existing_topic_ids,
    read_topic_ids,
)
from barnabas.broker.cluster.dynamic_config import BrokerConfigs, DynamicConfig
from barnabas.broker.cluster.registration import Registration
from barnabas.broker.cluster.topics import Topics
from barnabas.broker.interception import Interception
from barnabas.broker.logins import allow_logins, token_store
from barnabas.broker.peers.controller_peer import ControllerPeer
from barnabas.broker.peers.peer import Peers, SelfPeer
from barnabas.broker.server.dispatch import answer_own
from barnabas.broker.tally import Tally
from barnabas.config.live import BrokerConfig
from barnabas.controller.candidate import Candidate
from barnabas.controller.context import ControllerDeps
from barnabas.controller.store.store import MetadataStore
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.transactions.connections import SENDER_CLIENT_ID
from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.coordinators.transactions.markers import WriteAtOnce
from barnabas.coordinators.transactions.producer_ids import ProducerIds
from barnabas.coordinators.transactions.verification import Verification
from barnabas.quotas.quotas import Quotas
from barnabas.replication.alter_partition import AlterPartition
from barnabas.replication.fetch_sessions import FetchSessions
from barnabas.replication.fetcher_pool import FetcherPool
from barnabas.replication.followed_partition import FetcherDeps
from barnabas.replication.local_leader import LocalLeader, Pace
from barnabas.replication.log_dir_moves import MoveDeps, Moves
from barnabas.replication.logs.directory import StoredIdentity
from barnabas.replication.logs.partition_logs import Logs
from barnabas.replication.replicas import Replicas
from barnabas.replication.topic_configs import TopicConfigs
from barnabas.storage.flusher import Flusher
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, PeerLost, error_of
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.world.metadata import ClusterMetadata
from barnabas.world.world import World

if TYPE_CHECKING:
    from barnabas.security.acls.authorization import Authorization
    from barnabas.security.secured import SecuredListeners


class Configs(NamedTuple):
    """What is read from the store before the parts are made."""

    broker: BrokerConfigs
    topics: TopicConfigs
    secured: "SecuredListeners | None"


def build(
    config: BrokerConfig,
    world: World,
    identity: StoredIdentity,
    store: MetadataStore,
    logs: Logs,
    flusher: Flusher,
    configs: Configs,
    interception: Interception | None,
) -> Broker:
    """The broker's live parts, in the order in which they need each other."""
    me = identity.broker_id
    metadata = ClusterMetadata()
    quotas = Quotas(me, config, store)
    tally = Tally()

    # Lambdas close the cycles: they read `broker` and `replicas` when they are called, long after both are made.
    peers = Peers(world, config, metadata, me, SelfPeer(me, config, lambda *asked: answer_own(broker, *asked)))
    alter_partition = AlterPartition(me, config, metadata)
    controller_peer = ControllerPeer(peers, config, metadata, me)

    deps = FetcherDeps(me, lambda: replicas.broker_epoch, config, world, logs, flusher, peers.open, quotas.as_follower)
    fetchers = FetcherPool(deps, metadata)
    moves = Moves(MoveDeps(deps, LocalLeader(lambda: replicas, world, Pace(config))))
    replicas = _replicas(deps, fetchers, moves, metadata, configs.topics, alter_partition, store)

    parts = _coordinators(world, config, store, metadata, peers, controller_peer, replicas)
    registration, candidate = _candidate(store, config, peers, world, replicas)

    broker = Broker(
        world=world,
        config=config,
        broker_id=me,
        cluster_id=identity.cluster_id,
        store=store,
        metadata=metadata,
        replicas=replicas,
        fetchers=fetchers,
        moves=moves,
        topics=Topics(store, config, metadata, world),
        topic_configs=configs.topics,
        dynamic_config=_dynamic_config(store, config, configs, quotas, replicas, candidate, world),
        quotas=quotas,
        tally=tally,
        groups=parts.groups,
        transactions=parts.transactions,
        verification=parts.verification,
        producer_ids=parts.producer_ids,
        alter_partition=alter_partition,
        candidate=candidate,
        registration=registration,
        peers=peers,
        controller_peer=controller_peer,
        fetch_sessions=FetchSessions(world.rng),
        tokens=cache(partial(token_store, store, config, world)),
        secured=configs.secured,
        authorization=_authorization(store, config, world),
        interception=interception,
    )
    allow_logins(broker)
    # Modules below `world` cannot import the histograms, and call these functions.
    flusher.on_synced = tally.flushes.observe
    candidate.tally.on_brokers_changed = tally.broker_changes.observe
    if store.session_tally is not None:
        store.session_tally.on_answered = tally.store_calls.observe
    return broker


def _replicas(
    deps: FetcherDeps,
    fetchers: FetcherPool,
    moves: Moves,
    metadata: ClusterMetadata,
    topic_configs: TopicConfigs,
    watch: AlterPartition,
    store: MetadataStore,
) -> Replicas:
    return Replicas(
        broker_id=deps.broker_id,
        logs=deps.logs,
        flusher=deps.flusher,
        fetchers=fetchers,
        moves=moves,
        metadata=metadata,
        topic_configs=topic_configs,
        now_ms=deps.world.now_ms,
        watch=watch,
        existing_ids=partial(existing_topic_ids, store),
    )


def _dynamic_config(
    store: MetadataStore,
    config: BrokerConfig,
    configs: Configs,
    quotas: Quotas,
    replicas: Replicas,
    candidate: Candidate,
    world: World,
) -> DynamicConfig:
    return DynamicConfig(
        store,
        config=config,
        broker_configs=configs.broker,
        topic_configs=configs.topics,
        quotas=quotas,
        replicas=replicas,
        candidate=candidate,
        now_ms=world.now_ms,
    )


def _authorization(store: MetadataStore, config: BrokerConfig, world: World) -> "Authorization | None":
    if config.authorizer_class_name == "":
        return None
    # The import is here, because few brokers have an authorizer, and start-up must be fast.
    from barnabas.security.acls.authorization import Authorization
    from barnabas.security.acls.authorizer import Authorizer
    from barnabas.security.principals import parse_super_users

    super_users = map(str, parse_super_users(config.super_users))
    authorizer = Authorizer(super_users, allow_everyone=config.allow_everyone_if_no_acl_found)
    return Authorization(store, authorizer, now_ms=world.now_ms, rng=world.rng)


def _candidate(
    store: MetadataStore, config: BrokerConfig, peers: Peers, world: World, replicas: Replicas
) -> tuple[Registration, Candidate]:
    registration = Registration(store, config, replicas, world.now_ms)
    deps = ControllerDeps(store, replicas.broker_id, config, peers.of, world.now_ms, world.rng)
    return registration, Candidate(deps, register=registration.join_again)


class _Coordinators(NamedTuple):
    groups: GroupCoordinator
    producer_ids: ProducerIds
    transactions: TransactionCoordinator
    verification: Verification


def _coordinators(
    world: World,
    config: BrokerConfig,
    store: MetadataStore,
    metadata: ClusterMetadata,
    peers: Peers,
    controller_peer: ControllerPeer,
    replicas: Replicas,
) -> _Coordinators:
    me = replicas.broker_id
    producer_ids = ProducerIds(partial(_allocate_producer_ids, controller_peer, replicas, config))
    open_sender = partial(peers.broker, client_id=SENDER_CLIENT_ID.format(me))
    groups = GroupCoordinator(world, config, metadata, partial(read_topic_ids, store))
    coordinator = TransactionCoordinator(
        world,
        config,
        metadata,
        open_sender,
        producer_ids.next_id,
        partial(deleted_partitions, store),
        WriteAtOnce(replicas, groups, world.now_ms),
    )
    # The versions are negotiated, as in Kafka: an older coordinator does not know the request.
    open_verifier = partial(peers.broker, client_id=f"broker-{me}-txn-verifier", negotiates=True)
    asks = Verification(
        coordinator.placement.coordinator_of,
        open_verifier,
        lambda: config.request_timeout_ms,
        me,
        coordinator.verify_now,
    )
    # `Replicas` notifies a coordinator when this broker becomes or stops being the leader of one of its partitions.
    replicas.coordinators.update({GROUP_TOPIC: groups.runtime, TRANSACTION_TOPIC: coordinator.runtime})
    return _Coordinators(groups, producer_ids, coordinator, asks)


async def _allocate_producer_ids(
    controller: ControllerPeer, replicas: Replicas, config: BrokerConfig
) -> tuple[int, int] | ErrorCode:
    """Ask the controller for a block of producer ids: (first id, count), or an error code (KIP-730)."""
    request = m.AllocateProducerIdsRequest(broker_id=replicas.broker_id, broker_epoch=replicas.broker_epoch)
    try:
        response = await controller.ask(request, config.request_timeout_ms)
    except PeerLost:
        return ErrorCode.REQUEST_TIMED_OUT
    if not isinstance(response, m.AllocateProducerIdsResponse):
        raise InvariantBroken(f"{response!r} answers AllocateProducerIds")
    if response.error_code:
        return error_of(response.error_code)
    return response.producer_id_start, response.producer_id_len
