"""C1 and C2: what others notice of a hostile client, and histories that show it."""

import pytest

from barnabas.testing.simulation.hostile import CONTROL_SECONDS, SERVED_SECONDS, SiegeRules
from barnabas.testing.simulation.hostile_bugs import HOSTILE_BUGS
from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.run import run_seed
from barnabas.testing.simulation.schedule import simulate

LEADER_AND_ISR, PRODUCE = (key.to_bytes(2) for key in (4, 0))
SHORT_SECONDS = 5.0


class Watched:
    """Rules, a connection from one broker to another, and a clock that the test sets."""

    def __init__(self, simulation):
        self.now = 0.0
        self.broken = []
        self.rules = SiegeRules(lambda rule, text: self.broken.append(rule), lambda: self.now)
        net = SimNet(simulation)
        one, other = net.party("broker-1"), net.party("broker-2")

        class Listener:
            def offer(self, stream):
                self.stream = stream

        listener = Listener()
        self.near = net.connect(one, other, listener)
        self.far = listener.stream

    def ask(self, api_key, seconds):
        """A request, and its answer so much later."""
        self.rules.sent(self.near, bytes(4) + api_key + bytes(6))
        self.now += seconds
        self.rules.sent(self.far, bytes(10))


def watched(scenario):
    async def main(simulation):
        scenario(Watched(simulation))

    simulate(1, main)


def test_a_control_request_has_to_be_answered_soon_while_only_clients_are_hostile():
    def scenario(seen):
        seen.ask(LEADER_AND_ISR, 2 * CONTROL_SECONDS)  # before: some fault may be the reason
        seen.rules.begin()
        seen.ask(LEADER_AND_ISR, CONTROL_SECONDS / 2)
        seen.ask(PRODUCE, 2 * CONTROL_SECONDS)
        assert seen.broken == []
        seen.ask(LEADER_AND_ISR, 2 * CONTROL_SECONDS)
        assert seen.broken == ["C1"]

    watched(scenario)


def test_a_control_request_that_is_never_answered_is_found_as_well():
    def scenario(seen):
        seen.rules.begin()
        seen.rules.sent(seen.near, bytes(4) + LEADER_AND_ISR + bytes(6))
        seen.rules.look()
        assert seen.broken == []
        seen.now = 2 * CONTROL_SECONDS
        seen.rules.look()
        assert seen.broken == ["C1"]

    watched(scenario)


def test_a_well_behaved_client_is_served_soon_on_the_connections_of_the_siege():
    def scenario(seen):
        seen.now = 10.0
        seen.rules.begin()
        seen.rules.served("reader", 0.0, 9.0, "reset by the other end")  # a fault before the siege broke it
        seen.rules.served("reader", SERVED_SECONDS / 2, 10.0, "")
        assert seen.broken == []
        seen.rules.served("reader", 2 * SERVED_SECONDS, 12.0, "")
        seen.rules.served("reader", 0.0, 12.0, "the broker closed the connection")
        seen.rules.joined("member", is_stable=False)
        assert seen.broken == ["C2", "C2", "C2"]

    watched(scenario)


def test_a_hostile_client_does_not_harm_the_others():
    report = run_seed(1, SHORT_SECONDS, kind="hostile")
    assert report.violations == []
    assert report.counts["hostile connections closed"] > 20
    assert report.counts["control requests in a siege"] > 20


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("bug", HOSTILE_BUGS)
def test_what_a_hostile_client_may_do_to_others_is_caught(bug, seed, mistakes):
    report = run_seed(seed, SHORT_SECONDS, bugs=[bug], kind="hostile")
    assert set(report.rules) & {"C1", "C2"}
    mistakes.take()
