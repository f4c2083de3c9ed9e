"""DescribeProducers: a follower, and a partition of very many producers."""

from tests.broker.harness import with_topic
from tests.broker.requests import batch_of, producers_request


async def describe(client, topic: str = "t", partition: int = 0):
    answer = await client.ask(producers_request((topic, partition)))
    ((row,),) = [each.partitions for each in answer.topics]
    return row


async def test_a_follower_tells_of_its_producers_too(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    await client.give_role(machine, "t", leader=2, replicas=[machine.serving.broker_id, 2])
    assert [each.producer_id for each in (await describe(client)).active_producers] == [7]


async def test_thousands_of_producers_are_reported_completely(nursery, autojump_clock):
    _, client = await with_topic(nursery)
    for producer_id in range(1200):
        await client.produce("t", batch_of(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0))
    assert {each.producer_id for each in (await describe(client)).active_producers} == set(range(1200))
