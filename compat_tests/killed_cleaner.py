"""A broker that is killed in the middle of a compaction: `python -m compat_tests.killed_cleaner DATA_DIR STEP`.

It is the real broker on the real disk. It sends itself a SIGKILL right before change number STEP (from 0) of compaction
in a directory: the creation of a file, a sync, a rename.
"""

import os
import signal
import sys

import trio

from barnabas.broker.serve import serve
from barnabas.config.live import BrokerConfig
from barnabas.storage.osdisk import OsDisk, OsFile
from barnabas.world.net import OsNet, SocketBuffers
from barnabas.world.world import real_world

OF_COMPACTION = (".cleaned", ".swap", ".deleted")


class FatalDisk(OsDisk):
    """Counts the changes, and dies instead of one of them."""

    def __init__(self, fatal: int) -> None:
        self.left = fatal
        self.has_begun = False

    def count(self, *paths: str) -> None:
        self.has_begun |= any(path.endswith(OF_COMPACTION) for path in paths)
        if self.has_begun and "/__" not in paths[0]:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> OsFile:
        if path.endswith(OF_COMPACTION):
            self.count(path)  # to begin it, or to sync it
        return super().open(path, create=create, read_only=read_only)

    def rename(self, old: str, new: str) -> None:
        if old.endswith(OF_COMPACTION) or new.endswith(OF_COMPACTION):
            self.count(old, new)
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        if self.has_begun:
            self.count(path)
        super().sync_directory(path)


async def run(data_dir: str, fatal: int) -> None:
    config = BrokerConfig(
        {"log.dirs": data_dir, "listeners": "PLAINTEXT://127.0.0.1:0", "log.cleaner.backoff.ms": "100"}
    )
    world = real_world(OsNet(SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)))
    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: serve(
            config, world=world._replace(disk=FatalDisk(fatal)), stop=trio.Event(), task_status=task_status
        ))  # fmt: skip


if __name__ == "__main__":
    trio.run(run, sys.argv[1], int(sys.argv[2]))
