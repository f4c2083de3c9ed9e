"""The configuration while the broker runs: typed attributes that code reads at each use and never copies.

`BrokerConfig` has every broker property as an attribute (`config.log_segment_bytes`). Its value comes from layers:
Kafka's defaults, our deviations, the file and the command line, then the values set at run time for the whole cluster
or for this broker. `config.topic(overrides)` is a `TopicConfig`: the values of the broker, overridden by those of the
topic, in plain slots, because they are read at every append. Both are refreshed in place, so a reader that keeps the
object gets a change at its next read. A change is checked as a whole before any of it is visible.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from barnabas.config import kraft
from barnabas.config.attributes import BrokerAttributes, TopicAttributes
from barnabas.config.checks import LONG_MAX, Value
from barnabas.config.listeners import Endpoint, parse_connection_limits, parse_endpoints, parse_protocols
from barnabas.config.parse import (
    ARGUMENT,
    OF_LISTENER_OR_MECHANISM,
    ConfigError,
    Setting,
    nearest_known,
    parse_settings,
    settings_of,
)
from barnabas.config.property import Effect, InvalidValue, Property, attribute_name, format_value, parse_value
from barnabas.config.rules import find_problems
from barnabas.config.table import BROKER_TABLE, TOPIC_SETS, TOPIC_TABLE, broker_defaults

UNLIMITED_RETENTION_MS = -1
INTER_BROKER = ("inter.broker.listener.name", "security.inter.broker.protocol")  # two properties for the same setting
PASSWORDS = tuple(name for name, row in BROKER_TABLE.items() if row.sensitive)  # compared with the ends of names

LIMITS_OF_LISTENER = ("max.connections", "max.connection.creation.rate")  # a listener may have its own

Anything = TypeVar("Anything")


class Source(Enum):
    """The layer that a value comes from."""

    DEFAULT = "default"
    STATIC = "static"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"


class Entry(NamedTuple):
    """One property with its current value: for `barnabas config` and DescribeConfigs."""

    row: Property
    value: Value
    default: Value
    source: Source
    origin: str | None  # "server.properties:12" or "--set"

    @property
    def text(self) -> str | None:
        """The value as text; None if there is none, or if it must not be shown."""
        return None if self.row.sensitive else format_value(self.value)


class BrokerConfig(BrokerAttributes):
    """Every broker property as an attribute, checked. ConfigError has all problems and their places."""

    def __init__(self, values: Mapping[str, str] | Iterable[Setting] = ()) -> None:
        settings = settings_of(values) if isinstance(values, Mapping) else list(values)
        # The last one of several settings with one name wins, here and in the values alike.
        self._origins = {setting.name: setting.origin for setting in settings}
        settings, left_out = _without_controllers_listeners(settings)
        self._static, unknown = parse_settings(settings)
        self._unknown = unknown + left_out
        self._static_texts = {setting.name: setting.text.strip() for setting in settings}
        _set_both_ids(self._static)
        _set_both_ids(self._static_texts)
        self._cluster_wide: dict[str, str] = {}
        self._per_broker: dict[str, str] = {}
        self._defaults = self._default_values()
        self._layers: tuple[tuple[Source, Mapping[str, str]], ...] = ()
        # The views of topics are weak, so that one that its log has dropped need not be removed
        # here.
        self._topics: WeakKeyDictionary[TopicConfig, None] = WeakKeyDictionary()
        self._topic_defaults: dict[str, Value] = {}
        self._plain: dict[str, Value] = {}  # property -> its value in the uppermost layer that sets it
        self._values: dict[str, Value] = {}  # the same, after the influence of properties on each other
        # This check comes before the rules: a broken rule about a property that is not served
        # would mislead an operator.
        self._refuse_what_is_not_served()
        self._refresh(self._plain_values({}, {}))
        self._layers = self._built_layers()
        self._refuse_malformed_limits()

    # -- values that follow from several properties

    @property
    def log_directories(self) -> tuple[str, ...]:
        """The data directories: `log.dirs`, or `log.dir`."""
        # `log.dirs` wins if both are set, as in Kafka.
        text = self.log_dir if self.log_dirs is None else self.log_dirs
        return tuple(part.strip() for part in text.split(",") if part.strip())

    @property
    def listener_endpoints(self) -> tuple[Endpoint, ...]:
        """The addresses to listen on."""
        return parse_endpoints(self.listeners, parse_protocols(self.listener_security_protocol_map))

    @property
    def advertised_endpoints(self) -> tuple[Endpoint, ...] | None:
        """The addresses in `advertised.listeners`; None if it is not set, so that the bound ones are advertised."""
        if not self.advertised_listeners:
            return None
        return parse_endpoints(self.advertised_listeners, parse_protocols(self.listener_security_protocol_map))

    @property
    def inter_broker_listener(self) -> str:
        """The name of the listener that brokers use among themselves."""
        return (self.inter_broker_listener_name or self.security_inter_broker_protocol).upper()

    @property
    def control_plane_listener(self) -> str:
        """The name of the listener for requests between the controller and the brokers, in both directions."""
        return (self.control_plane_listener_name or self.inter_broker_listener).upper()

    @property
    def connection_limits(self) -> dict[str, int]:
        """Host or address -> its limit of connections; for others it is `max_connections_per_ip`."""
        return parse_connection_limits(self.max_connections_per_ip_overrides)

    def bytes_per_second(self, name: str) -> int:
        """One of the rates in MOVE_TABLE, which are set at run time: this broker's, or the one for all brokers."""
        text = self._per_broker.get(name, self._cluster_wide.get(name))
        return LONG_MAX if text is None else int(text)

    @property
    def alter_log_dirs_bytes_per_second(self) -> int:
        """`replica.alter.log.dirs.io.max.bytes.per.second`."""
        return self.bytes_per_second("replica.alter.log.dirs.io.max.bytes.per.second")

    def is_brokers_own(self, listener: str) -> bool:
        """Whether brokers have this listener to themselves, beside others for clients."""
        # Limits count a connection before its login, so they cannot tell brokers from clients on a
        # listener that both share.
        return listener == self.inter_broker_listener and len(self.listener_endpoints) > 1

    def connections_max(self, listener: str) -> int:
        """How many connections this listener may have: its own `max.connections`, or the broker's."""
        return self._of_listener(listener, "max.connections")

    def connections_per_second(self, listener: str) -> int:
        """How many a second this listener accepts: its own `max.connection.creation.rate`, or the broker's."""
        return self._of_listener(listener, "max.connection.creation.rate")

    def _of_listener(self, listener: str, name: str) -> int:
        full = f"listener.name.{listener.lower()}.{name}"
        # The layers are in the order of their precedence, so the first one that has the name
        # decides.
        text = next((layer[full] for _, layer in self._layers if full in layer), None)
        return _number(self._values[name] if text is None else parse_value(BROKER_TABLE[name], text))

    # -- changes at run time

    def update(self, *, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> None:
        """Override the static configuration with these values. After a ConfigError nothing has changed.

        Unknown names are kept for DescribeConfigs and have no effect.
        """
        self._refresh(self._plain_values(cluster_wide, per_broker))
        # These are set after the refresh, which raises if a value is wrong.
        self._cluster_wide, self._per_broker = dict(cluster_wide), dict(per_broker)
        self._layers = self._built_layers()

    def as_it_would_be(self, *, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> BrokerAttributes:
        """All attributes as after `update`, without a check of the rules. ConfigError for a malformed value."""
        return _attributes(_resolved(self._plain_values(cluster_wide, per_broker)))

    def _plain_values(self, cluster_wide: Mapping[str, str], per_broker: Mapping[str, str]) -> dict[str, Value]:
        for_all, _ = parse_settings(settings_of(_known(cluster_wide), "cluster-wide"))
        for_one, _ = parse_settings(settings_of(_known(per_broker), "per-broker"))
        return self._defaults | self._static | for_all | for_one

    def _refresh(self, plain: dict[str, Value]) -> None:
        values = _resolved(plain)
        candidate = _attributes(values)
        problems = find_problems(candidate)
        if problems:
            raise ConfigError(self.located(problem.why, *problem.names) for problem in problems)
        _resolve_unlimited(candidate)
        # All rules were checked on the candidate, and this is one step: no reader sees new values
        # beside old ones, and after a ConfigError nothing has changed.
        vars(self).update(vars(candidate))
        self._plain = plain
        self._values = values
        before, self._topic_defaults = self._topic_defaults, _topic_defaults(values)
        # Most changes touch no topic: then `changed` is empty, and the loop costs little for each
        # topic.
        changed = {name: value for name, value in self._topic_defaults.items() if before.get(name) != value}
        for topic in self._topics:
            topic.follow(changed)

    def _default_values(self) -> dict[str, Value]:
        return broker_defaults(embedded_store=self._static.get("zookeeper.connect") is None)

    # -- for the operator

    def warnings(self) -> list[str]:
        """Warnings for the operator: settings that are unknown, or known and without effect."""
        quiet = [
            self.located(f"{name} has no effect in this version", name)
            for name, value in self._static.items()
            # A property that is set to its default needs no warning: files that come with Kafka set
            # many so.
            if BROKER_TABLE[name].effect is Effect.ACCEPTED and value != self._defaults[name]
        ]
        exposed = [
            self.located(f"{name} is a password, and every user of this machine can list arguments: use a file", name)
            for name, origin in self._origins.items()
            if origin == ARGUMENT and name.endswith(PASSWORDS)
        ]
        return self._unknown + quiet + exposed + self._unused_by_listeners()

    def _unused_by_listeners(self) -> list[str]:
        """A warning for each property of a single listener or mechanism that nothing reads."""
        texts = self._static_texts
        if not any(name.startswith(OF_LISTENER_OR_MECHANISM) or name == "sasl.jaas.config" for name in texts):
            return []
        # The import is here, because few brokers have such properties, and start-up must be fast.
        from barnabas.config.listener_settings import read_listener, unused

        mechanisms = {}
        for endpoint in self.listener_endpoints:
            settings = read_listener(texts, endpoint.listener, endpoint.protocol, [])
            mechanisms[endpoint.listener] = settings.mechanisms if settings is not None and settings.uses_sasl else ()
        return [self.located(warning, warning.split()[0]) for warning in unused(texts, mechanisms)]

    def entries(self) -> Iterator[Entry]:
        """Every property with its current value, in the table's order."""
        for name, row in BROKER_TABLE.items():
            # The values in effect are shown: some properties change the values of others.
            yield Entry(row, self._values[name], self._defaults[name], self.source_of(name), self._origins.get(name))

    def plain_value(self, name: str) -> Value:
        """The value that this property is set to, or its default, without the influence of other properties."""
        return self._plain[name]

    def layers(self) -> tuple[tuple[Source, Mapping[str, str]], ...]:
        """Every layer with its texts, unknown names included, the uppermost layer first; defaults come last."""
        return self._layers

    def _built_layers(self) -> tuple[tuple[Source, Mapping[str, str]], ...]:
        defaults = {name: format_value(value) for name, value in self._defaults.items()}
        return (
            (Source.PER_BROKER, self._per_broker),
            (Source.CLUSTER_WIDE, self._cluster_wide),
            (Source.STATIC, self._static_texts),
            (Source.DEFAULT, {name: text for name, text in defaults.items() if text is not None}),
        )

    def source_of(self, name: str) -> Source:
        """The layer that the value of this broker property comes from."""
        layers = (
            (Source.PER_BROKER, self._per_broker),
            (Source.CLUSTER_WIDE, self._cluster_wide),
            (Source.STATIC, self._static),
        )
        return next((source for source, layer in layers if name in layer), Source.DEFAULT)

    def _refuse_what_is_not_served(self) -> None:
        problems = [
            self.located(f"{name} is not served by this version: remove it ({BROKER_TABLE[name].doc})", name)
            for name, value in self._static.items()
            if BROKER_TABLE[name].effect is Effect.REFUSED
            and value != self._defaults[name]
            # The properties in `kraft.QUORUM` are explained together, by one message about KRaft.
            and name not in kraft.QUORUM
        ]
        of_kraft = kraft.refusal(self._static_texts, self._origins)
        if of_kraft is not None:
            problems.append(self.located(of_kraft, *kraft.QUORUM))
        if self._static.keys() >= set(INTER_BROKER):
            why = f"Only one of {' and '.join(INTER_BROKER)} should be set."
            problems.append(self.located(why, *INTER_BROKER))
        if problems:
            raise ConfigError(problems)

    def _refuse_malformed_limits(self) -> None:
        problems = []
        for endpoint in self.listener_endpoints:
            for name in LIMITS_OF_LISTENER:
                try:
                    self._of_listener(endpoint.listener, name)
                except InvalidValue as error:
                    problems.append(self.located(str(error), f"listener.name.{endpoint.listener.lower()}.{name}"))
        if problems:
            raise ConfigError(problems)

    def located(self, why: str, *names: str) -> str:
        """`why`, after the place of the first of these properties that is set."""
        return next((f"{self._origins[name]}: {why}" for name in names if name in self._origins), why)

    def origin_of(self, name: str) -> str | None:
        """The place in the file or on the command line where this property is set."""
        return self._origins.get(name)

    # -- topics

    def topic(self, overrides: Mapping[str, str] | None = None) -> "TopicConfig":
        """A view for one topic, refreshed as long as it is referenced."""
        view = TopicConfig(self, overrides or {})
        self._topics[view] = None
        return view

    def topic_defaults(self) -> Mapping[str, Value]:
        """Attribute -> the value that a topic has when it sets none."""
        return self._topic_defaults

    def validate_topic_configs(self, overrides: Mapping[str, str]) -> list[str]:
        """The problems of these topic properties, as Kafka's messages; Kafka answers the first one."""
        return [problem.text for problem in self.topic_problems(overrides)]

    def topic_problems(self, overrides: Mapping[str, str]) -> list["TopicProblem"]:
        """The problems of these topic properties, each with its kind."""
        unknown = [name for name in overrides if name not in TOPIC_TABLE]
        if unknown:
            return [TopicProblem(f"Unknown topic config name: {name}", of_value=False) for name in unknown]
        errors = []
        values = dict(self._topic_defaults)
        for name, row in TOPIC_TABLE.items():
            if name in overrides:
                try:
                    values[row.attribute] = parse_value(row, overrides[name])
                except InvalidValue as error:
                    errors.append(TopicProblem(str(error), of_value=True))
        # The rules between properties need values that are valid by themselves.
        return errors or _topic_conflicts(values)


class TopicProblem(NamedTuple):
    """A reason to refuse topic properties."""

    text: str
    of_value: bool  # one value is wrong by itself: AlterConfigs then puts the name of the topic before the text


DERIVED_FROM = ("cleanup_policy", "message_timestamp_before_max_ms", "message_timestamp_difference_max_ms")


class TopicConfig(TopicAttributes):
    """The properties of one topic as plain attributes: the values of the broker, overridden by those of the topic."""

    __slots__ = ("__weakref__", "_broker", "_own", "compacted", "deletes", "overrides", "producer_id_expiration_ms")

    compacted: bool  # cleanup.policy names compact
    deletes: bool  # cleanup.policy names delete
    producer_id_expiration_ms: int  # a broker property that the log layer needs beside the topic's
    overrides: dict[str, str]

    def __init__(self, broker: BrokerConfig, overrides: Mapping[str, str]) -> None:
        self._broker = broker
        self.update(overrides)

    def update(self, overrides: Mapping[str, str]) -> None:
        """Replace the topic's own properties. InvalidValue for a malformed one; nothing has changed then.

        Unknown names are kept and ignored: a newer broker of the cluster may have written them.
        """
        own: dict[str, Value] = {}
        for name, text in overrides.items():
            row = TOPIC_TABLE.get(name)
            if row is not None:
                own[row.attribute] = parse_value(row, text)

        # Everything above may raise; from here on nothing does, so a topic never has half of a
        # change.
        self._own = own.keys()
        for attribute, value in {**self._broker.topic_defaults(), **own}.items():
            setattr(self, attribute, value)
        self.overrides = dict(overrides)
        # These lists are asked whether they have a word, which a set answers in one step.
        for attribute in TOPIC_SETS:
            setattr(self, attribute, frozenset(getattr(self, attribute)))
        self.compacted = "compact" in self.cleanup_policy
        self.deletes = "delete" in self.cleanup_policy
        if self.message_timestamp_before_max_ms == LONG_MAX:  # the older property applies if the newer one is not set
            self.message_timestamp_before_max_ms = self.message_timestamp_difference_max_ms
        self.producer_id_expiration_ms = self._broker.producer_id_expiration_ms

    def follow(self, changed: Mapping[str, Value]) -> None:
        """Take over the changed values of the broker."""
        # Only the changed values are set, because there may be thousands of topics.
        if any(attribute in changed for attribute in DERIVED_FROM):
            self.update(self.overrides)
            return
        for attribute, value in changed.items():
            if attribute not in self._own:
                setattr(self, attribute, value)
        self.producer_id_expiration_ms = self._broker.producer_id_expiration_ms


def topic_warnings(overrides: Mapping[str, str]) -> list[str]:
    """A warning for each of these topic properties that has no effect; the values are valid."""
    quiet = []
    for name, text in overrides.items():
        row = TOPIC_TABLE.get(name)
        if row is None:
            quiet.append(f"{name} is not a known topic property{nearest_known(name, TOPIC_TABLE)}")
        elif row.effect is not Effect.SERVED and parse_value(row, text) != row.default:
            quiet.append(f"{name} has no effect in this version")
    return quiet


def _without_controllers_listeners(settings: list[Setting]) -> tuple[list[Setting], list[str]]:
    """The settings without the listeners of a KRaft controller, and a warning for each of these."""
    # A file for KRaft in combined mode names the controller's listeners beside those of the broker.
    names = kraft.controllers_listeners({setting.name: setting.text for setting in settings})
    kept = list(settings)
    warnings = []
    for number, setting in enumerate(settings):
        if names and setting.name in kraft.LISTENERS:
            kept[number] = setting._replace(text=kraft.without(setting.text, names))
            for name in kraft.named_in(setting.text, names):
                why = f"{setting.name} has {name}, which is left out: Barnabas has no KRaft controller"
                warnings.append(setting.problem(f"{why} ({kraft.NAMES})"))
    return kept, warnings


def _known(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts of known properties."""
    # Clients may set any number of unknown names, and the search for similar known ones takes long.
    return {name: text for name, text in texts.items() if name in BROKER_TABLE}


def _set_both_ids(layer: dict[str, Anything]) -> None:
    """Set both `broker.id` and `node.id`, which are the same setting, if one of them is set."""
    for name, other in (("broker.id", "node.id"), ("node.id", "broker.id")):
        if name in layer:
            # If both are set, each keeps its own value, and a rule compares them.
            layer.setdefault(other, layer[name])


def _attributes(values: Mapping[str, Value]) -> BrokerAttributes:
    attributes = BrokerAttributes()
    vars(attributes).update((attribute_name(name), value) for name, value in values.items())
    return attributes


def _resolved(plain: Mapping[str, Value]) -> dict[str, Value]:
    """The values after the influence of properties on each other."""
    values = dict(plain)
    _apply_other_names(values)
    return values


def _apply_other_names(values: dict[str, Value]) -> None:
    """Properties whose default is another property."""
    if values["zookeeper.connection.timeout.ms"] is None:
        values["zookeeper.connection.timeout.ms"] = values["zookeeper.session.timeout.ms"]
    # The older property applies as long as the newer one has its default (KIP-937).
    if values["log.message.timestamp.before.max.ms"] == LONG_MAX:
        values["log.message.timestamp.before.max.ms"] = values["log.message.timestamp.difference.max.ms"]


def _resolve_unlimited(config: BrokerAttributes) -> None:
    """Replace Kafka's -1 for "no limit" by a number that nothing reaches, so that readers just compare."""
    if config.connections_max_idle_ms < 0:
        config.connections_max_idle_ms = LONG_MAX


def _number(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _topic_defaults(values: Mapping[str, Value]) -> dict[str, Value]:
    """Attribute -> the value of a topic without properties of its own, for these values of the broker."""
    defaults = {row.attribute: _topic_default(row, values) for row in TOPIC_TABLE.values()}
    if _number(defaults["retention_ms"]) < 0:
        defaults["retention_ms"] = UNLIMITED_RETENTION_MS
    return defaults


def _topic_default(row: Property, values: Mapping[str, Value]) -> Value:
    for synonym, factor in row.synonyms:
        value = values[synonym]
        if isinstance(value, int) and factor != 1:
            return value * factor
        # Kafka's synonyms go from the exact unit to coarser ones: `log.retention.ms`, minutes,
        # hours. The first that is set applies.
        if value is not None:
            return value
    return row.default


def _topic_conflicts(values: Mapping[str, Value]) -> list[TopicProblem]:
    conflicts = []
    shortest = _number(values["min_compaction_lag_ms"])
    longest = _number(values["max_compaction_lag_ms"])
    if shortest > longest:
        text = f"conflict topic config setting min.compaction.lag.ms ({shortest}) > max.compaction.lag.ms ({longest})"
        conflicts.append(TopicProblem(text, of_value=False))
    if values["remote_storage_enable"]:
        text = (
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
        conflicts.append(TopicProblem(text, of_value=True))

    if values["remote_log_copy_disable"] or values["remote_log_delete_on_disable"]:
        text = (
            "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
        )
        conflicts.append(TopicProblem(text, of_value=False))

    return conflicts
