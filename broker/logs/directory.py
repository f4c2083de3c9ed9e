"""What a log directory must hold before its logs may be opened: lock, owner, names, marker (reference D.1).

`<topic>-<partition>` is a log. `<topic>-<partition>.<32 hex>-delete` is one that waits for its removal, also from an
earlier run; `-future` one that is to take the place of the partition's log in another directory (`future_logs.py`). A
future log without that other one was about to be renamed when the broker ended, and is now. Other directories are
refused before anything is touched, for this may be the wrong disk; plain files are ignored.

A clean shutdown leaves a marker file, written last: with it the logs are believed as they are. It is removed, durably,
before any log is opened, so that a crash from then on is an unclean shutdown.

A directory in which a sync failed, or the device, gets a `.failed` marker. After a failed sync the kernel marks dirty
pages clean, so that a later sync of the same files succeeds although they are not on the disk. So the next start first
rewrites everything from the recovery points on, and removes the marker. The marker need not be durable: a machine that
was restarted has no such pages. A full disk leaves no marker: nothing is lost, and there is no room to rewrite it.

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
DIRECTORY_NAME_BYTES_MAX = 255

_PARTITION_NAME = re.compile(r"(\S+)-(\d+)\Z")
_DELETED_NAME = re.compile(r"\S+-\d+\.\S+-delete\Z")
_FUTURE_NAME = re.compile(r"(\S+)-(\d+)\.\S+-future\Z")
_STRAY_NAME = re.compile(r"\S+-\d+\.\S+-stray\Z")


class LogDirectoryRefused(Exception):
    """A log directory is in use, belongs to another broker, or holds unknown files: an administrator must look."""


@dataclass(eq=False, slots=True)
class LogDirectory:
    """One log directory, as `Logs` keeps it; others only look."""

    path: str  # as it is configured
    absolute_path: str  # in responses and requests
    lock: Lock | None = None
    meta: MetaProperties | None = None
    failure: StorageError | None = None  # it is offline
    logs: dict[TopicPartition, "PartitionLog"] = field(default_factory=dict)
    future_logs: dict[TopicPartition, "PartitionLog"] = field(default_factory=dict)  # none that is in `logs`, too
    creating: int = 0
    written: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)  # what each checkpoint file holds
    writing: trio.Lock = field(default_factory=trio.Lock)  # one writer of checkpoints at a time: they share a .tmp

    def holds(self, log: "PartitionLog") -> bool:
        """Whether this log is in use here."""
        return log in (self.logs.get(log.topic_partition), self.future_logs.get(log.topic_partition))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """`with directory.in_use():` its files are used while time passes.

        When the directory fails meanwhile, its files are closed at once, and a thread that uses them meets closed
        files. That is the failure of the directory, and is raised as such.
        """
        try:
            yield
        except InvariantBroken as error:
            if self.failure is None:
                raise
            raise self.failure from error

    def take_all(self) -> "list[PartitionLog]":
        """All logs, future ones as well; from now on none is in use here."""
        taken = [*self.logs.values(), *self.future_logs.values()]
        self.logs.clear()
        self.future_logs.clear()
        return taken

    def offsets(
        self, name: str, keys: Iterable[TopicPartition], high_watermarks: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """What this checkpoint file should say now of those of these partitions that have a log here."""
        found = ((key, self.future_logs.get(key, self.logs.get(key))) for key in keys)
        logs = {key: log for key, log in found if log is not None}
        if name == RECOVERY_POINT_CHECKPOINT:
            return {key: log.recovery_point for key, log in logs.items()}
        if name == LOG_START_CHECKPOINT:
            starts = {key: log.log_start_offset for key, log in logs.items()}
            return {key: start for key, start in starts.items() if _must_be_written_down(logs[key], start)}
        if name == CLEANER_CHECKPOINT:
            return {key: log.first_dirty_offset for key, log in logs.items() if log.first_dirty_offset is not None}
        known = {key: high_watermarks[key] for key in logs if key in high_watermarks}
        return {key: known[key] if key in self.logs else min(known[key], logs[key].log_end_offset) for key in known}

    def give_up(self, logs: "Sequence[PartitionLog]") -> None:
        """Let go of the files of these logs and of the lock."""
        for log in logs:
            log.abandon()
        if self.lock is not None:
            self.lock.release()


class StoredIdentity(NamedTuple):
    """Whom the log directories belong to."""

    broker_id: int
    cluster_id: str


class Contents(NamedTuple):
    """The directories in a log directory, by their names."""

    partitions: list[TopicPartition]
    deleted: list[str]
    futures: dict[TopicPartition, str]

    def renamed(self, key: TopicPartition, name: str, deleted: str) -> None:
        """A log of this partition, or a future one, has this name of a deleted one now."""
        if self.futures.get(key) == name:
            del self.futures[key]
        else:
            self.partitions.remove(key)
        self.deleted.append(deleted)


class Prepared(NamedTuple):
    """What was known of a log directory's logs when it was last used."""

    clean: bool
    checkpoints: dict[str, dict[TopicPartition, int]]  # file name -> what it holds


