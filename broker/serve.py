"""The life of a broker: `serve` starts its parts in order, runs them until `stop` is set, and stops them in reverse.

Start: lock the directories, open the store, settle the identity, load the logs, bind the addresses, start the
background tasks, register, accept connections, wait for the metadata from the controller, report ready. Stop: hand over
leadership, accept no more connections, give requests STOP_SECONDS, end the background tasks, close the store, close the
logs. The nested `async with` blocks of `_serve` give this order.

This is the one file that opens nurseries for the whole broker. A failure of any part ends all parts; `serve` raises the
first cause, not an ExceptionGroup.
"""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext
from functools import partial
from typing import NamedTuple, Protocol

import trio

from barnabas import __version__
from barnabas.broker.build import Configs, build
from barnabas.broker.call import Broker
from barnabas.broker.cluster.boot_mark import KeptData
from barnabas.broker.cluster.controlled_shutdown import controlled_shutdown
from barnabas.broker.cluster.deleted_topics import (
    forget_deleted_topics,
    read_topic_ids,
)
from barnabas.broker.cluster.dynamic_config import BrokerConfigs
from barnabas.broker.cluster.identity import IdentityConflict, settle_identity
from barnabas.broker.interception import Interception
from barnabas.broker.life import BrokerState, Life
from barnabas.broker.logins import secured_listeners, token_secret
from barnabas.broker.server.connection import serve_connection
from barnabas.broker.server.connections import Connections
from barnabas.broker.tally import Tally
from barnabas.config.listeners import Endpoint
from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError
from barnabas.controller.admin.registration import CannotRegister
from barnabas.controller.image.loading import partition_count
from barnabas.controller.store import paths
from barnabas.controller.store.following import EXPIRY_MS, in_a_session
from barnabas.controller.store.store import MetadataStore, StoreError
from barnabas.replication.alter_partition import Ask
from barnabas.replication.alter_partition_zk import ALTER_PARTITION_LEVEL, AlterPartitionZk
from barnabas.replication.logs.directory import EMBEDDED_STORE_FILE, LogDirectoryRefused, StoredIdentity
from barnabas.replication.logs.partition_logs import AllDirectoriesOffline, Logs
from barnabas.replication.topic_configs import TopicConfigs
from barnabas.security.passwords import StoredPasswords
from barnabas.storage.disk import StorageError, join
from barnabas.storage.flusher import Flusher
from barnabas.wire.apis import metadata_version_is_at_least
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.world.containment import kept_up
from barnabas.world.net import Listener, machine_host_name, resolves
from barnabas.world.pacing import pace_of_run
from barnabas.world.watchdog import Watchdog
from barnabas.world.world import World

logger = logging.getLogger(__name__)

STOP_SECONDS = 5.0
REPORT_RETRY_SECONDS = 10.0
SHORTAGE_REPORT_SECONDS = 10.0
# How long the topics may take after the UpdateMetadata with the live brokers: the controller may have
# 10,000 partitions to send.
METADATA_WAIT_SECONDS = 10.0
SETTLE_SECONDS = 3.0  # then the broker reports ready even without the metadata; Metadata requests still wait

# The exceptions of `serve` whose cause lies outside the program, beside OSError.
MISCONFIGURED = (ConfigError, IdentityConflict)
UNFIT_ENVIRONMENT = (LogDirectoryRefused, AllDirectoriesOffline, CannotRegister, StorageError, StoreError)


class TaskStatus(Protocol):
    """`started` is called once, when the broker serves."""

    def started(self, value: "Serving") -> None: ...


class Serving(NamedTuple):
    """The facts about a broker that serves."""

    ready_line: str
    load: Callable[[], int]  # connections, members, partitions here, in fetch sessions, metadata and the controller
    held_bytes: Callable[[], int]  # by the requests and responses of clients
    broker_id: int
    advertised: tuple[Endpoint, ...]


class _Callers(NamedTuple):
    """What the caller of `serve` wants to hear."""

    on_built: Callable[[Broker], None]
    interception: Interception | None
    life: Life


