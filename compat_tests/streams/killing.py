"""Executes a plan of kills: finds out who has the role when the kill is due, and starts the victim again."""

import contextlib
import heapq
import random
import signal
import time
from collections.abc import Callable, Sequence

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from compat_tests.cluster.live import LiveCluster
from compat_tests.cluster.nodes import Node, party_of
from compat_tests.cluster.view import Unanswered
from compat_tests.streams.plan import ANY_BROKER, INSTANCE, Kill
from compat_tests.streams.processes import APPLICATION, Instance

UNDECIDED = ("Ongoing", "PrepareCommit", "PrepareAbort")
FIND_SECONDS = 3.0  # an election may be under way, or no transaction be open for a moment
LOOK_SECONDS = 0.1


class Killer:
    """Does the kills of a plan."""

    def __init__(self, cluster: LiveCluster, instances: Sequence[Instance], seed: int) -> None:
        self._cluster = cluster
        self._instances = instances
        self._rng = random.Random(seed)
        self._began = 0.0
        self.done: list[str] = []  # when, who, and why

    def run(self, plan: Sequence[Kill], seconds: float) -> None:
        """Return when the time is over and all victims were started again."""
        began = self._began = time.monotonic()
        # When, a number of its own (so that no two are compared further), and what: a kill, or with `restart` its end.
        steps: list[tuple[float, int, Kill, Callable[[], None] | None]] = []
        for number, kill in enumerate(plan):
            heapq.heappush(steps, (kill.at_s, number, kill, None))
        while steps:
            at_s, number, kill, restart = heapq.heappop(steps)
            time.sleep(max(0.0, began + at_s - time.monotonic()))
            if restart is not None:
                restart()
                continue
            restart = self._kill(kill.role)
            heapq.heappush(steps, (time.monotonic() - began + kill.down_s, number + len(plan), kill, restart))
        time.sleep(max(0.0, began + seconds - time.monotonic()))

    def _kill(self, role: str) -> Callable[[], None]:
        """Kill one of those who have this role; what restarts it."""
        if role == INSTANCE:
            up = [instance for instance in self._instances if instance.is_running()]
            instance = self._rng.choice(up or self._instances)
            self._note(role, instance.name)
            instance.kill()
            return instance.restart
        having = self._having(role)
        node = self._rng.choice(having or self._up() or list(self._cluster.brokers.values()))
        self._note(role if having else f"for want of a {role}", node.party)
        node.hold(signal.SIGKILL)
        return node.release

    def _note(self, role: str, victim: str) -> None:
        self.done.append(f"{time.monotonic() - self._began:.1f} s: {victim}, {role}")

    def _up(self) -> list[Node]:
        return [node for node in self._cluster.brokers.values() if node.is_running()]

    def _having(self, role: str) -> list[Node]:
        """The running brokers that have this role, as soon as there are any; none if no broker says."""
        began = time.monotonic()
        while time.monotonic() - began < FIND_SECONDS:
            holders = self._holders(role)
            having = [node for node in self._up() if node.party in holders]
            if having:
                return having
            time.sleep(LOOK_SECONDS)
        return []

    def _holders(self, role: str) -> set[str]:
        """The brokers that have this role now, as far as anybody can tell."""
        view = self._cluster.view
        if role == ANY_BROKER:
            return {node.party for node in self._up()}
        with contextlib.suppress(Unanswered):
            if role == "controller":
                return {party_of(view.controller())}
            if role == "group coordinator":
                return {party_of(view.coordinator(APPLICATION))}
            if role == "transaction coordinator":
                return {party_of(broker) for broker in self._cluster.broker_ids if self._coordinates(broker)}
        return set()

    def _coordinates(self, broker: int) -> bool:
        """Whether this broker is the coordinator of a transaction of the instances that is not over."""
        try:
            listed = self._cluster.view.ask(broker, m.ListTransactionsRequest(), 0)
        except Unanswered:
            return False
        return listed.error_code == ErrorCode.NONE and any(
            row.transaction_state in UNDECIDED for row in listed.transaction_states
        )
