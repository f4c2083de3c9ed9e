"""Records of `__consumer_offsets`: typed values <-> keys and values in bytes (pure; reference E.2).

A key begins with an int16, the kind of the record; a value begins with an int16, the version of its schema:

    key 0, 1   group, topic, partition      value 0-4   a committed offset
    key 2      group                        value 0-4   the group's metadata: generation, protocol, members
    key 3-8    the newer group protocol (KIP-848), which is not served

A null value is a tombstone. All versions are read. The versions that are written are those of a 3.9 broker in ZooKeeper
mode: keys 1 and 2, values 3, and value 1 for an offset with an expiration time of its own.
"""

import struct
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from barnabas.wire.versioned_records import VERSION_BYTES, MalformedRecord, supported_version, version_of, versioned

# One version for each kind of key, for ever: log compaction compares the bytes of keys. A key in another version would
# not supersede the older record, and both would stay in the log.
OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
EXPIRING_OFFSET_VALUE_VERSION = 1  # the only version with an expiration time, which OffsetCommit v2-4 may set
GROUP_VALUE_VERSION = 3
FIRST_GROUP_VALUE_VERSION = 0  # has no rebalance timeout

NO_EXPIRY = -1

TEXT_BYTES_MAX = (1 << 15) - 1  # of the int16 length of a string

_VERSION = struct.Struct(">h")  # also the length of a string
# A commit may have thousands of partitions, so its records are encoded here and not by the schema's encoder: the bytes
# are the same, in a quarter of the time.
_OFFSET_KEY = _VERSION.pack(OFFSET_KEY_VERSION)
_PARTITION = struct.Struct(">i")
_COMMIT = struct.Struct(">hqi")  # version, offset, leader epoch
_EXPIRING_COMMIT = struct.Struct(">hq")  # version, offset
_TIME = struct.Struct(">q")
_TIMES = struct.Struct(">qq")  # of the commit, of the expiration
_KEY_START = struct.Struct(">hh")  # version, length of the group's name
_VALUE_START = struct.Struct(">hqih")  # version, offset, leader epoch, length of the metadata
_SMALLEST_KEY_BYTES = _KEY_START.size + _VERSION.size + _PARTITION.size
_SMALLEST_VALUE_BYTES = _VALUE_START.size + _TIME.size

GroupMetadata = m.GroupMetadataValue
RecordedMember = m.GroupMetadataValue.MemberMetadata


class Commit(NamedTuple):
    """A committed offset. Timestamps are the wall clock in ms; `expire_timestamp_ms` is NO_EXPIRY for most clients.

    `topic_id` is the id that the topic had. It is not in the record: zero after a load (`outdated.py`).
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    topic_id: bytes = ZERO_TOPIC_ID


class OffsetRecord(NamedTuple):
    """The committed offset of a group for one partition; `commit` None: a tombstone."""

    group_id: str
    topic_partition: TopicPartition
    commit: Commit | None


class GroupMetadataRecord(NamedTuple):
    """The last stored generation of a group; `metadata` None: a tombstone."""

    group_id: str
    metadata: GroupMetadata | None


GroupRecord = OffsetRecord | GroupMetadataRecord


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """The record's key and value. Raises ValueError if a string is longer than TEXT_BYTES_MAX in UTF-8."""
    if isinstance(record, OffsetRecord):
        group_id, (topic, partition), commit = record
        key = _OFFSET_KEY + _text(group_id) + _text(topic) + _PARTITION.pack(partition)
        # A null value is all that a tombstone says; its key must be that of the record to remove.
        return key, None if commit is None else _encode_commit(commit)
    # This record is written once per generation and not once per partition, so the schema's encoder
    # is fast enough.
    return (
        versioned(m.GroupMetadataKey(group=record.group_id), GROUP_KEY_VERSION),
        None if record.metadata is None else versioned(record.metadata, GROUP_VALUE_VERSION),
    )


