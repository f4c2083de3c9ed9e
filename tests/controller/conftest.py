"""A cluster for the controller's tests: the embedded store in memory, and brokers that only obey and record."""

import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from barnabas.controller.admin.create_topics import NewTopic, TopicDefaults, create_topic, mark_for_deletion, plan_topic
from barnabas.controller.admin.registration import register_broker
from barnabas.controller.candidate import Candidate
from barnabas.controller.context import ControllerDeps
from barnabas.controller.decide.isr import IsrChange
from barnabas.controller.events import AlterPartitionAsked
from barnabas.controller.image.state import (
    BrokerJoined,
    ClusterImage,
    Leadership,
    LeadershipChanged,
    LiveBroker,
    PartitionAppeared,
    ReplicaMoved,
    TopicAppeared,
    replay,
    replay_all,
)
from barnabas.controller.image.transitions import ReplicaMove
from barnabas.controller.store import paths
from barnabas.controller.store.paths import BrokerRegistration, ConfigEntity, Endpoint, PartitionState, TopicAssignment
from barnabas.controller.store.sqlitestore import open_sqlite_database
from barnabas.controller.store.store import Create, Delete, MetadataStore, NoNode, with_ancestors
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.topics import TopicPartition

pytest.register_assert_rewrite("tests.controller.store.store_model")

NOW_MS = 1_700_000_000_000


async def inline(function, *args):
    await trio.lowlevel.checkpoint()
    return function(*args)


def registration_of(broker_id, *, rack=None, port=None):
    return BrokerRegistration(
        endpoints=(Endpoint("PLAINTEXT", f"host{broker_id}", port or 9000 + broker_id),),
        security_protocols={"PLAINTEXT": "PLAINTEXT"},
        timestamp_ms=NOW_MS,
        rack=rack,
    )


def live_broker(broker_id, *, epoch=None, rack=None, port=None):
    return LiveBroker(broker_id, epoch or 100 + broker_id, registration_of(broker_id, rack=rack, port=port))


def topic_id_of(topic):
    return topic.encode().ljust(16, b"-")


def make_image(*broker_ids, **topics):
    """These brokers, and topics by their partitions' replicas, each led by the first, in sync, epochs 5 and 7."""
    image = ClusterImage()
    replay_all(image, [BrokerJoined(live_broker(broker_id)) for broker_id in broker_ids])
    for topic, partitions in topics.items():
        replay(image, TopicAppeared(topic, topic_id_of(topic)))
        for index, replicas in enumerate(partitions):
            partition = TopicPartition(topic, index)
            replay(image, PartitionAppeared(partition, tuple(replicas)))
            state = PartitionState(replicas[0], 5, 1, tuple(replicas))
            replay(image, LeadershipChanged(partition, Leadership(state, 7)))
            replay_all(image, [ReplicaMoved(partition, broker_id, ReplicaMove.START) for broker_id in replicas])
    return image


@dataclass
class Config:
    """Kafka's defaults."""

    unclean_leader_election_enable: bool = False
    delete_topic_enable: bool = True
    inter_broker_protocol_version: str = "3.9-IV0"
    inter_broker_listener: str = "PLAINTEXT"
    controller_socket_timeout_ms: int = 30_000
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    leader_imbalance_per_broker_percentage: int = 10


