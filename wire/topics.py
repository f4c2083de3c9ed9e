"""The identity of a log: topic names, topic ids and partitions.

A topic id is 16 bytes on the wire; as text (in ZooKeeper's JSON and `partition.metadata`) it is 22 characters of
base64url without padding, as Java's `Uuid` prints it. The hash of a group or transactional id that selects its
coordinator partition is Java's `String.hashCode` over UTF-16 code units (reference E.1).
"""

import base64
import binascii
import re
import struct
from functools import lru_cache
from typing import NamedTuple

ZERO_TOPIC_ID = bytes(16)
GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})

TOPIC_NAME_MAX_LENGTH = 249  # leaves room for "-<partition>.<uuid>-delete" in a directory name of 255 bytes

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")


class TopicPartition(NamedTuple):
    """One partition of a topic: the unit of leadership, replication and storage."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_id_text(topic_id: bytes) -> str:
    """16 bytes as 22 characters of base64url."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def topic_id_from_text(text: str) -> bytes:
    """The 16 bytes of a topic id printed by `topic_id_text`. ValueError if the text is not such an id."""
    # "==" is the padding that Java leaves out; `validate` refuses characters that would be skipped otherwise.
    try:
        topic_id = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{text!r} is not a topic id: {error}") from None
    if len(topic_id) != 16:
        raise ValueError(f"{text!r} is not a topic id: {len(topic_id)} bytes instead of 16")
    return topic_id


def why_invalid_topic_name(name: str) -> str | None:
    """The reason why Kafka refuses this topic name, in Kafka's words; None if it is legal."""
    if name == "":
        return "the empty string is not allowed"
    # As a directory name these would mean something else.
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_MAX_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_MAX_LENGTH}"
    if not _LEGAL_NAME.match(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def names_collide(one: str, other: str) -> bool:
    """Whether Kafka refuses the second of two topics with these names."""
    # Metric names have "_" in the place of ".", so both topics would have the same metrics.
    return one.replace(".", "_") == other.replace(".", "_")


# One transaction needs the hash of its id five times. Ids have up to 32 kB, so few are cached.
@lru_cache(maxsize=256)
def java_string_hash(text: str) -> int:
    """Java's `String.hashCode`: 31*h + c over UTF-16 code units, wrapped to 32 bits, signed."""
    # Java hashes UTF-16 code units: two for a character outside the basic plane. A lone surrogate counts as it is.
    encoded = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(encoded) // 2}H", encoded):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(key: str, partition_count: int) -> int:
    """The partition of an internal topic that coordinates this group or transactional id."""
    value = java_string_hash(key)
    # Kafka's `Utils.abs`: the smallest int has no positive counterpart in Java, and counts as 0.
    return 0 if value == -(1 << 31) else abs(value) % partition_count
