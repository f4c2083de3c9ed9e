"""A log on a disk in memory, for the tests of the log, its segments and its recovery."""

import random
from dataclasses import dataclass

import pytest

from barnabas.storage.disk import Disk, StorageError
from barnabas.storage.log import Appended, PartitionLog
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.opening import open_log
from barnabas.storage.producers import Origin
from barnabas.storage.segments import Read
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Batch, build_batch, build_control_batch, read_all_records
from barnabas.wire.topics import TopicPartition
from tests.storage.compacted import Compacted

NEVER = 2**63 - 1
DIRECTORY = "/data/orders-0"


@dataclass
class Config:
    """Kafka's defaults, except that indexes are dense enough to be seen."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * 86_400_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 100
    retention_ms: int = -1
    retention_bytes: int = -1
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    file_delete_delay_ms: int = 60_000
    producer_id_expiration_ms: int = 86_400_000
    compacted: bool = False
    deletes: bool = True
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER
    delete_retention_ms: int = 86_400_000


class LogWorld:
    """A disk, a topic's configuration and what the checkpoints would say of its one log."""

    def __init__(self, disk: Disk | None = None, config: Config | None = None, **settings) -> None:
        self.now_ms = 1_000_000
        self.disk = disk or MemDisk(now_ms=lambda: self.now_ms)
        self.config = config or Config(**settings)
        self.recovery_point = 0
        self.log_start_offset = None
        self.first_dirty_offset = None

    def open(self, *, clean: bool = False) -> PartitionLog:
        return open_log(
            self.disk,
            DIRECTORY,
            TopicPartition("orders", 0),
            self.config,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            first_dirty_offset=self.first_dirty_offset,
            clean=clean,
            now_ms=self.now_ms,
        )

    def checkpoint(self, log: PartitionLog) -> None:
        self.recovery_point, self.log_start_offset = log.recovery_point, log.log_start_offset
        self.first_dirty_offset = log.first_dirty_offset

    def restarted(self, log: PartitionLog) -> PartitionLog:
        """The log after a clean stop and start."""
        log.close(self.now_ms)
        self.checkpoint(log)
        return self.open(clean=True)

    def after_process_crash(self) -> "LogWorld":
        return self._on(self.disk.crash_process())

    def after_machine_crash(self, seed: int) -> "LogWorld":
        return self._on(self.disk.crash_machine(random.Random(seed)))

    def _on(self, disk: Disk) -> "LogWorld":
        world = LogWorld(disk, self.config)
        world.now_ms = self.now_ms
        world.recovery_point, world.log_start_offset = self.recovery_point, self.log_start_offset
        world.first_dirty_offset = self.first_dirty_offset
        return world

    # batches

    def batch(self, count: int = 1, *, size: int = 20, timestamp: int | None = None, **fields) -> Batch:
        timestamp = self.now_ms if timestamp is None else timestamp
        return build_batch([(b"key", bytes(size))] * count, timestamp_ms=timestamp, **fields)

    def append(self, log: PartitionLog, count: int = 1, *, epoch: int = 0, **fields) -> Appended | ErrorCode:
        batch = self.batch(count, **fields)
        return log.append_as_leader(batch, leader_epoch=epoch, origin=Origin.CLIENT, now_ms=self.now_ms)

    def append_marker(
        self, log: PartitionLog, control_type: int, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0
    ) -> Appended | ErrorCode:
        marker = build_control_batch(
            control_type,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=self.now_ms,
        )
        return log.append_as_leader(marker, leader_epoch=epoch, origin=Origin.COORDINATOR, now_ms=self.now_ms)

    def aborted(self, log: PartitionLog, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in this range."""
        found = log.segments.aborted_transactions(start_offset, end_offset)
        return [(each.producer_id, each.first_offset) for each in found]

    def flush(self, log: PartitionLog) -> None:
        plan = log.flush_plan()
        if plan is not None:
            plan.sync()
            log.flushed(plan)

    # what is there

    def names(self, suffix: str = "") -> list[str]:
        return [name for name in self.disk.list(DIRECTORY) if name.endswith(suffix)]

    def content(self, name: str) -> bytes:
        return self.disk.read_file(f"{DIRECTORY}/{name}")

    def put(self, name: str, data: bytes) -> None:
        """Replace a file, as another program would."""
        file = self.disk.open(f"{DIRECTORY}/{name}", create=True)
        file.truncate(0)
        file.write(0, data)
        file.release()

    def log_bytes(self, log: PartitionLog) -> bytes:
        return b"".join(self.content(f"{segment.base_offset:020d}.log") for segment in log.segments)


def read_bytes(read: Read) -> bytes:
    """What a read plan would send."""
    assert isinstance(read, Read), read
    if read.slice is None:
        return b""
    data = read.slice.read()
    read.slice.release()
    return data


def offsets_in(data: bytes) -> list[int]:
    return [record.offset for _, record in read_all_records(data)]


class CrashingDisk:
    """A disk that lets the process die right before one of its changes: the one numbered `fuse`."""

    CHANGES = ("make_directory", "rename", "remove", "remove_tree", "sync_directory", "replace_file")

    def __init__(self, disk: MemDisk, fuse: int) -> None:
        self.disk = disk
        self.fuse = fuse

    def burn(self) -> None:
        if self.fuse == 0:
            raise Crashed("here", "crash", "CRASH")
        self.fuse -= 1

    def open(self, path: str, **options):
        if options.get("create") and not self.disk.exists(path):
            self.burn()
        return _CrashingFile(self, self.disk.open(path, **options))

    def __getattr__(self, name: str):
        method = getattr(self.disk, name)
        if name not in self.CHANGES:
            return method

        def call(*arguments):
            self.burn()
            return method(*arguments)

        return call


class _CrashingFile:
    CHANGES = ("write", "truncate", "sync")

    def __init__(self, disk: CrashingDisk, file) -> None:
        self._disk = disk
        self._file = file

    def __getattr__(self, name: str):
        method = getattr(self._file, name)
        if name not in self.CHANGES:
            return method

        def call(*arguments):
            self._disk.burn()
            return method(*arguments)

        return call


class Crashed(StorageError):
    """The process died."""


@pytest.fixture
def world() -> LogWorld:
    return LogWorld()


@pytest.fixture(scope="session")
def new_world() -> type[LogWorld]:
    """The class itself: for tests that need settings, or one world for each example."""
    return LogWorld


@pytest.fixture(scope="session")
def crashing_disk() -> type[CrashingDisk]:
    return CrashingDisk


@pytest.fixture(scope="session")
def read_of():
    """Read plan -> its bytes."""
    return read_bytes


@pytest.fixture(scope="session")
def offsets_of():
    """Bytes -> offsets of their records."""
    return offsets_in


@pytest.fixture
def compacted(new_world):
    return Compacted(new_world(compacted=True, deletes=False, segment_bytes=400))
