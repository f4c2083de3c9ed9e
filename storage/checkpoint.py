"""The small text files of a log directory and of a partition (reference D.1, D.2), read and written whole.

    offset checkpoints          0 / number of entries / `topic partition offset` a line
    leader-epoch-checkpoint     0 / number of entries / `epoch start-offset` a line
    partition.metadata          `version: 0` / `topic_id: <22 characters>`
    meta.properties             Java properties: version=0, broker.id, cluster.id

`parse_` and `format_` are pure and convert between text and value; `read_` and `write_` add the disk. A missing file
reads as empty, or as None. A file that breaks its format raises `CheckpointCorrupt`: a guess could mean wrong offsets,
so the log directory goes offline, as with any other `StorageError`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from barnabas.storage.disk import Disk, StorageError
from barnabas.storage.epochs import LeaderEpochs
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition, topic_id_from_text, topic_id_text

CHECKPOINT_VERSION = 0
PARTITION_METADATA_VERSION = 0
# Version 1, with node.id, belongs to a KRaft node, which cannot go back to ZooKeeper.
META_PROPERTIES_VERSION = "0"

RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

Value = TypeVar("Value")

_PLAIN_PROPERTY = re.compile(r"[A-Za-z.]+=[A-Za-z0-9._-]*\Z")


class Malformed(ValueError):
    """The text of a small file breaks its format at `line`, counted from 1."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(line, why)
        self.line = line
        self.why = why

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}"


class CheckpointCorrupt(StorageError):
    """A small file breaks its format; as a StorageError it takes the log directory offline."""

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(path, "parse", f"line {line}: {why}")
        self.line = line


class MetaProperties(NamedTuple):
    """The owner of a log directory. `others` holds unknown properties."""

    # A newer Kafka may have written properties that this broker does not know; a rewrite keeps them.

    broker_id: int | None = None
    cluster_id: str | None = None
    others: Mapping[str, str] = {}


# -- offsets by partition


def parse_checkpoint(text: str) -> dict[TopicPartition, int]:
    """The offsets of an offset checkpoint. Malformed if the text breaks the format."""
    offsets = {}
    for line, (topic, partition, offset) in _parse_table(text, 3):
        offsets[TopicPartition(topic, _number(line, partition))] = _number(line, offset)
    return offsets


def format_checkpoint(offsets: Mapping[TopicPartition, int]) -> str:
    """The text of an offset checkpoint."""
    return _format_table((key.topic, key.partition, offset) for key, offset in offsets.items())


def read_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The offsets of this checkpoint; empty if there is no such file. Blocking: long."""
    return _read(disk, path, parse_checkpoint) or {}


def write_checkpoint(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint, atomically and durably. Blocking: long."""
    # The whole file is replaced, because a torn or mixed checkpoint would give a log a wrong offset.
    disk.replace_file(path, format_checkpoint(offsets).encode())


# -- leader epochs


def parse_leader_epochs(text: str) -> LeaderEpochs:
    """The epochs of a leader-epoch-checkpoint. Malformed if the text breaks the format."""
    entries = []
    for line, (epoch, start_offset) in _parse_table(text, 2):
        entry = (_number(line, epoch), _number(line, start_offset))
        # `LeaderEpochs` would take a negative number for a bug of this broker.
        if min(entry) < 0:
            raise Malformed(line, "neither an epoch nor an offset is negative")
        entries.append(entry)
    return LeaderEpochs(entries)


def format_leader_epochs(epochs: LeaderEpochs) -> str:
    """The text of a leader-epoch-checkpoint."""
    return _format_table(epochs.entries)


def read_leader_epochs(disk: Disk, path: str) -> LeaderEpochs:
    """The epochs of this checkpoint; empty if there is no such file. Blocking: long."""
    return _read(disk, path, parse_leader_epochs) or LeaderEpochs()


# -- the topic id of a partition


def parse_partition_metadata(text: str) -> bytes:
    """The topic id (KIP-516). Malformed if there is none, or if it is zero, which no topic has."""
    lines = text.splitlines()
    # Kafka writes the file with a rename, so an empty or cut one is damage, unlike an empty checkpoint.
    _check_version(lines[0].partition("version: ")[2] if lines else "", PARTITION_METADATA_VERSION)
    name, _, value = lines[1].partition(": ") if len(lines) > 1 else ("", "", "")
    if name != "topic_id":
        raise Malformed(2, "'topic_id: <id>' expected")
    try:
        topic_id = topic_id_from_text(value.strip())
    except ValueError as error:
        raise Malformed(2, str(error)) from None
    # A zero on the wire means "no topic id": a log with it would look like a log without a topic
    # id.
    if topic_id == ZERO_TOPIC_ID:
        raise Malformed(2, "the topic id is zero")
    return topic_id


def format_partition_metadata(topic_id: bytes) -> str:
    """The text of partition.metadata (Kafka writes no line feed at its end)."""
    return f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {topic_id_text(topic_id)}"


