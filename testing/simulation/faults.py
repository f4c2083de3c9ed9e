"""The faults of a simulated cluster and their times: a plan drawn from the seed, and its execution.

Theory of operation
-------------------
`draw_plan` draws the kinds of fault of a history, their frequency and duration, so that one seed has flaky links and
another dying brokers; then it draws the single faults. A plan is data: it can be printed, shortened and run again. A
kind of fault is one row of `KINDS`: a function that causes the fault and returns a function that undoes it, or None if
it could not be caused. `Harm.run` executes a plan, counts the faults that were caused, and undoes everything at the
end: links, disks, clocks and processes work, and every broker runs.

A supervisor (`Harm.supervise`) restarts brokers that ended: because a disk failed, or because the id was in use.

There are two kinds of crash. A process crash keeps every byte that was written. A machine crash keeps what was synced
and a seeded part of the rest, which breaks the guarantee of acks=all if it affects too many replicas at once. So unless
every write is synced (`flush.messages=1`), a machine crash happens only if every ISR was full at some moment since the
one before; otherwise it is carried out as a process crash.
"""

import random
from collections.abc import Mapping, Sequence

from barnabas.storage.checkpoint import HIGH_WATERMARK_CHECKPOINT
from barnabas.storage.disk import join, parent_of
from barnabas.testing.simulation.harm import Fault, Harm, Kind, Plan, Undo
from barnabas.testing.simulation.store import STORE
from barnabas.testing.simulation.transaction_faults import (
    cut_links,
    cut_off,
    isolate_decider,
    late_markers,
    late_proofs,
    other_brokers,
    pause_decider,
    strand_coordinator,
)

RATE_SECONDS_MIN, RATE_SECONDS_MAX = 1.0, 9.0  # the mean time between two faults of a history
# A history with few kinds has each of them often, so that faults of one kind meet each other. A
# history with all of them would have each one rarely.
KIND_SHARE = 0.45  # the part of all kinds that a history has
CUT_LOOK_SECONDS = 0.01


def draw_kinds(rng: random.Random, always: Sequence[str], never: Sequence[str]) -> list[str]:
    """These, and a share of the common ones."""
    common = [kind for kind in KINDS if kind not in {*always, *never, *EXTRAORDINARY}]
    return [*always, *(kind for kind in common if rng.random() < KIND_SHARE)]


def draw_plan(
    rng: random.Random, *, brokers: Sequence[str], clients: Sequence[str], seconds: float, kinds: Sequence[str] = ()
) -> Plan:
    """Draw a plan for these parties. `kinds` are the ones to draw from; without it, the plan draws those as well."""
    common = [kind for kind in KINDS if kind not in EXTRAORDINARY]
    chosen = list(kinds) or [kind for kind in common if rng.random() < KIND_SHARE] or [rng.choice(common)]
    # The weights are drawn for each history as well, so that a kind that is rare by its table is
    # frequent in some histories.
    weights = [KINDS[kind].weight * rng.uniform(0.2, 1.0) for kind in chosen]
    rate_seconds = rng.uniform(RATE_SECONDS_MIN, RATE_SECONDS_MAX)
    length = rng.uniform(0.2, 1.0)  # some histories have short faults only
    faults = []
    at_seconds = 0.0
    while (at_seconds := at_seconds + rng.expovariate(1 / rate_seconds)) < seconds:
        (kind,) = rng.choices(chosen, weights)
        target = rng.choice(brokers)
        # Brokers stand twice in the list: a fault between two brokers tests more than one between a
        # broker and a client.
        other = rng.choice([party for party in (*brokers, *brokers, *clients, STORE) if party != target])
        # The square makes most faults short. A long fault lets sessions expire, and then the
        # cluster is in one state for most of its duration.
        lasts_seconds = rng.random() ** 2 * length * KINDS[kind].seconds_max
        faults.append(Fault(at_seconds, kind, target, other, lasts_seconds, rng.random()))

    return Plan(seconds, faults)


