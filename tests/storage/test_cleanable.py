"""What compaction may clean, when it is due, and in which portions."""

from dataclasses import dataclass

import pytest

from barnabas.storage.cleanable import PORTION_SEGMENTS_MAX, Sized, find_cleanable, portions
from barnabas.storage.compaction import keys_within

NEVER = 2**63 - 1
NOW = 1_000_000


@dataclass
class Facts:
    base_offset: int
    size_bytes: int = 100
    newest: int = 0
    oldest: int = 0

    def largest_timestamp_ms(self) -> int:
        return self.newest

    def first_timestamp_ms(self) -> int:
        return self.oldest


@dataclass
class Rules:
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NEVER


def segments(*bases, **facts) -> list[Facts]:
    return [Facts(base, **facts) for base in bases]


def find(row, rules=None, *, checkpoint=None, log_start=0, log_end=100, stable=100, synced=100):
    return find_cleanable(
        row,
        rules or Rules(),
        checkpoint=checkpoint,
        log_start_offset=log_start,
        log_end_offset=log_end,
        last_stable_offset=stable,
        recovery_point=synced,
        now_ms=NOW,
    )


def test_the_segment_that_is_being_written_is_not_cleaned():
    found = find(segments(0, 10, 20))
    assert (found.first_dirty_offset, found.end_offset) == (0, 20)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (0, 200, 1.0)


def test_a_segment_that_is_not_synced_to_its_end_is_not_cleaned():
    assert find(segments(0, 10, 20, 30), synced=19).end_offset == 10
    assert find(segments(0, 10, 20, 30), synced=20).end_offset == 20


def test_a_log_of_one_segment_has_nothing_to_clean():
    found = find(segments(0))
    assert (found.end_offset, found.dirty_bytes, found.dirty_ratio) == (0, 0, 0.0)
    assert not found.is_due(Rules(min_cleanable_dirty_ratio=0.0))


@pytest.mark.parametrize(("stable", "end_offset"), [(9, 0), (10, 10), (19, 10), (20, 20), (100, 30)])
def test_no_segment_is_cleaned_that_reaches_beyond_what_is_stable(stable, end_offset):
    assert find(segments(0, 10, 20, 30), stable=stable).end_offset == end_offset


def test_what_is_below_the_checkpoint_is_clean():
    found = find(segments(0, 10, 20, 30), checkpoint=20)
    assert (found.clean_bytes, found.dirty_bytes, found.end_offset) == (200, 100, 30)


def test_a_segment_that_was_cleaned_in_part_counts_on_both_sides():
    found = find(segments(0, 10, 20, 30), checkpoint=15)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 200)


@pytest.mark.parametrize("checkpoint", [3, 101])
def test_a_checkpoint_outside_of_the_log_makes_all_of_it_dirty(checkpoint):
    found = find(segments(0, 10, 20), checkpoint=checkpoint, log_start=5)
    assert (found.first_dirty_offset, found.is_misplaced) == (5, True)
    assert not find(segments(0, 10, 20), checkpoint=100).is_misplaced


def test_the_dirty_ratio_must_exceed_its_minimum():
    found = find(segments(0, 10, 20), checkpoint=10)
    assert found.dirty_ratio == 0.5
    assert not found.is_due(Rules(min_cleanable_dirty_ratio=0.5))
    assert found.is_due(Rules(min_cleanable_dirty_ratio=0.49))


def test_young_records_keep_their_segment_and_those_behind_it_from_being_cleaned():
    row = segments(0, 10, 20, 30, newest=NOW - 1000)
    row[1].newest = NOW - 999
    assert find(row, Rules(min_compaction_lag_ms=1000)).end_offset == 10
    assert find(row, Rules(min_compaction_lag_ms=999)).end_offset == 30
    assert find(row, Rules(min_compaction_lag_ms=1001)).end_offset == 0


def test_young_records_in_what_is_clean_do_not_matter():
    row = segments(0, 10, 20)
    row[0].newest = NOW
    assert find(row, Rules(min_compaction_lag_ms=1000), checkpoint=10).end_offset == 20


def test_a_dirty_segment_that_began_too_long_ago_is_cleaned_whatever_the_ratio():
    row = segments(0, 10, 20, oldest=NOW - 1000)
    row[1].size_bytes = 1
    rules = Rules(max_compaction_lag_ms=1000)
    assert not find(row, rules, checkpoint=10).is_due(rules)
    rules.max_compaction_lag_ms = 999
    assert find(row, rules, checkpoint=10).is_due(rules)
    assert not find(row, rules, checkpoint=20).is_due(rules)


@pytest.mark.parametrize("unknown", [-1, 0])
def test_a_segment_without_timestamps_is_never_overdue(unknown):
    rules = Rules(max_compaction_lag_ms=1)
    assert not find(segments(0, 10, oldest=unknown), rules).is_overdue


def sized(*sizes, offsets=10, index=0, time_index=0) -> list[Sized]:
    return [
        Sized(number * offsets, (number + 1) * offsets, size, index, time_index) for number, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("row", "counts"),
    [
        (sized(), []),
        (sized(500), [1]),
        (sized(40, 60, 1), [2, 1]),
        (sized(200, 50, 50), [1, 2]),
        (sized(1, 1, 1, index=6), [1, 1, 1]),
        (sized(1, 1, 1, index=5), [2, 1]),
        (sized(1, 1, 1, time_index=5), [2, 1]),
        (sized(1, 1, 1, offsets=2**30), [2, 1]),
        (sized(1, 1, 0, offsets=2**30), [3]),
        (sized(*[1] * 40), [PORTION_SEGMENTS_MAX, 8]),
    ],
)
def test_neighbours_are_joined_as_far_as_size_indexes_and_offsets_allow(row, counts):
    assert list(portions(row, segment_bytes=100, index_bytes=10)) == counts


def test_the_number_of_keys_follows_from_the_memory():
    assert keys_within(128 << 20, 0.9) == 629_145
    assert keys_within(1 << 20, 0.5) == 2_730
    assert keys_within(0, 0.9) == 1
