"""What one broker pays, in memory and when idle, for each connection, partition, group and producer id.

One process, of this checkout. CPU of requests is measured elsewhere (`measurements.py`, `growth.py`).
"""

import os
import time
from collections.abc import Callable

from barnabas.controller.image.state import (
    ClusterImage,
    Leadership,
    LeadershipChanged,
    PartitionAppeared,
    ReplicaMoved,
    TopicAppeared,
    replay,
    replay_all,
)
from barnabas.controller.image.transitions import ReplicaMove
from barnabas.controller.store.paths import PartitionState
from barnabas.testing.running.processes import resident_bytes_of
from barnabas.wire import messages as m
from barnabas.wire.records import build_batch
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import ClusterMetadata
from bench.load import Case, Client, batch_of, check_produced, create_topic, frame, produce_frame
from bench.pacing_clients import requests_of
from bench.processes import Measured, broker

SETTLE_SECONDS, IDLE_SECONDS = 12.0, 20.0  # a broker returns freed memory every ten seconds
CONNECTIONS, PARTITIONS, GROUPS, PRODUCERS = 5000, 5000, 2000, 20_000
PARTITIONS_OF_A_TOPIC = 500
OFFSETS_OF_A_GROUP = 100
KNOWN_PARTITIONS = 100_000
UPDATE_METADATA_VERSION = 8


def print_table() -> None:
    """All of it; each row has a broker of its own."""
    print(
        "| | count | resident bytes each | idle CPU, ms/s for all | CPU µs to make each |\n|-|-:|-:|-:|-:|", flush=True
    )
    row("connection, idle", CONNECTIONS, connections)
    row("partition without records", PARTITIONS, partitions)
    row("partition with a record", PARTITIONS, partitions_with_records)
    row("group of one member", GROUPS, groups)
    row("committed offset", GROUPS * OFFSETS_OF_A_GROUP, offsets)
    row("producer id", PRODUCERS, producer_ids)
    of_the_cluster("partition in the controller's image, RF 3", image_of)
    of_the_cluster("partition in the metadata", metadata_of)


def row(name: str, count: int, make: Callable[[Measured, Client, int], object]) -> None:
    """Make so many of them, and compare the broker with what it was before."""
    with broker("group.initial.rebalance.delay.ms=0", "offsets.topic.num.partitions=1") as served:
        client = Client(served.port)
        create_topic(client, "first")
        # Loaded and created before: the code of this path, and the topic of the groups.
        kept = [make(served, client, 1)]
        idle(served)
        before, made = served.resident_bytes(), served.cpu_seconds()
        kept.append(make(served, client, count))
        made = served.cpu_seconds() - made
        spent = idle(served)
        each = (served.resident_bytes() - before) / count
        print(f"| {name} | {count:,} | {each:,.0f} | {spent:.1f} | {made / count * 1e6:.0f} |", flush=True)
        client.close()
        del kept
        # A clean stop would sync thousands of logs.
        served.process.kill()
        served.process.wait()


def of_the_cluster(name: str, make: Callable[[int], object]) -> None:
    """What a broker keeps of partitions that others host: made in this process."""
    before, cpu = resident_bytes_of(os.getpid()), time.process_time()
    kept = make(KNOWN_PARTITIONS)
    cpu = time.process_time() - cpu
    each = (resident_bytes_of(os.getpid()) - before) / KNOWN_PARTITIONS
    print(f"| {name} | {KNOWN_PARTITIONS:,} | {each:,.0f} | | {cpu / KNOWN_PARTITIONS * 1e6:.0f} |", flush=True)
    del kept


