"""A leader's judgement of its followers: who is in sync, how far the partition is committed and deleted."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.replication.isr import (
    NEVER,
    Arrival,
    Follower,
    LagLimits,
    Pulse,
    decide_high_watermark,
    decide_low_watermark,
    decide_shrunk,
    is_caught_up,
    may_join,
)

LIMITS = LagLimits(time_ms=10_000, messages=0)
AT_MOST_100_BEHIND = LagLimits(time_ms=10_000, messages=100)


def at(offset: int, broker_id: int = 2, caught_up_ms: float = NEVER) -> Follower:
    return Follower(broker_id, log_end_offset=offset, last_caught_up_ms=caught_up_ms)


def fetching(*fetches: tuple[float, int, int], pulse: Pulse | None = None) -> Follower:
    """A follower that fetched: (when, from which offset, where the leader's log ended)."""
    follower = Follower(2)
    for now_ms, fetch_offset, leader_end_offset in fetches:
        follower.fetched(fetch_offset, leader_end_offset, now_ms, pulse or Pulse(), Arrival(0, 0))
    return follower


# -- when a follower last had everything


@pytest.mark.parametrize(
    ("fetches", "caught_up_ms"),
    [
        ([], NEVER),
        ([(5, 10, 10)], 5),  # it has all there is
        ([(5, 12, 10)], 5),  # the leader's share of it is not acknowledgeable yet
        ([(5, 0, 10)], NEVER),  # it begins
        ([(5, 0, 10), (6, 8, 15)], NEVER),  # it comes nearer
        ([(5, 0, 10), (6, 10, 15)], 5),  # it has what there was when it fetched before: it was caught up then
        ([(5, 10, 10), (6, 10, 15), (7, 15, 20), (8, 20, 25)], 7),  # always a little behind, and in sync
        ([(5, 10, 10), (6, 10, 15), (7, 11, 20), (8, 12, 25)], 5),  # slow: it falls behind, since 5
    ],
)
def test_a_follower_is_as_current_as_its_fetches_show(fetches, caught_up_ms):
    assert fetching(*fetches).caught_up_ms == caught_up_ms


def test_a_quiet_partition_is_caught_up_when_its_session_fetches_others():
    pulse = Pulse()
    follower = fetching((5, 10, 10), pulse=pulse)
    pulse.last_fetch_ms = 900
    assert follower.caught_up_ms == 900
    # A record came after that fetch, and the follower does not have it yet.
    follower.fetched(10, 11, 1000, pulse, Arrival(0, 0))
    assert follower.caught_up_ms == 900
    pulse.last_fetch_ms = 1000
    assert follower.caught_up_ms == 900


def test_a_follower_that_registered_again_says_so_for_its_quiet_partitions_too():
    pulse = Pulse()
    follower = fetching((5, 10, 10), pulse=pulse)
    follower.broker_epoch = pulse.broker_epoch = 33
    assert follower.member_epoch == 33
    pulse.broker_epoch = 44
    assert follower.member_epoch == 44


def test_a_partition_that_a_follower_fetches_no_more_ages_though_others_are_fetched():
    pulse = Pulse()
    follower = fetching((5, 10, 10), pulse=pulse)
    pulse.last_fetch_ms = 900
    follower.parted()
    pulse.last_fetch_ms = 2000
    assert follower.caught_up_ms == follower.last_fetch_ms == 900


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50), st.integers(0, 20))),
    st.integers(0, 20),
)
def test_no_one_is_caught_up_before_it_had_what_there_was_then(steps, start):
    """Against the definition: the latest moment of a fetch at which the log ended no later than it has read by now."""
    follower, now_ms, end_offset, reached, ends = Follower(2), 0, start, 0, []
    for passed, read, appended in steps:
        now_ms += passed
        end_offset += appended
        reached = min(end_offset, reached + read)
        follower.fetched(reached, end_offset, now_ms, Pulse(), Arrival(0, 0))
        ends.append((now_ms, end_offset))
    assert follower.caught_up_ms <= max((when for when, end in ends if end <= reached), default=NEVER)


# -- who is in sync


