"""How far groups are behind, beside what a reader of the records computes."""

import base64
import json
import pathlib

import pytest
import trio

from barnabas.console.lags import REFRESH_SECONDS
from barnabas.console.unread import first_time
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec, CorruptRecords
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import CONTROL, TRANSACTIONAL, read_batch_header
from barnabas.wire.record_reader import Record, read_all_records, read_records
from barnabas.wire.records import build_batch
from barnabas.world.pacing import complete_inline
from tests.broker.clock import now_ms
from tests.broker.clusters import cluster, create_topic, leader_of, until
from tests.broker.harness import with_topic
from tests.console.scraped import metrics_of, scrape

LAG, SECONDS = "kafka_consumergroup_lag", "kafka_consumergroup_lag_seconds"


def batch(*timestamps_ms, **fields):
    """The bytes of one batch with a record for each timestamp."""
    records = [Record(0, each, None, b"v", ()) for each in timestamps_ms]
    return bytearray(build_batch(records, timestamp_ms=timestamps_ms[0], **fields).data)


async def commit(client, group, **offsets):
    """Commit offsets of partitions of t: p0=3."""
    request = m.OffsetCommitRequest
    rows = [
        request.OffsetCommitRequestPartition(partition_index=int(name[1:]), committed_offset=offset)
        for name, offset in offsets.items()
    ]
    topic = request.OffsetCommitRequestTopic(name="t", partitions=rows)
    with trio.fail_after(60):
        while True:
            # The first one creates the topic of the offsets.
            await client.ask(m.FindCoordinatorRequest(key=group, key_type=0), 1)
            answer = await client.ask(request(group_id=group, topics=[topic]), 8)
            codes = {row.error_code for row in answer.topics[0].partitions}
            if codes == {ErrorCode.NONE}:
                return
            await trio.sleep(0.1)


async def read_all(client, topic="t", partition=0):
    """The records that a consumer reads: (offset, timestamp)."""
    row = await client.fetch(topic, 0, partition)
    records = []
    position = 0
    while position < len(row.records):
        records += [(each.offset, each.timestamp) for each in read_records(row.records, position)]
        position += read_batch_header(row.records, position).size_bytes
    return records


async def expected(client, committed, partition=0):
    """(lag in records, lag in seconds) by what a reader sees at this moment."""
    behind = [time for offset, time in await read_all(client, "t", partition) if offset >= committed]
    return len(behind), (now_ms() - behind[0]) / 1000 if behind else 0.0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
async def test_the_lag_is_that_of_the_first_record_that_is_not_consumed(nursery, autojump_clock, codec):
    machine, client = await with_topic(nursery)
    began = now_ms()
    await client.produce("t", batch(began - 9000, began - 7000, began - 5000, codec=codec))
    await client.produce("t", batch(began - 3000, began - 1000, codec=codec))
    metrics = metrics_of(machine.broker)
    for committed in (0, 1, 2, 3, 4, 5):
        await commit(client, "clerks", p0=committed)
        found = await scrape(metrics)
        records, seconds = await expected(client, committed)
        place = {"consumergroup": "clerks", "topic": "t", "partition": 0}
        assert found.value("kafka_consumergroup_current_offset", **place) == committed
        assert found.value(LAG, **place) == records == 5 - committed
        assert found.value(SECONDS, **place) == pytest.approx(seconds, abs=0.1), committed
        assert found.value(f"{LAG}_sum", consumergroup="clerks", topic="t") == records


