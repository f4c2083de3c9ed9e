"""Faults of what a response says: old metadata, damaged batches, requests that are done twice, an older Kafka."""

import pytest
import trio

from barnabas.testing.faults.kafka_releases import newest_versions
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import is_intact
from tests.broker.requests import fetch_request, idempotent, produce_many, values_in
from tests.testing.faulty import stage

__all__ = ["stage"]


# -- stale


async def test_metadata_are_those_of_before_the_last_change(stage):
    await stage.client.create_topic("new", 3)
    stage.faults.stale("Metadata", times=1)
    assert sorted(topic.name for topic in (await stage.client.ask(m.MetadataRequest(topics=None))).topics) == ["t", "u"]
    assert len((await stage.client.ask(m.MetadataRequest(topics=None))).topics) == 3


async def test_a_topic_that_an_old_picture_lacks_is_not_created_for_that(stage):
    await stage.client.create_topic("new", 3)
    stage.faults.stale("Metadata", topic="new")
    asked = m.MetadataRequest.MetadataRequestTopic(name="new")
    (row,) = (await stage.client.ask(m.MetadataRequest(topics=[asked], allow_auto_topic_creation=True))).topics
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_without_a_change_the_metadata_are_as_they_are(stage):
    later = await stage.machine.connect()
    stage.interceptor.built(stage.machine.broker)
    stage.faults.stale()
    assert len((await later.ask(m.MetadataRequest(topics=None))).topics) == 2


async def test_each_life_of_a_broker_has_one_task_that_keeps_its_metadata(stage):
    for _ in range(3):
        stage.interceptor.built(stage.machine.broker)
        await trio.sleep(1)
    assert [name.rpartition(".")[2] for name in names_of_tasks()].count("_keep_pictures") == 1
    # It goes on for the last life.
    await stage.client.create_topic("new")
    stage.faults.stale("Metadata")
    assert len((await stage.client.ask(m.MetadataRequest(topics=None))).topics) == 2


def names_of_tasks():
    """The names of all tasks that run."""
    waiting = [trio.lowlevel.current_root_task()]
    while waiting:
        task = waiting.pop()
        yield task.name
        waiting += [child for nursery in task.child_nurseries for child in nursery.child_tasks]


# -- corrupt


@pytest.mark.parametrize("version", [4, 12])
async def test_one_batch_of_one_partition_arrives_damaged(stage, version):
    for topic in ("t", "u"):
        await stage.client.produce(topic, b"first")
        await stage.client.produce(topic, b"second")
    fault = stage.faults.corrupt("Fetch", topic="t", partition=0, times=1)
    asked = fetch_request([("t", 0, 0), ("u", 0, 0)], max_wait_ms=0)
    response = await stage.client.ask(asked, version)
    damaged, sound = [topic.partitions[0] for topic in response.responses]
    assert not is_intact(damaged.records[: len(damaged.records) // 2])
    assert is_intact(damaged.records[len(damaged.records) // 2 :])
    assert values_in(sound) == [b"first", b"second"]
    assert fault.fired == 1
    assert await stage.values() == [b"first", b"second"]


async def test_a_fetch_that_finds_nothing_has_no_bit_to_turn(stage):
    fault = stage.faults.corrupt("Fetch", topic="t")
    await stage.client.fetch("t", max_wait_ms=0)
    assert fault.fired == 0
    await stage.client.produce("t", b"v")
    row = await stage.client.fetch("t")
    assert not is_intact(row.records)
    assert fault.fired == 1


async def test_a_fetch_that_finds_nothing_does_not_use_up_the_fault(stage):
    stage.log.is_on = True
    once = stage.faults.corrupt("Fetch", topic="t", times=1)
    second = stage.faults.corrupt("Fetch", topic="u", nth=2)
    for topic in ("t", "u", "u"):
        assert not (await stage.client.fetch(topic, max_wait_ms=0)).records
    # What was not hit is not said to be.
    assert [entry.fault for entry in stage.log("Fetch")] == [None, None, None]
    for topic, fault in (("t", once), ("u", second)):
        await stage.client.produce(topic, b"v")
        assert not is_intact((await stage.client.fetch(topic)).records)
        assert is_intact((await stage.client.fetch(topic)).records)
        assert fault.fired == 1


async def test_what_is_produced_arrives_damaged_and_is_refused(stage):
    stage.faults.corrupt("Produce", topic="u", times=1)
    response = await stage.client.ask(produce_many({("t", 0): b"a", ("u", 0): b"b"}))
    errors = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert errors == {"t": 0, "u": ErrorCode.CORRUPT_MESSAGE}
    assert (await stage.values("t"), await stage.values("u")) == ([b"a"], [])


# -- duplicate


async def test_a_plain_producers_records_are_written_twice(stage):
    stage.faults.duplicate("Produce", topic="u")
    response = await stage.client.ask(produce_many({("t", 0): b"a", ("u", 0): b"b"}))
    offsets = {topic.name: topic.partition_responses[0].base_offset for topic in response.responses}
    assert offsets == {"t": 0, "u": 1}
    assert (await stage.values("t"), await stage.values("u")) == ([b"a"], [b"b", b"b"])


async def test_an_idempotent_producers_records_are_written_once(stage):
    fault = stage.faults.duplicate("Produce")
    row = await stage.client.produce("t", idempotent(0))
    assert (row.error_code, row.base_offset, fault.fired) == (0, 0, 1)
    assert await stage.values() == [b"v"]


# -- as_kafka


async def test_an_older_kafka_says_what_it_has(stage):
    stage.faults.as_kafka("2.8")
    rows = (
        await stage.client.ask(m.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
    ).api_keys
    listed = {row.api_key: row.max_version for row in rows}
    assert listed == newest_versions("2.8")
    assert listed[1] == 12
    assert 65 not in listed


async def test_an_older_kafka_does_not_know_the_newest_question_for_its_versions(stage):
    stage.faults.as_kafka("3.8")
    await stage.client.send(m.ApiVersionsRequest(client_software_name="c", client_software_version="1"), 4)
    frame = await stage.client.receive_frame()
    answer = m.decode(m.ApiVersionsResponse, 0, frame, 4)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.max_version) for row in answer.api_keys] == [(18, 3)]


async def test_an_older_kafka_closes_the_connection_at_a_version_that_it_does_not_have(stage):
    stage.faults.as_kafka("2.8")
    await stage.client.produce("t", b"v", version=9)
    await stage.client.send(m.ListTransactionsRequest())
    assert await stage.client.is_closed()
    other = await stage.machine.connect()
    await other.send(m.FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    assert await other.is_closed()
