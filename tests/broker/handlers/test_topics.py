"""CreateTopics and DeleteTopics, and what becomes of records, readers and names."""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine
from tests.broker.requests import batch_of, fetch_request, fetched, new_topics

Creatable = m.CreateTopicsRequest.CreatableTopic
Assignment = m.CreateTopicsRequest.CreatableReplicaAssignment
Deletable = m.DeleteTopicsRequest.DeleteTopicState


async def connected(nursery, **properties):
    machine = await Machine(nursery, **properties).start()
    return machine, await machine.connect()


def creating(*topics, timeout_ms=15_000, **fields):
    return m.CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, **fields)


def topic(name="t", partitions=1, replication_factor=1, **fields):
    return Creatable(name=name, num_partitions=partitions, replication_factor=replication_factor, **fields)


async def created(client, *topics, version=7, **fields):
    answer = await client.ask(creating(*topics, **fields), version)
    return {row.name: row for row in answer.topics}


async def deleted(client, *topics, timeout_ms=30_000):
    return (await client.ask(m.DeleteTopicsRequest(topics=list(topics), timeout_ms=timeout_ms))).responses


# -- create


@pytest.mark.parametrize("version", range(8))
async def test_every_version_creates_a_topic_that_can_be_used_at_once(nursery, autojump_clock, version):
    machine, client = await connected(nursery)
    row = (await created(client, topic(partitions=3), version=version))["t"]
    assert row.error_code == 0
    for partition in range(3):
        assert (await client.produce("t", b"v", partition)).error_code == 0
        assert machine.disk.exists(f"/data/t-{partition}")
    known = (await client.metadata("t"))["t"]
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (3, 1)
    assert version < 7 or row.topic_id == known.topic_id


async def test_a_topics_configuration_acts_and_outlives_a_restart(nursery, autojump_clock):
    machine, client = await connected(nursery)
    await client.create_topic("t", max_message_bytes="200")
    await machine.crash()
    client = await (await machine.start()).connect()
    assert (await client.produce("t", bytes(300))).error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_counts_of_minus_one_are_the_brokers_defaults(nursery, autojump_clock):
    _, client = await connected(nursery, num_partitions="4")
    assert (await created(client, topic(partitions=-1, replication_factor=-1)))["t"].num_partitions == 4
    assert (await created(client, topic("u", partitions=-1), version=3))["u"].error_code == 0
    assert len((await client.metadata("u"))["u"].partitions) == 4


async def test_without_time_the_answer_is_a_time_out_but_the_topic_comes(nursery, autojump_clock):
    _, client = await connected(nursery)
    assert (await created(client, topic(), timeout_ms=0))["t"].error_code == ErrorCode.REQUEST_TIMED_OUT
    await trio.sleep(1)
    assert (await client.produce("t", b"v")).error_code == 0


async def test_many_topics_are_created_by_one_request(nursery, autojump_clock):
    _, client = await connected(nursery)
    rows = await created(client, *[topic(f"t{number}", 3) for number in range(50)])
    assert {row.error_code for row in rows.values()} == {0}
    assert len(rows) == 50


async def test_clients_that_create_the_same_topic_at_once_get_one(nursery, autojump_clock):
    machine, _ = await connected(nursery)
    codes = []

    async def create(client):
        codes.append((await client.ask(new_topics("t"))).topics[0].error_code)

    async with trio.open_nursery() as creators:
        for _ in range(10):
            creators.start_soon(create, await machine.connect())
    assert sorted(codes) == [0] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 9


async def test_a_full_store_refuses_topics_and_leaves_the_others_alone(nursery, autojump_clock, caplog):
    machine = Machine(nursery)
    machine.store_max_bytes = 300_000
    client = await (await machine.start()).connect()
    await client.create_topic("t")
    codes = []
    while not {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER} & set(codes):
        row = (await client.ask(new_topics(f"large-{len(codes)}", 100, timeout_ms=5000))).topics[0]
        codes.append(row.error_code)
    assert len(codes) > 3
    found = await client.metadata("t", *[f"auto-{number}" for number in range(100)], create=True)
    assert found.pop("t").error_code == 0
    assert ErrorCode.UNKNOWN_SERVER_ERROR in {topic.error_code for topic in found.values()}
    assert (await client.produce("t", b"v")).error_code == 0
    assert "Traceback" not in caplog.text


# -- delete


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (6, 73)])
async def test_a_broker_may_forbid_deletion(nursery, autojump_clock, version, code):
    _, client = await connected(nursery, delete_topic_enable="false")
    await client.create_topic("t")
    by_name = {"topic_names": ["t"]} if version < 6 else {"topics": [Deletable(name="t")]}
    answer = await client.ask(m.DeleteTopicsRequest(timeout_ms=30_000, **by_name), version)
    assert [row.error_code for row in answer.responses] == [code]
    assert (await client.produce("t", b"v")).error_code == 0


