"""The listeners with TLS or SASL: made of their settings at the start; their stores are read again at run time.

    secured = SecuredListeners(config, world)
    await secured.open()                       # ConfigError says what is wrong with properties and stores
    secured.allow_logins(tokens)
    await secured.load_users(store)            # SCRAM credentials, before changes are followed
    await secured.fetch_keys()                 # those that verify access tokens, before connections are served

A broker whose listeners are all of PLAINTEXT has none of this, and does not import it.
"""

import logging
from collections.abc import Iterator, Mapping

import trio

from barnabas.config.alter import LISTENER_LIMITS, LISTENER_SECURITY, ConfigRefused
from barnabas.config.describe import LISTENER_PROPERTY
from barnabas.config.listener_rules import Problem
from barnabas.config.listener_settings import OAUTHBEARER, Settings, read_listener
from barnabas.config.live import BrokerConfig, Source
from barnabas.config.parse import ConfigError
from barnabas.config.table import BROKER_TABLE
from barnabas.controller.admin.entity_configs import USERS, list_entities, read_entity
from barnabas.controller.image.loading import read_each
from barnabas.controller.store.store import MetadataStore
from barnabas.security.jaas_file import jaas_contexts
from barnabas.security.listener_security import JWKS_URL, Contexts, ListenerSecurity, security_of
from barnabas.security.sasl.authenticator import SaslSettings
from barnabas.security.sasl.jwks import SignedValidator
from barnabas.security.sasl.jwks_refresh import JwksRefresher, JwksUnavailable
from barnabas.security.sasl.mechanisms import (
    Shared,
    jwks_cache,
    sasl_settings,
    signed_token_rules,
    verifies_signatures,
)
from barnabas.security.sasl.scram import MECHANISMS
from barnabas.security.sasl.scram_credentials import ScramCredentials
from barnabas.security.sasl.tokens import DelegationTokens
from barnabas.security.sasl.url_fetch import Fetcher
from barnabas.security.tls.contexts import ListenerTls
from barnabas.security.tls.stores import StoreError
from barnabas.wire.errors import ErrorCode
from barnabas.world.world import World

logger = logging.getLogger(__name__)

RELOAD_REFUSED = (
    "Invalid value org.apache.kafka.common.config.ConfigException: Validation of dynamic config update of SSLFactory"
    " failed: {} for configuration Invalid dynamic configuration"
)
INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
NET_TIMEOUTS = ("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms")

Reload = list[tuple[ListenerTls, ListenerTls]]  # what is there, and what replaces it


class SecuredListener:
    """What a listener demands of a connection before its first request."""

    __slots__ = ("sasl", "security", "tls")

    def __init__(self, security: ListenerSecurity, tls: ListenerTls | None) -> None:
        self.security = security
        self.tls = tls
        self.sasl: SaslSettings | None = None

    @property
    def protocol(self) -> str:
        """SSL, SASL_PLAINTEXT or SASL_SSL."""
        return self.security.settings.protocol


