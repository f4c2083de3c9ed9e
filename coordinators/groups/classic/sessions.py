"""Sessions (pure): Heartbeat, LeaveGroup and timers, and what follows when a group is loaded or unloaded.

Each member has a session timer, which each of its requests restarts. The JOIN timer ends the first round of a
rebalance. The SYNC timer removes members that have not sent SyncGroup in time.
"""

from itertools import islice

from barnabas.coordinators.groups.classic.events import (
    Answer,
    Answered,
    Decision,
    Forgotten,
    Heartbeat,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    Shed,
    SyncAnswer,
    Timer,
    TimerKind,
    Waiting,
)
from barnabas.coordinators.groups.classic.rebalance import (
    after_loss,
    complete_join_if_all_joined,
    drop,
    drop_late,
    join_time_is_over,
    prepare_rebalance,
    remove,
    restart_session,
)
from barnabas.coordinators.groups.classic.state import Group, GroupState, apply_transition, refusal_of_member
from barnabas.wire.errors import ErrorCode

# -- Heartbeat, LeaveGroup


def decide_heartbeat(group: Group, heartbeat: Heartbeat, decision: Decision) -> None:
    """Restart a member's session. The answer REBALANCE_IN_PROGRESS makes the member join again.

    Other errors: those of `refusal_of_member`, ILLEGAL_GENERATION.
    """
    error = refusal_of_member(group, heartbeat.member_id, heartbeat.instance_id)
    if not error and heartbeat.generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if not error:
        member = group.members[heartbeat.member_id]
        restart_session(member, decision)
        # A member in CompletingRebalance gets no error: it has rejoined already, and waits for its
        # assignment.
        if group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    decision.reply(heartbeat.waiting, error)


def decide_leave(group: Group, leave: Leave, now_ms: int, decision: Decision) -> None:
    """Remove members: each for itself, or static members by an administrator (KIP-345). One error code for each."""
    errors = tuple(_leave(group, leaving, now_ms, decision) for leaving in leave.members)
    decision.reply(leave.waiting, LeaveAnswer(ErrorCode.NONE, errors))


def _leave(group: Group, leaving: LeavingMember, now_ms: int, decision: Decision) -> ErrorCode:
    member_id = leaving.member_id

    # An administrator names the instance id alone.
    if member_id == "":
        known = None if leaving.instance_id is None else group.static_members.get(leaving.instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    # A pending id is no member yet, so there is no assignment to change. But a round may be waiting
    # for it.
    elif member_id in group.pending_members:
        drop(group, [member_id], decision)
        complete_join_if_all_joined(group, now_ms, decision)
        return ErrorCode.NONE
    else:
        refused = refusal_of_member(group, member_id, leaving.instance_id)
        if refused:
            return refused

    remove(group, member_id, f"{member_id} leaves, {leaving.reason or 'no reason given'}", now_ms, decision)
    return ErrorCode.NONE


# -- timers, and requests whose clients are gone


def apply_timer(group: Group, timer: Timer, now_ms: int, decision: Decision) -> None:
    """A timer of the group ended."""
    if timer.kind is TimerKind.JOIN:
        join_time_is_over(group, now_ms, decision)
    elif timer.kind is TimerKind.SYNC:
        # A timer of a round that is over has no effect.
        if group.pending_syncs:
            drop_late(group, now_ms, decision)
    else:
        _member_time_is_over(group, timer.member_id, now_ms, decision)


def _member_time_is_over(group: Group, member_id: str, now_ms: int, decision: Decision) -> None:
    # The client never joined with its id. A round that waits only for it can end.
    if member_id in group.pending_members:
        drop(group, [member_id], decision)
        complete_join_if_all_joined(group, now_ms, decision)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    # A client need not send heartbeats while its request waits, and the response restarts its session.
    # A new member's timer is the limit of that wait (`NEW_MEMBER_JOIN_TIMEOUT_MS`), so it does end.
    if not member.is_new and (member_id in group.joins or member_id in group.syncs):
        return
    remove(group, member_id, f"the session of {member_id} is over", now_ms, decision)


def apply_forgotten(group: Group, forgotten: Forgotten, decision: Decision) -> None:
    """The client of a waiting request has disconnected: the member counts as not joined, and its session begins."""
    # Without a timer the member would stay for ever: its session timer may have ended while it waited.
    for member_id in _let_go(group.joins, forgotten.waiting) + _let_go(group.syncs, forgotten.waiting):
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = group.members[member_id].session_timeout_ms


def _let_go(waiters: dict[str, Waiting[Answer]], given_up: object) -> list[str]:
    members = [member_id for member_id, waiting in waiters.items() if waiting is given_up]
    for member_id in members:
        del waiters[member_id]
    return members


def apply_answered(group: Group, answered: Answered, decision: Decision) -> None:
    """A reply had to wait for the high watermark: the member's session begins now, not at the decision."""
    # The member may have left meanwhile.
    member = group.members.get(answered.member_id)
    if member is not None:
        restart_session(member, decision)


# -- memory

# Members that one event drops. If they are not enough, `make_room` sheds again.
SHED_AT_A_TIME = 100


def decide_shed(group: Group, shed: Shed, now_ms: int, decision: Decision) -> None:
    """Drop what others need the memory of: pending member ids, the oldest first, or else the newest members."""
    are_pending = bool(group.pending_members)
    member_ids = list(islice(group.pending_members if are_pending else reversed(group.members), SHED_AT_A_TIME))
    left_bytes = group.held_bytes - shed.wanted_bytes
    dropped = 0
    while dropped < len(member_ids) and group.held_bytes > left_bytes:
        drop(group, member_ids[dropped : dropped + 1], decision)
        dropped += 1

    reason = "are dropped: the members of all groups take group.members.max.bytes"
    if are_pending:
        decision.notes.append(f"{dropped} member ids that have not joined {reason}")
        complete_join_if_all_joined(group, now_ms, decision)
    elif dropped:
        after_loss(group, f"{dropped} members {reason}", now_ms, decision)


# -- loaded and unloaded


def decide_loaded(group: Group, now_ms: int, decision: Decision) -> None:
    """The group was loaded: restart all sessions, and begin a rebalance if it has too many members."""
    # The log does not say when a member's session ends, and its heartbeats went to the former coordinator.
    for member in group.members.values():
        restart_session(member, decision)
    # In the rebalance the last ones to rejoin are refused (`_has_room` in joining.py).
    if len(group.members) > group.limits.group_max_size:
        prepare_rebalance(group, "it was loaded with more members than group.max.size", now_ms, decision)


def apply_unloaded(group: Group, error: ErrorCode, now_ms: int) -> Decision:
    """This broker no longer serves the group: waiting requests get `error`, and the group is Dead."""
    # There are no records and no timers: the group belongs to another coordinator now, or will be
    # loaded again.
    decision = Decision()
    for member_id, joining in group.joins.items():
        decision.reply(joining, JoinAnswer(error, member_id))
    for syncing in group.syncs.values():
        decision.reply(syncing, SyncAnswer(error))
    group.joins.clear()
    group.syncs.clear()
    if group.state is not GroupState.DEAD:
        apply_transition(group, GroupState.DEAD, now_ms)
    return decision