async def serve(
    config: BrokerConfig,
    *,
    world: World,
    stop: trio.Event,
    task_status: TaskStatus,
    on_built: Callable[[Broker], None] = lambda broker: None,
    interception: Interception | None = None,
    life: Life | None = None,
) -> None:
    """Run one broker until `stop` is set, or a part of it fails for good.

    `on_built` gets the live parts when they are made, before any of them runs. `interception`, in tests, is asked about
    each request of a client. `life` is kept up to date.

    Raises what prevented the start or ended the broker: MISCONFIGURED, UNFIT_ENVIRONMENT, OSError; anything else is a
    bug.
    """
    life = life or Life()
    life.state = BrokerState.STARTING
    try:
        await _serve(config, world, stop, task_status, _Callers(on_built, interception, life))
    # The caller's cancellation must reach Trio.
    except* trio.Cancelled:
        raise
    except* Exception as failures:
        raise _first_cause(failures) from None
    finally:
        life.state = BrokerState.NOT_RUNNING


def _first_cause(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception in nested groups: one message for the operator."""
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


async def _serve(
    config: BrokerConfig, world: World, stop: trio.Event, task_status: TaskStatus, callers: "_Callers"
) -> None:
    flusher = Flusher(world.in_thread)
    logs = Logs(config, world, flusher)
    stored = await logs.open()
    kept = KeptData(world, logs.directories)

    # The logs are closed after the store: they hold the locks of the directories, one of which has the embedded store.
    async with _closing_logs(logs), _open_store(config, world) as store:
        # This precedes the opening of logs: recovery changes the directories, and removes the clean shutdown markers.
        await kept.look()
        identity = await settle_identity(store, config, world.rng, stored)
        configs = await _configured(config, world, store, identity.broker_id)
        callers.life.state = BrokerState.RECOVERY
        callers.life.loading = logs.loading
        await _load_logs(logs, identity, store, configs.broker, configs.topics)
        broker = build(config, world, identity, store, logs, flusher, configs, callers.interception)
        await _expect_partitions(broker)
        callers.life.broker = broker
        callers.on_built(broker)

        # The addresses are bound before the registration: so a taken port fails the start, and port 0 can be
        # advertised. Connections of clients wait in the backlog until the broker accepts.
        async with _listening(config, world) as listeners, _background(broker) as background:
            advertised = await _advertised(config, listeners)
            await _start_parts(broker, background, logs, flusher)
            await _start_settings(broker, background, listeners)

            # This precedes serving: without a broker epoch of its own, this broker would accept requests that
            # the controller still sends to its previous life.
            await broker.registration.join(advertised, kept)
            _start_watching(broker, background)
            await _serve_connections(broker, listeners, advertised, stop, task_status, callers.life)

            # The background ends last: requests that are answered during the stop need the flusher,
            # the coordinator and the others.
            background.cancel_scope.cancel()


async def _configured(config: BrokerConfig, world: World, store: MetadataStore, broker_id: int) -> Configs:
    """The configuration with what the store has of it."""
    ours = BrokerConfigs(store, config, broker_id, StoredPasswords(config, world))
    await ours.start()
    for warning in ours.warnings():
        logger.warning("%s", warning)

    # This precedes the loading of logs, which may take long: an operator has to correct what is wrong here.
    secured = await secured_listeners(config, world)
    return Configs(ours, TopicConfigs(config, store), secured)


async def _expect_partitions(broker: Broker) -> None:
    """Have both coordinators know how many partitions their topics have."""
    # The counts are read from the store, because metadata arrives in pieces, and the partition of a group depends on
    # the count of all of them. The session may be a new one, if loading the logs outlasted the old one.
    for topic, placement in (
        (GROUP_TOPIC, broker.groups.placement),
        (TRANSACTION_TOPIC, broker.transactions.placement),
    ):
        placement.expect_partitions(await in_a_session(broker.store, partial(partition_count, broker.store, topic)))


async def _start_parts(broker: Broker, background: trio.Nursery, logs: Logs, flusher: Flusher) -> None:
    """Start what the roles need that the controller will give to this broker."""
    # `start` returns when its task is ready: the first LeaderAndIsr needs the nurseries and callbacks of these tasks.
    # A bug may leave their state half changed, so their failure ends the broker.
    await background.start(flusher.run, broker.replicas.flushed, logs.fail_directory_of)
    lost = partial(_directory_failed, broker, background)
    await background.start(logs.run, broker.replicas.high_watermarks, lost)
    await background.start(broker.fetchers.run)
    await background.start(broker.moves.run)
    await background.start(broker.groups.run)
    await background.start(broker.transactions.run)
    await background.start(broker.verification.run)

    # Tasks in `kept_up` lose nothing when they begin again after the exception of a bug.
    background.start_soon(kept_up, logger, "the requests to the controller", broker.controller_peer.run)
    background.start_soon(kept_up, logger, "the allocation of producer ids", broker.producer_ids.run)
    background.start_soon(kept_up, logger, "the check of fetch sessions", broker.fetch_sessions.run)
    _change_isrs(broker, background)


async def _start_settings(broker: Broker, background: trio.Nursery, listeners: dict[str, Listener]) -> None:
    """Start what follows the store: ACLs, quotas, users, properties, delegation tokens."""
    if broker.authorization is not None:
        await background.start(broker.authorization.run)
    await broker.quotas.load()
    if broker.secured is not None:
        await broker.secured.load_users(broker.store)
        await broker.secured.fetch_keys()
        background.start_soon(kept_up, logger, "the listeners with TLS and SASL", broker.secured.run)

    # `start` returns when all noted changes are applied: a broker must not serve with an outdated configuration.
    await background.start(broker.dynamic_config.run, partial(_update_advertised, broker, listeners))
    if token_secret(broker.config) is not None:
        await background.start(broker.tokens().run)
        background.start_soon(kept_up, logger, "the sweep of delegation tokens", broker.tokens().sweep)


def _start_watching(broker: Broker, background: trio.Nursery) -> None:
    """Start what follows the cluster, now that this broker is registered."""
    # From now on the candidate opens new sessions, and registers in them.
    background.start_soon(broker.candidate.run)
    background.start_soon(kept_up, logger, "the metadata cache", partial(_await_metadata, broker))
    forget_deleted = partial(forget_deleted_topics, broker.store, broker.metadata, broker.replicas)
    background.start_soon(kept_up, logger, "the search for deleted topics", forget_deleted)
    background.start_soon(kept_up, logger, "the report of shortages", partial(_report_shortages, broker))


async def _load_logs(
    logs: Logs, identity: StoredIdentity, store: MetadataStore, broker: BrokerConfigs, topics: TopicConfigs
) -> None:
    """Open all logs, each with the configuration of its topic. Errors as `Logs.load`."""
    # `TopicConfigs` has only weak references to its views: `views` keeps them alive until the logs hold them.
    views = await topics.load_all()
    began = trio.current_time()
    await logs.load(identity, topics.get, partial(read_topic_ids, store))
    del views
    # Notifications of changes during a long load may have expired, so the configurations are read again.
    if trio.current_time() - began > EXPIRY_MS / 1000 / 2:
        await in_a_session(store, broker.load)
        await topics.load({log.topic_partition.topic: None for log in logs})


def _change_isrs(broker: Broker, background: trio.Nursery) -> None:
    """Start the tasks with which leaders change their ISRs."""
    changes = broker.alter_partition
    ask: Ask = broker.controller_peer.ask
    # AlterPartition is not there before 2.7 (KIP-497): the leader writes the ISR into the store
    # itself.
    if not metadata_version_is_at_least(broker.config.inter_broker_protocol_version, ALTER_PARTITION_LEVEL):
        writer = AlterPartitionZk(broker.store, broker.replicas)
        background.start_soon(kept_up, logger, "the announcement of written ISRs", writer.run)
        ask = writer.ask
    run = partial(changes.run, ask, lambda: broker.replicas.broker_epoch)
    background.start_soon(kept_up, logger, "the changes of ISRs", run)
    background.start_soon(kept_up, logger, "the check of followers", partial(changes.watch, broker.replicas))


@contextmanager
def _watched(tally: Tally) -> Iterator[None]:
    """Within this block, time the steps of the event loop; at the end, log the longest one."""
    watchdog = tally.watchdog = Watchdog(pace_of_run())
    trio.lowlevel.add_instrument(watchdog)
    try:
        yield
    finally:
        trio.lowlevel.remove_instrument(watchdog)
        logger.info("longest step %.1f ms, %d steps above 2 ms", watchdog.longest_seconds * 1000, watchdog.long_steps)


@asynccontextmanager
async def _background(broker: Broker) -> AsyncIterator[trio.Nursery]:
    """The nursery of all tasks beside the connections."""
    # The peers are closed after the tasks have ended: fetchers and the controller use their connections.
    with closing(broker.peers):
        async with trio.open_nursery() as background:
            yield background


# -- start


@asynccontextmanager
async def _closing_logs(logs: Logs) -> AsyncIterator[None]:
    """Close the logs at the end, after a stop or a failure from outside (a port is taken, the store is gone).

    Closed logs need no recovery at the next start.
    """
    try:
        yield
    except BaseException as failure:
        # After a bug the state of the logs is unknown, and a cancelled broker has no time to flush them. They are left
        # as after a crash, so the next start checks them.
        if not _is_from_outside(failure):
            logs.abandon()
            raise
        await _close(logs)
        raise
    await _close(logs)


async def _close(logs: Logs) -> None:
    with trio.CancelScope(shield=True):
        await logs.close()


def _is_from_outside(failure: BaseException) -> bool:
    # One bug among the failures is enough to distrust the logs.
    if isinstance(failure, BaseExceptionGroup):
        return all(map(_is_from_outside, failure.exceptions))
    return isinstance(failure, (*MISCONFIGURED, *UNFIT_ENVIRONMENT, OSError))


@asynccontextmanager
async def _open_store(config: BrokerConfig, world: World) -> AsyncIterator[MetadataStore]:
    store = await world.open_store(config, join(config.log_directories[0], EMBEDDED_STORE_FILE))
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            try:
                await store.close()
            # Raised from here, it would hide why the broker ends. The next start waits until the old session expires.
            except StoreError as error:
                logger.warning("the session with the metadata store could not be ended: %s", error)


@asynccontextmanager
async def _listening(config: BrokerConfig, world: World) -> AsyncIterator[dict[str, Listener]]:
    """Within this block, listen on every configured address: listener name -> listener, in the order of `listeners`."""
    bound: dict[str, Listener] = {}
    try:
        for endpoint in config.listener_endpoints:
            try:
                bound[endpoint.listener] = await world.net.listen(
                    "" if endpoint.is_wildcard else endpoint.host,
                    endpoint.port,
                    backlog=config.socket_listen_backlog_size,
                )
            except OSError as error:
                raise OSError(error.errno, f"cannot listen on {endpoint}: {error.strerror or error}") from error
        yield bound
    finally:
        for listener in bound.values():
            listener.close()


async def _advertised(config: BrokerConfig, listeners: dict[str, Listener]) -> tuple[Endpoint, ...]:
    """The addresses for clients: `advertised.listeners` or `listeners`. Port 0 becomes the bound port, as in Kafka.

    ConfigError when a wildcard address would be advertised under a host name that has no address.
    """
    advertised = []
    for endpoint in config.advertised_endpoints or config.listener_endpoints:
        host = endpoint.host

        # As in Kafka, a wildcard is advertised as the machine's host name.
        if endpoint.is_wildcard:
            host = machine_host_name()
            if not await resolves(host):
                raise ConfigError(
                    [
                        f"listener {endpoint} is bound to every address, and this machine's name {host!r} has no"
                        " address to advertise: set advertised.listeners"
                    ]
                )
        port = endpoint.port or listeners[endpoint.listener].port
        advertised.append(endpoint._replace(host=host, port=port))

    return tuple(advertised)


async def _await_metadata(broker: Broker) -> None:
    """Set `metadata.is_complete` once the cache has this broker and every topic of the store."""
    metadata = broker.metadata
    topics = set[str]()
    # The controller sends the live brokers first, then the topics.
    while broker.broker_id not in metadata.brokers:
        await metadata.changed()
    try:
        topics.update(await broker.store.children(paths.TOPICS))
        topics.difference_update(await broker.store.children(paths.DELETE_TOPICS))
    except StoreError as error:  # the session ended: after the next registration the controller sends all
        logger.warning("the topics in the store cannot be read: %s", error)
    # A topic that does not arrive in time will not arrive at all: it was deleted meanwhile, or its node is unreadable.
    with trio.move_on_after(METADATA_WAIT_SECONDS):
        while not topics <= metadata.topics.keys():
            await metadata.changed()
    metadata.is_complete.set()


async def _update_advertised(broker: Broker, listeners: dict[str, Listener]) -> None:
    """Write the changed `advertised.listeners` into the registration; an unusable value changes nothing."""
    try:
        advertised = await _advertised(broker.config, listeners)
    except ConfigError as error:
        logger.error("the addresses to advertise stay as they are: %s", error)
    else:
        await broker.registration.advertise(advertised)


def _ready_line(broker: Broker, advertised: tuple[Endpoint, ...]) -> str:
    return (
        f"barnabas {__version__} ready: broker {broker.broker_id} at {', '.join(map(str, advertised))},"
        f" cluster {broker.cluster_id}, data {', '.join(broker.config.log_directories)}"
    )


def _directory_failed(broker: Broker, background: trio.Nursery, directory: str, error: StorageError) -> None:
    """Stop serving the partitions of a log directory that went offline, and notify the controller."""
    broker.replicas.directory_failed(directory, error)
    # This is a task, because the store may not be writable for a while and the caller must not wait
    # for it.
    background.start_soon(_report_directory, broker)


async def _report_directory(broker: Broker) -> None:
    """Create a log directory event in the store: the controller then sends this broker its roles again (B.9)."""
    event = paths.LogDirEvent(broker.broker_id).encode()
    while True:
        try:
            await broker.store.create(paths.LOG_DIR_EVENT_PREFIX, event, sequential=True)
        except StoreError as error:  # the embedded store may lie on the same disk
            logger.warning("the controller cannot be notified of the log directories yet: %s", error)
            await trio.sleep(REPORT_RETRY_SECONDS)
        else:
            return


async def _report_shortages(broker: Broker) -> None:
    """Have requests of the controller sent again that were refused for want of descriptors, or of the store."""
    while True:
        await broker.replicas.lacked.wait()
        broker.replicas.lacked = trio.Event()
        # Descriptors may become free meanwhile. Each report makes the controller send all roles, so reports are rare.
        await trio.sleep(SHORTAGE_REPORT_SECONDS)
        await _report_directory(broker)


# -- connections


async def _serve_connections(
    broker: Broker,
    listeners: dict[str, Listener],
    advertised: tuple[Endpoint, ...],
    stop: trio.Event,
    task_status: TaskStatus,
    life: Life,
) -> None:
    """Accept and serve connections until `stop` is set; then hand over leadership, and end within STOP_SECONDS."""
    connections = broker.tally.connections = Connections(broker.config, broker.world.memory_bytes)

    def load() -> int:
        here = len(broker.replicas) + broker.fetch_sessions.partition_count

        # This counts the whole cluster: far more than this broker hosts, if there are many brokers.
        everywhere = broker.metadata.partition_count + broker.candidate.replica_count
        return len(connections) + broker.groups.load + here + everywhere

    # There are two nurseries: at a stop, accepting ends at once, while the accepted connections
    # still get a deadline.
    async with trio.open_nursery() as accepted:
        async with trio.open_nursery() as accepting:
            for name, listener in listeners.items():
                handle = partial(serve_connection, broker, connections, name)
                accepting.start_soon(listener.serve, handle, accepted)
            accepting.start_soon(kept_up, logger, "the check of connections", connections.sweep)
            with trio.move_on_after(SETTLE_SECONDS):
                await broker.metadata.is_complete.wait()
            life.state = BrokerState.RUNNING
            ready_line = _ready_line(broker, advertised)
            task_status.started(Serving(ready_line, load, connections.held_bytes, broker.broker_id, advertised))
            with _watched(broker.tally) if broker.world.watches_steps else nullcontext():
                await stop.wait()
                life.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN

                # Connections are still served meanwhile: clients are redirected to the new leaders, not refused.
                await controlled_shutdown(broker.config, broker.metadata, broker.replicas, broker.controller_peer)
            accepting.cancel_scope.cancel()
        life.state = BrokerState.SHUTTING_DOWN
        for listener in listeners.values():
            listener.close()
        accepted.cancel_scope.deadline = trio.current_time() + STOP_SECONDS
        connections.finish()
