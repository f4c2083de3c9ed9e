"""A log directory, and what is checked before its logs are opened: lock, owner, names, markers (reference D.1).

    <topic>-<partition>                     a log
    <topic>-<partition>.<32 hex>-delete     a deleted log that is not removed yet, perhaps from an earlier run
    <topic>-<partition>.<32 hex>-future     the copy that a move between directories fills (`future_logs.py`)
    <topic>-<partition>.<32 hex>-stray      a log that no partition uses and no request deleted; it is left alone

Any other directory ends the start before anything is changed. Plain files are ignored.

The last write of a clean shutdown is a marker file. If the marker exists, the next start opens the logs without a
check. A directory with a failed sync or a failing device gets a `.failed` marker instead: the next start first rewrites
everything from the recovery points on.

Every function here but `mark_failed` blocks long: it runs in a worker thread.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import trio

from barnabas.storage.checkpoint import (
    CLEANER_CHECKPOINT,
    LOG_START_CHECKPOINT,
    META_PROPERTIES,
    OFFSET_CHECKPOINTS,
    RECOVERY_POINT_CHECKPOINT,
    MetaProperties,
    read_checkpoint,
    read_meta_properties,
    write_meta_properties,
)
from barnabas.storage.disk import Disk, Lock, StorageError, join, make_durable_directory, parent_of
from barnabas.storage.files import LOG, renew
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog

logger = logging.getLogger(__name__)

EMBEDDED_STORE_FILE = "metadata.sqlite"  # a plain file in the first log directory: Kafka ignores those
LOCK_FILE = ".lock"
FAILURE_MARK = ".failed"
CLEAN_SHUTDOWN_MARKER = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
NOT_PARTITIONS = frozenset({"remote-log-index-cache", "__cluster_metadata-0"})  # a Java broker may have left them
DIRECTORY_NAME_BYTES_MAX = 255  # of Linux file systems

# Greedy, because a topic name may itself contain "-<digits>": the last one is the partition. A log's directory ends in
# digits, so none of the other patterns matches it, whatever its topic is called.
_PARTITION_NAME = re.compile(r"(\S+)-(\d+)\Z")
_DELETED_NAME = re.compile(r"\S+-\d+\.\S+-delete\Z")
_FUTURE_NAME = re.compile(r"(\S+)-(\d+)\.\S+-future\Z")
_UNIQUE = re.compile(r"\.([0-9a-f]{32})-(?:delete|future)\Z")
_STRAY_NAME = re.compile(r"\S+-\d+\.\S+-stray\Z")


class LogDirectoryRefused(Exception):
    """A log directory is in use, belongs to another broker, or has unknown files: an administrator must decide."""


@dataclass(slots=True)
class Loading:
    """How far the start is with the logs of all directories."""

    total: int = 0  # 0 until the directories are read
    done: int = 0


@dataclass(eq=False, slots=True)
class LogDirectory:
    """The state of one log directory. Only `LogDirectories` and the files of this folder change it."""

    path: str  # as it is configured
    absolute_path: str  # in responses and requests
    lock: Lock | None = None
    meta: MetaProperties | None = None
    failure: StorageError | None = None  # why it is offline; None while it is online
    logs: dict[TopicPartition, "PartitionLog"] = field(default_factory=dict)
    future_logs: dict[TopicPartition, "PartitionLog"] = field(default_factory=dict)  # no key is also in `logs`
    creating: int = 0  # logs that are being created here: `placement` counts them like existing ones
    written: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)  # the content of each checkpoint file
    writing: trio.Lock = field(default_factory=trio.Lock)  # one writer of checkpoints at a time: they share a .tmp

    def holds(self, log: "PartitionLog") -> bool:
        """Whether this log is in use here."""
        return log in (self.logs.get(log.topic_partition), self.future_logs.get(log.topic_partition))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """`with directory.in_use():` the block uses files of the directory across awaits.

        If the directory fails meanwhile, the block raises the directory's StorageError.
        """
        try:
            yield
        except InvariantBroken as error:
            # A failure closes the files at once, without waiting for threads. A thread that still uses one gets
            # InvariantBroken for a closed file; that is no bug if the directory has failed, and one otherwise.
            if self.failure is None:
                raise
            raise self.failure from error

    def take_all(self) -> "list[PartitionLog]":
        """Remove and return all logs, future ones included."""
        taken = [*self.logs.values(), *self.future_logs.values()]
        self.logs.clear()
        self.future_logs.clear()
        return taken

    def offsets(
        self, name: str, keys: Iterable[TopicPartition], high_watermarks: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The content of this checkpoint file for those of `keys` that have a log in this directory."""
        # The logs are looked up here, in the caller's step: one that was deleted since `keys` was
        # collected gets no entry.
        found = ((key, self.logs.get(key) or self.future_logs.get(key)) for key in keys)
        logs = {key: log for key, log in found if log is not None}
        if name == RECOVERY_POINT_CHECKPOINT:
            return {key: log.recovery_point for key, log in logs.items()}
        # The file has only the entries that the names of the segments do not give, as in Kafka: for
        # most logs none.
        if name == LOG_START_CHECKPOINT:
            starts = {key: log.log_start_offset for key, log in logs.items()}
            return {key: start for key, start in starts.items() if _needs_checkpoint(logs[key], start)}
        # A log without an entry was never compacted: all of it is dirty.
        if name == CLEANER_CHECKPOINT:
            return {key: log.first_dirty_offset for key, log in logs.items() if log.first_dirty_offset is not None}
        # The high watermark is that of the partition. A future log may be behind it, and the file of its directory must
        # not call offsets committed that the log does not have.
        known = {key: high_watermarks[key] for key in logs if key in high_watermarks}
        return {key: known[key] if key in self.logs else min(known[key], logs[key].log_end_offset) for key in known}

    def give_up(self, logs: "Sequence[PartitionLog]") -> None:
        """Close the files of these logs and release the lock."""
        for log in logs:
            log.abandon()
        # The lock goes last: without it another process may open the same logs.
        if self.lock is not None:
            self.lock.release()


