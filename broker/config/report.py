"""The configuration as plain values: for `barnabas config` and its `--json`."""

from barnabas.broker.config.live import BrokerConfig, Source
from barnabas.broker.config.property import Property, format_value
from barnabas.broker.config.table import DEVIATIONS, TOPIC_TABLE

HIDDEN = "[hidden]"

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
