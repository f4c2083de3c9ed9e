"""The table says which properties act; the sources say which are read. Both must say the same."""

import re
from pathlib import Path

from barnabas.config.property import Effect, Property, attribute_name
from barnabas.config.table import BROKER_TABLE, TOPIC_TABLE
from tests.rooms import PACKAGES

ROOT = Path(__file__).parents[2]
FOLDERS = [package for package in PACKAGES if package not in ("config", "testing", "pipeline")]

# Properties that act through a value that `live.py` or `rules.py` makes of them.
DERIVED = {
    "advertised.listeners": "advertised_endpoints",
    "control.plane.listener.name": "control_plane_listener",
    "controller.listener.names": "listener_endpoints",
    "inter.broker.listener.name": "inter_broker_listener",
    "listener.security.protocol.map": "listener_endpoints",
    "listeners": "listener_endpoints",
    "log.cleanup.policy": "deletes",
    "log.dir": "log_directories",
    "log.dirs": "log_directories",
    "log.message.timestamp.difference.max.ms": "message_timestamp_before_max_ms",
    "max.connections.per.ip.overrides": "connection_limits",
    "security.inter.broker.protocol": "inter_broker_listener",
}


def words_read() -> set[str]:
    """Every name that is read as an attribute outside the configuration itself."""
    sources = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text() for path in sources if "config" not in path.relative_to(ROOT).parts[:-1])
    return set(re.findall(r"\.(\w+)\b", text))


def names_read() -> set[str]:
    """Every name of a property that is written out where the settings of single listeners are read."""
    sources = [ROOT / "config/listener_settings.py", *(ROOT / "security").rglob("*.py")]
    sources.append(ROOT / "broker/peers/login.py")
    return {name for path in sources for name in re.findall(r'"([a-z][a-z.]+)"', path.read_text())}


def acts(row: Property, read: set[str]) -> bool:
    topic_defaults = {name for topic in TOPIC_TABLE.values() if topic.attribute in read for name, _ in topic.synonyms}
    return row.name in topic_defaults or DERIVED.get(row.name, attribute_name(row.name)) in read


def with_effect(effect: Effect) -> list[Property]:
    return [row for row in BROKER_TABLE.values() if row.effect is effect]


def test_what_is_called_served_is_read_somewhere() -> None:
    read = words_read()
    unread = [row.name for row in with_effect(Effect.SERVED) if not acts(row, read) and row.name not in names_read()]
    names = [f"config.{DERIVED.get(name, attribute_name(name))}" for name in unread]
    assert unread == [], (
        "SERVED in config/tables/, and no file of another package "
        f"reads it: read {', '.join(names)} where the property acts. If config/ makes another value of it, that "
        "value's name goes into DERIVED of tests/config/test_effects.py"
    )


def test_what_is_called_without_effect_is_read_nowhere() -> None:
    read = words_read()
    acting = [row.name for row in with_effect(Effect.ACCEPTED) if acts(row, read)]
    assert acting == [], "ACCEPTED in config/tables/, but its value is read: call it SERVED there"
