"""What a group forgets (pure): offsets that expire, that are deleted, or whose topic is gone; and the group itself.

Offsets expire `offsets.retention.minutes` after (KIP-186, KIP-211)
  - the group became empty, when it is a group with members;
  - the last commit, when no group protocol was ever used, or when a stable group does not read the topic any more;
  - or at the time that an old client asked for itself.

An administrator deletes a group that has no members (KIP-229), or offsets of topics that its members do not read
(KIP-496). Whatever the reason, a tombstone is stored for each offset, and an empty group of which nothing is left ends.
"""

from collections.abc import Iterable

from barnabas.broker.groups.events import (
    Decision,
    DeleteGroup,
    DeleteOffsets,
    DeletionAnswer,
    Expire,
    PartitionsDeleted,
    StoreExpiry,
    StoreGroupDeletion,
    StoreOffsetDeletion,
)
from barnabas.broker.groups.records import NO_EXPIRY, Commit, GroupMetadataRecord, GroupRecord, OffsetRecord
from barnabas.broker.groups.state import (
    CONSUMER_PROTOCOL_TYPE,
    Group,
    GroupState,
    apply_transition,
    subscribed_topics,
)
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition


def decide_expiry(group: Group, event: Expire, now_ms: int, decision: Decision) -> None:
    """Forget what has expired, and the group itself when nothing is left of it."""
    _forget_unasked(group, _expired(group, event, now_ms), decision)


def decide_partitions_deleted(group: Group, event: PartitionsDeleted, decision: Decision) -> None:
    """Forget the offsets of partitions that were deleted."""
    _forget_unasked(group, [key for key in event.deleted if key in group.recorded.offsets], decision)


def decide_group_deletion(group: Group, event: DeleteGroup, decision: Decision) -> None:
    """Forget everything, if the group has no members."""
    if group.state is not GroupState.EMPTY:
        decision.reply(event.waiting, ErrorCode.NON_EMPTY_GROUP)
        return
    dies = not group.recorded.pending  # an open transaction may bring offsets yet; the group ends without them later
    decision.store(deletion_records(group, dies=dies), StoreGroupDeletion(event.waiting, dies), event.made)


def deletion_records(group: Group, *, dies: bool = True) -> list[GroupRecord]:
    """The records by which everything is forgotten that a group stored."""
    return _tombstones(group, group.recorded.offsets, dies=dies)


def decide_offset_deletion(group: Group, event: DeleteOffsets, decision: Decision) -> None:
    """Forget the offsets of some partitions, but for those of topics that members read."""
    in_use: frozenset[str] | None = frozenset()
    if group.state is not GroupState.EMPTY:
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            decision.reply(event.waiting, DeletionAnswer(ErrorCode.NON_EMPTY_GROUP, {}))
            return
        in_use = subscribed_topics(group)
    subscribed = {key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for key in event.partitions if _is_used(key, in_use)}
    free = dict.fromkeys((key for key in event.partitions if key not in subscribed), ErrorCode.NONE)
    forgotten = [key for key in free if key in group.recorded.offsets]
    dies = _is_blank_without(group, len(forgotten))  # also under those who were given an id: as Kafka, they start again
    intent = StoreOffsetDeletion(event.waiting, subscribed | free, dies)
    decision.store(_tombstones(group, forgotten, dies=dies), intent)


def _is_used(key: TopicPartition, in_use: frozenset[str] | None) -> bool:
    return in_use is None or key.topic in in_use


def _forget_unasked(group: Group, forgotten: list[TopicPartition], decision: Decision) -> None:
    dies = _is_blank_without(group, len(forgotten)) and not group.pending_members
    records = _tombstones(group, forgotten, dies=dies)
    if dies or records:
        decision.store(records, StoreExpiry(dies))


def _is_blank_without(group: Group, forgotten: int) -> bool:
    """Whether nothing is left of the group once so many of its offsets are forgotten."""
    recorded = group.recorded
    return group.state is GroupState.EMPTY and forgotten == len(recorded.offsets) and not recorded.pending


def _tombstones(group: Group, forgotten: Iterable[TopicPartition], *, dies: bool) -> list[GroupRecord]:
    records: list[GroupRecord] = [OffsetRecord(group.group_id, key, None) for key in forgotten]
    if dies and group.recorded.metadata is not None:
        records.append(GroupMetadataRecord(group.group_id, None))
    return records


def _expired(group: Group, event: Expire, now_ms: int) -> list[TopicPartition]:
    offsets = group.recorded.offsets
    in_use: frozenset[str] | None = frozenset()
    since_ms: int | None = None  # from when the retention counts; None: from the commit
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_timestamp_ms
        elif group.state is GroupState.STABLE:
            in_use = subscribed_topics(group)
        else:
            in_use = None
    if in_use is None:  # any of them may still be needed
        return []
    return [
        key
        for key in event.partitions
        if key.topic not in in_use
        and key in offsets
        and _is_over(offsets[key].commit, since_ms, now_ms, event.retention_ms)
    ]


def _is_over(commit: Commit, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if commit.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= commit.expire_timestamp_ms
    return now_ms - (commit.commit_timestamp_ms if since_ms is None else since_ms) >= retention_ms


def apply_expired(group: Group, *, dies: bool, now_ms: int) -> None:
    """What expired is replayed; the group ends if that was all."""
    if dies:
        apply_transition(group, GroupState.DEAD, now_ms)


def apply_deleted(
    group: Group, intent: StoreGroupDeletion | StoreOffsetDeletion, last_offset: int, now_ms: int, decision: Decision
) -> None:
    """What was deleted on request is replayed: tell who asked."""
    apply_expired(group, dies=intent.dies, now_ms=now_ms)
    if isinstance(intent, StoreGroupDeletion):
        decision.reply(intent.waiting, ErrorCode.NONE, last_offset)
    else:
        decision.reply(intent.waiting, DeletionAnswer(ErrorCode.NONE, intent.codes), last_offset)
