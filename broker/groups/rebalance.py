"""The two rounds of a rebalance (pure): everybody joins, everybody gets its assignment (see state.py).

A rebalance begins when a member joins, changes, leaves or is lost. The first round ends when all known members have
joined, or when the most patient one would have given up; who has not come by then is dropped. An empty group waits
`group.initial.rebalance.delay.ms` for members that are about to start, and longer while more of them come, instead of
sharing out again for each (KIP-134).

These functions change the volatile part of a group and write what follows into a `Decision`.
"""

from barnabas.broker.groups.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Decision,
    JoinAnswer,
    StoreEmptiness,
    SyncAnswer,
    Timer,
    TimerKind,
)
from barnabas.broker.groups.state import (
    Group,
    GroupState,
    Member,
    apply_member_removed,
    apply_subscribed,
    apply_transition,
    choose_own_protocol,
    current_members,
    metadata_record,
)
from barnabas.wire.errors import ErrorCode


def prepare_rebalance(group: Group, reason: str, now_ms: int, decision: Decision) -> None:
    """Let everybody join again, unless they are at it."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        end_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, decision)
    decision.timers[SYNC_TIMER] = None
    was_empty = group.state is GroupState.EMPTY
    apply_transition(group, GroupState.PREPARING_REBALANCE, now_ms)
    decision.notes.append(f"prepares a rebalance, generation {group.generation} ends: {reason}")
    patience_ms = group.rebalance_timeout_ms
    if was_empty:
        delay_ms = group.limits.group_initial_rebalance_delay_ms
        if delay_ms == 0:
            _complete_join(group, now_ms, decision)
        else:
            group.newcomers = False
            group.join_extension_ms = max(patience_ms - delay_ms, 0)
            decision.timers[JOIN_TIMER] = delay_ms
    else:
        group.join_extension_ms = None
        decision.timers[JOIN_TIMER] = patience_ms
        complete_join_if_all_joined(group, now_ms, decision)


def complete_join_if_all_joined(group: Group, now_ms: int, decision: Decision) -> None:
    """End the first round early, when no member is missing. The initial delay is waited for to its end."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.join_extension_ms is None
        and len(group.joins) == len(group.members)
        and not group.pending_members
    ):
        _complete_join(group, now_ms, decision)


def join_time_is_over(group: Group, now_ms: int, decision: Decision) -> None:
    """An empty group waits a little longer for each newcomer, any other group does not."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.newcomers and group.join_extension_ms:
        group.newcomers = False
        delay_ms = min(group.limits.group_initial_rebalance_delay_ms, group.join_extension_ms)
        group.join_extension_ms -= delay_ms
        decision.timers[JOIN_TIMER] = delay_ms
    else:
        _complete_join(group, now_ms, decision)


def _complete_join(group: Group, now_ms: int, decision: Decision) -> None:
    """End the first round. Dynamic members that did not come are dropped; static ones keep their place."""
    group.join_extension_ms = None
    absent = [
        member_id
        for member_id, member in group.members.items()
        if member_id not in group.joins and member.instance_id is None
    ]
    for member_id in absent:
        drop(group, member_id, decision)
        decision.notes.append(f"drops {member_id}, which did not rejoin")
    if group.members and not group.joins:
        # Only static members are left and none has come: there is no member to lead, so wait for their sessions to end.
        decision.timers[JOIN_TIMER] = group.rebalance_timeout_ms
        return
    decision.timers[JOIN_TIMER] = None
    group.generation += 1
    if group.members:
        _begin_generation(group, now_ms, decision)
    else:
        group.protocol_name = None
        apply_subscribed(group)
        apply_transition(group, GroupState.EMPTY, now_ms)
        decision.store([metadata_record(group, (), group.leader_id, {})], StoreEmptiness())
        decision.notes.append(f"is empty in generation {group.generation}")


def _begin_generation(group: Group, now_ms: int, decision: Decision) -> None:
    """Tell everybody, and expect them to ask for their assignments. A leader that did not join is replaced."""
    if group.leader_id not in group.joins:
        group.leader_id = next(member_id for member_id in group.members if member_id in group.joins)
    group.protocol_name = choose_own_protocol(group)
    apply_subscribed(group)
    apply_transition(group, GroupState.COMPLETING_REBALANCE, now_ms)
    leader_id, joins, timers = group.leader_id, group.joins, decision.timers
    common = group.generation, group.protocol_type, group.protocol_name, leader_id
    for member_id, member in group.members.items():
        waiting = joins.get(member_id)
        if waiting is not None:
            members = current_members(group) if member_id == leader_id else ()
            decision.reply(waiting, JoinAnswer(ErrorCode.NONE, member_id, *common, False, members))
        member.is_new = False
        timers[Timer(TimerKind.MEMBER, member_id)] = member.session_timeout_ms
    group.joins = {}
    group.pending_syncs = dict.fromkeys(group.members)
    decision.timers[SYNC_TIMER] = group.rebalance_timeout_ms
    decision.notes.append(
        f"begins generation {group.generation} with {len(group.members)} members, led by {group.leader_id}"
    )


def generation_answer(group: Group, member_id: str, *, skip_assignment: bool = False) -> JoinAnswer:
    """What a member learns of its generation."""
    return JoinAnswer(
        error=ErrorCode.NONE,
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
        skip_assignment=skip_assignment,
        members=current_members(group) if member_id == group.leader_id else (),
    )


def end_sync(group: Group, error: ErrorCode, decision: Decision) -> None:
    """No member gets an assignment in this generation: requests that wait get this error."""
    for member_id, member in group.members.items():
        waiting = group.syncs.pop(member_id, None)
        if waiting is not None:
            decision.reply(waiting, SyncAnswer(error))
            restart_session(member, decision)


def remove(group: Group, member_id: str, reason: str, now_ms: int, decision: Decision) -> None:
    """A member is gone; the others rebalance."""
    drop(group, member_id, decision)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, reason, now_ms, decision)
    else:
        decision.notes.append(reason)
        complete_join_if_all_joined(group, now_ms, decision)


def drop(group: Group, member_id: str, decision: Decision) -> None:
    """Take a member or a handed-out id out of the group, and answer the request that waits for it."""
    joining, syncing = group.joins.pop(member_id, None), group.syncs.pop(member_id, None)
    if joining is not None:
        decision.reply(joining, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    if syncing is not None:
        decision.reply(syncing, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    apply_member_removed(group, member_id)
    decision.timers[Timer(TimerKind.MEMBER, member_id)] = None


def restart_session(member: Member, decision: Decision) -> None:
    """The member was heard of, or was answered: its session counts from now."""
    decision.timers[Timer(TimerKind.MEMBER, member.member_id)] = member.session_timeout_ms
