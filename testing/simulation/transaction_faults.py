"""Faults at bad moments of transactions (see `faults.py`): markers, decisions and proofs that are late.

The rules about transactions tell of the moments (`moments.py`); such a fault is drawn like any other, and waits for the
next one.
"""

from collections.abc import Callable, Sequence
from functools import partial

from barnabas.testing.simulation.harm import Fault, Harm, Undo
from barnabas.testing.simulation.moments import DECIDED, OPENED, PREPARED, Moment
from barnabas.testing.simulation.net import SimNet, SimStream
from barnabas.testing.simulation.node import Node
from barnabas.testing.simulation.store import STORE
from barnabas.wire import messages as m
from barnabas.wire.asking import key_of
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC

SENDING_SECONDS = 0.01  # after a decision is committed, its markers are sent
DEAD_SECONDS = 3.0  # how long a coordinator is down that was killed then
HELD_SECONDS_MAX = 20.0


def cut_links(net: SimNet, pairs: Sequence[tuple[str, str]]) -> Undo:
    """Nothing of the first party of a pair reaches the second."""
    for source, target in pairs:
        net.cut(source, target)

    def undo() -> None:
        for source, target in pairs:
            net.mend(source, target)

    return undo


def cut_off(net: SimNet, party: str, others: Sequence[str]) -> Undo:
    """Neither hears the other: the party, and each of these."""
    return cut_links(net, [pair for other in others for pair in ((party, other), (other, party))])


def other_brokers(harm: Harm, node: Node) -> list[str]:
    """The names of all brokers but this one."""
    return [each.name for each in harm.cluster.nodes.values() if each is not node]


def _at(
    harm: Harm, fault: Fault, kind: str, apply: Callable[[Node, Moment], Undo | None], *, in_its_step: bool = False
) -> Undo:
    """Do this to the broker at which the next moment of this kind comes.

    Soon after the step in which it comes, or in it: before any other task runs.
    """
    clock = harm.cluster.simulation.clock
    undos = list[Undo]()

    def act(moment: Moment) -> None:
        node = harm.cluster.nodes[moment.broker_id]
        harm.on_choice(fault, node)
        undo_it = apply(node, moment)
        if undo_it is not None:
            undos.append(undo_it)

    later = act if in_its_step else lambda moment: clock.call_in(0, act, moment)
    undos.append(harm.moments.wait(kind, later))

    def undo() -> None:
        for each in undos:
            each()

    return undo


def pause_decider(harm: Harm, fault: Fault) -> Undo:
    """A coordinator stops when its decision is committed, before it has sent the markers."""

    def pause(node: Node, _: Moment) -> Undo:
        node.pause()
        return node.resume

    return _at(harm, fault, DECIDED, pause)


def isolate_decider(harm: Harm, fault: Fault) -> Undo:
    """A coordinator is cut off from the other brokers when it has written a decision that is not replicated yet."""

    def isolate(node: Node, _: Moment) -> Undo:
        return cut_off(harm.cluster.net, node.name, other_brokers(harm, node))

    return _at(harm, fault, PREPARED, isolate)


def strand_coordinator(harm: Harm, fault: Fault) -> Undo:
    """A coordinator hears clients only, and goes on serving them when another broker has its place."""
    topic = GROUP_TOPIC if fault.size < 0.5 else TRANSACTION_TOPIC
    coordinators = (each for each in harm.cluster.nodes.values() if _leads(each, topic))
    node = next(coordinators, harm.node(fault.target))
    harm.on_choice(fault, node)
    return cut_off(harm.cluster.net, node.name, [STORE, *other_brokers(harm, node)])


def _leads(node: Node, topic: str) -> bool:
    hosted = () if node.broker is None else node.broker.replicas
    return any(each.topic_partition.topic == topic and each.is_leader for each in hosted)


def late_markers(harm: Harm, fault: Fault) -> Undo:
    """The markers of a decision are on their way for long. Their sender has lost its connections meanwhile, so that it
    has sent them again; or it was killed, so that another coordinator has sent them. Some arrive at the worst moment:
    the producer has opened its next transaction there."""
    net = harm.cluster.net
    clock = harm.cluster.simulation.clock
    is_deadly = fault.size >= 0.5
    is_timely = int(fault.size * 1000) % 4 > 0
    seconds = HELD_SECONDS_MAX if is_timely else 0.3 + 12.0 * fault.size**2

    def hold(node: Node, decided: Moment) -> None:
        others = [each for each in harm.cluster.nodes.values() if each is not node]
        for other in others:
            held = net.hold_connections(node.name, other.name, seconds)
            if is_timely:
                # Such a moment is of the next transaction, which begins only when all markers of
                # this one are there.
                opened = Moment(OPENED, other.broker_id, decided.name)
                forget = harm.moments.wait(OPENED, partial(_release, held), only=opened)
                clock.call_in(seconds, forget)

        def part() -> None:
            for other in others:
                net.part_connections(node.name, other.name, 2 * seconds)
            come_back = harm.take_down(node, node.crash_process) if is_deadly else None
            if come_back is not None:
                # The next coordinator is elected when the session of this one has ended, or when it is back.
                clock.call_in(DEAD_SECONDS, come_back)

        clock.call_in(SENDING_SECONDS, part)

    # The hold begins in the step of the decision, before the markers leave.
    return _at(harm, fault, DECIDED, hold, in_its_step=True)


def _release(held: "Sequence[SimStream]", _: Moment) -> None:
    """What was held arrives now, also if its sender has lost these connections."""
    for stream in held:
        stream.release()


def late_proofs(harm: Harm, fault: Fault) -> Undo:
    """What coordinators answer to the leaders' questions about transactions is late, while their markers are not."""
    late = harm.cluster.net.late_answers
    questions = [(node.name, key_of(m.AddPartitionsToTxnRequest())) for node in harm.cluster.nodes.values()]
    late |= dict.fromkeys(questions, 0.1 + 2.0 * fault.size)

    def undo() -> None:
        for question in questions:
            late.pop(question, None)

    return undo
