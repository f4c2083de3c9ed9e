"""The rate of throttled replication: which replicas it covers, and when they rest."""

from types import SimpleNamespace

import pytest

from barnabas.quotas.rates import Window
from barnabas.quotas.replication import THROTTLE_SECONDS_MAX, ReplicationThrottle

ME = 3


class Scene:
    def __init__(self, allowed: int = 1000) -> None:
        self.now_ms, self.allowed = 5_000, allowed
        self.throttle = ReplicationThrottle(
            ME, Window(), lambda: self.allowed, lambda topic: topic.replicas, lambda: self.now_ms
        )


@pytest.mark.parametrize(
    ("replicas", "covered"),
    [
        ((), []),
        (("*",), [0, 1, 30]),
        (("1:3", "30:3", "0:33", "0:1", "3:0"), [1, 30]),
    ],
)
def test_a_replica_is_covered_by_its_partition_and_this_broker_or_by_a_star(replicas, covered):
    topic, throttle = SimpleNamespace(replicas=frozenset(replicas)), Scene().throttle
    assert [partition for partition in range(40) if throttle.covers(topic, partition)] == (
        list(range(40)) if "*" in replicas else covered
    )


def test_nothing_rests_before_anything_was_counted_whatever_the_rate():
    assert Scene(allowed=0).throttle.throttle_seconds() == 0


def test_above_the_rate_the_rest_is_as_long_as_the_rate_needs_to_fall():
    scene = Scene()
    scene.throttle.note(1500)
    assert scene.throttle.throttle_seconds() == 0.5
    scene.now_ms += 1_500
    assert scene.throttle.throttle_seconds() == 0


def test_a_rest_is_short_for_the_rate_may_be_changed():
    scene = Scene()
    scene.throttle.note(1_000_000)
    assert scene.throttle.throttle_seconds() == THROTTLE_SECONDS_MAX
    scene.allowed = 1_000_000
    assert scene.throttle.throttle_seconds() == 0


def test_a_rate_of_zero_lets_nothing_pass_until_the_window_has():
    scene = Scene(allowed=0)
    scene.throttle.note(1)
    for _ in range(10):
        scene.now_ms += 1_000
        assert scene.throttle.throttle_seconds() == THROTTLE_SECONDS_MAX
    scene.now_ms += 1_000
    assert scene.throttle.throttle_seconds() == 0
