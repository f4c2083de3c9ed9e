"""Rates and throttle times: what Kafka's own classes compute for the same series, and what its brokers were seen to do.

`series.txt` was printed by the classes of kafka-clients 3.9.1 (Rate, SimpleRate, TokenBucket): lines of the time in ms,
the value recorded then, the rate or the tokens after it, and the throttle time.
"""

import math
from pathlib import Path

import pytest

from barnabas.quotas.buckets import TokenBucket
from barnabas.quotas.rates import INT32_MAX, Rate, SimpleRate, Window, java_round, throttle_ms

BEGIN_MS = 1_000_000_007


def series():
    """(kind, quota, rows) of each series in the file."""
    for part in (Path(__file__).parent / "series.txt").read_text(encoding="ascii").split("# ")[1:]:
        head, *lines = part.splitlines()
        kind, quota = head.split()
        yield kind, float(quota), [tuple(map(float, line.split())) for line in lines]


@pytest.mark.parametrize(("kind", "quota", "rows"), list(series()))
def test_a_series_is_throttled_as_kafka_throttles_it(kind, quota, rows):
    bucket, rate = TokenBucket(Window(), quota, BEGIN_MS), (SimpleRate if kind == "simple" else Rate)(Window())
    throttled = 0
    for after_ms, value, measured, expected_ms in rows:
        now_ms = BEGIN_MS + round(after_ms)
        if kind == "bucket":
            bucket.record(value, now_ms)
            assert bucket.throttle_ms(now_ms) == expected_ms
        else:
            rate.record(value, now_ms)
            assert rate.per_second(now_ms) == pytest.approx(measured, rel=1e-12)
            assert throttle_ms(rate, quota, now_ms) == expected_ms
        throttled += expected_ms > 0
    assert throttled > 10


def test_a_fresh_client_may_send_ten_seconds_worth_at_once():
    rate = Rate(Window())
    rate.record(10_000, 0)
    assert throttle_ms(rate, 1000, 0) == 0
    rate.record(1, 0)
    assert throttle_ms(rate, 1000, 0) == 1


def test_a_producer_as_fast_as_it_goes_passes_eleven_mb_before_it_is_throttled():
    # Seen on a running Kafka: 10^6 bytes per second, requests of 200 kB, 11 MB in the first 4 s.
    rate, now_ms, passed = Rate(Window()), 0, 0
    while True:
        passed += 200_000
        rate.record(200_000, now_ms)
        if throttle_ms(rate, 1e6, now_ms):
            break
        now_ms += 73
    assert 10.5e6 < passed < 11.5e6
    assert 3_000 < now_ms < 4_200


def test_a_client_that_waits_as_it_is_asked_to_has_the_quota_as_its_mean():
    rate, now_ms, passed = Rate(Window()), 0, 0
    while now_ms < 600_000:
        passed += 200_000
        rate.record(200_000, now_ms)
        now_ms += max(throttle_ms(rate, 1e6, now_ms), 10)
    assert passed / (now_ms / 1000) == pytest.approx(1e6, rel=0.05)


def test_samples_that_nothing_touches_are_forgotten():
    rate = Rate(Window())
    rate.record(10**6, 0)
    assert rate.per_second(10_999) > 0
    assert rate.per_second(11_000) == 0


def test_what_is_taken_back_was_never_there():
    rate = Rate(Window())
    rate.record(5000, 0)
    rate.record(-5000, 0)
    assert rate.per_second(0) == 0


def test_replication_gets_nothing_in_advance():
    rate = SimpleRate(Window())
    rate.record(1001, 0)
    assert throttle_ms(rate, 1000, 0) == 1


def test_odd_quotas():
    rate = Rate(Window())
    rate.record(1, 0)
    assert throttle_ms(rate, 0, 0) == INT32_MAX
    assert throttle_ms(rate, -1, 0) == 0
    assert throttle_ms(rate, 1e-12, 0) == INT32_MAX


def test_halves_go_up():
    assert [java_round(each) for each in (0.49, 0.5, 1.5, 2.5, -3.0, 1e300)] == [0, 1, 2, 3, 0, INT32_MAX]


def test_a_time_that_is_no_number_is_none_and_an_infinite_one_is_the_longest():
    assert [java_round(each) for each in (math.nan, math.inf, -math.inf)] == [0, INT32_MAX, 0]
