"""The state of one consumer group (pure), and the table of its states (reference E.3; KIP-62, KIP-345, KIP-394).

Theory of operation
-------------------
The members of a group divide the partitions they read. Who gets what is decided by one of them, the leader, on its
own; the coordinator only brings them together, in two rounds:

    JoinGroup  everybody says what it can do and waits, until all known members are there or time is up; then a new
               generation begins: all learn its number, the leader also its members.
    SyncGroup  everybody asks for its assignment and waits, until the leader's SyncGroup brings the assignments of all.

A member that appears, changes or vanishes makes everybody join again. The states say where in this round a group is:

    Empty                no members; offsets at most
    PreparingRebalance   members are expected to join; JoinGroup requests wait
    CompletingRebalance  a generation has begun; SyncGroup requests wait for the leader's
    Stable               everybody has, or can have, its assignment
    Dead                 gone: expired, or this broker lost the coordinator partition

`VALID_PREVIOUS_STATES` is the whole truth about moves between them; a move that is not in it is a bug of ours.

Two parts
---------
*Recorded*: committed offsets, and the last generation whose assignments were stored. Only `replay` (replay.py) changes
it, from the records of the log: right after an append, at a restart, at a fail-over. *Volatile*: everything else here,
changed by the functions of this file and of those that decide. Kafka does not log who is joining, who waits, nor even
the number of a generation before its assignments are known; a fail-over loses all that, and `forget` does so on
purpose.

Who waits for an answer is in `joins` or `syncs`, by member id; that is also what "has joined" means.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from barnabas.broker.groups.events import JoinAnswer, JoinedMember, Protocols, SyncAnswer, Waiting
from barnabas.broker.groups.ports import GroupConfig
from barnabas.broker.groups.records import Commit, GroupMetadata, GroupMetadataRecord, RecordedMember
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, ProtocolViolation
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"
SUBSCRIPTION_VERSION_BYTES = 2  # stands in front of a subscription; its version 0 is a prefix of all later ones


class GroupState(Enum):
    """The value is the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY},
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: {
        GroupState.EMPTY,
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.STABLE,
    },
}


class StoredOffset(NamedTuple):
    """A committed offset, and the offset of the record that says so."""

    commit: Commit
    at_offset: int


