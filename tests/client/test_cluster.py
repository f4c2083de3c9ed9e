"""The client of the commands, against whole brokers: topics, records, offsets, groups, moved leaders."""

import pytest
import trio

from barnabas.client import admin, reading
from barnabas.client.cluster import Cluster
from barnabas.client.errors import Refused, Unreachable
from barnabas.client.offsets import MAX_TIMESTAMP, commit_offsets, committed_offsets, delete_offsets, list_offsets
from barnabas.client.partitioner import murmur2, partition_of
from barnabas.client.reading import Reader, Taken
from barnabas.client.settings import SettingsError, bootstrap_of, security_of
from barnabas.client.writing import Writer
from barnabas.testing import LocalBroker, LocalCluster
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import EARLIEST, LATEST
from barnabas.wire.topics import TopicPartition
from barnabas.world.net import OsNet
from tests.client.deleting import delete_records

ORDERS = [TopicPartition("orders", index) for index in range(3)]


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(topics={"orders": 3, "empty": 1}) as broker:
        yield broker


def cluster_of(bootstrap_servers, seconds=10.0):
    return Cluster(OsNet(), bootstrap_of(bootstrap_servers), timeout_seconds=seconds)


async def everything(cluster, positions, **options):
    """All records from here to the present end: partition -> values."""
    ends = await list_offsets(cluster, dict.fromkeys(positions, LATEST))
    reader = Reader(cluster, {key: offset for key, offset in positions.items() if offset < ends[key].offset}, **options)
    found = {}
    while reader.positions:
        for taken in await reader.round():
            found.setdefault(taken.partition, []).extend(taken.records)
            if taken.next_offset >= ends[taken.partition].offset:
                del reader.positions[taken.partition]
    return found


@pytest.mark.parametrize("codec", Codec)
async def test_what_is_written_is_read_with_keys_headers_and_nulls(broker, codec):
    rows = [
        (b"k1", b"v1", [("h", b"1"), ("h", None)]),
        (None, b"\xff\x00", []),
        (b"k1", None, []),
        (b"", b"", [("", b"")]),
    ]
    name = f"written-{codec.name.lower()}"
    with cluster_of(broker.bootstrap_servers) as cluster:
        await admin.create_topic(cluster, name, partitions=2)
        writer = Writer(cluster, name, 2, codec=codec)
        for number, row in enumerate(rows):
            await writer.add(*row, timestamp_ms=1_000 + number, partition=1)
        await writer.flush()
        found = await everything(cluster, {TopicPartition(name, 0): 0, TopicPartition(name, 1): 0})
    assert writer.written == 4
    assert list(found) == [TopicPartition(name, 1)]
    assert [(each.key, each.value, each.headers) for each in found[TopicPartition(name, 1)]] == rows
    assert [(each.offset, each.timestamp) for each in found[TopicPartition(name, 1)]] == [
        (n, 1000 + n) for n in range(4)
    ]


async def test_offsets_are_found_by_time_and_at_both_ends(broker):
    key = TopicPartition("timed", 0)
    with cluster_of(broker.bootstrap_servers) as cluster:
        await admin.create_topic(cluster, "timed", partitions=1)
        writer = Writer(cluster, "timed", 1)
        for timestamp_ms in (10, 30, 20):
            await writer.add(None, b"v", [], timestamp_ms)
        await writer.flush()
        wanted = {EARLIEST: 0, LATEST: 3, 11: 1, 30: 1, 31: -1, MAX_TIMESTAMP: 1}
        found = {timestamp: (await list_offsets(cluster, {key: timestamp}))[key].offset for timestamp in wanted}
    assert found == wanted


async def test_a_lost_acknowledgement_is_asked_for_again_and_written_once(broker):
    key = TopicPartition("once", 0)
    with cluster_of(broker.bootstrap_servers) as cluster:
        await admin.create_topic(cluster, "once", partitions=1)
        writer = Writer(cluster, "once", 1)
        lost = broker.faults.drop("Produce", "after", topic="once", times=2)
        await writer.add(None, b"42 gulden", [], 1)
        await writer.flush()
        await writer.add(None, b"43 gulden", [], 1)
        await writer.flush()
        found = await everything(cluster, {key: 0})
    assert lost.fired == 2
    assert [each.value for each in found[key]] == [b"42 gulden", b"43 gulden"]


