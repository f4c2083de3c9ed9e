"""Three brokers in one process: they find each other, follow the controller, and hand over to each other."""

from barnabas.wire import messages as m
from tests.broker.clusters import cluster, controller_of, create_topic, leader_of, until


async def test_three_brokers_know_each_other_and_agree_on_the_controller(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        assert controller_of(machines) is machines[0]
        for machine in machines:
            answer = await (await machine.connect()).ask(m.MetadataRequest(topics=[]))
            assert (answer.controller_id, len(answer.brokers)) == (1, 3)
            assert sorted(each.port for each in answer.brokers) == [9092, 9093, 9094]


async def test_a_topic_has_its_leaders_where_it_was_told_to(autojump_clock, nursery):
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
