"""From text to checked values: `server.properties`, `--set KEY=VALUE`, and their problems.

All problems are collected and raised in one `ConfigError` before anything starts, each with the place of the value, the
key and the allowed range. A property that is not in the table is a warning, because a file may be shared with tools
that have their own properties; the warning suggests the most similar known name.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.config.checks import Value
from barnabas.config.property import InvalidValue, Property, parse_value
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE

# What the names of properties begin with that are set for one listener, or for one mechanism of all listeners.
OF_LISTENER_OR_MECHANISM = ("listener.name.", "plain.", "scram-sha-256.", "scram-sha-512.", "oauthbearer.")

ARGUMENT = "--set"  # the origin of what is among the arguments of the process


class ConfigError(Exception):
    """The configuration is invalid; one line for each problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Setting(NamedTuple):
    """One line of a file, or one option of the command line."""

    name: str
    text: str
    origin: str  # "server.properties:12" or "--set"

    def problem(self, what: str) -> str:
        """`what`, after the place of the setting."""
        return f"{self.origin}: {what}"


def parse_properties(text: str, file_name: str) -> list[Setting]:
    """The settings of a file in Java's properties format: latin-1 decoded text with escapes. Raises ConfigError."""
    import javaproperties

    settings = []
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                settings.append(Setting(element.key, element.value, f"{file_name}:{line}"))
            line += max(1, element.source.count("\n"))
    # The message is Java's, and without the text, which may be a secret.
    except javaproperties.InvalidUEscapeError:
        raise ConfigError([f"{file_name}:{line}: Malformed \\uxxxx encoding."]) from None
    return settings


def parse_assignment(text: str, origin: str = ARGUMENT) -> Setting:
    """A setting from `KEY=VALUE` of the command line."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ConfigError([f"{origin} {text}: expected KEY=VALUE"])
    return Setting(name.strip(), value, origin)


def settings_of(values: Mapping[str, str], origin: str = "given") -> list[Setting]:
    """Settings from a plain mapping."""
    return [Setting(name, text, origin) for name, text in values.items()]


def parse_settings(settings: Iterable[Setting]) -> tuple[dict[str, Value], list[str]]:
    """The values by property name, and warnings. The last setting of a name applies. Raises ConfigError."""
    values: dict[str, Value] = {}
    problems = []
    warnings = []
    for setting in settings:
        row = BROKER_TABLE.get(setting.name)
        if row is None:
            # `listener_settings.py` reads these properties, and says which of them have no effect.
            if setting.name.startswith(OF_LISTENER_OR_MECHANISM):
                continue
            warnings.append(setting.problem(_why_unknown(setting.name)))
            continue
        try:
            values[setting.name] = parse_value(row, setting.text)
        except InvalidValue as error:
            problems.append(setting.problem(f"{error} (allowed: {row.allowed})"))

    if problems:
        raise ConfigError(problems)
    return values, warnings


def _why_unknown(name: str) -> str:
    if name in TOPIC_TABLE:
        brokers_own = " or ".join(synonym for synonym, _ in TOPIC_TABLE[name].synonyms)
        return f"{name} is a property of topics" + (f"; the broker's is {brokers_own}" if brokers_own else "")
    return f"{name} is not a known property{nearest_known(name, BROKER_TABLE)}"


def nearest_known(name: str, table: Mapping[str, Property]) -> str:
    """`; did you mean ...?` if the table has a similar name, or else an empty text."""
    from difflib import get_close_matches

    near = get_close_matches(name, table, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""
