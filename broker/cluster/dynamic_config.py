"""Configuration that changes while the broker runs: read at the start, and again whenever the store says so.

Theory of operation
-------------------
The broker that alters a configuration, any broker, writes the entity and a notification below /config/changes
(`controller/admin/entity_configs.py`). Every broker watches that folder, takes the notifications that it has not seen,
in order, and reads each entity that they name again, as it is by then. What was noted before the start is taken again:
entities are read, not changed, so that costs a read and does no harm, and nothing falls between start and watch.

Values need no further handing out: all code reads `BrokerConfig` and `TopicConfig` each time. Three things are more
than a value: partitions whose `min.insync.replicas` fell may have more to commit, a controller that may now elect a
replica out of sync must look for partitions without a leader, and other addresses to advertise are written into this
broker's registration, from which the controller tells everybody.

A notification lives for fifteen minutes; any broker removes it then, when it next looks.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from barnabas.broker.config.alter import broker_warnings, usable_part
from barnabas.broker.config.live import Source
from barnabas.broker.config.parse import ConfigError
from barnabas.controller.admin.entity_configs import BROKERS, TOPICS, node_of, read_entity
from barnabas.controller.image.loading import numbered, parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import DEFAULT_ENTITY, ConfigChange
from barnabas.controller.store.store import MetadataStore, NoNode, SessionExpired, StoreError, check_path

if TYPE_CHECKING:
    from barnabas.broker.config.live import BrokerConfig
    from barnabas.broker.config.topic_configs import TopicConfigs
    from barnabas.broker.replication.replicas import Replicas
    from barnabas.controller.candidate import Candidate

logger = logging.getLogger(__name__)

NOTIFICATION = paths.CONFIG_CHANGE_PREFIX.rpartition("/")[2]
EXPIRY_MS = 15 * 60 * 1000
RETRY_SECONDS = 1.0
APPLIED_SECONDS_MAX = 5.0  # AlterConfigs waits so long for this broker to follow
UNCLEAN_ELECTION = "unclean.leader.election.enable"


class BrokerConfigs:
    """What the store says of this broker, and of all brokers."""

    def __init__(self, store: MetadataStore, config: "BrokerConfig", broker_id: int) -> None:
        self._store = store
        self._config = config
        self._broker_id = broker_id

    async def load(self) -> None:
        """Read both and lay them over the static configuration; what cannot be used is left out with a line."""
        cluster_wide = await self._read(DEFAULT_ENTITY, per_broker=False)
        per_broker = await self._read(str(self._broker_id), per_broker=True)
        try:
            self._config.update(cluster_wide=cluster_wide, per_broker=per_broker)
        except ConfigError as error:
            logger.error("what the store says of this broker contradicts its other settings: %s", error)

    def warnings(self) -> list[str]:
        """What is set in the store and does not act."""
        layers = dict(self._config.layers())
        return [
            f"{BROKERS}/{name} in the store: {warning}"
            for name, source in ((DEFAULT_ENTITY, Source.CLUSTER_WIDE), (str(self._broker_id), Source.PER_BROKER))
            for warning in broker_warnings(layers[source])
        ]

    async def _read(self, name: str, *, per_broker: bool) -> dict[str, str]:
        texts = await read_entity(self._store, f"{BROKERS}/{name}")
        usable = usable_part(texts, per_broker=per_broker)
        for ignored in texts.keys() - usable.keys():
            logger.warning("%s in the store (%s/%s) is not valid and is ignored", ignored, BROKERS, name)
        return usable


class DynamicConfig:
    """Follows the notifications."""

    def __init__(  # the parts that a change concerns, by keyword
        self,
        store: MetadataStore,
        *,
        config: "BrokerConfig",
        broker_configs: BrokerConfigs,
        topic_configs: "TopicConfigs",
        replicas: "Replicas",
        candidate: "Candidate",
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._config = config
        self._broker_configs = broker_configs
        self._topic_configs = topic_configs
        self._replicas = replicas
        self._candidate = candidate
        self._now_ms = now_ms
        self._seen = -1  # the number of the last notification that was taken
        self._applied = trio.Event()
        self._touched = trio.Event()
        self._advertise: Callable[[], Awaitable[None]] | None = None
        self._advertised = config.advertised_listeners  # what the registration says
        self._concerned: dict[str, Callable[[str], Awaitable[None]]] = {
            TOPICS: self._topic_changed,
            BROKERS: self._broker_changed,
        }

    async def run(
        self,
        advertise: Callable[[], Awaitable[None]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Follow for ever; started when what was noted before has been taken.

        `advertise` writes what `advertised.listeners` says into this broker's registration.
        """
        self._advertise = advertise
        self._store.on_expired(self._look_again)
        started = False
        while True:
            self._touched = trio.Event()
            try:
                await self._take(await self._store.children(paths.CONFIG_CHANGES, self._touched.set))
            except SessionExpired:
                if not started:
                    await self._begin_session()
                else:  # the candidate begins another one
                    await trio.sleep(RETRY_SECONDS)
                continue
            except StoreError as error:
                logger.warning("changes of configuration cannot be followed: %s", error, extra={"peer": "store"})
                await trio.sleep(RETRY_SECONDS)
                continue
            if not started:
                started = True
                task_status.started()
            await self._touched.wait()

    async def _begin_session(self) -> None:
        """Another session, while the broker starts: the candidate, which sees to that later, does not run yet."""
        try:
            await self._store.renew()
        except StoreError as error:
            logger.warning("no new session: %s", error, extra={"peer": "store"})
            await trio.sleep(RETRY_SECONDS)

    def _look_again(self) -> None:
        self._touched.set()

    async def await_applied(self, number: int) -> None:
        """Wait until this broker has taken the notification, for a moment at most."""
        with trio.move_on_after(APPLIED_SECONDS_MAX):
            while self._seen < number:
                await self._applied.wait()

    async def _take(self, names: list[str]) -> None:
        numbers = numbered(names, NOTIFICATION)
        new = sorted(number for number in numbers if number > self._seen)
        entities = [await self._entity(numbers[number]) for number in new]
        for entity in dict.fromkeys(entities):
            await self._apply(entity)
        if new:
            self._seen = new[-1]
            self._applied.set()
            self._applied = trio.Event()
        await self._remove_expired([numbers[number] for number in sorted(numbers)])

    async def _entity(self, name: str) -> str:
        """Which entity a notification names; none ("") if it is gone or cannot be read."""
        path = f"{paths.CONFIG_CHANGES}/{name}"
        try:
            data, _ = await self._store.get(path)
        except NoNode:
            return ""
        change = parse(_decode_change, data, path)
        return "" if change is None else change.entity_path

    async def _apply(self, entity: str) -> None:
        kind, _, name = entity.partition("/")
        concerned = self._concerned.get(kind)  # quotas of users, client ids and addresses are not used yet
        if concerned is not None:
            logger.info("the configuration of %s changed", entity)
            await concerned(name)

    async def _topic_changed(self, topic: str) -> None:
        overrides = await self._topic_configs.reload(topic)
        self._replicas.reconfigured(topic)
        if overrides.get(UNCLEAN_ELECTION, "").strip().lower() == "true":
            self._candidate.unclean_election_allowed(topic)

    async def _broker_changed(self, name: str) -> None:
        if name not in (DEFAULT_ENTITY, str(self._replicas.broker_id)):
            return
        allowed = self._config.unclean_leader_election_enable
        await self._broker_configs.load()
        self._replicas.reconfigured(None)
        if self._config.unclean_leader_election_enable and not allowed:
            self._candidate.unclean_election_allowed(None)
        advertised = self._config.advertised_listeners
        if advertised != self._advertised and self._advertise is not None:
            await self._advertise()
            self._advertised = advertised

    async def _remove_expired(self, names: list[str]) -> None:
        """They are as old as their numbers are small, so the first that is young ends the search."""
        for name in names:
            path = f"{paths.CONFIG_CHANGES}/{name}"
            stat = await self._store.exists(path)
            if stat is not None and self._now_ms() - stat.ctime_ms <= EXPIRY_MS:
                return
            try:
                await self._store.delete(path)
            except NoNode:
                continue  # another broker was quicker


def _decode_change(data: bytes | None, path: str) -> ConfigChange:
    change = ConfigChange.decode(data, path)
    check_path(node_of(f"{change.entity_type}/{change.entity_name}"))  # or the store refuses to look there
    return change
