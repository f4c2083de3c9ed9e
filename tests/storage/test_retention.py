"""Retention: which leading segments are deleted."""

from dataclasses import dataclass

import pytest

from barnabas.storage.retention import Limits, decide_retention

FOR_EVER = -1
NOW = 1_000_000


@dataclass
class Facts:
    """A segment of 100 offsets and 100 bytes; `age_ms` since its newest record."""

    next_base_offset: int | None
    age_ms: int = 0
    size_bytes: int = 100

    def largest_timestamp_ms(self) -> int:
        return NOW - self.age_ms


def row(*ages_ms: int) -> list[Facts]:
    """Segments that begin at 0, 100, 200 ...; the last one has no next."""
    facts = [Facts((number + 1) * 100, age) for number, age in enumerate(ages_ms)]
    facts[-1].next_base_offset = None
    return facts


def decide(segments, *, deletes=True, ms=FOR_EVER, size=FOR_EVER, log_start=0, high_watermark=10**9):
    return decide_retention(
        segments,
        Limits(deletes, ms, size),
        log_start_offset=log_start,
        log_end_offset=len(segments) * 100,
        high_watermark=high_watermark,
        log_size_bytes=sum(segment.size_bytes for segment in segments),
        now_ms=NOW,
    )


def test_nothing_goes_without_limits():
    assert decide(row(10**6, 10**6, 10**6)) == 0


def test_segments_older_than_the_limit_go_oldest_first():
    assert decide(row(500, 400, 300, 0), ms=350) == 2


def test_a_record_as_old_as_the_limit_stays():
    assert decide(row(350, 0), ms=350) == 0


def test_an_old_segment_behind_a_young_one_stays():
    assert decide(row(500, 0, 500, 0), ms=350) == 1


@pytest.mark.parametrize(("size", "count"), [(400, 0), (399, 0), (301, 0), (300, 1), (150, 2), (0, 4)])
def test_a_segment_goes_when_the_rest_still_holds_the_wanted_size(size, count):
    assert decide(row(0, 0, 0, 0), size=size) == count


def test_only_what_lies_below_the_high_watermark_goes():
    assert decide(row(500, 500, 500), ms=1, high_watermark=199) == 1
    assert decide(row(500, 500, 500), ms=1, high_watermark=200) == 2
    assert decide(row(500, 500, 500), ms=1, high_watermark=299) == 2


def test_the_last_segment_goes_too_when_all_of_it_is_old():
    assert decide(row(500, 500), ms=1) == 2


def test_an_empty_last_segment_stays():
    segments = [*row(500, 500), Facts(None, 500, size_bytes=0)]
    segments[1].next_base_offset = 200
    assert decide(segments, ms=1) == 2


@pytest.mark.parametrize(("log_start", "count"), [(99, 0), (100, 1), (250, 2), (400, 3)])
def test_segments_below_the_log_start_go_whatever_the_policy(log_start, count):
    assert decide(row(0, 0, 0, 0), deletes=False, log_start=log_start) == count


def test_a_compacted_log_ignores_time_and_size():
    assert decide(row(500, 500, 500), deletes=False, ms=1, size=1) == 0


def test_the_rules_add_up():
    assert decide(row(0, 500, 0, 0), ms=1, size=200, log_start=100) == 2


def test_timestamps_are_asked_only_as_far_as_needed():
    class Unread(Facts):
        def largest_timestamp_ms(self) -> int:
            raise AssertionError("this timestamp is not needed")

    assert decide([Facts(100, 500), Facts(200, 0), Unread(300), Unread(None)], ms=100) == 1
