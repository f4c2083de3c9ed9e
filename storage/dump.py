"""The content of a file of a log directory as rows of named values: `barnabas log dump`. Reads, changes nothing.

The kind of a file follows from its name. A batch is one row; with `records` each of its records is a further row.
Records of internal topics are decoded, which the name of the file's directory tells.
"""

from collections.abc import Callable, Iterator, Mapping

from barnabas.storage.checkpoint import (
    LEADER_EPOCH_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    read_checkpoint,
    read_leader_epochs,
    read_meta_properties,
    read_partition_metadata,
)
from barnabas.storage.disk import Disk, StorageError, join
from barnabas.storage.entries import EntrySpan, max_timestamp_of, walk_file
from barnabas.storage.files import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offset_of_name,
)
from barnabas.storage.index import OFFSET_ENTRY, TIME_ENTRY, IndexCorrupt, count_entries
from barnabas.storage.internal_records import internal_record
from barnabas.storage.producers import SnapshotCorrupt, decode_snapshot
from barnabas.storage.transaction_index import parse_transactions
from barnabas.wire.record_batch import BATCH_MAGIC
from barnabas.wire.records import (
    DELETE_HORIZON,
    ControlRecord,
    CorruptRecords,
    Record,
    is_intact,
    read_batch_header,
    read_control_record,
    read_records,
)
from barnabas.wire.topics import INTERNAL_TOPICS, topic_id_text
from barnabas.wire.versioned_records import MalformedRecord

Value = str | int | bool | None
Row = Mapping[str, Value]
Reader = Callable[[Disk, str, int], Iterator[Row]]

# The three codec bits of the attributes choose one; a damaged or newer batch may have any of the
# eight values.
CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown")
CONTROL_TYPES = {0: "abort", 1: "commit"}


class NotDumped(StorageError):
    """The file has an unknown name, or breaks its format."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(path, "dump", why)


def read_rows(disk: Disk, path: str, *, records: bool = False) -> Iterator[Row]:
    """The file as rows. StorageError (NotDumped); blocking: long."""
    name = path.rpartition("/")[2]
    reader = _reader_of(name)
    if reader is None:
        raise NotDumped(path, "a log directory has no file of this name")
    if reader is _log_rows and records:
        reader = _log_rows_with_records
    try:
        # Index entries are relative to the base offset, which only the name of the file has.
        yield from reader(disk, path, offset_of_name(name) or 0)
    # Rows up to the damage have been yielded: that is what the command is used for.
    except (IndexCorrupt, SnapshotCorrupt, CorruptRecords) as error:
        raise NotDumped(path, str(error)) from error


def files_below(disk: Disk, directory: str) -> Iterator[str]:
    """The paths of the files that `read_rows` knows, in a log directory or in that of one partition. StorageError."""
    for path in _paths_in(disk, directory):
        # The directory of a partition has no subdirectories.
        inside = _paths_in(disk, path) if disk.is_directory(path) else [path]
        yield from (each for each in inside if _reader_of(each.rpartition("/")[2]) is not None)


def _paths_in(disk: Disk, directory: str) -> list[str]:
    return [join(directory, name) for name in sorted(disk.list(directory))]


def is_time(name: str) -> bool:
    """Whether a row's value of this name is a time, in milliseconds since 1970; -1 is none."""
    return name.removesuffix("_ms").endswith("timestamp") or name == "delete_horizon"


def _reader_of(name: str) -> Reader | None:
    # Deleted files, and those of a compaction pass, have the format that they had or will have without the suffix.
    for suffix in (DELETED, CLEANED, SWAP):
        name = name.removesuffix(suffix)
    suffix = name[name.rfind(".") :] if "." in name else name
    # The whole name (meta.properties) or the suffix (.index) decides, or it is one of the four
    # offset checkpoints.
    reader = READERS.get(name) or READERS.get(suffix)
    return _checkpoint_rows if reader is None and name.endswith("-checkpoint") else reader


# -- logs


def _log_rows_with_records(disk: Disk, path: str, base: int) -> Iterator[Row]:
    return _log_rows(disk, path, base, records=True)


def _log_rows(disk: Disk, path: str, base: int, *, records: bool = False) -> Iterator[Row]:
    file = disk.open(path, read_only=True)
    try:
        end_position = 0
        for span, data in walk_file(file, 0, file.size_bytes()):
            end_position = span.position + span.size_bytes
            yield _batch_row(span, data) if span.magic == BATCH_MAGIC else _message_row(span, data)
            if records:
                yield from _record_rows(topic_of(path.rpartition("/")[0]), span, data)
        # These bytes are no whole entry, after a crash for example: recovery cuts the log there.
        if end_position < file.size_bytes():
            yield {"position": end_position, "bytes_left_over": file.size_bytes() - end_position}
    finally:
        file.release()


