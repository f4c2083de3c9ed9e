"""Which part of a log compaction may clean, whether a pass is due, and in which portions (pure; reference D.8).

    log start          first dirty offset           first uncleanable offset      log end
    |-- clean: one record a key --|-- dirty: to be cleaned --|-- not yet --|-- active segment --|

The *dirty* part begins where the last pass ended (`cleaner-offset-checkpoint`). A pass takes whole segments up to the
first uncleanable offset; `find_cleanable` lists what limits it. It is due when the dirty share of the clean and
cleanable bytes exceeds `min.cleanable.dirty.ratio`, or when a dirty segment began longer ago than
`max.compaction.lag.ms` (KIP-354).

The output is written in portions: neighbouring segments that together are no larger than one segment, by the bytes of
log and indexes and by the range of offsets, become one. As in Kafka, small segments may grow together over several
passes.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple, Protocol

from barnabas.storage.index import MAX_RELATIVE_OFFSET

# A portion replaces its segments in one step on the event loop, with a few renames per segment, so its size is limited.
# Kafka has no such limit. Segments that stay separate grow together in later passes.
PORTION_SEGMENTS_MAX = 32

_base_offset = attrgetter("base_offset")


class CompactionRules(Protocol):
    """The topic settings that decide when it is cleaned."""

    @property
    def min_cleanable_dirty_ratio(self) -> float: ...

    @property
    def min_compaction_lag_ms(self) -> int: ...

    @property
    def max_compaction_lag_ms(self) -> int: ...


class SegmentFacts(Protocol):
    """The facts about one segment by which compaction and retention decide. The two methods may read a file."""

    @property
    def base_offset(self) -> int: ...

    @property
    def next_base_offset(self) -> int | None:
        """Base offset of the next segment; None for the last one."""

    @property
    def size_bytes(self) -> int: ...

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp, or the file's mtime if records have none."""

    def first_timestamp_ms(self) -> int:
        """The max timestamp of the first batch; -1 without."""


class Sized(NamedTuple):
    """The sizes of a segment, for `portions`."""

    base_offset: int
    end_offset: int  # base offset of the next segment
    size_bytes: int
    index_bytes: int
    time_index_bytes: int


class Cleanable(NamedTuple):
    """The part of a log that a pass would clean."""

    first_dirty_offset: int
    end_offset: int  # end of the last segment that the pass may take
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    is_misplaced: bool  # the checkpoint lies outside the log, so the pass begins at the log start

    @property
    def dirty_ratio(self) -> float:
        """The share of dirty bytes, 0.0 to 1.0; the log with the largest one is cleaned first."""
        # A log without bytes has nothing to clean, so it comes last.
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, rules: CompactionRules) -> bool:
        """Whether the log should be cleaned now."""
        # A log without dirty bytes is not due, even if it is overdue: a pass would copy it for
        # nothing. Kafka, too, compares the ratio with `>`.
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
    """The part of these segments that may be cleaned; the last segment must be the active one."""
    first_dirty_offset = log_start_offset if checkpoint is None else checkpoint

    # The checkpoint may be behind after retention or DeleteRecords, or ahead after a truncation that a crash followed.
    is_misplaced = not log_start_offset <= first_dirty_offset <= log_end_offset
    if is_misplaced:
        first_dirty_offset = log_start_offset

    # The dirty offset may lie inside a segment: its clean records are then noted again, which is harmless.
    dirty = segments[number_of(segments, first_dirty_offset) : -1]

    # A pass stops before
    # - the last stable offset: later records may still be truncated, or belong to an undecided transaction;
    # - the recovery point: after a power failure a newer value of a key could be lost although the pass has dropped the
    #   older one. (Kafka cleans unsynced segments, too.)
    # - the active segment, which is being written;
    # - the first segment with a record younger than min.compaction.lag.ms (KIP-58).
    limit = min(last_stable_offset, recovery_point, segments[-1].base_offset, _first_young(dirty, rules, now_ms))

    # A pass takes whole segments, so the limit is rounded down to a base offset. If it lies below the first
    # dirty offset, nothing can be cleaned, and the part is empty.
    end_offset = segments[number_of(segments, max(limit, first_dirty_offset))].base_offset
    return Cleanable(
        first_dirty_offset,
        end_offset,
        sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty_offset),
        sum(segment.size_bytes for segment in dirty if segment.base_offset < end_offset),
        _is_overdue(dirty, rules, now_ms),
        is_misplaced,
    )


def number_of(segments: Sequence[SegmentFacts], offset: int) -> int:
    """The number of the segment that holds this offset; 0 for offsets before the first one."""
    return max(bisect_right(segments, offset, key=_base_offset) - 1, 0)


def _first_young(dirty: Sequence[SegmentFacts], rules: CompactionRules, now_ms: int) -> int:
    """Base offset of the first segment with a record within min.compaction.lag.ms; 2^63 if there is none."""
    lag_ms = rules.min_compaction_lag_ms
    # The generator asks no segments behind the first young one. Without a lag none is young.
    young = (segment for segment in dirty if segment.largest_timestamp_ms() > now_ms - lag_ms) if lag_ms > 0 else ()
    return next((segment.base_offset for segment in young), 1 << 63)


def _is_overdue(dirty: Sequence[SegmentFacts], rules: CompactionRules, now_ms: int) -> bool:
    # This is negative with the default lag of 2^63-1, and then no file is read.
    clean_until_ms = now_ms - max(rules.max_compaction_lag_ms, 0)
    # As in Kafka, a segment without timestamps (0 or -1) is never overdue.
    return clean_until_ms > 0 and any(0 < segment.first_timestamp_ms() < clean_until_ms for segment in dirty)


def portions(segments: Sequence[Sized], segment_bytes: int, index_bytes: int) -> Iterator[int]:
    """The number of segments in each portion, in the order of the segments."""
    # The division is greedy: the first segments that fit together become one. The sizes are those
    # before the pass, which usually shrinks segments, so more of them might have fitted; later
    # passes merge the results.
    number = 0
    while number < len(segments):
        base_offset = segments[number].base_offset
        sums = [0, 0, 0]
        count = 0
        for segment in segments[number : number + PORTION_SEGMENTS_MAX]:
            sums = [sums[0] + segment.size_bytes, sums[1] + segment.index_bytes, sums[2] + segment.time_index_bytes]
            fits = sums[0] <= segment_bytes and max(sums[1:]) <= index_bytes
            # Relative offsets in the indexes have 32 bits. An empty segment adds no entry, so it always fits.
            is_within_reach = segment.size_bytes == 0 or segment.end_offset - 1 - base_offset <= MAX_RELATIVE_OFFSET
            # A portion has at least one segment, even one that is larger than segment.bytes.
            if count and not (fits and is_within_reach):
                break
            count += 1
        yield count
        number += count
