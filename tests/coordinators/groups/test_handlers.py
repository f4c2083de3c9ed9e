"""The handlers of groups and offsets: coordinators, portions, the retention of offsets, and those of version 0.

Requests and responses go through the codec of their version, so a field out of place fails here.
"""

import pytest
import trio

from barnabas.broker.call import Call
from barnabas.broker.handlers import group_offsets
from barnabas.broker.server.dispatch import answer
from barnabas.controller.store.sqlitestore import IN_MEMORY, open_sqlite_store
from barnabas.replication.partition import Partition
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.metadata import PartitionInfo
from barnabas.world.pacing import complete_inline
from tests.wire.bombs import memory_below


def join(version, member_id="", **other):
    protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"mine")]
    asked = {"group_id": "g", "session_timeout_ms": 10_000, "protocol_type": "consumer"} | other
    if version >= 1:
        asked["rebalance_timeout_ms"] = 60_000
    return m.JoinGroupRequest(member_id=member_id, protocols=protocols, **asked)


async def joined(house, version):
    answer = await house.ask(join(version), version)
    if version >= 4:
        assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        answer = await house.ask(join(version, answer.member_id), version)
    return answer


def sync(member, version, **other):
    assignment = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member.member_id, assignment=b"assignment")
    asked = {"group_id": "g", "generation_id": member.generation_id, "member_id": member.member_id}
    if version >= 5:
        asked |= {"protocol_type": "consumer", "protocol_name": "range"}
    return m.SyncGroupRequest(assignments=[assignment], **(asked | other))


async def stable(house):
    member = await joined(house, 9)
    await house.ask(sync(member, 5))
    return member


def commit(version, *, partition=0, topic="t", **other):
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=5, committed_metadata="so far"
    )
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[row])]
    return m.OffsetCommitRequest(group_id="g", topics=topics, **other)


def fetch(version, *partitions, **other):
    if version >= 8:
        topics = [m.OffsetFetchRequest.OffsetFetchRequestTopics(name="t", partition_indexes=partitions)]
        asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics if partitions else None)
        return m.OffsetFetchRequest(groups=[asked], **other)
    topics = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=partitions)]
    return m.OffsetFetchRequest(group_id="g", topics=topics if partitions else None, **other)


def rows_of(fetched, version):
    answer = fetched.groups[0] if version >= 8 else fetched
    return [row for topic in answer.topics for row in topic.partitions]


# -- members


@pytest.mark.parametrize(
    ("asked_ms", "code"), [(5_999, 26), (6_000, 79), (1_800_000, 79), (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT)]
)
async def test_a_session_timeout_has_bounds(house, asked_ms, code, autojump_clock):
    assert (await house.ask(join(9, session_timeout_ms=asked_ms))).error_code == code


async def test_without_a_rebalance_timeout_the_session_timeout_stands_for_it(house, autojump_clock):
    await house.ask(join(0, session_timeout_ms=12_345), 0)
    (group,) = (shard.state.by_id["g"] for shard in house.groups.runtime.serving())
    assert group.rebalance_timeout_ms == 12_345


# -- what administrators see


async def test_the_host_of_a_member_is_written_as_java_does(house, autojump_clock):
    house.address = "::1"
    await stable(house)
    (group,) = (await house.ask(m.DescribeGroupsRequest(groups=["g"]))).groups
    assert group.members[0].client_host == "/0:0:0:0:0:0:0:1"


# -- FindCoordinator


async def test_several_groups_are_found_each_with_its_own_answer(house, autojump_clock):
    house.know_topic("__consumer_offsets", 2)
    followed = PartitionInfo(leader_id=7, leader_epoch=1, in_sync_replicas=[7], replicas=[7], offline_replicas=[])
    house.metadata.topics["__consumer_offsets"].partitions[1] = followed
    answer = await house.ask(m.FindCoordinatorRequest(coordinator_keys=["a", "b"]))
    assert [(one.key, one.error_code) for one in answer.coordinators] == [
        ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ("b", 0),
    ]


