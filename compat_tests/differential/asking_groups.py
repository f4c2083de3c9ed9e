"""Short functions that build requests of group members and administrators; see `asking`."""

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.wire import messages as m
from compat_tests.differential.side import Answer, Connection, Side

RANGE = (("range", b"meta"),)
SECOND_MS = 1000


def join(
    group: str,
    member: str = "",
    *,
    protocols: Iterable[tuple[str, bytes]] = RANGE,
    session_ms: int = 10_000,
    **fields: Any,
) -> m.JoinGroupRequest:
    usual = {"rebalance_timeout_ms": 20_000, "protocol_type": "consumer"}
    named = [m.JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols]
    fields = usual | fields
    return m.JoinGroupRequest(
        group_id=group, member_id=member, session_timeout_ms=session_ms, protocols=named, **fields
    )


def sync(
    group: str, generation: int, member: str, shares: dict[str, bytes] | None = None, **fields: Any
) -> m.SyncGroupRequest:
    assignments = [
        m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=share)
        for member_id, share in (shares or {}).items()
    ]
    usual = {"protocol_type": "consumer", "protocol_name": "range"}
    fields = usual | fields
    return m.SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=member, assignments=assignments, **fields
    )


def beat(group: str, generation: int, member: str, instance: str | None = None) -> m.HeartbeatRequest:
    return m.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)


def leave(group: str, *members: str | tuple[str, str | None]) -> m.LeaveGroupRequest:
    """Members by id, or by (id, instance); versions before 3 have room for the first one's id only."""
    pairs = [(member, None) if isinstance(member, str) else member for member in members]
    Member = m.LeaveGroupRequest.MemberIdentity
    return m.LeaveGroupRequest(
        group_id=group,
        member_id=pairs[0][0] if pairs else "",
        members=[Member(member_id=member, group_instance_id=instance) for member, instance in pairs],
    )


def commit(
    group: str,
    topics: Iterable[tuple[str, Iterable[Sequence[Any]]]],
    generation: int = -1,
    member: str = "",
    **fields: Any,
) -> m.OffsetCommitRequest:
    """[(topic, [(partition, offset, metadata "", leader epoch -1, time -1)])]"""
    Topic, Partition = (
        m.OffsetCommitRequest.OffsetCommitRequestTopic,
        m.OffsetCommitRequest.OffsetCommitRequestPartition,
    )

    def of(index: int, offset: int, metadata: str | None = "", epoch: int = -1, time_ms: int = -1) -> Any:
        return Partition(
            partition_index=index,
            committed_offset=offset,
            committed_metadata=metadata,
            committed_leader_epoch=epoch,
            commit_timestamp=time_ms,
        )

    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[Topic(name=name, partitions=[of(*partition) for partition in asked]) for name, asked in topics],
        **fields,
    )


def offsets_of(group: str, topics: Iterable[tuple[str, Sequence[int]]] | None, **fields: Any) -> m.OffsetFetchRequest:
    """One group, in the form of all versions; `member` and `epoch` are those of version 9."""
    Group, GroupTopic = m.OffsetFetchRequest.OffsetFetchRequestGroup, m.OffsetFetchRequest.OffsetFetchRequestTopics
    Topic = m.OffsetFetchRequest.OffsetFetchRequestTopic
    asked = None if topics is None else list(topics)
    of_group = {key: fields.pop(key) for key in ("member_id", "member_epoch") if key in fields}
    return m.OffsetFetchRequest(
        group_id=group,
        topics=None
        if asked is None
        else [Topic(name=name, partition_indexes=list(indexes)) for name, indexes in asked],
        groups=[
            Group(
                group_id=group,
                topics=None
                if asked is None
                else [GroupTopic(name=name, partition_indexes=list(indexes)) for name, indexes in asked],
                **of_group,
            )
        ],
        **fields,
    )


def describe(side: Side, *groups: str, version: int = 5) -> Answer:
    return side.ask(m.DescribeGroupsRequest(groups=list(groups)), version)


def described_as(side: Side, group: str, state: str) -> Answer:
    """The description once the group is in this state."""
    side.wait(lambda: describe(side, group).groups[0].group_state == state)
    return describe(side, group)


def become_member(client: Connection, group: str, version: int = 3, **fields: Any) -> Answer:
    """Join without the detour of a member id; the answer to the join."""
    joined = client.ask(join(group, **fields), version)
    assert joined.error_code == 0, joined
    return joined


def become_stable(client: Connection, group: str, version: int = 3, **fields: Any) -> Answer:
    """Be the only member of a Stable group; the answer to the join."""
    joined = become_member(client, group, version, **fields)
    instance = fields.get("group_instance_id")
    shares = {joined.member_id: b"share"}
    synced = client.ask(sync(group, joined.generation_id, joined.member_id, shares, group_instance_id=instance), 3)
    assert synced.error_code == 0, synced
    return joined
