"""The settings of one listener: an immutable view made when the broker starts, or when its configuration changes.

A property of a listener is set for it alone (`listener.name.<listener in lower case>.ssl.client.auth`), or for all
listeners. Some are set for one mechanism of a listener (`listener.name.outside.plain.sasl.jaas.config`), and a few of
these for a mechanism of all listeners. What is set for less wins, whatever layer it is in. Reference security.md, S.2.

Here are types, precedence, and rules about names and classes. What needs a grammar or a store is in
`security/listener_security.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from barnabas.config.checks import Value
from barnabas.config.listener_rules import Problem
from barnabas.config.parse import OF_LISTENER_OR_MECHANISM
from barnabas.config.property import InvalidValue, parse_value
from barnabas.config.table import BROKER_TABLE

PREFIX = "listener.name."
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
SERVED_MECHANISMS = (PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)

JAAS = "sasl.jaas.config"  # of a listener's mechanism only: without both the server ignores it
ENABLED, CLIENT_AUTH = "sasl.enabled.mechanisms", "ssl.client.auth"
# Properties that a listener may set for itself.
OF_LISTENER = tuple(
    name
    for name in BROKER_TABLE
    if (name.startswith(("ssl.", "sasl.")) and name != JAAS)
    or name
    in (
        "principal.builder.class",
        "connections.max.reauth.ms",
        "max.connections",
        "max.connection.creation.rate",
        "num.network.threads",
    )
)
# Names of properties in OF_LISTENER that have no effect in Barnabas end in these.
WITHOUT_EFFECT = (".num.network.threads",)
# Properties of a mechanism that are also read without a listener: `plain.connections.max.reauth.ms`.
OF_MECHANISM = (
    "connections.max.reauth.ms",
    "sasl.login.class",
    "sasl.login.callback.handler.class",
    "sasl.server.callback.handler.class",
)
OF_LISTENERS_MECHANISM = (
    *OF_MECHANISM,
    JAAS,
    *(
        name
        for name in OF_LISTENER
        if name.startswith(("sasl.oauthbearer.", "sasl.login.")) and name not in OF_MECHANISM
    ),
)

_SECURITY = "org.apache.kafka.common.security"
VALIDATORS = frozenset(
    {
        f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler",
        f"{_SECURITY}.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",  # its name before Kafka 3.4
    }
)
LOGIN_HANDLERS = frozenset(
    {
        f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
    }
)
# These choose between Java's own implementations, which Barnabas does not have.
JAVAS_OWN = (
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Values by property, and of those that are set the full names. Passwords are in neither `repr` nor messages."""

    values: Mapping[str, Value] = field(repr=False)
    names: Mapping[str, str]

    def name_of(self, name: str) -> str:
        """The full name by which this property is set; its own name if it has its default."""
        return self.names.get(name, name)

    def text(self, name: str) -> str | None:
        """The value of a property that is a text; an empty one is none."""
        value = self.values[name]
        assert value is None or isinstance(value, str)
        return value or None

    def password(self, name: str) -> str | None:
        """The value of a property that is a password, which may be empty; None if it is not set."""
        value = self.values[name]
        assert value is None or isinstance(value, str)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """The value of a property that is a list."""
        value = self.values[name]
        assert value is None or isinstance(value, tuple)
        return tuple(each for each in value or () if each)

    def number(self, name: str) -> int:
        """The value of a property that is a number."""
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def is_true(self, name: str) -> bool:
        """The value of a property that is true or false."""
        return self.values[name] is True


@dataclass(frozen=True, slots=True)
class ListenerSettings(Settings):
    """The properties of one listener."""

    listener: str
    protocol: str
    by_mechanism: Mapping[str, Settings]  # for each enabled mechanism that is served

    @property
    def uses_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """`sasl.enabled.mechanisms`, each once."""
        return tuple(dict.fromkeys(self.texts("sasl.enabled.mechanisms")))

    @property
    def client_auth(self) -> str:
        """none, requested or required."""
        # With SASL_SSL a client is who its SASL login says, so a setting that was meant for SSL listeners is not taken
        # over: it would lock clients out that have no certificate.
        if self.protocol == "SASL_SSL" and self.name_of(CLIENT_AUTH) == CLIENT_AUTH:
            return "none"
        return self.text(CLIENT_AUTH) or "none"

    @property
    def prefix(self) -> str:
        """What the name of a property begins with that is set for this listener alone."""
        return listener_prefix(self.listener)


