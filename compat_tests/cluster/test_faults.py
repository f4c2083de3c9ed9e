"""Plans of faults: drawn by a seed, at the pace and of the kinds that are promised."""

from itertools import pairwise

from compat_tests.cluster.faults import KINDS, PAUSE_S, draw_plan


def test_a_seed_draws_one_plan():
    assert draw_plan(7, 60) == draw_plan(7, 60)
    assert draw_plan(7, 60) != draw_plan(8, 60)


def test_faults_follow_each_other_at_the_pace_that_is_promised():
    for seed in range(50):
        plan = draw_plan(seed, 60)
        pauses = [later.at_s - earlier.at_s for earlier, later in pairwise(plan)]
        assert all(PAUSE_S[0] - 0.02 <= pause <= PAUSE_S[1] + 0.02 for pause in pauses)
        assert len(plan) >= 7
        assert plan[-1].at_s < 58


def test_every_kind_and_every_target_is_drawn_in_thirty_runs():
    drawn = {(fault.kind, fault.target) for seed in range(1, 31) for fault in draw_plan(seed, 60)}
    assert {kind for kind, _ in drawn} == set(KINDS)
    for role in ("leader", "follower", "controller", "coordinator"):
        assert ("kill", role) in drawn


def test_faults_end_with_the_run():
    for seed in range(50):
        assert all(fault.at_s + fault.duration_s <= 60.51 for fault in draw_plan(seed, 60))
