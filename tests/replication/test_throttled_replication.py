"""Throttled replicas (KIP-73): what a follower out of sync gets in a second, and who is never held back."""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.records import build_batch
from tests.broker.replica_group import BROKER, Group

TOPIC = 2  # the type of a resource that has a configuration
BATCH = build_batch([(None, bytes(20_000))], timestamp_ms=0).data
BATCHES = 100
RATE = 100_000  # so 2 MB take 20 s
SIDES = ["leader", "follower"]


async def alter(group, kind, name, **configs):
    """Set configurations of a topic or broker; None deletes one."""
    rows = [
        m.IncrementalAlterConfigsRequest.AlterableConfig(
            name=key.replace("_", "."), config_operation=1 if value is None else 0, value=value
        )
        for key, value in configs.items()
    ]
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=rows
    )
    client = group.clients[int(name) if kind == BROKER and name else 1]
    answer = await client.ask(m.IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


async def written(nursery, *, isr, **properties):
    """Broker 1 leads a topic of 2 MB. Broker 2 has a replica, too, and does not follow yet."""
    group = await Group.start(nursery, count=2, **properties)
    topic = group.topic(replicas=(1, 2))
    await topic.led_by(1, isr=isr, to=[1])
    for _ in range(BATCHES):
        await topic.produce(records=BATCH)
    return group, topic


async def throttled(group, side, rate=RATE, replicas=None):
    """As the tool that reassigns partitions does it: the topic names the replicas, each broker has the rate."""
    named = replicas or {"leader": "0:1", "follower": "0:2"}[side]
    await alter(group, TOPIC, "t", **{f"{side}_replication_throttled_replicas": named})
    for broker in ("1", "2"):
        await alter(group, BROKER, broker, **{f"{side}_replication_throttled_rate": str(rate)})


def copied_bytes(topic):
    return len(topic.log_bytes(2))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("replicas", [None, "*"])
async def test_a_follower_out_of_sync_gets_what_the_rate_allows(nursery, autojump_clock, side, replicas):
    # A response that begins below the rate comes whole, and above it a leader lets the Fetch wait 500 ms.
    response_bytes = 5 * len(BATCH)
    group, topic = await written(nursery, isr=[1], replica_fetch_max_bytes=str(response_bytes))
    await throttled(group, side, replicas=replicas)
    await topic.tell(2)
    began = trio.current_time()
    for second in (5, 10, 15):
        await trio.sleep_until(began + second)
        assert copied_bytes(topic) == pytest.approx(second * RATE, rel=0.05, abs=response_bytes)
    await topic.is_copied_to(2, within_seconds=8)


@pytest.mark.parametrize("side", SIDES)
async def test_a_replica_in_the_isr_is_not_held_back(nursery, autojump_clock, side):
    group, topic = await written(nursery, isr=[1])
    await topic.tell(2)
    await topic.is_copied_to(2)
    await topic.led_by(1, isr=[1, 2])
    await topic.produce(records=BATCH, acks=-1)
    await throttled(group, side, rate=1)
    began = trio.current_time()
    for _ in range(20):
        await topic.produce(records=BATCH, acks=-1)
    assert trio.current_time() - began < 1


@pytest.mark.parametrize("side", SIDES)
async def test_a_replica_that_is_not_named_is_not_held_back(nursery, autojump_clock, side):
    group, topic = await written(nursery, isr=[1])
    await throttled(group, side, rate=1, replicas="0:7,1:1,1:2")
    await topic.tell(2)
    await topic.is_copied_to(2, within_seconds=2)


@pytest.mark.parametrize("side", SIDES)
async def test_partitions_that_are_not_throttled_go_on_beside_those_that_are(nursery, autojump_clock, side):
    group, topic = await written(nursery, isr=[1])
    await throttled(group, side, rate=0)
    await topic.tell(2)
    other = group.topic("other", replicas=(1, 2))
    await other.led_by(1)
    for _ in range(5):
        await other.produce(b"v")
        await other.is_copied_to(2, within_seconds=1)
    # One response of `replica.fetch.max.bytes` came before anything was counted.
    assert copied_bytes(topic) < BATCHES * len(BATCH)


@pytest.mark.parametrize("side", SIDES)
async def test_the_end_of_a_throttle_acts_at_once(nursery, autojump_clock, side):
    group, topic = await written(nursery, isr=[1], replica_fetch_max_bytes=str(len(BATCH)))
    await throttled(group, side, rate=0)
    await topic.tell(2)
    await trio.sleep(60)
    assert copied_bytes(topic) <= 3 * len(BATCH)
    await alter(group, TOPIC, "t", **{f"{side}_replication_throttled_replicas": None})
    await topic.is_copied_to(2, within_seconds=4)


@pytest.mark.parametrize("side", SIDES)
async def test_a_rate_for_all_brokers_holds_where_a_broker_has_none(nursery, autojump_clock, side):
    group, topic = await written(nursery, isr=[1], replica_fetch_max_bytes=str(len(BATCH)))
    name = f"{side}_replication_throttled_rate"
    await alter(group, TOPIC, "t", **{f"{side}_replication_throttled_replicas": "*"})
    await alter(group, BROKER, "", **{name: "0"})
    await topic.tell(2)
    await trio.sleep(30)
    assert copied_bytes(topic) <= 3 * len(BATCH)
    for broker in ("1", "2"):
        await alter(group, BROKER, broker, **{name: "100000000"})
    await topic.is_copied_to(2, within_seconds=4)
