"""The two rounds of a rebalance (pure): all members join, then each member gets its assignment (see state.py).

A rebalance begins when a member joins, changes, leaves or fails. The first round ends when all known members have
joined, or after the longest rebalance timeout; members that have not joined by then are dropped.

These functions change the volatile part of a group and add what follows to a `Decision`.
"""

from collections.abc import Collection, Iterable
from itertools import islice

from barnabas.coordinators.groups.classic.events import (
    JOIN_TIMER,
    SYNC_TIMER,
    Decision,
    JoinAnswer,
    StoreEmptiness,
    SyncAnswer,
    Timer,
    TimerKind,
)
from barnabas.coordinators.groups.classic.state import (
    Group,
    GroupState,
    Member,
    apply_members_removed,
    apply_subscribed,
    apply_transition,
    choose_protocol,
    current_members,
    metadata_record,
)
from barnabas.wire.errors import ErrorCode

# A member may send a rebalance timeout of 0. Without a minimum, the round would be extended in a
# busy loop.
EXTENSION_MS_MIN = 1000
DROPPED_AT_A_TIME = 200  # members that did not rejoin, or ask for their assignment in time: at about 5 µs each
NEXT_PORTION_MS = 1  # until the next of them are dropped, in a step of their own
NAMED_MAX = 5  # members in one line of the log


def prepare_rebalance(group: Group, reason: str, now_ms: int, decision: Decision) -> None:
    """Begin the first round, unless it is under way: all members have to join again (Kafka's prepareRebalance)."""
    if group.state is GroupState.PREPARING_REBALANCE:
        return

    # The leader's assignments for this generation will not be accepted, so no request may go on waiting for them.
    if group.state is GroupState.COMPLETING_REBALANCE:
        end_sync(group, ErrorCode.REBALANCE_IN_PROGRESS, decision)

    # This timer also runs in a Stable group, until each member has sent SyncGroup.
    decision.timers[SYNC_TIMER] = None
    was_empty = group.state is GroupState.EMPTY
    apply_transition(group, GroupState.PREPARING_REBALANCE, now_ms)
    decision.notes.append(f"prepares a rebalance, generation {group.generation} ends: {reason}")
    patience_ms = group.rebalance_timeout_ms

    # KIP-134: consumers that start together would otherwise cause one rebalance each. The wait is extended while
    # more members join (`join_time_is_over`), at most to the rebalance timeout of the first one.
    if was_empty:
        delay_ms = group.limits.group_initial_rebalance_delay_ms
        if delay_ms == 0:
            _complete_join(group, now_ms, decision)
        else:
            # The member that begins the rebalance is no reason to extend the wait.
            group.newcomers = False
            group.join_extension_ms = max(patience_ms - delay_ms, 0)
            decision.timers[JOIN_TIMER] = delay_ms
    else:
        group.join_extension_ms = None
        decision.timers[JOIN_TIMER] = patience_ms

        # When the last member has left, no member is missing: the group becomes Empty at once.
        complete_join_if_all_joined(group, now_ms, decision)


def complete_join_if_all_joined(group: Group, now_ms: int, decision: Decision) -> None:
    """End the first round before its timer if no member is missing. The delay of an empty group is never shortened."""
    # A pending member id is about to join: without it, the next rebalance would follow at once.
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.join_extension_ms is None
        and len(group.joins) == len(group.members)
        and not group.pending_members
    ):
        _complete_join(group, now_ms, decision)


def join_time_is_over(group: Group, now_ms: int, decision: Decision) -> None:
    """The JOIN timer ended: end the first round, or extend the delay of an empty group if more members have joined."""
    # A timer of a round that is over has no effect.
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
    """End the first round and begin the next generation. Dynamic members that have not joined are dropped."""
    group.join_extension_ms = None

    # A static member keeps its place: it may be restarting (KIP-345).
    absent = [
        member_id
        for member_id, member in group.members.items()
        if member_id not in group.joins and member.instance_id is None
    ]
    if absent:
        some = absent[:DROPPED_AT_A_TIME]
        drop(group, some, decision)
        decision.notes.append(f"drops {named(some)}, which did not rejoin")

    # The generation begins when all absent members are dropped. Until then new members may still
    # join.
    if len(absent) > DROPPED_AT_A_TIME:
        decision.timers[JOIN_TIMER] = NEXT_PORTION_MS
        return
    if group.members and not group.joins:
        # Only static members are left and none has joined, so no member can compute the assignment. As in Kafka the
        # round is extended, until one joins or their sessions end.
        decision.timers[JOIN_TIMER] = max(group.rebalance_timeout_ms, EXTENSION_MS_MIN)
        return

    decision.timers[JOIN_TIMER] = None

    # A group that becomes Empty begins a generation, too, as in Kafka.
    group.generation += 1
    if group.members:
        _begin_generation(group, now_ms, decision)
    else:
        group.protocol_name = None
        apply_subscribed(group)

        # The record has the time of the transition, from which the retention of the group's offsets
        # counts.
        apply_transition(group, GroupState.EMPTY, now_ms)
        decision.store([metadata_record(group, (), group.leader_id, {})], StoreEmptiness())
        decision.notes.append(f"is empty in generation {group.generation}")


