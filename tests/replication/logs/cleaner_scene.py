"""A broker's logs with a compacted topic, under virtual time."""

import random

import trio

from barnabas.config.live import BrokerConfig
from barnabas.replication.logs.directory import StoredIdentity
from barnabas.replication.logs.partition_logs import Logs
from barnabas.storage.checkpoint import CLEANER_CHECKPOINT, read_checkpoint
from barnabas.storage.flusher import Flusher
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.producers import Origin
from barnabas.wire.records import build_batch, read_all_records
from barnabas.wire.topics import TopicPartition
from barnabas.world.world import World
from tests.broker.clock import now_ms
from tests.broker.steps import outside_steps

US = StoredIdentity(1, "castle")
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
BACKOFF = 15


class Scene:
    """A broker's logs with a compacted topic; work in a thread takes a millisecond."""

    def __init__(self, disk: MemDisk | None = None, directories: str = "/d1", **properties: str) -> None:
        self.disk = disk or MemDisk(now_ms=now_ms)
        self.properties = {name.replace("_", "."): text for name, text in properties.items()}
        self.config = BrokerConfig({"log.dirs": directories, **self.properties})
        self.topic = self.config.topic({"cleanup.policy": "compact", "segment.bytes": "400"})
        self.failed, self.high_watermarks = [], {}
        self.threads = self.threads_most = self.hops = 0
        self.flusher = Flusher(self.in_thread)
        world = World(now_ms, random.Random(0), self.disk, None, None, self.in_thread, self.in_thread)
        self.logs = Logs(self.config, world, self.flusher)

    def configure(self, **overrides: str) -> None:
        """Change the topic, as an AlterConfigs does."""
        changed = {name.replace("_", "."): text for name, text in overrides.items()}
        self.topic.update(self.topic.overrides | changed)

    async def in_thread(self, function, *args):
        self.hops += 1
        self.threads += 1
        self.threads_most = max(self.threads_most, self.threads)
        with trio.CancelScope(shield=True):
            await trio.sleep(0.001)
        self.threads -= 1
        with outside_steps():
            return function(*args)

    async def ids_of(self, topics):
        return dict.fromkeys(topics)

    async def start(self, nursery: trio.Nursery, *keys: TopicPartition) -> "Scene":
        await self.logs.open()
        await self.logs.load(US, lambda topic: self.topic, self.ids_of)
        for key in keys:
            await self.logs.create(key, bytes(range(16)), self.topic)
        self.high_watermarks |= {log.topic_partition: log.log_end_offset for log in self.logs}
        await nursery.start(self.flusher.run, lambda log: None, self.logs.fail_directory_of)
        await nursery.start(self.logs.run, lambda: self.high_watermarks, lambda *what: self.failed.append(what))
        await trio.sleep(0.5)  # past the cleaner's first look
        return self

    def put(self, key: TopicPartition, *pairs, timestamp_ms: int | None = None) -> None:
        batch = build_batch(pairs, timestamp_ms=now_ms() if timestamp_ms is None else timestamp_ms)
        log = self.logs.get(key)
        log.append_as_leader(batch, leader_epoch=0, origin=Origin.CLIENT, now_ms=now_ms())
        self.high_watermarks[key] = log.log_end_offset
        if log.flush_demanded:
            self.flusher.want(log)

    def fill(self, key: TopicPartition = T0, count: int = 20, keys: int = 3) -> None:
        """Sealed segments full of superseded records."""
        for number in range(count):
            self.put(key, (b"k%d" % (number % keys), b"v%d" % number))
        self.seal(key)

    def seal(self, key: TopicPartition = T0) -> None:
        """Begin a new segment; the flush that this demands follows, and only then the old one may be cleaned."""
        log = self.logs.get(key)
        log.roll(now_ms())
        self.flusher.want(log)

    def offsets(self, key: TopicPartition = T0) -> list[int]:
        log = self.logs.get(key)
        data = b"".join(self.disk.read_file(segment.path) for segment in log.segments)
        return [record.offset for _, record in read_all_records(data)]

    def checkpoint(self, directory: str = "/d1") -> dict:
        return read_checkpoint(self.disk, f"{directory}/{CLEANER_CHECKPOINT}")

    def leftovers(self, directory: str) -> list[str]:
        return [name for name in self.disk.list(directory) if name.endswith((".cleaned", ".swap"))]


async def a_pass() -> None:
    """Long enough for the back-off and a few hundred steps."""
    await trio.sleep(BACKOFF + 1)
