"""The token bucket: as much as the window at once, then as the quota refills it."""

import math

import pytest

from barnabas.quotas.buckets import TokenBucket
from barnabas.quotas.rates import INT32_MAX, Window


def test_a_bucket_starts_full_and_may_go_below_zero_once():
    bucket = TokenBucket(Window(), 1.0, 0)
    # As seen on a running Kafka: topics of four partitions, at one partition a second.
    for tokens_left in (7, 3, -1):
        assert bucket.throttle_ms(0) == 0
        bucket.record(4, 0)
        assert bucket.throttle_ms(0) == max(0, -tokens_left * 1000)
    assert bucket.throttle_ms(755) == 245
    assert bucket.throttle_ms(1000) == 0


def test_a_bucket_holds_no_more_than_the_window():
    bucket = TokenBucket(Window(), 2.0, 0)
    bucket.record(22, 3_600_000)
    assert bucket.throttle_ms(3_600_000) == 0
    bucket.record(1, 3_600_000)
    assert bucket.throttle_ms(3_600_000) == 500


def test_a_changed_quota_keeps_the_tokens():
    bucket = TokenBucket(Window(), 1.0, 0)
    bucket.record(21, 0)
    bucket.set_quota(10.0)
    assert bucket.throttle_ms(0) == 1000
    bucket.set_quota(0.0)
    assert bucket.throttle_ms(0) == INT32_MAX


@pytest.mark.parametrize("quota", [math.nan, math.inf])
def test_a_quota_that_is_not_finite_throttles_no_client_until_it_changes(quota):
    bucket = TokenBucket(Window(), quota, 0)
    for _ in range(3):
        assert bucket.throttle_ms(0) == 0
        bucket.record(100, 0)
    bucket.set_quota(1.0)
    assert bucket.throttle_ms(0) == 0
    bucket.record(12, 0)
    assert bucket.throttle_ms(0) == 1000
