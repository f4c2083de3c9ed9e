"""Whether this broker still has everything that it wrote, which it says when it registers.

Theory of operation
-------------------
What a broker has written and not synced is in the memory of its machine. The death of the process loses none of it, the
death of the machine may. A broker that comes back after that is too short of records to be trusted with the leadership
of what it was in sync with, and a controller cannot see the difference. The broker can: the system draws a boot id at
each start of the machine.

So each log directory keeps a *mark*: the boot id, and the broker epoch since which nothing that was written there was
lost. At its start a broker reads the marks before it opens a log. Everything is kept since the latest of these epochs

    if every directory has a mark, none failed when it was last used, and
    in each the boot id of the mark is that of now, or the broker before this one was shut down cleanly

In every other case the marks are removed before anything else is done there, for a mark that says more than is true is
worse than none. The broker then registers without saying anything, and its new broker epoch is the one since which
everything is kept. That is written into the directories after the registration; until it is, a crash finds no mark, or
one of another boot.

      process killed, machine goes on                     the boot id is the same: kept
      machine crashed, before or after the process ended  another boot id: not kept
      clean stop, then the machine is restarted           all was synced, and the clean shutdown marker says so: kept
      directory wiped, replaced, or added                 no mark: not kept
      directory copied to another machine                 another boot id, unless it was shut down cleanly
      directory failed when it was last used              what it did not sync is doubtful: not kept
      session expired, same process                       nothing was lost in between: kept
      no boot id on this system                           only a clean shutdown counts

What a boot id does not see is a directory that is put back from a backup, or a disk that is detached by force, while
the machine goes on; nor does Apache Kafka. A directory that is offline is not asked: its replicas are not served.

The mark is a plain file, which Kafka leaves alone.
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
    """What a log directory says: on the machine's boot of this id nothing was lost since this broker epoch."""

    boot_id: str | None
    kept_since: int

    def encode(self) -> bytes:
        return json.dumps({"version": VERSION, "boot_id": self.boot_id, "kept_since": self.kept_since}).encode()

    @classmethod
    def decode(cls, data: bytes) -> "BootMark | None":
        """The mark, or None where there is none that can be understood."""
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or value.get("version") != VERSION:
            return None
        boot_id, kept_since = value.get("boot_id"), value.get("kept_since")
        if type(kept_since) is not int or not isinstance(boot_id, str | None):
            return None
        return cls(boot_id, kept_since)


class KeptData:
    """What the marks say, from before the logs are opened to the end of the broker."""

    def __init__(self, world: "World", directories: "LogDirectories") -> None:
        self.since: int | None = None  # the broker epoch since which nothing was lost; None: the one that comes
        self._world = world
        self._directories = directories
        self._is_noted = False

    async def look(self) -> None:
        """Read the marks, before anything in the directories is changed; those that do not hold are removed."""
        disk, boot_id = self._world.disk, self._world.boot_id
        found = []
        for directory in self._directories.live():
            kept = await self._directories.at_start(directory, read_kept_since, disk, directory.path, boot_id)
            if directory.failure is None:
                found.append(kept)
        if found and None not in found:
            self.since = max(each for each in found if each is not None)
            return
        for directory in self._directories.live():
            await self._directories.at_start(directory, remove_mark, disk, directory.path)

    async def note(self, broker_epoch: int) -> None:
        """This broker is registered: mark the directories, in the first session of its life."""
        if self.since is None:
            self.since = broker_epoch
        if self._is_noted:
            return
        self._is_noted = True
        mark = BootMark(self._world.boot_id, self.since)
        for directory in self._directories.live():
            path = join(directory.path, BOOT_MARK)
            try:
                await self._directories.run(directory, self._world.disk.replace_file, path, mark.encode())
            except StorageError as error:  # the directory is offline, or the next start finds no mark that holds
                logger.warning("%s is not marked: %s", directory.path, error)


def read_kept_since(disk: Disk, directory: str, boot_id: str | None) -> int | None:
    """The broker epoch since which nothing was lost in this directory, or None. Blocking: long."""
    path = join(directory, BOOT_MARK)
    if not disk.exists(path) or disk.exists(join(directory, FAILURE_MARK)):
        return None
    mark = BootMark.decode(disk.read_file(path))
    if mark is None:
        return None
    is_same_boot = boot_id is not None and mark.boot_id == boot_id
    return mark.kept_since if is_same_boot or disk.exists(join(directory, CLEAN_SHUTDOWN_MARKER)) else None


def remove_mark(disk: Disk, directory: str) -> None:
    """Remove the mark of a directory, durably. Blocking: long."""
    path = join(directory, BOOT_MARK)
    if disk.exists(path):
        disk.remove(path)
        disk.sync_directory(directory)
