"""Committed offsets of a group (pure): who may commit, and what is read back (reference E.2, E.3)."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from barnabas.coordinators.groups.events import (
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
from barnabas.coordinators.groups.records import Commit, GroupRecord, OffsetRecord
from barnabas.coordinators.groups.state import Group, GroupState, StoredOffset, refusal_of_member
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition


class ReadOffset(NamedTuple):
    """The committed offset of one partition; `commit` None if there is none."""

    topic_partition: TopicPartition
    commit: Commit | None
    error: ErrorCode = ErrorCode.NONE


class OffsetsView(NamedTuple):
    """The committed offsets of a group at one moment."""

    offsets: dict[TopicPartition, StoredOffset]
    forgotten_offset: int  # as in `state.Recorded`
    unstable: AbstractSet[TopicPartition]  # with offsets of open transactions; empty unless stable ones are required
    unstable_from: int  # offsets whose marker is here or later are unstable, too; ALL_STABLE unless stable required

    def is_unstable(self, topic_partition: TopicPartition, stored: StoredOffset | None) -> bool:
        """Whether the answer about a partition is UNSTABLE_OFFSET_COMMIT; `stored` is what `offsets` has."""
        return (stored is not None and stored.is_by_marker and stored.visible_from >= self.unstable_from) or (
            topic_partition in self.unstable
        )


ALL_STABLE = (1 << 63) - 1  # above every offset


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


def commit_records(
    group_id: str, offsets: Mapping[TopicPartition, Commit], metadata_max_bytes: int
) -> tuple[list[GroupRecord], frozenset[TopicPartition]]:
    """The records of a commit, and the partitions that it leaves out because their metadata are too long.

    `metadata_max_bytes` is `offset.metadata.max.bytes`, which limits what `java_length` returns.
    """
    # May run in a thread: it reads its arguments only, not the group.
    records: list[GroupRecord] = []
    too_large: list[TopicPartition] = []
    for topic_partition, commit in offsets.items():
        if commit.metadata and java_length(commit.metadata) > metadata_max_bytes:
            too_large.append(topic_partition)
        else:
            records.append(OffsetRecord(group_id, topic_partition, commit))
    return records, frozenset(too_large)


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


def java_length(text: str) -> int:
    """The length of a Java string: UTF-16 code units, of which a character beyond U+FFFF takes two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


NO_OFFSETS = OffsetsView({}, NO_OFFSET, frozenset(), ALL_STABLE)  # of a group that does not exist


def offsets_view(
    group: Group, wanted: Iterable[TopicPartition] | None = None, *, stable_below: int | None
) -> OffsetsView:
    """A copy of the committed offsets of these partitions, or of all (None).

    With `stable_below`, the high watermark, only stable offsets are read (KIP-447): a partition is marked as unstable
    as long as a transaction is open that has committed an offset of it, or as the COMMIT marker is not committed.
    """
    recorded = group.recorded
    pending: AbstractSet[TopicPartition] = frozenset()

    # Without this a consumer that takes over would read the older offset, and process records of a transaction that is
    # about to be committed a second time.
    if stable_below is not None:
        pending = recorded.pending.keys()
    unstable_from = ALL_STABLE if stable_below is None else stable_below
    if wanted is None:
        return OffsetsView(dict(recorded.offsets), recorded.forgotten_offset, frozenset(pending), unstable_from)
    offsets = {}
    unstable = set()
    for each in wanted:
        if (stored := recorded.offsets.get(each)) is not None:
            offsets[each] = stored
        if each in pending:
            unstable.add(each)

    return OffsetsView(offsets, recorded.forgotten_offset, unstable, unstable_from)


def read_offset(view: OffsetsView, topic_partition: TopicPartition) -> ReadOffset:
    """The committed offset of this partition, or UNSTABLE_OFFSET_COMMIT."""
    stored = view.offsets.get(topic_partition)
    if view.is_unstable(topic_partition, stored):
        return ReadOffset(topic_partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return ReadOffset(topic_partition, None if stored is None else stored.commit)


def rests_on(view: OffsetsView, wanted: Iterable[TopicPartition]) -> int:
    """The offset of the last record that an answer about these partitions depends on; NO_OFFSET if there is none."""
    after_offset = NO_OFFSET
    for topic_partition in wanted:
        stored = view.offsets.get(topic_partition)
        # That a partition has no committed offset depends on a tombstone. The newest tombstone of the group stands for
        # it, as the group does not keep the offsets of all tombstones.
        if stored is None:
            after_offset = max(after_offset, view.forgotten_offset)
        # An unstable offset is not shown.
        elif not view.is_unstable(topic_partition, stored):
            after_offset = max(after_offset, stored.visible_from)
    return after_offset
