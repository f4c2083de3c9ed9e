"""Boot marks: find out whether this broker still has all records that it wrote. Its registration says the result.

Theory of operation
-------------------
Unsynced writes are in the memory of the machine: they survive the end of the process, but not the end of the machine.
A broker that comes back after a crash of the machine may lack records that it had as a member of the ISR, so it must
not become leader for that membership. The controller cannot see this; the broker can, as the system makes a new boot id
at each boot.

Each log directory keeps a *mark*, a plain file that Kafka ignores: the boot id, and the broker epoch since which
nothing written there was lost. A starting broker reads the marks before it opens a log. Its data is kept since the
highest of these epochs if for every directory

    there is a mark, the directory did not fail when it was last used, and
    the mark has the current boot id, or the previous process shut down cleanly.

Otherwise it removes all marks, registers without an epoch, and its data counts as kept since its new broker epoch.

      process killed, machine runs on                     same boot id: kept
      machine crashed, before or after the process ended  other boot id: not kept
      clean stop, then the machine is rebooted            all was synced, there is the clean shutdown marker: kept
      directory wiped, replaced, or added                 no mark: not kept
      directory copied to another machine                 other boot id: not kept, unless it was shut down cleanly
      directory failed when it was last used              its unsynced writes are doubtful: not kept
      session expired, same process                       nothing was lost: kept
      no boot id on this system                           kept only after a clean shutdown

A boot id does not reveal a directory that is restored from a backup, or a disk that is detached by force, while the
machine runs on; neither does Apache Kafka. Offline directories do not count: their replicas are not served.
"""

import json
import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.logs.directory import CLEAN_SHUTDOWN_MARKER, FAILURE_MARK
from barnabas.storage.disk import Disk, StorageError, join

if TYPE_CHECKING:
    from barnabas.broker.logs.directories import LogDirectories
    from barnabas.broker.world import World

BOOT_MARK = "barnabas.boot"
VERSION = 1

logger = logging.getLogger(__name__)


class BootMark(NamedTuple):
    """The content of a mark: during the boot of this id, nothing was lost since the broker epoch `kept_since`."""

    boot_id: str | None
    kept_since: int

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION, "boot_id": self.boot_id, "kept_since": self.kept_since}).encode()

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
        boot_id, kept_since = value.get("boot_id"), value.get("kept_since")
        # Not `isinstance`: JSON's true would pass as an int.
        if type(kept_since) is not int or not isinstance(boot_id, str | None):
            return None
        return cls(boot_id, kept_since)


class KeptData:
    """The result of the marks. `look` before the logs are opened, `note` after each registration."""

    def __init__(self, world: "World", directories: "LogDirectories") -> None:
        self.since: int | None = None  # the broker epoch since which nothing was lost; None: that of the registration
        self._world = world
        self._directories = directories
        self._is_noted = False

    async def look(self) -> None:
        """Read the marks, and remove all of them unless all hold. StorageError when a shortage prevents that."""
        disk, boot_id = self._world.disk, self._world.boot_id
        found = []
        for directory in self._directories.live():
            kept = await self._directories.at_start(directory, read_kept_since, disk, directory.path, boot_id)
            # A directory that failed in this read is offline from now on, and does not count.
            if directory.failure is None:
                found.append(kept)
        if found and None not in found:
            self.since = max(each for each in found if each is not None)
            return
        # Before the logs are opened: recovery truncates logs, and a later start would trust a mark that is still there.
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
        mark = BootMark(self._world.boot_id, self.since)
        for directory in self._directories.live():
            path = join(directory.path, BOOT_MARK)
            try:
                await self._directories.run(directory, self._world.disk.replace_file, path, mark.encode())
            # Harmless: the directory is offline now, or the next start finds no valid mark there.
            except StorageError as error:
                logger.warning("%s is not marked: %s", directory.path, error)


def read_kept_since(disk: Disk, directory: str, boot_id: str | None) -> int | None:
    """The broker epoch since which nothing was lost in this directory, or None. Blocking: long."""
    path = join(directory, BOOT_MARK)
    # After a failed fsync the kernel marks dirty pages clean, so a directory that failed may lack writes.
    if not disk.exists(path) or disk.exists(join(directory, FAILURE_MARK)):
        return None
    mark = BootMark.decode(disk.read_file(path))
    if mark is None:
        return None
    # Two unknown boot ids are not the same boot.
    is_same_boot = boot_id is not None and mark.boot_id == boot_id
    return mark.kept_since if is_same_boot or disk.exists(join(directory, CLEAN_SHUTDOWN_MARKER)) else None


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove the mark of a directory, durably. Blocking: long."""
    path = join(directory, BOOT_MARK)
    if disk.exists(path):
        disk.remove(path)
        disk.sync_directory(directory)