def parse_partition_name(name: str) -> TopicPartition | None:
    """The partition that a directory's name stands for; None if it is no such name."""
    match = _PARTITION_NAME.match(name)
    return TopicPartition(match[1], int(match[2])) if match else None


def deleted_name(key: TopicPartition, unique: bytes) -> str:
    """What the directory of a deleted log is called; the topic is shortened where the name would be too long."""
    return _shortened(key, unique, "delete")


def stray_name(key: TopicPartition, unique: bytes) -> str:
    """What the directory of a stray log is called: no role asks for it, and no request deleted it."""
    return _shortened(key, unique, "stray")


def _shortened(key: TopicPartition, unique: bytes, fate: str) -> str:
    suffix = f"-{key.partition}.{unique.hex()}-{fate}"
    return key.topic[: DIRECTORY_NAME_BYTES_MAX - len(suffix)] + suffix


def future_name(key: TopicPartition, unique: bytes) -> str:
    """What the directory of a log is called while it is copied from another one."""
    return f"{key}.{unique.hex()}-future"


def take(disk: Disk, path: str) -> tuple[Lock, MetaProperties | None]:
    """Lock a directory, made if need be, and read whose it is. DirectoryLocked if it is in use."""
    make_durable_directory(disk, path)
    lock = disk.lock(join(path, LOCK_FILE))
    try:
        return lock, read_meta_properties(disk, join(path, META_PROPERTIES))
    except StorageError:
        lock.release()
        raise


def agreed_identity(metas: Mapping[str, MetaProperties | None]) -> StoredIdentity | None:
    """Whom all these directories belong to, as far as they say. LogDirectoryRefused if they disagree."""
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
    """What is in a log directory. LogDirectoryRefused for a directory that is not ours."""
    partitions, deleted = [], []
    futures: dict[TopicPartition, str] = {}
    for name in disk.list(path):
        if name in NOT_PARTITIONS or not disk.is_directory(join(path, name)):
            continue
        key = parse_partition_name(name)
        if key is not None:
            partitions.append(key)
        elif _DELETED_NAME.match(name):
            deleted.append(name)
        elif future := _FUTURE_NAME.match(name):
            key = TopicPartition(future[1], int(future[2]))
            _refuse_twin(key, join(path, name), futures.get(key))
            futures[key] = name
        elif _STRAY_NAME.match(name):
            logger.warning("%s is left alone: a broker put it aside", join(path, name))
        else:
            raise LogDirectoryRefused(
                f"{join(path, name)} is not named <topic>-<partition>: a log directory may hold nothing else"
                " (is it the right one?)"
            )
    return Contents(partitions, deleted, futures)


