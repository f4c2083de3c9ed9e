"""SyncGroup (pure): the leader brings the assignments of all, everybody takes its own.

The assignments are stored first; only then the group is Stable and those who wait are answered. Assignments that cannot
be stored are assigned to no member: all join again.
"""

from barnabas.broker.groups.events import (
    SYNC_TIMER,
    AssignmentNotReplicated,
    Decision,
    StoreAssignment,
    Sync,
    SyncAnswer,
)
from barnabas.broker.groups.rebalance import end_sync, prepare_rebalance, restart_session
from barnabas.broker.groups.state import (
    Group,
    GroupState,
    Member,
    apply_transition,
    metadata_record,
    refusal_of_member,
)
from barnabas.wire.errors import ErrorCode


def decide_sync(group: Group, sync: Sync, decision: Decision) -> None:
    """A member asks for its assignment; the leader brings all of them."""
    refused = _refusal_of_sync(group, sync)
    if refused:
        decision.reply(sync.waiting, SyncAnswer(refused))
        return
    member_id = sync.member_id
    group.pending_syncs.pop(member_id, None)
    if not group.pending_syncs:
        decision.timers[SYNC_TIMER] = None
    if group.state is GroupState.STABLE:
        _give_share(group, group.members[member_id], sync, decision)
        return
    earlier = group.syncs.get(member_id)
    if earlier is not None:
        decision.reply(earlier, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
    group.syncs[member_id] = sync.waiting
    if member_id == group.leader_id:
        record = metadata_record(group, group.members.values(), group.leader_id, sync.assignments)
        decision.store([record], StoreAssignment(group.generation, sync.assignments))


def _refusal_of_sync(group: Group, sync: Sync) -> ErrorCode:
    refused = refusal_of_member(group, sync.member_id, sync.instance_id)
    if refused:
        return refused
    if sync.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if sync.protocol_type is not None and sync.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if sync.protocol_name is not None and sync.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _give_share(group: Group, member: Member, sync: Sync, decision: Decision) -> None:
    restart_session(member, decision)
    decision.reply(sync.waiting, _share_answer(group, member), group.recorded.metadata_offset)


def _share_answer(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name)


def apply_assignment_stored(group: Group, intent: StoreAssignment, now_ms: int, decision: Decision) -> None:
    """The assignments are dealt: the group is Stable, and who waits gets its own."""
    for member_id, member in group.members.items():
        member.assignment = intent.assignments.get(member_id, b"")
    apply_transition(group, GroupState.STABLE, now_ms)
    for member_id, waiting in group.syncs.items():
        member = group.members[member_id]
        decision.reply(waiting, _share_answer(group, member), group.recorded.metadata_offset)
        restart_session(member, decision)
    group.syncs.clear()
    decision.notes.append(f"is stable in generation {group.generation}")


def apply_assignment_refused(group: Group, error: ErrorCode, now_ms: int, decision: Decision) -> None:
    """The assignments could not be stored: all who wait get the error, and all join again."""
    end_sync(group, error, decision)
    prepare_rebalance(group, "the assignment could not be stored", now_ms, decision)


def apply_assignment_lost(group: Group, lost: AssignmentNotReplicated, now_ms: int, decision: Decision) -> None:
    """Members that waited for this generation's assignments got an error: all join again."""
    if group.generation == lost.generation:
        prepare_rebalance(group, "the assignment was not replicated in time", now_ms, decision)
