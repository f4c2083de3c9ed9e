"""JoinGroup (pure): who may become, stay or come back as a member.

A client that has no member id yet is given one and must join again with it (KIP-394); so a client that never gets
the answer leaves no member behind, only an id that is forgotten after one session. Older clients are taken in at once.
They are patient for `NEW_MEMBER_JOIN_TIMEOUT_MS` at most: a client that does not know its id cannot send heartbeats,
and may have gone away and come back as another member without the coordinator noticing.

A static member has an instance id that outlives it (KIP-345): restarted, it takes its old place back.
"""

import random

from barnabas.broker.groups.events import (
    Decision,
    Join,
    JoinAnswer,
    StoreReplacement,
    SyncAnswer,
    Timer,
    TimerKind,
)
from barnabas.broker.groups.rebalance import (
    complete_join_if_all_joined,
    drop,
    generation_answer,
    prepare_rebalance,
    restart_session,
)
from barnabas.broker.groups.state import (
    Group,
    GroupState,
    Member,
    apply_member_added,
    apply_member_renamed,
    apply_member_updated,
    choose_protocol,
    metadata_record,
    refusal_of_member,
    supports_protocols,
)
from barnabas.wire.errors import ErrorCode

NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def decide_join(group: Group, join: Join, now_ms: int, rng: random.Random, decision: Decision) -> None:
    """A client wants to be, or stay, a member."""
    if not _has_room(group, join.member_id):
        drop(group, join.member_id, decision)
        decision.reply(join.waiting, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not supports_protocols(group, join.protocol_type, join.protocols):
        decision.reply(join.waiting, JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
    elif join.member_id == "":
        _join_unknown(group, join, now_ms, rng, decision)
    else:
        _join_known(group, join, now_ms, decision)
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(group, now_ms, decision)


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
            decision.reply(join.waiting, JoinAnswer(ErrorCode.UNKNOWN_SERVER_ERROR))
        return
    refused = refusal_of_member(group, member_id, join.instance_id)
    if refused:
        decision.reply(join.waiting, JoinAnswer(refused, member_id))
        return
    member = group.members[member_id]
    unchanged = member.protocols == join.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
        # It may have missed the response with this generation.
        decision.reply(join.waiting, generation_answer(group, member_id))
    elif group.state is GroupState.STABLE and unchanged and member_id != group.leader_id:
        decision.reply(join.waiting, generation_answer(group, member_id))
    else:  # a leader that joins again wants new assignments: the topics may have changed
        _rejoin(group, join, member, now_ms, decision)


def _add(group: Group, join: Join, member_id: str, now_ms: int, decision: Decision) -> None:
    if group.generation == 0:
        group.newcomers = True  # reset should it be this one that begins the rebalance
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
    prepare_rebalance(group, f"{member_id} joins, {join.reason or 'no reason given'}", now_ms, decision)


def _rejoin(group: Group, join: Join, member: Member, now_ms: int, decision: Decision) -> None:
    apply_member_updated(group, member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms)
    _wait_for_join(group, join, member.member_id, decision)
    prepare_rebalance(group, f"{member.member_id} rejoins, {join.reason or 'no reason given'}", now_ms, decision)


def _wait_for_join(group: Group, join: Join, member_id: str, decision: Decision) -> None:
    """This request waits for the member now; an earlier one, of a connection that was given up, must join again."""
    earlier = group.joins.get(member_id)
    if earlier is not None:
        decision.reply(earlier, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
    group.joins[member_id] = join.waiting


def random_uuid(rng: random.Random) -> str:
    """A random UUID (version 4), as text."""
    bits = rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


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
            assignments = {member.member_id: member.assignment for member in prospective}
            record = metadata_record(group, prospective, leader_id, assignments)
            decision.store([record], StoreReplacement(join, old_member_id, new_member_id))
            return
    _replace(group, join, old_member_id, new_member_id, decision)
    group.joins[new_member_id] = join.waiting
    prepare_rebalance(group, f"static member {join.instance_id} is back as {new_member_id}", now_ms, decision)


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
    """The new member id takes over; requests with the old one are fenced."""
    joining, syncing = group.joins.pop(old_member_id, None), group.syncs.pop(old_member_id, None)
    if joining is not None:
        decision.reply(joining, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
    if syncing is not None:
        decision.reply(syncing, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
    member = apply_member_renamed(group, old_member_id, new_member_id)
    apply_member_updated(group, member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms)
    decision.timers[Timer(TimerKind.MEMBER, old_member_id)] = None
    restart_session(member, decision)


def apply_replacement_stored(group: Group, intent: StoreReplacement, decision: Decision) -> None:
    """The static member is back, without a rebalance.

    A client before JoinGroup v9 must not make assignments that a Stable group would ignore: it gets its old
    member id leads. A newer one learns that it leads, and that it has nothing to deal out (KIP-814).
    """
    former_leader_id = group.leader_id or ""
    join, member_id = intent.join, intent.new_member_id
    _replace(group, join, intent.old_member_id, member_id, decision)
    if join.skips_assignment:
        answer = generation_answer(group, member_id, skip_assignment=member_id == group.leader_id)
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
