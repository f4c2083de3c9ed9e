"""A coordinator whose state is a dict: the value of each key, as the log says it."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from barnabas.config.live import BrokerConfig
from barnabas.coordinators.runtime.placement import Placement
from barnabas.coordinators.runtime.runtime import Runtime, Waits, Write
from barnabas.replication.alter_partition import AlterPartition
from barnabas.replication.partition import Partition, Role
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.opening import open_log
from barnabas.storage.producers import Origin
from barnabas.wire.records import (
    build_batch,
    build_control_batch,
)
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import ClusterMetadata

TOPIC = "__letters"
WAIT_MS = 5000
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


class Letters:
    """Replays each record into a dict; what a transaction wrote counts from its COMMIT on."""

    def __init__(self):
        self.state = {}
        self.replayed = 0
        self.open = {}

    needs_all_records = False

    def replay(self, key, value, offset, producer_id):
        self.replayed += 1
        (self.state if producer_id == -1 else self.open)[key] = value

    def replay_marker(self, producer_id, offset, *, committed):
        if committed:
            self.state |= self.open
        self.open = {}

    def finish(self):
        return self.state


def put(key, value):
    """What a step decides that stores this value and answers with it."""
    batch = build_batch([(key, value)], timestamp_ms=0)
    return Write(batch, lambda state, base_offset: state.update({key: value}), value)


class Post:
    """A coordinator that leads partitions of a topic; broker 1 may follow."""

    def __init__(self, disk=None):
        self.disk = MemDisk() if disk is None else disk
        self.config = BrokerConfig({})
        self.world = SimpleNamespace(in_thread=self.in_thread)
        placement = Placement(TOPIC, ClusterMetadata(), lambda: 1)
        waits = Waits(lambda: WAIT_MS, lambda: WAIT_MS)
        self.shards = Runtime(TOPIC, self, self.world, placement, lambda: 200, waits)
        self.happened = []
        self.loaders = []
        self.partitions = {}

    async def in_thread(self, function, *args):
        await trio.sleep(0.001)
        return function(*args)

    # -- as the owner of the shards

    def new_state(self):
        return {}

    def new_loader(self):
        self.loaders.append(Letters())
        return self.loaders[-1]

    async def before_serving(self, shard):
        await trio.sleep(0.001)
        self.happened.append(("loaded", shard.index))

    def on_serving(self, shard):
        self.happened.append(("serves", shard.index))

    def on_unloaded(self, shard, error):
        self.happened.append((error.name, shard.index))

    # -- what happens around it

    def open(self, index=0):
        key, config = TopicPartition(TOPIC, index), self.config.topic({"cleanup.policy": "compact"})
        checkpointed = {"recovery_point": 0, "log_start_offset": None, "clean": False, "now_ms": 0}
        watch = AlterPartition(0, self.config, ClusterMetadata(), lambda: 0)
        flusher = SimpleNamespace(want=lambda log: None)
        partition = Partition(key, config, 0, lambda: 0, flusher, self.fail, watch)
        partition.log = open_log(self.disk, f"/data/{key}", key, config, **checkpointed)
        self.partitions[index] = partition
        return partition

    def fail(self, partition, error):
        if not error.is_shortage:
            self.resign(partition.topic_partition.partition)

    def lead(self, index=0, *, epoch=1, replicas=(0,)):
        partition = self.partitions.get(index) or self.open(index)
        partition.become(partition.log, Role(0, epoch, epoch, 1, list(replicas), list(replicas), 0, False))
        self.shards.on_elected(partition)

    def resign(self, index=0, *, epoch=1):
        self.partitions[index].resign()
        self.shards.on_resigned(index, epoch)

    def replicate(self, index=0):
        partition = self.partitions[index]
        partition.follower_fetched(1, partition.log.log_end_offset, log_start_offset=0)

    def write(self, key, value, index=0):
        """What the coordinator stores in one step."""
        return self.shards.step(self.shards.find(index), lambda *_: put(key, value))

    def append(self, *records, marker=None, **header):
        """A batch that is in the log before the coordinator leads."""
        if marker is None:
            batch = build_batch(records, timestamp_ms=0, **header)
        else:
            batch = build_control_batch(marker, coordinator_epoch=0, timestamp_ms=0, **header)
        self.partitions[0].append_as_leader(batch, Origin.COORDINATOR)


@pytest.fixture
async def make_post(nursery):
    """A function that makes a coordinator which loads its shards."""

    def make(disk=None):
        post = Post(disk)
        nursery.start_soon(post.shards.load)
        return post

    return make


@pytest.fixture
def post(make_post):
    """A coordinator that leads nothing yet."""
    return make_post()


def led_before(post):
    """Lead partition 0 without the coordinator's knowledge, to write into its log."""
    partition = post.open()
    partition.become(partition.log, Role(0, 1, 1, 1, [0], [0], 0, False))
    return post
