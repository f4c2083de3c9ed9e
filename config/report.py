"""The configuration as plain values: for `barnabas config` and its `--json`."""

from barnabas.config.describe import OF_MECHANISM, property_of
from barnabas.config.listener_rules import Problem
from barnabas.config.listener_settings import (
    CLIENT_AUTH,
    OAUTHBEARER,
    OF_LISTENERS_MECHANISM,
    ListenerSettings,
    Settings,
    read_listener,
)
from barnabas.config.live import BrokerConfig, Source
from barnabas.config.parse import OF_LISTENER_OR_MECHANISM, ConfigError
from barnabas.config.property import Effect, Property, format_value
from barnabas.config.table import BROKER_TABLE, DEVIATIONS, TOPIC_TABLE

HIDDEN = "[hidden]"

ONLY_OAUTH = ("sasl.oauthbearer.", "sasl.login.")
_DESCRIBED = ("type", "allowed", "update", "doc", "reason")
_UNKNOWN = {"effect": "unknown"}
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
    return report + _of_single_listeners(config)


def _of_single_listeners(config: BrokerConfig) -> list[dict[str, str | None]]:
    """The properties that are set for one listener or mechanism, as they are written."""
    report = []
    for name, text in dict(config.layers())[Source.STATIC].items():
        if not name.startswith(OF_LISTENER_OR_MECHANISM):
            continue
        row = property_of(name) or next((BROKER_TABLE[own] for own in OF_MECHANISM if name.endswith(f".{own}")), None)
        origin = config.origin_of(name)
        if row is None:
            # The value is hidden, because it may be a secret.
            report.append({**dict.fromkeys(_DESCRIBED), "name": name, "value": HIDDEN, "source": origin} | _UNKNOWN)
        else:
            report.append(_described(row, HIDDEN if row.sensitive else text, origin) | {"name": name, "reason": None})
    return report


def listener_report(config: BrokerConfig) -> list[dict[str, str | None]]:
    """For each listener with TLS or SASL what it gets, and by which property. Raises ConfigError."""
    texts = dict(dict(config.layers())[Source.STATIC])
    problems = list[Problem]()
    report = []
    for endpoint in config.listener_endpoints:
        settings = read_listener(texts, endpoint.listener, endpoint.protocol, problems)
        if settings is None:
            continue
        own = {"listener": endpoint.listener, "protocol": endpoint.protocol, "mechanism": None}
        report += [
            own | _of_listener(config, settings, name)
            for name in settings.values
            if name not in OF_LISTENERS_MECHANISM and _is_shown(settings, name, _concerns(settings, name))
        ]
        report += [
            own | {"mechanism": mechanism} | _of_listener(config, its, name)
            for mechanism, its in settings.by_mechanism.items()
            for name in its.values
            if _is_shown(its, name, mechanism == OAUTHBEARER or not name.startswith(ONLY_OAUTH))
        ]

    if problems:
        raise ConfigError(config.located(problem.why, *problem.names) for problem in problems)
    return report


def _concerns(settings: ListenerSettings, name: str) -> bool:
    return (settings.uses_tls and name.startswith("ssl.")) or (settings.uses_sasl and name.startswith("sasl."))


def _is_shown(settings: Settings, name: str, concerns: bool) -> bool:
    """Whether a property concerns this listener or mechanism, and either acts or is set."""
    return concerns and (BROKER_TABLE[name].effect is Effect.SERVED or name in settings.names)


def _of_listener(config: BrokerConfig, settings: Settings, name: str) -> dict[str, str | None]:
    row = BROKER_TABLE[name]
    value = settings.values[name]
    full = settings.names.get(name)
    # This listener does not take the setting for all listeners.
    if name == CLIENT_AUTH and isinstance(settings, ListenerSettings) and settings.client_auth != value:
        value = settings.client_auth
        full = None
    shown = HIDDEN if row.sensitive and value is not None else format_value(value)
    source = "default" if full is None else config.origin_of(full)
    return _described(row, shown, source) | {"set_by": full}


def topic_report(config: BrokerConfig) -> list[dict[str, str | None]]:
    """Every topic property, with the value that a topic has when it sets none."""
    defaults = config.topic_defaults()
    return [
        _described(
            row, format_value(defaults[row.attribute]), " or ".join(name for name, _ in row.synonyms) or "default"
        )
        for row in TOPIC_TABLE.values()
    ]


def _described(row: Property, value: str | None, source: str | None) -> dict[str, str | None]:
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
