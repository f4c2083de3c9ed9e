"""The rows of DescribeConfigs and of the response to CreateTopics: each property's value, its source, its synonyms.

The *synonyms* of a value are all layers that set it, the one that applies first (KIP-226): for a topic its own value,
then the value of its broker property that is set for this broker, for all brokers, in the file, and by default.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.config.live import BrokerConfig, Source
from barnabas.config.property import Property, Update, format_value, parse_value
from barnabas.config.table import BROKER_TABLE, MOVE_TABLE, TOPIC_TABLE

# Groups of properties of which the first one that is set applies.
STAND_INS = {
    "log.roll.ms": ("log.roll.ms", "log.roll.hours"),
    "log.roll.hours": ("log.roll.ms", "log.roll.hours"),
    "log.roll.jitter.ms": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    "log.retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.minutes": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "log.retention.hours": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
}
LISTENER_PROPERTY = re.compile(r"listener\.name\.[^.]*\.(.*)")
# Properties that a listener has for each mechanism: `listener.name.outside.plain.sasl.jaas.config`.
OF_MECHANISM = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
UNKNOWN_TYPE = 0


class ConfigSource(IntEnum):
    """Kafka's numbers for the source of a value."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


_SOURCES = {
    Source.PER_BROKER: ConfigSource.DYNAMIC_BROKER,
    Source.CLUSTER_WIDE: ConfigSource.DYNAMIC_DEFAULT_BROKER,
    Source.STATIC: ConfigSource.STATIC_BROKER,
    Source.DEFAULT: ConfigSource.DEFAULT,
}


class Synonym(NamedTuple):
    """One layer that sets the value."""

    name: str
    text: str | None
    source: ConfigSource


class Described(NamedTuple):
    """One property as in a response."""

    name: str
    text: str | None  # None if there is no value, or if it must not be shown
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    type: int
    doc: str | None
    synonyms: tuple[Synonym, ...]


# The functions below are generators, because all their rows together take milliseconds: the caller
# has checkpoints between rows.


def describe_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> Iterator[Described]:
    """Every property that a topic with these overrides has."""
    for row in TOPIC_TABLE.values():
        yield _describe_topic_property(config, overrides, row)


def describe_broker(config: BrokerConfig) -> Iterator[Described]:
    """Every property of this broker, and the unknown ones that are set for it."""
    set_somewhere = [name for source, layer in config.layers() if source is not Source.DEFAULT for name in layer]
    public = [name for name, row in BROKER_TABLE.items() if not row.internal]
    for name in dict.fromkeys((*public, *set_somewhere)):
        yield _describe_broker_property(config, name)


def describe_cluster_wide(config: BrokerConfig) -> Iterator[Described]:
    """The properties that are set for all brokers, without other layers."""
    layer = dict(config.layers())[Source.CLUSTER_WIDE]
    for name in layer:
        one = _describe_broker_property(config, name)
        synonyms = tuple(each for each in one.synonyms if each.source is ConfigSource.DYNAMIC_DEFAULT_BROKER)
        text = None if one.is_sensitive else layer[name]
        yield one._replace(text=text, source=_first_source(synonyms), synonyms=synonyms)


def property_of(name: str) -> Property | None:
    """The row of a broker property; for one of a listener or mechanism, the row of the general property."""
    return BROKER_TABLE.get(general_name(name)) or MOVE_TABLE.get(name)


def general_name(name: str) -> str:
    """The name of the general property, for a property of a single listener or of its mechanism."""
    listener_property = LISTENER_PROPERTY.fullmatch(name)
    if listener_property is None:
        return name
    own = listener_property[1]
    return next((general for general in OF_MECHANISM if own.endswith(general)), own)


def _describe_topic_property(config: BrokerConfig, overrides: Mapping[str, str], row: Property) -> Described:
    synonyms: list[Synonym] = []
    value = config.topic_defaults()[row.attribute]
    if row.name in overrides:
        value = parse_value(row, overrides[row.name])
        synonyms.append(Synonym(row.name, format_value(value), ConfigSource.TOPIC))
    if row.synonyms:
        synonyms += _broker_synonyms(config, row.synonyms[0][0], is_sensitive=row.sensitive)
    return Described(
        row.name,
        format_value(value),
        _first_source(synonyms),
        read_only=False,
        is_sensitive=row.sensitive,
        type=row.type,
        doc=row.doc,
        synonyms=tuple(synonyms),
    )


def _describe_broker_property(config: BrokerConfig, name: str) -> Described:
    row = property_of(name)
    own = BROKER_TABLE.get(name)
    is_sensitive = row is None or row.sensitive  # hidden: an unknown property may hold a secret
    synonyms = tuple(_broker_synonyms(config, name, is_sensitive=is_sensitive))
    text = None
    if own is not None and not is_sensitive:
        text = format_value(own.default if _is_displaced(config, name) else config.plain_value(name))
    elif not is_sensitive:
        text = next((each.text for each in synonyms if each.name == name), None)

    return Described(
        name,
        text,
        _first_source(synonyms),
        read_only=own is None or own.update is Update.READ_ONLY,
        is_sensitive=is_sensitive,
        type=UNKNOWN_TYPE if row is None else row.type,
        doc=None if row is None else row.doc,
        synonyms=synonyms,
    )


def _is_displaced(config: BrokerConfig, name: str) -> bool:
    """Whether a dynamic value of another property overrides the static value of this one."""
    dynamic = [layer for source, layer in config.layers() if source in (Source.PER_BROKER, Source.CLUSTER_WIDE)]
    others = [other for other in STAND_INS.get(name, ()) if other != name]
    return any(other in layer for layer in dynamic for other in others) and all(name not in layer for layer in dynamic)


def _broker_synonyms(config: BrokerConfig, name: str, *, is_sensitive: bool) -> list[Synonym]:
    # Some broker properties stand in for others (`log.retention.hours` for `log.retention.ms`), so each layer is
    # searched for all of them.
    names = STAND_INS.get(name, tuple(dict.fromkeys((name, general_name(name)))))
    found = [
        Synonym(each, None if is_sensitive else layer[each], _SOURCES[source])
        for source, layer in config.layers()
        for each in names
        if each in layer
    ]
    # As in Kafka, synonyms before the first one of the property's own name are dropped. So a topic's `retention.ms` has
    # the source DEFAULT if the file sets `log.retention.hours` and not `log.retention.ms`.
    first = next((index for index, each in enumerate(found) if each.name == name), len(found))
    return found[first:]


def _first_source(synonyms: Iterable[Synonym]) -> ConfigSource:
    return next((each.source for each in synonyms), ConfigSource.DEFAULT)
