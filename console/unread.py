"""The timestamp of the first record that a group has not consumed (pure); its age is the lag in seconds."""

from typing import NamedTuple

from barnabas.wire.record_batch import BATCH_MAGIC, MAGIC_POSITION, read_batch_header
from barnabas.wire.record_reader import RecordHead, read_all_records, read_heads, timestamp_of
from barnabas.wire.records import Steps

FIRST_BATCH_BYTES = 1  # of a Fetch: it has at least one batch, however large that is


class GoOn(NamedTuple):
    """These records are all consumed, or markers: the first one that is not may follow."""

    next_offset: int


def first_time(records: memoryview, offset: int) -> Steps[int | GoOn]:
    """The timestamp in ms of the first record at the offset or behind it, which is no marker.

    `GoOn` where there is none. CorruptRecords.
    """
    position = 0
    next_offset = offset
    while position < len(records):
        # A directory of an older Kafka may hold messages of formats 0 and 1: they are read one by one.
        if position + MAGIC_POSITION < len(records) and records[position + MAGIC_POSITION] < BATCH_MAGIC:
            return _first_old_time(bytes(records[position:]), offset, next_offset)

        header = read_batch_header(records, position)
        batch = records[position : position + header.size_bytes]
        position += header.size_bytes
        next_offset = max(next_offset, header.last_offset + 1)
        if header.is_control or header.last_offset < offset:
            continue
        for head in read_heads(header, batch):
            if not isinstance(head, RecordHead):
                yield head
            elif header.base_offset + head.offset_delta >= offset:
                return timestamp_of(header, head.timestamp_delta)
    return GoOn(next_offset)


def _first_old_time(records: bytes, offset: int, next_offset: int) -> int | GoOn:
    for header, record in read_all_records(records):
        # Messages of format 0 have no timestamp.
        if header is None and record.offset >= offset and record.timestamp >= 0:
            return record.timestamp
        next_offset = max(next_offset, record.offset + 1)
    return GoOn(next_offset)
