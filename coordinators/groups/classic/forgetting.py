"""Removal of committed offsets and groups (pure): expiration, deleted partitions, and deletion on request.

An offset expires at the time that an old client set with the commit (OffsetCommit v2-4). All other offsets expire
`offsets.retention.minutes` after (KIP-186, KIP-211)
  - the group became Empty, if it had members;
  - the commit, if the group never had members, or is Stable and no longer subscribes to the topic.

An administrator deletes a group without members (KIP-229), or offsets of topics to which no member subscribes
(KIP-496). In each case a tombstone is stored for each offset, and another one for a group of which nothing is left.

Offsets of open transactions do not expire, and keep their group alive. A deletion takes them along: its tombstones drop
what is pending (`replay`), so that a COMMIT that comes later brings nothing back.
"""

from collections.abc import Container, Iterable

from barnabas.coordinators.groups.classic.events import (
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
from barnabas.coordinators.groups.classic.state import (
    CONSUMER_PROTOCOL_TYPE,
    Group,
    GroupState,
    apply_transition,
    subscribed_topics,
)
from barnabas.coordinators.groups.classic.subscriptions import EVERYTHING, NOTHING
from barnabas.coordinators.groups.records import NO_EXPIRY, Commit, GroupMetadataRecord, GroupRecord, OffsetRecord
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition


def decide_removal(
    group: Group, event: Expire | PartitionsDeleted | DeleteGroup | DeleteOffsets, now_ms: int, decision: Decision
) -> None:
    """Remove what has expired, what was deleted with its topic, or what an administrator deletes."""
    match event:
        case Expire():
            decide_expiry(group, event, now_ms, decision)
        case PartitionsDeleted():
            decide_partitions_deleted(group, event, decision)
        case DeleteGroup():
            decide_group_deletion(group, event, decision)
        case DeleteOffsets():
            decide_offset_deletion(group, event, decision)


def decide_expiry(group: Group, event: Expire, now_ms: int, decision: Decision) -> None:
    """Remove the offsets of `event.partitions` that have expired, and the group if nothing is left of it."""
    _forget_unasked(group, _expired(group, event, now_ms), decision)


def decide_partitions_deleted(group: Group, event: PartitionsDeleted, decision: Decision) -> None:
    """Remove the offsets of deleted partitions, and the group if nothing is left of it."""
    # The offsets of topics to which members subscribe go, too: a topic that is created again begins
    # at offset 0.
    newest = group.recorded.newest_record
    forgotten = [key for key, end_offset in event.deleted.items() if NO_OFFSET < newest(key) < end_offset]
    # Without this check the event would remove any Empty group without offsets, which would then
    # begin with generation 1 again. Such a group is left to the check for expired offsets.
    if forgotten:
        _forget_unasked(group, forgotten, decision)


def decide_group_deletion(group: Group, event: DeleteGroup, decision: Decision) -> None:
    """Remove all offsets and the group. Error answer: NON_EMPTY_GROUP if it has members."""
    if group.state is not GroupState.EMPTY:
        decision.reply(event.waiting, ErrorCode.NON_EMPTY_GROUP)
        return
    # An open transaction does not keep the group, as in Kafka: its COMMIT finds nothing.
    decision.store(deletion_records(group), StoreGroupDeletion(event.waiting), event.made)


def deletion_records(group: Group) -> list[GroupRecord]:
    """The tombstones of all that a group has stored."""
    return _tombstones(group, group.recorded.partitions(), dies=True)


def decide_offset_deletion(group: Group, event: DeleteOffsets, decision: Decision) -> None:
    """Remove the offsets of these partitions, except of topics to which members subscribe (one error code for each).

    Error answer: NON_EMPTY_GROUP if it has members and is not a consumer group.
    """
    in_use = NOTHING
    if group.state is not GroupState.EMPTY:
        # The metadata of consumers alone say what they read.
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            decision.reply(event.waiting, DeletionAnswer(ErrorCode.NON_EMPTY_GROUP, {}))
            return
        in_use = _in_use(group)

    subscribed = {key: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for key in event.partitions if key.topic in in_use}
    free = dict.fromkeys((key for key in event.partitions if key not in subscribed), ErrorCode.NONE)
    forgotten = [key for key in free if group.recorded.has(key)]
    # A pending member id that is about to join changes nothing, as in Kafka. Its client gets
    # UNKNOWN_MEMBER_ID and starts again.
    dies = _is_blank_without(group, len(forgotten))
    intent = StoreOffsetDeletion(event.waiting, subscribed | free, dies)
    decision.store(_tombstones(group, forgotten, dies=dies), intent)


def _in_use(group: Group) -> Container[str]:
    # The shell has the subscriptions read before such an event. If another generation has begun
    # since, they are unknown, and any topic may be in use.
    topics = subscribed_topics(group)
    return EVERYTHING if topics is None else topics


def _forget_unasked(group: Group, forgotten: list[TopicPartition], decision: Decision) -> None:
    # The group stays while a pending member id is about to join it.
    dies = _is_blank_without(group, len(forgotten)) and not group.pending_members
    records = _tombstones(group, forgotten, dies=dies)
    # A group that has stored nothing dies without a record.
    if dies or records:
        decision.store(records, StoreExpiry(dies))


def _is_blank_without(group: Group, forgotten: int) -> bool:
    """Whether nothing is left of the group once `forgotten` (a number) of its partitions have no offset any more."""
    offsets = group.recorded.offsets
    pending = group.recorded.pending
    # The count does without `partitions()`, because it is made for each portion of a large group.
    return group.state is GroupState.EMPTY and forgotten == len(offsets) + sum(key not in offsets for key in pending)


def _tombstones(group: Group, forgotten: Iterable[TopicPartition], *, dies: bool) -> list[GroupRecord]:
    records: list[GroupRecord] = [OffsetRecord(group.group_id, key, None) for key in forgotten]
    # This record is the last one of the same batch: the group is never loaded without its metadata
    # but with its offsets.
    if dies and group.recorded.metadata is not None:
        records.append(GroupMetadataRecord(group.group_id, None))
    return records


def _expired(group: Group, event: Expire, now_ms: int) -> list[TopicPartition]:
    offsets = group.recorded.offsets
    pending = group.recorded.pending
    in_use = NOTHING
    since_ms: int | None = None  # the begin of the retention, ms; None: the time of each commit

    # A group without a protocol type never had members: its offsets come from simple commits.
    if group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_timestamp_ms
        elif group.state is GroupState.STABLE:
            in_use = _in_use(group)
        # During a rebalance the next subscriptions are not known yet: any of the offsets may still be needed.
        else:
            in_use = EVERYTHING

    # The caller lists the partitions in portions, so an offset may have been removed since then.
    return [
        key
        for key in event.partitions
        if key.topic not in in_use
        and key in offsets
        # A tombstone would also drop the pending offset, which is about to be committed.
        and key not in pending
        and _is_over(offsets[key].commit, since_ms, now_ms, event.retention_ms)
    ]


def _is_over(commit: Commit, since_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    # The client's own time counts alone, even if the group became Empty later, as in Kafka.
    if commit.expire_timestamp_ms != NO_EXPIRY:
        return now_ms >= commit.expire_timestamp_ms
    return now_ms - (commit.commit_timestamp_ms if since_ms is None else since_ms) >= retention_ms


def apply_expired(group: Group, *, dies: bool, now_ms: int) -> None:
    """The tombstones are replayed: the group becomes Dead if nothing is left of it."""
    # The group ends only now, because it must stay if the append failed. `GroupShards._follow`
    # removes a Dead group.
    if dies:
        apply_transition(group, GroupState.DEAD, now_ms)


def apply_deleted(
    group: Group, intent: StoreGroupDeletion | StoreOffsetDeletion, last_offset: int, now_ms: int, decision: Decision
) -> None:
    """The tombstones are replayed: answer the request, once the last one is committed."""
    if isinstance(intent, StoreGroupDeletion):
        apply_expired(group, dies=True, now_ms=now_ms)
        decision.reply(intent.waiting, ErrorCode.NONE, last_offset)
    else:
        apply_expired(group, dies=intent.dies, now_ms=now_ms)
        decision.reply(intent.waiting, DeletionAnswer(ErrorCode.NONE, intent.codes), last_offset)
