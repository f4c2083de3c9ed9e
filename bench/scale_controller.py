"""The controller with many brokers and partitions, in virtual time.

The controller is the real one: two candidates with sessions of the simulated metadata store. The other brokers are
registrations and peers that only answer. So the figures are those of the controller alone: what it reads and writes,
what it sends to whom, and its CPU time. Requests are encoded, and responses decoded, as for a remote broker.

CPU is the thread's, of the tasks' steps. What stands for the rest of the world is left out: the peers' answers, the
sending of requests to the store, and the store itself, which works between the steps (`scale_store.py` measures what
ZooKeeper and its client cost).
"""

import os
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import trio

from barnabas.broker.process.heap import freeze_heap, resident_bytes
from barnabas.config.live import BrokerConfig
from barnabas.controller.admin.placement import place_replicas
from barnabas.controller.candidate import Candidate
from barnabas.controller.channels import RETRY_BACKOFF_MS, Peer
from barnabas.controller.context import ControllerDeps
from barnabas.controller.decide.isr import IsrChange
from barnabas.controller.events import AlterPartitionAsked, ControlledShutdownAsked
from barnabas.controller.image.state import ClusterImage, LiveBroker
from barnabas.controller.store import paths
from barnabas.controller.store.paths import BrokerRegistration, Endpoint, PartitionState, TopicAssignment
from barnabas.controller.store.store import Create, Delete
from barnabas.testing.running.processes import forget_peak_of, peak_resident_bytes_of
from barnabas.testing.simulation.net import SimNet
from barnabas.testing.simulation.schedule import Process, Simulation, simulate
from barnabas.testing.simulation.session import StoreSession
from barnabas.testing.simulation.store import START_MS, StoreServer
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, inter_broker_versions
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition
from bench.steps import StepMeter

REPLICATION_FACTOR = 3
PARTITIONS_OF_A_TOPIC = 100
SESSION_SECONDS = 18.0
QUIET_SECONDS = 5.0  # of virtual time without a request: the event has been handled
LOOK_SECONDS = 0.5
ANSWER_SECONDS = 0.001
SEED = 1
KILLED, STOPPED = 3, 4  # brokers; the candidates are brokers 1 and 2


@dataclass
class Sent:
    """The requests of one API in one phase."""

    requests: int = 0
    size_bytes: int = 0
    largest_bytes: int = 0
    partitions: int = 0
    most_partitions: int = 0  # in one request

    def add(self, size_bytes: int, partitions: int) -> None:
        self.requests += 1
        self.size_bytes += size_bytes
        self.largest_bytes = max(self.largest_bytes, size_bytes)
        self.partitions += partitions
        self.most_partitions = max(self.most_partitions, partitions)


@dataclass
class Phase:
    """What happened between two moments at which the cluster was quiet."""

    name: str
    sent: dict[str, Sent] = field(default_factory=dict)  # by the name of the API
    named: dict[str, dict[TopicPartition, None]] = field(default_factory=dict)  # by the name of the API
    held: dict[TopicPartition, None] = field(default_factory=dict)  # by the broker that the phase is about
    reads: int = 0
    writes: int = 0
    step_seconds: float = 0.0  # CPU of all steps
    encode_seconds: float = 0.0  # CPU in threads
    longest_seconds: float = 0.0
    longest_at: str = ""
    resident_bytes: int = 0  # afterwards
    peak_bytes: int = 0


class Meter(StepMeter):
    """Also keeps what is counted in the phase that goes on."""

    def __init__(self) -> None:
        super().__init__(but=trio.lowlevel.current_task())
        self.phase = Phase("")

    def begin(self, name: str) -> None:
        """The next phase."""
        self.phase = Phase(name)
        self.forget()

    def end(self) -> Phase:
        """The phase, complete."""
        phase = self.phase
        phase.step_seconds, phase.longest_seconds, phase.longest_at = (
            self.seconds,
            self.longest_seconds,
            self.longest_at,
        )
        return phase


class CountingSession(StoreSession):
    """Counts reads and writes into the phase; a multi is one write."""

    meter: Meter

    async def _ask(self, *calls: object) -> None:
        for call in calls:
            if call.request.item is not None:  # type: ignore[attr-defined]  # a call of the simulated session
                self.meter.phase.writes += 1
            else:
                self.meter.phase.reads += 1
        await super()._ask(*calls)  # type: ignore[arg-type]

    def _transmit(self, call: object) -> None:
        with self.meter.aside():
            super()._transmit(call)  # type: ignore[arg-type]