class StoredIdentity(NamedTuple):
    """The cluster id and broker id in `meta.properties`."""

    broker_id: int
    cluster_id: str


class Contents(NamedTuple):
    """The directories in a log directory, by their names."""

    partitions: list[TopicPartition]
    deleted: list[str]
    futures: dict[str, TopicPartition]

    def renamed(self, key: TopicPartition, name: str, deleted: str) -> None:
        """Note that the log of this partition (current or future) was renamed to this -delete name."""
        if self.futures.pop(name, None) is None:
            self.partitions.remove(key)
        self.deleted.append(deleted)


class Prepared(NamedTuple):
    """What the checkpoint files and the marker say about the last run."""

    clean: bool  # the marker of a clean shutdown was there
    checkpoints: dict[str, dict[TopicPartition, int]]  # file name -> its offsets


def parse_partition_name(name: str) -> TopicPartition | None:
    """The partition of a log directory's name; None for other names."""
    match = _PARTITION_NAME.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def deleted_name(key: TopicPartition, unique: bytes) -> str:
    """The directory name of a deleted log; a long topic name is shortened."""
    return _shortened(key, unique, "delete")


def stray_name(key: TopicPartition, unique: bytes) -> str:
    """The directory name of a stray log: no partition of this broker uses it, and no request deleted it."""
    return _shortened(key, unique, "stray")


def _shortened(key: TopicPartition, unique: bytes, fate: str) -> str:
    suffix = f"-{key.partition}.{unique.hex()}-{fate}"
    # A topic name of 249 bytes, the longest that Kafka allows, leaves no room for the suffix. The start reads no topic
    # from these names, and `unique` keeps two of them apart.
    return key.topic[: DIRECTORY_NAME_BYTES_MAX - len(suffix)] + suffix


def future_name(key: TopicPartition, unique: bytes) -> str:
    """The directory name of a future log."""
    # The name is not shortened, unlike those above: a start reads the partition from it, to begin
    # the move again.
    return f"{key}.{unique.hex()}-future"


def unique_of(name: str) -> bytes | None:
    """The 16 bytes in the directory name of a future or a deleted log; None if another program named it."""
    match = _UNIQUE.search(name)
    return bytes.fromhex(match[1]) if match else None


