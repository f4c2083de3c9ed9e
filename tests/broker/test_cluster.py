"""Three brokers in one process: they find each other, follow the controller, and hand over to each other."""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.metadata import FAREWELL_SECONDS
from tests.broker.clusters import cluster, controller_of, create_topic, leader_of, until


async def test_three_brokers_know_each_other_and_agree_on_the_controller(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        assert controller_of(machines) is machines[0]
        for machine in machines:
            answer = await (await machine.connect()).ask(m.MetadataRequest(topics=[]))
            assert (answer.controller_id, len(answer.brokers)) == (1, 3)
            assert sorted(each.port for each in answer.brokers) == [9092, 9093, 9094]


async def test_a_topic_has_its_leaders_where_it_was_asked_to(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2], [3], [1])
        assert [await leader_of(machines, "t", index) for index in range(3)] == [two, three, one]
        assert (await (await two.connect()).produce("t", b"hello")).error_code == 0


async def test_producer_ids_of_three_brokers_differ(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        ids = [
            (await (await machine.connect()).ask(m.InitProducerIdRequest(transactional_id=None))).producer_id
            for machine in machines
        ]
        assert len({each // 1000 for each in ids}) == 3


async def test_when_the_controller_stops_another_takes_over(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, two, three = machines
        await one.stop()
        await until(lambda: two.broker.candidate.is_active or three.broker.candidate.is_active)
        await until(lambda: two.broker.metadata.brokers.keys() == {2, 3} == three.broker.metadata.brokers.keys())
        assert two.broker.metadata.controller_id == three.broker.metadata.controller_id != 1


# -- a stop


async def test_a_leader_that_stops_has_handed_over_when_it_ends(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, two, _ = machines
        client = await one.connect()
        await create_topic(client, "t", [2, 3], [3, 2])
        await create_topic(client, "alone", [2])
        await leader_of(machines, "alone")
        began = trio.current_time()
        await two.stop()
        assert [one.broker.metadata.leader_of("t", index) for index in range(2)] == [3, 3]
        assert trio.current_time() - began < 1  # it does not wait for a partition without another replica


async def test_who_stops_is_out_of_metadata_at_once_and_who_dies_as_a_leader_is_not(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, two, three = machines
        client = await one.connect()
        await create_topic(client, "t", [2, 3], [3, 1])
        await create_topic(client, "alone", [2])
        await leader_of(machines, "alone")

        async def named():
            return sorted(each.node_id for each in (await client.ask(m.MetadataRequest(topics=[]))).brokers)

        await two.stop()
        await until(lambda: 2 not in one.broker.metadata.brokers)
        assert await named() == [1, 3]
        await three.crash()
        await until(lambda: 3 not in one.broker.metadata.brokers)
        assert await named() == [1, 3]
        await trio.sleep(FAREWELL_SECONDS)
        assert await named() == [1]


async def test_a_controller_that_stops_hands_over_to_the_others(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [1, 3])
        await leader_of(machines, "t")
        await one.stop()
        assert three.broker.metadata.leader_of("t", 0) == 3
        assert await leader_of([two, three], "t") is three


async def test_a_stop_while_there_is_no_controller_waits_for_the_next_one(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2, 3])
        await leader_of(machines, "t")
        await one.crash()
        await two.stop()
        assert three.broker.metadata.leader_of("t", 0) == 3


# -- control requests


@pytest.mark.thorough
async def test_a_thousand_partitions_get_their_leaders(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", *([2, 3] if index % 2 else [3, 2] for index in range(1000)))
        await until(lambda: all(len(each.broker.replicas) >= 1000 for each in machines[1:]))
        assert [await leader_of(machines, "t", index) for index in (0, 999)] == [machines[2], machines[1]]


async def test_requests_to_a_stopped_broker_are_repeated_until_it_goes_on(autojump_clock, nursery, caplog):
    async with cluster(nursery, 2) as machines:
        one, two = machines
        await create_topic(await one.connect(), "before", [2])
        await leader_of(machines, "before")
        one.net.stop_reading(9093)
        nursery.start_soon(create_topic, await one.connect(), "t", [2])
        await trio.sleep(100)
        assert "broker 2 did not take LeaderAndIsr" in caplog.text
        assert "t" not in two.broker.metadata.topics
        opened = one.net.connected.count(9093)
        assert opened >= 4  # an attempt lasts controller.socket.timeout.ms, and then there is a new connection
        one.net.go_on_reading(9093)
        assert await leader_of(machines, "t") is two
        assert (await (await two.connect()).produce("t", b"hello")).error_code == 0
        assert one.net.connected.count(9093) <= opened + 1 + 1  # that of this test, and one more of the controller


async def test_what_is_sent_twice_changes_nothing_the_second_time(autojump_clock, nursery):
    async with cluster(nursery, 2) as machines:
        one, two = machines
        await create_topic(await one.connect(), "t", [2])
        await leader_of(machines, "t")
        client = await two.connect()
        assert (await client.produce("t", b"kept")).base_offset == 0
        role = {"leader": 2, "isr": [2], "replicas": [2], "leader_epoch": 7}
        assert await client.give_role(two, "t", **role) == 0
        assert await client.give_role(two, "t", **role) == ErrorCode.STALE_CONTROLLER_EPOCH  # as in Kafka
        assert await client.read_values("t") == [b"kept"]
