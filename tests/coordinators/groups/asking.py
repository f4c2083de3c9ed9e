"""What tests share with `test_coordinator.py`."""

import trio
import trio.testing

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

PROTOCOLS = [
    m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
]


def join(member_id="", **other):
    asked = {"group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer"}
    return m.JoinGroupRequest(member_id=member_id, protocols=PROTOCOLS, **(asked | other))


def sync(joined, assignments=()):
    rows = [m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=who, assignment=each) for who, each in assignments]
    return m.SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=rows,
    )


def beat(joined):
    return m.HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)


def leave(*member_ids):
    members = [m.LeaveGroupRequest.MemberIdentity(member_id=member_id) for member_id in member_ids]
    return m.LeaveGroupRequest(group_id="g", members=members)


def commit(offset, *, generation=-1, member_id="", partition=0, topic="t", metadata="", group_id="g"):
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=metadata
    )
    rows = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[row])]
    return m.OffsetCommitRequest(
        group_id=group_id, generation_id_or_member_epoch=generation, member_id=member_id, topics=rows
    )


def fetch(*partitions, topic="t"):
    topics = [m.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)]
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=topics if partitions else None)
    return m.OffsetFetchRequest(groups=[asked])


def error_of(committed):
    return committed.topics[0].partitions[0].error_code


def offsets_of(fetched):
    (group,) = fetched.groups
    assert group.error_code == 0
    return {row.partition_index: row.committed_offset for topic in group.topics for row in topic.partitions}


async def member_of(house, **other):
    """Join as a client does, twice; returns the JoinGroup response."""
    handed_out = await house.ask(join(**other))
    assert handed_out.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return await house.ask(join(handed_out.member_id, **other))


async def described(house):
    return (await house.ask(m.DescribeGroupsRequest(groups=["g"]))).groups[0]


def group_of(house):
    (group,) = (shard.state.by_id["g"] for shard in house.groups.runtime)
    return group


async def all_of(*requests):
    """What these answer, asked at the same time."""
    answers = [None] * len(requests)

    async def ask_one(index, request):
        answers[index] = await request

    async with trio.open_nursery() as nursery:
        for index, request in enumerate(requests):
            nursery.start_soon(ask_one, index, request)
    return answers