async def test_without_time_the_answer_is_a_time_out_but_the_topic_goes(nursery, autojump_clock):
    _, client = await connected(nursery)
    await client.create_topic("t")
    (row,) = await deleted(client, Deletable(name="t"), timeout_ms=0)
    assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
    await trio.sleep(1)
    assert (await client.metadata("t"))["t"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_files_of_a_deleted_topic_are_removed_after_the_delay(nursery, autojump_clock):
    machine, client = await connected(nursery)
    await client.create_topic("t", 2)
    await client.produce("t", bytes(100_000))
    used = machine.disk.used_bytes
    await client.delete_topic("t")
    await trio.sleep(30)
    assert machine.disk.used_bytes > used - 1000
    await trio.sleep(60)
    assert machine.disk.used_bytes < used - 100_000
    assert [name for name in machine.disk.list("/data") if name.startswith("t-")] == []


async def test_files_of_a_deleted_topic_are_removed_by_the_next_broker_if_need_be(nursery, autojump_clock):
    machine, client = await connected(nursery)
    await client.create_topic("t")
    await client.delete_topic("t")
    await trio.sleep(1)
    await machine.crash()
    await machine.start()
    await trio.sleep(90)
    assert [name for name in machine.disk.list("/data") if name.startswith("t-")] == []


# -- again under the same name


async def test_a_topic_made_again_has_a_new_id_and_nothing_of_the_old_one(nursery, autojump_clock):
    machine, client = await connected(nursery)
    ids = []
    for generation in range(4):
        ids.append(await client.create_topic("t", segment_bytes=str(200 + generation)))
        assert await client.read_values("t") == []
        values = [b"%d.%d" % (generation, number) for number in range(5)]
        for number, value in enumerate(values):
            assert (await client.produce("t", value)).base_offset == number
        if generation == 2:
            await machine.crash()
            client = await (await machine.start()).connect()
        assert await client.read_values("t") == values
        assert (await client.list_offset("t", -1)).offset == 5
        await client.delete_topic("t")
    assert len(set(ids)) == 4
    for topic_id in ids:
        assert (await client.fetch(topic_id, version=13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_waiting_fetches_are_answered_when_their_topic_is_deleted(nursery, autojump_clock):
    machine, client = await connected(nursery)
    topic_id = await client.create_topic("t", 2)
    by_name, by_id = await machine.connect(), await machine.connect()
    await by_name.send(fetch_request([("t", 0, 0), ("t", 1, 0)], max_wait_ms=60_000), 12)
    await by_id.send(fetch_request([(topic_id, 0, 0), (topic_id, 1, 0)], max_wait_ms=60_000), 13)
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await client.delete_topic("t")
    first = {row.error_code for _, row in fetched(await by_name.receive())}
    second = {row.error_code for _, row in fetched(await by_id.receive())}
    assert first - {0} == second - {0} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert trio.current_time() < began + 1


async def test_idempotent_producers_begin_again_in_the_new_topic(nursery, autojump_clock):
    _, client = await connected(nursery)
    for _ in range(2):
        await client.create_topic("t")
        for sequence in range(3):
            batch = batch_of(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
            assert (await client.produce("t", batch)).base_offset == sequence
        await client.delete_topic("t")


async def test_a_deletion_survives_a_crash_in_its_middle(nursery, autojump_clock):
    machine, client = await connected(nursery)
    await client.create_topic("t", 3)
    await client.create_topic("kept")
    await client.produce("kept", b"v")
    for cut in range(1, 12):
        if cut > 1:
            await client.create_topic("t", 3)
        await client.send(m.DeleteTopicsRequest(topics=[Deletable(name="t")], timeout_ms=30_000))
        await trio.sleep(cut * 0.0007)
        await machine.crash()
        client = await (await machine.start()).connect()
        await trio.sleep(5)
        found = (await client.metadata("t"))["t"]
        if found.error_code == 0:  # the request was not heard
            assert (await client.produce("t", b"v", 2)).error_code == 0
            await client.delete_topic("t")
        assert [name for name in machine.disk.list("/data") if name in ("t-0", "t-1", "t-2")] == []
    assert await client.read_values("kept") == [b"v"]


async def test_a_topic_of_partitions_without_replicas_is_refused(nursery, autojump_clock):
    _, client = await connected(nursery)
    rows = await created(client, topic("t", -1, -1, assignments=[Assignment(partition_index=0, broker_ids=[])]))
    assert rows["t"].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert (await client.metadata("t"))["t"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