def take(disk: Disk, path: str) -> tuple[Lock, MetaProperties | None]:
    """Create the directory if it is missing, lock it, read its meta.properties. DirectoryLocked if it is in use."""
    make_durable_directory(disk, path)
    lock = disk.lock(join(path, LOCK_FILE))
    try:
        return lock, read_meta_properties(disk, join(path, META_PROPERTIES))
    except StorageError:
        lock.release()
        raise


def agreed_identity(metas: Mapping[str, MetaProperties | None]) -> StoredIdentity | None:
    """The ids in the meta.properties of these directories; None if none has any. LogDirectoryRefused if they differ."""
    stored: dict[StoredIdentity, str] = {}
    for path, meta in metas.items():
        if meta is not None:
            if meta.broker_id is None or meta.cluster_id is None:
                raise LogDirectoryRefused(f"{join(path, META_PROPERTIES)} lacks broker.id or cluster.id")
            stored.setdefault(StoredIdentity(meta.broker_id, meta.cluster_id), path)
    if len(stored) > 1:
        owners = ", ".join(f"{path} to {who.broker_id} of cluster {who.cluster_id}" for who, path in stored.items())
        raise LogDirectoryRefused(f"the log directories belong to different brokers (meta.properties): {owners}")
    return next(iter(stored), None)


def read_contents(disk: Disk, path: str) -> Contents:
    """The directories in a log directory. LogDirectoryRefused for a directory name that is not a log's.

    Changes nothing.
    """
    partitions = []
    deleted = []
    futures: dict[str, TopicPartition] = {}
    for name in disk.list(path):
        # Plain files are ignored: checkpoints, markers, the embedded store.
        if name in NOT_PARTITIONS or not disk.is_directory(join(path, name)):
            continue
        key = parse_partition_name(name)
        if key is not None:
            partitions.append(key)
        # Its removal was interrupted; the caller schedules it again.
        elif _DELETED_NAME.match(name):
            deleted.append(name)
        # The name is the only record of the move, which begins again (`FutureLogs.copy_again`).
        elif future := _FUTURE_NAME.match(name):
            futures[name] = TopicPartition(future[1], int(future[2]))
        # A stray log is never deleted here: its records may be the last copy, and only an
        # administrator can decide that.
        elif _STRAY_NAME.match(name):
            logger.warning("%s is left alone: a broker put it aside", join(path, name))
        # It may be the wrong disk, for example after a change of mount points. The broker would begin with empty logs
        # beside foreign data.
        else:
            raise LogDirectoryRefused(
                f"{join(path, name)} is not named <topic>-<partition>: a log directory may hold nothing else"
                " (is it the right one?)"
            )

    return Contents(partitions, deleted, futures)


def refuse_duplicates(contents: Mapping[str, Contents]) -> None:
    """LogDirectoryRefused if a partition has two logs, or future logs in two directories."""
    seen: dict[TopicPartition, str] = {}
    moving: dict[TopicPartition, str] = {}
    for path, found in contents.items():
        for key in found.partitions:
            _refuse_twin(key, path, seen.setdefault(key, path))
        # Future logs in two directories are two moves, and which one is wanted is not known. Two in one directory are
        # left from an interrupted start (`FutureLogs.copy_again`).
        for key in found.futures.values():
            _refuse_twin(key, path, moving.setdefault(key, path))


def _refuse_twin(key: TopicPartition, path: str, other: str | None) -> None:
    if other not in (None, path):
        raise LogDirectoryRefused(f"{key} is in both {other} and {path}; remove the older one")


def complete_swaps(disk: Disk, contents: Mapping[str, Contents], path: str) -> None:
    """Complete interrupted swaps: rename each future log whose current log was deleted by its swap to the partition's
    name.

    Changes `contents`.
    """
    # A swap renames the current log to -delete before it renames the future log, which was synced as far as the current
    # log before (`FutureLogs.swap`). Both names have the same unique part. That there is no current log proves nothing:
    # it may be in a directory that is offline or not configured any more, or the partition was deleted meanwhile.
    there = {key for found in contents.values() for key in found.partitions}
    swapped = {unique_of(name) for found in contents.values() for name in found.deleted} - {None}
    found = contents[path]
    for name, key in list(found.futures.items()):
        if unique_of(name) in swapped and key not in there:
            rename_durably(disk, join(path, name), join(path, str(key)))
            del found.futures[name]
            found.partitions.append(key)
            there.add(key)
            logger.info("%s takes the place of the log of %s that it was copied from", join(path, name), key)


