"""The histogram of times, and the counts of a topic."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.world.tally import (
    BUCKETS,
    Histogram,
    RecentRate,
    TopicTally,
    bounds,
    bucket_of,
    quantile,
    sum_of,
)


@given(st.integers(0, (1 << 47) - 1))
def test_each_value_lies_within_the_bounds_of_its_bucket(value):
    first, end = bounds(bucket_of(value))
    assert first <= value < end
    assert end - first <= max(1, first // 4)


@given(st.integers(0, (1 << 47) - 1))
def test_a_number_and_a_duration_are_counted_in_the_bucket_of_their_value(value):
    histogram = Histogram()
    histogram.note(value)
    assert histogram.counts[bucket_of(value)] == 1
    assert histogram.total == value

    # A duration is exact to a microsecond for up to two hours; beyond that the float is not.
    if value < 1 << 33:
        times = Histogram()
        times.observe((value + 0.5) / 1_000_000)
        assert times.counts[bucket_of(value)] == 1


def test_all_buckets_are_there():
    assert bucket_of((1 << 48) - 1) < BUCKETS
    ends = [bounds(bucket) for bucket in (*range(4), *range(8, BUCKETS))]
    assert all(end == following for (_, end), (following, _) in itertools.pairwise(ends))


@pytest.mark.parametrize(("share", "expected"), [(0.5, 500), (0.75, 750), (0.99, 990), (0.999, 999)])
def test_a_quantile_is_right_to_an_eighth(share, expected):
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.note(value)
    assert quantile(histogram.counts, share) == pytest.approx(expected, rel=0.125)


def test_a_quantile_of_one_value_is_exact_where_the_bucket_is():
    histogram = Histogram()
    histogram.note(5)
    assert quantile(histogram.counts, 0.5) == 5
    assert quantile(Histogram().counts, 0.99) == 0


def test_what_is_recent_ends_after_two_windows():
    histogram = Histogram()
    histogram.note(1)
    assert sum(histogram.recent(100.0)) == 1
    histogram.note(2)
    assert sum(histogram.recent(130.0)) == 2, "within the first window all is recent"
    assert sum(histogram.recent(161.0)) == 1, "what was counted before the first window began is not"
    assert sum(histogram.recent(222.0)) == 0
    assert histogram.count == 2, "the counts themselves stay"


def test_a_rate_is_that_of_the_last_windows():
    rate = RecentRate(0.0)
    assert rate.per_second(10.0, 50) == 5
    assert rate.per_second(60.0, 60) == 1
    assert rate.per_second(120.0, 120) == pytest.approx(1.0)
    assert rate.per_second(150.0, 120) == pytest.approx(60 / 90), "the first minute does not count any more"
    assert RecentRate(3.0, 7).per_second(3.0, 7) == 0


def test_histograms_are_added_by_bucket():
    assert sum_of([[1, 2, 0], [0, 1, 5]]) == [1, 3, 5]


def test_the_counts_of_a_topic_are_added():
    one, other = TopicTally(), TopicTally()
    one.messages_in, other.messages_in, other.isr_shrinks = 2, 3, 1
    one.add(other)
    assert (one.messages_in, one.isr_shrinks, one.bytes_in) == (5, 1, 0)


# At a bound itself the rounding of floats decides, so the durations lie between two microseconds.
@given(st.lists(st.integers(0, 10_000_000_000).map(lambda value: (value + 0.5) / 1_000_000), max_size=300))
def test_durations_that_are_put_away_together_lie_in_the_buckets_of_each(durations):
    together = Histogram()
    one_by_one = Histogram()
    together.latest.extend(durations)
    for each in durations:
        one_by_one.observe(each)
    assert together.counts == one_by_one.counts
    assert together.total == pytest.approx(one_by_one.total)
    assert together.latest == []