async def test_records_that_a_broker_does_not_take_are_an_error_that_names_them(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        await admin.create_topic(cluster, "small", partitions=1, configs={"max.message.bytes": "1000"})
        writer = Writer(cluster, "small", 1)
        await writer.add(None, bytes(2000), [], 1)
        with pytest.raises(
            Refused, match=r"topic .small. does not take a record of 2,0\d\d bytes: MESSAGE_TOO_LARGE: raise its limit"
        ):
            await writer.flush()


async def test_an_unknown_topic_is_an_error_with_the_nearest_name(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        with pytest.raises(Refused, match=r"topic .order.: .*the nearest name is 'orders'") as caught:
            await cluster.topics(["order"])
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(Refused, match=r"no such topic$"):
            await cluster.topics(["zzzzzz"])


async def test_offsets_of_a_group_are_set_read_and_deleted(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        assert await committed_offsets(cluster, "readers") == {}
        await commit_offsets(cluster, "readers", {ORDERS[0]: 0, ORDERS[1]: 7})
        assert await committed_offsets(cluster, "readers") == {ORDERS[0]: 0, ORDERS[1]: 7}
        assert (await admin.describe_group(cluster, "readers")).group_state == "Empty"
        assert "readers" in [group.group_id for group in await admin.list_groups(cluster)]
        await delete_offsets(cluster, "readers", [ORDERS[1]])
        assert await committed_offsets(cluster, "readers") == {ORDERS[0]: 0}
        await admin.delete_groups(cluster, ["readers"])
        assert (await admin.describe_group(cluster, "readers")).group_state == "Dead"


async def test_topics_are_changed_grown_and_deleted(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        await admin.create_topic(cluster, "changing", partitions=1, validate_only=True)
        with pytest.raises(Refused):
            await cluster.topics(["changing"])
        await admin.create_topic(cluster, "changing", partitions=1)
        await admin.set_topic_configs(cluster, "changing", {"retention.ms": "1000"})
        configs = {row.name: row.value for row in (await admin.topic_configs(cluster, ["changing"]))["changing"]}
        assert configs["retention.ms"] == "1000"
        await admin.grow_topic(cluster, "changing", 3)
        assert len((await cluster.topics(["changing"]))["changing"].partitions) == 3
        with pytest.raises(Refused, match="INVALID_PARTITIONS"):
            await admin.grow_topic(cluster, "changing", 2)
        await admin.delete_topic(cluster, "changing")
        with pytest.raises(Refused):
            await cluster.topics(["changing"])


async def test_a_moved_leader_is_found_by_writers_and_readers():
    key = TopicPartition("moving", 0)
    with (
        LocalCluster(3, topics={"moving": (1, 3)}) as brokers,
        cluster_of(brokers.bootstrap_servers, seconds=20) as cluster,
    ):
        writer = Writer(cluster, "moving", 1)
        reader = Reader(cluster, {key: 0})
        found = []
        for number, leader in enumerate((2, 3, 1)):
            await trio.to_thread.run_sync(lambda to=leader: brokers.move_leader("moving", 0, to=to))
            await writer.add(None, b"%d" % number, [], 1)
            await writer.flush()
            while len(found) <= number:
                found += [record.value for taken in await reader.round() for record in taken.records]
    assert found == [b"0", b"1", b"2"]


async def test_a_controller_that_dies_is_looked_for_again():
    with LocalCluster(3) as brokers, cluster_of(brokers.bootstrap_servers, seconds=20) as cluster:
        first = (await cluster.brokers()).controller_id
        await trio.to_thread.run_sync(brokers.kill, first)
        await admin.create_topic(cluster, "afterwards", partitions=1, replicas=2)
        assert (await cluster.brokers()).controller_id != first


async def written(cluster, topic, values):
    """The one partition of a new topic with these values, each in a batch of its own."""
    await admin.create_topic(cluster, topic, partitions=1)
    writer = Writer(cluster, topic, 1)
    for value in values:
        await writer.add(None, value, [], 1)
        await writer.flush()
    return TopicPartition(topic, 0)


async def test_where_retention_overtakes_a_reader_it_goes_on_at_the_earliest_offset(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        key = await written(cluster, "overtaken", [b"%d" % number for number in range(10)])
        await delete_records(cluster, key, 7)
        reader = Reader(cluster, {key: 2})
        assert await reader.round() == [Taken(key, [], 7, lost_count=5)]
        (taken,) = await reader.round()
    assert [record.value for record in taken.records] == [b"7", b"8", b"9"]
    assert (taken.next_offset, taken.lost_count) == (10, 0)


async def test_a_log_that_ends_before_the_position_of_a_reader_is_an_error(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        key = await written(cluster, "shortened", [b"a", b"b"])
        reader = Reader(cluster, {key: 5})
        with pytest.raises(Refused, match=r"partition shortened-0, offset 5: OFFSET_OUT_OF_RANGE: the log ends at 2"):
            await reader.round()


async def test_a_reader_waits_for_a_broker_that_starts_again():
    with LocalBroker() as broker, cluster_of(broker.bootstrap_servers, seconds=30) as cluster:
        key = await written(cluster, "kept", [b"before", b"after"])
        reader = Reader(cluster, {key: 0})
        assert len(await reader.round()) == 1
        await trio.to_thread.run_sync(broker.kill)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, broker.restart)
            reader.positions[key] = 1
            (taken,) = await reader.round()
    assert [record.value for record in taken.records] == [b"after"]


async def test_a_partition_without_a_leader_stops_no_other_one():
    with LocalCluster(2, topics={"halves": (2, 1)}) as brokers:
        led, leaderless = (TopicPartition("halves", index) for index in (0, 1))
        survivor = brokers.brokers[brokers.leader(*led)]
        await trio.to_thread.run_sync(brokers.kill, brokers.leader(*leaderless))
        with cluster_of(survivor.bootstrap_servers, seconds=3) as cluster:
            writer = Writer(cluster, "halves", 2)
            await writer.add(None, b"v", [], 1, partition=0)
            await writer.flush()
            reader = Reader(cluster, {led: 0, leaderless: 0})
            (taken,) = await reader.round()
            assert (taken.partition, [record.value for record in taken.records]) == (led, [b"v"])
            # It goes on with the one, and says what it cannot read when an answer should have come.
            while reader.late is None:
                assert await reader.round() == []
            assert "halves-1: LEADER_NOT_AVAILABLE" in str(reader.late) or isinstance(reader.late, Unreachable)
            del reader.positions[led]
            with pytest.raises((Refused, Unreachable)):
                await reader.round()


async def test_a_busy_leader_is_not_slowed_by_idle_ones(monkeypatch):
    monkeypatch.setattr(reading, "WAIT_MS", 5_000)
    with LocalCluster(2, topics={"uneven": (2, 1)}) as brokers, cluster_of(brokers.bootstrap_servers, 30) as cluster:
        writer = Writer(cluster, "uneven", 2)
        for number in range(20):
            await writer.add(None, bytes(500_000), [], number, partition=1)
        await writer.flush()
        began = trio.current_time()
        reader = Reader(cluster, {TopicPartition("uneven", index): 0 for index in (0, 1)})
        while reader.positions["uneven", 1] < 20:
            await reader.round()
        assert trio.current_time() - began < 5


async def test_a_reader_that_has_little_time_waits_for_less(broker):
    with cluster_of(broker.bootstrap_servers, seconds=0.4) as cluster:
        assert await Reader(cluster, {TopicPartition("empty", 0): 0}).round() == []


async def test_offsets_that_a_transaction_may_change_are_waited_for(broker):
    with cluster_of(broker.bootstrap_servers) as cluster:
        await commit_offsets(cluster, "unsure", {ORDERS[0]: 3})
        with broker.faults.fail("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", topic="orders", times=1) as unstable:
            assert await committed_offsets(cluster, "unsure", ORDERS) == {ORDERS[0]: 3}
    assert unstable.seen[0].request.require_stable


@pytest.mark.parametrize("fault", ["not available", "lost"])
async def test_offsets_without_an_answer_at_first_are_asked_for_again(broker, fault):
    with cluster_of(broker.bootstrap_servers) as cluster:
        faults = broker.faults
        with (
            faults.drop("ListOffsets", times=1)
            if fault == "lost"
            else faults.fail("ListOffsets", "OFFSET_NOT_AVAILABLE", times=1)
        ):
            found = await list_offsets(cluster, dict.fromkeys(ORDERS, LATEST))
        assert found.keys() == set(ORDERS)


async def test_a_cluster_that_is_not_there_is_said_within_the_time(autojump_clock):
    with cluster_of("127.0.0.1:1", seconds=2) as cluster:
        with pytest.raises(Unreachable, match=r"no Kafka broker at 127\.0\.0\.1:1: "):
            await cluster.describe()
        assert trio.current_time() <= 4


async def test_another_bootstrap_address_is_tried(broker):
    with cluster_of(f"127.0.0.1:1,{broker.bootstrap_servers}") as cluster:
        assert len((await cluster.describe()).brokers) == 1


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
    ],
)
def test_bootstrap_servers_are_read_as_kafkas_tools_read_them(text, found):
    assert bootstrap_of(text) == found


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:70000", "::1:9092", "a b:1"])
def test_bootstrap_servers_that_are_none_are_said(text):
    with pytest.raises(SettingsError, match="bootstrap servers"):
        bootstrap_of(text)


def test_an_unknown_protocol_is_said():
    with pytest.raises(SettingsError, match=r"security\.protocol is 'TLS'"):
        security_of({"security.protocol": "tls"})


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_by_the_java_client(key, hashed):
    assert murmur2(key) == hashed % (1 << 32)
    assert partition_of(key, 7) == (hashed & 0x7FFFFFFF) % 7