async def test_the_group_topic_is_made_when_it_is_first_asked_for(house, autojump_clock):
    del house.metadata.topics["__consumer_offsets"]
    answer = await house.ask(m.FindCoordinatorRequest(key="g"), 3)
    assert (answer.error_code, answer.node_id, answer.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert house.created == ["__consumer_offsets"]


async def test_groups_that_move_while_they_are_listed_are_no_error(open_house, nursery, autojump_clock):
    house, answers = await open_house(replicas=(0, 1)), []

    async def list_groups():
        answers.append(await house.ask(m.ListGroupsRequest()))

    nursery.start_soon(house.ask, sync(await joined(house, 9), 5))
    await trio.sleep(1)
    nursery.start_soon(list_groups)  # waits until the generation is replicated
    await trio.sleep(1)
    house.resign()
    await trio.sleep(1)
    assert (answers[0].error_code, answers[0].groups) == (0, [])


async def test_several_groups_wait_together_for_a_topic_that_cannot_be_made(house, autojump_clock):
    del house.metadata.topics["__consumer_offsets"]
    begun = trio.current_time()
    answer = await house.ask(m.FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(100)]))
    assert [each.error_code for each in answer.coordinators] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 100
    assert house.created == ["__consumer_offsets"]
    assert trio.current_time() - begun < 1


async def test_a_leader_without_the_callers_listener_is_no_coordinator(house, autojump_clock):
    house.metadata.brokers[0].endpoints.clear()
    answer = await house.ask(m.FindCoordinatorRequest(key="g"), 3)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- offsets


def commit_of_many(count):
    """One offset for each partition of "t"; those of the first two come twice."""
    rows = [
        m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=index, committed_offset=number)
        for number, index in enumerate([0, 1, *range(count)])
    ]
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=rows)]
    return m.OffsetCommitRequest(group_id="g", topics=topics, generation_id_or_member_epoch=-1)


@pytest.mark.thorough
async def test_an_answer_about_many_offsets_takes_the_memory_of_its_bytes(house, autojump_clock):
    house.know_topic("t", 3500)
    await house.ask(commit_of_many(3500))
    request = fetch(8, *range(100_000))
    call = Call(request.API_KEY, 8, "client", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    with memory_below(12_000_000):  # a list of all that was asked for, and three megabytes of answer
        response, encoded = await answer(house, call, request), []
        complete_inline(m.encode_steps(response, 8, encoded))
    decoded = m.decode(type(response), 8, b"".join(encoded))
    assert [row.committed_offset for row in rows_of(decoded, 8)[:3501]] == [*range(2, 3502), -1]


async def test_a_commit_of_many_partitions_is_stored_a_portion_at_a_time(house, autojump_clock, monkeypatch):
    monkeypatch.setattr(group_offsets, "STORED_AT_A_TIME", 3)
    house.know_topic("t", 5)
    stored, append = [], Partition.append_as_leader

    def counting(partition, batch, *rest, **proof):
        stored.append(batch.header.record_count)
        return append(partition, batch, *rest, **proof)

    monkeypatch.setattr(Partition, "append_as_leader", counting)
    (topic,) = (await house.ask(commit_of_many(5))).topics
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [(n, 0) for n in range(5)]
    assert stored == [3, 2]
    assert [row.committed_offset for row in rows_of(await house.ask(fetch(8)), 8)] == [2, 3, 4, 5, 6]


async def test_a_portion_that_cannot_be_stored_is_refused_alone(house, autojump_clock, monkeypatch):
    monkeypatch.setattr(group_offsets, "STORED_AT_A_TIME", 3)
    house.know_topic("t", 5)
    results, append = [ErrorCode.NOT_ENOUGH_REPLICAS, None], Partition.append_as_leader
    monkeypatch.setattr(
        Partition, "append_as_leader", lambda *all_of, **proof: results.pop(0) or append(*all_of, **proof)
    )
    (topic,) = (await house.ask(commit_of_many(5))).topics
    refused = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert [row.error_code for row in topic.partitions] == [refused, refused, refused, 0, 0]


async def test_only_a_simple_commit_makes_a_group(house, autojump_clock):
    asked = commit(9, member_id="gone", generation_id_or_member_epoch=0)
    assert (await house.ask(asked)).topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
    assert (await house.ask(m.ListGroupsRequest())).groups == []


@pytest.mark.parametrize(("version", "remains"), [(1, True), (2, False), (4, False), (5, True)])
async def test_versions_2_to_4_may_say_how_long_an_offset_is_kept(open_house, version, remains, autojump_clock):
    house = await open_house(settings={"offsets.retention.check.interval.ms": "500"})
    await house.ask(commit(version, retention_time_ms=2000), version)
    await trio.sleep(1.9)
    assert rows_of(await house.ask(fetch(9, 0)), 9)[0].committed_offset == 5
    await trio.sleep(1)
    assert rows_of(await house.ask(fetch(9, 0)), 9)[0].committed_offset == (5 if remains else -1)


async def test_an_offset_that_is_kept_for_ever_is_kept(house, autojump_clock):
    assert (await house.ask(commit(2, retention_time_ms=2**63 - 1), 2)).topics[0].partitions[0].error_code == 0
    await trio.sleep(86_400)
    assert rows_of(await house.ask(fetch(9, 0)), 9)[0].committed_offset == 5


async def test_version_1_says_when_an_offset_was_committed(open_house, autojump_clock):
    house = await open_house(settings={"offsets.retention.check.interval.ms": "500"})
    asked = commit(1)
    asked.topics[0].partitions[0].commit_timestamp = house.now_ms() - 7 * 86_400_000
    await house.ask(asked, 1)
    await trio.sleep(1)
    assert rows_of(await house.ask(fetch(9, 0)), 9)[0].committed_offset == -1


@pytest.mark.parametrize("version", range(1, 10))
async def test_a_fetch_that_is_refused_says_so_where_its_version_has_room(house, version, autojump_clock):
    house.resign()
    answer = await house.ask(fetch(version, 0), version)
    places = {
        "partition": [row.error_code for row in rows_of(answer, version)],
        "request": [answer.error_code],
        "group": [group.error_code for group in answer.groups],
    }
    place = "partition" if version < 2 else "request" if version < 8 else "group"
    assert places[place] == [ErrorCode.NOT_COORDINATOR]


# -- version 0: the metadata store


@pytest.fixture
async def house_with_store(house):
    house.store = await open_sqlite_store(IN_MEMORY, house.world.in_thread, house.now_ms)
    await house.store.create("/consumers")
    return house


async def test_version_0_keeps_offsets_in_the_metadata_store(house_with_store, autojump_clock):
    for _ in range(2):
        assert (await house_with_store.ask(commit(0), 0)).topics[0].partitions[0].error_code == 0
    assert (await house_with_store.store.get("/consumers/g/offsets/t/0"))[0] == b"5"
    (row,) = rows_of(await house_with_store.ask(fetch(0, 0), 0), 0)
    assert (row.committed_offset, row.metadata, row.error_code) == (5, "", 0)
    assert rows_of(await house_with_store.ask(fetch(9, 0)), 9)[0].committed_offset == -1


async def test_version_0_cannot_keep_what_no_node_can_be_called(house_with_store, autojump_clock):
    asked = commit(0)
    asked.group_id = "a/../b"
    answer = await house_with_store.ask(asked, 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# -- deleting


@pytest.mark.parametrize(
    ("count", "size", "code"), [(100, 1, 79), (101, 1, 42), (2, (1 << 20) - 10, 79), (2, (1 << 20) - 9, 42)]
)
async def test_a_member_joins_with_so_much_as_a_group_can_keep(house, autojump_clock, count, size, code):
    named = m.JoinGroupRequest.JoinGroupRequestProtocol
    request = join(9)
    request.protocols = [named(name=f"protocol-{number}", metadata=bytes(size)) for number in range(count)]
    assert (await house.ask(request)).error_code == code  # 79: MEMBER_ID_REQUIRED
