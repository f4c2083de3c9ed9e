"""What `inter.broker.protocol.version` fixes for the metadata store and the controller's requests (pure).

Kafka calls a value of this property a metadata version. In a rolling upgrade the brokers run at the old one until all
have the new software. So it decides what is written for others to read, not what can be read (reference 0; each line
was measured on a running Kafka 3.9.1).

| Since | What |
|---|---|
| 2.7-IV0 | registrations are version 5 and list features; /feature is enabled (before, it is disabled) |
| 2.7-IV2 | leaders send AlterPartition (KIP-497); before, they write the state node and a change notification |
| 2.8-IV0 | topics have ids (KIP-516) |
| 3.0-IV0 | brokers get producer ids from the controller (KIP-730); before, they claim them in the store |
| 3.2-IV0 | a leader elected uncleanly is RECOVERING until it reports (KIP-704) |
| 3.3-IV0 | /feature is version 2, without minimum levels |
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from barnabas.wire.apis import inter_broker_versions, metadata_version_is_at_least


class MetadataVersion(NamedTuple):
    """What a metadata version implies; the table above explains the fields."""

    versions: Mapping[int, int]  # API key -> version of requests between brokers
    registration_version: int
    features_enabled: bool
    leaders_write_states: bool
    feature_node_version: int
    topics_have_ids: bool
    marks_recovery: bool


@lru_cache(maxsize=8)
def metadata_version_of(inter_broker_protocol_version: str) -> MetadataVersion:
    """The meaning of a value of `inter.broker.protocol.version`. ValueError if it is malformed or older than 2.0."""

    def since(version: str) -> bool:
        return metadata_version_is_at_least(inter_broker_protocol_version, version)

    return MetadataVersion(
        versions=inter_broker_versions(inter_broker_protocol_version),
        registration_version=5 if since("2.7-IV0") else 4,
        features_enabled=since("2.7-IV0"),
        leaders_write_states=not since("2.7-IV2"),
        feature_node_version=2 if since("3.3-IV0") else 1,
        topics_have_ids=since("2.8-IV0"),
        marks_recovery=since("3.2-IV0"),
    )