class Broker:
    """A registered broker that answers the controller, and nothing else."""

    def __init__(self, cluster: "ScaleCluster", broker_id: int) -> None:
        self.broker_id = broker_id
        self.session_id = 0  # not registered
        self.epoch = -1
        self._cluster = cluster

    @property
    def is_alive(self) -> bool:
        return self.session_id != 0

    def register(self) -> None:
        server, path = self._cluster.server, paths.broker(self.broker_id)
        self.session_id = 1 + self.broker_id + 1000 * (1 + self._cluster.registrations)
        self._cluster.registrations += 1
        created = server.write(Create(path, registration_of(self.broker_id).encode(), ephemeral=True), self.session_id)
        self.epoch = created.stat.czxid  # type: ignore[union-attr]  # it did not exist

    def end(self) -> None:
        """The session is over."""
        self._cluster.server.write(Delete(paths.broker(self.broker_id)), self.session_id)
        self.session_id = 0


class AnsweringPeer:
    """What a candidate has in the place of a connection to a broker."""

    def __init__(self, meter: Meter, broker: Broker, *, is_own: bool) -> None:
        self._meter = meter
        self._broker = broker
        self._is_own = is_own

    async def ask(self, request: m.Message, deadline_ms: float, version_max: int | None = None) -> m.Message:
        """As `RemotePeer`, or as `SelfPeer` without any bytes."""
        if not self._broker.is_alive:
            await trio.sleep(RETRY_BACKOFF_MS / 1000)
            raise PeerLost("it is dead")
        key = asking.key_of(request)
        version = VERSIONS[key]
        if asking.is_large(request) or self._is_own:
            # In a thread; or not at all, but its size is of interest.
            with self._meter.aside():
                began = time.thread_time()
                frame = asking.InFlightRequests("1").frame(request, version)
                if not self._is_own:
                    self._meter.phase.encode_seconds += time.thread_time() - began
        else:
            frame = asking.InFlightRequests("1").frame(request, version)
        with self._meter.aside():
            self._note(APIS[key].name, len(frame), list(partitions_of(request)))
            response = answer_to(request)
            encoded = m.encode(response, version)
        await trio.sleep(ANSWER_SECONDS)
        return response if self._is_own else m.decode(type(response), version, encoded, 0)

    def _note(self, api: str, size_bytes: int, partitions: list[TopicPartition]) -> None:
        phase = self._meter.phase
        phase.sent.setdefault(api, Sent()).add(size_bytes, len(partitions))
        phase.named.setdefault(api, {}).update(dict.fromkeys(partitions))

    def close(self) -> None:
        """There is no connection."""


CONFIG = BrokerConfig({"zookeeper.connect": "store:2181", "auto.leader.rebalance.enable": "false"})
VERSIONS = inter_broker_versions(CONFIG.inter_broker_protocol_version)


def registration_of(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(
        endpoints=(Endpoint("PLAINTEXT", f"broker-{broker_id}.example.com", 9092),),
        security_protocols={"PLAINTEXT": "PLAINTEXT"},
        timestamp_ms=START_MS,
    )


def partitions_of(request: m.Message) -> Iterator[TopicPartition]:
    """The partitions that a request of the controller names."""
    for topic in request.topic_states:  # type: ignore[attr-defined]  # the newest form of all three has it
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index)


def answer_to(request: m.Message) -> m.Message:
    """The response of a broker that has done everything."""
    if isinstance(request, m.LeaderAndIsrRequest):
        error = m.LeaderAndIsrResponse.LeaderAndIsrPartitionError
        return m.LeaderAndIsrResponse(
            topics=[
                m.LeaderAndIsrResponse.LeaderAndIsrTopicError(
                    topic_id=topic.topic_id,
                    partition_errors=[error(partition_index=each.partition_index) for each in topic.partition_states],
                )
                for topic in request.topic_states
            ]
        )
    if isinstance(request, m.StopReplicaRequest):
        stop_error = m.StopReplicaResponse.StopReplicaPartitionError
        return m.StopReplicaResponse(
            partition_errors=[
                stop_error(topic_name=each.topic, partition_index=each.partition) for each in partitions_of(request)
            ]
        )
    return m.UpdateMetadataResponse()


