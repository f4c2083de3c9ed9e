"""The committed offsets of a group of any kind (pure): what the log says, and what is read (reference E.2, E.3)."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.coordinators.groups.records import Commit, GroupRecord, OffsetRecord
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition


class StoredOffset(NamedTuple):
    """A committed offset, and the offsets of its record in `__consumer_offsets` and of the record that made it visible.

    Both are the same, unless it was committed in a transaction: then the second is that of the COMMIT marker.
    """

    commit: Commit
    at_offset: int
    visible_from: int

    @property
    def is_by_marker(self) -> bool:
        """Whether it was committed in a transaction."""
        return self.visible_from != self.at_offset


@dataclass(slots=True)
class CommittedOffsets:
    """The committed offsets of a group of any kind, as the log says them. Only `replay` changes them."""

    offsets: dict[TopicPartition, StoredOffset] = field(default_factory=dict)
    # This is the offset of the newest tombstone of a committed offset. "No offset" is an answer, too: it is sent once
    # the tombstone is committed.
    forgotten_offset: int = NO_OFFSET
    # Offsets of open transactions, by partition and producer id (KIP-98). They take effect with the COMMIT marker.
    pending: dict[TopicPartition, dict[int, StoredOffset]] = field(default_factory=dict)

    def partitions(self) -> list[TopicPartition]:
        """All partitions with an offset, committed or pending."""
        return [*self.offsets, *(key for key in self.pending if key not in self.offsets)]

    def has(self, topic_partition: TopicPartition) -> bool:
        """Whether there is an offset of this partition, committed or pending."""
        return topic_partition in self.offsets or topic_partition in self.pending

    def newest_record(self, topic_partition: TopicPartition) -> int:
        """The offset of the newest record with an offset of this partition, committed or pending; NO_OFFSET if none."""
        stored = self.offsets.get(topic_partition)
        pending = self.pending.get(topic_partition, {}).values()
        return max([NO_OFFSET if stored is None else stored.at_offset, *(each.at_offset for each in pending)])


class ReadOffset(NamedTuple):
    """The committed offset of one partition; `commit` None if there is none."""

    topic_partition: TopicPartition
    commit: Commit | None
    error: ErrorCode = ErrorCode.NONE


class OffsetsView(NamedTuple):
    """The committed offsets of a group at one moment."""

    offsets: dict[TopicPartition, StoredOffset]
    forgotten_offset: int  # as in `CommittedOffsets`
    unstable: AbstractSet[TopicPartition]  # with offsets of open transactions; empty unless stable ones are required
    unstable_from: int  # offsets whose marker is here or later are unstable, too; ALL_STABLE unless stable required

    def is_unstable(self, topic_partition: TopicPartition, stored: StoredOffset | None) -> bool:
        """Whether the answer about a partition is UNSTABLE_OFFSET_COMMIT; `stored` is what `offsets` has."""
        return (stored is not None and stored.is_by_marker and stored.visible_from >= self.unstable_from) or (
            topic_partition in self.unstable
        )


ALL_STABLE = (1 << 63) - 1  # above every offset


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


def java_length(text: str) -> int:
    """The length of a Java string: UTF-16 code units, of which a character beyond U+FFFF takes two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


NO_OFFSETS = OffsetsView({}, NO_OFFSET, frozenset(), ALL_STABLE)  # of a group that does not exist


def offsets_view(
    committed: CommittedOffsets, wanted: Iterable[TopicPartition] | None = None, *, stable_below: int | None
) -> OffsetsView:
    """A copy of the committed offsets of these partitions, or of all (None).

    With `stable_below`, the high watermark, only stable offsets are read (KIP-447): a partition is marked as unstable
    as long as a transaction is open that has committed an offset of it, or as the COMMIT marker is not committed.
    """
    pending: AbstractSet[TopicPartition] = frozenset()

    # Without this a consumer that takes over would get the older offset. It would process the
    # records of a transaction again that is about to be committed.
    if stable_below is not None:
        pending = committed.pending.keys()
    unstable_from = ALL_STABLE if stable_below is None else stable_below
    if wanted is None:
        return OffsetsView(dict(committed.offsets), committed.forgotten_offset, frozenset(pending), unstable_from)
    offsets = {}
    unstable = set()
    for each in wanted:
        if (stored := committed.offsets.get(each)) is not None:
            offsets[each] = stored
        if each in pending:
            unstable.add(each)

    return OffsetsView(offsets, committed.forgotten_offset, unstable, unstable_from)


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
