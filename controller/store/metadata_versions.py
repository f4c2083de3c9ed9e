"""What the level of `inter.broker.protocol.version` fixes for the metadata store and the controller's requests: pure.

Brokers of a cluster that is upgraded by and by run with the old level until all have the new software. So the level
decides what is written for others to read, not what can be read (reference 0; all asked of a running Kafka 3.9.1).

| Since | What |
|---|---|
| 2.7-IV0 | registrations are version 5 and tell features; /feature is enabled (before it says "disabled") |
| 2.7-IV2 | leaders ask the controller for another ISR; before, they write the state node and leave a note |
| 2.8-IV0 | topics have ids |
| 3.0-IV0 | brokers ask the controller for producer ids; before, they claim them in the store |
| 3.2-IV0 | an unclean leader is RECOVERING until it reports |
| 3.3-IV0 | /feature is version 2, without minimum levels |
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from barnabas.wire.apis import inter_broker_versions, level_reaches


class Level(NamedTuple):
    """One level."""

    versions: Mapping[int, int]  # of requests between brokers, by key
    registration_version: int
    features_enabled: bool
    leaders_write_states: bool
    feature_node_version: int
    topics_have_ids: bool
    marks_recovery: bool


@lru_cache(maxsize=8)
def level_of(inter_broker_protocol_version: str) -> Level:
    """What this level means. ValueError when it cannot be read or is older than 2.0."""

    def since(level: str) -> bool:
        return level_reaches(inter_broker_protocol_version, level)

    return Level(
        versions=inter_broker_versions(inter_broker_protocol_version),
        registration_version=5 if since("2.7-IV0") else 4,
        features_enabled=since("2.7-IV0"),
        leaders_write_states=not since("2.7-IV2"),
        feature_node_version=2 if since("3.3-IV0") else 1,
        topics_have_ids=since("2.8-IV0"),
        marks_recovery=since("3.2-IV0"),
    )