class ScaleCluster:
    """The store, the brokers, and two candidates."""

    def __init__(self, simulation: Simulation, nursery: trio.Nursery, brokers: int, meter: Meter) -> None:
        self.meter = meter
        self.registrations = 0
        self.server = StoreServer(simulation, SimNet(simulation))
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in range(1, brokers + 1)}
        self.candidates: dict[int, Candidate] = {}
        self._scopes: dict[int, trio.CancelScope] = {}
        self._simulation = simulation
        self._nursery = nursery
        for path in paths.PERSISTENT_PARENTS:
            self.server.write(Create(path), 0)

    def create_topics(self, partitions: int) -> None:
        """Write the nodes of topics as the broker that creates them does."""
        rng = random.Random(SEED)
        for number, first in enumerate(range(0, partitions, PARTITIONS_OF_A_TOPIC)):
            count = min(PARTITIONS_OF_A_TOPIC, partitions - first)
            placed = place_replicas(dict.fromkeys(self.brokers), count, REPLICATION_FACTOR, rng)
            assignment = TopicAssignment({index: tuple(each) for index, each in placed.items()}, rng.randbytes(16))
            self.server.write(Create(paths.topic(f"topic-{number}"), assignment.encode()), 0)

    async def start_candidate(self, broker_id: int) -> None:
        """A candidate with a session of its own; the first one is elected."""
        process = Process(f"broker-{broker_id}")
        session = CountingSession(self.server, process, SESSION_SECONDS)
        session.meter = self.meter
        self._simulation_party(process.name)
        await session.open()
        deps = ControllerDeps(
            store=session,
            broker_id=broker_id,
            config=CONFIG,
            peer_for=partial(self._peer, broker_id),
            now_ms=lambda: START_MS,
            rng=random.Random(SEED),
        )
        candidate = self.candidates[broker_id] = Candidate(deps)
        scope = self._scopes[broker_id] = trio.CancelScope()
        self._nursery.start_soon(self._live, process, scope, candidate, session)

    def _simulation_party(self, name: str) -> None:
        if name not in self.server.net.parties:
            self.server.net.party(name)

    async def _live(
        self, process: Process, scope: trio.CancelScope, candidate: Candidate, session: StoreSession
    ) -> None:
        with scope:
            await process.run(candidate.run)
        session.die()

    def _peer(self, candidate_id: int, live: LiveBroker) -> Peer:
        broker = self.brokers[live.broker_id]
        return AnsweringPeer(self.meter, broker, is_own=candidate_id == live.broker_id)

    def end_candidate(self, broker_id: int) -> None:
        """Its process and its session are gone."""
        self._scopes[broker_id].cancel()
        del self.candidates[broker_id]
        for session_id in self.server.sessions_of(f"broker-{broker_id}"):
            self.server.expire(session_id)

    @property
    def image(self) -> ClusterImage:
        """The active controller's."""
        (active,) = [each for each in self.candidates.values() if each.is_active]
        assert active._controller is not None
        return active._controller.image

    async def settle(self) -> None:
        """Until nothing was read, written or sent for a while."""
        before, quiet = None, 0.0
        while quiet < QUIET_SECONDS:
            await trio.sleep(LOOK_SECONDS)
            phase = self.meter.phase
            now = (phase.reads, phase.writes, sum(sent.requests for sent in phase.sent.values()))
            quiet = quiet + LOOK_SECONDS if now == before else 0.0
            before = now

    def check(self) -> None:
        """RuntimeError unless the store has a live leader for every partition."""
        tree = self.server.tree
        for topic in tree.children(paths.TOPICS):
            count = len(TopicAssignment.decode(tree.get(paths.topic(topic))[0], topic).partitions)
            for partition in range(count):
                path = paths.partition_state(topic, partition)
                state = PartitionState.decode(tree.get(path)[0], path)
                if state.leader == NO_LEADER or not self.brokers[state.leader].is_alive:
                    raise RuntimeError(f"{topic}-{partition} is led by {state.leader}")


class Scale(NamedTuple):
    """How large the cluster is."""

    brokers: int = 30
    partitions: int = 100_000


def run_phases(scale: Scale) -> list[Phase]:
    """The phases in their order, one cluster."""
    phases, _ = simulate(SEED, partial(_phases, scale))
    return phases


