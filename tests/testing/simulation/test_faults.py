"""Plans of faults: the seed decides, everything is taken back, and power is cut only where no promise breaks."""

import random

import pytest
import trio

from barnabas.testing.simulation.affected import parties_of
from barnabas.testing.simulation.cluster import open_cluster
from barnabas.testing.simulation.faults import EXTRAORDINARY, KINDS, draw_plan
from barnabas.testing.simulation.harm import Fault, Harm, Plan
from barnabas.testing.simulation.moments import DECIDED, Moment
from barnabas.testing.simulation.schedule import simulate
from barnabas.testing.simulation.store import STORE

BROKERS, CLIENTS = ["broker-1", "broker-2", "broker-3"], ["client-a"]
PATIENCE_SECONDS = 120.0


def plan_of(seed, **fields):
    return draw_plan(random.Random(seed), brokers=BROKERS, clients=CLIENTS, seconds=60.0, **fields)


def harmed(plan, check=None, seed=1, **properties):
    """Run a plan on a cluster; how often each kind of fault happened."""

    async def main(simulation):
        async with open_cluster(simulation, **properties) as cluster:
            await cluster.start()
            harm = Harm(cluster, plan, KINDS)
            with trio.fail_after(plan.seconds + PATIENCE_SECONDS):
                await harm.run()
            assert cluster.bugs == []
            assert all(node.is_ready and not node.is_paused for node in cluster.nodes.values())
            if check is not None:
                check(cluster, harm)
            await cluster.stop()
            return harm.counts

    return simulate(seed, main)[0]


def test_one_seed_draws_one_plan_and_others_draw_other_kinds_and_rates():
    assert plan_of(1) == plan_of(1)
    plans = [plan_of(seed) for seed in range(30)]
    assert len({frozenset(fault.kind for fault in plan.faults) for plan in plans}) > 20
    sizes = [len(plan.faults) for plan in plans]
    assert min(sizes) < 8
    assert max(sizes) > 25
    assert {fault.kind for plan in plans for fault in plan.faults} == set(KINDS) - set(EXTRAORDINARY)


def test_a_plan_is_in_the_order_of_time_and_every_line_of_it_can_be_read():
    plan = plan_of(5)
    assert [fault.at_seconds for fault in plan.faults] == sorted(fault.at_seconds for fault in plan.faults)
    assert len(str(plan).splitlines()) == len(plan.faults)


def test_any_two_parties_can_be_cut_off_from_each_other():
    cuts = [fault for seed in range(60) for fault in plan_of(seed, kinds=["partition"]).faults]
    pairs = {frozenset((fault.target, fault.other)) for fault in cuts}
    parties = [*BROKERS, *CLIENTS, STORE]
    assert pairs == {frozenset((broker, other)) for broker in BROKERS for other in parties if other != broker}


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_survives_each_kind_and_nothing_of_it_is_left(kind):
    def check(cluster, harm):
        links = [cluster.net.link(one, other) for one in BROKERS for other in [*BROKERS, STORE] if one != other]
        assert not any(link.is_cut or link.extra_seconds for link in links)
        assert not cluster.store.is_down

    faults = [Fault(1.0 + 4 * number, kind, f"broker-{number + 1}", STORE, 3.0, 0.3 * number) for number in range(3)]
    if kind == "lose-connections":
        faults = [fault._replace(other="broker-2", target="broker-1") for fault in faults]
    assert harmed(Plan(15.0, faults), check).get(kind, 0) >= 1


def test_power_is_cut_a_second_time_only_after_every_isr_was_full():
    crashes = [
        Fault(1.0, "crash-machine", "broker-1", STORE, 1.0, 0.5),
        Fault(1.5, "crash-machine", "broker-2", STORE, 1, 0.5),
    ]
    assert harmed(Plan(10.0, crashes)) == {"crash-machine": 1}
    later = [crashes[0], crashes[1]._replace(at_seconds=40.0)]
    assert harmed(Plan(45.0, later)) == {"crash-machine": 2}


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_cluster_survives_what_a_seed_draws(seed):
    harmed(plan_of(seed), seed=seed)


def test_a_fault_says_whom_it_has_hit_although_the_plan_names_others():
    async def main(simulation):
        async with open_cluster(simulation) as cluster:
            await cluster.start()
            # The plan draws two parties for each fault, and this kind has to do with neither.
            killed = cluster.controller.name
            others = [name for name in BROKERS if name != killed]
            fault = Fault(1.0, "kill-controller", others[0], others[1], 2.0, 0.5)
            harm = Harm(cluster, Plan(4.0, [fault]), KINDS)
            heard = []
            harm.on_fault = lambda fault, took_down: heard.append(parties_of(fault, took_down, BROKERS))
            with trio.fail_after(PATIENCE_SECONDS):
                await harm.run()
            await cluster.stop()
            return killed, heard

    killed, heard = simulate(1, main)[0]
    assert heard == [[killed]]


def test_a_fault_that_waits_for_a_moment_says_which_broker_it_has_chosen():
    async def main(simulation):
        async with open_cluster(simulation) as cluster:
            await cluster.start()
            fault = Fault(1.0, "pause-decider", "broker-1", "broker-2", 2.0, 0.5)
            harm = Harm(cluster, Plan(4.0, [fault]), KINDS)
            heard = []
            harm.on_choice = lambda fault, node: heard.append((fault.kind, node.name))
            simulation.clock.call_in(1.5, harm.moments.come, Moment(DECIDED, 3, "payments"))
            with trio.fail_after(PATIENCE_SECONDS):
                await harm.run()
            await cluster.stop()
            return heard

    assert simulate(1, main)[0] == [("pause-decider", "broker-3")]
