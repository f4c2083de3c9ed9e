"""The table says which properties act; the sources say which are read. Both must say the same."""

import re
from pathlib import Path

from barnabas.broker.config.property import Effect, Property, attribute_name
from barnabas.broker.config.table import BROKER_TABLE, TOPIC_TABLE

ROOT = Path(__file__).parents[3]
FOLDERS = ("wire", "storage", "controller", "broker")

# Properties that act through a value that `live.py` or `rules.py` makes of them.
DERIVED = {
    "advertised.listeners": "advertised_endpoints",
    "control.plane.listener.name": "control_plane_listener",
    "inter.broker.listener.name": "inter_broker_listener",
    "listener.security.protocol.map": "listener_endpoints",
    "listeners": "listener_endpoints",
    "log.cleanup.policy": "deletes",
    "log.dir": "log_directories",
    "log.dirs": "log_directories",
    "log.message.timestamp.difference.max.ms": "message_timestamp_before_max_ms",
    "max.connections.per.ip.overrides": "connection_limits",
}


def words_read() -> set[str]:
    """Every name that is read as an attribute outside the configuration itself."""
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources if "config" not in path.relative_to(ROOT).parts[:-1])
    return set(re.findall(r"\.(\w+)\b", text))


def acts(row: Property, read: set[str]) -> bool:
    topic_defaults = {name for topic in TOPIC_TABLE.values() if topic.attribute in read for name, _ in topic.synonyms}
    return row.name in topic_defaults or DERIVED.get(row.name, attribute_name(row.name)) in read


def test_what_is_called_served_is_read_somewhere() -> None:
    read = words_read()
    assert [name for name, row in BROKER_TABLE.items() if row.effect is Effect.SERVED and not acts(row, read)] == []


def test_what_is_called_without_effect_is_read_nowhere() -> None:
    read = words_read()
    assert [name for name, row in BROKER_TABLE.items() if row.effect is Effect.ACCEPTED and acts(row, read)] == []