def _batch_row(span: EntrySpan, data: memoryview) -> Row:
    # The row is made from the header and the checksum alone, so a batch that cannot be decompressed
    # has one, too.
    header = read_batch_header(data)
    return {
        "base_offset": span.base_offset,
        "last_offset": span.last_offset,
        "position": span.position,
        "size_bytes": span.size_bytes,
        "record_count": header.record_count,
        "leader_epoch": header.partition_leader_epoch,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.uses_log_append_time else "CreateTime",
        "codec": CODECS[header.codec],
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.base_timestamp if header.attributes & DELETE_HORIZON else None,
        "magic": span.magic,
        "crc": header.crc,
        # A batch with a wrong checksum is shown, too: its header often tells what happened.
        "intact": is_intact(data),
    }


def _message_row(span: EntrySpan, data: memoryview) -> Row:
    return {
        "offset": span.last_offset,
        "position": span.position,
        "size_bytes": span.size_bytes,
        "timestamp": max_timestamp_of(span, data),
        "magic": span.magic,
        "intact": is_intact(data),
    }


def topic_of(directory: str) -> str:
    """The topic in the name of a partition's directory; without a dash the whole name."""
    name = directory.rpartition("/")[2]
    return name.rpartition("-")[0] or name


def _record_rows(topic: str, span: EntrySpan, data: memoryview) -> Iterator[Row]:
    # A marker's key and value are numbers in binary, which mean nothing as text.
    is_control = span.magic == BATCH_MAGIC and read_batch_header(data).is_control
    for record in read_records(data):
        values = _control_values(read_control_record(record)) if is_control else _record_values(topic, record)
        yield {"offset": record.offset, "timestamp": record.timestamp, **values}


def _control_values(control: ControlRecord) -> Row:
    # KRaft and newer brokers have more types; their number is shown.
    name = CONTROL_TYPES.get(control.type, str(control.type))
    return {"marker": name, "coordinator_epoch": control.coordinator_epoch}


def _record_values(topic: str, record: Record) -> Row:
    if topic in INTERNAL_TOPICS:
        try:
            known = internal_record(topic, record.key, record.value)
        except MalformedRecord as error:
            return {"unreadable": str(error), "key": _text(record.key), "value": _text(record.value)}
        if known is not None:
            return known
    headers = " ".join(f"{name}={_text(value)}" for name, value in record.headers)
    return {"key": _text(record.key), "value": _text(record.value), "headers": headers or None}


def _text(data: bytes | None) -> str | None:
    """Bytes as UTF-8 text; invalid bytes and unprintable characters are escaped, so that a row stays one line."""
    if data is None:
        return None
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# -- indexes and the rest


# The dumps of both indexes end before the padding of zeros that a crash of Kafka leaves
# (`count_entries`).
def _offset_index_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    file = disk.open(path, read_only=True)
    try:
        data = file.read(0, count_entries(file, OFFSET_ENTRY) * OFFSET_ENTRY.size)
    finally:
        file.release()
    for relative, position in OFFSET_ENTRY.iter_unpack(data):
        yield {"offset": base + relative, "position": position}


def _time_index_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    file = disk.open(path, read_only=True)
    try:
        data = file.read(0, count_entries(file, TIME_ENTRY) * TIME_ENTRY.size)
    finally:
        file.release()
    for timestamp, relative in TIME_ENTRY.iter_unpack(data):
        yield {"timestamp": timestamp, "offset": base + relative}


def _transaction_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    for aborted in parse_transactions(disk.read_file(path)):
        yield aborted._asdict()


def _snapshot_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    for producer in decode_snapshot(disk.read_file(path)):
        yield {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_first_offset": producer.transaction_first_offset,
        }


def _epoch_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    for epoch, start_offset in read_leader_epochs(disk, path).entries:
        yield {"leader_epoch": epoch, "start_offset": start_offset}


def _checkpoint_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    for key, offset in read_checkpoint(disk, path).items():
        yield {"topic": key.topic, "partition": key.partition, "offset": offset}


def _metadata_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    topic_id = read_partition_metadata(disk, path)
    yield {"topic_id": None if topic_id is None else topic_id_text(topic_id)}


def _properties_rows(disk: Disk, path: str, base: int) -> Iterator[Row]:
    meta = read_meta_properties(disk, path)
    if meta is not None:
        yield {"broker.id": meta.broker_id, "cluster.id": meta.cluster_id, **meta.others}


READERS: Mapping[str, Reader] = {
    LOG: _log_rows,
    INDEX: _offset_index_rows,
    TIME_INDEX: _time_index_rows,
    TRANSACTION_INDEX: _transaction_rows,
    SNAPSHOT: _snapshot_rows,
    LEADER_EPOCH_CHECKPOINT: _epoch_rows,
    PARTITION_METADATA: _metadata_rows,
    META_PROPERTIES: _properties_rows,
}