def _nothing() -> None:
    """What happened at once is over."""


def _delay(harm: Harm, fault: Fault) -> Undo:
    # The cube makes most delays a few milliseconds, which reorder messages of different links, and
    # few as long as a timeout.
    seconds = 0.005 + fault.size**3 * 2.0
    links = [harm.cluster.net.link(*ends) for ends in ((fault.target, fault.other), (fault.other, fault.target))]
    for link in links:
        link.extra_seconds += seconds

    def undo() -> None:
        for link in links:
            # Two faults may delay the same link, so each one takes back only what it has added. The
            # subtraction of floats may leave less than nothing.
            link.extra_seconds = max(0.0, link.extra_seconds - seconds)

    return undo


def _lose_connections(harm: Harm, fault: Fault) -> Undo | None:
    lost = harm.cluster.net.lose_connections(fault.target, fault.other, late=fault.size < 0.5)
    return _nothing if lost else None


def _hold_connections(harm: Harm, fault: Fault) -> Undo | None:
    """What others send to a broker is late on their connections of now: a party that makes another one overtakes it."""
    seconds = 0.2 + 3.0 * fault.size
    others = [each for each in harm.cluster.other_parties(fault.target) if each != STORE]
    held = [harm.cluster.net.hold_connections(each, fault.target, seconds) for each in others]
    return _nothing if any(held) else None


def _cut(harm: Harm, pairs: Sequence[tuple[str, str]]) -> Undo:
    return cut_links(harm.cluster.net, pairs)


def _cut_one_way(harm: Harm, fault: Fault) -> Undo:
    pair = (fault.target, fault.other)
    return _cut(harm, [pair if fault.size < 0.5 else pair[::-1]])


def _partition(harm: Harm, fault: Fault) -> Undo:
    return cut_off(harm.cluster.net, fault.target, [fault.other])


def _isolate(harm: Harm, fault: Fault) -> Undo:
    """From everybody, or from the other brokers only."""
    is_from_brokers = fault.size < 0.5
    others = (
        other_brokers(harm, harm.node(fault.target)) if is_from_brokers else harm.cluster.other_parties(fault.target)
    )
    return cut_off(harm.cluster.net, fault.target, others)


def _leave_store(harm: Harm, fault: Fault) -> Undo:
    """The broker and the store do not hear each other, or only one of them."""
    pairs = [(fault.target, STORE), (STORE, fault.target)]
    return _cut(harm, pairs if fault.size < 0.6 else pairs[:1] if fault.size < 0.8 else pairs[1:])


def _crash_process(harm: Harm, fault: Fault) -> Undo | None:
    node = harm.node(fault.target)
    return harm.take_down(node, node.crash_process)


def _crash_machine(harm: Harm, fault: Fault) -> Undo | None:
    node = harm.node(fault.target)
    # A machine crash that the guarantee of acks=all does not cover would be reported as a loss of
    # records: see the head of this file.
    if not node.is_running or node in harm.down or not harm.may_cut_power():
        return None
    return harm.take_down(node, lambda: node.crash_machine(random.Random(f"{fault.size}")))


def _kill_controller(harm: Harm, fault: Fault) -> Undo | None:
    node = harm.cluster.controller
    return None if node is None else harm.take_down(node, node.crash_process)


def _restart(harm: Harm, fault: Fault) -> Undo | None:
    node = harm.node(fault.target)
    # A paused process handles no signal, and one that is still starting has nothing to hand over.
    if node.is_paused or not node.is_ready:
        return None
    return harm.take_down(node, node.ask_to_stop)


def _pause(harm: Harm, fault: Fault) -> Undo | None:
    node = harm.node(fault.target)
    if not node.is_running or node.is_paused:
        return None
    node.pause()
    return node.resume


def _slow_disk(harm: Harm, fault: Fault) -> Undo:
    disk = harm.node(fault.target).disk
    # The broker may get another disk object before the fault ends, by a crash of its machine. So
    # the undo asks the node for its disk.
    disk.slow_seconds = 0.01 + fault.size**2 * 3.0

    def undo() -> None:
        harm.node(fault.target).disk.slow_seconds = 0.0

    return undo