def decode_record(key: bytes | None, value: bytes | None) -> GroupRecord | None:
    """The decoded record; None if its kind is not served (key 3 or higher). Raises MalformedRecord."""
    # The topic is compacted, and an append without a key is refused there.
    if key is None:
        raise MalformedRecord("a record without key")
    usual = _decode_usual_commit(key, value)
    if usual is not None:
        return usual
    try:
        kind = version_of(key)

        # `m.decode` refuses a negative kind, which is no version of the schema either.
        if kind <= OFFSET_KEY_VERSION:
            asked = m.decode(m.OffsetCommitKey, kind, key, VERSION_BYTES)
            return OffsetRecord(asked.group, TopicPartition(asked.topic, asked.partition), _decode_commit(value))
        if kind == GROUP_KEY_VERSION:
            group_id = m.decode(m.GroupMetadataKey, kind, key, VERSION_BYTES).group
            return GroupMetadataRecord(group_id, _decode_metadata(value))
    except ProtocolViolation as violation:
        raise MalformedRecord(f"key {key!r}: {violation}") from violation

    return None


def _decode_usual_commit(key: bytes, value: bytes | None) -> OffsetRecord | None:
    """A commit in the current versions (key 1, value 3); None if it is anything else, malformed records included."""
    # This is five times as fast as the schema's decoder, and a start of the broker decodes hundreds
    # of thousands of commits. None leaves the record to the schema's decoder, which also says what
    # is wrong with it.
    if value is None or len(key) < _SMALLEST_KEY_BYTES or len(value) < _SMALLEST_VALUE_BYTES:
        return None
    key_version, group_length = _KEY_START.unpack_from(key)
    value_version, offset, leader_epoch, metadata_length = _VALUE_START.unpack_from(value)
    if key_version != OFFSET_KEY_VERSION or value_version != OFFSET_VALUE_VERSION:
        return None

    # Lengths may be negative (null, or a damaged record), and each part must end exactly where its bytes end.
    topic_at = _KEY_START.size + group_length
    metadata_end = _VALUE_START.size + metadata_length
    if not (group_length >= 0 and topic_at + _VERSION.size <= len(key)):
        return None
    topic_end = topic_at + _VERSION.size + _VERSION.unpack_from(key, topic_at)[0]
    if topic_end < topic_at + _VERSION.size or topic_end + _PARTITION.size != len(key):
        return None
    if metadata_length < 0 or metadata_end + _TIME.size != len(value):
        return None
    try:
        group_id = key[_KEY_START.size : topic_at].decode()
        topic = key[topic_at + _VERSION.size : topic_end].decode()
        metadata = value[_VALUE_START.size : metadata_end].decode()
    except UnicodeDecodeError:
        return None

    topic_partition = TopicPartition(topic, _PARTITION.unpack_from(key, topic_end)[0])
    commit = Commit(offset, leader_epoch, metadata, _TIME.unpack_from(value, metadata_end)[0])
    return OffsetRecord(group_id, topic_partition, commit)


def _encode_commit(commit: Commit) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms, _ = commit
    # This version has no field for the leader epoch, and needs none: OffsetCommit has a retention
    # time in v2-4, a leader epoch from v6 on.
    if expire_timestamp_ms != NO_EXPIRY:
        times = _TIMES.pack(commit_timestamp_ms, expire_timestamp_ms)
        return _EXPIRING_COMMIT.pack(EXPIRING_OFFSET_VALUE_VERSION, offset) + _text(metadata) + times
    start = _COMMIT.pack(OFFSET_VALUE_VERSION, offset, leader_epoch)
    return start + _text(metadata) + _TIME.pack(commit_timestamp_ms)


def _text(text: str) -> bytes:
    data = text.encode()
    # The length is checked before `pack`, whose struct.error would count as a mistake of ours and
    # reload the shard. `batches.build` answers a ValueError to the client that sent the text.
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes are too many for a string of a record")
    return _VERSION.pack(len(data)) + data


def _decode_commit(value: bytes | None) -> Commit | None:
    if value is None:
        return None
    version = supported_version(m.OffsetCommitValue, value)
    # A version that lacks a field gets the schema's default, -1 for the leader epoch and for the expiration time.
    stored = m.decode(m.OffsetCommitValue, version, value, VERSION_BYTES)
    return Commit(stored.offset, stored.leader_epoch, stored.metadata, stored.commit_timestamp, stored.expire_timestamp)


def _decode_metadata(value: bytes | None) -> GroupMetadata | None:
    if value is None:
        return None
    version = supported_version(GroupMetadata, value)
    metadata = m.decode(GroupMetadata, version, value, VERSION_BYTES)
    # Before KIP-62 the session timeout was also the limit of a rebalance. Kafka reads such records
    # in the same way.
    if version == FIRST_GROUP_VALUE_VERSION:
        for member in metadata.members:
            member.rebalance_timeout = member.session_timeout
    return metadata
