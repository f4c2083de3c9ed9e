"""Writes `docs/configuration.md`: `make generated`.

A test fails when the committed file is not what this prints.
"""

from collections.abc import Iterable, Sequence

from barnabas.config.checks import Value
from barnabas.config.property import Effect, Property, Update, format_value
from barnabas.config.table import BROKER_TABLE, DEVIATIONS, MOVE_TABLE, TOPIC_TABLE

_HEAD = """\
# Configuration

<!-- Generated from the tables in config: make generated -->

Barnabas knows every property of Apache Kafka 3.9, with Kafka's name, type, default and checks. `barnabas config` shows
what holds for a broker and where each value comes from.

What a property does here:

- **acts**: as in Kafka.
- **no effect**: it is known, checked and shown, and does nothing. Set to anything but its default it is named in a
  warning: at the start, in CreateTopics, in AlterConfigs. Among these are all properties of a KRaft broker, of groups
  after KIP-848 (`group.consumer.*`) and of share groups (`group.share.*`), which a ZooKeeper-mode broker of 3.9 does
  not serve either.
- **refused**: set to anything but its default, the broker does not start, for ignoring it would be unsafe.

When it may change: *never* while the broker runs; *one broker*, with AlterConfigs for that broker's id; or *all*, for
one broker's id and, with an empty name, for all brokers. A change holds from the next request on.

## Listeners

With the prefix `listener.name.<listener in lower case>.` a property of TLS or SASL holds for one listener, and with
`listener.name.<listener>.<mechanism in lower case>.` for one mechanism of it. `barnabas config --listeners` shows what
each listener gets, and by which property. Passwords are shown nowhere.

## Values from files and the environment

With `config.providers` a value in the properties file, or of `--set`, may refer to another place:

| class in `org.apache.kafka.common.config.provider` | reference | parameters (`config.providers.<name>.param.`) |
| - | - | - |
| `FileConfigProvider` | `${<name>:/path/of/a.properties:key}` | `allowed.paths` |
| `DirectoryConfigProvider` | `${<name>:/path:file}` | `allowed.paths` |
| `EnvVarConfigProvider` | `${<name>:VARIABLE}` | `allowlist.pattern` |

References are replaced once, at the start. One that leads nowhere ends the start with its file, line and property;
Kafka keeps its text as the value. In requests `${…}` is just text.

## Passwords in the metadata store

AlterConfigs for one broker may set its passwords: key and trust stores of a listener, and `sasl.jaas.config`. They are
stored as Kafka's, encrypted with a key that is made from `password.encoder.secret`, and refused without it. This needs
the package cryptography (`pip install cryptography`). To change the secret, start the broker once with the new
one and the former as `password.encoder.old.secret`. A broker whose secret does not decode a password ignores it, with
an error in the log.
"""
_EFFECTS = {Effect.SERVED: "acts", Effect.ACCEPTED: "no effect", Effect.REFUSED: "refused"}
_UPDATES = {Update.READ_ONLY: "never", Update.PER_BROKER: "one broker", Update.CLUSTER_WIDE: "all"}


def configuration_page() -> str:
    """The whole page."""
    parts = [_HEAD, _deviations(), _topics(), _brokers(BROKER_TABLE.values()), _moves()]
    return "\n".join(parts)


def _deviations() -> str:
    rows = [
        (
            f"`{each.name}`",
            _default(each.default),
            _default(BROKER_TABLE[each.name].default),
            "with the embedded store" if each.embedded_only else "always",
            each.reason,
        )
        for each in DEVIATIONS
    ]
    return _section("Defaults that are not Kafka's", ("property", "default", "Kafka's", "when", "why"), rows)


def _topics() -> str:
    rows = [
        (
            f"`{row.name}`",
            _default(row.default),
            "<br>".join(f"`{name}`" for name, _ in row.synonyms) or "none",
            _EFFECTS[row.effect],
            _meaning(row),
        )
        for row in TOPIC_TABLE.values()
    ]
    return _section("Topics", ("property", "default", "broker property", "here", "what it is"), rows)


def _brokers(properties: Iterable[Property]) -> str:
    rows = [
        (f"`{row.name}`", _default(row.default), _UPDATES[row.update], _EFFECTS[row.effect], _meaning(row))
        for row in properties
    ]
    return _section("Brokers", ("property", "default", "may change", "here", "what it is"), rows)


def _moves() -> str:
    rows = [(f"`{row.name}`", _default(row.default), _EFFECTS[row.effect], row.doc) for row in MOVE_TABLE.values()]
    return _section("Known to AlterConfigs alone", ("property", "default", "here", "what it is"), rows)


def _meaning(row: Property) -> str:
    return f"{row.doc} *{_escaped(row.allowed)}*"


def _default(value: Value) -> str:
    text = format_value(value)
    if text is None:
        return "none"
    return f"`{_escaped(text)}`" if text else "empty"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def _section(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"## {title}", "", _row(head), _row("-" * len(head)), *map(_row, rows), ""]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
