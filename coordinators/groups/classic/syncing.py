"""SyncGroup (pure): the leader's request brings the assignments of all members, and each member gets its own.

The assignments are stored first. Only then the group is Stable, and the waiting requests are answered. If they cannot
be stored, no member gets one, and all join again.
"""

from collections.abc import Iterable

from barnabas.coordinators.groups.classic.events import (
    SYNC_TIMER,
    AssignmentNotReplicated,
    Decision,
    StoreAssignment,
    Sync,
    SyncAnswer,
)
from barnabas.coordinators.groups.classic.rebalance import end_sync, prepare_rebalance, restart_session
from barnabas.coordinators.groups.classic.state import (
    Group,
    GroupState,
    Member,
    apply_transition,
    metadata_record,
    refusal_of_member,
)
from barnabas.coordinators.groups.records import GroupMetadataRecord, GroupRecord
from barnabas.wire.errors import ErrorCode


def decide_sync(group: Group, sync: Sync, decision: Decision) -> None:
    """Answer a member with its assignment, or let it wait for the leader's request, which stores all assignments.

    Error answers: those of `refusal_of_member`, ILLEGAL_GENERATION, INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
    """
    refused = _refusal_of_sync(group, sync)
    if refused:
        decision.reply(sync.waiting, SyncAnswer(refused))
        return
    member_id = sync.member_id

    # Kafka's pending sync: until all members have sent SyncGroup the timer runs, which removes those that have not.
    # It also runs in a Stable group, as the leader may be faster than the others.
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        decision.timers[SYNC_TIMER] = None
    if group.state is GroupState.STABLE:
        _reply_assignment(group, group.members[member_id], sync, decision)
        return

    # The client has given up the connection of its earlier request.
    earlier = group.syncs.get(member_id)
    if earlier is not None:
        decision.reply(earlier, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncs[member_id] = sync.waiting

    # The leader itself waits in `syncs`, too: `apply_assignment_stored` answers all of them.
    if member_id == group.leader_id:
        made = sync.made
        records: list[GroupRecord] = [] if made is None else made.records
        if made is None:
            records.append(assignment_record(group, group.members.values(), sync))
        decision.store(records, StoreAssignment(group.generation, sync.assignments), made)


def brings_assignments(group: Group, sync: Sync) -> bool:
    """Whether this is the request of the leader that the members of the generation wait for."""
    waits = group.state is GroupState.COMPLETING_REBALANCE and sync.member_id == group.leader_id
    return waits and not _refusal_of_sync(group, sync)


def assignment_record(group: Group, members: Iterable[Member], sync: Sync) -> GroupMetadataRecord:
    """The record of this generation with the leader's assignments."""
    return metadata_record(group, members, group.leader_id, sync.assignments)


def _refusal_of_sync(group: Group, sync: Sync) -> ErrorCode:
    refused = refusal_of_member(group, sync.member_id, sync.instance_id)
    if refused:
        return refused
    if sync.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # Clients send neither type nor name before SyncGroup v5 (KIP-559).
    if sync.protocol_type is not None and sync.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sync.protocol_name is not None and sync.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _reply_assignment(group: Group, member: Member, sync: Sync, decision: Decision) -> None:
    restart_session(member, decision)
    # The record may have been appended just now: an assignment that is not committed can still be lost.
    decision.reply(sync.waiting, _assignment_answer(group, member), group.recorded.metadata_offset)


def _assignment_answer(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name)


def apply_assignment_stored(group: Group, intent: StoreAssignment, now_ms: int, decision: Decision) -> None:
    """The assignments are stored: the group is Stable, and each waiting member gets its own."""
    # A member that the leader left out gets an empty assignment, as in Kafka. Assignments for others are ignored.
    for member_id, member in group.members.items():
        member.assignment = intent.assignments.get(member_id, b"")
    apply_transition(group, GroupState.STABLE, now_ms)
    # Replay has set `metadata_offset` to the record with these assignments.
    for member_id, waiting in group.syncs.items():
        member = group.members[member_id]
        decision.reply(waiting, _assignment_answer(group, member), group.recorded.metadata_offset)
        restart_session(member, decision)
    group.syncs.clear()
    decision.notes.append(f"is stable in generation {group.generation}")


def apply_assignment_refused(group: Group, error: ErrorCode, now_ms: int, decision: Decision) -> None:
    """The assignments could not be stored: waiting requests get the error, and all members join again."""
    end_sync(group, error, decision)
    prepare_rebalance(group, "the assignment could not be stored", now_ms, decision)


def apply_assignment_lost(group: Group, lost: AssignmentNotReplicated, now_ms: int, decision: Decision) -> None:
    """The assignments were not committed in time, and a member got an error for that: all members join again."""
    # Each waiting member reports this. The first report begins the rebalance, the others find it under way, or a newer
    # generation.
    if group.generation == lost.generation:
        prepare_rebalance(group, "the assignment was not replicated in time", now_ms, decision)