def _slow_syncs(harm: Harm, fault: Fault) -> Undo:
    """A device with much to write: each round of syncs takes seconds, everything else is as fast as ever."""
    harm.node(fault.target).disk.slow_sync_seconds = 0.2 + fault.size**2 * 8.0

    def undo() -> None:
        harm.node(fault.target).disk.slow_sync_seconds = 0.0

    return undo


def _disk_error(harm: Harm, fault: Fault) -> Undo | None:
    node = harm.node(fault.target)
    if not node.is_running:
        return None
    # The next digits of `fault.size` say how many operations succeed before, so that a fault needs
    # no second number.
    node.disk.fail_next(_operation(fault), after=int(fault.size * 1000) % 4)
    return _nothing


def _operation(fault: Fault) -> str:
    """Which operation of a disk fails."""
    # Writes stand twice because most operations are writes, and their failures leave the most
    # states behind.
    operations = ("write", "write", "sync", "read", "replace_file", "truncate", "open", "rename", "sync_directory")
    return operations[int(fault.size * len(operations))]


def _directory_error(harm: Harm, fault: Fault) -> Undo | None:
    """One of several log directories fails; after a while the process is killed, and started again on a good disk."""
    node = harm.node(fault.target)
    if not node.is_running:
        return None
    paths = node.properties["log.dirs"].split(",")
    failing = paths[int(fault.size * 1000) % len(paths)] + "/"
    node.disk.fail_next(_operation(fault), path_part=failing, after=int(fault.size * 1000) % 4)

    def undo() -> None:
        # A broker keeps a failed directory offline until it is restarted. Without a restart the
        # history would lose one replica for good.
        if node.has_lost_a_directory and node not in harm.down:
            node.crash_process()

    return undo


def _error_in_a_move(harm: Harm, fault: Fault) -> Undo | None:
    """The log directory fails that a replica moves to, when a part is copied; or the broker is killed then."""
    node = harm.node(fault.target)
    clock = harm.cluster.simulation.clock
    if not node.is_ready:
        return None
    disk = node.disk
    is_waiting = [True]

    def look() -> None:
        # After a crash and a restart of the node its move is another one, and this fault is not
        # about that.
        if not is_waiting or node.broker is None or node.disk is not disk:
            return
        # A move copies into a future log. An error before its first record has arrived would only
        # fail the creation of that log.
        futures = [log for each in node.broker.replicas.logs.directories for log in each.future_logs.values()]
        copied = next((log for log in futures if log.log_end_offset), None)
        if copied is None:
            clock.call_in(CUT_LOOK_SECONDS, look)
        elif fault.size < 0.7:
            disk.fail_next("write", path_part=parent_of(copied.directory) + "/")
        else:
            node.crash_process()

    def undo() -> None:
        is_waiting.clear()
        if node.has_lost_a_directory and node not in harm.down:
            node.crash_process()

    look()
    return undo


def _error_in_a_cut(harm: Harm, fault: Fault) -> Undo | None:
    """A broker writes what no other gets, and its session ends: it will have to cut its logs. Its disk is slow then,
    and while a log is being cut, the checkpoint beside it cannot be written."""
    node = harm.node(fault.target)
    clock = harm.cluster.simulation.clock
    if not node.is_ready:
        return None
    # The broker is still a leader, and appends what clients send with acks=1. The others elect one
    # without those records when the session has ended.
    mend = cut_off(harm.cluster.net, node.name, other_brokers(harm, node))
    disk = node.disk
    steps = [mend]

    def usurp() -> None:
        # The fault may have been undone before this timer fires: then the links work again, and
        # nothing else may happen.
        if steps:
            steps.clear()
            mend()
            for session_id in node.session_ids:
                harm.cluster.store.expire(session_id)
            disk.slow_seconds = 0.5 + 2.5 * fault.size
            look()

    def look() -> None:
        logs = () if node.broker is None or node.disk is not disk else node.broker.replicas.logs
        # The truncation runs in a thread, so this must look at short intervals. The slow disk makes
        # it last longer than one of them.
        cut = next((log for log in logs if log.is_being_cut), None)
        if cut is not None:
            disk.fail_next("replace_file", path_part=join(parent_of(cut.directory), HIGH_WATERMARK_CHECKPOINT))
        elif disk.slow_seconds:
            clock.call_in(CUT_LOOK_SECONDS, look)

    def undo() -> None:
        for step in steps:
            step()
        steps.clear()
        disk.heal()
        if node.has_lost_a_directory and node not in harm.down:
            node.crash_process()

    clock.call_in(fault.lasts_seconds / 3, usurp)
    return undo


