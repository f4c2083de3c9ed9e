"""Brokers whose `inter.broker.protocol.version` is raised one after the other: in between, topics may have no id."""

import pytest

from barnabas.replication.partition import Partition
from tests.broker.clusters import cluster, controller_of, create_topic, until


def in_sync(machine, topic):
    """The ISR as this broker has it, in order of ids; none unless it leads."""
    hosted = machine.broker.replicas.get(topic, 0)
    return sorted(hosted.in_sync_replicas) if isinstance(hosted, Partition) and hosted.is_leader else []


@pytest.mark.parametrize("newer", ["2.8", "3.4", "3.9"])
@pytest.mark.parametrize("older", ["2.6", "2.7"])
async def test_a_restarted_follower_rejoins_while_the_controller_has_the_old_level(
    nursery, autojump_clock, older, newer
):
    levels = {1: older, 2: newer, 3: older}
    async with cluster(nursery, 3, of_each=lambda each: {"inter_broker_protocol_version": levels[each]}) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2, 3], min_insync_replicas="2")
        await three.crash()
        await until(lambda: in_sync(two, "t") == [2], seconds=30)
        await three.start()
        await until(lambda: in_sync(two, "t") == [2, 3], seconds=10)
        assert controller_of(machines) is one
        assert (await (await two.connect()).produce("t", b"v")).error_code == 0


async def test_a_level_that_is_raised_broker_by_broker_keeps_every_isr_whole(nursery, autojump_clock):
    async with cluster(nursery, 3, inter_broker_protocol_version="2.7") as machines:
        client = await machines[0].connect()
        for topic, replicas in (("a", [1, 2, 3]), ("b", [2, 3, 1]), ("c", [3, 1, 2])):
            await create_topic(client, topic, replicas, min_insync_replicas="2")
        for machine in (*machines[1:], machines[0]):  # the controller last, as is recommended
            await machine.stop()
            await machine.start(inter_broker_protocol_version="3.9")
            for topic in "abc":
                await until(lambda topic=topic: [1, 2, 3] in [in_sync(each, topic) for each in machines], seconds=30)
                leader = next(each for each in machines if in_sync(each, topic))
                assert (await (await leader.connect()).produce(topic, b"v")).error_code == 0
