"""Records of the internal topics as rows, for `barnabas log dump` and `check` (pure; reference E.2; transactions, T.2).

Only what the records say. What follows from them is in `coordinators/groups` and `coordinators/transactions`.
"""

from collections.abc import Callable
from typing import TypeVar

from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from barnabas.wire.versioned_records import VERSION_BYTES, MalformedRecord, supported_version, version_of

Row = dict[str, str | int | bool | None]
Stored = TypeVar("Stored", bound=m.Message)

# The stored state is an index into this tuple. Kafka's other two states, Dead and
# PrepareEpochFence, are never stored.
TRANSACTION_STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
TOMBSTONE: Row = {"tombstone": True}


def internal_record(topic: str, key: bytes | None, value: bytes | None) -> Row | None:
    """The fields of a record of this topic; None if its kind is not known. Raises MalformedRecord."""
    if key is None:
        raise MalformedRecord("a record without key")
    # Newer brokers have more kinds of keys; coordinators ignore such records.
    read = _READERS[topic].get(version_of(key))
    if read is None:
        return None
    try:
        return read(key, value)
    except ProtocolViolation as violation:
        raise MalformedRecord(str(violation)) from violation


def _key_of(kind: type[Stored], key: bytes) -> Stored:
    return m.decode(kind, version_of(key), key, VERSION_BYTES)


def _value_of(kind: type[Stored], value: bytes) -> Stored:
    return m.decode(kind, supported_version(kind, value), value, VERSION_BYTES)


def _offset_row(key: bytes, value: bytes | None) -> Row:
    of = _key_of(m.OffsetCommitKey, key)
    row: Row = {"group": of.group, "topic": of.topic, "partition": of.partition}
    if value is None:
        return row | TOMBSTONE
    stored = _value_of(m.OffsetCommitValue, value)
    return row | {
        "committed_offset": stored.offset,
        "committed_leader_epoch": stored.leader_epoch,
        "metadata": stored.metadata,
        "commit_timestamp": stored.commit_timestamp,
    }


def _group_row(key: bytes, value: bytes | None) -> Row:
    row: Row = {"group": _key_of(m.GroupMetadataKey, key).group}
    if value is None:
        return row | TOMBSTONE
    stored = _value_of(m.GroupMetadataValue, value)
    return row | {
        "protocol_type": stored.protocol_type,
        "generation": stored.generation,
        "protocol": stored.protocol,
        "leader": stored.leader,
        "members": " ".join(member.member_id for member in stored.members),
    }


def _transaction_row(key: bytes, value: bytes | None) -> Row:
    row: Row = {"transactional_id": _key_of(m.TransactionLogKey, key).transactional_id}
    if value is None:
        return row | TOMBSTONE
    stored = _value_of(m.TransactionLogValue, value)
    if not 0 <= stored.transaction_status < len(TRANSACTION_STATES):
        raise MalformedRecord(f"there is no transaction state {stored.transaction_status}")
    topics = stored.transaction_partitions or ()
    return row | {
        "producer_id": stored.producer_id,
        "producer_epoch": stored.producer_epoch,
        "state": TRANSACTION_STATES[stored.transaction_status],
        "partitions": " ".join(f"{each.topic}-{index}" for each in topics for index in each.partition_ids),
        "timeout_ms": stored.transaction_timeout_ms,
        "start_timestamp": stored.transaction_start_timestamp_ms,
        "last_update_timestamp": stored.transaction_last_update_timestamp_ms,
    }


# For each topic: the version of a record's key, which tells the kind of the record -> its reader.
_READERS: dict[str, dict[int, Callable[[bytes, bytes | None], Row]]] = {
    GROUP_TOPIC: {0: _offset_row, 1: _offset_row, 2: _group_row},
    TRANSACTION_TOPIC: {0: _transaction_row},
}
