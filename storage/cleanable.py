"""Which part of a log compaction may clean, whether it is worth it, and in which portions (pure; reference D.8).

    log start          first dirty offset           first uncleanable offset      log end
    |-- clean: one record a key --|-- dirty: to be cleaned --|-- not yet --|-- active segment --|

What is *dirty* begins where the last pass ended (`cleaner-offset-checkpoint`). A pass takes whole segments, and none

- that is being written;
- that is not synced to its end (Kafka cleans those, too): a power failure could take a newer value of a key after the
  pass has taken the older one;
- that reaches beyond the last stable offset: those records may yet be truncated, or belong to an undecided transaction;
- from the first one on that has a record younger than `min.compaction.lag.ms` (KIP-58).

It is due when the dirty share of all that is clean or cleanable exceeds `min.cleanable.dirty.ratio`, or when a dirty
segment began longer ago than `max.compaction.lag.ms` (KIP-354).

The result of a pass is written in portions: neighbouring segments that together are no larger than one, by the bytes of
log and indexes and by the range of offsets, become one. As in Kafka they may begin small and grow together over several
passes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.storage.index import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog

# A portion takes the place of its segments in one step of the event loop, with a few renames for each of them; Kafka
# has no such limit. What is left apart grows together in later passes.
PORTION_SEGMENTS_MAX = 32

_base_offset = attrgetter("base_offset")


class CompactionRules(Protocol):
    """The topic's settings that decide when it is cleaned."""

    @property
    def min_cleanable_dirty_ratio(self) -> float: ...

    @property
    def min_compaction_lag_ms(self) -> int: ...

    @property
    def max_compaction_lag_ms(self) -> int: ...


class SegmentFacts(Protocol):
    """What a decision needs to know of one segment. The methods cost a look into a file, so they are asked last."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp_ms(self) -> int:
        """The newest record's timestamp, or the file's time when records bear none."""

    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch; -1 without."""


class Sized(NamedTuple):
    """A segment on its way into a portion."""

    base_offset: int
    end_offset: int  # where the next one begins
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


class Cleanable(NamedTuple):
    """What a pass would clean of a log."""

    first_dirty_offset: int
    end_offset: int  # of the last segment that it may take
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    is_misplaced: bool  # the checkpoint named an offset that the log does not have

    @property
    def dirty_ratio(self) -> float:
        """The dirty share; the log with the largest is cleaned first."""
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, rules: CompactionRules) -> bool:
        """Whether it should be cleaned now."""
        return self.dirty_bytes > 0 and (self.is_overdue or self.dirty_ratio > rules.min_cleanable_dirty_ratio)


def find_cleanable(  # the facts of one log, by keyword
    segments: Sequence[SegmentFacts],
    rules: CompactionRules,
    *,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    recovery_point: int,
    now_ms: int,
) -> Cleanable:
    """What of these segments, the last of which is the active one, may be cleaned."""
    first_dirty_offset = log_start_offset if checkpoint is None else checkpoint
    is_misplaced = not log_start_offset <= first_dirty_offset <= log_end_offset
    if is_misplaced:
        first_dirty_offset = log_start_offset
    dirty = segments[number_of(segments, first_dirty_offset) : -1]
    limit = min(last_stable_offset, recovery_point, segments[-1].base_offset, _first_young(dirty, rules, now_ms))
    end_offset = segments[number_of(segments, max(limit, first_dirty_offset))].base_offset
    return Cleanable(
        first_dirty_offset,
        end_offset,
        sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty_offset),
        sum(segment.size_bytes for segment in dirty if segment.base_offset < end_offset),
        _is_overdue(dirty, rules, now_ms),
        is_misplaced,
    )


def cleanable_part(log: "PartitionLog", high_watermark: int, now_ms: int) -> Cleanable:
    """What a pass over this log would clean."""
    return find_cleanable(
        list(log.segments),
        log.config,
        checkpoint=log.first_dirty_offset,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        last_stable_offset=log.last_stable_offset(high_watermark),
        recovery_point=log.recovery_point,
        now_ms=now_ms,
    )


def number_of(segments: Sequence[SegmentFacts], offset: int) -> int:
    """Which segment holds this offset; the first one for offsets before it."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def _first_young(dirty: Sequence[SegmentFacts], rules: CompactionRules, now_ms: int) -> int:
    """Where the first segment begins that has a record within the lag; far away if none has."""
    lag_ms = rules.min_compaction_lag_ms
    young = (segment for segment in dirty if segment.largest_timestamp_ms() > now_ms - lag_ms) if lag_ms > 0 else ()
    return next((segment.base_offset for segment in young), 1 << 63)


def _is_overdue(dirty: Sequence[SegmentFacts], rules: CompactionRules, now_ms: int) -> bool:
    clean_until_ms = now_ms - max(rules.max_compaction_lag_ms, 0)
    return clean_until_ms > 0 and any(0 < segment.first_timestamp_ms() < clean_until_ms for segment in dirty)


def portions(segments: Sequence[Sized], segment_bytes: int, index_bytes: int) -> Iterator[int]:
    """How many segments, one after the other, each portion consists of."""
    number = 0
    while number < len(segments):
        base_offset = segments[number].base_offset
        sums = [0, 0, 0]
        count = 0
        for segment in segments[number : number + PORTION_SEGMENTS_MAX]:
            sums = [sums[0] + segment.size_bytes, sums[1] + segment.index_bytes, sums[2] + segment.time_index_bytes]
            fits = sums[0] <= segment_bytes and max(sums[1:]) <= index_bytes
            is_within_reach = segment.size_bytes == 0 or segment.end_offset - 1 - base_offset <= MAX_RELATIVE_OFFSET
            if count and not (fits and is_within_reach):
                break
            count += 1
        yield count
        number += count
