"""What the metadata store in ZooKeeper costs a controller: reads and writes as a fail-over makes them.

A real ZooKeeper of one server on this machine, and the broker's own client of it. The CPU of this process is that of
the client (its threads included), beside the time that the loop's longest step took.
"""

import pathlib
import tempfile
import time
from collections.abc import Awaitable, Callable

import trio

from barnabas.broker.process.heap import freeze_heap
from barnabas.controller.context import PARTITIONS_IN_A_BATCH
from barnabas.controller.image import loading
from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionState
from barnabas.controller.store.store import Check, Create, MetadataStore, SetData
from barnabas.controller.store.zkstore import ZooKeeperConfig, open_zookeeper_store
from barnabas.testing.running.processes import cpu_seconds_of, resident_bytes_of
from barnabas.wire.topics import TopicPartition
from barnabas.world.world import in_worker_thread
from bench.scale_cluster import ZOOKEEPER_JVM
from bench.steps import StepMeter
from compat_tests.kafka import ZooKeeperProcess

STATE = PartitionState(leader=1, leader_epoch=7, controller_epoch=3, isr=(1, 2, 3))
PARTITIONS_OF_A_TOPIC = 100


def measure(partitions: int) -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory(prefix="barnabas-scale-") as place:
        zookeeper = ZooKeeperProcess(pathlib.Path(place), jvm=ZOOKEEPER_JVM).start()
        try:
            trio.run(_measure, zookeeper, partitions)
        finally:
            zookeeper.kill()


async def _measure(zookeeper: ZooKeeperProcess, partitions: int) -> None:
    config = ZooKeeperConfig(f"{zookeeper.bootstrap}/scale")
    store = await open_zookeeper_store(config, in_worker_thread, make_chroot=True)
    everything = [
        TopicPartition(f"topic-{index // PARTITIONS_OF_A_TOPIC}", index % PARTITIONS_OF_A_TOPIC)
        for index in range(partitions)
    ]
    freeze_heap()  # as a broker's process does
    print(f"\n{partitions:,} partitions, ZooKeeper of one server\n")
    print("| | operations/s | client's CPU µs each | ZooKeeper's | longest step ms |\n|-|-:|-:|-:|-:|")

    async def row(name: str, count: int, act: Callable[[], Awaitable[object]]) -> None:
        meter = StepMeter()
        trio.lowlevel.add_instrument(meter)
        client, server, began = time.process_time(), cpu_seconds_of(zookeeper.pid), time.monotonic()
        await act()
        seconds = time.monotonic() - began
        client, server = time.process_time() - client, cpu_seconds_of(zookeeper.pid) - server
        trio.lowlevel.remove_instrument(meter)
        print(
            f"| {name} | {count / seconds:,.0f} | {client / count * 1e6:.0f} | {server / count * 1e6:.0f}"
            f" | {meter.longest_seconds * 1000:.1f} {meter.longest_at} |",
            flush=True,
        )

    await store.batch([Create("/fence"), *(Create(path) for path in ("/brokers", paths.TOPICS))])
    await row("creating partitions", 3 * partitions, lambda: create(store, everything))
    await row("fenced writes of states", partitions, lambda: write(store, everything))
    await row("reads of states", partitions, lambda: loading.read_states(store, everything))
    one = everything[0]
    await row("writes one after the other", 500, lambda: one_by_one(store, [one] * 500))
    print(f"\nresident memory of ZooKeeper: {resident_bytes_of(zookeeper.pid) / 1e6:.0f} MB (heap {ZOOKEEPER_JVM[0]})")
    await store.close()


async def create(store: MetadataStore, everything: list[TopicPartition]) -> None:
    for first in range(0, len(everything), PARTITIONS_IN_A_BATCH):
        part = everything[first : first + PARTITIONS_IN_A_BATCH]
        topics = dict.fromkeys(each.topic for each in part)
        parents = [path for topic in topics for path in (paths.topic(topic), paths.partitions(topic))]
        await store.batch([(Create(path),) for path in parents])
        await store.batch([(Create(paths.partition(*each)),) for each in part])
        fence = Check("/fence", 0)
        outcomes = await store.batch([(fence, Create(paths.partition_state(*each), STATE.encode())) for each in part])
        expect_success(outcomes)


async def write(store: MetadataStore, everything: list[TopicPartition]) -> None:
    fence = Check("/fence", 0)
    for first in range(0, len(everything), PARTITIONS_IN_A_BATCH):
        part = everything[first : first + PARTITIONS_IN_A_BATCH]
        items = [(fence, SetData(paths.partition_state(*each), STATE.encode(), 0)) for each in part]
        expect_success(await store.batch(items))


async def one_by_one(store: MetadataStore, subjects: list[TopicPartition]) -> None:
    for each in subjects:
        await store.multi([Check("/fence", 0), SetData(paths.partition_state(*each), STATE.encode())])


def expect_success(outcomes: list[object]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome
