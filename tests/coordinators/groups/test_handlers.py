"""The handlers of groups and offsets: what each version of a request is answered with.

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

NOT_ASKED = -(1 << 31)


def versions(*requests):
    return [pytest.param(one, v, id=f"{one.__name__}-{v}") for one in requests for v in range(one.MAX_VERSION + 1)]


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


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_join_brings_a_member_in(house, version, autojump_clock):
    answer = await joined(house, version)
    assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
    assert answer.protocol_type == ("consumer" if version >= 7 else None)
    assert answer.leader == answer.member_id
    assert [(member.member_id, member.metadata) for member in answer.members] == [(answer.member_id, b"mine")]


@pytest.mark.parametrize("version", range(10))
async def test_every_version_of_join_is_refused_in_its_own_form(house, version, autojump_clock):
    answer = await house.ask(join(version, session_timeout_ms=1), version)
    assert (answer.error_code, answer.generation_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, -1)
    assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize(
    ("asked_ms", "code"), [(5_999, 26), (6_000, 79), (1_800_000, 79), (1_800_001, ErrorCode.INVALID_SESSION_TIMEOUT)]
)
async def test_a_session_timeout_has_bounds(house, asked_ms, code, autojump_clock):
    assert (await house.ask(join(9, session_timeout_ms=asked_ms))).error_code == code


async def test_without_a_rebalance_timeout_the_session_timeout_stands_for_it(house, autojump_clock):
    await house.ask(join(0, session_timeout_ms=12_345), 0)
    (group,) = (shard.state.by_id["g"] for shard in house.groups.runtime.serving())
    assert group.rebalance_timeout_ms == 12_345


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_sync_returns_the_assignment(house, version, autojump_clock):
    member = await joined(house, 9)
    answer = await house.ask(sync(member, version), version)
    assert (answer.error_code, answer.assignment) == (0, b"assignment")
    assert answer.protocol_name == ("range" if version >= 5 else None)


async def test_from_version_5_on_sync_must_name_the_protocol(house, autojump_clock):
    member = await joined(house, 9)
    answer = await house.ask(sync(member, 5, protocol_name=None))
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
async def test_every_version_of_heartbeat_is_answered(house, version, autojump_clock):
    member = await stable(house)
    beat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id=member.member_id)
    assert (await house.ask(beat, version)).error_code == 0
    beat.member_id = "stranger"
    assert (await house.ask(beat, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3))
async def test_before_version_3_one_member_leaves_and_its_error_is_the_answers(house, version, autojump_clock):
    member = await stable(house)
    leave = m.LeaveGroupRequest(group_id="g", member_id=member.member_id)
    assert (await house.ask(leave, version)).error_code == 0
    assert (await house.ask(leave, version)).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(3, 6))
async def test_from_version_3_on_each_leaving_member_has_its_error(house, version, autojump_clock):
    member = await stable(house)
    names = [(member.member_id, None), ("stranger", None), ("", "unknown")]
    identities = [m.LeaveGroupRequest.MemberIdentity(member_id=a, group_instance_id=b) for a, b in names]
    answer = await house.ask(m.LeaveGroupRequest(group_id="g", members=identities), version)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert answer.error_code == 0
    assert [row.error_code for row in answer.members] == [0, unknown, unknown]
    assert [(row.member_id, row.group_instance_id) for row in answer.members] == names


async def test_no_one_can_be_in_a_group_without_name(house, autojump_clock):
    asked = [
        join(9, group_id=""),
        m.SyncGroupRequest(protocol_type="consumer", protocol_name="range"),
        m.HeartbeatRequest(),
        m.LeaveGroupRequest(),
    ]
    assert [(await house.ask(request)).error_code for request in asked] == [ErrorCode.INVALID_GROUP_ID] * 4


async def test_a_group_that_does_not_exist_has_no_members(house, autojump_clock):
    leaving = [m.LeaveGroupRequest.MemberIdentity(member_id="x")]
    assert (await house.ask(join(9, "x"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert (await house.ask(m.HeartbeatRequest(group_id="no"))).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = await house.ask(m.LeaveGroupRequest(group_id="no", members=leaving))
    assert answer.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- what administrators see


async def test_the_host_of_a_member_is_written_as_java_does(house, autojump_clock):
    house.address = "::1"
    await stable(house)
    (group,) = (await house.ask(m.DescribeGroupsRequest(groups=["g"]))).groups
    assert group.members[0].client_host == "/0:0:0:0:0:0:0:1"


@pytest.mark.parametrize("version", range(6))
async def test_every_version_describes_a_stable_group(house, version, autojump_clock):
    member = await stable(house)
    (group,) = (await house.ask(m.DescribeGroupsRequest(groups=["g"]), version)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (row,) = group.members
    assert (row.member_id, row.client_id, row.client_host) == (member.member_id, "client", "/127.0.0.1")
    assert (row.member_metadata, row.member_assignment) == (b"mine", b"assignment")
    assert group.authorized_operations == NOT_ASKED


async def test_during_a_rebalance_assignments_and_subscriptions_are_not_shown(house, autojump_clock):
    await joined(house, 9)
    (group,) = (await house.ask(m.DescribeGroupsRequest(groups=["g"]))).groups
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert (group.members[0].member_metadata, group.members[0].member_assignment) == (b"", b"")


async def test_a_group_that_does_not_exist_is_described_as_dead(house, autojump_clock):
    (group,) = (await house.ask(m.DescribeGroupsRequest(groups=["no"]))).groups
    assert (group.error_code, group.group_state, group.protocol_type) == (0, "Dead", "")


async def test_authorized_operations_are_answered_when_asked_for(house, autojump_clock):
    (group,) = (await house.ask(m.DescribeGroupsRequest(groups=["g"], include_authorized_operations=True))).groups
    assert group.authorized_operations == 0b101001000  # read, delete, describe


@pytest.mark.parametrize("version", range(6))
async def test_every_version_lists_groups(house, version, autojump_clock):
    await stable(house)
    (group,) = (await house.ask(m.ListGroupsRequest(), version)).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize(
    ("states", "types", "listed"),
    [
        (["stable"], [], ["g"]),
        (["Empty"], [], ["simple"]),
        (["Empty", "Stable"], ["Classic"], ["g", "simple"]),
        ([], ["consumer"], []),
        (["no such state"], [], []),
    ],
)
async def test_groups_are_listed_by_state_and_type(house, states, types, listed, autojump_clock):
    await stable(house)
    simple = commit(9)
    simple.group_id = "simple"
    await house.ask(simple)
    answer = await house.ask(m.ListGroupsRequest(states_filter=states, types_filter=types))
    assert [group.group_id for group in answer.groups] == listed


# -- FindCoordinator


@pytest.mark.parametrize("version", range(7))
async def test_every_version_finds_the_coordinator(house, version, autojump_clock):
    request = m.FindCoordinatorRequest(coordinator_keys=["g"]) if version >= 4 else m.FindCoordinatorRequest(key="g")
    answer = await house.ask(request, version)
    one = answer.coordinators[0] if version >= 4 else answer
    assert (one.error_code, one.node_id, one.host, one.port) == (0, 0, "here", 9092)


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


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (2, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, 5, ErrorCode.INVALID_REQUEST),
        (2, 3, ErrorCode.INVALID_REQUEST),
        (9, 6, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_other_types_of_coordinators_are_not_known(house, key_type, version, code, autojump_clock):
    asked = {"coordinator_keys": ["x"]} if version >= 4 else {"key": "x"}
    answer = await house.ask(m.FindCoordinatorRequest(key_type=key_type, **asked), version)
    assert (answer.coordinators[0] if version >= 4 else answer).error_code == code


# -- offsets


@pytest.mark.parametrize("version", range(1, 10))
async def test_every_version_of_commit_is_read_by_every_version_of_fetch(house, version, autojump_clock):
    assert (await house.ask(commit(version), version)).topics[0].partitions[0].error_code == 0
    for reading in range(1, 10):
        fetched = await house.ask(fetch(reading, 0, 1), reading)
        assert [(row.committed_offset, row.metadata) for row in rows_of(fetched, reading)] == [(5, "so far"), (-1, "")]


async def test_a_partition_that_is_named_twice_is_answered_once(house, autojump_clock):
    asked = commit(9)
    asked.topics = [*asked.topics, *commit(9).topics]
    asked.topics[1].partitions[0].committed_offset = 6
    (topic,) = (await house.ask(asked)).topics
    assert len(topic.partitions) == 1
    assert [row.committed_offset for row in rows_of(await house.ask(fetch(9, 0, 0)), 9)] == [6]


@pytest.mark.parametrize("version", range(2, 10))
async def test_from_version_2_on_null_topics_mean_all_partitions(house, version, autojump_clock):
    await house.ask(commit(9, partition=0))
    await house.ask(commit(9, partition=1))
    fetched = await house.ask(fetch(version), version)
    assert [row.partition_index for row in rows_of(fetched, version)] == [0, 1]


async def test_leader_epochs_are_kept_from_version_6_on(house, autojump_clock):
    asked = commit(6)
    asked.topics[0].partitions[0].committed_leader_epoch = 7
    await house.ask(asked, 6)
    assert rows_of(await house.ask(fetch(5, 0), 5), 5)[0].committed_leader_epoch == 7
    assert rows_of(await house.ask(fetch(9, 0)), 9)[0].committed_leader_epoch == 7


async def test_partitions_that_do_not_exist_are_refused_alone(house, autojump_clock):
    asked = commit(9, partition=9)
    asked.topics = [*asked.topics, *commit(9).topics, *commit(9, topic="no").topics]
    answer = await house.ask(asked)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = [(topic.name, row.partition_index, row.error_code) for topic in answer.topics for row in topic.partitions]
    assert rows == [("t", 9, unknown), ("t", 0, 0), ("no", 0, unknown)]


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


async def test_a_group_without_name_may_keep_offsets(house, autojump_clock):
    asked, wanted = commit(5), fetch(7, 0)
    asked.group_id = wanted.group_id = ""
    assert (await house.ask(asked, 5)).topics[0].partitions[0].error_code == 0
    assert rows_of(await house.ask(wanted, 7), 7)[0].committed_offset == 5
    assert (await house.ask(m.DescribeGroupsRequest(groups=[""]))).groups[0].group_state == "Empty"


async def test_only_a_simple_commit_makes_a_group(house, autojump_clock):
    asked = commit(9, member_id="gone", generation_id_or_member_epoch=0)
    assert (await house.ask(asked)).topics[0].partitions[0].error_code == ErrorCode.ILLEGAL_GENERATION
    assert (await house.ask(m.ListGroupsRequest())).groups == []


async def test_metadata_that_are_too_large_are_refused(house, autojump_clock):
    asked = commit(9)
    asked.topics[0].partitions[0].committed_metadata = "m" * 4097
    assert (await house.ask(asked)).topics[0].partitions[0].error_code == ErrorCode.OFFSET_METADATA_TOO_LARGE


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


async def test_version_0_says_unknown_partition_of_an_offset_that_is_not_known(house_with_store, autojump_clock):
    rows = rows_of(await house_with_store.ask(fetch(0, 0, 9), 0), 0)
    assert [(row.committed_offset, row.error_code) for row in rows] == [(-1, 3), (-1, 3)]


async def test_version_0_cannot_keep_what_no_node_can_be_called(house_with_store, autojump_clock):
    asked = commit(0)
    asked.group_id = "a/../b"
    answer = await house_with_store.ask(asked, 0)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# -- deleting


def offset_deletion(group_id, *partitions):
    row = m.OffsetDeleteRequest.OffsetDeleteRequestPartition
    topics = [
        m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[row(partition_index=index)])
        for topic, index in partitions
    ]
    return m.OffsetDeleteRequest(group_id=group_id, topics=topics)


@pytest.mark.parametrize("version", range(3))
async def test_every_version_deletes_groups_each_with_its_error(house, version, autojump_clock):
    await house.ask(commit(9))
    asked = m.DeleteGroupsRequest(groups_names=["unknown", "g", "", "g"])
    rows = [(row.group_id, row.error_code) for row in (await house.ask(asked, version)).results]
    assert rows == [("unknown", 69), ("g", 0), ("", 69)]
    assert rows_of(await house.ask(fetch(9)), 9) == []
    await stable(house)
    (row,) = (await house.ask(m.DeleteGroupsRequest(groups_names=["g"]), version)).results
    assert row.error_code == ErrorCode.NON_EMPTY_GROUP


async def test_offsets_are_deleted_partition_by_partition(house, autojump_clock):
    await house.ask(commit(9))
    answer = await house.ask(offset_deletion("g", ("t", 0), ("t", 9), ("no", 0), ("t", 1)))
    rows = {topic.name: [(row.partition_index, row.error_code) for row in topic.partitions] for topic in answer.topics}
    assert (answer.error_code, rows) == (0, {"t": [(9, 3), (0, 0), (1, 0)], "no": [(0, 3)]})
    assert rows_of(await house.ask(fetch(9)), 9) == []


async def test_the_groups_error_for_a_deletion_stands_alone(house, autojump_clock):
    answers = [await house.ask(offset_deletion(group_id, ("t", 0), ("no", 0))) for group_id in ("", "unknown")]
    assert [(answer.error_code, len(answer.topics)) for answer in answers] == [(24, 0), (69, 0)]


@pytest.mark.parametrize(
    ("count", "size", "code"), [(100, 1, 79), (101, 1, 42), (2, (1 << 20) - 10, 79), (2, (1 << 20) - 9, 42)]
)
async def test_a_member_joins_with_so_much_as_a_group_can_keep(house, autojump_clock, count, size, code):
    named = m.JoinGroupRequest.JoinGroupRequestProtocol
    request = join(9)
    request.protocols = [named(name=f"protocol-{number}", metadata=bytes(size)) for number in range(count)]
    assert (await house.ask(request)).error_code == code  # 79: MEMBER_ID_REQUIRED
