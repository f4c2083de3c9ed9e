"""A whole cluster in one process: machines with brokers, the metadata store, the network between them, and clients.

    async def main(simulation):
        async with open_cluster(simulation, brokers=3) as cluster:
            await cluster.start()
            net = cluster.client_net("client-a")
            ...
            cluster.nodes[1].crash_process()
            await cluster.nodes[1].start(cluster.nursery)

    result, run = simulate(seed=7, main=main)
    run.trace.digest()

Brokers are called broker-1, broker-2, … and listen on port 9092 of the host of that name; the store is "store"; a
client has the name that it passes to `client_net`. All of them are parties of the network; `cluster.net` loses, delays
or cuts connections between any two of them on request.

A bug of the broker must not hide behind an error code: every log line with a traceback, also of exceptions that
dispatch answers with UNKNOWN_SERVER_ERROR, is kept in `bugs`.
"""

import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from barnabas.controller.image.loading import live_broker
from barnabas.controller.store import paths
from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.node import Node
from barnabas.testing.simulation.schedule import Simulation, in_dead_process
from barnabas.testing.simulation.store import START_MS, StoreServer
from barnabas.wire.sentinels import NO_LEADER
from barnabas.world.net import Net

# What the simulation sets differently from Kafka's defaults: small files, few internal partitions, short sessions.
PROPERTIES = {
    "zookeeper.connect": "store:2181",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "10000",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "65536",
}
START_SECONDS_MAX = 60.0


class Cluster:
    """Made by `open_cluster`."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery, brokers: int, properties: dict[str, str]) -> None:
        self.simulation = simulation
        self.nursery = nursery  # where brokers live
        self.rng: random.Random = simulation.rng("cluster")
        self.net = SimNet(simulation)
        self.store = StoreServer(simulation, self.net)
        self.bugs: list[str] = []  # tracebacks that the brokers logged
        self.nodes: dict[int, Node] = {
            broker_id: Node(simulation, self.net, self.store, broker_id, PROPERTIES | properties)
            for broker_id in range(1, brokers + 1)
        }

    @property
    def now_seconds(self) -> float:
        """Virtual time."""
        return self.simulation.clock.now

    def now_ms(self) -> int:
        """The wall clock of a machine whose clock is right."""
        return START_MS + round(self.simulation.clock.now * 1000)

    def on_step(self, callback: Callable[[], None]) -> None:
        """Call `callback()` after every task step; it must be quick where nothing changed."""
        self.simulation.on_step(callback)

    def client_net(self, name: str) -> Net:
        """The network as a client sees it that is a party of its own; the same for the same name."""
        return self.net.parties.get(name) or self.net.party(name)

    @property
    def controller(self) -> Node | None:
        """The machine whose broker believes to be the controller, with the highest epoch."""
        active = [
            (node.broker.candidate.epoch, node)
            for node in self.nodes.values()
            if node.broker is not None and node.broker.candidate.is_active
        ]
        return max(active, key=lambda found: found[0])[1] if active else None

    @property
    def controller_epoch(self) -> int:
        """The highest epoch in which a broker believes to be the controller; -1 when none does."""
        node = self.controller
        return -1 if node is None or node.broker is None else node.broker.candidate.epoch

    def other_parties(self, name: str) -> list[str]:
        """Everybody else who was ever seen in the network."""
        return [other for other in self.net.parties_seen if other != name]

    def every_isr_is_full(self) -> bool:
        """Whether all brokers run, and every replica is a member of its ISR with all that it had when that was written.

        As the metadata store has it: a member that has kept nothing from before the state was written is one that
        bounced, and its log was not read since.
        """
        tree = self.store.tree
        kept_since = dict[int, int]()
        for node in self.nodes.values():
            stat = tree.stat(paths.broker(node.broker_id))
            if stat is None or not node.is_ready or stat.owner not in node.own_session_ids:
                return False
            live = live_broker(node.broker_id, *tree.get(paths.broker(node.broker_id)))
            if live is None:
                return False
            kept_since[node.broker_id] = live.kept_since

        for topic in tree.children(paths.TOPICS):
            path = paths.topic(topic)
            assignment = paths.TopicAssignment.decode(tree.get(path)[0], path)
            for partition, replicas in assignment.partitions.items():
                path = paths.partition_state(topic, partition)
                if tree.stat(path) is None:
                    return False
                data, stat = tree.get(path)
                state = paths.PartitionState.decode(data, path)
                if state.leader == NO_LEADER or set(state.isr) != set(replicas):
                    return False
                if any(kept_since.get(replica, stat.mzxid) >= stat.mzxid for replica in replicas):
                    return False

        return True

    async def start(self) -> None:
        """Start every broker that does not run, and wait until all serve."""
        with trio.fail_after(START_SECONDS_MAX):
            async with trio.open_nursery() as starting:
                for node in self.nodes.values():
                    starting.start_soon(node.start, self.nursery)

    async def stop(self) -> None:
        """A clean stop of every broker, one after the other; paused ones go on first."""
        for node in self.nodes.values():
            node.resume()
            await node.stop()

    @property
    def open_files(self) -> int:
        """How many handles of files are open on the machines' disks."""
        return sum(node.disk.open_count for node in self.nodes.values())


@asynccontextmanager
async def open_cluster(simulation: Simulation, *, brokers: int = 3, **properties: str) -> AsyncIterator[Cluster]:
    """Machines, store and network; nothing runs yet. Properties as `min_insync_replicas="2"`: underscores are dots.

    At the end whatever still runs is killed.
    """
    dotted = {name.replace("_", "."): text for name, text in properties.items()}
    async with trio.open_nursery() as nursery:
        cluster = Cluster(simulation, nursery, brokers, dotted)
        keeper = _BugKeeper(cluster.bugs)
        logger = logging.getLogger("barnabas")
        logger.addHandler(keeper)
        try:
            yield cluster
        finally:
            logger.removeHandler(keeper)
            for node in cluster.nodes.values():
                if node.is_running:
                    node.crash_process()


class _BugKeeper(logging.Handler):
    """Keeps log lines with tracebacks, but for those of a process that was killed and is at its end."""

    def __init__(self, bugs: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._bugs = bugs

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not in_dead_process():
            self._bugs.append(f"{record.getMessage()}\n{self.format(record)}")
