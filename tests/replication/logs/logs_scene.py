"""What tests share with `test_partition_logs.py`."""

import random

import trio

from barnabas.config.live import BrokerConfig
from barnabas.replication.logs.directory import StoredIdentity
from barnabas.replication.logs.partition_logs import Logs
from barnabas.storage.checkpoint import (
    read_checkpoint,
)
from barnabas.storage.flusher import Flusher
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.producers import Origin
from barnabas.wire.records import build_batch
from barnabas.wire.topics import TopicPartition
from barnabas.world.world import World

START_MS = 1_700_000_000_000


MINUTE = 60


US = StoredIdentity(1, "castle")


T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def now_ms() -> int:
    return START_MS + round(trio.current_time() * 1000)


class Scene:
    """A broker's logs on a disk in memory, and what they reported."""

    def __init__(self, disk: MemDisk | None = None, directories: str = "/d1,/d2", **properties: str) -> None:
        self.disk = disk or MemDisk(now_ms=now_ms)
        settings = {name.replace("_", "."): text for name, text in properties.items()}
        self.config = BrokerConfig({"log.dirs": directories, **settings})
        self.topic = self.config.topic()
        self.flushed, self.failed, self.high_watermarks = [], [], {}
        self.threads = self.threads_most = self.skew_ms = 0
        self.topic_ids: dict[str, bytes | None] = {}
        self.flusher = Flusher(self.in_thread)
        world = World(self.now_ms, random.Random(0), self.disk, None, None, self.in_thread, self.in_thread)
        self.logs = Logs(self.config, world, self.flusher)

    def now_ms(self) -> int:
        return now_ms() + self.skew_ms

    async def in_thread(self, function, *args):
        self.threads += 1
        self.threads_most = max(self.threads_most, self.threads)
        await trio.sleep(0.001)
        self.threads -= 1
        return function(*args)

    async def ids_of(self, topics):
        return {name: self.topic_ids[name] for name in topics if name in self.topic_ids}

    async def start(self, nursery: trio.Nursery | None = None) -> "Scene":
        await self.logs.open()
        await self.logs.load(US, lambda topic: self.topic, self.ids_of)
        if nursery is not None:
            await nursery.start(self.flusher.run, self.flushed.append, self.logs.fail_directory_of)
            await nursery.start(self.logs.run, lambda: self.high_watermarks, lambda *what: self.failed.append(what))
        return self

    async def flush(self, key: TopicPartition) -> None:
        log = self.logs.get(key)
        plan = log.flush_plan()
        await self.in_thread(plan.sync)
        log.flushed(plan)

    async def create(self, *keys: TopicPartition) -> None:
        for key in keys:
            await self.logs.create(key, TOPIC_ID, self.topic)

    def append(self, key: TopicPartition, count: int = 1, value: bytes = b"v") -> None:
        batch = build_batch([(None, value)] * count, timestamp_ms=now_ms())
        log = self.logs.get(key)
        log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT, now_ms=now_ms())
        self.high_watermarks[key] = log.log_end_offset

    def directory_of(self, key: TopicPartition) -> str:
        return self.logs.get(key).directory.rpartition("/")[0]

    def checkpoint(self, name: str, directory: str = "/d1") -> dict:
        return read_checkpoint(self.disk, f"{directory}/{name}")
