"""What an administrator is shown of a group (pure): ListGroups and DescribeGroups.

Assignments and subscriptions are shown of a Stable group only; in between they are on their way.
"""

from typing import NamedTuple

from barnabas.broker.groups.state import Group, GroupState
from barnabas.wire.sentinels import NO_OFFSET

CLASSIC_TYPE = "classic"


class DescribedMember(NamedTuple):
    """A member, as far as it may be shown now."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Description(NamedTuple):
    """A group and its members."""

    state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class Overview(NamedTuple):
    """One line about a group."""

    group_id: str
    protocol_type: str
    state: str
    type: str = CLASSIC_TYPE


UNKNOWN_GROUP = Description(GroupState.DEAD.value)


def describe(group: Group) -> Description:
    """The group as it stands."""
    stable = group.state is GroupState.STABLE
    return Description(
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol_name) if stable else b"",
                assignment=member.assignment if stable else b"",
            )
            for member in group.members.values()
        ),
    )


def overview(group: Group) -> Overview:
    """The group in one line."""
    return Overview(group.group_id, group.protocol_type or "", group.state.value)


def shown_after_offset(group: Group) -> int:
    """The record on which the shown state rests: a rebalance in progress rests on none."""
    resting = group.state in (GroupState.STABLE, GroupState.EMPTY)
    return group.recorded.metadata_offset if resting else NO_OFFSET