def image_of(count: int) -> ClusterImage:
    image = ClusterImage()
    for number in range(count // PARTITIONS_OF_A_TOPIC):
        topic = f"topic-{number}"
        replay(image, TopicAppeared(topic, number.to_bytes(16, "big")))
        for index in range(PARTITIONS_OF_A_TOPIC):
            # A tuple of its own for the ISR, as when it is read from a node.
            partition, replicas = TopicPartition(topic, index), (index % 30, (index + 1) % 30, (index + 2) % 30)
            state = PartitionState(replicas[0], 5, 1, (*(each for each in replicas),))
            replay(image, PartitionAppeared(partition, replicas))
            replay(image, LeadershipChanged(partition, Leadership(state, 7)))
            replay_all(image, [ReplicaMoved(partition, each, ReplicaMove.START) for each in replicas])
    return image


def metadata_of(count: int) -> ClusterMetadata:
    metadata = ClusterMetadata()
    kind = m.UpdateMetadataRequest
    for number in range(count // PARTITIONS_OF_A_TOPIC):
        states = [
            kind.UpdateMetadataPartitionState(partition_index=index, leader=1, isr=[1, 2, 3], replicas=[1, 2, 3])
            for index in range(PARTITIONS_OF_A_TOPIC)
        ]
        topic = kind.UpdateMetadataTopicState(
            topic_name=f"topic-{number}", topic_id=number.to_bytes(16, "big"), partition_states=states
        )
        encoded = m.encode(kind(topic_states=[topic]), UPDATE_METADATA_VERSION)
        metadata.apply(m.decode(kind, UPDATE_METADATA_VERSION, encoded, 0))
    return metadata


def idle(served: Measured) -> float:
    """CPU in ms a second when nothing is asked, once it has settled."""
    time.sleep(SETTLE_SECONDS)
    cpu = served.cpu_seconds()
    time.sleep(IDLE_SECONDS)
    return (served.cpu_seconds() - cpu) * 1000 / IDLE_SECONDS


def connections(served: Measured, client: Client, count: int) -> list[Client]:
    opened = []
    for _ in range(count):
        each = Client(served.port)
        each.ask_frame(frame(m.ApiVersionsRequest(), 0))
        opened.append(each)
    return opened


def partitions(served: Measured, client: Client, count: int) -> list[str]:
    topics = []
    for first in range(0, count, PARTITIONS_OF_A_TOPIC):
        topics.append(f"many-{count}-{first}")
        create_topic(client, topics[-1], min(PARTITIONS_OF_A_TOPIC, count - first))
    return topics


def partitions_with_records(served: Measured, client: Client, count: int) -> None:
    batch = batch_of(Case("", 1, 100))
    for topic in partitions(served, client, count):
        rows = [
            m.ProduceRequest.PartitionProduceData(index=index, records=batch)
            for index in range(min(PARTITIONS_OF_A_TOPIC, count))
        ]
        data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=rows)
        check_produced(client.ask_frame(frame(m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 9)))


def groups(served: Measured, client: Client, count: int) -> None:
    for number in range(count):
        requests_of(client, f"group-{count}-{number}", "first")


def offsets(served: Measured, client: Client, count: int) -> None:
    """Groups without members, each with many committed offsets."""
    wanted = [
        m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        for index in range(OFFSETS_OF_A_GROUP)
    ]
    if count == 1:
        groups(served, client, 1)  # so that the coordinator is there
        partitions(served, client, OFFSETS_OF_A_GROUP)
    topic = f"many-{OFFSETS_OF_A_GROUP}-0"
    for number in range(max(1, count // OFFSETS_OF_A_GROUP)):
        commit = m.OffsetCommitRequest(
            group_id=f"empty-{count}-{number}",
            generation_id_or_member_epoch=-1,
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=wanted)],
        )
        response = m.decode(m.OffsetCommitResponse, 7, client.ask_frame(frame(commit, 7)), 4)
        if any(each.error_code for each in response.topics[0].partitions):
            raise RuntimeError(f"a commit failed: {response.topics[0].partitions[0]}")


def producer_ids(served: Measured, client: Client, count: int) -> None:
    """Each with one batch in the same partition."""
    records = [(b"key", b"value")]
    for number in range(count):
        batch = build_batch(
            records, timestamp_ms=int(time.time() * 1000), producer_id=number + count, producer_epoch=0, base_sequence=0
        )
        check_produced(client.ask_frame(produce_frame("first", bytes(batch.data))))
