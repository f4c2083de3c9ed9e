"""What tests share with `test_partition.py`."""

from itertools import count

from barnabas.config.live import BrokerConfig
from barnabas.replication.isr import LagLimits
from barnabas.replication.partition import Partition, Role
from barnabas.storage.disk import StorageError
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.opening import open_log
from barnabas.storage.producers import Origin
from barnabas.wire.records import build_batch
from barnabas.wire.sentinels import ACKS_ALL
from barnabas.wire.topics import TopicPartition

ME, OTHER, THIRD = 1, 2, 3


ACKS_LEADER = 1


NOW_MS = 1_700_000_000_000


class Scene:
    """A partition, and what it asked of its surroundings."""

    def __init__(self, **properties: str) -> None:
        self.disk = MemDisk()
        self.config = BrokerConfig({"log.dirs": "/data"}).topic(
            {name.replace("_", "."): text for name, text in properties.items()}
        )
        self.failures: list[StorageError] = []
        self.time_ms, self.dead, self.asked = 0, set(), []
        self.marks = count(1)
        self.wanted = []  # logs that are to be flushed
        key = TopicPartition("t", 0)
        self.log = open_log(
            self.disk,
            "/data/t-0",
            key,
            self.config,
            recovery_point=0,
            log_start_offset=None,
            clean=False,
            now_ms=NOW_MS,
        )
        self.partition = Partition(key, self.config, ME, lambda: NOW_MS, self, self.fail, self)

    limits = LagLimits(time_ms=10_000, messages=0)

    def now_ms(self) -> float:
        return self.time_ms

    def mark(self) -> int:
        return next(self.marks)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id not in self.dead

    def ask(self, partition: Partition) -> None:
        self.asked.append(partition.asked_isr)

    def want(self, log) -> None:
        self.wanted.append(log)

    def fail(self, partition, error: StorageError) -> None:
        self.failures.append(error)
        partition.resign()

    def lead(self, epoch=0, isr=(ME,), replicas=(ME, OTHER, THIRD)) -> "Scene":
        self.become(ME, epoch, replicas, isr)
        return self

    def follow(self, epoch, leader=OTHER) -> None:
        self.become(leader, epoch, [ME, leader], [leader])

    def become(self, leader, epoch, replicas, isr) -> None:
        self.partition.become(self.log, Role(leader, epoch, epoch, 1, list(replicas), list(isr), 0, False))

    def append(self, count=1, acks=ACKS_ALL, **fields):
        batch = build_batch([(None, b"v")] * count, timestamp_ms=NOW_MS, **fields)
        return self.partition.append_as_leader(batch, Origin.CLIENT, acks)

    def flush(self) -> None:
        plan = self.log.flush_plan()
        plan.sync()
        self.log.flushed(plan)
        self.partition.look_again()

    def caught_up(self, replica, offset, connection=1) -> None:
        """A follower fetches from this offset on."""
        self.partition.follower_fetched(replica, offset, log_start_offset=0, connection=connection)
