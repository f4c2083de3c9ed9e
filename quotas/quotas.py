"""The quotas of this broker (shell): read from the store, changed by notifications, asked by handlers.

A quota binds each broker on its own, as in Kafka: with three brokers a client may use three times as much. Handlers
record what a client used and get the time for which it is throttled; the response says so, and then the connection is
not read for that time (KIP-219). Rates of replication are in the configuration, and held by leaders and followers.
"""

import logging
from typing import TYPE_CHECKING

import trio

from barnabas.controller.admin.entity_configs import ADDRESSES, CLIENTS, USERS, list_entities, read_entity
from barnabas.controller.image.loading import read_each
from barnabas.controller.store.store import MetadataStore
from barnabas.quotas.client_quotas import Entity, from_path
from barnabas.quotas.clients import ClientMutations, ClientRates, Mutations, QuotaTable
from barnabas.quotas.creations import ConnectionCreations
from barnabas.quotas.rates import Window
from barnabas.quotas.replication import ReplicationThrottle
from barnabas.security.acls.acls import address_text

if TYPE_CHECKING:
    from barnabas.config.live import BrokerConfig

logger = logging.getLogger(__name__)

PRODUCED, FETCHED, MUTATIONS = "producer_byte_rate", "consumer_byte_rate", "controller_mutation_rate"
REQUEST_TIME, CONNECTIONS = "request_percentage", "connection_creation_rate"
PERCENT_PER_SECOND = 100.0  # a quota of 100 is one processor


class Quotas:
    """Every quota of clients and of replication, and what has been used of them."""

    def __init__(self, broker_id: int, config: "BrokerConfig", store: MetadataStore) -> None:
        window = Window(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutations = Window(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000)
        self._config = config
        self._store = store
        self._tables = {name: QuotaTable() for name in (PRODUCED, FETCHED, MUTATIONS, REQUEST_TIME)}
        self.produced = ClientRates(self._tables[PRODUCED], window)
        self.fetched = ClientRates(self._tables[FETCHED], window)

        # As in Kafka a client is throttled for its request time for at most one sample of the window.
        self._request_time = ClientRates(self._tables[REQUEST_TIME], window, throttle_max_ms=window.sample_ms)
        self.mutations = ClientMutations(self._tables[MUTATIONS], mutations)
        self._creations = ConnectionCreations(config, window)
        replication = Window(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)

        # KIP-73: what this broker sends to followers, and what it receives as a follower.
        self.as_leader = ReplicationThrottle(
            broker_id,
            replication,
            lambda: config.bytes_per_second("leader.replication.throttled.rate"),
            lambda topic: topic.leader_replication_throttled_replicas,
            self.now_ms,
        )
        self.as_follower = ReplicationThrottle(
            broker_id,
            replication,
            lambda: config.bytes_per_second("follower.replication.throttled.rate"),
            lambda topic: topic.follower_replication_throttled_replicas,
            self.now_ms,
        )
        self._turns: dict[str, trio.Lock] = {}  # of each listener

        # KIP-612. In this table addresses take the place of client ids.
        self._addresses = QuotaTable()
        self._known: dict[str, None] = {}  # paths of entities with properties
        self._connections = ClientRates(self._addresses, window, throttle_max_ms=window.sample_ms)

        # Every request looks at these two, so that a broker without quotas does nothing more.
        self.is_active = False
        self.limits_request_time = False

    @staticmethod
    def now_ms() -> int:
        """The time of all quotas: it does not go back, as the time of day may."""
        return round(trio.current_time() * 1000)

    def note_time(self, user: str, client_id: str, seconds: float) -> int:
        """Record processor time that a client's request took; how long the client is throttled for it."""
        return self._request_time.record(user, client_id, seconds * PERCENT_PER_SECOND, self.now_ms())

    def mutations_of(self, user: str, client_id: str, *, strict: bool) -> Mutations:
        """What a request of this client may create and delete."""
        bucket = self.mutations.bucket(user, client_id, self.now_ms()) if self.is_active else None
        return Mutations(bucket, self.now_ms, strict=strict)

    def note_connection(self, address: str) -> int:
        """Record a connection from this address; if there are too many, how long it is kept until it is closed."""
        if not self._addresses.has_quotas:
            return 0
        address = address_text(address)
        now_ms = self.now_ms()
        throttled_ms = self._connections.record("", address, 1, now_ms)

        # Only connections that are served count.
        if throttled_ms:
            self._connections.take_back("", address, 1, now_ms)
        return throttled_ms

    async def pace(self, listener: str) -> bool:
        """Wait while connections come faster than `max.connection.creation.rate`, of the broker or of the listener.

        False if as many wait already as a listener that does not accept would let wait.
        """
        if not self._creations.is_limited(listener):
            return True
        turns = self._turns.setdefault(listener, trio.Lock())
        if turns.statistics().tasks_waiting >= self._config.socket_listen_backlog_size:
            return False
        # Connections wait one after the other, in order of arrival, as if the listener did not accept meanwhile.
        async with turns:
            wait_ms = self._creations.record(listener, self.now_ms())
            if wait_ms:
                await trio.sleep(wait_ms / 1000)
        return True

    async def load(self) -> None:
        """Read all quotas from the store; those that are not there any more are removed."""
        folders = [USERS, CLIENTS, ADDRESSES]
        listed = [f"{folder}/{name}" for folder in folders for name in await list_entities(self._store, folder)]

        # A dict keeps the order, where that of a set would depend on hashes: a simulated run must be repeatable.
        listed = list(dict.fromkeys([*listed, *self._known]))

        async def read(path: str) -> None:
            await self.changed(path)
            if path.startswith(f"{USERS}/"):
                for client_id in await list_entities(self._store, f"{path}/{CLIENTS}"):
                    await self.changed(f"{path}/{CLIENTS}/{client_id}")

        # There may be thousands of users that have only a credential: reading one at a time would delay the start.
        await read_each(listed, read)

    async def changed(self, path: str) -> None:
        """Read the quotas of one entity again: `users/U`, `users/U/clients/C`, `clients/C` or `ips/A`."""
        entity = _entity(path)
        if entity is None:
            return
        texts = await read_entity(self._store, path)
        if texts:
            self._known[path] = None
        else:
            self._known.pop(path, None)

        if entity.ip != "":
            # A name of a host is resolved by Kafka's tools, and stored as an address.
            address = None if entity.ip is None else address_text(entity.ip)
            self._addresses.set(Entity("", address), _rate(path, texts, CONNECTIONS))
            return

        for name, table in self._tables.items():
            table.set(entity, _rate(path, texts, name))
        self.is_active = any(table.has_quotas for table in self._tables.values())
        self.limits_request_time = self._tables[REQUEST_TIME].has_quotas


def _rate(path: str, texts: dict[str, str], name: str) -> float | None:
    """One rate of an entity; None if it has none, or a malformed one that a tool has written."""
    if name not in texts:
        return None
    try:
        return float(texts[name])
    except ValueError:
        logger.error("%s of %s is no number and is ignored: %r", name, path, texts[name])
        return None


def _entity(path: str) -> Entity | None:
    """The entity of a path below /config; None if it is not one of clients."""
    match path.split("/"):
        case ["users", user]:
            return Entity(from_path(user))
        case ["users", user, "clients", client_id]:
            return Entity(from_path(user), from_path(client_id))
        case ["clients", client_id]:
            return Entity("", from_path(client_id))
        case ["ips", address]:
            return Entity("", "", from_path(address))
    return None
