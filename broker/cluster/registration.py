"""This broker's registration, an ephemeral node in the metadata store, in each of its sessions (reference A.1, A.3).

`serve.py` calls `join` when the broker is ready for requests of the controller. After the session expires, the node is
gone and the controller has elected other leaders; the broker serves what it can meanwhile. The candidate
(`controller/candidate.py`) then opens a new session and calls `join_again`: the broker gets a new broker epoch, and the
controller sends it its roles again. The candidate does this because a controller must resign before the registration,
and the next election must come after it.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.controller.admin.registration import register_broker
from barnabas.controller.store import paths
from barnabas.controller.store.following import in_a_session
from barnabas.controller.store.metadata_versions import metadata_version_of
from barnabas.controller.store.paths import BrokerRegistration
from barnabas.controller.store.store import NoNode

if TYPE_CHECKING:
    from barnabas.broker.cluster.boot_mark import KeptData
    from barnabas.config.listeners import Endpoint
    from barnabas.config.live import BrokerConfig
    from barnabas.controller.store.store import MetadataStore
    from barnabas.replication.replicas import Replicas

SESSIONS_WAITED = 1.5  # x zookeeper.session.timeout.ms: ZooKeeper may expire a session one tickTime late


class Registration:
    """Registers one broker, and keeps the content of its registration."""

    def __init__(
        self, store: "MetadataStore", config: "BrokerConfig", replicas: "Replicas", now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._config = config
        self._replicas = replicas
        self._now_ms = now_ms
        self._kept: KeptData | None = None
        self._advertised: tuple[Endpoint, ...] = ()
        self._session_id: int | None = None  # of the last registration

    async def join(self, advertised: "tuple[Endpoint, ...]", kept: "KeptData") -> None:
        """Register for the first time, with these addresses and the result of the boot marks.

        CannotRegister when another broker has the id or an address; StoreError.
        """
        self._advertised = advertised
        self._kept = kept
        await in_a_session(self._store, self.join_again)

    async def join_again(self) -> None:
        """Register with the current addresses; sets the new broker epoch. Errors as `join`."""
        # A killed broker leaves its node until its session expires. A node with this id and these addresses can only be
        # of an earlier process, as this one listens there, so it is waited for; Apache Kafka fails at once. A node with
        # this id and other addresses, or the reverse, makes this fail at once. The embedded store has no such nodes.
        patience_ms = 0.0
        if self._config.zookeeper_connect is not None:
            patience_ms = SESSIONS_WAITED * self._config.zookeeper_session_timeout_ms
        # The id is read before the registration, because the session may be another one after it.
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
        """Write these addresses into the registration; the controller sends them to all brokers. StoreError."""
        self._advertised = advertised
        try:
            await self._store.set(paths.broker(self._replicas.broker_id), self._registration().encode())
        except NoNode:
            return  # not registered at present: the next registration has the new addresses

    def _registration(self) -> BrokerRegistration:
        return BrokerRegistration(
            endpoints=tuple(paths.Endpoint(each.listener, each.host, each.port) for each in self._advertised),
            security_protocols={each.listener: each.protocol for each in self._advertised},
            timestamp_ms=self._now_ms(),
            rack=self._config.broker_rack,
            version=metadata_version_of(self._config.inter_broker_protocol_version).registration_version,
            kept_since=None if self._kept is None else self._kept.since,
        )
