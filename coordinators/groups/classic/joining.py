"""JoinGroup (pure): how a client becomes a member, rejoins as one, or returns as a static member.

A dynamic client without a member id gets one in a MEMBER_ID_REQUIRED answer and joins again with it (KIP-394). Clients
before JoinGroup v4, and static ones, become members at once. A static member has an instance id, which stays the same
when the client restarts: it takes its old place under a new member id (KIP-345).
"""

import random

from barnabas.coordinators.groups.classic.events import (
    Decision,
    Join,
    JoinAnswer,
    StoreReplacement,
    SyncAnswer,
    Timer,
    TimerKind,
)
from barnabas.coordinators.groups.classic.rebalance import (
    complete_join_if_all_joined,
    drop,
    generation_answer,
    prepare_rebalance,
    remove,
    restart_session,
)
from barnabas.coordinators.groups.classic.state import (
    Group,
    GroupState,
    Member,
    apply_member_added,
    apply_member_renamed,
    apply_member_updated,
    apply_pending_added,
    held_bytes,
    keeps_protocol,
    metadata_in,
    refusal_of_member,
    supports_protocols,
)
from barnabas.coordinators.groups.records import GroupMetadata, GroupMetadataRecord, GroupRecord, RecordedMember
from barnabas.wire.errors import ErrorCode, InvariantBroken

# Kafka's NewMemberJoinTimeoutMs. A client that waits for its first response may have no member id, and sends no
# heartbeats. If it times out and retries, its first request leaves a member that no client uses: this removes it.
NEW_MEMBER_JOIN_TIMEOUT_MS = 300_000


def decide_join(group: Group, join: Join, now_ms: int, rng: random.Random, decision: Decision) -> None:
    """Add a member, or let one rejoin; the answer usually waits for the end of the round.

    Error answers: GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, MEMBER_ID_REQUIRED, UNKNOWN_MEMBER_ID,
    FENCED_INSTANCE_ID, UNKNOWN_SERVER_ERROR.
    """
    if not _has_room(group, join.member_id):
        # A member that is refused loses its place, as in Kafka: otherwise the round would wait for
        # it.
        if join.member_id in group.members:
            remove(group, join.member_id, f"has no room for {join.member_id}, which joins again", now_ms, decision)
        else:
            drop(group, [join.member_id], decision)
        decision.reply(join.waiting, JoinAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not supports_protocols(group, join.protocol_type, join.protocols):
        decision.reply(join.waiting, JoinAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id))
    elif join.member_id == "":
        _join_unknown(group, join, now_ms, rng, decision)
    else:
        _join_known(group, join, now_ms, decision)
    # The member that joins, or one that was dropped, may have been the last one that the round
    # waited for.
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_join_if_all_joined(group, now_ms, decision)


def grown_bytes(group: Group | None, join: Join) -> int:
    """By how much a group may grow with this request; None is a group that it creates. Not above 0 if it does not."""
    member = None
    if group is not None:
        member_id = join.member_id or group.static_members.get(join.instance_id or "", "")
        member = group.members.get(member_id)
    known_bytes = 0 if member is None else member.held_bytes
    return held_bytes(join.client_id, join.instance_id, join.protocols) - known_bytes


def _has_room(group: Group, member_id: str) -> bool:
    """Whether the group has a place for this member under `group.max.size` (Kafka's acceptJoiningMember)."""
    limit = group.limits.group_max_size
    if group.state is GroupState.EMPTY:
        return True
    # Only members that have joined count. So when the limit was lowered, or a group with more members was loaded, the
    # last ones to rejoin are refused.
    if group.state is GroupState.PREPARING_REBALANCE:
        return member_id in group.joins or len(group.joins) < limit
    return member_id in group.members or len(group.members) < limit