@pytest.mark.parametrize(
    ("follower", "limits", "expected"),
    [
        (at(10), LIMITS, True),  # it has everything, however long ago it fetched: a stuck follower of a quiet partition
        (at(9, caught_up_ms=90_000), LIMITS, True),
        (at(9, caught_up_ms=89_999), LIMITS, False),  # stuck or slow: too long ago
        (at(9), LIMITS, False),  # bootstrapping: never yet
        (at(-1), LIMITS, False),
    ],
)
def test_in_sync_is_who_had_everything_lately(follower, limits, expected):
    assert is_caught_up(follower, 10, 100_000, limits) is expected


def test_a_burst_puts_a_follower_out_of_sync_by_the_old_rule_of_messages():
    follower = at(1000, caught_up_ms=99_999)
    assert is_caught_up(follower, 1100, 100_000, AT_MOST_100_BEHIND)
    assert not is_caught_up(follower, 1101, 100_000, AT_MOST_100_BEHIND)
    assert is_caught_up(follower, 1101, 100_000, LIMITS)


def test_the_isr_shrinks_by_the_stuck_and_the_slow_and_keeps_its_order():
    followers = {2: at(9, 2, 0), 3: at(10, 3), 4: at(9, 4, 95_000)}
    assert decide_shrunk([4, 2, 1, 3], followers, 10, 100_000, LIMITS, 0) == [4, 1, 3]


def test_a_silent_follower_that_a_question_waits_for_leaves_the_isr():
    followers = {2: at(10, 2, 0), 3: at(10, 3, 95_000), 4: at(10, 4, 0)}
    followers[4].followed_after = 7
    assert decide_shrunk([1, 2, 3, 4], followers, 10, 100_000, LIMITS, 7) == [1, 3, 4]


@pytest.mark.parametrize(
    ("end_offset", "high_watermark", "epoch_start", "expected"),
    [(9, 10, 0, False), (10, 10, 0, True), (10, 10, 11, False), (12, 10, 11, True), (-1, 0, 0, False)],
)
def test_a_follower_joins_when_it_has_what_is_committed_and_has_come_into_this_epoch(
    end_offset, high_watermark, epoch_start, expected
):
    assert may_join(at(end_offset), high_watermark, epoch_start) is expected


# -- the high watermark


def advanced(current: int, share: int, followers: Iterable[Follower], awaited: Iterable[int]) -> int:
    awaited = set(awaited)
    return decide_high_watermark(current, share, followers, lambda each: each.broker_id in awaited)


@pytest.mark.parametrize(
    ("followers", "awaited", "expected"),
    [
        ([], [], 10),  # a leader alone
        ([at(9, 2), at(7, 3)], [2, 3], 7),  # the slowest holds it
        ([at(9, 2), at(0, 3)], [2], 9),  # unless it is not awaited
        ([at(-1, 2)], [2], 3),  # one that has not fetched yet keeps it where it is
        ([at(15, 2)], [2], 10),  # what the leader may not acknowledge is not committed
    ],
)
def test_the_high_watermark_is_the_smallest_end_of_those_that_are_awaited(followers, awaited, expected):
    assert advanced(3, 10, followers, awaited) == expected


@given(
    current=st.integers(0, 100),
    share=st.integers(0, 100),
    ends=st.dictionaries(st.integers(2, 5), st.integers(-1, 100)),
    awaited=st.sets(st.integers(2, 5)),
)
def test_it_never_falls_and_never_passes_one_that_is_awaited(current, share, ends, awaited):
    found = advanced(current, share, [at(end, replica) for replica, end in ends.items()], awaited)
    limit = min([share, *(end for replica, end in ends.items() if replica in awaited)])
    assert found == max(current, limit)


# -- the low watermark


def starting(**starts: int) -> dict[int, Follower]:
    return {int(name[1:]): Follower(int(name[1:]), log_start_offset=start) for name, start in starts.items()}


@pytest.mark.parametrize(
    ("live", "followers", "expected"),
    [
        ([1], starting(b2=0), 4),  # the followers are dead
        ([1, 2, 3], starting(b2=3, b3=4), 3),  # who has deleted least holds it
        ([1, 2, 3], starting(b2=-1, b3=4), -1),  # one that has not fetched leaves it unknown
    ],
)
def test_the_low_watermark_is_the_smallest_start_of_the_live(live, followers, expected):
    assert decide_low_watermark(4, live, followers) == expected