class SecuredListeners:
    """Every listener whose protocol is not PLAINTEXT, by name."""

    def __init__(self, config: BrokerConfig, world: World) -> None:
        self.scram = ScramCredentials()
        self._config = config
        self._world = world
        self._listeners: dict[str, SecuredListener] = {}
        self._refreshers: list[JwksRefresher] = []
        self._contexts: Contexts = {}  # of the JAAS file
        self._reloading = trio.Lock()
        self._asked = trio.Event()

    def get(self, listener: str) -> SecuredListener | None:
        """What this listener demands; None if its protocol is PLAINTEXT."""
        return self._listeners.get(listener)

    def of_brokers(self) -> Iterator[tuple[str, SecuredListener]]:
        """The listeners at which this broker connects to others."""
        for name in sorted(_brokers_own(self._config)):
            if name in self._listeners:
                yield name, self._listeners[name]

    # -- start

    async def open(self) -> None:
        """Read the settings of the listeners, and their stores. Raises ConfigError."""
        self._contexts = await self._world.in_thread(jaas_contexts)
        problems: list[Problem] = []
        for security in self._securities(_texts_of(self._config.layers()), problems):
            for warning in security.warnings:
                logger.warning("%s", warning)
            try:
                tls = await self._world.in_thread(self._tls_of, security)
            except StoreError as error:
                problems.append(Problem((), f"listener {security.settings.listener}: {error}"))
            else:
                self._listeners[security.settings.listener] = SecuredListener(security, tls)
        if problems:
            raise ConfigError(self._config.located(problem.why, *problem.names) for problem in problems)

    def allow_logins(self, tokens: DelegationTokens) -> None:
        """Make what authenticators use, with these delegation tokens. Raises ConfigError."""
        shared = Shared(self.scram, tokens, self._world.rng)
        delay_ms = self._config.connection_failed_authentication_delay_ms
        for name, listener in self._listeners.items():
            if listener.security.settings.uses_sasl:
                signed = self._signed(listener.security)
                try:
                    listener.sasl = sasl_settings(listener.security, shared, delay_ms, signed)
                except ValueError as error:
                    raise ConfigError([f"listener {name}: {error}"]) from None

    async def load_users(self, store: MetadataStore) -> None:
        """Read the SCRAM credentials of all users, if there is a listener for them."""
        if not self._uses_scram:
            return
        users: dict[str, Mapping[str, str]] = {}

        async def read(name: str) -> None:
            users[name] = await read_entity(store, f"{USERS}/{name}")

        # There may be thousands of users: to read one at a time would delay the start.
        await read_each(await list_entities(store, USERS), read)
        self.scram.replace(users)

    async def user_changed(self, store: MetadataStore, name: str) -> None:
        """Read the credentials of a user again; `name` as in the path of its node."""
        if self._uses_scram:
            self.scram.changed(name, await read_entity(store, f"{USERS}/{name}"))

    async def fetch_keys(self) -> None:
        """Fetch the keys that verify signed access tokens. Raises ConfigError when they cannot be had."""
        for refresher in self._refreshers:
            try:
                await refresher.start()
            except JwksUnavailable as error:
                raise ConfigError([str(error)]) from None

    async def run(self) -> None:
        """Keep these keys fresh, and reload stores when `ask_to_reload` says so, until cancelled."""
        async with trio.open_nursery() as nursery:
            for refresher in self._refreshers:
                nursery.start_soon(refresher.run)
            while True:
                await self._asked.wait()
                self._asked = trio.Event()
                await self.reload()

    def ask_to_reload(self) -> None:
        """As `reload`, soon."""
        self._asked.set()

    @property
    def _uses_scram(self) -> bool:
        enabled = {mechanism for each in self._listeners.values() for mechanism in each.security.logins}
        return any(mechanism.name in enabled for mechanism in MECHANISMS.values())

    def _securities(self, texts: Mapping[str, str], problems: list[Problem]) -> Iterator[ListenerSecurity]:
        """The settings of each listener, read from these texts; what is wrong goes to `problems`."""
        own = _brokers_own(self._config)
        # The mechanism is from the texts, which may be those of a change that is not made yet.
        inter_broker = texts.get(INTER_BROKER_MECHANISM, "").strip() or BROKER_TABLE[INTER_BROKER_MECHANISM].default
        for endpoint in self._config.listener_endpoints:
            if endpoint.protocol == "PLAINTEXT":
                continue
            settings = read_listener(texts, endpoint.listener, endpoint.protocol, problems)
            if settings is None:
                continue
            mechanism = str(inter_broker) if endpoint.listener in own else None
            security = security_of(settings, problems, contexts=self._contexts, inter_broker=mechanism)
            if security is not None:
                yield security

    def _tls_of(self, security: ListenerSecurity) -> ListenerTls | None:
        """Blocking: short."""
        if security.tls is None:
            return None
        return ListenerTls(security.tls, is_brokers_own=security.settings.listener in _brokers_own(self._config))

    def _signed(self, security: ListenerSecurity) -> SignedValidator | None:
        own = security.settings.by_mechanism.get(OAUTHBEARER)
        if own is None or not verifies_signatures(own):
            return None
        cache = jwks_cache(own)
        url = own.text(JWKS_URL)
        assert url is not None, "a rule of listener_security.py"
        refresher = JwksRefresher(cache, url, fetcher(own).fetch, self._world.in_thread)
        self._refreshers.append(refresher)
        return SignedValidator(cache, signed_token_rules(own), refresher.missed)

    # -- changes at run time

    async def check(self, per_broker: Mapping[str, str]) -> None:
        """Raise ConfigRefused if this broker cannot get these properties while it runs."""
        # Only changes are checked: the properties that were stored before the start are in effect
        # at the listener.
        before = dict(self._config.layers())[Source.PER_BROKER]
        for name in (name for name in before.keys() | per_broker if before.get(name) != per_broker.get(name)):
            listener = LISTENER_PROPERTY.fullmatch(name)
            is_there = listener is not None and name.split(".")[2].upper() in self._listeners
            # Kafka accepts some of these properties without an effect, and then refuses every
            # later change.
            if listener is not None and is_there and listener[1] not in (*LISTENER_SECURITY, *LISTENER_LIMITS):
                message = f"Configs cannot be updated dynamically for existing listener: {name}"
                raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
        layers = [(source, layer) for source, layer in self._config.layers() if source is not Source.PER_BROKER]
        try:
            await self._world.in_thread(self._prepared, _texts_of(((Source.PER_BROKER, per_broker), *layers)))
        except (StoreError, ConfigError) as error:
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, RELOAD_REFUSED.format(error)) from None

    async def reload(self) -> None:
        """Read the stores again whose properties or files have changed, for new connections; else keep the old ones."""
        # SIGHUP and AlterConfigs may ask at the same time: the later one has to compare with the
        # stores that the earlier one has put in place.
        async with self._reloading:
            try:
                prepared = await self._world.in_thread(self._prepared, _texts_of(self._config.layers()))
            except (StoreError, ConfigError) as error:
                logger.error("the stores stay as they were: %s", error)
                return
            for there, new in prepared:
                there.replace(new)
            if prepared:
                logger.info("%d listeners have new key or trust stores", len(prepared))

    def _prepared(self, texts: Mapping[str, str]) -> Reload:
        """Blocking: short. StoreError, ConfigError."""
        problems: list[Problem] = []
        prepared = []
        for security in self._securities(texts, problems):
            there = self._listeners[security.settings.listener].tls
            new = None if there is None or security.tls is None else there.prepared(security.tls)
            if there is not None and new is not None:
                prepared.append((there, new))
        if problems:
            raise ConfigError(problem.why for problem in problems)
        return prepared


def fetcher(own: Settings) -> Fetcher:
    """How keys and access tokens are fetched."""
    limits = [own.number(name) for name in NET_TIMEOUTS if own.values[name] is not None]
    return Fetcher(max(limits) / 1000) if limits else Fetcher()


def _brokers_own(config: BrokerConfig) -> frozenset[str]:
    return frozenset({config.inter_broker_listener, config.control_plane_listener})


def _texts_of(layers: "tuple[tuple[Source, Mapping[str, str]], ...]") -> dict[str, str]:
    """What is set, by name: of several layers the uppermost."""
    texts: dict[str, str] = {}
    for source, layer in layers:
        if source is not Source.DEFAULT:
            texts = {**layer, **texts}
    return texts