@dataclass(slots=True)
class Recorded:
    """What the log says of a group."""

    metadata: GroupMetadata | None = None
    metadata_offset: int = NO_OFFSET  # of the newest record about the group itself
    offsets: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    forgotten_offset: int = NO_OFFSET  # of the newest tombstone of a committed offset
    # Offsets of transactions that are still open, by producer id (KIP-98).
    pending: dict[int, dict[TopicPartition, StoredOffset]] = field(default_factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether the log says nothing of the group (any more)."""
        return self.metadata is None and not self.offsets and not self.pending


@dataclass(slots=True, eq=False)
class Member:
    """One member. Loaded from the log it has only the protocol that its generation had chosen."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # it has not seen its member id yet, so it cannot send heartbeats

    def metadata(self, protocol_name: str | None) -> bytes:
        """What this member said about itself under this protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""


class Group:
    """One group: `recorded`, and the volatile rest."""

    __slots__ = (
        "generation",
        "group_id",
        "join_extension_ms",
        "joins",
        "leader_id",
        "limits",
        "members",
        "newcomers",
        "pending_members",
        "pending_syncs",
        "protocol_counts",
        "protocol_name",
        "protocol_type",
        "recorded",
        "state",
        "state_timestamp_ms",
        "static_members",
        "subscriptions",
        "syncs",
    )

    def __init__(self, group_id: str, limits: GroupConfig, now_ms: int | None = None) -> None:
        self.group_id = group_id
        self.limits = limits
        self.recorded = Recorded()
        self.state = GroupState.EMPTY
        self.state_timestamp_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader_id: str | None = None
        self.subscriptions: tuple[bytes, ...] | None = None  # what the members of the generation said; None: none began
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.protocol_counts: dict[str, int] = {}  # how many members support each protocol
        self.pending_members: dict[str, None] = {}  # ids that were handed out and have not joined yet
        self.pending_syncs: dict[str, None] = {}  # members of this generation that have not asked for their assignment
        self.joins: dict[str, Waiting[JoinAnswer]] = {}
        self.syncs: dict[str, Waiting[SyncAnswer]] = {}
        # While the first rebalance of an empty group waits for further members: how much longer it may (else None),
        # and whether some came since it last looked.
        self.join_extension_ms: int | None = None
        self.newcomers = False

    def __repr__(self) -> str:
        return (
            f"<Group {self.group_id} {self.state.value} generation {self.generation} members {list(self.members)} "
            f"joins {list(self.joins)} syncs {list(self.syncs)}>"
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a rebalance may take: what the most patient member allows."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)


# -- moves


def apply_transition(group: Group, state: GroupState, now_ms: int) -> None:
    """Move to another state; InvariantBroken when the table knows no such move."""
    if group.state not in VALID_PREVIOUS_STATES[state]:
        raise InvariantBroken(f"group {group.group_id} cannot go from {group.state.value} to {state.value}")
    group.state = state
    group.state_timestamp_ms = now_ms


def forget(group: Group) -> None:
    """Lose the volatile part: what stays is what a coordinator knows that has just loaded the group."""
    blank = Group(group.group_id, group.limits)
    for name in Group.__slots__:
        if name != "recorded":
            setattr(group, name, getattr(blank, name))
    metadata = group.recorded.metadata
    if metadata is None:
        return
    group.generation = metadata.generation
    group.protocol_type = metadata.protocol_type or None
    group.protocol_name = metadata.protocol
    group.state_timestamp_ms = metadata.current_state_timestamp if metadata.current_state_timestamp >= 0 else None
    for recorded in metadata.members:
        apply_member_added(group, _loaded_member(recorded, metadata.protocol))
    group.leader_id = metadata.leader
    apply_subscribed(group)
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY


def _loaded_member(recorded: RecordedMember, protocol_name: str | None) -> Member:
    return Member(
        member_id=recorded.member_id,
        instance_id=recorded.group_instance_id,
        client_id=recorded.client_id,
        client_host=recorded.client_host,
        session_timeout_ms=recorded.session_timeout,
        rebalance_timeout_ms=recorded.rebalance_timeout,
        protocols=((protocol_name or "", recorded.subscription),),
        assignment=recorded.assignment,
    )


# -- members


def apply_member_added(group: Group, member: Member) -> None:
    """A member enters; the first one leads, and decides what type of group this is."""
    if member.instance_id is not None:
        group.static_members[member.instance_id] = member.member_id
    group.pending_members.pop(member.member_id, None)
    group.members[member.member_id] = member
    if group.leader_id is None:
        group.leader_id = member.member_id
    _count_protocols(group, member, 1)


def apply_member_removed(group: Group, member_id: str) -> None:
    """A member, or an id that was handed out, is gone; the first of the others leads."""
    group.pending_members.pop(member_id, None)
    group.pending_syncs.pop(member_id, None)
    member = group.members.pop(member_id, None)
    if member is None:
        return
    if member.instance_id is not None and group.static_members.get(member.instance_id) == member_id:
        del group.static_members[member.instance_id]
    _count_protocols(group, member, -1)
    if group.leader_id == member_id:
        group.leader_id = next(iter(group.members), None)


def apply_member_updated(
    group: Group, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int
) -> None:
    """A member joined again and may say something else about itself."""
    _count_protocols(group, member, -1)
    member.protocols = protocols
    member.session_timeout_ms = session_timeout_ms
    member.rebalance_timeout_ms = rebalance_timeout_ms
    _count_protocols(group, member, 1)


def apply_member_renamed(group: Group, old_member_id: str, new_member_id: str) -> Member:
    """A static member came back: its place, its assignment and perhaps its leadership go to the new member id."""
    member = group.members.pop(old_member_id)
    member.member_id = new_member_id
    group.members[new_member_id] = member
    if old_member_id in group.pending_syncs:
        del group.pending_syncs[old_member_id]
        group.pending_syncs[new_member_id] = None
    if member.instance_id is not None:
        group.static_members[member.instance_id] = new_member_id
    if group.leader_id == old_member_id:
        group.leader_id = new_member_id
    return member


def apply_subscribed(group: Group) -> None:
    """A generation begins: until the next one its members read what they say now."""
    group.subscriptions = tuple(member.metadata(group.protocol_name) for member in group.members.values())


def _count_protocols(group: Group, member: Member, change: int) -> None:
    for name in {name: None for name, _ in member.protocols}:
        count = group.protocol_counts.get(name, 0) + change
        if count:
            group.protocol_counts[name] = count
        else:
            del group.protocol_counts[name]


# -- questions


def supports_protocols(group: Group, protocol_type: str, protocols: Protocols) -> bool:
    """Whether a member with these protocols fits: all members must have one in common with it."""
    if group.state is GroupState.EMPTY:
        return bool(protocol_type and protocols)
    if protocol_type != group.protocol_type:
        return False
    return any(group.protocol_counts.get(name, 0) == len(group.members) for name, _ in protocols)


def choose_protocol(members: Collection[Member]) -> str:
    """The protocol of the next generation: each member votes for the first of its own that all support."""
    counts: dict[str, int] = {}
    for member in members:
        for name in {name: None for name, _ in member.protocols}:
            counts[name] = counts.get(name, 0) + 1
    return _elect(members, [name for name, count in counts.items() if count == len(members)])


def choose_own_protocol(group: Group) -> str:
    """The same for the group as it stands, whose protocols are counted."""
    return _elect(
        group.members.values(), [name for name, n in group.protocol_counts.items() if n == len(group.members)]
    )


def _elect(voters: Iterable[Member], common: Collection[str]) -> str:
    if not common:
        raise InvariantBroken("the members of a group have no protocol in common")
    if len(common) == 1:
        return next(iter(common))
    votes: dict[str, int] = {}
    for voter in voters:
        for name, _ in voter.protocols:
            if name in common:
                votes[name] = votes.get(name, 0) + 1
                break
    return max(votes, key=votes.__getitem__)  # of equal ones the first that was named


def current_members(group: Group) -> tuple[JoinedMember, ...]:
    """What the leader of the generation learns of each member."""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    )


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """The topics that the generation of a consumer group reads, as far as the broker can tell; None when it cannot."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.subscriptions is None:
        return None
    topics: set[str] = set()
    for subscription in dict.fromkeys(group.subscriptions):
        try:
            topics.update(m.decode(m.ConsumerProtocolSubscription, 0, subscription, SUBSCRIPTION_VERSION_BYTES).topics)
        except ProtocolViolation:
            return None
    return frozenset(topics)


def refusal_of_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """Whether this is a member: known, and not fenced by a newer one with its instance id."""
    if instance_id is not None:
        current = group.static_members.get(instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def metadata_record(
    group: Group, members: Iterable[Member], leader_id: str | None, assignments: dict[str, bytes]
) -> GroupMetadataRecord:
    """The record of a generation in which each member has the given assignment."""
    return GroupMetadataRecord(
        group.group_id,
        GroupMetadata(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=leader_id,
            current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
            members=[
                RecordedMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in members
            ],
        ),
    )