async def _phases(scale: Scale, simulation: Simulation) -> list[Phase]:
    meter = Meter()
    phases: list[Phase] = []
    async with trio.open_nursery() as nursery:
        cluster = ScaleCluster(simulation, nursery, scale.brokers, meter)
        trio.lowlevel.add_instrument(meter)
        for broker in cluster.brokers.values():
            broker.register()

        async def phase(name: str, act: Callable[[], Awaitable[object] | None], about: Broker | None = None) -> None:
            forget_peak_of(os.getpid())
            meter.begin(name)
            if about is not None:
                meter.phase.held = dict(cluster.image.held[about.broker_id])
            waiting = act()
            if waiting is not None:
                await waiting
            await cluster.settle()
            cluster.check()
            meter.phase.resident_bytes = resident_bytes()
            meter.phase.peak_bytes = peak_resident_bytes_of(os.getpid())
            phases.append(meter.end())

        killed, stopped = cluster.brokers[KILLED], cluster.brokers[STOPPED]
        await phase("first election, without topics", lambda: cluster.start_candidate(1))
        await cluster.start_candidate(2)
        await phase("creation of all topics", lambda: cluster.create_topics(scale.partitions))
        await phase("a broker is killed", killed.end, killed)
        await phase("it returns", killed.register)
        await phase("its replicas rejoin the ISRs", lambda: rejoin(cluster, killed))
        await phase("a broker asks to stop", lambda: ask_to_stop(cluster, stopped), stopped)
        await phase("it is gone", stopped.end)
        await phase("it returns", stopped.register)
        await phase("its replicas rejoin the ISRs", lambda: rejoin(cluster, stopped))
        await phase("the controller resigns", lambda: resign(cluster))
        await phase("the new controller is killed, with its broker", lambda: kill_controller(cluster))
        for broker_id in list(cluster.candidates):
            cluster.end_candidate(broker_id)
        trio.lowlevel.remove_instrument(meter)
    return phases


async def ask_to_stop(cluster: ScaleCluster, broker: Broker) -> None:
    """ControlledShutdown."""
    (active,) = [each for each in cluster.candidates.values() if each.is_active]
    remaining = await active.ask(ControlledShutdownAsked(broker.broker_id, broker.epoch))
    if isinstance(remaining, ErrorCode) or remaining:
        raise RuntimeError(f"broker {broker.broker_id} still leads {remaining}")


async def rejoin(cluster: ScaleCluster, broker: Broker) -> None:
    """AlterPartition by each leader, with all partitions in which the broker follows it and is not in the ISR."""
    image = cluster.image
    wanted: dict[int, list[tuple[bytes | str, int, IsrChange]]] = {}
    for topic_partition, _ in image.replicas_on({broker.broker_id: None}):
        leadership = image.partition(topic_partition).leadership
        assert leadership is not None
        state = leadership.state
        change = IsrChange(state.leader_epoch, leadership.partition_epoch, (*state.isr, broker.broker_id))
        topic_id = image.topics[topic_partition.topic].topic_id
        if broker.broker_id not in state.isr:
            wanted.setdefault(state.leader, []).append((topic_id, topic_partition.partition, change))
    (active,) = [each for each in cluster.candidates.values() if each.is_active]
    async with trio.open_nursery() as nursery:
        for leader, changes in wanted.items():
            question = AlterPartitionAsked(leader, cluster.brokers[leader].epoch, changes)
            nursery.start_soon(active.ask, question)


def resign(cluster: ScaleCluster) -> None:
    """The session of the first candidate is over, but its broker is registered in another one, and goes on."""
    cluster.end_candidate(1)


async def kill_controller(cluster: ScaleCluster) -> None:
    """The second candidate dies with its broker; the first one, which has begun again, takes over."""
    await cluster.start_candidate(1)
    cluster.end_candidate(2)
    cluster.brokers[2].end()


def print_table(scale: Scale) -> None:
    """Run everything and print it."""
    freeze_heap()  # as a broker's process does
    phases = run_phases(scale)
    print(f"\n{scale.brokers} brokers, {scale.partitions:,} partitions, RF {REPLICATION_FACTOR}\n")
    columns = "CPU s", "in threads s", "longest step ms", "reads", "writes", "RSS MB (peak)"
    print(f"| | {' | '.join(columns)} | requests |\n|-{'|-:' * len(columns)}|-|")
    for phase in phases:
        print(
            f"| {phase.name} | {phase.step_seconds:.2f} | {phase.encode_seconds:.2f}"
            f" | {phase.longest_seconds * 1000:.1f} | {phase.reads:,} | {phase.writes:,}"
            f" | {phase.resident_bytes / 1e6:,.0f} ({phase.peak_bytes / 1e6:,.0f})"
            f" | {'; '.join(sent_text(api, sent) for api, sent in sorted(phase.sent.items()))} |",
            flush=True,
        )
    for phase in phases:
        print(f"longest step of “{phase.name}”: {phase.longest_at}")


def sent_text(api: str, sent: Sent) -> str:
    size = f"{sent.size_bytes / 1e6:,.1f} MB, largest {sent.largest_bytes / 1e3:,.0f} kB"
    return f"{api} {sent.requests:,} ({sent.partitions:,} partitions, {size})"
