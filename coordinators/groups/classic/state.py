"""The state of one consumer group (pure), and the transitions of its states (reference E.3; KIP-62, KIP-345, KIP-394).

The members of a group divide the partitions of the topics they read. One member, the leader, computes the assignment.
The coordinator passes it on, in two rounds:

    JoinGroup  Each member sends its protocols and waits until all known members have joined or the time is up. Then a
               new generation begins: all members get its number, and the leader also gets the list of members.
    SyncGroup  Each member waits for its assignment, until the leader's SyncGroup brings the assignments of all members.

When a member joins, changes or leaves, all members join again. The states:

    Empty                no members; the group may have committed offsets
    PreparingRebalance   the members have to join; JoinGroup requests wait
    CompletingRebalance  a generation has begun; SyncGroup requests wait for the leader's
    Stable               the assignments are stored; each member gets its own in reply to SyncGroup
    Dead                 the group expired or was deleted, or this broker lost the coordinator partition

A group has two parts. *Recorded*: the committed offsets, and the last generation whose assignments were stored. Only
`replay` (replay.py) changes this part, from records of the log: after each append, and when the log is loaded.
*Volatile*: all the rest, changed by the functions of this file and by those that decide. As in Kafka, a fail-over loses
it: the log does not say who is joining or waiting, nor the number of a generation before its assignments are known.
"""

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from enum import Enum

from barnabas.coordinators.groups.classic.events import JoinAnswer, JoinedMember, Protocols, SyncAnswer, Waiting
from barnabas.coordinators.groups.classic.subscriptions import EVERYTHING
from barnabas.coordinators.groups.offsets import CommittedOffsets
from barnabas.coordinators.groups.ports import GroupConfig
from barnabas.coordinators.groups.records import GroupMetadata, GroupMetadataRecord, RecordedMember
from barnabas.wire.errors import ErrorCode, InvariantBroken
from barnabas.wire.sentinels import NO_OFFSET

CONSUMER_PROTOCOL_TYPE = "consumer"
# What a member, a pending member id or a group takes in memory beside its strings, about.
MEMBER_BYTES = GROUP_BYTES = 2000


class GroupState(Enum):
    """The values are the names in DescribeGroups and ListGroups responses."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


# All transitions that exist, as in Kafka's GroupMetadata. Any other is a bug: `apply_transition` raises. Kafka also has
# Dead -> Dead; here a Dead group is removed from its shard at once, and gets no further event.
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


@dataclass(slots=True)
class Recorded(CommittedOffsets):
    """The part of a group that is in the log: its offsets, and the last generation."""

    metadata: GroupMetadata | None = None
    metadata_offset: int = NO_OFFSET  # of the newest group metadata record, a tombstone included

    @property
    def is_blank(self) -> bool:
        """Whether the log has nothing about the group: no record, or only tombstones."""
        return self.metadata is None and not self.offsets and not self.pending


@dataclass(slots=True, eq=False)
class Member:
    """One member of a group. `protocols` are pairs of name and metadata, the preferred one first."""

    # A member that was loaded from the log has only the protocol of its generation: the log has no other.

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    # True while the member waits for its first JoinGroup response. The client may not have its
    # member id yet, so it cannot send heartbeats.
    is_new: bool = False

    @property
    def held_bytes(self) -> int:
        """What it takes in memory, about."""
        return held_bytes(self.client_id, self.instance_id, self.protocols)

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for this protocol (for a consumer: its subscription); empty if it has none."""
        return metadata_in(self.protocols, protocol_name)