def refuse_duplicates(contents: Mapping[str, Contents]) -> None:
    """LogDirectoryRefused if a partition lies in two directories, or is moving to two, or to where it is."""
    seen: dict[TopicPartition, str] = {}
    moving: dict[TopicPartition, str] = {}
    for path, found in contents.items():
        for key in found.partitions:
            _refuse_twin(key, path, seen.setdefault(key, path))
        for key, name in found.futures.items():
            _refuse_twin(key, join(path, name), moving.setdefault(key, join(path, name)))
    for key, future in moving.items():
        if seen.get(key) == parent_of(future):
            _refuse_twin(key, future, seen[key])


def _refuse_twin(key: TopicPartition, path: str, other: str | None) -> None:
    if other not in (None, path):
        raise LogDirectoryRefused(f"{key} is in both {other} and {path}; remove the older one")


def promote_orphans(disk: Disk, contents: Mapping[str, Contents], path: str) -> None:
    """Give the future logs in a directory that are alone the name of the log whose place they were about to take."""
    there = {key for found in contents.values() for key in found.partitions}
    found = contents[path]
    for key in [key for key in found.futures if key not in there]:
        future = join(path, found.futures.pop(key))
        rename_durably(disk, future, join(path, str(key)))
        found.partitions.append(key)
        logger.info("%s takes the place of the log of %s that it was copied from", future, key)


def prepare(disk: Disk, path: str, identity: StoredIdentity | None) -> Prepared:
    """Read the checkpoints and take the marks away; write whose directory it is now, if `identity` says so."""
    if identity is not None:
        write_meta_properties(disk, join(path, META_PROPERTIES), MetaProperties(*identity))
    checkpoints = {name: read_checkpoint(disk, join(path, name)) for name in OFFSET_CHECKPOINTS}
    if disk.exists(mark := join(path, FAILURE_MARK)):
        _renew_logs(disk, path, checkpoints[RECOVERY_POINT_CHECKPOINT])
        disk.remove(mark)
    marker = join(path, CLEAN_SHUTDOWN_MARKER)
    clean = disk.exists(marker)
    if clean:
        disk.remove(marker)
    disk.sync_directory(path)  # also for the names of logs that a process made which was killed
    return Prepared(clean, checkpoints)


def mark_failed(disk: Disk, path: str) -> None:
    """Say that what is unsynced in this directory cannot be relied on. Blocking: short. Durable: no."""
    try:
        disk.open(join(path, FAILURE_MARK), create=True).release()
    except StorageError as error:
        logger.error("what is unsynced in %s may be lost if this machine loses its power: %s", path, error)


def _renew_logs(disk: Disk, path: str, recovery_points: Mapping[TopicPartition, int]) -> None:
    contents = read_contents(disk, path)
    names = {**{key: str(key) for key in contents.partitions}, **contents.futures}
    logger.warning(
        "%s failed when it was last used: what was unsynced in its %d logs is written again", path, len(names)
    )
    for key, name in names.items():
        renew(disk, join(path, name), recovery_points.get(key, 0))


def mark_clean(disk: Disk, path: str) -> None:
    """Say that all logs were closed and all checkpoints written."""
    disk.replace_file(join(path, CLEAN_SHUTDOWN_MARKER), CLEAN_SHUTDOWN_CONTENT)


def rename_durably(disk: Disk, old: str, new: str) -> None:
    """Rename the directory of a log."""
    disk.rename(old, new)
    disk.sync_directory(parent_of(new))


def remove_durably(disk: Disk, path: str) -> None:
    """Remove the directory of a log, with all it holds."""
    if disk.exists(path):  # it may be the second try
        disk.remove_tree(path)
    disk.sync_directory(parent_of(path))


def remove_half_made(disk: Disk, path: str) -> bool:
    """Remove what is left of a log that could not be made; False if it holds records, which must stay."""
    if disk.exists(path):
        if any(name.endswith(LOG) and disk.size(join(path, name)) for name in disk.list(path)):
            return False
        remove_durably(disk, path)
    return True


def _must_be_written_down(log: "PartitionLog", start_offset: int) -> bool:
    """Whether the segments alone do not say where the log starts, or would not after a power failure."""
    return start_offset > log.segments[0].base_offset or (start_offset > 0 and log.has_deleted_files)
