"""The records of a decision as one batch (pure). What is too large is found before anything is encoded or compressed.

Clients choose how many records a batch has, how long they are, and an administrator chooses the codec. A batch that is
not `is_small` is made in a thread (`making.py`).
"""

import logging
from collections.abc import Iterable, Sequence

from barnabas.coordinators.groups.classic.events import Transaction
from barnabas.coordinators.groups.records import GroupRecord, OffsetRecord, encode_record
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import TRANSACTIONAL, Batch, build_batch

logger = logging.getLogger(__name__)

RECORDS_INLINE_MAX = 100  # records, or members in a record, of a batch that is made on the event loop
BYTES_INLINE_MAX = 1 << 16  # by `least_bytes`; with no ASCII character in it, a batch may take four times as many
COMPRESSED_INLINE_MAX = 1 << 13
# An uncompressed batch may have so many times `max.message.bytes`. It is in memory as a whole, here
# and whenever the groups are loaded.
EXPANSION_MAX = 16
RECORD_BYTES = 30  # numbers, and the lengths of strings


def least_bytes(record: GroupRecord) -> int:
    """How many bytes the record takes at least: as many as if its strings were ASCII."""
    if isinstance(record, OffsetRecord):
        size_bytes = RECORD_BYTES + len(record.group_id) + len(record.topic_partition.topic)
        return size_bytes if record.commit is None else size_bytes + len(record.commit.metadata)
    members = () if record.metadata is None else record.metadata.members
    return len(record.group_id) + sum(
        RECORD_BYTES
        + len(member.member_id)
        + len(member.group_instance_id or "")
        + len(member.client_id)
        + len(member.client_host)
        + len(member.subscription)
        + len(member.assignment)
        for member in members
    )


def tombstones_at_a_time(group_id: str, most: int) -> int:
    """How many tombstones of a group's offsets are written in one step: `most`, or fewer if its name is long."""
    return max(1, min(most, BYTES_INLINE_MAX // (RECORD_BYTES + len(group_id))))


def is_small(records: Iterable[GroupRecord], codec: Codec) -> bool:
    """Whether a batch of these few records can be made on the event loop."""
    limit = BYTES_INLINE_MAX if codec is Codec.NONE else COMPRESSED_INLINE_MAX
    return sum(map(least_bytes, records)) <= limit


def build(
    records: Sequence[GroupRecord], now_ms: int, codec: Codec, max_bytes: int, transaction: Transaction | None = None
) -> Batch | ErrorCode:
    """One batch of these records; `max_bytes` is `max.message.bytes` of the topic.

    MESSAGE_TOO_LARGE, if that is certain without encoding them; UNKNOWN_SERVER_ERROR if a string is too long.
    """
    expansion = 1 if codec is Codec.NONE else EXPANSION_MAX
    if sum(map(least_bytes, records)) > max_bytes * expansion:
        return ErrorCode.MESSAGE_TOO_LARGE

    # ValueError means that a string of a client is too long for the record: the request is wrong,
    # the state of the group is not.
    try:
        encoded = [encode_record(record) for record in records]
    except ValueError as error:
        logger.warning("a record of a group cannot be written: %s", error)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    if transaction is None:
        return build_batch(encoded, timestamp_ms=now_ms, codec=codec)
    return build_batch(
        encoded,
        timestamp_ms=now_ms,
        codec=codec,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        base_sequence=0,  # as in Kafka: the coordinator's batches are not numbered, and no one checks
        attributes=TRANSACTIONAL,
    )