class Group:
    """One group: the recorded part in `recorded`, the volatile part in all other attributes."""

    # The slots are complete, because an attribute that is missing here cannot be set. `forget`
    # depends on that.
    __slots__ = (
        "generation",
        "group_id",
        "held_bytes",
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
        "subscribed",
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

        # The members' metadata when the current generation began. None before the first generation.
        self.subscriptions: tuple[bytes, ...] | None = None
        self.subscribed: Container[str] | None = None  # the topics in `subscriptions`, once they were read
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.protocol_counts: dict[str, int] = {}  # protocol -> how many members support it
        self.pending_members: dict[str, None] = {}  # member ids of MEMBER_ID_REQUIRED responses, not joined yet
        self.pending_syncs: dict[str, None] = {}  # members of this generation that have not sent SyncGroup

        # Waiting requests by member id. A member "has joined" while it is in `joins`.
        self.joins: dict[str, Waiting[JoinAnswer]] = {}
        self.syncs: dict[str, Waiting[SyncAnswer]] = {}

        # While an empty group waits for further members (`group.initial.rebalance.delay.ms`), this
        # says by how much the wait may still be extended. It is None at all other times.
        self.join_extension_ms: int | None = None
        self.newcomers = False  # whether members have joined since the last extension
        self.held_bytes = 0  # what its members and pending members take in memory, about

    def __repr__(self) -> str:
        return (
            f"<Group {self.group_id} {self.state.value} generation {self.generation} members {list(self.members)} "
            f"joins {list(self.joins)} syncs {list(self.syncs)}>"
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long each round of a rebalance may take: the longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)


# -- transitions


def apply_transition(group: Group, state: GroupState, now_ms: int) -> None:
    """Change the state. Raises InvariantBroken if VALID_PREVIOUS_STATES does not allow it."""
    if group.state not in VALID_PREVIOUS_STATES[state]:
        raise InvariantBroken(f"group {group.group_id} cannot go from {group.state.value} to {state.value}")
    group.state = state
    # The time is part of the group metadata record. The retention of an Empty group's offsets
    # counts from it.
    group.state_timestamp_ms = now_ms


def forget(group: Group) -> None:
    """Reset the volatile part to what the recorded part says: the state right after the group was loaded."""
    blank = Group(group.group_id, group.limits)

    # The names are from `__slots__`, so that an attribute that is added to Group cannot be missed
    # here.
    for name in Group.__slots__:
        if name != "recorded":
            setattr(group, name, getattr(blank, name))
    metadata = group.recorded.metadata

    # No generation is stored, but there may be offsets of simple commits: the group is Empty, without a protocol type.
    if metadata is None:
        return
    group.generation = metadata.generation
    group.protocol_type = metadata.protocol_type or None  # the record's field is not nullable: "" is none
    group.protocol_name = metadata.protocol

    # Versions 0 and 1 of the record have no timestamp (-1). Offsets then expire by the times of their commits.
    group.state_timestamp_ms = metadata.current_state_timestamp if metadata.current_state_timestamp >= 0 else None
    for recorded in metadata.members:
        apply_member_added(group, _loaded_member(recorded, metadata.protocol))

    # The leader is set after the members, as the first one that is added becomes the leader.
    group.leader_id = metadata.leader
    apply_subscribed(group)

    # A generation is stored together with its assignments, so a group with members is Stable.
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY


def _loaded_member(recorded: RecordedMember, protocol_name: str | None) -> Member:
    # The record has the metadata for the chosen protocol alone. Until this member rejoins, the group cannot change to
    # another protocol. `is_new` stays False: a stored member has got its member id, so its session timeout applies.
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
    """Add a member. The first member becomes the leader."""
    if member.instance_id is not None:
        group.static_members[member.instance_id] = member.member_id
    # A pending id keeps the first round open, so it must not outlive the join for which it was given.
    _remove_pending(group, member.member_id)
    group.members[member.member_id] = member
    if group.leader_id is None:
        group.leader_id = member.member_id
    _count(group, member, 1)


def apply_pending_added(group: Group, member_id: str) -> None:
    """Add a member id that a client got with MEMBER_ID_REQUIRED."""
    group.pending_members[member_id] = None
    group.held_bytes += MEMBER_BYTES + text_bytes(member_id)


def _remove_pending(group: Group, member_id: str) -> None:
    if member_id in group.pending_members:
        del group.pending_members[member_id]
        group.held_bytes -= MEMBER_BYTES + text_bytes(member_id)


def apply_members_removed(group: Group, member_ids: Iterable[str]) -> None:
    """Remove members or pending member ids. If the leader is among them, the first of the others becomes the leader."""
    for member_id in member_ids:
        _remove_pending(group, member_id)
        group.pending_syncs.pop(member_id, None)
        member = group.members.pop(member_id, None)
        # `member_id` is at most a pending id, which has no counted protocols, no instance id and
        # not the leadership.
        if member is None:
            continue
        if member.instance_id is not None and group.static_members.get(member.instance_id) == member_id:
            del group.static_members[member.instance_id]
        _count(group, member, -1)
    # This leader is provisional: the remaining members have to join again, and `_begin_generation`
    # takes a leader that has joined. It is chosen after the loop, once for all removals, because
    # `next(iter(...))` of a dict first steps over all entries that were removed from its front.
    if group.leader_id not in group.members:
        group.leader_id = next(iter(group.members), None)


def apply_member_updated(
    group: Group, member: Member, protocols: Protocols, session_timeout_ms: int, rebalance_timeout_ms: int
) -> None:
    """Take the protocols and timeouts of a member's new JoinGroup."""
    # The counts follow `protocols`, so the old ones are subtracted before the change.
    _count(group, member, -1)
    member.protocols = protocols
    member.session_timeout_ms = session_timeout_ms
    member.rebalance_timeout_ms = rebalance_timeout_ms
    _count(group, member, 1)


def apply_member_renamed(group: Group, old_member_id: str, new_member_id: str) -> Member:
    """Give a static member its new member id (KIP-345). It keeps its assignment, and the leadership if it has it."""
    member = group.members.pop(old_member_id)
    member.member_id = new_member_id
    group.members[new_member_id] = member
    # SyncGroup now comes with the new id. The old one would stay in `pending_syncs` until
    # SYNC_TIMER fires and begins a needless rebalance.
    if old_member_id in group.pending_syncs:
        del group.pending_syncs[old_member_id]
        group.pending_syncs[new_member_id] = None
    if member.instance_id is not None:
        group.static_members[member.instance_id] = new_member_id
    # When its topics get more partitions, the leader joins again to begin a rebalance of the Stable group
    # (`_join_known`). Under its new id it must still count as the leader then.
    if group.leader_id == old_member_id:
        group.leader_id = new_member_id
    return member


def apply_subscribed(group: Group) -> None:
    """Remember the current metadata of the members as the subscriptions of the generation that begins now."""
    # A member that joins again during a rebalance changes its `protocols`, but still reads the topics of the current
    # generation until the next one begins.
    group.subscriptions = tuple(member.metadata(group.protocol_name) for member in group.members.values())
    group.subscribed = None


def _count(group: Group, member: Member, change: int) -> None:
    """Add a member's memory and protocols to the counts (`change` 1), or subtract them (-1)."""
    group.held_bytes += change * member.held_bytes
    # A client may list a protocol twice. It counts once, or the count would exceed the number of members.
    for name in {name: None for name, _ in member.protocols}:
        count = group.protocol_counts.get(name, 0) + change
        if count:
            group.protocol_counts[name] = count
        else:
            del group.protocol_counts[name]


# -- queries


def held_bytes(client_id: str, instance_id: str | None, protocols: Protocols) -> int:
    """What a member with these strings takes in memory, about."""
    # Client id and instance id count twice, because the member id begins with one of them.
    strings = 2 * (text_bytes(client_id) + text_bytes(instance_id or ""))
    return MEMBER_BYTES + strings + sum(text_bytes(name) + len(metadata) for name, metadata in protocols)


def text_bytes(text: str) -> int:
    """What the characters of a text take in memory, at most."""
    return len(text) if text.isascii() else 4 * len(text)


def supports_protocols(group: Group, protocol_type: str, protocols: Protocols) -> bool:
    """Whether a member with these protocols may join: at least one of them must be supported by all members."""
    if group.state is GroupState.EMPTY:
        return bool(protocol_type and protocols)
    if protocol_type != group.protocol_type:
        return False
    # This check keeps the invariant that `_elect` needs: the members always have a protocol in common.
    return any(group.protocol_counts.get(name, 0) == len(group.members) for name, _ in protocols)


def metadata_in(protocols: Protocols, protocol_name: str | None) -> bytes:
    """The metadata for this protocol; empty if it is not among these."""
    for name, metadata in protocols:
        if name == protocol_name:
            return metadata
    return b""


def choose_protocol(group: Group) -> str:
    """The protocol of the next generation (Kafka's selectProtocol). Raises InvariantBroken if none is common to all.

    Each member votes for the first of its protocols that all members support; the one with the most votes wins.
    """
    common = [name for name, count in group.protocol_counts.items() if count == len(group.members)]
    return _elect((member.protocols for member in group.members.values()), common)


def keeps_protocol(group: Group, member: Member, protocols: Protocols) -> bool:
    """Whether the current protocol would be chosen if this member had these protocols."""
    before, after = ({name: None for name, _ in each} for each in (member.protocols, protocols))
    # Usually the member lists the same protocols in the same order, so it votes as before.
    if list(before) == list(after):
        return True
    counts = group.protocol_counts
    common = [name for name in after if counts.get(name, 0) + (name not in before) == len(group.members)]
    votes = (protocols if each is member else each.protocols for each in group.members.values())
    return _elect(votes, common) == group.protocol_name


def _elect(votes: Iterable[Protocols], common: Collection[str]) -> str:
    if not common:
        raise InvariantBroken("the members of a group have no protocol in common")
    # A single candidate wins whatever the votes are, so the pass over all members is saved.
    if len(common) == 1:
        return next(iter(common))
    counts: dict[str, int] = {}
    # Each member has one vote, for the first common protocol in its list: the preferred one comes
    # first.
    for protocols in votes:
        for name, _ in protocols:
            if name in common:
                counts[name] = counts.get(name, 0) + 1
                break
    return max(counts, key=counts.__getitem__)  # a tie goes to the protocol that got its first vote first


def current_members(group: Group) -> tuple[JoinedMember, ...]:
    """The list of members for the leader, each with its metadata for the protocol of the generation."""
    return tuple(
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    )


def subscribed_topics(group: Group) -> Container[str] | None:
    """The topics to which the members of the current generation subscribe; None if `subscribed` is yet to be read.

    EVERYTHING if they are unknown: not a consumer group, or no generation yet.
    """
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.subscriptions is None:
        return EVERYTHING
    return group.subscribed


def refusal_of_member(group: Group, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE if this is a member; otherwise UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID (Kafka's validateCurrentMember)."""
    # Fencing comes first: the old member id of a restarted static member is unknown, but the client must stop instead
    # of joining again (KIP-345).
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
    """The group metadata record of this generation. A member without an assignment gets an empty one, as in Kafka."""
    # Leader, members and assignments are arguments: assignments and a new member id take effect in the group only when
    # their record is in the log (`apply_stored`). If the append fails, the group is still as it was.
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