def prepare(disk: Disk, path: str, identity: StoredIdentity | None) -> Prepared:
    """Read the checkpoints, remove the markers, and write meta.properties if `identity` is given."""
    if identity is not None:
        write_meta_properties(disk, join(path, META_PROPERTIES), MetaProperties(*identity))
    checkpoints = {name: read_checkpoint(disk, join(path, name)) for name in OFFSET_CHECKPOINTS}
    # The kernel marks dirty pages clean after a failed sync: a later sync of the same files
    # succeeds although the bytes are not on the disk. Recovery would read them from memory, sync
    # them, and trust them. The marker is removed only after the rewrite, so a crash in between
    # repeats the rewrite.
    if disk.exists(mark := join(path, FAILURE_MARK)):
        _renew_logs(disk, path, checkpoints[RECOVERY_POINT_CHECKPOINT])
        disk.remove(mark)
    # The removal is synced before any log is opened. Otherwise the marker could come back after a power failure, and
    # the start after it would skip the check of records that were appended from now on.
    marker = join(path, CLEAN_SHUTDOWN_MARKER)
    clean = disk.exists(marker)
    if clean:
        disk.remove(marker)
    disk.sync_directory(path)  # also makes durable the names of logs that a killed process created
    return Prepared(clean, checkpoints)


def mark_failed(disk: Disk, path: str) -> None:
    """Write the `.failed` marker: unsynced data of this directory may be lost. Blocking: short. Durable: no."""
    # It need not be durable: after a restart of the machine no page is left in memory that differs from the disk.
    try:
        disk.open(join(path, FAILURE_MARK), create=True).release()
    except StorageError as error:
        logger.error("what is unsynced in %s may be lost if this machine loses its power: %s", path, error)


def _renew_logs(disk: Disk, path: str, recovery_points: Mapping[TopicPartition, int]) -> None:
    contents = read_contents(disk, path)
    names = {**{str(key): key for key in contents.partitions}, **contents.futures}
    logger.warning(
        "%s failed when it was last used: what was unsynced in its %d logs is written again", path, len(names)
    )
    for name, key in names.items():
        renew(disk, join(path, name), recovery_points.get(key, 0))


def mark_clean(disk: Disk, path: str) -> None:
    """Write the clean shutdown marker."""
    disk.replace_file(join(path, CLEAN_SHUTDOWN_MARKER), CLEAN_SHUTDOWN_CONTENT)


def rename_durably(disk: Disk, old: str, new: str) -> None:
    """Rename the directory of a log, durably."""
    disk.rename(old, new)
    disk.sync_directory(parent_of(new))


def remove_durably(disk: Disk, path: str) -> None:
    """Remove the directory of a log and everything in it, durably."""
    # A retry may find that the first attempt removed the tree and failed in the sync below.
    if disk.exists(path):
        disk.remove_tree(path)
    disk.sync_directory(parent_of(path))


def remove_half_made(disk: Disk, path: str) -> bool:
    """Remove what is left of a log that could not be created; False if it has records, which must stay."""
    if disk.exists(path):
        # A new log is empty, so records here are those of an older log of this name.
        if any(name.endswith(LOG) and disk.size(join(path, name)) for name in disk.list(path)):
            return False
        remove_durably(disk, path)
    return True


def _needs_checkpoint(log: "PartitionLog", start_offset: int) -> bool:
    """Whether the log start offset differs from the first segment's base offset, or may after a power failure."""
    # The renames of deleted segments to .deleted are not synced: a power failure may bring the segments back, and
    # without the entry their records as well.
    return start_offset > log.segments[0].base_offset or (start_offset > 0 and log.segments.has_deleted_files)
