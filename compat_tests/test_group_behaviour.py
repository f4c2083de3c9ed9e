"""What members of groups depend on, answer by answer; as test_behaviour.py, measured on Apache Kafka 3.9.1."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from compat_tests.brokers import BrokerProcess
from compat_tests.raw import RawClient, ask, create_topic, eventually

RANGE = (("range", b"meta"),)
LOADING = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


@pytest.fixture
def client(shared_broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(shared_broker.port) as raw:
        yield raw


@pytest.fixture
def other(shared_broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(shared_broker.port) as raw:
        yield raw


@pytest.fixture
def group(client: RawClient) -> str:
    """The id of a new group that this broker coordinates."""
    name = f"group-{uuid.uuid4().hex[:10]}"
    eventually(lambda: ask(client, m.FindCoordinatorRequest(key=name), 0), lambda found: found.error_code == 0)
    beat = m.HeartbeatRequest(group_id=name)
    eventually(lambda: ask(client, beat, 0), lambda answer: answer.error_code not in LOADING)
    return name


def join_request(group: str, member_id: str = "", *, protocols: Any = RANGE, **fields: Any) -> m.JoinGroupRequest:
    named = [m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols]
    usual = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 20_000, "protocol_type": "consumer"}
    return m.JoinGroupRequest(group_id=group, member_id=member_id, protocols=named, **(usual | fields))


def join(client: RawClient, group: str, member_id: str = "", version: int = 5, **fields: Any) -> Any:
    return ask(client, join_request(group, member_id, **fields), version)


def sync(client: RawClient, group: str, joined: Any, shares: dict[str, bytes] | None = None, **fields: Any) -> Any:
    assignments = [
        m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=share)
        for member_id, share in (shares or {}).items()
    ]
    usual = {"generation_id": joined.generation_id, "member_id": joined.member_id}
    return ask(client, m.SyncGroupRequest(group_id=group, assignments=assignments, **(usual | fields)), 3)


def alone(client: RawClient, group: str, **fields: Any) -> Any:
    """Become the only member of a Stable group."""
    joined = join(client, group, version=3) if not fields else join(client, group, **fields)
    assert sync(client, group, joined, {joined.member_id: b"all"}, **fields).error_code == 0
    return joined


def beat(client: RawClient, group: str, generation: int, member_id: str, instance_id: str | None = None) -> int:
    request = m.HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance_id
    )
    return ask(client, request, 3).error_code


def leave(client: RawClient, group: str, *members: tuple[str, str | None]) -> list[int]:
    leaving = [m.LeaveGroupRequest.MemberIdentity(member_id=mid, group_instance_id=iid) for mid, iid in members]
    answer = ask(client, m.LeaveGroupRequest(group_id=group, members=leaving), 3)
    return [answer.error_code] if answer.error_code else [row.error_code for row in answer.members]


def describe(client: RawClient, group: str) -> Any:
    return ask(client, m.DescribeGroupsRequest(groups=[group]), 4).groups[0]


# -- members


@pytest.mark.parametrize("version", range(10))
def test_join_group_says_what_is_wrong(client: RawClient, group: str, version: int) -> None:
    def code(group_id: str = group, member_id: str = "", **fields: Any) -> int:
        return join(client, group_id, member_id, version, **fields).error_code

    assert code("") == ErrorCode.INVALID_GROUP_ID
    assert code(session_timeout_ms=5999) == code(session_timeout_ms=1_800_001) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert code(member_id="unknown", session_timeout_ms=1) == ErrorCode.INVALID_SESSION_TIMEOUT
    assert code(member_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(protocols=()) == code(protocol_type="") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    joined = alone(client, group)
    assert code(protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(protocols=(("sticky", b""),)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert code(member_id=joined.member_id, protocol_type="connect") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert beat(client, group, 1, joined.member_id) == 0, "nothing of this has disturbed the member"


@pytest.mark.parametrize("version", range(10))
def test_a_member_id_comes_first_where_the_client_knows_how(client: RawClient, group: str, version: int) -> None:
    joined = join(client, group, version=version)
    if version >= 4:
        assert (joined.error_code, joined.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
        assert joined.member_id.startswith("raw-")
        joined = join(client, group, joined.member_id, version)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert (joined.leader, joined.protocol_type) == (joined.member_id, "consumer" if version >= 7 else None)
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"meta")]


def test_two_members_share_out_and_only_the_leader_learns_the_members(
    client: RawClient, other: RawClient, group: str
) -> None:
    first = alone(client, group)
    other.request(join_request(group), 3)
    must_rejoin = ErrorCode.REBALANCE_IN_PROGRESS
    eventually(lambda: beat(client, group, 1, first.member_id), lambda code: code == must_rejoin)
    assert sync(client, group, first).error_code == must_rejoin
    assert describe(client, group).group_state == "PreparingRebalance"
    leader = join(client, group, first.member_id, 3)
    follower = m.decode(m.JoinGroupResponse, 3, other.receive_frame(), 4)
    assert (leader.generation_id, leader.leader, len(leader.members)) == (2, first.member_id, 2)
    assert (follower.generation_id, follower.leader, follower.members) == (2, first.member_id, [])
    shares = {leader.member_id: b"A", follower.member_id: b"B", "ghost": b"C"}
    assert sync(client, group, leader, shares).assignment == b"A"
    assert sync(other, group, follower).assignment == b"B"
    assert beat(client, group, 1, first.member_id) == ErrorCode.ILLEGAL_GENERATION
    assert leave(other, group, (follower.member_id, None)) == [0]
    assert beat(client, group, 2, first.member_id) == must_rejoin
    assert beat(other, group, 2, follower.member_id) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_takes_its_place_and_fences_its_former_self(
    client: RawClient, other: RawClient, group: str
) -> None:
    old = alone(client, group, group_instance_id="i")
    new = join(other, group, group_instance_id="i")
    assert (new.error_code, new.generation_id, new.leader) == (0, 1, old.member_id), "it must not deal out shares again"
    assert new.member_id != old.member_id
    assert sync(other, group, new, group_instance_id="i").assignment == b"all"
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert beat(client, group, 1, old.member_id, "i") == fenced
    assert sync(client, group, old, group_instance_id="i").error_code == fenced
    assert join(client, group, old.member_id, group_instance_id="i").error_code == fenced
    assert leave(client, group, (old.member_id, "i")) == [fenced]
    assert beat(client, group, 1, old.member_id) == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(other, group, 1, new.member_id, "unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(client, group, ("", "i"), ("", "unknown")) == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert describe(client, group).group_state == "Empty"


def test_a_returning_static_leader_skips_the_assignment_from_version_9_on(client: RawClient, group: str) -> None:
    alone(client, group, group_instance_id="i")
    back = join(client, group, version=9, group_instance_id="i")
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 1)


def test_requests_without_member_are_distinguished(client: RawClient, group: str) -> None:
    assert beat(client, "", 1, "x") == ErrorCode.INVALID_GROUP_ID
    assert beat(client, group, 1, "x") == ErrorCode.UNKNOWN_MEMBER_ID
    assert leave(client, "", ("x", None)) == [ErrorCode.INVALID_GROUP_ID]
    assert leave(client, group, ("x", None), ("", "i")) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    joined = alone(client, group)
    assert sync(client, group, joined, generation_id=7).error_code == ErrorCode.ILLEGAL_GENERATION
    assert sync(client, group, joined, member_id="x").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    twice = [(joined.member_id, None), (joined.member_id, None)]
    assert leave(client, group, *twice) == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert join(client, group, joined.member_id).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_group_5_must_name_type_and_protocol(client: RawClient, group: str) -> None:
    joined = alone(client, group)
    for protocol_type, name, code in [
        (None, "range", 23), ("consumer", None, 23), ("connect", "range", 23), ("consumer", "sticky", 23),
        ("consumer", "range", 0),
    ]:  # fmt: skip
        request = m.SyncGroupRequest(
            group_id=group, generation_id=1, member_id=joined.member_id, protocol_type=protocol_type, protocol_name=name
        )
        assert ask(client, request, 5).error_code == code


# -- offsets


def commit(
    client: RawClient, group: str, offsets: dict[tuple[str, int], tuple[int, str]], version: int = 7, **fields: Any
) -> list[int]:
    """{(topic, partition): (offset, metadata)} -> a code each."""
    topics = [
        m.OffsetCommitRequest.OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                m.OffsetCommitRequest.OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            ],
        )
        for (topic, partition), (offset, metadata) in offsets.items()
    ]
    answer = ask(client, m.OffsetCommitRequest(group_id=group, topics=topics, **fields), version)
    codes = {(topic.name, row.partition_index): row.error_code for topic in answer.topics for row in topic.partitions}
    return [codes[key] for key in offsets]


def committed(client: RawClient, group: str, topic: str, *partitions: int, version: int = 5) -> list[tuple[int, ...]]:
    asked = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)]
    answer = ask(client, m.OffsetFetchRequest(group_id=group, topics=asked), version)
    return [(row.error_code, row.committed_offset, row.metadata) for row in answer.topics[0].partitions]


def test_a_commit_without_member_is_for_groups_without_members(
    client: RawClient, shared_broker: BrokerProcess, group: str, topic: str
) -> None:
    create_topic(shared_broker.port, topic, partitions=3)
    asked = {
        (topic, 0): (5, "ünd so"),
        (topic, 9): (5, ""),
        (f"{topic}-unknown", 0): (5, ""),
        (topic, 1): (6, "x" * 4097),
    }
    codes = [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 12]
    assert commit(client, group, asked) == codes
    assert committed(client, group, topic, 0, 1, 2) == [(0, 5, "ünd so"), (0, -1, ""), (0, -1, "")]
    joined, one = join(client, group, version=3), {(topic, 0): (7, "")}
    assert commit(client, group, one) == [ErrorCode.UNKNOWN_MEMBER_ID]
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert commit(client, group, one, **member) == [ErrorCode.REBALANCE_IN_PROGRESS]
    sync(client, group, joined, {joined.member_id: b""})
    assert commit(client, group, one, **(member | {"generation_id_or_member_epoch": 9})) == [22]
    assert commit(client, group, one, **(member | {"member_id": "x"})) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(client, group, one, **(member | {"group_instance_id": "i"})) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(client, group, one, **member) == [0]
    assert leave(client, group, (joined.member_id, None)) == [0]
    assert commit(client, group, one, **member) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(client, group, one) == [0]


def test_a_commit_with_a_generation_into_a_group_that_never_was_is_illegal(
    client: RawClient, shared_broker: BrokerProcess, group: str, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    of_member = {"member_id": "x", "generation_id_or_member_epoch": 3}
    assert commit(client, group, {(topic, 0): (5, "")}, **of_member) == [ErrorCode.ILLEGAL_GENERATION]


def test_version_0_keeps_its_offsets_elsewhere(
    client: RawClient, shared_broker: BrokerProcess, group: str, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    assert commit(client, group, {(topic, 0): (5, "")}, 0) == [0]
    assert committed(client, group, topic, 0, version=0) == [(0, 5, "")]
    assert committed(client, group, topic, 0, version=1) == [(0, -1, "")]


@pytest.mark.parametrize("version", range(1, 8))
def test_what_was_never_committed_is_no_error(client: RawClient, group: str, topic: str, version: int) -> None:
    assert committed(client, group, topic, 0, 0, version=version) == [(0, -1, "")]
    if version >= 2:
        answer = ask(client, m.OffsetFetchRequest(group_id=group, topics=None), version)
        assert (answer.error_code, answer.topics) == (0, [])


def test_several_groups_are_fetched_at_once_from_version_8_on(
    client: RawClient, shared_broker: BrokerProcess, group: str, topic: str
) -> None:
    create_topic(shared_broker.port, topic)
    commit(client, group, {(topic, 0): (5, "")})
    one = m.OffsetFetchRequest.OffsetFetchRequestGroup
    answer = ask(client, m.OffsetFetchRequest(groups=[one(group_id=group, topics=None), one(group_id="none")]), 8)
    found = {row.group_id: (row.error_code, [topic.name for topic in row.topics]) for row in answer.groups}
    assert found == {group: (0, [topic]), "none": (0, [])}


# -- deletion


def delete_groups(client: RawClient, *groups: str, version: int = 2) -> list[int]:
    answer = ask(client, m.DeleteGroupsRequest(groups_names=list(groups)), version)
    codes = {row.group_id: row.error_code for row in answer.results}
    return [codes[group] for group in groups]


def delete_offsets(client: RawClient, group: str, *partitions: tuple[str, int]) -> int | dict[tuple[str, int], int]:
    """A code for all, or one for each partition."""
    row, named = m.OffsetDeleteRequest.OffsetDeleteRequestPartition, m.OffsetDeleteRequest.OffsetDeleteRequestTopic
    topics = [named(name=topic, partitions=[row(partition_index=index)]) for topic, index in partitions]
    answer = ask(client, m.OffsetDeleteRequest(group_id=group, topics=topics), 0)
    codes = {(topic.name, row.partition_index): row.error_code for topic in answer.topics for row in topic.partitions}
    return codes if codes or not answer.error_code else answer.error_code


def subscription(topic: str) -> bytes:
    return b"\0\0" + m.encode(m.ConsumerProtocolSubscription(topics=[topic]), 0)


@pytest.mark.parametrize("version", range(3))
def test_a_group_is_deleted_when_it_has_no_members(
    client: RawClient, shared_broker: BrokerProcess, group: str, topic: str, version: int
) -> None:
    create_topic(shared_broker.port, topic)
    assert delete_groups(client, group, version=version) == [ErrorCode.GROUP_ID_NOT_FOUND]
    joined = alone(client, group)
    assert delete_groups(client, group, version=version) == [ErrorCode.NON_EMPTY_GROUP]
    leave(client, group, (joined.member_id, None))
    assert commit(client, group, {(topic, 0): (5, "")}) == [0]
    assert delete_groups(client, group, version=version) == [0]
    assert (describe(client, group).group_state, committed(client, group, topic, 0)) == ("Dead", [(0, -1, "")])
    assert delete_groups(client, group, "", version=version) == [ErrorCode.GROUP_ID_NOT_FOUND] * 2


def test_offsets_of_topics_that_members_read_are_not_deleted(
    client: RawClient, shared_broker: BrokerProcess, group: str, topic: str
) -> None:
    other_topic = f"{topic}-other"
    for name in (topic, other_topic):
        create_topic(shared_broker.port, name)
    assert delete_offsets(client, "", (topic, 0)) == ErrorCode.INVALID_GROUP_ID
    assert delete_offsets(client, group, (topic, 0), (topic, 9)) == ErrorCode.GROUP_ID_NOT_FOUND
    joined = join(client, group, version=3, protocols=(("range", subscription(topic)),))
    sync(client, group, joined, {joined.member_id: b"all"})
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert commit(client, group, {(topic, 0): (5, ""), (other_topic, 0): (6, "")}, **member) == [0, 0]
    codes = {(topic, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other_topic, 0): 0, (topic, 9): 3, ("no", 0): 3}
    assert delete_offsets(client, group, *codes) == codes
    assert committed(client, group, topic, 0) + committed(client, group, other_topic, 0) == [(0, 5, ""), (0, -1, "")]
    leave(client, group, (joined.member_id, None))
    assert delete_offsets(client, group, (topic, 0)) == {(topic, 0): 0}
    assert describe(client, group).group_state == "Dead", "its last offset was all that was left of it"


def test_a_group_without_a_consumer_protocol_gives_up_no_offset(client: RawClient, group: str) -> None:
    join(client, group, version=3, protocol_type="connect")
    assert delete_offsets(client, group, ("no", 0)) == ErrorCode.NON_EMPTY_GROUP


# -- for administrators


def test_groups_are_described_and_listed_by_state_and_type(client: RawClient, group: str) -> None:
    assert (describe(client, group).error_code, describe(client, group).group_state) == (0, "Dead")
    alone(client, group)
    described = describe(client, group)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.client_host, member.member_metadata, member.member_assignment) == ("/127.0.0.1", b"meta", b"all")

    def is_listed(version: int, **filters: Any) -> bool:
        return group in [row.group_id for row in ask(client, m.ListGroupsRequest(**filters), version).groups]

    assert is_listed(0)
    assert is_listed(4, states_filter=["stable"])
    assert is_listed(5, types_filter=["Classic"])
    assert not is_listed(4, states_filter=["Empty"])
    assert not is_listed(5, types_filter=["consumer"])


@pytest.mark.parametrize("version", range(7))
def test_coordinators_are_found_for_groups_and_other_types_refused(client: RawClient, group: str, version: int) -> None:
    if version >= 4:
        answer = ask(client, m.FindCoordinatorRequest(coordinator_keys=[group, ""]), version)
        assert [(row.key, row.error_code, row.node_id >= 0) for row in answer.coordinators] == [
            (group, 0, True),
            ("", 0, True),
        ]
        answer = ask(client, m.FindCoordinatorRequest(coordinator_keys=["a"], key_type=9), version)
        assert [(row.error_code, row.node_id) for row in answer.coordinators] == [(ErrorCode.INVALID_REQUEST, -1)]
        return
    answer = ask(client, m.FindCoordinatorRequest(key=group), version)
    assert (answer.error_code, answer.error_message) == (0, "" if version == 0 else "NONE")
    if version >= 1:
        answer = ask(client, m.FindCoordinatorRequest(key="a", key_type=9), version)
        assert (answer.error_code, answer.node_id) == (ErrorCode.INVALID_REQUEST, -1)
