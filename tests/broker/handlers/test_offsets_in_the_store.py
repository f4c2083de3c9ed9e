"""Version 0 of OffsetCommit and OffsetFetch: offsets in the metadata store, below the nodes of Kafka 0.8."""

import time

import pytest

from barnabas.broker.handlers.group_offsets import LEVELS_CHARACTERS_MAX
from barnabas.controller.store import paths
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine
from tests.wire.bombs import memory_below


def committing(group):
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])
    return m.OffsetCommitRequest(group_id=group, topics=[topic])


async def commit(client, group):
    return (await client.ask(committing(group), 0)).topics[0].partitions[0].error_code


async def committed(client, group):
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await client.ask(m.OffsetFetchRequest(group_id=group, topics=[topic]), 0)
    return answer.topics[0].partitions[0].committed_offset


async def client_of(nursery):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    return machine, client


@pytest.mark.parametrize("levels", [1, 50, 250])
async def test_a_slash_in_a_group_id_begins_a_level_of_nodes_as_in_kafka(nursery, autojump_clock, levels):
    machine, client = await client_of(nursery)
    group = "/".join(["a"] * levels)
    assert await commit(client, group) == ErrorCode.NONE
    assert await committed(client, group) == 7
    data, _ = await machine.session().get(f"/consumers/{group}/offsets/t/0")
    assert data == b"7"


async def test_the_longest_group_id_of_one_level_has_its_nodes(nursery, autojump_clock):
    _, client = await client_of(nursery)
    assert await commit(client, "a" * 32_000) == ErrorCode.NONE
    assert await committed(client, "a" * 32_000) == 7


@pytest.mark.parametrize("levels", [800, 16_000])
async def test_a_group_id_of_very_many_levels_is_refused_before_a_node_is_made(nursery, autojump_clock, levels):
    machine, client = await client_of(nursery)
    began = time.thread_time()
    with memory_below(8 * LEVELS_CHARACTERS_MAX):
        assert await commit(client, "/".join(["a"] * levels)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert time.thread_time() - began < 1
    assert await machine.session().children(paths.CONSUMERS) == []


async def test_levels_that_are_there_already_may_be_as_many_as_a_java_broker_makes(nursery, autojump_clock):
    machine, client = await client_of(nursery)
    store, path = machine.session(), paths.CONSUMERS
    for name in ["a"] * 800 + ["offsets", "t", "0"]:
        path += f"/{name}"
        await store.create(path, b"1")
    assert await commit(client, "/".join(["a"] * 800)) == ErrorCode.NONE
    assert (await store.get(path))[0] == b"7"
