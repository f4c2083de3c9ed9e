"""A plan of faults at work on a cluster: each is applied at its time and taken back later."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from barnabas.testing.simulation.cluster import Cluster
from barnabas.testing.simulation.moments import Moments
from barnabas.testing.simulation.node import Node

LOOK_SECONDS = 0.5  # how often the supervisor looks
RESTART_SECONDS = 2.0  # how long a broker is down, at least, before the supervisor restarts it

Undo = Callable[[], None]


class Fault(NamedTuple):
    """One fault of a plan, so many seconds after it began. `target` and `other` are parties; 0 <= `size` < 1."""

    at_seconds: float
    kind: str
    target: str
    other: str
    lasts_seconds: float
    size: float

    def __str__(self) -> str:
        parties = f"{self.target} {self.other}"
        return f"{self.at_seconds:7.3f} {self.kind} {parties} for {self.lasts_seconds:.2f} s, size {self.size:.3f}"


class Kind(NamedTuple):
    """A kind of fault: how long it lasts at most (0: a moment), how likely it is, and what it does."""

    seconds_max: float
    weight: float
    apply: "Callable[[Harm, Fault], Undo | None]"


@dataclass(frozen=True, slots=True)
class Plan:
    """All faults of a history, in the order of their times, within `seconds`."""

    seconds: float
    faults: Sequence[Fault]

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


@dataclass(eq=False, slots=True)
class Harm:
    """A plan at work on a cluster."""

    cluster: Cluster
    plan: Plan
    kinds: Mapping[str, Kind]
    machine_crashes_are_safe: bool = False  # every write is synced before it is acknowledged
    counts: dict[str, int] = field(default_factory=dict)  # how often each kind of fault really happened
    on_fault: Callable[[Fault, Sequence[str]], None] = lambda fault, took_down: None
    on_choice: Callable[[Fault, Node], None] = lambda fault, node: None  # a fault has chosen a broker by itself
    moments: Moments = field(default_factory=Moments)
    down: dict[Node, None] = field(default_factory=dict)  # that the plan keeps down for now
    _undos: dict[Fault, Undo] = field(default_factory=dict)
    _isrs_were_full: bool = True  # at some moment since the last machine crash

    async def run(self) -> None:
        """Execute the plan, then undo whatever is left of it and wait until every broker serves."""
        begin = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.supervise)
            for fault in self.plan.faults:
                await trio.sleep_until(begin + fault.at_seconds)
                self._apply(fault, nursery)
            await trio.sleep_until(begin + self.plan.seconds)
            nursery.cancel_scope.cancel()
        await self.heal()

    async def heal(self) -> None:
        """Take back everything at once."""
        for fault in list(self._undos):
            self._undo(fault)
        for node in self.cluster.nodes.values():
            node.disk.heal()
            node.clock_skew_ms = 0
            if node.has_lost_a_directory:
                node.crash_process()
        await self.cluster.start()

    async def supervise(self) -> None:
        """Start again what ended and is not meant to be down; remember when every ISR is full."""
        while True:
            await trio.sleep(LOOK_SECONDS)
            self._isrs_were_full = self._isrs_were_full or self.cluster.every_isr_is_full()
            for node in self.cluster.nodes.values():
                is_due = node.ended_at <= trio.current_time() - RESTART_SECONDS
                if is_due and not node.is_running and node not in self.down:
                    node.disk.heal()
                    node.launch(self.cluster.nursery)

    def _apply(self, fault: Fault, nursery: trio.Nursery) -> None:
        before = set(self.down)
        undo = self.kinds[fault.kind].apply(self, fault)
        if undo is None:
            return
        self.counts[fault.kind] = self.counts.get(fault.kind, 0) + 1
        self.cluster.simulation.trace.note(f"fault {fault}")
        self.on_fault(fault, [node.name for node in self.down if node not in before])
        self._undos[fault] = undo
        nursery.start_soon(self._undo_later, fault)

    async def _undo_later(self, fault: Fault) -> None:
        await trio.sleep(fault.lasts_seconds)
        self._undo(fault)

    def _undo(self, fault: Fault) -> None:
        undo = self._undos.pop(fault, None)
        if undo is not None:
            undo()

    # -- for the kinds

    def node(self, party: str) -> Node:
        """The machine of this name."""
        return next(node for node in self.cluster.nodes.values() if node.name == party)

    def take_down(self, node: Node, how: Callable[[], None]) -> Undo | None:
        """Let a running broker end; it comes back when the fault is undone."""
        if not node.is_running or node in self.down:
            return None
        self.down[node] = None
        how()

        def undo() -> None:
            self.down.pop(node, None)
            if not node.is_running:
                node.launch(self.cluster.nursery)

        return undo

    def may_cut_power(self) -> bool:
        """Whether a machine may crash now without breaking what acks=all promises."""
        self._isrs_were_full = self._isrs_were_full or self.cluster.every_isr_is_full()
        if not self._isrs_were_full and not self.machine_crashes_are_safe:
            return False
        self._isrs_were_full = False
        return True