def read_partition_metadata(disk: Disk, path: str) -> bytes | None:
    """The topic id of a partition; None if there is no such file. Blocking: long."""
    return _read(disk, path, parse_partition_metadata)


def write_partition_metadata(disk: Disk, path: str, topic_id: bytes) -> None:
    """Write partition.metadata, atomically and durably. Blocking: long."""
    disk.replace_file(path, format_partition_metadata(topic_id).encode())


# -- the owner of a log directory


def parse_meta_properties(text: str) -> MetaProperties:
    """The content of meta.properties. Malformed if it belongs to a KRaft node, or breaks the format."""
    properties = _parse_properties(text)
    # The known keys are popped: what is left over is unknown, and kept.
    version = properties.pop("version", None)
    if version != META_PROPERTIES_VERSION:
        raise Malformed(_line_of(text, "version"), f"version {version} is not that of a ZooKeeper mode broker (0)")
    broker_id = properties.pop("broker.id", None)
    number = None if broker_id is None else _number(_line_of(text, "broker.id"), broker_id)
    return MetaProperties(number, properties.pop("cluster.id", None), properties)


def format_meta_properties(meta: MetaProperties) -> str:
    """The text of meta.properties."""
    properties = dict(meta.others)
    if meta.broker_id is not None:
        properties["broker.id"] = str(meta.broker_id)
    if meta.cluster_id is not None:
        properties["cluster.id"] = meta.cluster_id
    properties["version"] = META_PROPERTIES_VERSION
    return "".join(f"{key}={_escape(value)}\n" for key, value in properties.items())


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """The owner of a log directory; None if there is no such file. Blocking: long."""
    return _read(disk, path, parse_meta_properties)


def write_meta_properties(disk: Disk, path: str, meta: MetaProperties) -> None:
    """Write meta.properties, atomically and durably. Blocking: long."""
    disk.replace_file(path, format_meta_properties(meta).encode())


# -- parts


def _read(disk: Disk, path: str, parse: Callable[[str], Value]) -> Value | None:
    # Missing is normal: each of these files is first written some time after the directory was created.
    if not disk.exists(path):
        return None
    # A file that breaks its format takes the log directory offline: a guess could mean wrong offsets.
    try:
        return parse(disk.read_file(path).decode())
    except UnicodeDecodeError as error:
        raise CheckpointCorrupt(path, 1, f"not UTF-8 at byte {error.start}") from None
    except Malformed as error:
        raise CheckpointCorrupt(path, error.line, error.why) from None


def _parse_table(text: str, columns: int) -> list[tuple[int, list[str]]]:
    """(line number, fields) of each row; the first two lines are the version and the number of rows."""
    # Kafka creates its checkpoints as empty files: an empty text is an empty table.
    lines = text.splitlines()
    if not lines:
        return []
    _check_version(lines[0], CHECKPOINT_VERSION)
    # Kafka's reader takes a file with only the version for empty.
    if len(lines) == 1:
        return []
    expected = _number(2, lines[1])
    rows = [(number, line.split()) for number, line in enumerate(lines[2:], start=3)]
    for number, fields in rows:
        if len(fields) != columns:
            raise Malformed(number, f"{columns} fields expected, not {len(fields)}")
    # A file that was cut at the end of a line would otherwise look whole.
    if len(rows) != expected:
        raise Malformed(2, f"{expected} entries announced, {len(rows)} there")
    return rows


def _format_table(rows: Iterable[tuple[object, ...]]) -> str:
    # The empty string at the end gives the last line its line feed.
    lines = [" ".join(map(str, row)) for row in rows]
    return "\n".join([str(CHECKPOINT_VERSION), str(len(lines)), *lines, ""])


def _check_version(text: str, version: int) -> None:
    if _number(1, text) != version:
        raise Malformed(1, f"version {text.strip()} is not known")


def _number(line: int, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise Malformed(line, f"{text!r} is not a number") from None


def _parse_properties(text: str) -> dict[str, str]:
    """The entries of a Java properties file."""
    # Brokers write `key=value` without escapes; the library, which takes 60 ms to import, is for other files.
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    if all(_PLAIN_PROPERTY.match(line) for line in lines):
        return dict(line.split("=", 1) for line in lines)
    from javaproperties import InvalidUEscapeError, loads

    try:
        return loads(text)
    except InvalidUEscapeError as error:
        raise Malformed(1, str(error)) from None


def _escape(value: str) -> str:
    """A property's value, escaped where a character would end or continue the line."""
    if _PLAIN_PROPERTY.match(f"key={value}"):
        return value
    from javaproperties import escape

    return escape(value)


def _line_of(text: str, key: str) -> int:
    """The line of a property, for error messages; 1 if it is missing."""
    lines = enumerate(text.splitlines(), start=1)
    return next((number for number, line in lines if line.lstrip().startswith(key)), 1)
