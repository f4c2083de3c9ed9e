"""A disk in memory that loses power at one of its changes, and sometimes lacks descriptors, memory or space."""

import random
from collections.abc import Callable

from barnabas.storage.disk import SHORTAGES
from barnabas.storage.memdisk import DiskFault, MemDisk

CHANGES = frozenset({"open", "write", "sync", "truncate", "rename", "remove", "sync_directory", "replace_file"})

# What may go wrong with an operation: descriptors and memory run out, the disk is full, the device fails.
CAUSES = {
    "open": ("EMFILE", "ENFILE", "ENOMEM"),
    "list": ("EMFILE", "ENOMEM"),
    "lock": ("EMFILE",),
    "read_file": ("EMFILE", "ENOMEM"),
    "sync_directory": ("EMFILE", "ENOMEM", "EIO"),
    "replace_file": ("EMFILE", "ENOSPC", "EIO"),
    "rename": ("ENOMEM", "ENOSPC"),
    "remove": ("ENOMEM",),
    "truncate": ("ENOMEM", "EIO"),
    "read": ("ENOMEM",),
    "write": ("ENOMEM", "ENOSPC", "ENOSPC", "EIO"),
    "sync": ("EIO", "ENOSPC", "ENOMEM"),
}


class PowerCut(BaseException):
    """Raised at a power failure. A BaseException, so that no `except Exception` catches it."""


class FailingDisk(MemDisk):
    """A `MemDisk` that loses power after `fuse` changes; `remains` is the disk of the next start."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms=now_ms)
        self.fuse: int | None = None
        self.trouble = 0.0  # the share of operations that something goes wrong with
        self.lacks_only = False  # what goes wrong is a lack of descriptors or memory; nothing fails
        self.remains: FailingDisk | None = None
        self._rng = rng

    def another(self) -> "FailingDisk":
        """As in `MemDisk`."""
        after = FailingDisk(self._rng, self.now_ms)
        after.trouble = self.trouble
        after.lacks_only = self.lacks_only
        return after

    def cut_power(self) -> "FailingDisk":
        """What a power failure leaves."""
        remains = self.crash_machine(self._rng)
        assert isinstance(remains, FailingDisk)
        return remains

    def take_fault(self, operation: str, path: str) -> DiskFault | None:
        """As in `MemDisk`; every operation passes here."""
        if self.remains is not None:
            raise PowerCut
        if self.fuse is not None and operation in CHANGES:
            if self.fuse == 0:
                self.remains = self.cut_power()
                raise PowerCut
            self.fuse -= 1
        causes = CAUSES.get(operation, ())
        if self.lacks_only:
            causes = tuple(cause for cause in causes if cause in SHORTAGES and operation != "sync")
        if not causes or not self.trouble or self._rng.random() >= self.trouble:
            return super().take_fault(operation, path)
        return DiskFault(operation, self._rng.choice(causes), path, 0, self._rng.choice((0, 0, 7)))
