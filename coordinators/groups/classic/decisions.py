"""The entry of the pure part: one event in, one decision out.

    decide(group, event, now_ms, rng)            what follows from an event; if the decision has records, then one of:
    apply_stored(group, intent, last_offset, …)  the records are appended and replayed
    apply_refused(group, intent, error, …)       the append failed

`now_ms` is the wall clock: for timestamps in records and the retention of offsets. Timers are durations. `rng` makes
member ids.
"""

import random

from barnabas.coordinators.groups.classic.committing import decide_commit, decide_commit_in_transaction
from barnabas.coordinators.groups.classic.events import (
    Answered,
    AssignmentNotReplicated,
    CommitAnswer,
    CommitOffsets,
    CommitOffsetsInTransaction,
    Decision,
    DeleteGroup,
    DeleteOffsets,
    DeletionAnswer,
    Event,
    Expire,
    Forgotten,
    Heartbeat,
    Intent,
    Join,
    JoinAnswer,
    Leave,
    Loaded,
    PartitionsDeleted,
    Shed,
    StoreAssignment,
    StoreExpiry,
    StoreGroupDeletion,
    StoreOffsetDeletion,
    StoreOffsets,
    StoreReplacement,
    Sync,
    TimerFired,
)
from barnabas.coordinators.groups.classic.forgetting import (
    apply_deleted,
    apply_expired,
    decide_removal,
)
from barnabas.coordinators.groups.classic.joining import apply_replacement_stored, decide_join
from barnabas.coordinators.groups.classic.sessions import (
    apply_answered,
    apply_forgotten,
    apply_timer,
    decide_heartbeat,
    decide_leave,
    decide_loaded,
    decide_shed,
)
from barnabas.coordinators.groups.classic.state import Group, GroupState
from barnabas.coordinators.groups.classic.syncing import (
    apply_assignment_lost,
    apply_assignment_refused,
    apply_assignment_stored,
    decide_sync,
)
from barnabas.coordinators.runtime.shard import NOT_STORED
from barnabas.wire.errors import ErrorCode

# The errors of a failed append for clients, as in Kafka's GroupMetadataManager. Other codes stay the same.
GROUP_NOT_STORED = NOT_STORED | {
    # Members rejoin on this error. A commit keeps REQUEST_TIMED_OUT, and its client retries it.
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    # No member alone has caused this: the record has the metadata and the assignments of all members.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
OFFSETS_NOT_STORED = NOT_STORED | {
    # The client can commit fewer partitions at a time. It does not retry this error: the same commit would be too large
    # again.
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}
# A commit in a transaction may also fail because the transaction could not be verified.
IN_TRANSACTION_NOT_STORED = OFFSETS_NOT_STORED | {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}


def decide(group: Group, event: Event, now_ms: int, rng: random.Random) -> Decision:
    """What follows from `event`. Changes the volatile part of the group, never the recorded part."""
    decision = Decision()

    # The most frequent events come first: `match` compares the types one after the other.
    match event:
        case Heartbeat():
            decide_heartbeat(group, event, decision)
        case CommitOffsets():
            decide_commit(group, event, decision)
        case CommitOffsetsInTransaction():
            decide_commit_in_transaction(group, event, decision)
        case Join():
            decide_join(group, event, now_ms, rng, decision)
        case Sync():
            decide_sync(group, event, decision)
        case Leave():
            decide_leave(group, event, now_ms, decision)
        case TimerFired():
            apply_timer(group, event.timer, now_ms, decision)
        case Shed():
            decide_shed(group, event, now_ms, decision)
        case Forgotten():
            apply_forgotten(group, event, decision)
        case Answered():
            apply_answered(group, event, decision)
        case AssignmentNotReplicated():
            apply_assignment_lost(group, event, now_ms, decision)
        case Loaded():
            decide_loaded(group, now_ms, decision)
        case Expire() | PartitionsDeleted() | DeleteGroup() | DeleteOffsets():
            decide_removal(group, event, now_ms, decision)
    return decision


def apply_stored(group: Group, intent: Intent, last_offset: int, now_ms: int) -> Decision:
    """What follows once the records of a decision are appended and replayed; the last one is at `last_offset`."""
    decision = Decision()
    # Nothing follows from StoreEmptiness: the group became Empty when the decision was made.
    match intent:
        case StoreOffsets():
            decision.reply(intent.waiting, CommitAnswer(ErrorCode.NONE, intent.too_large), last_offset)
        case StoreAssignment():
            apply_assignment_stored(group, intent, now_ms, decision)
        case StoreReplacement():
            apply_replacement_stored(group, intent, decision)
        case StoreExpiry():
            apply_expired(group, dies=intent.dies, now_ms=now_ms)
        case StoreGroupDeletion() | StoreOffsetDeletion():
            apply_deleted(group, intent, last_offset, now_ms, decision)
    return decision


def apply_refused(group: Group, intent: Intent, error: ErrorCode, now_ms: int) -> Decision:
    """What follows if the records of a decision could not be appended, because of `error`."""
    decision = Decision()
    match intent:
        case StoreOffsets():
            # Nothing to take back: a commit changes the recorded part alone, and that only by replay.
            code = OFFSETS_NOT_STORED.get(error, error)
            decision.reply(intent.waiting, CommitAnswer(code, intent.too_large))
        case StoreAssignment():
            # A failed write takes the log directory offline, which unloads the group within the
            # append. Then the group is Dead, and its requests have been answered.
            if group.state is not GroupState.DEAD:
                apply_assignment_refused(group, GROUP_NOT_STORED.get(error, error), now_ms, decision)
        case StoreReplacement():
            # This request is answered even if the group is Dead: it does not wait in `joins`, so
            # the unloading has not answered it.
            decision.reply(intent.join.waiting, _not_replaced(group, GROUP_NOT_STORED.get(error, error)))
        case StoreGroupDeletion():
            decision.reply(intent.waiting, OFFSETS_NOT_STORED.get(error, error))
        case StoreOffsetDeletion():
            decision.reply(intent.waiting, DeletionAnswer(OFFSETS_NOT_STORED.get(error, error), {}))
        # No request waits for the records of StoreEmptiness and StoreExpiry.
        case _:
            decision.notes.append(f"{type(intent).__name__} failed: {error.name}")
    return decision


def _not_replaced(group: Group, error: ErrorCode) -> JoinAnswer:
    """The answer when the new id of a static member could not be stored."""
    # The answer has no member id, as the new one is not in the group: the client retries with its
    # instance id.
    return JoinAnswer(
        error=error,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader_id=group.leader_id or "",
    )