def _begin_generation(group: Group, now_ms: int, decision: Decision) -> None:
    """Answer all members that have joined, and wait for their SyncGroup requests."""
    # A static leader keeps its place without joining, but then it does not compute the assignment.
    if group.leader_id not in group.joins:
        group.leader_id = next(member_id for member_id in group.members if member_id in group.joins)
    group.protocol_name = choose_protocol(group)
    apply_subscribed(group)
    apply_transition(group, GroupState.COMPLETING_REBALANCE, now_ms)
    leader_id = group.leader_id
    joins = group.joins
    timers = decision.timers

    # The loop does not call `generation_answer` per member: a group may have thousands, and this is
    # one synchronous step.
    common = group.generation, group.protocol_type, group.protocol_name, leader_id
    for member_id, member in group.members.items():
        waiting = joins.get(member_id)
        if waiting is not None:
            members = current_members(group) if member_id == leader_id else ()
            decision.reply(waiting, JoinAnswer(ErrorCode.NONE, member_id, *common, False, members))

        # From here on the client has its member id and sends heartbeats, so the session timeout
        # replaces NEW_MEMBER_JOIN_TIMEOUT_MS.
        member.is_new = False
        timers[Timer(TimerKind.MEMBER, member_id)] = member.session_timeout_ms

    group.joins = {}

    # Static members that have not joined are in this list, too: `SYNC_TIMER` drops them like all others.
    group.pending_syncs = dict.fromkeys(group.members)
    decision.timers[SYNC_TIMER] = group.rebalance_timeout_ms
    decision.notes.append(
        f"begins generation {group.generation} with {len(group.members)} members, led by {group.leader_id}"
    )


def generation_answer(group: Group, member_id: str, *, skip_assignment: bool = False) -> JoinAnswer:
    """The JoinGroup answer for a member of the current generation; the leader's has the list of members."""
    # The leader alone computes assignments. With the list for each member, the answers of a
    # generation would grow with the square of the number of members.
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
    """Answer all waiting SyncGroup requests with this error: there are no assignments in this generation."""
    for member_id, member in group.members.items():
        waiting = group.syncs.pop(member_id, None)
        if waiting is not None:
            decision.reply(waiting, SyncAnswer(error))
            # The session timer may have fired while the request waited, and the member needs time
            # to join again.
            restart_session(member, decision)


def remove(group: Group, member_id: str, reason: str, now_ms: int, decision: Decision) -> None:
    """Remove a member that left or failed, and begin a rebalance of the others. `reason` is for the log."""
    drop(group, [member_id], decision)
    after_loss(group, reason, now_ms, decision)


def after_loss(group: Group, reason: str, now_ms: int, decision: Decision) -> None:
    """Members were dropped: begin a rebalance of the others, unless one is under way."""
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, reason, now_ms, decision)
    else:
        decision.notes.append(reason)
        # A member that was dropped may have been the last one that the round waited for.
        complete_join_if_all_joined(group, now_ms, decision)


def drop(group: Group, member_ids: Iterable[str], decision: Decision) -> None:
    """Remove members or pending member ids from the group. A waiting request of one gets UNKNOWN_MEMBER_ID."""
    joins = group.joins
    syncs = group.syncs
    timers = decision.timers
    for member_id in member_ids:
        joining = joins.pop(member_id, None)
        syncing = syncs.pop(member_id, None)
        if joining is not None:
            decision.reply(joining, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        if syncing is not None:
            decision.reply(syncing, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        timers[Timer(TimerKind.MEMBER, member_id)] = None
    apply_members_removed(group, member_ids)


def drop_late(group: Group, now_ms: int, decision: Decision) -> None:
    """The SYNC timer ended: drop the members that have not sent SyncGroup, and begin a rebalance of the others."""
    late = list(islice(group.pending_syncs, DROPPED_AT_A_TIME))
    drop(group, late, decision)
    # One rebalance follows for all late members, not one for each, as in Kafka. Its first round
    # stays open while late members are left, which are dropped in later steps.
    prepare_rebalance(group, f"{named(late)} did not ask for their assignments", now_ms, decision)
    if group.pending_syncs:
        decision.timers[SYNC_TIMER] = NEXT_PORTION_MS
    else:
        complete_join_if_all_joined(group, now_ms, decision)


def named(member_ids: Collection[str]) -> str:
    """These members for a line of the log: the first NAMED_MAX of them, and how many more there are."""
    more = len(member_ids) - NAMED_MAX
    return ", ".join(islice(member_ids, NAMED_MAX)) + (f" and {more} more" if more > 0 else "")


def restart_session(member: Member, decision: Decision) -> None:
    """Restart the member's session timeout: the member sent a request, or gets a response now."""
    decision.timers[Timer(TimerKind.MEMBER, member.member_id)] = member.session_timeout_ms
