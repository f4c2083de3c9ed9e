"""Records of `__transaction_state`: typed values <-> keys and values in bytes, and what a whole log of them says (pure;
reference transactions, T.2).

A key and a value begin with an int16, the version of their schema. The key is the transactional id. A null value is a
tombstone. Value version 1, which a broker of a KRaft cluster writes, is read; version 0 is written.
"""

import logging

from barnabas.coordinators.transactions.state import (
    NO_PARTITIONS,
    Partitions,
    Recorded,
    Status,
    TransactionalIds,
    TransactionRecord,
    replay,
)
from barnabas.wire import messages as m
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.topics import TopicPartition
from barnabas.wire.versioned_records import VERSION_BYTES, MalformedRecord, supported_version, version_of, versioned

logger = logging.getLogger(__name__)

KEY_VERSION = 0  # for ever: log compaction compares the bytes of keys
VALUE_VERSION = 0
TEXT_BYTES_MAX = (1 << 15) - 1  # of the int16 length of a string


def encode_record(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """The record's key and value. Raises ValueError if a string is longer than TEXT_BYTES_MAX in UTF-8."""
    key = m.TransactionLogKey(transactional_id=record.name)
    recorded = record.recorded
    if is_too_long(record.name):
        raise ValueError(f"a transactional id of {len(record.name)} characters is too long for a record")
    return versioned(key, KEY_VERSION), None if recorded is None else versioned(_value_of(recorded), VALUE_VERSION)


def is_too_long(name: str) -> bool:
    """Whether no record can have this transactional id."""
    return len(name.encode()) > TEXT_BYTES_MAX


def decode_record(key: bytes | None, value: bytes | None) -> TransactionRecord | None:
    """The decoded record; None if its kind is not known (another key version). Raises MalformedRecord."""
    if key is None:
        raise MalformedRecord("a record without key")
    try:
        if version_of(key) != KEY_VERSION:
            return None
        name = m.decode(m.TransactionLogKey, KEY_VERSION, key, VERSION_BYTES).transactional_id
        return TransactionRecord(name, None if value is None else _decode_value(value))
    except ProtocolViolation as violation:
        raise MalformedRecord(f"key {key!r}: {violation}") from violation


def _value_of(recorded: Recorded) -> m.TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition in recorded.partitions:
        topics.setdefault(topic, []).append(partition)
    # Kafka writes null in Empty, and an empty array in Complete*.
    partitions = [m.TransactionLogValue.PartitionsSchema(topic=name, partition_ids=ids) for name, ids in topics.items()]
    return m.TransactionLogValue(
        producer_id=recorded.producer_id,
        producer_epoch=recorded.producer_epoch,
        transaction_timeout_ms=recorded.timeout_ms,
        transaction_status=recorded.status,
        transaction_partitions=None if recorded.status is Status.EMPTY else partitions,
        transaction_last_update_timestamp_ms=recorded.last_update_ms,
        transaction_start_timestamp_ms=recorded.start_ms,
    )


def _decode_value(value: bytes) -> Recorded:
    version = supported_version(m.TransactionLogValue, value)
    stored = m.decode(m.TransactionLogValue, version, value, VERSION_BYTES)
    partitions: Partitions = {
        TopicPartition(each.topic, index): None
        for each in stored.transaction_partitions or ()
        for index in each.partition_ids
    }
    try:
        status = Status(stored.transaction_status)
    except ValueError:
        raise MalformedRecord(f"there is no transaction state {stored.transaction_status}") from None

    return Recorded(
        producer_id=stored.producer_id,
        producer_epoch=stored.producer_epoch,
        timeout_ms=stored.transaction_timeout_ms,
        status=status,
        partitions=partitions or NO_PARTITIONS,
        last_update_ms=stored.transaction_last_update_timestamp_ms,
        start_ms=stored.transaction_start_timestamp_ms,
    )


class TransactionLoader:
    """What the log of a coordinator partition says about its ids (`runtime.loading.Loader`)."""

    # The last record of an id is its whole state.
    needs_all_records = False

    def __init__(self) -> None:
        self._ids = TransactionalIds()

    def replay(self, key: bytes | None, value: bytes | None, offset: int, producer_id: int) -> None:
        """The last record of a key. Raises MalformedRecord."""
        record = decode_record(key, value)
        if record is None:
            logger.warning("passed over a record at offset %d of a kind that is not served", offset)
        else:
            replay(self._ids, record, offset)

    def replay_marker(self, producer_id: int, offset: int, *, committed: bool) -> None:
        """The records of this topic belong to no transaction."""

    def finish(self) -> TransactionalIds:
        """The ids."""
        return self._ids
