"""What ListGroups and DescribeGroups show of a group (pure)."""

from typing import NamedTuple

from barnabas.coordinators.groups.classic.state import Group, GroupState
from barnabas.wire.sentinels import NO_OFFSET

CLASSIC_TYPE = "classic"


class DescribedMember(NamedTuple):
    """A member; `metadata` and `assignment` are empty unless the group is Stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class Description(NamedTuple):
    """A group and its members. `protocol_data` is the name of the protocol, empty unless the group is Stable."""

    state: str
    protocol_type: str = ""
    protocol_data: str = ""
    members: tuple[DescribedMember, ...] = ()


class Overview(NamedTuple):
    """A group in ListGroups."""

    group_id: str
    protocol_type: str
    state: str
    type: str = CLASSIC_TYPE


UNKNOWN_GROUP = Description(GroupState.DEAD.value)  # as Kafka describes a group that does not exist


def describe(group: Group) -> Description:
    """The group for DescribeGroups, in its current state."""
    # Subscriptions and assignments are about to change during a rebalance, so they are left out, as
    # in Kafka.
    stable = group.state is GroupState.STABLE

    # Everything is a copy: the caller waits for the high watermark, and the group may change
    # meanwhile.
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
    """The group for ListGroups."""
    # "" for a group of simple commits, as in Kafka: Java's admin client shows it as a simple consumer group.
    return Overview(group.group_id, group.protocol_type or "", group.state.value)


def shown_after_offset(group: Group) -> int:
    """The offset of the record that the shown state depends on; NO_OFFSET if there is none."""
    # Stable and Empty are stored, so they are shown once their record is committed: otherwise a new coordinator could
    # show an older state afterwards. A rebalance is in memory only.
    resting = group.state in (GroupState.STABLE, GroupState.EMPTY)
    return group.recorded.metadata_offset if resting else NO_OFFSET