def _join_unknown(group: Group, join: Join, now_ms: int, rng: random.Random, decision: Decision) -> None:
    member_id = join.new_member_id or new_member_id(join, rng)
    if join.instance_id is not None:
        old_member_id = group.static_members.get(join.instance_id)
        if old_member_id is not None:
            _return_of_static(group, join, old_member_id, member_id, now_ms, decision)
            return
    # KIP-394: if this response is lost, only a pending id remains, for one session timeout. A member would remain in
    # the group and hold up each rebalance.
    elif join.requires_member_id:
        apply_pending_added(group, member_id)
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = join.session_timeout_ms
        decision.reply(join.waiting, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        return
    _add(group, join, member_id, now_ms, decision)


def _join_known(group: Group, join: Join, now_ms: int, decision: Decision) -> None:
    member_id = join.member_id
    if member_id in group.pending_members:
        if join.instance_id is None:
            _add(group, join, member_id, now_ms, decision)
        # A static member never gets a pending id: the client mixes up two members. Kafka throws IllegalStateException.
        else:
            decision.reply(join.waiting, JoinAnswer(ErrorCode.UNKNOWN_SERVER_ERROR))
        return

    refused = refusal_of_member(group, member_id, join.instance_id)
    if refused:
        decision.reply(join.waiting, JoinAnswer(refused, member_id))
        return
    member = group.members[member_id]
    unchanged = member.protocols == join.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
        # The client may have lost the response with this generation, so it is repeated.
        decision.reply(join.waiting, generation_answer(group, member_id))
    elif group.state is GroupState.STABLE and unchanged and member_id != group.leader_id:
        decision.reply(join.waiting, generation_answer(group, member_id))
    # A leader in a Stable group rejoins to compute new assignments: it has seen that the topics' partitions changed.
    else:
        _rejoin(group, join, member, now_ms, decision)


def _add(group: Group, join: Join, member_id: str, now_ms: int, decision: Decision) -> None:
    # A newcomer extends the delay of an empty group (KIP-134). As in Kafka this is so only before
    # the first generation: a group that has become empty later waits for the delay once.
    # `prepare_rebalance` resets `newcomers` for the member that begins the delay.
    if group.generation == 0:
        group.newcomers = True

    # `supports_protocols` refuses another type while there are members.
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
    _wait_for_join(group, join, member, decision)
    prepare_rebalance(group, f"{member.member_id} rejoins, {join.reason or 'no reason given'}", now_ms, decision)


def _wait_for_join(group: Group, join: Join, member: Member, decision: Decision) -> None:
    """Let this request wait. An earlier one of the same member ends: its client has given up that connection."""
    member_id = member.member_id
    earlier = group.joins.get(member_id)
    if earlier is not None:
        decision.reply(earlier, JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
    group.joins[member_id] = join.waiting
    # If the connection of its first request was lost, the member's session has begun
    # (`apply_forgotten`). It would end while this request waits.
    if member.is_new:
        decision.timers[Timer(TimerKind.MEMBER, member_id)] = NEW_MEMBER_JOIN_TIMEOUT_MS


def new_member_id(join: Join, rng: random.Random) -> str:
    """A member id for a client that has none yet."""
    # Kafka's form: administrators recognise the client, or the static member, in a list of member ids.
    prefix = join.client_id if join.instance_id is None else join.instance_id
    return f"{prefix}-{random_uuid(rng)}"


def random_uuid(rng: random.Random) -> str:
    """A random UUID (version 4), as text."""
    # `uuid.uuid4` would be simpler, but the simulator needs the same ids for the same seed.
    bits = rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
    digits = f"{bits:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# -- static members (KIP-345)


def _return_of_static(
    group: Group, join: Join, old_member_id: str, new_member_id: str, now_ms: int, decision: Decision
) -> None:
    """A known instance id without a member id: the static member has restarted, and gets its place under a new id."""
    # A Stable group is not rebalanced, which is the purpose of static membership. The new id is
    # stored before it takes effect, so that it is not lost in a fail-over. If the group's protocol
    # would change, all must join again.
    member = group.members[old_member_id]
    if group.state is GroupState.STABLE and keeps_protocol(group, member, join.protocols):
        made = join.made
        records: list[GroupRecord] = [] if made is None else made.records
        if made is None:
            stored = group.recorded.metadata
            records.append(replacement_record(group, stored, member, old_member_id, join, new_member_id))
        decision.store(records, StoreReplacement(join, old_member_id, new_member_id), made)
        return
    _wait_for_join(group, join, _replace(group, join, old_member_id, new_member_id, decision), decision)
    prepare_rebalance(group, f"static member {join.instance_id} is back as {new_member_id}", now_ms, decision)


def stored_return(group: Group, join: Join) -> Member | None:
    """The static member that this JoinGroup brings back to a Stable group, which stores that; None of other ones."""
    if group.state is not GroupState.STABLE or join.member_id != "" or join.instance_id is None:
        return None
    member = group.members.get(group.static_members.get(join.instance_id, ""))
    if member is None or not supports_protocols(group, join.protocol_type, join.protocols):
        return None
    return member if keeps_protocol(group, member, join.protocols) else None


def replacement_record(
    group: Group,
    stored: GroupMetadata | None,
    member: Member,
    old_member_id: str,
    join: Join,
    new_member_id: str,
) -> GroupMetadataRecord:
    """The record of the current generation, which is `stored`, with a static member that has returned."""
    # May run in a thread while the group changes; then the record is not used. It shares the
    # objects of the other members with `stored`: in a large group, new ones would take
    # milliseconds.
    if stored is None:
        raise InvariantBroken(f"group {group.group_id} is Stable, and its generation is not stored")

    # The assignment stays, as the partitions do not move.
    returned = RecordedMember(
        member_id=new_member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=join.rebalance_timeout_ms,
        session_timeout=join.session_timeout_ms,
        subscription=metadata_in(join.protocols, stored.protocol),
        assignment=member.assignment,
    )
    metadata = GroupMetadata(
        protocol_type=stored.protocol_type,
        generation=stored.generation,
        protocol=stored.protocol,
        leader=new_member_id if stored.leader == old_member_id else stored.leader,
        current_state_timestamp=-1 if group.state_timestamp_ms is None else group.state_timestamp_ms,
        members=[returned if each.member_id == old_member_id else each for each in stored.members],
    )
    return GroupMetadataRecord(group.group_id, metadata)


def _replace(group: Group, join: Join, old_member_id: str, new_member_id: str, decision: Decision) -> Member:
    """Replace the member id of a static member. Waiting requests under the old id get FENCED_INSTANCE_ID."""
    # Two clients with one instance id would each take the other's place again and again. Fenced, the older one stops.
    joining = group.joins.pop(old_member_id, None)
    syncing = group.syncs.pop(old_member_id, None)
    if joining is not None:
        decision.reply(joining, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_member_id))
    if syncing is not None:
        decision.reply(syncing, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
    member = apply_member_renamed(group, old_member_id, new_member_id)
    apply_member_updated(group, member, join.protocols, join.session_timeout_ms, join.rebalance_timeout_ms)
    decision.timers[Timer(TimerKind.MEMBER, old_member_id)] = None
    restart_session(member, decision)
    return member


def apply_replacement_stored(group: Group, intent: StoreReplacement, decision: Decision) -> None:
    """The new member id of a static member is stored: replace the old one and answer, without a rebalance."""
    # The leader is read before `_replace`, which gives the leadership to the new member id.
    former_leader_id = group.leader_id or ""
    join = intent.join
    member_id = intent.new_member_id
    _replace(group, join, intent.old_member_id, member_id, decision)

    # KIP-814: the leader gets the members, but must not compute assignments, because a Stable group ignores them.
    if join.skips_assignment:
        answer = generation_answer(group, member_id, skip_assignment=member_id == group.leader_id)
    # Clients before JoinGroup v9 do not know `skip_assignment`. The old member id as the leader
    # keeps them from computing assignments.
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
