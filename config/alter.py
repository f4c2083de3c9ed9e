"""AlterConfigs and IncrementalAlterConfigs (pure): the changed texts of a resource, and which changes are refused.

There are two steps. `apply_operations` makes the new texts from the old ones. Then `check_topic` or `check_broker`
checks the result as a whole, so that two values that contradict each other are refused in either order.

The row of a broker property says whether it may be changed while brokers run, for one broker or for all. Values are
checked by their rows, by the rules between properties, and by what a running broker can change in one step: a thread
pool, for example, can at most double or halve. Codes and texts are those of a running Kafka 3.9.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.config.attributes import BrokerAttributes
from barnabas.config.describe import LISTENER_PROPERTY, OF_MECHANISM, property_of
from barnabas.config.listener_rules import listener_problems
from barnabas.config.listeners import parse_protocols
from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError
from barnabas.config.property import Effect, InvalidValue, Property, Type, Update, format_value, parse_value
from barnabas.config.rules import RULES
from barnabas.config.table import BROKER_TABLE
from barnabas.wire.errors import ErrorCode, shortened
from barnabas.wire.runtime import STRING_BYTES_MAX

# Security properties that Kafka reads again while it runs, but only if they are set for a single listener.
LISTENER_SECURITY = (
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.key.password", "ssl.keystore.key",
    "ssl.keystore.certificate.chain", "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password",
    "ssl.truststore.certificates",
)  # fmt: skip
# The properties of a single listener that may be set for all brokers; its other ones are set for one broker.
LISTENER_LIMITS = ("max.connections", "max.connection.creation.rate", "num.network.threads")
THREAD_POOLS = (
    "num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir",
    "background.threads",
)  # fmt: skip
FOLLOWS_RETENTION = -2  # the value of log.local.retention.* for "as log.retention.*"
# A broker takes passwords from the metadata store if their names end in these, and no others.
STORED_PASSWORDS = tuple(
    name for name, row in BROKER_TABLE.items() if row.sensitive and row.update is not Update.READ_ONLY
)
WARNINGS_MAX = 10  # a client may set any number of names
CHANGES_MAX = 1000  # of one resource: twice the number of properties; the check takes milliseconds


class Operation(IntEnum):
    """The operations of IncrementalAlterConfigs on one property."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """A change of one property; `operation` may be an unknown number."""

    name: str
    operation: int
    text: str | None


class ConfigRefused(Exception):
    """The error for a whole resource: the code and, where Kafka has one, its message."""

    def __init__(self, code: ErrorCode, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = shortened(message)


# -- from old texts to new ones


def check_changes(changes: Sequence[Change]) -> None:
    """The checks that come first, for every type of resource."""
    if len(changes) > CHANGES_MAX:
        message = f"{len(changes)} properties of one resource are more than {CHANGES_MAX}."
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [change.name for change in changes if change.operation != Operation.DELETE and change.text is None]
    if nulls:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def apply_operations(
    current: Mapping[str, str], changes: Sequence[Change], rows: Callable[[str], Property | None]
) -> dict[str, str]:
    """The texts after these changes, in order. Each change has another property."""
    texts = dict(current)
    for change in changes:
        text = change.text or ""
        if change.operation == Operation.SET:
            texts[change.name] = text
        elif change.operation == Operation.DELETE:
            texts.pop(change.name, None)
        elif change.operation in (Operation.APPEND, Operation.SUBTRACT):
            texts[change.name] = _change_list(texts.get(change.name), change, rows(change.name))
        else:
            raise ConfigRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    return texts


def _change_list(current: str | None, change: Change, row: Property | None) -> str:
    """The text of a list after APPEND or SUBTRACT, which start from Kafka's default if the list is not set.

    An element that exists is not added again; SUBTRACT removes one occurrence.
    """
    if row is None:
        raise ConfigRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    if row.type is not Type.LIST:
        verb = Operation(change.operation).name.lower()
        message = f"Config value {verb} is not allowed for config key: {change.name}"
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, message)

    elements = _split(format_value(row.default) or "" if current is None else current)
    if change.operation == Operation.APPEND:
        known = frozenset(elements)
        text = ",".join([*elements, *(each for each in (change.text or "").split(",") if each not in known)])

        # A longer text fits no response: a client that described the configuration would lose its
        # connection.
        if len(text.encode()) > STRING_BYTES_MAX:
            message = f"{change.name} would be longer than {STRING_BYTES_MAX} bytes."
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
        return text

    unwanted = Counter(_split(change.text or ""))
    left = []
    for each in elements:
        if unwanted[each]:
            unwanted[each] -= 1
        else:
            left.append(each)

    return ",".join(left)


def _split(text: str) -> list[str]:
    """The elements of a list."""
    # As in Java's `split`, empty elements at the end are left out.
    stripped = text.rstrip(",")
    return stripped.split(",") if stripped else []


# -- topics


def check_topic(config: BrokerConfig, topic: str, texts: Mapping[str, str]) -> None:
    """Raise ConfigRefused if a topic cannot have these properties."""
    for problem in config.topic_problems(texts):
        text = problem.text
        if problem.of_value:
            text = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{topic}'): {text}"
        raise ConfigRefused(ErrorCode.INVALID_CONFIG, text)


# -- brokers


def check_broker(config: BrokerConfig, texts: Mapping[str, str], *, broker_name: str) -> None:
    """Raise ConfigRefused if a broker, or with an empty name all brokers, cannot get these properties at run time."""
    _check_names(texts, per_broker=bool(broker_name))
    layers = {source.value: dict(layer) for source, layer in config.layers()}
    layers["per-broker" if broker_name else "cluster-wide"] = dict(texts)
    try:
        after = config.as_it_would_be(cluster_wide=layers["cluster-wide"], per_broker=layers["per-broker"])
    except ConfigError as error:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, error.problems[0]) from None

    for rule in RULES:
        if not rule.holds(after):
            raise ConfigRefused(ErrorCode.INVALID_REQUEST, f"requirement failed: {rule.otherwise}")
    for problem in listener_problems(after):
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, problem.why)
    for complaint in _runtime_complaints(config, after, texts):
        message = (
            f"Invalid value org.apache.kafka.common.config.ConfigException: {complaint}"
            " for configuration Invalid dynamic configuration"
        )
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)


def refuse_password(why: str, *, broker_name: str) -> ConfigRefused:
    """The error of a password that cannot be stored."""
    resource = f"ConfigResource(type=BROKER, name='{broker_name}')"
    return ConfigRefused(ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {resource}: {why}")


def is_stored_password(name: str) -> bool:
    """Whether the value of a broker property is encoded in the metadata store."""
    # The end of the name decides, as in Kafka. Before it may stand a listener, and a mechanism.
    return name.endswith(STORED_PASSWORDS)


def broker_warnings(texts: Mapping[str, str]) -> list[str]:
    """A warning for each of these broker properties that has no effect; the values are valid."""
    quiet = []
    for name, text in texts.items():
        row = property_of(name)
        if row is None:
            quiet.append(f"{name} is not a known property")
        elif row.effect is not Effect.SERVED and (name not in BROKER_TABLE or parse_value(row, text) != row.default):
            quiet.append(f"{name} has no effect in this version")
    if len(quiet) > WARNINGS_MAX:
        quiet[WARNINGS_MAX:] = [f"{len(quiet) - WARNINGS_MAX} more properties have no effect"]
    return quiet


def usable_part(texts: Mapping[str, str], *, per_broker: bool) -> dict[str, str]:
    """The stored broker properties that this version may apply; another version may have written others."""
    usable = {}
    for name, text in texts.items():
        try:
            _check_names({name: text}, per_broker=per_broker)
        except ConfigRefused:
            continue
        usable[name] = text
    return usable


def _check_names(texts: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigRefused for a property that may not be changed here, or a value of another type."""
    fixed = [name for name in texts if _is_fixed(name)]
    if fixed:
        message = f"Cannot update these configs dynamically: Set({', '.join(fixed)})"
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)
    unprefixed = [name for name in LISTENER_SECURITY if name in texts]
    if unprefixed:
        message = (
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"HashSet({', '.join(unprefixed)})"
        )
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)

    for name, text in texts.items():
        row = property_of(name)
        if row is not None:
            _check_value(row, text)

    alone = [] if per_broker else [name for name in texts if _is_one_brokers(name)]
    if alone:
        message = (
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"Set({', '.join(alone)})"
        )
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)


