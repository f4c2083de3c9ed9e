"""Boot marks: find out whether this broker still has all records that it wrote. Its registration says the result.

Theory of operation
-------------------
Unsynced writes are in the memory of the machine: they survive the end of the process, but not the end of the machine.
A broker that comes back after a crash of the machine may lack records that it had as a member of the ISR, so it must
not become leader for that membership. The controller cannot see this; the broker can, as the system makes a new boot id
at each boot.

Each log directory keeps a *mark*, a plain file that Kafka ignores: the boot id, the broker epoch since which nothing
written there was lost, and the paths of this and all other directories of the broker. A starting broker reads the marks
before it opens a log. Its data is kept since the highest of these epochs if

    each directory that a mark names is there, with a mark of its own,
    it did not fail when it was last used, and
    its mark has the current boot id, or the previous process shut down cleanly.

Otherwise it removes all marks, registers without an epoch, and its data counts as kept since its new broker epoch. A
directory without a mark that no mark names is a new one. Marks of older versions name no directory; with one of them,
each directory needs a mark.

      process killed, machine runs on                     same boot id: kept
      machine crashed, before or after the process ended  other boot id: not kept
      clean stop, then the machine is rebooted            all was synced, there is the clean shutdown marker: kept
      directory wiped or replaced                         no mark: not kept
      directory taken out of log.dirs                     the marks of the others name it: not kept
      directory added                                     no mark names it: kept
      directory found at another path                     its mark has the old path: kept
      directory copied to another machine                 other boot id: not kept, unless it was shut down cleanly
      directory failed when it was last used              its unsynced writes are doubtful: not kept
      session expired, same process                       nothing was lost: kept
      no boot id on this system                           kept only after a clean shutdown

A boot id does not reveal a directory that is restored from a backup, or a disk that is detached by force, while the
machine runs on; neither does Apache Kafka. Offline directories do not count: their replicas are not served.
"""

import json
import logging
from collections.abc import Collection, Mapping
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.logs.directory import CLEAN_SHUTDOWN_MARKER, FAILURE_MARK
from barnabas.storage.disk import Disk, StorageError, join

if TYPE_CHECKING:
    from barnabas.replication.logs.directories import LogDirectories
    from barnabas.world.world import World

BOOT_MARK = "barnabas.boot"
VERSION = 1

logger = logging.getLogger(__name__)


class BootMark(NamedTuple):
    """The content of a mark: during the boot of this id, nothing was lost since the broker epoch `kept_since`."""

    boot_id: str | None
    kept_since: int
    path: str = ""  # the absolute path of the marked directory; empty in a mark of an older version
    siblings: tuple[str, ...] = ()  # the paths of all directories of the broker, this one included; empty as `path`

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION, **self._asdict()}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "BootMark | None":
        """The mark; None if it is malformed or of another version."""
        # A torn or damaged file means not kept; it must not prevent the start.
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None

        if not isinstance(value, dict) or value.get("version") != VERSION:
            return None
        boot_id = value.get("boot_id")
        kept_since = value.get("kept_since")
        path = value.get("path", "")
        siblings = value.get("siblings", [])

        # The type is compared, because JSON's true would pass `isinstance` as an int.
        if type(kept_since) is not int or not isinstance(boot_id, str | None):
            return None
        if not isinstance(path, str) or not isinstance(siblings, list):
            return None
        return cls(boot_id, kept_since, path, tuple(map(str, siblings)))


class Mark(Enum):
    """A directory without a mark that holds. The values are explanations only."""

    MISSING = "there is none"
    VOID = "what was written under it may be lost"


class KeptData:
    """The result of the marks. `look` before the logs are opened, `note` after each registration."""

    def __init__(self, world: "World", directories: "LogDirectories") -> None:
        self.since: int | None = None  # broker epoch since which nothing was lost; None: that of the next registration
        self._world = world
        self._directories = directories
        self._is_noted = False

    async def look(self) -> None:
        """Read the marks, and remove all of them unless all hold. StorageError when a shortage prevents that."""
        disk = self._world.disk
        boot_id = self._world.boot_id
        found: dict[str, BootMark | Mark] = {}
        for directory in self._directories.live():
            mark = await self._directories.at_start(directory, read_mark, disk, directory.path, boot_id)
            # A directory that failed in this read is offline from now on, and does not count.
            if mark is not None:
                found[directory.absolute_path] = mark
        offline = [each.absolute_path for each in self._directories if each.failure is not None]
        self.since = kept_since(found, offline)
        if self.since is not None:
            return
        # This precedes the opening of logs: recovery truncates them, and a later start would trust a mark that is still
        # there.
        for directory in self._directories.live():
            await self._directories.at_start(directory, remove_mark, disk, directory.path)

    async def note(self, broker_epoch: int) -> None:
        """Mark the directories, after the first registration of this process."""
        if self.since is None:
            self.since = broker_epoch
        # Later sessions of the same process lose nothing, so the marks stay true.
        if self._is_noted:
            return
        self._is_noted = True
        # A crash before these writes is safe: it finds no mark, or an older one that says no more than is true.
        siblings = tuple(each.absolute_path for each in self._directories)
        for directory in self._directories.live():
            path = join(directory.path, BOOT_MARK)
            mark = BootMark(self._world.boot_id, self.since, directory.absolute_path, siblings)
            try:
                await self._directories.run(directory, self._world.disk.replace_file, path, mark.encode())
            # This is harmless: the directory is offline now, or the next start finds no valid mark
            # there.
            except StorageError as error:
                logger.warning("%s is not marked: %s", directory.path, error)


def kept_since(marks: "Mapping[str, BootMark | Mark]", offline: Collection[str]) -> int | None:
    """The broker epoch since which nothing was lost in these directories, or None.

    `marks` are those of the directories that can be read, by absolute path; `offline` the paths of the others.
    """
    good = {path: mark for path, mark in marks.items() if isinstance(mark, BootMark)}
    if not good or Mark.VOID in marks.values():
        return None
    # A directory counts by the path in its mark, so it may have moved.
    present = {mark.path or path for path, mark in good.items()}
    named = {each for mark in good.values() for each in mark.siblings}
    if named - present - set(offline):
        return None
    # Only its siblings can say whether a directory without a mark is a new one or a wiped one.
    if len(good) < len(marks) and not all(mark.siblings for mark in good.values()):
        return None
    return max(mark.kept_since for mark in good.values())


def read_mark(disk: Disk, directory: str, boot_id: str | None) -> "BootMark | Mark":
    """The mark of this directory. Blocking: long."""
    path = join(directory, BOOT_MARK)
    # After a failed fsync the kernel marks dirty pages clean, so a directory that failed may lack writes.
    if disk.exists(join(directory, FAILURE_MARK)):
        return Mark.VOID
    if not disk.exists(path):
        return Mark.MISSING
    mark = BootMark.decode(disk.read_file(path))
    if mark is None:
        return Mark.VOID
    # Two unknown boot ids are not the same boot.
    is_same_boot = boot_id is not None and mark.boot_id == boot_id
    return mark if is_same_boot or disk.exists(join(directory, CLEAN_SHUTDOWN_MARKER)) else Mark.VOID


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove the mark of a directory, durably. Blocking: long."""
    path = join(directory, BOOT_MARK)
    if disk.exists(path):
        disk.remove(path)
        disk.sync_directory(directory)
