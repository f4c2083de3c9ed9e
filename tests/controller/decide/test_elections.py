"""Who is elected, by strategy: one line of the table a case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.decide.elections import ELECTIONS, Candidates, Elected, Strategy

BROKERS = st.lists(st.integers(0, 5), unique=True)


def elect(strategy, replicas, isr, live, shutting_down=(), unclean=False):
    return ELECTIONS[strategy](Candidates(replicas, isr, live, shutting_down, unclean))


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "elected"),
    [
        ([1, 2, 3], [1, 2, 3], [2, 3], Elected(2, (2, 3))),
        ([1, 2, 3], [3, 2], [2, 3], Elected(2, (3, 2))),  # the assignment's order decides, not the ISR's
        ([1, 2, 3], [1, 3], [2, 3], Elected(3, (3,))),
        ([1, 2, 3], [1], [2, 3], None),
        ([1, 2, 3], [1, 2, 3], [], None),
        ([], [], [1], None),
    ],
)
def test_the_first_live_replica_in_sync_takes_over(replicas, isr, live, elected):
    assert elect(Strategy.OFFLINE, replicas, isr, live) == elected


def test_an_unclean_leader_is_in_sync_alone():
    assert elect(Strategy.OFFLINE, [1, 2, 3], [1], [2, 3], unclean=True) == Elected(2, (2,), unclean=True)


def test_a_clean_leader_is_preferred_where_unclean_ones_are_allowed():
    assert elect(Strategy.OFFLINE, [1, 2, 3], [3], [2, 3], unclean=True) == Elected(3, (3,))


def test_no_leader_is_elected_uncleanly_when_no_one_lives():
    assert elect(Strategy.OFFLINE, [1, 2], [1], [], unclean=True) is None


@pytest.mark.parametrize(
    ("target", "isr", "live", "elected"),
    [
        ([4, 5], [1, 4, 5], [1, 4, 5], Elected(4, (1, 4, 5))),
        ([4, 5], [1, 5], [1, 4, 5], Elected(5, (1, 5))),
        ([4, 5], [1, 4], [1, 5], None),
    ],
)
def test_reassignment_elects_among_the_target_replicas(target, isr, live, elected):
    assert elect(Strategy.REASSIGN, target, isr, live) == elected


@pytest.mark.parametrize(
    ("replicas", "isr", "live", "elected"),
    [
        ([1, 2], [2, 1], [1, 2], Elected(1, (2, 1))),
        ([1, 2], [2], [1, 2], None),
        ([1, 2], [1, 2], [2], None),
        ([], [], [1], None),
    ],
)
def test_the_preferred_replica_leads_or_no_leader_is_elected(replicas, isr, live, elected):
    assert elect(Strategy.PREFERRED, replicas, isr, live) == elected


@pytest.mark.parametrize(
    ("isr", "live", "leaving", "elected"),
    [
        ([1, 2, 3], [2, 3], [1], Elected(2, (2, 3))),
        ([1, 2, 3], [3], [1, 2], Elected(3, (3,))),
        ([1], [2, 3], [1], None),
        ([1, 3], [3], [1], Elected(3, (3,))),
    ],
)
def test_a_leader_that_leaves_is_followed_by_one_that_stays(isr, live, leaving, elected):
    assert elect(Strategy.CONTROLLED_SHUTDOWN, [1, 2, 3], isr, live, leaving) == elected


@given(st.sampled_from(Strategy), BROKERS, BROKERS, BROKERS)
def test_without_unclean_elections_a_leader_is_assigned_live_and_in_sync(strategy, replicas, isr, live):
    elected = elect(strategy, replicas, isr, live)
    if elected is not None:
        assert elected.leader in replicas
        assert elected.leader in live
        assert elected.leader in isr
        assert elected.leader in elected.isr
        assert set(elected.isr) <= set(isr)