def _is_fixed(name: str) -> bool:
    if name in BROKER_TABLE:
        return BROKER_TABLE[name].update is Update.READ_ONLY
    # Such a property is a secret of the whole broker with the prefix of a listener. Kafka does not
    # refuse it, and stores it without encoding.
    row = property_of(name)
    return row is not None and row.sensitive and not is_stored_password(name)


def _check_value(row: Property, text: str) -> None:
    try:
        value = parse_value(row, text)
    except InvalidValue as error:
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, str(error)) from None
    if row.type is Type.CLASS and value != row.default:
        message = f"Invalid value {value} for configuration {row.name}: Class {value} could not be found."
        raise ConfigRefused(ErrorCode.INVALID_REQUEST, message)


def _is_one_brokers(name: str) -> bool:
    listener_property = LISTENER_PROPERTY.fullmatch(name)
    if listener_property:
        return listener_property[1] not in LISTENER_LIMITS
    # These are properties of a mechanism at all listeners. This broker cannot check them for other
    # brokers, whose next start could fail.
    if name.partition(".")[2] in OF_MECHANISM and not is_stored_password(name):
        return True
    return name in BROKER_TABLE and BROKER_TABLE[name].update is Update.PER_BROKER


# -- limits of a change at run time


def _runtime_complaints(before: BrokerConfig, after: BrokerAttributes, texts: Mapping[str, str]) -> list[str]:
    """The changes that a running broker cannot make in one step, with Kafka's messages."""
    return [
        *_thread_complaints(before, after),
        *_cleaner_complaints(before, after),
        *_connection_complaints(after, texts),
        *_local_retention_complaints(after),
        *listener_complaints(before, after),
        *_class_complaints(before, after),
    ]


