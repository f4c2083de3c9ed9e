"""The configuration as plain values: for `barnabas config` and its `--json`, and for answers that list it."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.broker.config.live import BrokerConfig, Source
from barnabas.broker.config.property import Property, format_value
from barnabas.broker.config.table import DEVIATIONS, TOPIC_TABLE

HIDDEN = "[hidden]"

FROM_TOPIC = 1  # ConfigSource of a topic's own property
SOURCE_CODES = {Source.PER_BROKER: 2, Source.CLUSTER_WIDE: 3, Source.STATIC: 4, Source.DEFAULT: 5}

_REASONS = {deviation.name: deviation.reason for deviation in DEVIATIONS}


def broker_report(config: BrokerConfig) -> list[dict[str, str | None]]:
    """Every broker property as it stands."""
    report = []
    for entry in config.entries():
        deviates = entry.source is Source.DEFAULT and entry.default != entry.row.default
        source = f"default, Kafka's is {format_value(entry.row.default)}" if deviates else entry.source.value
        if entry.origin is not None and entry.source is Source.STATIC:
            source = entry.origin
        value = HIDDEN if entry.row.sensitive and entry.value is not None else entry.text
        report.append(_described(entry.row, value, source) | {"reason": _REASONS[entry.row.name] if deviates else None})
    return report


def topic_report(config: BrokerConfig) -> list[dict[str, str | None]]:
    """Every topic property, with the value that a topic has when it sets none."""
    defaults = config.topic_defaults()
    return [
        _described(
            row, format_value(defaults[row.attribute]), " or ".join(name for name, _ in row.synonyms) or "default"
        )
        for row in TOPIC_TABLE.values()
    ]


class TopicEntry(NamedTuple):
    """One property of a topic as clients are told."""

    name: str
    text: str | None
    source: int  # Kafka's ConfigSource
    is_sensitive: bool


def topic_entries(config: BrokerConfig, overrides: Mapping[str, str]) -> list[TopicEntry]:
    """Every property that a topic with these overrides has, with its source."""
    defaults = config.topic_defaults()
    entries = []
    for row in TOPIC_TABLE.values():
        if row.name in overrides:
            entries.append(TopicEntry(row.name, overrides[row.name], FROM_TOPIC, row.sensitive))
            continue
        sources = [config.source_of(name) for name, _ in row.synonyms]
        source = next((source for source in sources if source is not Source.DEFAULT), Source.DEFAULT)
        text = format_value(defaults[row.attribute])
        entries.append(TopicEntry(row.name, text, SOURCE_CODES[source], row.sensitive))
    return entries


def _described(row: Property, value: str | None, source: str) -> dict[str, str | None]:
    return {
        "name": row.name,
        "value": value,
        "source": source,
        "effect": row.effect.value,
        "type": row.type.name.lower(),
        "allowed": row.allowed,
        "update": row.update.value,
        "doc": row.doc,
    }
