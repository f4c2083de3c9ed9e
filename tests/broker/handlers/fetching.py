"""What tests share with `test_fetch.py`."""

from tests.broker.harness import Machine
from tests.broker.requests import fetched, produce_many


async def with_topic(nursery, partitions=1, *, properties=None, **configs):
    machine = await Machine(nursery, **(properties or {})).start()
    client = await machine.connect()
    topic_id = await client.create_topic("t", partitions, **configs)
    return machine, client, topic_id


async def with_records(nursery, count=3, size=100, partitions=1, **configs):
    """`count` batches of one record in each partition, record n being n times over the byte n."""
    machine, client, topic_id = await with_topic(nursery, partitions, **configs)
    for number in range(count):
        await client.ask(produce_many({("t", each): bytes([number]) * size for each in range(partitions)}))
    return machine, client, topic_id


def only_row(answer):
    assert answer.error_code == 0
    ((_, row),) = fetched(answer)
    return row
