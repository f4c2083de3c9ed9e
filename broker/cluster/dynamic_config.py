"""Dynamic configuration: read from the store at the start, and again after each change notification.

Theory of operation
-------------------
Any broker that alters a configuration writes the entity, and then a notification below /config/changes
(`controller/admin/entity_configs.py`). Every broker watches that node, takes new notifications in order, and reads each
entity that they name. A starting broker takes all existing notifications: reading an entity twice does no harm, and no
change is missed between the first read and the watch.

New values need no distribution: all code reads `BrokerConfig` and `TopicConfig` at each use. Three properties need an
action beside that: `min.insync.replicas`, `unclean.leader.election.enable` and `advertised.listeners`.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.config.alter import broker_warnings, listener_complaints, usable_part
from barnabas.config.live import Source
from barnabas.config.parse import ConfigError
from barnabas.controller.admin.entity_configs import (
    ADDRESSES,
    BROKERS,
    CLIENTS,
    TOPICS,
    USERS,
    node_of,
    read_entity,
    rewrite_entity,
)
from barnabas.controller.image.loading import numbered, parse
from barnabas.controller.store import paths
from barnabas.controller.store.following import Following, remove_expired
from barnabas.controller.store.paths import DEFAULT_ENTITY, ConfigChange
from barnabas.controller.store.store import MetadataStore, NoNode, check_path

if TYPE_CHECKING:
    from barnabas.config.live import BrokerConfig
    from barnabas.controller.candidate import Candidate
    from barnabas.quotas.quotas import Quotas
    from barnabas.replication.replicas import Replicas
    from barnabas.replication.topic_configs import TopicConfigs
    from barnabas.security.passwords import StoredPasswords
    from barnabas.security.secured import SecuredListeners

logger = logging.getLogger(__name__)

NOTIFICATION = paths.CONFIG_CHANGE_PREFIX.rpartition("/")[2]
APPLIED_SECONDS_MAX = 5.0  # an AlterConfigs response waits at most this long until this broker uses the new values
UNCLEAN_ELECTION = "unclean.leader.election.enable"
LISTENERS = ("listeners", "listener.security.protocol.map")


class BrokerConfigs:
    """The configuration of this broker in the store: its own entity, and the default for all brokers."""

    def __init__(
        self, store: MetadataStore, config: "BrokerConfig", broker_id: int, passwords: "StoredPasswords"
    ) -> None:
        self.passwords = passwords
        self._store = store
        self._config = config
        self._broker_id = broker_id
        self._is_started = False

    async def start(self) -> None:
        """Encode the passwords in the store again if their secret has changed, and load. Raises ConfigError."""
        self.passwords.check()
        if self._config.password_encoder_old_secret is not None:
            entity = f"{BROKERS}/{self._broker_id}"
            stored = await read_entity(self._store, entity)
            if await self.passwords.encoded_again(stored) != stored:
                await rewrite_entity(self._store, entity, self.passwords.encoded_again)
                logger.info("the passwords of this broker in the store are encoded with the new secret")
        await self.load()
        self._is_started = True

    async def load(self) -> None:
        """Read both entities and put them over the static configuration. Invalid values are logged and ignored."""
        cluster_wide = await self._read(DEFAULT_ENTITY, per_broker=False)
        per_broker = await self._read(str(self._broker_id), per_broker=True)
        before = dict(self._config.layers())[Source.PER_BROKER]
        if self._is_started:
            per_broker = self._with_the_bound_listeners(cluster_wide, per_broker, before)
        # Each value is valid alone, but values may contradict each other or server.properties. Then this broker keeps
        # its own properties of before. At the start it has none, so only the cluster-wide ones hold, as in Kafka:
        # without their retention records could be deleted.
        for own in (per_broker, before):
            try:
                self._config.update(cluster_wide=cluster_wide, per_broker=own)
            except ConfigError as error:
                logger.error("what the store says of this broker contradicts its other settings: %s", error)
            else:
                return

    def _with_the_bound_listeners(
        self, cluster_wide: dict[str, str], per_broker: dict[str, str], before: Mapping[str, str]
    ) -> dict[str, str]:
        """The properties of this broker, with its listeners as they are if those in the store would be others."""
        if all(per_broker.get(name) == before.get(name) for name in LISTENERS):
            return per_broker
        # AlterConfigs refuses other listeners, but a tool may write them into the store. Only a start can open them.
        try:
            after = self._config.as_it_would_be(cluster_wide=cluster_wide, per_broker=per_broker)
            complaints = listener_complaints(self._config, after)
        except (ConfigError, ValueError):
            return per_broker  # malformed: `load` refuses all of it
        if not complaints:
            return per_broker
        logger.warning("the listeners in the store (%s/%d) are those of the next start", BROKERS, self._broker_id)
        kept = {name: before[name] for name in LISTENERS if name in before}
        return {name: text for name, text in per_broker.items() if name not in LISTENERS} | kept

    def warnings(self) -> list[str]:
        """A line for each property that is set in the store and has no effect."""
        layers = dict(self._config.layers())
        return [
            f"{BROKERS}/{name} in the store: {warning}"
            for name, source in ((DEFAULT_ENTITY, Source.CLUSTER_WIDE), (str(self._broker_id), Source.PER_BROKER))
            for warning in broker_warnings(layers[source])
        ]

    async def _read(self, name: str, *, per_broker: bool) -> dict[str, str]:
        read = await self.passwords.decoded(await read_entity(self._store, f"{BROKERS}/{name}"))
        for undecoded, problem in read.problems.items():
            logger.error("%s in the store (%s/%s) is ignored: %s", undecoded, BROKERS, name, problem)
        usable = usable_part(read.texts, per_broker=per_broker)
        for ignored in read.texts.keys() - usable.keys():
            logger.warning("%s in the store (%s/%s) is not valid and is ignored", ignored, BROKERS, name)
        return usable


class DynamicConfig:
    """Follows the change notifications, and applies the entities that they name."""

    def __init__(
        self,
        store: MetadataStore,
        *,
        config: "BrokerConfig",
        broker_configs: BrokerConfigs,
        topic_configs: "TopicConfigs",
        replicas: "Replicas",
        candidate: "Candidate",
        quotas: "Quotas",
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._config = config
        self._broker_configs = broker_configs
        self._topic_configs = topic_configs
        self._replicas = replicas
        self._candidate = candidate
        self._quotas = quotas
        self.secured: SecuredListeners | None = None  # None if all listeners are of PLAINTEXT
        self._now_ms = now_ms
        self._seen = -1  # the number of the last notification that was applied

        # How many sessions have ended, and how many had when everything was last read. Without a session this broker
        # may miss changes: other brokers remove the notifications after 15 minutes.
        self._lost_sessions = self._read_at = 0
        self._applied = trio.Event()  # set and replaced whenever `_seen` grows
        self._following = Following(store, "changes of configuration", logger)
        self._advertise: Callable[[], Awaitable[None]] | None = None
        self._advertised = config.advertised_listeners  # the value in the registration
        self._concerned: dict[str, Callable[[str], Awaitable[None]]] = {
            TOPICS: self._topic_changed,
            BROKERS: self._broker_changed,
            USERS: self._user_changed,
            CLIENTS: lambda name: quotas.changed(f"{CLIENTS}/{name}"),
            ADDRESSES: lambda name: quotas.changed(f"{ADDRESSES}/{name}"),
        }

    @property
    def passwords(self) -> "StoredPasswords":
        """The passwords of this broker in the store."""
        return self._broker_configs.passwords

    async def run(
        self,
        advertise: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Follow until cancelled; `task_status` reports the start when the existing notifications are applied.

        `advertise` writes the value of `advertised.listeners` into this broker's registration.
        """
        self._advertise = advertise
        self._store.on_expired(self._lost)
        await self._following.run(self._look, task_status=task_status)

    async def _look(self, touched: Callable[[], None]) -> None:
        names = await self._store.children(paths.CONFIG_CHANGES, touched)
        lost_sessions = self._lost_sessions
        if self._read_at != lost_sessions:
            await self._read_all()
            self._read_at = lost_sessions
        await self._take(names)

    def _lost(self) -> None:
        self._lost_sessions += 1
        self._following.look_again()

    async def _read_all(self) -> None:
        """Read every entity again, as if it had changed. Kafka does not: a user that was removed may go on."""
        await self._quotas.load()
        if self.secured is not None:
            await self.secured.load_users(self._store)
        topics = dict.fromkeys(each.topic_partition.topic for each in self._replicas)
        views = await self._topic_configs.load(topics)
        # The broker's properties come after the topics, because `_broker_changed` makes all partitions
        # look at their configuration again: once, not once for each topic.
        await self._broker_changed(str(self._replicas.broker_id))
        for topic, view in views.items():
            self._elect_if_allowed(topic, view.overrides)

    async def await_applied(self, number: int) -> None:
        """Wait until this broker has applied the notification, at most APPLIED_SECONDS_MAX."""
        # A client which describes the configuration after altering it has to see the new value at
        # this broker.
        with trio.move_on_after(APPLIED_SECONDS_MAX):
            while self._seen < number:
                await self._applied.wait()

    async def _take(self, names: list[str]) -> None:
        numbers = numbered(names, NOTIFICATION)
        new = sorted(number for number in numbers if number > self._seen)
        entities = [await self._entity(numbers[number]) for number in new]
        # An entity is read as it is now, so several notifications about it need one read.
        for entity in dict.fromkeys(entities):
            await self._apply(entity)
        # `_seen` grows after all of them: if the store fails in between, the next round applies them
        # again.
        if new:
            self._seen = new[-1]
            self._applied.set()
            self._applied = trio.Event()
        await remove_expired(self._store, paths.CONFIG_CHANGES, numbers, self._now_ms())

    async def _entity(self, name: str) -> str:
        """The entity that a notification names, as type/name; "" if the notification is gone or malformed."""
        path = f"{paths.CONFIG_CHANGES}/{name}"
        # The notification may have expired: another broker has removed it since its name was
        # listed.
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return ""
        change = parse(_decode_change, data, path)
        return "" if change is None else change.entity_path

    async def _apply(self, entity: str) -> None:
        kind, _, name = entity.partition("/")
        concerned = self._concerned.get(kind)
        if concerned is not None:
            logger.info("the configuration of %s changed", entity)
            await concerned(name)

    async def _topic_changed(self, topic: str) -> None:
        overrides = await self._topic_configs.reload(topic)
        # A lower min.insync.replicas may let the high watermark advance.
        await self._replicas.reconfigured(topic)
        self._elect_if_allowed(topic, overrides)

    def _elect_if_allowed(self, topic: str, overrides: Mapping[str, str]) -> None:
        """If this broker is the controller, it may elect leaders outside the ISR for partitions without a leader."""
        if overrides.get(UNCLEAN_ELECTION, "").strip().lower() == "true":
            self._candidate.unclean_election_allowed(topic)

    async def _user_changed(self, name: str) -> None:
        await self._quotas.changed(f"{USERS}/{name}")
        if self.secured is not None:
            await self.secured.user_changed(self._store, name)

    async def _broker_changed(self, name: str) -> None:
        if name not in (DEFAULT_ENTITY, str(self._replicas.broker_id)):
            return
        # The old value is kept, unlike for a topic: an election covers all topics, so only a change
        # from false to true is worth it.
        allowed = self._config.unclean_leader_election_enable
        await self._broker_configs.load()
        await self._replicas.reconfigured(None)
        # The key stores are read even if no value has changed: an operator who sets the same value says
        # that the file of a store has changed.
        if self.secured is not None and name != DEFAULT_ENTITY:
            await self.secured.reload()
        if self._config.unclean_leader_election_enable and not allowed:
            self._candidate.unclean_election_allowed(None)
        advertised = self._config.advertised_listeners
        # The controller sends the addresses of the registration to all brokers. `_advertised` changes after the write,
        # so a failed write is repeated.
        if advertised != self._advertised and self._advertise is not None:
            await self._advertise()
            self._advertised = advertised


def _decode_change(data: bytes | None, path: str) -> ConfigChange:
    change = ConfigChange.decode(data, path)
    # A name that is no valid path would make the store raise at each look, and block all later notifications.
    check_path(node_of(f"{change.entity_type}/{change.entity_name}"))
    return change
