"""Commits of offsets by members of a classic group (pure): who may commit, and what is stored (reference E.2, E.3)."""

from barnabas.coordinators.groups.classic.events import (
    CommitAnswer,
    CommitOffsets,
    CommitOffsetsInTransaction,
    Commits,
    Decision,
    StoreOffsets,
    Timer,
    TimerKind,
    Transaction,
)
from barnabas.coordinators.groups.classic.state import Group, GroupState, refusal_of_member
from barnabas.coordinators.groups.offsets import commit_records
from barnabas.wire.errors import ErrorCode


def decide_commit(group: Group, event: CommitOffsets, decision: Decision) -> None:
    """Store the offsets, or refuse all of them. Metadata that are too long refuse their own partition only.

    Error answers: those of `refusal_of_member`, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS.
    """
    refused = _refusal(group, event)
    if refused:
        decision.reply(event.waiting, CommitAnswer(refused))
        return
    # A commit restarts the session like a heartbeat, as in Kafka.
    member = group.members.get(event.member_id)
    if member is not None:
        decision.timers[Timer(TimerKind.MEMBER, event.member_id)] = member.session_timeout_ms
    _store(group, event, decision)


def decide_commit_in_transaction(group: Group, event: CommitOffsetsInTransaction, decision: Decision) -> None:
    """As `decide_commit`, in any state of the group; sessions go on as they are.

    Error answers: those of `refusal_of_member`, ILLEGAL_GENERATION.
    """
    refused = _refusal_in_transaction(group, event)
    if refused:
        decision.reply(event.waiting, CommitAnswer(refused))
    else:
        _store(group, event, decision, event.transaction)


def _store(group: Group, event: Commits, decision: Decision, transaction: Transaction | None = None) -> None:
    made = event.made
    if made is not None:
        records = made.records
        too_large = made.too_large
    else:
        records, too_large = commit_records(group.group_id, event.offsets, group.limits.offset_metadata_max_bytes)
    # There are none if the metadata of all partitions are too long.
    if records:
        decision.store(records, StoreOffsets(event.waiting, too_large), made, transaction)
    else:
        decision.reply(event.waiting, CommitAnswer(ErrorCode.NONE, too_large))


def _refusal(group: Group, event: CommitOffsets) -> ErrorCode:
    # A simple commit, of a consumer with its own assignment or of a tool. While the group has members it would
    # overwrite their offsets, and falls through to UNKNOWN_MEMBER_ID.
    if event.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    refused = refusal_of_member(group, event.member_id, event.instance_id)
    if refused:
        return refused
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    # In PreparingRebalance a member commits what it has read before it gives its partitions up. Once the next
    # generation has begun, they may already be assigned to another member.
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _refusal_in_transaction(group: Group, event: CommitOffsetsInTransaction) -> ErrorCode:
    if event.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    # Clients before KIP-447 say nothing about the member: their transactional id alone fences a predecessor. So they
    # may commit while the group has members.
    if event.generation < 0 and event.member_id == "" and event.instance_id is None:
        return ErrorCode.NONE
    refused = refusal_of_member(group, event.member_id, event.instance_id)
    if refused:
        return refused
    # The state CompletingRebalance is allowed, as in Kafka, unlike for a commit outside of
    # transactions.
    return ErrorCode.NONE if event.generation == group.generation else ErrorCode.ILLEGAL_GENERATION
