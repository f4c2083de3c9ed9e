"""Who is in a group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the timers that stand behind them (pure).

Each function takes one event, changes the volatile part of the group and writes into the `Decision` what follows. A
step that needs a record goes in two halves: the first only says what to append, the second (`apply_stored`) acts once
that is appended and replayed, or (`apply_refused`) answers that it was not.

Timers: every member has one. It is its session, moved by each request; while the member waits for an answer its session
cannot end. A member that joined without knowing its id has `NEW_MEMBER_JOIN_TIMEOUT_MS` instead, because the client may
have gone away and come back as another member without the coordinator noticing. An id that was only handed out
(KIP-394) is remembered for one session. JOIN bounds a rebalance, SYNC the time until every member asked for its share.
"""

import random

from barnabas.broker.groups.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Answer,
    Answered,
    AssignmentNotReplicated,
    Decision,
    Forgotten,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    StoreAssignment,
    StoreEmptiness,
    StoreReplacement,
    Sync,
    SyncAnswer,
    Timer,
    TimerKind,
    Waiting,
)
from barnabas.broker.groups.state import (
    Group,
    GroupState,
    Member,
    apply_member_added,
    apply_member_removed,
    apply_member_renamed,
    apply_member_updated,
    apply_transition,
    choose_protocol,
    current_members,
    metadata_record,
    refusal_of_member,
    subscribed_topics,
    supports_protocols,
)
from barnabas.wire.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000

# -- JoinGroup


