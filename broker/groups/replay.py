"""The groups of one coordinator partition, and `replay`: the only way in which their recorded part changes (pure).

A coordinator replays each record right after its append, and a new coordinator replays the whole log. So both have the
same state, and nothing has to be rolled back: a record that could not be appended was not replayed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from barnabas.broker.groups.ports import GroupConfig
from barnabas.broker.groups.records import GroupRecord, OffsetRecord
from barnabas.broker.groups.state import Group, Recorded, StoredOffset
from barnabas.wire.sentinels import NO_PRODUCER_ID

# `StoredOffset._make` without a Python frame.
_as_stored = partial(tuple.__new__, StoredOffset)


@dataclass(slots=True)
class Groups:
    """The groups by id, and the groups in which each open transaction has pending offsets."""

    limits: GroupConfig
    by_id: dict[str, Group] = field(default_factory=dict)
    # A marker names the producer alone, and must not need a pass over all groups.
    touched: dict[int, dict[str, None]] = field(default_factory=dict)  # producer id -> group ids

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
    # Whatever the producer id is: a transaction writes committed offsets only (TxnOffsetCommit).
    if not isinstance(record, OffsetRecord):
        recorded.metadata = record.metadata  # None: a tombstone
        recorded.metadata_offset = offset
    elif producer_id != NO_PRODUCER_ID:
        _replay_pending(groups, recorded, record, offset, producer_id)
    elif record.commit is None:
        recorded.offsets.pop(record.topic_partition, None)
        recorded.forgotten_offset = offset
    else:
        recorded.offsets[record.topic_partition] = _as_stored((record.commit, offset))


def replay_all(groups: Groups, records: Sequence[GroupRecord], base_offset: int) -> None:
    """As `replay` of each record, for the records of one decision: all are of one group and outside transactions."""
    offsets = groups.get_or_create(records[0].group_id).recorded.offsets
    for offset, record in enumerate(records, base_offset):
        # The usual record, without a call: one commit may have thousands of them, which are replayed in one step.
        if isinstance(record, OffsetRecord) and record.commit is not None:
            offsets[record.topic_partition] = _as_stored((record.commit, offset))
        else:
            replay(groups, record, offset)


def _replay_pending(groups: Groups, recorded: Recorded, record: OffsetRecord, offset: int, producer_id: int) -> None:
    # A transaction commits offsets and never deletes any, so a tombstone is no pending offset.
    if record.commit is None:
        return
    # Not visible before the marker (KIP-98): a consumer would skip records of which the results may be aborted.
    pending = recorded.pending.setdefault(producer_id, {})
    pending[record.topic_partition] = StoredOffset(record.commit, offset)
    groups.touched.setdefault(producer_id, {})[record.group_id] = None


def replay_marker(groups: Groups, producer_id: int, *, committed: bool) -> None:
    """A transaction ended: with COMMIT its pending offsets take effect, with ABORT they are dropped (KIP-98)."""
    # No groups if the transaction has ended already: a transaction coordinator writes a marker again after a fail-over.
    for group_id in groups.touched.pop(producer_id, {}):
        # It exists: a group with pending offsets is not removed (`is_blank`).
        recorded = groups.by_id[group_id].recorded
        for topic_partition, stored in recorded.pending.pop(producer_id, {}).items():
            # A commit outside the transaction that is newer than the pending one wins, as in Kafka.
            known = recorded.offsets.get(topic_partition)
            if committed and (known is None or known.at_offset < stored.at_offset):
                recorded.offsets[topic_partition] = stored
