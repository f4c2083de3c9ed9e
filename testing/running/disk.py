"""The disk of a broker in memory, which a test can fill, slow down or break; and logs that lose their end.

A disk that is full or broken has the effect that it has on any broker: the write fails, the log directory goes offline,
and since it is the only one the broker ends. Heal the disk and start the broker again.
"""

from collections.abc import Callable
from typing import Self, TypeVar, TypeVarTuple

import trio

from barnabas.replication.logs.directory import CLEAN_SHUTDOWN_MARKER
from barnabas.storage.disk import Disk, join
from barnabas.storage.memdisk import UNLIMITED_BYTES, DiskFault, MemDisk
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.running.loop import Loop, NoLoop
from barnabas.wire.records import read_batch_header, walk_entries

CHANGES = frozenset({"write", "sync", "truncate", "rename", "replace_file"})
SLOW_SECONDS_MAX = 86_400
LOG_SUFFIX = ".log"
SNAPSHOT_SUFFIX = ".snapshot"
OFFSET_DIGITS = 20  # in the names of files

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class HarmedDisk(MemDisk):
    """A `MemDisk` with three faults that last until they are healed, also over crashes of the broker."""

    is_failing = False
    slow_seconds = 0.0

    def take_fault(self, operation: str, path: str) -> DiskFault | None:
        """As in `MemDisk`; every change passes here."""
        if self.is_failing and operation in CHANGES:
            self.has_failed = True
            return DiskFault(operation, "EIO", "", 0, 0)
        return super().take_fault(operation, path)

    def another(self) -> Self:
        """As in `MemDisk`."""
        after = super().another()
        after.is_failing = self.is_failing
        after.slow_seconds = self.slow_seconds
        return after

    async def in_thread(self, function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
        """`function(*args)`, which waits for the device: nothing in memory blocks, but the disk may be slow."""
        if self.slow_seconds:
            await trio.sleep(self.slow_seconds)
        await trio.lowlevel.cancel_shielded_checkpoint()
        return function(*args)


class LiveDisk:
    """What a test does to the disk of one broker, whether the broker runs or not."""

    def __init__(self, loop: Loop, present: Callable[[], Disk]) -> None:
        """`present` is the disk of the present life, or of the next one. LocalBrokerError unless it is in memory."""
        self._loop = loop
        self._present = present
        self._disk()

    def fill(self, left_bytes: int = 0) -> None:
        """Let only so much more be written."""
        if isinstance(left_bytes, bool) or not isinstance(left_bytes, int) or left_bytes < 0:
            raise LocalBrokerError(f"left_bytes: a number from 0, not {left_bytes!r}")

        def fill(disk: HarmedDisk) -> None:
            disk.capacity_bytes = disk.used_bytes + left_bytes

        self._change(fill)

    def slow(self, seconds: float) -> None:
        """Let each sync, and each other piece of work that waits for the device, take so much longer.

        A write itself goes into the page cache; with `flush.messages=1` an acknowledgement waits for a sync.
        """
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= SLOW_SECONDS_MAX:
            raise LocalBrokerError(f"seconds: a number from 0 to {SLOW_SECONDS_MAX}, not {seconds!r}")

        def slow(disk: HarmedDisk) -> None:
            disk.slow_seconds = seconds

        self._change(slow)

    def fail(self) -> None:
        """Let every change fail with EIO."""

        def fail(disk: HarmedDisk) -> None:
            disk.is_failing = True

        self._change(fail)

    def heal(self) -> None:
        """Undo the others. A broker that has ended is started again by the test."""

        def heal(disk: HarmedDisk) -> None:
            disk.capacity_bytes = UNLIMITED_BYTES
            disk.slow_seconds = 0.0
            disk.is_failing = False

        self._change(heal)

    def harms(self) -> list[str]:
        """What was done to it and not undone: "fill", "slow", "fail"."""

        def look(disk: HarmedDisk) -> list[str]:
            is_so = {
                "fill": disk.capacity_bytes != UNLIMITED_BYTES,
                "slow": disk.slow_seconds > 0,
                "fail": disk.is_failing,
            }
            return [name for name, holds in is_so.items() if holds]

        return self._change(look)

    def _change(self, change: Callable[[HarmedDisk], Result]) -> Result:
        try:
            return self._loop.call(lambda: change(self._disk()))
        except NoLoop:
            return change(self._disk())

    def _disk(self) -> HarmedDisk:
        disk = self._present()
        if not isinstance(disk, HarmedDisk):
            raise LocalBrokerError("disk: the data are in a directory; only a disk in memory can be harmed")
        return disk


def lose_records(disk: Disk, directory: str, topic: str, partition: int, count: int) -> int:
    """Remove the last batches of a log, with `count` records or a few more, as a disk does that lied about its syncs.

    No broker runs. Returns how many records were lost. LocalBrokerError if the log has fewer.
    """
    log = join(directory, f"{topic}-{partition}")
    if not disk.is_directory(log):
        raise LocalBrokerError(f"this broker has no log of {topic}-{partition}")
    segments = sorted(name for name in disk.list(log) if name.endswith(LOG_SUFFIX))
    batches = [
        (name, position, header.base_offset, header.last_offset - header.base_offset + 1)
        for name in segments
        for data in [disk.read_file(join(log, name))]
        for position, header in ((each, read_batch_header(data, each)) for each, _ in walk_entries(data))
    ]
    lost = 0
    while lost < count:
        if not batches:
            raise LocalBrokerError(f"{topic}-{partition} has {lost} records, so it cannot lose {count}")
        name, position, end_offset, records = batches.pop()
        lost += records
    _cut(disk, log, (name, position, end_offset))

    # If the marker is missing, the next start checks the end of each log, as after a crash.
    marker = join(directory, CLEAN_SHUTDOWN_MARKER)
    if disk.exists(marker):
        disk.remove(marker)
    return lost


def _cut(disk: Disk, log: str, end: tuple[str, int, int]) -> None:
    """Truncate the log to end before this (segment, position, offset), and remove what belongs to the lost part."""
    last, position, end_offset = end
    for name in disk.list(log):
        stem, _, suffix = name.partition(".")
        is_later = len(stem) == OFFSET_DIGITS and stem.isdecimal() and stem > last.removesuffix(LOG_SUFFIX)
        is_lost_snapshot = f".{suffix}" == SNAPSHOT_SUFFIX and stem.isdecimal() and int(stem) > end_offset
        is_index = stem == last.removesuffix(LOG_SUFFIX) and f".{suffix}" not in (LOG_SUFFIX, SNAPSHOT_SUFFIX)
        if is_later or is_lost_snapshot or is_index:
            disk.remove(join(log, name))
    file = disk.open(join(log, last))
    file.truncate(position)
    file.release()
