"""The groups of one coordinator partition, and `replay`: the only way in which their recorded part changes (pure).

A coordinator replays each record right after its append, and a new coordinator replays the whole log. So both have the
same state, and nothing has to be rolled back: a record that could not be appended was not replayed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from barnabas.coordinators.groups.classic.state import Group
from barnabas.coordinators.groups.offsets import CommittedOffsets, StoredOffset
from barnabas.coordinators.groups.ports import GroupConfig
from barnabas.coordinators.groups.records import GroupRecord, OffsetRecord
from barnabas.wire.sentinels import NO_PRODUCER_ID
from barnabas.wire.topics import TopicPartition
from barnabas.world.connection_order import LatestConnections

PendingKey = tuple[str, TopicPartition]  # group id and partition
ProducerKey = tuple[int, int]  # producer id and epoch
COMMITTERS_MAX = 10_000  # producers whose connections are remembered

# This is `StoredOffset._make` without a Python frame.
_as_stored = partial(tuple.__new__, StoredOffset)


@dataclass(slots=True)
class Groups:
    """The groups by id, and the pending offsets of each open transaction."""

    limits: GroupConfig
    by_id: dict[str, Group] = field(default_factory=dict)
    # Producer id -> what it has in `Recorded.pending` of any group. A marker names the producer alone, and must not
    # need a pass over all groups.
    open: dict[int, dict[PendingKey, StoredOffset]] = field(default_factory=dict)
    # Of the offsets that were loaded: the ids of their topics, and the topics whose id was not found yet.
    loaded_topics: dict[str, bytes] = field(default_factory=dict)
    unknown_topics: dict[str, None] = field(default_factory=dict)
    # On which connection each producer has sent offsets since the log was loaded. Not in the log.
    committers: LatestConnections[ProducerKey] = field(default_factory=lambda: LatestConnections(COMMITTERS_MAX))

    def get_or_create(self, group_id: str, now_ms: int | None = None) -> Group:
        """The group; an Empty one is created if it does not exist. `now_ms`: when it became Empty."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = Group(group_id, self.limits, now_ms)
        return group


def replay(groups: Groups, record: GroupRecord, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
    """Change the recorded part as the record at `offset` says. `producer_id` if it belongs to a transaction."""
    # Also creates a group for a tombstone, whose offset an answer may depend on; `GroupLoader.finish` removes such
    # groups.
    recorded = groups.get_or_create(record.group_id).recorded
    # `producer_id` does not count here: in a transaction only committed offsets are written
    # (TxnOffsetCommit).
    if not isinstance(record, OffsetRecord):
        recorded.metadata = record.metadata  # None: a tombstone
        recorded.metadata_offset = offset
    elif producer_id != NO_PRODUCER_ID:
        _replay_pending(groups, recorded, record, offset, producer_id)
    elif record.commit is None:
        recorded.offsets.pop(record.topic_partition, None)
        recorded.forgotten_offset = offset
        _drop_pending(groups, recorded, record)
    else:
        recorded.offsets[record.topic_partition] = _as_stored((record.commit, offset, offset))


def replay_all(
    groups: Groups, records: Sequence[GroupRecord], base_offset: int, producer_id: int = NO_PRODUCER_ID
) -> None:
    """As `replay` of each record, for the records of one decision: all are of one group."""
    offsets = groups.get_or_create(records[0].group_id).recorded.offsets
    for offset, record in enumerate(records, base_offset):
        # The usual record is replayed without a call, because one commit may have thousands of them
        # in one step.
        if producer_id == NO_PRODUCER_ID and isinstance(record, OffsetRecord) and record.commit is not None:
            offsets[record.topic_partition] = _as_stored((record.commit, offset, offset))
        else:
            replay(groups, record, offset, producer_id)


def _replay_pending(
    groups: Groups, recorded: CommittedOffsets, record: OffsetRecord, offset: int, producer_id: int
) -> None:
    # A transaction commits offsets and never deletes any, so a tombstone is no pending offset.
    if record.commit is None:
        return
    # The offset is not visible before the marker (KIP-98): a consumer would skip records of which
    # the results may be aborted. A second commit of the same partition in the transaction replaces
    # the first.
    stored = _as_stored((record.commit, offset, offset))
    recorded.pending.setdefault(record.topic_partition, {})[producer_id] = stored
    groups.open.setdefault(producer_id, {})[record.group_id, record.topic_partition] = stored


def _drop_pending(groups: Groups, recorded: CommittedOffsets, deleted: OffsetRecord) -> None:
    """A tombstone of a partition: what is pending for it takes no effect later."""
    for producer_id in recorded.pending.pop(deleted.topic_partition, ()):
        pending = groups.open[producer_id]
        del pending[deleted.group_id, deleted.topic_partition]
        if not pending:
            del groups.open[producer_id]


def replay_marker(groups: Groups, producer_id: int, offset: int, *, committed: bool) -> None:
    """The marker at `offset` ends a transaction: its pending offsets take effect (COMMIT) or are dropped (KIP-98)."""
    # Nothing is pending if the transaction has ended already: a transaction coordinator writes a marker again after a
    # fail-over. A group with pending offsets exists: it is not removed (`is_blank`).
    for (group_id, topic_partition), stored in groups.open.pop(producer_id, {}).items():
        recorded = groups.by_id[group_id].recorded
        of_partition = recorded.pending.pop(topic_partition)
        # Usually no other transaction has an offset pending for the partition, and nothing is put
        # back. That is faster, which counts when thousands of offsets end in one step.
        if len(of_partition) > 1:
            del of_partition[producer_id]
            recorded.pending[topic_partition] = of_partition
        if committed:
            known = recorded.offsets.get(topic_partition)
            # A newer record wins, as in Kafka: a commit outside the transaction, or in one that has ended before.
            if known is None or known.at_offset < stored.at_offset:
                recorded.offsets[topic_partition] = _as_stored((stored.commit, stored.at_offset, offset))
