"""Executes faults on a live cluster: each in a thread of its own, until the fault is undone.

Beginning and end of each are written to the ledger, with whom it met. Nodes count their holds and pauses and this file
counts the cuts, so that of two faults on one victim the longer one decides.
"""

import contextlib
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from compat_tests.cluster.faults import Fault
from compat_tests.cluster.ledger import Ledger
from compat_tests.cluster.live import CLIENTS, LiveCluster, NotWhole
from compat_tests.cluster.network import all_ways
from compat_tests.cluster.nodes import ZOOKEEPER, Node, party_of
from compat_tests.cluster.view import GROUP, TRANSACTION, Unanswered

Way = tuple[str, str]
ROLLING_WHOLE_SECONDS = 25.0


class Striker:
    """Does faults to a cluster that leads `topic` and coordinates `group` and the transactional ids."""

    def __init__(
        self,
        cluster: LiveCluster,
        ledger: Ledger,
        topic: str,
        group: str,
        seed: int,
        transactional_ids: Sequence[str] = (),
    ) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._topic = topic
        self._coordinated = [(group, GROUP), *((name, TRANSACTION) for name in transactional_ids)]
        self._rng = random.Random(seed)
        self._cuts: Counter[Way] = Counter()
        self._lock = threading.Lock()
        self._failures: list[BaseException] = []

    def run(self, plan: Sequence[Fault], seconds: float) -> float:
        """Do the whole plan; returns when the run is over and all is healed, with the time when the last one was."""
        began = time.monotonic()
        threads = []
        for fault in plan:
            time.sleep(max(0.0, began + fault.at_s - time.monotonic()))
            thread = threading.Thread(target=self._strike, args=(fault,), daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        healed_at = time.time()
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        if self._failures:
            raise self._failures[0]
        return healed_at

    def _strike(self, fault: Fault) -> None:
        try:
            with self._doing(fault) as victims:
                self._ledger.write("fault", name=fault.name, seconds=fault.duration_s, victims=victims)
                time.sleep(fault.duration_s)
            self._ledger.write("healed", name=fault.name, victims=victims)
        except BaseException as error:  # raised again by `run`, which waits for this thread
            self._failures.append(error)

    @contextlib.contextmanager
    def _doing(self, fault: Fault) -> Iterator[list[str]]:
        """The fault holds inside of this context."""
        kind, is_one_way = fault.kind.removesuffix("-one-way"), fault.kind.endswith("-one-way")
        with contextlib.ExitStack() as stack:
            if kind.startswith("cut-") or kind == "isolate":
                ways = self._ways(kind, fault.target)
                if is_one_way:  # of a pair, from the first to the second
                    ways = ways[:1] if kind == "cut-brokers" else [self._rng.choice(ways)]
                for way in ways:
                    stack.enter_context(self._cutting(way))
                yield [f"{source}->{target}" for source, target in ways]
            elif kind == "rolling-restart":
                yield list(map(party_of, self._cluster.broker_ids))
                self._roll()
            else:
                victims = self._victims(kind, fault.target)
                for node in victims:
                    stack.enter_context(self._harming(kind, node))
                yield [node.party for node in victims]

    # -- who

    def _find(self, role: str) -> int:
        """Who has this role now, as far as anybody can tell; else any."""
        with contextlib.suppress(Unanswered):
            if role == "controller":
                found = self._cluster.view.controller()
            elif role == "coordinator":
                found = self._cluster.view.coordinator(*self._rng.choice(self._coordinated))
            else:
                found = self._cluster.view.leader(self._topic)
            others = [broker for broker in self._cluster.broker_ids if broker != found]
            if role == "follower":
                return self._rng.choice(others)
            if found in self._cluster.broker_ids:
                return found
        return self._rng.choice(self._cluster.broker_ids)

    def _victims(self, kind: str, target: str) -> list[Node]:
        ids = list(self._cluster.broker_ids)
        if kind == "restart-zookeeper":
            return [self._cluster.zookeeper]
        if kind.endswith("-all"):
            return [self._cluster.broker(broker) for broker in ids]
        if kind.endswith("-some"):
            return [self._cluster.broker(broker) for broker in self._rng.sample(ids, self._rng.randint(1, len(ids)))]
        return [self._cluster.broker(self._find(target))]

    def _ways(self, kind: str, target: str) -> list[Way]:
        if kind == "cut-brokers":
            return all_ways(*([party] for party in self._pair(target)))
        victim = party_of(self._find(target))
        if kind == "cut-zookeeper":
            return all_ways([victim], [ZOOKEEPER])
        if kind == "cut-clients":
            return all_ways([CLIENTS], [victim])
        others = [party_of(broker) for broker in self._cluster.broker_ids if party_of(broker) != victim]
        return all_ways([victim], [*others, ZOOKEEPER])  # clients still reach it

    def _pair(self, target: str) -> tuple[str, str]:
        """Two brokers: the leader and one that follows, in this order or the other, or any two."""
        leader = self._find("leader")
        other = self._rng.choice([broker for broker in self._cluster.broker_ids if broker != leader])
        pair = [leader, other]
        if target == "follower leader":
            pair.reverse()
        elif target == "any any":
            pair = self._rng.sample(list(self._cluster.broker_ids), 2)
        return party_of(pair[0]), party_of(pair[1])

    # -- what

    @contextlib.contextmanager
    def _harming(self, kind: str, node: Node) -> Iterator[None]:
        begin, end = _HARM["pause" if kind.startswith("pause") else kind.partition("-")[0]]
        begin(node)
        try:
            yield
        finally:
            end(node)

    @contextlib.contextmanager
    def _cutting(self, way: Way) -> Iterator[None]:
        with self._lock:
            self._cuts[way] += 1
            self._cluster.network.cut(*way)
        try:
            yield
        finally:
            with self._lock:
                self._cuts[way] -= 1
                if not self._cuts[way]:
                    self._cluster.network.heal(*way)

    def _roll(self) -> None:
        """Each broker is stopped in order and started again; the next one when all is whole, or after a while."""
        for broker in self._cluster.broker_ids:
            node = self._cluster.broker(broker)
            node.hold(signal.SIGTERM)
            node.release()
            with contextlib.suppress(NotWhole):  # another fault may be on
                self._cluster.await_whole(ROLLING_WHOLE_SECONDS)


_HARM: dict[str, tuple[Callable[[Node], None], Callable[[Node], None]]] = {
    "kill": (lambda node: node.hold(signal.SIGKILL), Node.release),
    "terminate": (lambda node: node.hold(signal.SIGTERM), Node.release),
    "restart": (lambda node: node.hold(signal.SIGKILL), Node.release),
    "pause": (Node.pause, Node.resume),
}