@dataclass
class FakeBroker:
    """Answers the controller as a broker does, by epochs, and keeps the requests that it gets."""

    broker_id: int
    store: MetadataStore
    epoch: int = -1
    controller_epoch: int = 0
    candidate: Candidate | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    requests: list = field(default_factory=list)
    roles: dict = field(default_factory=dict)  # partition -> the last role that was taken
    logs: dict = field(default_factory=dict)  # partition -> None: what is on its disk
    metadata: dict = field(default_factory=dict)  # partition -> the last state that was announced
    live_brokers: dict = field(default_factory=dict)
    failed_disk: dict = field(default_factory=dict)  # partitions on a disk that is broken
    is_deaf: bool = False

    async def ask(self, request, deadline_ms):
        await trio.lowlevel.checkpoint()
        if self.is_deaf:
            raise PeerLost("deaf")
        self.requests.append(request)
        refused = self._fence(request)
        if isinstance(request, m.LeaderAndIsrRequest):
            return m.LeaderAndIsrResponse(error_code=refused) if refused else self._leader_and_isr(request)
        if isinstance(request, m.UpdateMetadataRequest):
            return m.UpdateMetadataResponse(error_code=refused or self._update_metadata(request))
        return m.StopReplicaResponse(error_code=refused) if refused else self._stop_replica(request)

    def close(self):
        pass  # there is no connection

    def _fence(self, request):
        if request.broker_epoch < self.epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _leader_and_isr(self, request):
        topics = []
        for topic in request.topic_states:
            errors = []
            for state in topic.partition_states:
                code = self._take_role(TopicPartition(topic.topic_name, state.partition_index), state)
                errors.append(
                    m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
                        partition_index=state.partition_index, error_code=code
                    )
                )
            topics.append(
                m.LeaderAndIsrResponse.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=errors)
            )
        return m.LeaderAndIsrResponse(topics=topics)

    def _take_role(self, partition, state):
        if partition in self.failed_disk:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self.roles.get(partition)
        if known is not None and state.leader_epoch <= known.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.roles[partition] = state
        self.logs[partition] = None
        return ErrorCode.NONE

    def _update_metadata(self, request):
        self.live_brokers = {broker.id: broker for broker in request.live_brokers}
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                self.metadata.pop(partition, None)
                if state.leader != -2:
                    self.metadata[partition] = state
        return ErrorCode.NONE

    def _stop_replica(self, request):
        errors = []
        for topic in request.topic_states:
            for state in topic.partition_states:
                partition = TopicPartition(topic.topic_name, state.partition_index)
                code = ErrorCode.KAFKA_STORAGE_ERROR if partition in self.failed_disk else ErrorCode.NONE
                self.roles.pop(partition, None)
                if state.delete_partition and not code:
                    self.logs.pop(partition, None)
                errors.append(
                    m.StopReplicaResponse.StopReplicaPartitionError(
                        topic_name=topic.topic_name, partition_index=state.partition_index, error_code=code
                    )
                )
        return m.StopReplicaResponse(partition_errors=errors)

    def leads(self, topic, partition=0):
        role = self.roles.get(TopicPartition(topic, partition))
        return role is not None and role.leader == self.broker_id

    def sent(self, kind):
        return [request for request in self.requests if isinstance(request, kind)]


