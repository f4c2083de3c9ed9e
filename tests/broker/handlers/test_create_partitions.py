"""CreatePartitions: topics that grow, at once or later, and not beyond the store."""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine

Asked = m.CreatePartitionsRequest.CreatePartitionsTopic


async def connected(nursery, **properties):
    machine = await Machine(nursery, **properties).start()
    client = await machine.connect()
    await client.create_topic("t")
    return machine, client


def growing(*topics, timeout_ms=15_000, **fields):
    return m.CreatePartitionsRequest(
        topics=[Asked(name=name, count=count, assignments=None) for name, count in topics],
        timeout_ms=timeout_ms,
        **fields,
    )


async def grown(client, *topics, version=3, **fields):
    answer = await client.ask(growing(*topics, **fields), version)
    return {row.name: (row.error_code, row.error_message) for row in answer.results}


async def partitions(client, name="t"):
    return len((await client.metadata(name))[name].partitions)


@pytest.mark.parametrize("version", range(4))
async def test_every_version_adds_partitions_that_can_be_used_at_once(nursery, autojump_clock, version):
    machine, client = await connected(nursery)
    assert await grown(client, ("t", 3), version=version) == {"t": (0, None)}
    for partition in range(3):
        assert (await client.produce("t", b"v", partition)).error_code == 0
        assert machine.disk.exists(f"/data/t-{partition}")


async def test_new_partitions_outlive_a_crash(nursery, autojump_clock):
    machine, client = await connected(nursery)
    await grown(client, ("t", 2))
    await machine.crash()
    client = await (await machine.start()).connect()
    assert (await client.produce("t", b"v", 1)).error_code == 0


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_without_time_the_answer_is_a_timeout_and_the_topic_grows(nursery, autojump_clock, timeout_ms):
    _, client = await connected(nursery)
    assert await grown(client, ("t", 2), ("nope", 2), timeout_ms=timeout_ms) == {
        "t": (ErrorCode.REQUEST_TIMED_OUT, None),
        "nope": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nope' does not exist."),
    }
    await trio.sleep(1)
    assert await partitions(client) == 2


async def test_a_full_store_is_a_timeout(nursery, autojump_clock, caplog):
    machine = Machine(nursery)
    machine.store_max_bytes = 150_000
    client = await (await machine.start()).connect()
    await client.create_topic("t")
    codes, count = [0], 1
    while not {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER} & set(codes):
        count += 100
        codes.append((await grown(client, ("t", count), timeout_ms=5000))["t"][0])
    assert set(codes[:-1]) == {0}
    assert "Traceback" not in caplog.text