def listener_prefix(listener: str) -> str:
    """What the name of a property begins with that is set for this listener alone."""
    return f"{PREFIX}{listener.lower()}."


def mechanism_prefix(listener: str, mechanism: str) -> str:
    """What the name of a property begins with that is set for one mechanism of this listener."""
    return f"{listener_prefix(listener)}{mechanism.lower()}."


def read_listener(
    texts: Mapping[str, str], listener: str, protocol: str, problems: list[Problem]
) -> ListenerSettings | None:
    """The settings of a listener, from every property that is set; None, and the reasons in `problems`.

    `texts` has all layers of the configuration, the uppermost value of each name.
    """
    found = _read(texts, {name: (f"{listener_prefix(listener)}{name}", name) for name in OF_LISTENER}, problems)
    if found is None:
        return None
    # A listener without SASL does not look at its mechanisms, so their properties need not be
    # valid.
    enabled = found.texts("sasl.enabled.mechanisms") if protocol.startswith("SASL_") else ()
    by_mechanism = {
        mechanism: _read(texts, _mechanism_names(listener, mechanism), problems)
        for mechanism in enabled
        if mechanism in SERVED_MECHANISMS
    }
    read = {mechanism: settings for mechanism, settings in by_mechanism.items() if settings is not None}
    # If one mechanism is malformed, the listener is not served with the others: the operator meant
    # them all.
    if len(read) < len(by_mechanism):
        return None
    return ListenerSettings(found.values, found.names, listener, protocol, MappingProxyType(read))


def _mechanism_names(listener: str, mechanism: str) -> dict[str, tuple[str, ...]]:
    """For each property of a mechanism the names by which it may be set, the first that is set applies."""
    names = {}
    for name in OF_LISTENERS_MECHANISM:
        # Without a mechanism in its name `sasl.jaas.config` would be read by several, each of
        # which needs a module of its own. Kafka ignores it as well.
        wider = () if name == JAAS else (f"{listener_prefix(listener)}{name}", name)
        of_mechanism = (f"{mechanism.lower()}.{name}",) if name in OF_MECHANISM else ()
        names[name] = (f"{mechanism_prefix(listener, mechanism)}{name}", *of_mechanism, *wider)
    return names


def _read(texts: Mapping[str, str], names: Mapping[str, tuple[str, ...]], problems: list[Problem]) -> Settings | None:
    values = dict[str, Value]()
    found = dict[str, str]()
    before = len(problems)
    for name, candidates in names.items():
        row = BROKER_TABLE[name]
        # The candidates go from the narrowest name to the widest, and the first one that is set
        # applies.
        full = next((each for each in candidates if each in texts), None)
        if full is None:
            values[name] = row.default
            continue
        found[name] = full
        try:
            values[name] = parse_value(row, texts[full])
        except InvalidValue as error:
            problems.append(Problem((full,), str(error)))

    if len(problems) > before:
        return None
    return Settings(MappingProxyType(values), MappingProxyType(found))


# -- rules


def problems_of(settings: ListenerSettings, *, inter_broker: str | None = None) -> list[Problem]:
    """The broken rules of this listener; `inter_broker` is the mechanism that brokers use at it among themselves."""
    problems = [*_class_problems(settings), *_protocol_problems(settings)]
    if settings.uses_sasl and inter_broker is not None and inter_broker not in settings.mechanisms:
        why = (
            "requirement failed: sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when"
            " SASL is used for inter-broker communication"
        )
        problems.append(Problem(("sasl.mechanism.inter.broker.protocol", settings.name_of(ENABLED)), why))
    return problems


SERVED_HERE = f"{', '.join(SERVED_MECHANISMS[:-1])} and {SERVED_MECHANISMS[-1]} are served"


