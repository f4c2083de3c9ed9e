"""The high watermark is the smallest end offset of the in-sync replicas, and never falls; the low watermark is the
smallest start offset of the live ones."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.isr import decide_high_watermark, decide_low_watermark


def test_a_leader_alone_in_sync_is_the_high_watermark() -> None:
    assert decide_high_watermark(3, 1, 10, [1], {}) == 10


def test_the_slowest_in_sync_follower_holds_it() -> None:
    assert decide_high_watermark(3, 1, 10, [1, 2, 3], {2: 9, 3: 7}) == 7


def test_a_follower_out_of_sync_does_not_hold_it() -> None:
    assert decide_high_watermark(3, 1, 10, [1, 2], {2: 9, 3: 0}) == 9


def test_an_in_sync_follower_that_has_not_fetched_yet_keeps_it_where_it_is() -> None:
    assert decide_high_watermark(3, 1, 10, [1, 2], {}) == 3


@given(
    current=st.integers(0, 100),
    leader_end=st.integers(0, 100),
    ends=st.dictionaries(st.integers(2, 5), st.integers(-1, 100)),
)
def test_it_never_falls_and_never_passes_an_in_sync_replica(
    current: int, leader_end: int, ends: dict[int, int]
) -> None:
    found = decide_high_watermark(current, 1, leader_end, [1, *ends], ends)
    assert found >= current
    assert found == current or found <= min([leader_end, *ends.values()])


def test_a_leader_whose_followers_are_dead_is_the_low_watermark() -> None:
    assert decide_low_watermark(1, 4, [1], {2: 0}) == 4


def test_the_live_follower_that_has_deleted_least_holds_it() -> None:
    assert decide_low_watermark(1, 4, [1, 2, 3], {2: 3, 3: 4}) == 3


def test_a_live_follower_that_has_not_fetched_leaves_it_unknown() -> None:
    assert decide_low_watermark(1, 4, [1, 2, 3], {3: 4}) == -1
