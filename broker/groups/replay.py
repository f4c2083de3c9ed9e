"""The groups of one coordinator partition, and `replay`: the only way in which their recorded part changes (pure).

A live coordinator replays each record right after it appended it; a coordinator that takes over replays the whole log.
So both know the same, whatever happened in between, and nothing has to be rolled back: what was not appended was not
replayed either.

Offsets that a transaction commits stand aside until its marker comes: COMMIT lets them take effect unless a newer
record has overtaken them, ABORT drops them (KIP-98).
"""

from dataclasses import dataclass, field

from barnabas.broker.groups.ports import GroupConfig
from barnabas.broker.groups.records import GroupRecord, OffsetRecord
from barnabas.broker.groups.state import Group, Recorded, StoredOffset

NO_PRODUCER = -1


@dataclass(slots=True)
class Groups:
    """Groups by id, and which of them each open transaction touches."""

    limits: GroupConfig
    by_id: dict[str, Group] = field(default_factory=dict)
    touched: dict[int, dict[str, None]] = field(default_factory=dict)  # producer id -> group ids

    def get_or_create(self, group_id: str, now_ms: int | None = None) -> Group:
        """The group; made, with nothing recorded, when it does not exist."""
        group = self.by_id.get(group_id)
        if group is None:
            group = self.by_id[group_id] = Group(group_id, self.limits, now_ms)
        return group


def replay(groups: Groups, record: GroupRecord, offset: int, producer_id: int = NO_PRODUCER) -> None:
    """Take over what the record at `offset` says; `producer_id` when it is part of a transaction."""
    recorded = groups.get_or_create(record.group_id).recorded
    if not isinstance(record, OffsetRecord):
        recorded.metadata = record.metadata
        recorded.metadata_offset = offset
    elif producer_id != NO_PRODUCER:
        _replay_pending(groups, recorded, record, offset, producer_id)
    elif record.commit is None:
        recorded.offsets.pop(record.topic_partition, None)
        recorded.forgotten_offset = offset
    else:
        recorded.offsets[record.topic_partition] = StoredOffset(record.commit, offset)


def _replay_pending(groups: Groups, recorded: Recorded, record: OffsetRecord, offset: int, producer_id: int) -> None:
    if record.commit is None:
        return
    pending = recorded.pending.setdefault(producer_id, {})
    pending[record.topic_partition] = StoredOffset(record.commit, offset)
    groups.touched.setdefault(producer_id, {})[record.group_id] = None


def replay_marker(groups: Groups, producer_id: int, *, committed: bool) -> None:
    """A transaction ended: its offsets take effect, or never happened."""
    for group_id in groups.touched.pop(producer_id, {}):
        recorded = groups.by_id[group_id].recorded
        for topic_partition, stored in recorded.pending.pop(producer_id, {}).items():
            known = recorded.offsets.get(topic_partition)
            if committed and (known is None or known.at_offset < stored.at_offset):
                recorded.offsets[topic_partition] = stored