def _thread_complaints(before: BrokerConfig, after: BrokerAttributes) -> list[str]:
    complaints = []
    for name in THREAD_POOLS:
        attribute = BROKER_TABLE[name].attribute
        old = int(getattr(before, attribute))
        new = int(getattr(after, attribute))
        failed = f"Dynamic thread count update validation failed for {name}={new}, value should"
        if new < 1:
            complaints.append(f"{failed} be at least 1")
        elif new < old // 2:
            complaints.append(f"{failed} be at least half the current value {old}")
        elif new > old * 2:
            complaints.append(f"{failed} not be greater than double the current value {old}")
    return complaints


def _cleaner_complaints(before: BrokerConfig, after: BrokerAttributes) -> list[str]:
    old = before.log_cleaner_threads
    new = after.log_cleaner_threads
    if new == old:  # none, if the cleaner is disabled
        return []
    if new < 1:
        return ["Log cleaner threads should be at least 1"]
    if new < old // 2:
        return [f"Log cleaner threads cannot be reduced to less than half the current value {old}"]
    if new > old * 2:
        return [f"Log cleaner threads cannot be increased to more than double the current value {old}"]
    return []


def _connection_complaints(after: BrokerAttributes, texts: Mapping[str, str]) -> list[str]:
    limits = {
        "max.connections": after.max_connections,
        "max.connection.creation.rate": after.max_connection_creation_rate,
    }
    for name, text in texts.items():
        match = LISTENER_PROPERTY.fullmatch(name)
        if match and match[1] in limits:
            limits[match[1]] = min(limits[match[1]], int(text))
    return [f"Invalid {name} {limit}" for name, limit in limits.items() if limit <= 0]


def _local_retention_complaints(after: BrokerAttributes) -> list[str]:
    retention_ms = next(
        value
        for value in (
            after.log_retention_ms,
            None if after.log_retention_minutes is None else after.log_retention_minutes * 60_000,
            after.log_retention_hours * 3_600_000,
        )
        if value is not None
    )
    pairs = (
        ("log.local.retention.ms", after.log_local_retention_ms, "log.retention.ms", retention_ms),
        (
            "log.local.retention.bytes",
            after.log_local_retention_bytes,
            "log.retention.bytes",
            after.log_retention_bytes,
        ),
    )
    complaints = []
    for local_name, local, name, whole in pairs:
        wrong = f"Invalid value {local} for configuration {local_name}: Value must not be"
        if whole < 0 or local == FOLLOWS_RETENTION:
            continue
        if local == -1:
            complaints.append(f"{wrong} -1 as {name} value is set as {whole}.")
        elif local > whole:
            complaints.append(f"{wrong} more than {name} property value: {whole}")

    return complaints


def listener_complaints(before: BrokerConfig, after: BrokerAttributes) -> list[str]:
    """What a running broker cannot change of its listeners. ValueError for a malformed map of protocols."""
    # Addresses are bound only at the start. Kafka can bind others at run time.
    if after.listeners != before.listeners:
        return ["listeners cannot change while this broker runs: set them in its properties file and start it again"]
    # The next start would use the changed protocol: a listener would have lost its login, or would
    # lack the key that TLS needs.
    protocols = parse_protocols(after.listener_security_protocol_map)
    return [
        f"Security protocol cannot be updated for existing listener ListenerName({endpoint.listener})"
        for endpoint in before.listener_endpoints
        if protocols.get(endpoint.listener) != endpoint.protocol
    ]


def _class_complaints(before: BrokerConfig, after: BrokerAttributes) -> list[str]:
    # The reporters of server.properties have no effect, of which the start warns, and must not
    # prevent other changes.
    if after.metric_reporters in ((), before.metric_reporters):
        return []
    return [
        "Validation of dynamic config update of Set(metric.reporters) failed with class class "
        "kafka.server.DynamicMetricsReporters"
    ]
