"""Committed offsets of a group (pure): who may commit, and what is read back (reference E.2, E.3).

A commit is accepted from a member of the current generation, even while the next one is being prepared: the consumer
commits before it gives partitions up. Between the rounds (CompletingRebalance) it is refused, for the assignments are
being dealt. A commit without generation comes from a consumer that is in no group, or from a tool: only while the group
has no members.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from barnabas.broker.groups.events import CommitAnswer, CommitOffsets, Decision, StoreOffsets, Timer, TimerKind
from barnabas.broker.groups.records import Commit, GroupRecord, OffsetRecord
from barnabas.broker.groups.state import Group, GroupState, StoredOffset, refusal_of_member
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition


class ReadOffset(NamedTuple):
    """The answer about one partition; no commit means that none is known."""

    topic_partition: TopicPartition
    commit: Commit | None
    error: ErrorCode = ErrorCode.NONE


class OffsetsView(NamedTuple):
    """The offsets of a group at one moment."""

    offsets: Mapping[TopicPartition, StoredOffset]
    forgotten_offset: int
    unstable: AbstractSet[TopicPartition]


def decide_commit(group: Group, event: CommitOffsets, decision: Decision) -> None:
    """Store the offsets, or refuse all of them."""
    refused = _refusal(group, event)
    if refused:
        decision.reply(event.waiting, CommitAnswer(refused))
        return
    member = group.members.get(event.member_id)
    if member is not None:
        decision.timers[Timer(TimerKind.MEMBER, event.member_id)] = member.session_timeout_ms
    made = event.made
    if made is not None:
        records, too_large = made.records, made.too_large
    else:
        records, too_large = commit_records(group.group_id, event.offsets, group.limits.offset_metadata_max_bytes)
    if records:
        decision.store(records, StoreOffsets(event.waiting, too_large), made)
    else:
        decision.reply(event.waiting, CommitAnswer(ErrorCode.NONE, too_large))


def commit_records(
    group_id: str, offsets: Mapping[TopicPartition, Commit], metadata_max_bytes: int
) -> tuple[list[GroupRecord], frozenset[TopicPartition]]:
    """The records of a commit, and the partitions that it leaves out because their metadata are too large."""
    records: list[GroupRecord] = []
    too_large: list[TopicPartition] = []
    for topic_partition, commit in offsets.items():
        if commit.metadata and java_length(commit.metadata) > metadata_max_bytes:
            too_large.append(topic_partition)
        else:
            records.append(OffsetRecord(group_id, topic_partition, commit))
    return records, frozenset(too_large)


def _refusal(group: Group, event: CommitOffsets) -> ErrorCode:
    if event.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    refused = refusal_of_member(group, event.member_id, event.instance_id)
    if refused:
        return refused
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def java_length(text: str) -> int:
    """Kafka's limit counts UTF-16 code units, in which what lies beyond U+FFFF takes two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


NO_OFFSETS = OffsetsView({}, NO_OFFSET, frozenset())


def offsets_view(group: Group, wanted: Iterable[TopicPartition] | None = None, *, require_stable: bool) -> OffsetsView:
    """What the group has committed now, for these partitions or for all; it stays so while the group changes."""
    recorded = group.recorded
    unstable: set[TopicPartition] = set()
    if require_stable:
        unstable.update(*recorded.pending.values())
    if wanted is None:
        return OffsetsView(dict(recorded.offsets), recorded.forgotten_offset, unstable)
    offsets = {each: stored for each in wanted if (stored := recorded.offsets.get(each)) is not None}
    return OffsetsView(offsets, recorded.forgotten_offset, unstable)


def read_offset(view: OffsetsView, topic_partition: TopicPartition) -> ReadOffset:
    """What is committed for this partition."""
    if view.unstable and topic_partition in view.unstable:
        return ReadOffset(topic_partition, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    stored = view.offsets.get(topic_partition)
    return ReadOffset(topic_partition, None if stored is None else stored.commit)


def rests_on(view: OffsetsView, wanted: Iterable[TopicPartition]) -> int:
    """The last record that an answer about these partitions rests on."""
    offsets, forgotten_offset, _ = view
    after_offset = NO_OFFSET
    for topic_partition in wanted:
        stored = offsets.get(topic_partition)
        after_offset = max(after_offset, forgotten_offset if stored is None else stored.at_offset)
    return after_offset