class Cluster:
    """Brokers with their candidates, and an administrator's session of the store."""

    def __init__(self, database, nursery):
        self.database = database
        self.nursery = nursery
        self.store = database.session()
        self.config = Config()
        self.rng = random.Random(7)
        self.brokers: dict[int, FakeBroker] = {}
        self.addresses: dict[int, int] = {}  # the port at which the controller last asked for each broker

    async def start(self, *broker_ids, rack=None, logs=None):
        """Start brokers one after the other, each registered before its candidate runs."""
        for broker_id in broker_ids:
            broker = self.add(broker_id, logs=logs)
            await self.register(broker, rack=rack)
            broker.candidate = Candidate(
                ControllerDeps(
                    store=broker.store,
                    broker_id=broker_id,
                    config=self.config,
                    peer_for=self._peer_for,
                    now_ms=lambda: NOW_MS,
                    rng=self.rng,
                ),
                register=lambda broker=broker: self.register(broker),
            )
            await self.nursery.start(self._run, broker)
        await self.settle()
        return self.brokers[broker_ids[0]]

    def add(self, broker_id, *, logs=None):
        """A broker that does nothing as yet."""
        broker = self.brokers[broker_id] = FakeBroker(broker_id, self.database.session(), logs=logs or {})
        return broker

    def _peer_for(self, live):
        self.addresses[live.broker_id] = live.registration.endpoints[0].port
        return self.brokers[live.broker_id]

    async def register(self, broker, *, rack=None):
        broker.epoch = await register_broker(
            broker.store, broker.broker_id, registration_of(broker.broker_id, rack=rack)
        )

    async def _run(self, broker, *, task_status):
        with broker.scope:
            await broker.candidate.run(task_status=task_status)

    async def kill(self, *broker_ids):
        """End processes without a word: their sessions end, their disks stay."""
        for broker_id in broker_ids:
            broker = self.brokers[broker_id]
            broker.scope.cancel()
            broker.is_deaf = True
        for broker_id in broker_ids:
            await self.brokers[broker_id].store.close()
        await self.settle()

    async def restart(self, broker_id):
        """Start a killed broker again, with what is on its disk."""
        return await self.start(broker_id, logs=self.brokers[broker_id].logs)

    async def restart_unnoticed(self, broker_id, *, kept_since=None):
        """A broker's process ends and begins so fast that the controller sees only the new registration."""
        broker = self.brokers[broker_id]
        broker.roles.clear()
        removed = Delete(paths.broker(broker_id))
        registration = replace(registration_of(broker_id), kept_since=kept_since)
        created = Create(paths.broker(broker_id), registration.encode(), ephemeral=True)
        _, outcome = await broker.store.multi([removed, created])
        broker.epoch = outcome.stat.czxid
        await self.settle()

    async def settle(self):
        """Until every task waits for something that only the test can bring about."""
        await trio.testing.wait_all_tasks_blocked()

    @property
    def controller(self):
        """The active controller and its term."""
        (broker,) = [each for each in self.brokers.values() if each.candidate.is_active]
        return broker

    @property
    def image(self):
        return self.controller.candidate._controller.image

    async def create(self, topic, replicas=None, *, configs=None, **counts):
        """Create a topic as a broker would, with these replicas of partition 0, 1 ... or counts."""
        new = NewTopic(topic, assignment=dict(enumerate(replicas or [])), configs=configs or {}, **counts)
        brokers = dict.fromkeys(self.brokers)
        plan = plan_topic(new, brokers=brokers, defaults=TopicDefaults(1, 1), check_configs=lambda _: [], rng=self.rng)
        created = await create_topic(self.store, plan, self.rng)
        await self.settle()
        return created

    async def delete(self, topic):
        refused = await mark_for_deletion(self.store, topic)
        await self.settle()
        return refused

    async def ask(self, question):
        """Ask the controller something, and wait until everybody has heard what came of it."""
        answer = await self.controller.candidate.ask(question)
        await self.settle()
        return answer

    async def change_isr(self, topic, partition, *isr, broker_id=None, **fields):
        """AlterPartition in the leader's name, by what the controller knows; its answer for this partition."""
        state, partition_epoch = self.image.partition(TopicPartition(topic, partition)).leadership
        broker = self.brokers[broker_id or state.leader]
        change = IsrChange(state.leader_epoch, partition_epoch, isr)._replace(**fields)
        return await self.ask_isr(broker.broker_id, broker.epoch, topic, partition, change)

    async def ask_isr(self, broker_id, broker_epoch, topic, partition, change):
        topic_id = self.image.topics[topic].topic_id
        answer = await self.ask(AlterPartitionAsked(broker_id, broker_epoch, [(topic_id, partition, change)]))
        return answer if isinstance(answer, ErrorCode) else answer[0]

    async def assignment(self, topic):
        """What the topic's node says: partition -> replicas, then those that come and those that go."""
        node = TopicAssignment.decode(await self.data(paths.topic(topic)), topic)
        return node.partitions, node.adding, node.removing

    async def state(self, topic, partition=0):
        data, _ = await self.store.get(paths.partition_state(topic, partition))
        return PartitionState.decode(data, topic)

    async def write_state(self, topic, partition=0, **changes):
        """Change a state node behind the controller's back, as a leader of an old version does."""
        state = (await self.state(topic, partition))._replace(**changes)
        await self.store.set(paths.partition_state(topic, partition), state.encode())

    async def configure(self, topic, **configs):
        entity = ConfigEntity({name.replace("_", "."): value for name, value in configs.items()})
        await self.store.set(paths.config_entity("topics", topic), entity.encode())

    def before_write(self, broker, path, action):
        """Once, just before this broker's store writes or deletes that node: do something in another session."""
        write = broker.store.batch

        async def batch(items):
            if any(op.path == path for item in items for op in item):
                broker.store.batch = write
                await action()
            return await write(items)

        broker.store.batch = batch

    async def data(self, path):
        return (await self.store.get(path))[0]

    async def exists(self, path):
        return await self.store.exists(path) is not None

    async def tree(self, path):
        """Every path below a node that exists."""
        try:
            names = await self.store.children(path)
        except NoNode:
            return []
        return [found for name in names for found in (f"{path}/{name}", *await self.tree(f"{path}/{name}"))]


@pytest.fixture
def make():
    """Makers of images and brokers, for the tests of what is pure."""
    return SimpleNamespace(image=make_image, broker=live_broker, topic_id=topic_id_of)


@asynccontextmanager
async def _open_cluster():
    database = await open_sqlite_database(":memory:", inline, lambda: NOW_MS)
    async with trio.open_nursery() as nursery:
        cluster = Cluster(database, nursery)
        await cluster.store.batch([Create(path) for path in with_ancestors(paths.PERSISTENT_PARENTS)])
        yield cluster
        nursery.cancel_scope.cancel()


@pytest.fixture
async def cluster():
    async with _open_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def open_cluster():
    """A new cluster each time, for tests that run many histories."""
    return _open_cluster