def _protocol_problems(settings: ListenerSettings) -> list[Problem]:
    if not settings.uses_sasl:
        return []
    where = f"the listener {settings.listener} uses {settings.protocol}"
    to_set = f"set {settings.prefix}{ENABLED} ({SERVED_HERE})"
    names = (settings.name_of(ENABLED),)
    if not settings.mechanisms:
        return [Problem(names, f"{where}, and has no mechanism: {to_set}")]
    # A mechanism that is not served is refused at the start. Clients would otherwise meet an error
    # that names no cause.
    unserved = [each for each in settings.mechanisms if each not in SERVED_MECHANISMS]
    if not unserved:
        return []
    named = f"it names {', '.join(unserved)}" if ENABLED in settings.names else "its mechanism is GSSAPI by default"
    return [Problem(names, f"{where}, and {named}, which is not served: {to_set}")]


def _class_problems(settings: ListenerSettings) -> list[Problem]:
    problems = [
        _foreign(settings, "principal.builder.class", "names of users are made by ssl.principal.mapping.rules"),
        _foreign(settings, "ssl.engine.factory.class", "set ssl.keystore.* and ssl.truststore.*"),
    ]
    if settings.uses_sasl:
        problems.append(
            _foreign(settings, "sasl.client.callback.handler.class", f"set the broker's own login in {JAAS}")
        )

    for mechanism, own in settings.by_mechanism.items():
        is_oauth = mechanism == OAUTHBEARER
        users = (
            f"set its users in {JAAS}" if mechanism == PLAIN else "its users are stored by AlterUserScramCredentials"
        )
        instead = f"of Kafka's there is {min(VALIDATORS)}" if is_oauth else users
        problems += [
            _foreign(own, "sasl.login.class", "the built-in login is used"),
            _foreign(own, "sasl.server.callback.handler.class", instead, VALIDATORS if is_oauth else frozenset()),
            _foreign(
                own,
                "sasl.login.callback.handler.class",
                f"of Kafka's there is {min(LOGIN_HANDLERS)}" if is_oauth else f"set the broker's own login in {JAAS}",
                LOGIN_HANDLERS if is_oauth else frozenset(),
            ),
        ]

    return [problem for problem in problems if problem is not None]


def _foreign(settings: Settings, name: str, instead: str, allowed: frozenset[str] = frozenset()) -> Problem | None:
    """The problem of a property that names a Java class which is not built in."""
    value = settings.values[name]
    # A class that is Kafka's default names what is built in here, too.
    if value is None or value == BROKER_TABLE[name].default or value in allowed:
        return None
    full = settings.name_of(name)
    return Problem((full,), f"{full}: the Java class {value} cannot be used: remove it ({instead})")


def warnings_of(settings: ListenerSettings) -> list[str]:
    """What an operator should know about this listener, and what does not keep it from being served."""
    warnings = [
        f"{settings.name_of(name)} has no effect: it is about Java's TLS"
        for name in JAVAS_OWN
        if settings.uses_tls and settings.values[name] != BROKER_TABLE[name].default
    ]
    if settings.protocol == "SASL_SSL" and (settings.text(CLIENT_AUTH) or "none") != settings.client_auth:
        warnings.append(
            f"{CLIENT_AUTH} has no effect on the listener {settings.listener}, which uses SASL_SSL: set"
            f" {settings.prefix}{CLIENT_AUTH} to ask its clients for certificates"
        )
    return warnings


def unused(texts: Iterable[str], listeners: Mapping[str, tuple[str, ...]]) -> list[str]:
    """A warning for each property of a listener or mechanism that nothing reads.

    `listeners` are the names with their enabled mechanisms.
    """
    # A property is used if a listener that exists would read it. Only this finds a misspelt name
    # of a listener.
    read = {f"{listener_prefix(listener)}{name}" for listener in listeners for name in OF_LISTENER} | {
        candidate
        for listener, mechanisms in listeners.items()
        for mechanism in mechanisms
        for candidates in _mechanism_names(listener, mechanism).values()
        for candidate in candidates
    }
    warnings = []
    for name in texts:
        if name == JAAS:
            warnings.append(f"Server config {JAAS} should be prefixed with SASL mechanism name, ignoring config")
        elif name.startswith(PREFIX) and name.endswith(WITHOUT_EFFECT):
            warnings.append(f"{name} has no effect: one thread serves all listeners")
        elif name.startswith(OF_LISTENER_OR_MECHANISM) and name not in read:
            warnings.append(
                f"{name} has no effect: no listener or mechanism of that name is there, or no such property"
            )

    return warnings