async def test_the_age_grows_while_nothing_is_consumed(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", batch(now_ms()))
    await commit(client, "clerks", p0=0)
    metrics = metrics_of(machine.broker)
    place = {"consumergroup": "clerks", "topic": "t", "partition": 0}
    before = (await scrape(metrics)).value(SECONDS, **place)
    await trio.sleep(30)
    assert (await scrape(metrics)).value(SECONDS, **place) == pytest.approx(before + 30, abs=0.1)


async def delete_records(client, offset):
    """Delete the records of partition 0 of t below this offset."""
    request = m.DeleteRecordsRequest
    row = request.DeleteRecordsPartition(partition_index=0, offset=offset)
    asked = request(topics=[request.DeleteRecordsTopic(name="t", partitions=[row])], timeout_ms=1000)
    (topic,) = (await client.ask(asked, 2)).topics
    assert topic.partitions[0].low_watermark == offset


PLACE = {"consumergroup": "clerks", "topic": "t", "partition": 0}


async def test_the_age_is_not_that_of_a_record_that_is_deleted(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    began = now_ms()
    await client.produce("t", batch(began - 9_000_000, began - 90_000))
    await commit(client, "clerks", p0=0)
    metrics = metrics_of(machine.broker)
    assert (await scrape(metrics)).value(SECONDS, **PLACE) == pytest.approx(9000, abs=1)
    await delete_records(client, 1)
    assert (await scrape(metrics)).value(SECONDS, **PLACE) == pytest.approx(90, abs=1)


async def test_the_age_is_not_that_of_a_record_of_a_deleted_topic(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    metrics = metrics_of(machine.broker)
    for age in (9000, 90):
        await client.produce("t", batch(now_ms() - 1000 * age))
        await commit(client, "clerks", p0=0)
        assert (await scrape(metrics)).value(SECONDS, **PLACE) == pytest.approx(age, abs=1)
        await client.delete_topic("t")
        await client.create_topic("t")


async def test_a_lag_is_not_shown_when_the_leader_does_not_answer(nursery, autojump_clock):
    async with cluster(nursery, 3, offsets_topic_num_partitions="1", offsets_topic_replication_factor="3") as machines:
        client = await machines[0].connect()
        coordinator = await coordinator_of(machines, client, "clerks")
        # The controller stays, so that its election is no part of this.
        leader = next(each for each in machines if each is not coordinator and each.broker.candidate.controller is None)
        await create_topic(client, "t", [leader.serving.broker_id])
        assert await leader_of(machines, "t", 0) is leader
        to_leader = await leader.connect()
        began = now_ms()
        await to_leader.produce("t", batch(began - 9_000_000, began))
        await commit(await coordinator.connect(), "clerks", p0=0)
        metrics = metrics_of(coordinator.broker)
        found = await scrape(metrics)
        assert (found.value(LAG, **PLACE), found.value(SECONDS, **PLACE)) == (2, pytest.approx(9000, abs=1))

        # Its records may be deleted, too.
        await delete_records(to_leader, 1)
        await trio.sleep(REFRESH_SECONDS)
        assert (await scrape(metrics)).value(SECONDS, **PLACE) == pytest.approx(REFRESH_SECONDS, abs=2)
        await leader.crash()
        await trio.sleep(60)
        found = await scrape(metrics)
        assert (found.value(LAG, **PLACE), found.value(SECONDS, **PLACE)) == (None, None)


async def test_groups_of_three_brokers_through_a_change_of_the_leader(nursery, autojump_clock):
    async with cluster(nursery, 3, offsets_topic_num_partitions="3", offsets_topic_replication_factor="3") as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        leaders = [await leader_of(machines, "t", index) for index in range(3)]
        for index, leader in enumerate(leaders):
            began = now_ms() - 60_000 * (index + 1)
            assert (
                await (await leader.connect()).produce("t", batch(began, began + 1000, began + 2000), index)
            ).error_code == 0
        groups = [f"group-{number}" for number in range(5)]
        for number, group in enumerate(groups):
            coordinator = await coordinator_of(machines, client, group)
            await commit(await coordinator.connect(), group, p0=number % 4, p1=1, p2=3)
        metrics = {machine: metrics_of(machine.broker) for machine in machines}
        await all_agree(machines, metrics, groups)

        # The leader of partition 0 dies: its followers have what it had.
        running = [machine for machine in machines if machine is not leaders[0]]
        await leaders[0].crash()
        await until(lambda: running[0].broker.metadata.leader_of("t", 0) not in (None, 1))
        await trio.sleep(60)
        await all_agree(running, metrics, groups)


async def coordinator_of(machines, client, group):
    """The machine that coordinates the group."""
    with trio.fail_after(60):
        while True:
            answer = await client.ask(m.FindCoordinatorRequest(key=group, key_type=0), 1)
            if answer.error_code == ErrorCode.NONE:
                return next(each for each in machines if each.serving.broker_id == answer.node_id)
            await trio.sleep(0.1)


async def all_agree(machines, metrics, groups):
    """Each group is shown by one broker, with the lags that a reader computes."""
    await trio.sleep(REFRESH_SECONDS)
    scrapes = [await scrape(metrics[machine]) for machine in machines]
    for number, group in enumerate(groups):
        for index, committed in enumerate((number % 4, 1, 3)):
            place = {"consumergroup": group, "topic": "t", "partition": index}
            (shown,) = [each for each in scrapes if each.value(LAG, **place) is not None]
            leader = await leader_of(machines, "t", index)
            records, seconds = await expected(await leader.connect(), committed, index)
            assert shown.value(LAG, **place) == records
            assert shown.value(SECONDS, **place) == pytest.approx(seconds, abs=0.5), (group, index)


def test_a_marker_is_no_record():
    marker = build_batch([(b"\0\0\0\1", b"\0\0\0\0\0\0")], timestamp_ms=5, attributes=CONTROL | TRANSACTIONAL)
    data = memoryview(bytes(marker.data) + bytes(batch(70, 80, base_offset=1)))
    assert complete_inline(first_time(data, 0)) == 70
    assert complete_inline(first_time(data, 2)) == 80
    assert complete_inline(first_time(data, 3)).next_offset == 3
    assert complete_inline(first_time(memoryview(bytes(marker.data)), 0)).next_offset == 1


def test_a_damaged_batch_is_reported():
    with pytest.raises(CorruptRecords):
        complete_inline(first_time(memoryview(bytes(30)), 0))


RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "wire" / "old_formats.json").read_text())


@pytest.mark.parametrize("sort", ["none", "none, one", "gzip"])
def test_messages_of_an_older_format_have_a_time_as_well(sort):
    (sent,) = [each["sent"] for each in RECORDED if each["name"] == f"java magic 1 {sort}"]
    records = base64.b64decode(sent)
    times = [record.timestamp for _, record in read_all_records(records)]
    for offset, time in enumerate(times):
        assert complete_inline(first_time(memoryview(records), offset)) == time
    assert complete_inline(first_time(memoryview(records), len(times))).next_offset == len(times)


def test_messages_without_a_time_have_no_age():
    (sent,) = [each["sent"] for each in RECORDED if each["name"] == "java magic 0 none"]
    assert not isinstance(complete_inline(first_time(memoryview(base64.b64decode(sent)), 0)), int)


async def test_beyond_the_limit_groups_are_counted_alone(nursery, autojump_clock):
    machine, client = await with_topic(nursery, 2, properties={"barnabas.metrics.partitions.max": "2"})
    for name in ("a", "b", "c"):
        await commit(client, name, p0=0)
    found = await scrape(machine.broker)
    assert len(found.all("kafka_consumergroup_members")) == 2
    assert len(found.all("kafka_consumergroup_lag_sum")) == 2
    assert found.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 3
    # Of the third group its members, two sums and an offset with its lags; and a partition whose leader is here.
    assert found.value("barnabas_series_left_out") == 1 + 2 + 3 + 17
