"""Records as the page shows them and as lines of a download (pure).

On the page keys, values and headers are text if their bytes are UTF-8, else hexadecimal, up to `SHOWN_BYTES_MAX` bytes
of each. In a download they are complete: a JSON string if the bytes are UTF-8, else {"base64": "..."}, so that they
survive.
"""

import base64
import codecs
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from barnabas.wire.compression import Codec, CorruptRecords
from barnabas.wire.record_batch import BATCH_MAGIC, BatchHeader, read_batch_header, walk_entries
from barnabas.wire.record_reader import COMMIT, Record, read_control_record, walk_records

SHOWN_BYTES_MAX = 8 << 10
HEADERS_SHOWN_MAX = 100
HEADER_BYTES_MAX = 256  # shown of a name, or a value: half a thousand records with long ones would fill the memory
MARK = 0  # the first byte of a value whose schema is in a registry, before four bytes with its id
MARKED_BYTES = 5
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"

Shown = dict[str, object]


class Slice(NamedTuple):
    """Records as fetched, and what is wanted of them."""

    records: bytes
    offset: int  # the first that is wanted
    end_offset: int  # the first that is not wanted any more
    last_stable_offset: int
    aborted: Sequence[tuple[int, int]]  # (producer id, first offset)


class Found(NamedTuple):
    """One record with what became of its transaction: None outside of one, else open, committed, aborted."""

    header: BatchHeader | None
    record: Record
    transaction: str | None


def has_transactions(records: bytes) -> bool:
    """Whether one of these batches belongs to a transaction."""
    return any(
        entry.magic == BATCH_MAGIC and read_batch_header(records, start).is_transactional
        for start, entry in walk_entries(records)
    )


def records_in(wanted: Slice, count_max: int) -> tuple[list[Found], int, str | None]:
    """Records, the offset behind the last one, and an error that ends them. Markers of transactions are among them."""
    found: list[Found] = []
    next_offset = wanted.offset

    # As a consumer does it: a transaction is aborted from its first offset up to its marker.
    first_offsets = sorted((first, producer) for producer, first in wanted.aborted)
    aborting: set[int] = set()  # producers in an aborted transaction
    undecided: dict[int, list[int]] = {}  # producer id -> its records behind the last stable offset
    try:
        for header, record in walk_records(wanted.records):
            if isinstance(record, int):
                # Compaction may have removed the last records of a batch.
                next_offset = max(next_offset, min(record, wanted.end_offset))
                continue
            if header is not None and header.is_transactional:
                while first_offsets and first_offsets[0][0] <= record.offset:
                    aborting.add(first_offsets.pop(0)[1])

            # A marker counts even if its offset is below what is wanted: it ends what began before.
            ended = _ended(header, record, found, undecided, aborting)
            if record.offset < wanted.offset:
                continue
            if record.offset >= wanted.end_offset or len(found) >= count_max:
                break

            next_offset = record.offset + 1
            transaction = ended or _transaction(header, record, wanted.last_stable_offset, aborting)
            if transaction == OPEN and header is not None:
                undecided.setdefault(header.producer_id, []).append(len(found))
            found.append(Found(header, record, transaction))
    except CorruptRecords as error:
        return found, next_offset, str(error)
    return found, next_offset, None


def _ended(
    header: BatchHeader | None,
    record: Record,
    found: list[Found],
    undecided: dict[int, list[int]],
    aborting: set[int],
) -> str | None:
    """How the transaction ends whose marker this record is; None of all others."""
    if header is None or not header.is_control:
        return None
    ended = COMMITTED if read_control_record(record).type == COMMIT else ABORTED
    for index in undecided.pop(header.producer_id, ()):
        found[index] = found[index]._replace(transaction=ended)
    aborting.discard(header.producer_id)
    return ended


def _transaction(header: BatchHeader | None, record: Record, last_stable_offset: int, aborting: set[int]) -> str | None:
    if header is None or not header.is_transactional:
        return None
    # Above the last stable offset nothing is decided yet, unless a marker follows in what was fetched.
    if record.offset >= last_stable_offset:
        return OPEN
    return ABORTED if header.producer_id in aborting else COMMITTED


# -- on the page


def shown_record(partition: int, found: Found) -> Shown:
    """A record as JSON for the page."""
    header, record, transaction = found
    row: Shown = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "transaction": transaction,
    }

    # A marker is a line of its own on the page: offsets have no gap there that a person would wonder about.
    if header is not None and header.is_control:
        return row | {"is_marker": True, "producer_id": header.producer_id}
    return row | {
        "key": shown_bytes(record.key),
        "value": shown_bytes(record.value),
        "headers": [
            [name[:HEADER_BYTES_MAX], shown_bytes(value, HEADER_BYTES_MAX)]
            for name, value in record.headers[:HEADERS_SHOWN_MAX]
        ],
        "header_count": len(record.headers),
        "codec": codec_name(header),
        "producer_id": -1 if header is None else header.producer_id,
        "leader_epoch": -1 if header is None else header.partition_leader_epoch,
    }


def codec_name(header: BatchHeader | None) -> str | None:
    """The codec of a batch; None of the older formats, whose entries have each their own."""
    return None if header is None else Codec(header.codec).name.lower()


def shown_bytes(data: bytes | None, bytes_max: int = SHOWN_BYTES_MAX) -> Shown | None:
    """The first bytes as text or in hexadecimal digits, with the number of all; None for null."""
    if data is None:
        return None
    head = bytes(data[:bytes_max])
    shown: Shown = {"size": len(data)}
    if len(data) > len(head):
        shown["is_cut"] = True

    # A hint only: any value may begin like this.
    if len(head) > MARKED_BYTES and head[0] == MARK:
        shown["schema_id"] = int.from_bytes(head[1:MARKED_BYTES], "big")
    text = _text_of(head, is_whole=len(data) == len(head))
    if text is None:
        shown["hex"] = head.hex()
    else:
        shown["text"] = text
    return shown


def _text_of(data: bytes, *, is_whole: bool) -> str | None:
    try:
        # The cut may be in the middle of a character.
        text = codecs.getincrementaldecoder("utf-8")().decode(data, final=is_whole)
    except UnicodeDecodeError:
        return None
    # Control characters are invisible, so such bytes are shown in digits.
    return text if all(each >= " " or each in "\t\n\r" for each in text) else None


# -- in a download


def lines_of(topic: str, partition: int, found: Sequence[Found]) -> Iterator[bytes]:
    """Each record as a line of JSON; markers are left out."""
    for header, record, transaction in found:
        if header is not None and header.is_control:
            continue

        # The same names as on the page, so that a script can be tried there first.
        line: dict[str, object] = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": exact(record.key),
            "value": exact(record.value),
            "headers": [[name, exact(value)] for name, value in record.headers],
        }
        if transaction is not None:
            line["transaction"] = transaction
        yield json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n"


def exact(data: bytes | None) -> str | dict[str, str] | None:
    """Bytes from which the same bytes can be made again."""
    if data is None:
        return None
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
