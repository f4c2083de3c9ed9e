"""The files of data directories: directories -> replicas, partitions, segment files, parts of files.

A data directory (`log.dirs`) holds one folder `topic-partition` for each partition (reference D.1), and in it `.log`
files that are named after their first offset. A *replica* is a broker: it is named by the `broker.id` in
`meta.properties`, so that several directories of one broker are one replica; a directory without that file is a replica
of its own and is named by its path, and `name=directory` names it by hand.

A large segment is divided into parts that are read in parallel. The offset index has positions at which batches begin;
an entry is used only if a valid batch with a matching offset is at that position, so a broken index reduces
parallelism, but not correctness. Files that compaction or deletion left behind (`.cleaned`, `.swap`, `.deleted`,
folders `…-delete`, `…-future`, `…-stray`) are skipped, as by a broker.
"""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from barnabas.storage.checkpoint import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    read_checkpoint,
    read_meta_properties,
)
from barnabas.storage.disk import Disk, File, StorageError, join
from barnabas.storage.entries import SMALLEST_ENTRY_BYTES, span_at
from barnabas.storage.files import INDEX, LOG, offset_of_name
from barnabas.storage.index import OFFSET_ENTRY, read_entries
from barnabas.wire.records import is_intact
from barnabas.wire.topics import TopicPartition

SPLIT_BYTES = 64 << 20  # a gigabyte, Kafka's segment.bytes, becomes 16 tasks of some seconds each
HEAD_BYTES = 32  # what `span_at` looks at


class DataDirectory(NamedTuple):
    """One `log.dirs` entry of one broker."""

    replica: str
    path: str


class Part(NamedTuple):
    """A stretch of one segment file, which one task reads."""

    replica: str
    topic: str
    partition: int
    path: str
    start: int  # a batch begins here
    end: int  # and another here, or the file ended here when it was looked at
    is_log_end: bool  # nothing of this log lies behind


class Holding(NamedTuple):
    """What a replica has of a partition, from names and checkpoints alone."""

    replica: str
    topic: str
    partition: int
    log_start_offset: int
    high_watermark: int  # as last saved: the true one is this or higher; 0 where it never was


def name_directories(disk: Disk, texts: Sequence[str]) -> list[DataDirectory]:
    """Data directories as a user gives them: `DIRECTORY` or `NAME=DIRECTORY`. StorageError if one is not there."""
    found = []
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or disk.is_directory(text):
            name = ""
            path = text
        if not disk.is_directory(path):
            raise StorageError(path, "look for the data directory", "ENOENT")
        found.append(DataDirectory(name or _own_name(disk, path), path))
    return found


def _own_name(disk: Disk, path: str) -> str:
    properties = read_meta_properties(disk, join(path, META_PROPERTIES))
    return path if properties is None or properties.broker_id is None else str(properties.broker_id)


def list_partitions(
    disk: Disk, directories: Sequence[DataDirectory], topics: Collection[str] = ()
) -> Iterator[tuple[DataDirectory, TopicPartition]]:
    """The partitions that these directories hold; with `topics` only theirs. Blocking: long."""
    for directory in directories:
        for name in disk.list(directory.path):
            topic, _, number = name.rpartition("-")
            is_one = topic and number.isascii() and number.isdigit() and (not topics or topic in topics)
            if is_one and disk.is_directory(join(directory.path, name)):
                yield directory, TopicPartition(topic, int(number))


def list_segments(disk: Disk, directory: DataDirectory, place: TopicPartition) -> list[tuple[int, str]]:
    """Base offset and path of every segment of a partition, in order."""
    folder = join(directory.path, str(place))
    names = [name for name in disk.list(folder) if name.endswith(LOG) and offset_of_name(name) is not None]
    return [(int(name.removesuffix(LOG)), join(folder, name)) for name in names]


def list_holdings(disk: Disk, directories: Sequence[DataDirectory], topics: Collection[str] = ()) -> Iterator[Holding]:
    """What each replica has of each partition. Blocking: long."""
    starts = {each: read_checkpoint(disk, join(each.path, LOG_START_CHECKPOINT)) for each in directories}
    marks = {each: read_checkpoint(disk, join(each.path, HIGH_WATERMARK_CHECKPOINT)) for each in directories}
    for directory, place in list_partitions(disk, directories, topics):
        segments = list_segments(disk, directory, place)
        first = segments[0][0] if segments else 0
        start = max(first, starts[directory].get(place, 0))
        yield Holding(directory.replica, *place, start, marks[directory].get(place, 0))


def plan_parts(
    disk: Disk, directories: Sequence[DataDirectory], topics: Collection[str] = (), split_bytes: int = SPLIT_BYTES
) -> Iterator[Part]:
    """Everything there is to read, divided. Blocking: long."""
    for directory, place in list_partitions(disk, directories, topics):
        segments = list_segments(disk, directory, place)
        for base_offset, path in segments:
            bounds = [0, *_boundaries(disk, path, base_offset, split_bytes), disk.size(path)]
            for start, end in pairwise(bounds):
                is_log_end = path == segments[-1][1] and end == bounds[-1]
                yield Part(directory.replica, *place, path, start, end, is_log_end)


def _boundaries(disk: Disk, path: str, base_offset: int, split_bytes: int) -> Iterator[int]:
    """Positions about `split_bytes` from each other at which batches begin."""
    index_path = path.removesuffix(LOG) + INDEX
    size_bytes = disk.size(path)
    if size_bytes < 2 * split_bytes or not disk.exists(index_path):
        return
    index = disk.open(index_path, read_only=True)
    log = disk.open(path, read_only=True)
    try:
        last = 0
        for relative, position in OFFSET_ENTRY.iter_unpack(read_entries(index, OFFSET_ENTRY)):
            is_due = last + split_bytes <= position <= size_bytes - split_bytes // 2
            if is_due and _batch_lies_at(log, position, base_offset + relative):
                yield position
                last = position
    finally:
        index.release()
        log.release()


def _batch_lies_at(log: File, position: int, offset: int) -> bool:
    """Whether a sound batch begins there that the index can mean by `offset`: a follower's entry names the last of
    several batches that it wrote at once."""
    head = log.read(position, HEAD_BYTES)
    span = span_at(head, 0, position) if len(head) >= SMALLEST_ENTRY_BYTES else None
    if span is None or span.last_offset > offset or position + span.size_bytes > log.size_bytes():
        return False
    return is_intact(log.read(position, span.size_bytes))
