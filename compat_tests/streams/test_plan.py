"""Plans of kills: drawn by a seed, with every role among them, spread over the run."""

from itertools import pairwise

from compat_tests.streams.plan import FIRST_KILL_S, INSTANCE, LAST_KILL_S, ROLES, draw_plan

SEEDS = range(50)


def test_a_seed_draws_one_plan():
    assert draw_plan(7, 300, 10, 5) == draw_plan(7, 300, 10, 5)
    assert draw_plan(7, 300, 10, 5) != draw_plan(8, 300, 10, 5)


def test_as_many_are_killed_as_asked_for_and_each_role_is_among_them():
    for seed in SEEDS:
        roles = [kill.role for kill in draw_plan(seed, 300, 10, 5)]
        assert len(roles) == 15
        assert roles.count(INSTANCE) == 5
        assert set(ROLES) <= set(roles)


def test_one_kill_of_a_broker_meets_each_role_in_some_seed():
    drawn = {draw_plan(seed, 60, 1, 0)[0].role for seed in SEEDS}
    assert drawn == set(ROLES)


def test_at_most_two_brokers_are_down_at_once():
    for seed in SEEDS:
        kills = [kill for kill in draw_plan(seed, 300, 10, 5) if kill.role != INSTANCE]
        assert kills[0].at_s >= FIRST_KILL_S
        assert kills[-1].at_s <= 300 - LAST_KILL_S
        for (first, _), (_, third) in pairwise(pairwise(kills)):
            assert first.at_s + first.down_s < third.at_s