def _all_of(undos: Sequence[Undo | None]) -> Undo | None:
    """Take back whatever happened; None if nothing did."""
    happened = [undo for undo in undos if undo is not None]

    def undo_all() -> None:
        for undo in happened:
            undo()

    return undo_all if happened else None


def _crash_all(harm: Harm, fault: Fault) -> Undo | None:
    return _all_of([harm.take_down(node, node.crash_process) for node in harm.cluster.nodes.values()])


def _restart_two(harm: Harm, fault: Fault) -> Undo | None:
    """Two clean stops at once."""
    two = [node for node in harm.cluster.nodes.values() if node.name in (fault.target, fault.other)]
    return _all_of([harm.take_down(node, node.ask_to_stop) for node in two if node.is_ready and not node.is_paused])


def _crash_unseen(harm: Harm, fault: Fault) -> Undo | None:
    """A machine loses its power while the controller is killed on another one: who sees what it has lost?"""
    node = harm.node(fault.target)
    # If the target is the controller itself, there is no second machine, and the fault would be an
    # ordinary crash.
    controller = harm.cluster.controller
    if controller is None or controller is node:
        return None
    crash = _crash_machine(harm, fault)
    return None if crash is None else _all_of([crash, harm.take_down(controller, controller.crash_process)])


def _left_behind(harm: Harm, fault: Fault) -> Undo | None:
    """No other broker reaches this one, which stays registered, while topics are made and moved: so it may be given
    a replica of another topic. Before it is reached again the controller dies, and with it what it had to send."""
    node = harm.node(fault.target)
    if not node.is_ready:
        return None
    others = other_brokers(harm, node)
    mend = cut_off(harm.cluster.net, node.name, others)
    starts: list[Undo] = []  # what starts the killed controller again

    def succeed() -> None:
        controller = harm.cluster.controller
        if is_waiting and controller is not None and controller is not node:
            start = harm.take_down(controller, controller.crash_process)
            starts.extend([] if start is None else [start])

    def undo() -> None:
        is_waiting.clear()
        mend()
        for start in starts:
            start()

    is_waiting = [True]
    harm.cluster.simulation.clock.call_in(fault.lasts_seconds * 2 / 3, succeed)
    return undo


def _expire_all(harm: Harm, fault: Fault) -> Undo | None:
    sessions = [session_id for node in harm.cluster.nodes.values() for session_id in node.session_ids]
    for session_id in sessions:
        harm.cluster.store.expire(session_id)
    return _nothing if sessions else None


def _disk_full(harm: Harm, fault: Fault) -> Undo | None:
    node = harm.node(fault.target)
    if not node.is_running:
        return None
    node.disk.fill(int(fault.size * 4096))

    def undo() -> None:
        node.disk.heal()  # the disk that the node has by then

    return undo


def _skew_clock(harm: Harm, fault: Fault) -> Undo:
    node = harm.node(fault.target)
    # The exponent is drawn evenly, so that skews of all magnitudes are about equally frequent.
    node.clock_skew_ms = round(
        (fault.size - 0.5) * 2 * 10 ** (1 + fault.size * 5)
    )  # ten milliseconds to a quarter of an hour

    def undo() -> None:
        node.clock_skew_ms = 0

    return undo


