"""This broker's registration in the metadata store, in every session that it has there (reference A.1, A.3).

A broker registers when it is ready for what the controller will send. When the session expires the node is gone and the
controller has elected other leaders; the broker goes on serving what it can meanwhile, opens another session, and
registers again: with a new broker epoch, under which the controller sends it its roles again. The candidate does this,
because a controller must resign before, and the next election comes after.

A broker that was killed leaves its node for as long as its session lasts. Started again, it finds the node with its own
id and its own address, which no other process can be listening on, and waits for the end of that session; Apache Kafka
gives up at once. An id that another address is registered under, or an address with another id, is refused without
waiting.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.controller.admin.registration import register_broker
from barnabas.controller.store import paths
from barnabas.controller.store.metadata_versions import level_of
from barnabas.controller.store.paths import BrokerRegistration
from barnabas.controller.store.store import NoNode, SessionExpired

if TYPE_CHECKING:
    from barnabas.broker.cluster.boot_mark import KeptData
    from barnabas.broker.config.listeners import Endpoint
    from barnabas.broker.config.live import BrokerConfig
    from barnabas.broker.replication.replicas import Replicas
    from barnabas.controller.store.store import MetadataStore

SESSIONS_WAITED = 1.5  # of the previous life's, which ends up to a tick of ZooKeeper's later than it should


class Registration:
    """Registers one broker, and knows what it said."""

    def __init__(
        self, store: "MetadataStore", config: "BrokerConfig", replicas: "Replicas", now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._config = config
        self._replicas = replicas
        self._now_ms = now_ms
        self._kept: KeptData | None = None
        self._advertised: tuple[Endpoint, ...] = ()
        self._session_id: int | None = None  # in which it was registered last

    async def join(self, advertised: "tuple[Endpoint, ...]", kept: "KeptData") -> None:
        """Register with these addresses, and what the log directories have kept. CannotRegister, StoreError."""
        self._advertised, self._kept = advertised, kept
        while True:
            try:
                return await self.join_again()
            except SessionExpired:  # the candidate, which begins another one later, does not run yet
                await self._store.renew()

    async def join_again(self) -> None:
        """Register with the last addresses: in a new session, with a new broker epoch."""
        patience_ms = 0.0
        if self._config.zookeeper_connect is not None:
            patience_ms = SESSIONS_WAITED * self._config.zookeeper_session_timeout_ms
        session_id = self._store.session_id
        self._replicas.broker_epoch = await register_broker(
            self._store,
            self._replicas.broker_id,
            self._registration(),
            previous_session_id=self._session_id,
            patience_seconds=patience_ms / 1000,
        )
        self._session_id = session_id
        if self._kept is not None:
            await self._kept.note(self._replicas.broker_epoch)

    async def advertise(self, advertised: "tuple[Endpoint, ...]") -> None:
        """Other addresses: written into the registration, from which the controller tells everybody."""
        self._advertised = advertised
        try:
            await self._store.set(paths.broker(self._replicas.broker_id), self._registration().encode())
        except NoNode:
            return  # not registered yet, or not any more: it will be with the new ones

    def _registration(self) -> BrokerRegistration:
        return BrokerRegistration(
            endpoints=tuple(paths.Endpoint(each.listener, each.host, each.port) for each in self._advertised),
            security_protocols={each.listener: each.protocol for each in self._advertised},
            timestamp_ms=self._now_ms(),
            rack=self._config.broker_rack,
            version=level_of(self._config.inter_broker_protocol_version).registration_version,
            kept_since=None if self._kept is None else self._kept.since,
        )