def decide_join(group: Group, join: Join, now_ms: int, rng: random.Random, decision: Decision) -> None:
    """Somebody wants to be, or stay, a member."""
    if not _has_room(group, join.member_id):
        _drop(group, join.member_id, decision)
        decision.reply(join.waiting, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not supports_protocols(group, join.protocol_type, join.protocols):
        decision.reply(join.waiting, JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
    elif join.member_id == "":
        _join_unknown(group, join, now_ms, rng, decision)
    else:
        _join_known(group, join, now_ms, decision)
    if group.state is GroupState.PREPARING_REBALANCE:
        _complete_join_if_all_joined(group, now_ms, decision)


def _has_room(group: Group, member_id: str) -> bool:
    """Whether this member fits under group.max.size.

    While a rebalance is prepared those who have joined count, not those who might: so the last to rejoin are turned
    away when the limit has been lowered.
    """
    limit = group.limits.group_max_size
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        return member_id in group.joins or len(group.joins) < limit
    return member_id in group.members or len(group.members) < limit


def _join_unknown(group: Group, join: Join, now_ms: int, rng: random.Random, decision: Decision) -> None:
    prefix = join.client_id if join.instance_id is None else join.instance_id
    member_id = f"{prefix}-{random_uuid(rng)}"
    if join.instance_id is not None:
        old_member_id = group.static_members.get(join.instance_id)
        if old_member_id is not None:
            _return_of_static(group, join, old_member_id, member_id, now_ms, decision)
            return
    elif join.requires_member_id:
        group.pending_members[member_id] = None
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = join.session_timeout_ms
        decision.reply(join.waiting, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return
    _add(group, join, member_id, now_ms, decision)


def _join_known(group: Group, join: Join, now_ms: int, decision: Decision) -> None:
    member_id = join.member_id
    if member_id in group.pending_members:
        if join.instance_id is None:
            _add(group, join, member_id, now_ms, decision)
        else:  # ids are handed out to dynamic members only: the client mixes two of its identities up
            decision.reply(join.waiting, JoinAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, member_id))
        return
    refused = refusal_of_member(group, member_id, join.instance_id)
    if refused:
        decision.reply(join.waiting, JoinAnswer(refused, member_id))
        return
    member = group.members[member_id]
    unchanged = member.protocols == join.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
        # It may have missed the answer that told it about this generation.
        decision.reply(join.waiting, _generation_answer(group, member_id))
    elif group.state is GroupState.STABLE and unchanged and member_id != group.leader_id:
        decision.reply(join.waiting, _generation_answer(group, member_id))
    else:  # a leader that joins again wants new shares: the topics may have changed
        _rejoin(group, join, member, now_ms, decision)


def _generation_answer(group: Group, member_id: str, *, skip_assignment: bool = False) -> JoinAnswer:
    """What a member is told about the generation it is in."""
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


def _add(group: Group, join: Join, member_id: str, now_ms: int, decision: Decision) -> None:
    if group.state is GroupState.PREPARING_REBALANCE and group.generation == 0:
        group.newcomers = True
    if not group.members:
        group.protocol_type = join.protocol_type
    member = Member(
        member_id=member_id,
        instance_id=join.instance_id,
        client_id=join.client_id,
        client_host=join.client_host,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        protocols=join.protocols,
        is_new=True,
    )
    apply_member_added(group, member)
    group.joins[member_id] = join.waiting
    decision.timers[Timer(TimerKind.MEMBER, member_id)] = NEW_MEMBER_JOIN_TIMEOUT_MS
    _prepare_rebalance(group, f"{member_id} joins, {join.reason or 'no reason given'}", now_ms, decision)


def _rejoin(group: Group, join: Join, member: Member, now_ms: int, decision: Decision) -> None:
    apply_member_updated(group, member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms)
    _wait_for_join(group, join, member.member_id, decision)
    _prepare_rebalance(group, f"{member.member_id} rejoins, {join.reason or 'no reason given'}", now_ms, decision)


def _wait_for_join(group: Group, join: Join, member_id: str, decision: Decision) -> None:
    """This request waits for the member now; an earlier one, of a connection given up, is told to come again."""
    earlier = group.joins.get(member_id)
    if earlier is not None:
        decision.reply(earlier, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
    group.joins[member_id] = join.waiting


# -- static members (KIP-345)


def _return_of_static(
    group: Group, join: Join, old_member_id: str, new_member_id: str, now_ms: int, decision: Decision
) -> None:
    """A static member was restarted: it takes its old place under a new member id.

    In a Stable group that costs no rebalance, unless the protocol would have to change; but it is stored first.
    """
    if group.state is GroupState.STABLE:
        prospective = [_returned(member, join, old_member_id, new_member_id) for member in group.members.values()]
        if choose_protocol(prospective) == group.protocol_name:
            leader_id = new_member_id if group.leader_id == old_member_id else group.leader_id
            shares = {member.member_id: member.assignment for member in prospective}
            record = metadata_record(group, prospective, leader_id, shares)
            decision.store([record], StoreReplacement(join, old_member_id, new_member_id))
            return
    _replace(group, join, old_member_id, new_member_id, decision)
    group.joins[new_member_id] = join.waiting
    _prepare_rebalance(group, f"static member {join.instance_id} is back as {new_member_id}", now_ms, decision)


def _returned(member: Member, join: Join, old_member_id: str, new_member_id: str) -> Member:
    """The member as it will be once the static one is back."""
    if member.member_id != old_member_id:
        return member
    return Member(
        member_id=new_member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        protocols=join.protocols,
        assignment=member.assignment,
    )


def _replace(group: Group, join: Join, old_member_id: str, new_member_id: str, decision: Decision) -> None:
    """The new member id takes over; whoever still asks with the old one is fenced."""
    joining, syncing = group.joins.pop(old_member_id, None), group.syncs.pop(old_member_id, None)
    if joining is not None:
        decision.reply(joining, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
    if syncing is not None:
        decision.reply(syncing, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
    member = apply_member_renamed(group, old_member_id, new_member_id)
    apply_member_updated(group, member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms)
    decision.timers[Timer(TimerKind.MEMBER, old_member_id)] = None
    decision.timers[Timer(TimerKind.MEMBER, new_member_id)] = member.session_timeout_ms


def apply_replacement_stored(group: Group, intent: StoreReplacement, decision: Decision) -> None:
    """The static member is back, without a rebalance.

    A client before JoinGroup v9 must not deal out shares that a Stable group would ignore: it is told that its old
    member id leads. A newer one learns that it leads, and that it has nothing to deal out (KIP-814).
    """
    former_leader_id = group.leader_id or ""
    join, member_id = intent.join, intent.new_member_id
    _replace(group, join, intent.old_member_id, member_id, decision)
    if join.skips_assignment:
        answer = _generation_answer(group, member_id, skip_assignment=member_id == group.leader_id)
    else:
        answer = JoinAnswer(
            error=ErrorCode.NONE,
            member_id=member_id,
            generation=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=former_leader_id,
        )
    decision.reply(join.waiting, answer, group.recorded.metadata_offset)
    decision.notes.append(f"static member {join.instance_id} is back as {member_id} instead of {intent.old_member_id}")


# -- rebalances


def _prepare_rebalance(group: Group, reason: str, now_ms: int, decision: Decision) -> None:
    """Let everybody join again, unless they are at it."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return
    if group.state is GroupState.COMPLETING_REBALANCE:
        _end_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, decision)
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
        _complete_join_if_all_joined(group, now_ms, decision)


def _complete_join_if_all_joined(group: Group, now_ms: int, decision: Decision) -> None:
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.join_extension_ms is None
        and len(group.joins) == len(group.members)
        and not group.pending_members
    ):
        _complete_join(group, now_ms, decision)


def _join_time_is_over(group: Group, now_ms: int, decision: Decision) -> None:
    """An empty group waits a little longer for each newcomer, any other group for nobody."""
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
        _drop(group, member_id, decision)
        decision.notes.append(f"drops {member_id}, which did not rejoin")
    if not _elect_joined_leader(group) and group.members:
        # Only static members are left and none has come: there is nobody to lead, so wait for their sessions to end.
        decision.timers[JOIN_TIMER] = group.rebalance_timeout_ms
        return
    decision.timers[JOIN_TIMER] = None
    group.generation += 1
    group.pending_syncs.clear()
    if group.members:
        _begin_generation(group, now_ms, decision)
    else:
        group.protocol_name = None
        group.subscribed_topics = subscribed_topics(group)
        apply_transition(group, GroupState.EMPTY, now_ms)
        decision.store([metadata_record(group, (), group.leader_id, {})], StoreEmptiness())
        decision.notes.append(f"is empty in generation {group.generation}")


def _elect_joined_leader(group: Group) -> bool:
    """A leader that did not join is replaced by one that did; False when nobody did."""
    if group.leader_id is None or group.leader_id in group.joins:
        return True
    joined = next((member_id for member_id in group.members if member_id in group.joins), None)
    if joined is None:
        return False
    group.leader_id = joined
    return True


def _begin_generation(group: Group, now_ms: int, decision: Decision) -> None:
    """Tell everybody, and expect them to ask for their shares."""
    group.protocol_name = choose_protocol(group.members.values())
    group.subscribed_topics = subscribed_topics(group)
    apply_transition(group, GroupState.COMPLETING_REBALANCE, now_ms)
    for member_id, member in group.members.items():
        waiting = group.joins.pop(member_id, None)
        if waiting is not None:
            decision.reply(waiting, _generation_answer(group, member_id))
        member.is_new = False
        group.pending_syncs[member_id] = None
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = member.session_timeout_ms
    decision.timers[SYNC_TIMER] = group.rebalance_timeout_ms
    decision.notes.append(
        f"begins generation {group.generation} with {len(group.members)} members, led by {group.leader_id}"
    )


# -- SyncGroup


def decide_sync(group: Group, sync: Sync, decision: Decision) -> None:
    """A member asks for its share; the leader brings all of them."""
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
    decision.timers[Timer(TimerKind.MEMBER, member.member_id)] = member.session_timeout_ms
    decision.reply(sync.waiting, _share_answer(group, member), group.recorded.metadata_offset)


def _share_answer(group: Group, member: Member) -> SyncAnswer:
    return SyncAnswer(ErrorCode.NONE, member.assignment, group.protocol_type, group.protocol_name)


def apply_assignment_stored(group: Group, intent: StoreAssignment, now_ms: int, decision: Decision) -> None:
    """The shares are dealt: the group is Stable, and who waits gets its own."""
    for member_id, member in group.members.items():
        member.assignment = intent.assignments.get(member_id, b"")
    apply_transition(group, GroupState.STABLE, now_ms)
    for member_id, waiting in group.syncs.items():
        member = group.members[member_id]
        decision.reply(waiting, _share_answer(group, member), group.recorded.metadata_offset)
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = member.session_timeout_ms
    group.syncs.clear()
    decision.notes.append(f"is stable in generation {group.generation}")


def apply_assignment_refused(group: Group, error: ErrorCode, now_ms: int, decision: Decision) -> None:
    """The shares could not be stored: everybody who waits is told, and all join again."""
    _end_sync(group, error, decision)
    _prepare_rebalance(group, "the assignment could not be stored", now_ms, decision)


def _end_sync(group: Group, error: ErrorCode, decision: Decision) -> None:
    """Nobody gets a share of this generation: who waits is told why."""
    for member_id, member in group.members.items():
        member.assignment = b""
        waiting = group.syncs.pop(member_id, None)
        if waiting is not None:
            decision.reply(waiting, SyncAnswer(error))
            decision.timers[Timer(TimerKind.MEMBER, member_id)] = member.session_timeout_ms


def apply_assignment_lost(group: Group, lost: AssignmentNotReplicated, now_ms: int, decision: Decision) -> None:
    """Who waited for this generation's shares was told that they are not safe: all join again."""
    if group.state is GroupState.STABLE and group.generation == lost.generation:
        _prepare_rebalance(group, "the assignment was not replicated in time", now_ms, decision)


# -- Heartbeat, LeaveGroup


def decide_heartbeat(group: Group, heartbeat: Heartbeat, decision: Decision) -> None:
    """A member lives; the answer tells it when to join again."""
    error = refusal_of_member(group, heartbeat.member_id, heartbeat.instance_id)
    if not error and heartbeat.generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if not error:
        member = group.members[heartbeat.member_id]
        decision.timers[Timer(TimerKind.MEMBER, heartbeat.member_id)] = member.session_timeout_ms
        if group.state is GroupState.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    decision.reply(heartbeat.waiting, error)


def decide_leave(group: Group, leave: Leave, now_ms: int, decision: Decision) -> None:
    """Members leave, or are sent away by an administrator who knows their instance ids."""
    errors = tuple(_leave(group, leaving, now_ms, decision) for leaving in leave.members)
    decision.reply(leave.waiting, LeaveAnswer(ErrorCode.NONE, errors))


def _leave(group: Group, leaving: LeavingMember, now_ms: int, decision: Decision) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == "":
        known = None if leaving.instance_id is None else group.static_members.get(leaving.instance_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = known
    elif member_id in group.pending_members:
        _drop(group, member_id, decision)
        _complete_join_if_all_joined(group, now_ms, decision)
        return ErrorCode.NONE
    else:
        refused = refusal_of_member(group, member_id, leaving.instance_id)
        if refused:
            return refused
    _remove(group, member_id, f"{member_id} leaves, {leaving.reason or 'no reason given'}", now_ms, decision)
    return ErrorCode.NONE


def _remove(group: Group, member_id: str, reason: str, now_ms: int, decision: Decision) -> None:
    """A member is gone; the others share out again."""
    _drop(group, member_id, decision)
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        _prepare_rebalance(group, reason, now_ms, decision)
    else:
        decision.notes.append(reason)
        _complete_join_if_all_joined(group, now_ms, decision)


def _drop(group: Group, member_id: str, decision: Decision) -> None:
    """Take a member or a handed-out id out of the group, and tell whoever waits for it."""
    joining, syncing = group.joins.pop(member_id, None), group.syncs.pop(member_id, None)
    if joining is not None:
        decision.reply(joining, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    if syncing is not None:
        decision.reply(syncing, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
    apply_member_removed(group, member_id)
    decision.timers[Timer(TimerKind.MEMBER, member_id)] = None


# -- timers, and answers nobody waits for


def apply_timer(group: Group, timer: Timer, now_ms: int, decision: Decision) -> None:
    """A time is over."""
    if timer.kind is TimerKind.JOIN:
        _join_time_is_over(group, now_ms, decision)
    elif timer.kind is TimerKind.SYNC:
        _sync_time_is_over(group, now_ms, decision)
    else:
        _member_time_is_over(group, timer.member_id, now_ms, decision)


def _member_time_is_over(group: Group, member_id: str, now_ms: int, decision: Decision) -> None:
    if member_id in group.pending_members:
        _drop(group, member_id, decision)
        _complete_join_if_all_joined(group, now_ms, decision)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if not member.is_new and (member_id in group.joins or member_id in group.syncs):
        return  # it waits for us, not we for it; the answer starts its session anew
    _remove(group, member_id, f"the session of {member_id} is over", now_ms, decision)


def _sync_time_is_over(group: Group, now_ms: int, decision: Decision) -> None:
    late = list(group.pending_syncs)
    if not late or group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    for member_id in late:
        _drop(group, member_id, decision)
    _prepare_rebalance(group, f"{late} did not ask for their shares", now_ms, decision)


def apply_forgotten(group: Group, forgotten: Forgotten, decision: Decision) -> None:
    """Nobody waits for this answer any more: the member has not joined, and its session runs."""
    for member_id in _let_go(group.joins, forgotten.waiting) + _let_go(group.syncs, forgotten.waiting):
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = group.members[member_id].session_timeout_ms


def _let_go(waiters: dict[str, Waiting[Answer]], given_up: object) -> list[str]:
    members = [member_id for member_id, waiting in waiters.items() if waiting is given_up]
    for member_id in members:
        del waiters[member_id]
    return members


def apply_answered(group: Group, answered: Answered, decision: Decision) -> None:
    """A held answer left only now; the member's session must not have run meanwhile."""
    member = group.members.get(answered.member_id)
    if member is not None and answered.member_id not in group.joins:
        decision.timers[Timer(TimerKind.MEMBER, answered.member_id)] = member.session_timeout_ms


# -- beginning and end


def decide_loaded(group: Group, now_ms: int) -> Decision:
    """The group was loaded from the log: its members' sessions begin anew; too many members must share out again."""
    decision = Decision()
    for member_id, member in group.members.items():
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = member.session_timeout_ms
    if len(group.members) > group.limits.group_max_size:
        _prepare_rebalance(group, "it was loaded with more members than group.max.size", now_ms, decision)
    return decision


def apply_unloaded(group: Group, error: ErrorCode, now_ms: int) -> Decision:
    """This broker no longer coordinates the group: who waits is told, and nothing else happens to it here."""
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


def random_uuid(rng: random.Random) -> str:
    """A random UUID (version 4), as text."""
    bits = rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