def _expire_session(harm: Harm, fault: Fault) -> Undo | None:
    sessions = harm.node(fault.target).session_ids
    for session_id in sessions:
        harm.cluster.store.expire(session_id)
    return _nothing if sessions else None


def _lose_store_answer(harm: Harm, fault: Fault) -> Undo:
    harm.cluster.store.lose_next_answer(fault.target)
    return _nothing


def _late_watches(harm: Harm, fault: Fault) -> Undo:
    store = harm.cluster.store
    store.watch_delay_seconds = 0.01 + fault.size**2 * 2.0

    def undo() -> None:
        store.watch_delay_seconds = 0.0

    return undo


def _stop_store(harm: Harm, fault: Fault) -> Undo | None:
    store = harm.cluster.store
    if store.is_down:
        return None
    store.stop()
    return store.restart


KINDS: Mapping[str, Kind] = {
    "delay": Kind(10.0, 1.0, _delay),
    "lose-connections": Kind(0.0, 1.5, _lose_connections),
    "cut-one-way": Kind(15.0, 1.0, _cut_one_way),
    "partition": Kind(15.0, 1.0, _partition),
    "isolate": Kind(15.0, 0.7, _isolate),
    "leave-store": Kind(15.0, 1.0, _leave_store),
    "crash-process": Kind(15.0, 1.5, _crash_process),
    "crash-machine": Kind(15.0, 1.0, _crash_machine),
    "kill-controller": Kind(15.0, 0.7, _kill_controller),
    "restart": Kind(5.0, 0.7, _restart),
    "pause": Kind(15.0, 1.0, _pause),
    "slow-disk": Kind(10.0, 0.7, _slow_disk),
    "disk-error": Kind(0.0, 0.4, _disk_error),
    "disk-full": Kind(5.0, 0.3, _disk_full),
    "skew-clock": Kind(20.0, 0.7, _skew_clock),
    "expire-session": Kind(0.0, 0.7, _expire_session),
    "lose-store-answer": Kind(0.0, 0.7, _lose_store_answer),
    "late-watches": Kind(10.0, 0.7, _late_watches),
    "stop-store": Kind(10.0, 0.3, _stop_store),
    "directory-error": Kind(12.0, 3.0, _directory_error),
    "error-in-a-move": Kind(30.0, 3.0, _error_in_a_move),
    "slow-syncs": Kind(10.0, 0.7, _slow_syncs),
    "expire-all": Kind(0.0, 1.0, _expire_all),
    "crash-all": Kind(8.0, 0.6, _crash_all),
    "restart-two": Kind(5.0, 0.8, _restart_two),
    "pause-long": Kind(25.0, 1.2, _pause),
    "error-in-a-cut": Kind(15.0, 3.0, _error_in_a_cut),
    "crash-unseen": Kind(4.0, 3.0, _crash_unseen),
    "left-behind": Kind(20.0, 3.0, _left_behind),
    "hold-connections": Kind(0.0, 2.0, _hold_connections),
    "pause-decider": Kind(18.0, 1.0, pause_decider),
    "isolate-decider": Kind(12.0, 1.0, isolate_decider),
    "late-markers": Kind(20.0, 2.0, late_markers),
    "late-proofs": Kind(25.0, 1.5, late_proofs),
    "strand-coordinator": Kind(25.0, 1.0, strand_coordinator),
}
MACHINE_CRASHES = ("crash-machine", "crash-unseen")
EXTRAORDINARY = (  # see kinds.py
    "directory-error",
    "error-in-a-move",
    "slow-syncs",
    "expire-all",
    "crash-all",
    "restart-two",
    "pause-long",
    "error-in-a-cut",
    "crash-unseen",
    "left-behind",
    "hold-connections",
    "pause-decider",
    "isolate-decider",
    "late-markers",
    "late-proofs",
    "strand-coordinator",
)
