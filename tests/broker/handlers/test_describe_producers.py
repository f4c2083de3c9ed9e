"""DescribeProducers: what a partition knows of who writes to it."""

from barnabas.wire.errors import ErrorCode
from tests.broker.clock import START_MS
from tests.broker.harness import with_topic
from tests.broker.requests import batch_of, producers_request


async def describe(client, topic: str = "t", partition: int = 0):
    answer = await client.ask(producers_request((topic, partition)))
    ((row,),) = [each.partitions for each in answer.topics]
    return row


async def test_each_producer_is_reported_with_its_last_sequence_and_time(nursery, autojump_clock):
    _, client = await with_topic(nursery, 2)
    for first in (0, 2):
        await client.produce("t", batch_of(b"a", b"b", producer_id=7, producer_epoch=3, base_sequence=first))
    await client.produce("t", batch_of(b"c", producer_id=8, producer_epoch=0, base_sequence=0))
    row = await describe(client)
    assert (row.error_code, row.error_message) == (0, None)
    active = {each.producer_id: each for each in row.active_producers}
    assert {key: (each.producer_epoch, each.last_sequence) for key, each in active.items()} == {7: (3, 3), 8: (0, 0)}
    for each in active.values():
        assert START_MS <= each.last_timestamp < START_MS + 60_000
        assert (each.coordinator_epoch, each.current_txn_start_offset) == (-1, -1)
    assert (await describe(client, partition=1)).active_producers == []


async def test_a_follower_tells_of_its_producers_too(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", batch_of(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    await client.give_role(machine, "t", leader=2, replicas=[machine.serving.broker_id, 2])
    assert [each.producer_id for each in (await describe(client)).active_producers] == [7]


async def test_what_is_not_there_is_unknown_and_a_bad_name_is_invalid(nursery, autojump_clock):
    _, client = await with_topic(nursery)
    row = await describe(client, "none")
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert row.error_message == "This server does not host this topic-partition."
    row = await describe(client, partition=9)
    assert (row.error_code, row.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    row = await describe(client, "")
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert row.error_message == "Topic name is invalid: the empty string is not allowed"


async def test_thousands_of_producers_are_reported_completely(nursery, autojump_clock):
    _, client = await with_topic(nursery)
    for producer_id in range(1200):
        await client.produce("t", batch_of(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0))
    assert {each.producer_id for each in (await describe(client)).active_producers} == set(range(1200))
