"""The arguments that `LocalBroker` and `LocalCluster` have in common (pure)."""

from collections.abc import Collection, Mapping
from typing import TypeGuard

from barnabas.testing.errors import LocalBrokerError

HOST = "127.0.0.1"

DEFAULTS: Mapping[str, str] = {  # their reasons: in `LocalBroker`
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "10",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def texts(config: Mapping[str, str] | None) -> Mapping[str, str]:
    """Properties. LocalBrokerError for a value that is a number, for example, as tests without types have it."""
    for name, value in (config or {}).items():
        if not isinstance(value, str):
            raise LocalBrokerError(f"{name}: a value is text, as in server.properties, not {value!r}")
    return config or {}


def properties_of(
    config: Mapping[str, str] | None, defaults: Mapping[str, str], ours: Collection[str], owner: str
) -> dict[str, str]:
    """The properties that `owner` is given, over the defaults. LocalBrokerError for one that it sets itself."""
    taken = set(ours) & set(config or {})
    if taken:
        raise LocalBrokerError(f"{', '.join(sorted(taken))}: {owner} sets this itself")
    properties = {**defaults, **texts(config)}
    _refuse_unknown(properties)
    return properties


def _refuse_unknown(properties: Mapping[str, str]) -> None:
    """LocalBrokerError for a misspelled property: in a test nothing else says that it has no effect."""
    from barnabas.config.parse import ConfigError, parse_settings, settings_of

    try:
        _, unknown = parse_settings(settings_of(properties, "config"))
    except ConfigError as error:
        raise LocalBrokerError(str(error)) from error
    if unknown:
        raise LocalBrokerError("\n".join(unknown))


def is_number(value: object) -> TypeGuard[int]:
    """Whether it is an integer, and neither True nor False."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_count(name: str, value: object) -> None:
    """LocalBrokerError for anything but a number from 1."""
    if not is_number(value) or value < 1:
        raise LocalBrokerError(f"{name}: a number from 1, not {value!r}")
