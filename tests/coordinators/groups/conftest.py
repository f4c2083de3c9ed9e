"""Stages for tests of groups.

`scene` is the pure part with a log that is a list. `house` is a broker's coordinator with its handlers, over a real
log on an in-memory disk, in virtual time; every request and response goes through the codec.
"""

import math
import random
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.call import Call
from barnabas.broker.server.dispatch import answer
from barnabas.config.live import BrokerConfig
from barnabas.controller.store.paths import Endpoint
from barnabas.coordinators.groups.classic.decisions import apply_refused, apply_stored, decide
from barnabas.coordinators.groups.classic.events import (
    JOIN_TIMER,
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteOffsets,
    Expire,
    Heartbeat,
    Join,
    Leave,
    LeavingMember,
    Sync,
    TimerFired,
    Transaction,
    Waiting,
)
from barnabas.coordinators.groups.classic.state import GroupState, forget, subscribed_topics
from barnabas.coordinators.groups.classic.subscriptions import reading
from barnabas.coordinators.groups.coordinator import GroupCoordinator
from barnabas.coordinators.groups.records import Commit, OffsetRecord, decode_record, encode_record
from barnabas.coordinators.groups.replay import Groups, replay, replay_all, replay_marker
from barnabas.quotas.clients import Mutations
from barnabas.replication.alter_partition import AlterPartition
from barnabas.replication.confirmation import is_fetch_awaited
from barnabas.replication.partition import Partition, Role
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.opening import open_log
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import GROUP_TOPIC, TopicPartition
from barnabas.world.metadata import BrokerInfo, ClusterMetadata, PartitionInfo, TopicInfo
from barnabas.world.pacing import complete_inline
from barnabas.world.waiting import Waiter

RANGE = (("range", b"\x00\x00\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x00"),)  # subscribes to topic "t"


@dataclass
class Limits:
    """Kafka's defaults, as a test may change them."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_commit_required_acks: int = -1
    offsets_commit_timeout_ms: int = 5_000
    offsets_load_buffer_size: int = 5_242_880
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_compression_codec: int = 0
    offsets_topic_num_partitions: int = 50


@dataclass
class Scene:
    """One group "g": what happens to it, the records that it stored, its timers (in milliseconds from now)."""

    limits: Limits = field(default_factory=Limits)
    now_ms: int = 1_000_000
    append_error: ErrorCode = ErrorCode.NONE
    seed: int = 0

    def __post_init__(self):
        self.rng = random.Random(self.seed)
        self.groups = Groups(self.limits)
        self.group = self.groups.get_or_create("g", self.now_ms)
        self.log = []  # (key, value), as bytes; of a marker None and (producer id, committed)
        self.producers = {}  # offset -> producer id, of records in transactions
        self.timers = {}
        self.notes = []

    def happen(self, event):
        # As the shell does.
        if isinstance(event, DeleteOffsets | Expire) and subscribed_topics(self.group) is None:
            self.group.subscribed = complete_inline(reading(self.group.subscriptions))
        self.follow(decide(self.group, event, self.now_ms, self.rng))

    def follow(self, decision):
        self.notes += decision.notes
        for reply in decision.replies:
            reply.deliver()
        for timer, after_ms in decision.timers.items():
            self.timers.pop(timer, None)
            if after_ms is not None:
                self.timers[timer] = after_ms
        if decision.intent is None:
            return
        if self.append_error:
            self.follow(apply_refused(self.group, decision.intent, self.append_error, self.now_ms))
            return
        if decision.records:
            if decision.transaction is not None:
                producer_id, base_offset = decision.transaction.producer_id, len(self.log)
                replay_all(self.groups, decision.records, base_offset, producer_id)
                self.producers |= dict.fromkeys(range(base_offset, base_offset + len(decision.records)), producer_id)
            else:
                replay_all(self.groups, decision.records, len(self.log))
            self.log += map(encode_record, decision.records)
        self.follow(apply_stored(self.group, decision.intent, len(self.log) - 1, self.now_ms))

    def replayed(self):
        """What the log says."""
        groups = Groups(self.limits)
        for offset, (key, value) in enumerate(self.log):
            if key is None:
                producer_id, committed = value
                replay_marker(groups, producer_id, offset, committed=committed)
            else:
                replay(groups, decode_record(key, value), offset, self.producers.get(offset, -1))
        return groups

    def has_tombstone_of(self, topic_partition, from_offset):
        """Whether the log has one of this partition's offset, at this offset or later."""
        records = [decode_record(key, None) for key, value in self.log[from_offset:] if key and value is None]
        return OffsetRecord("g", topic_partition, None) in records

    def reloaded(self):
        """The group as a coordinator loads it from the log, or None when the log knows nothing of it."""
        group = self.replayed().by_id.get("g")
        if group is None or group.recorded.is_blank:
            return None
        forget(group)
        return group

    # -- what members do

    def ask_to_join(self, member_id="", *, instance_id=None, client_id="c", protocols=RANGE, **other):
        waiting = Waiting()
        asked = {
            "client_host": "/127.0.0.1",
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "requires_member_id": False,
            "skips_assignment": True,
        } | other
        self.happen(Join(waiting, member_id, instance_id, client_id, protocols=tuple(protocols), **asked))
        return waiting

    def ask_to_sync(self, member_id, assignments=(), *, generation=None, instance_id=None, names=(None, None)):
        waiting = Waiting()
        generation = self.group.generation if generation is None else generation
        self.happen(Sync(waiting, member_id, instance_id, generation, *names, dict(assignments)))
        return waiting

    def beat(self, member_id, *, generation=None, instance_id=None):
        waiting = Waiting()
        generation = self.group.generation if generation is None else generation
        self.happen(Heartbeat(waiting, member_id, instance_id, generation))
        return waiting.answer

    def leave(self, *members):
        waiting = Waiting()
        leaving = [LeavingMember(who, None) if isinstance(who, str) else LeavingMember(*who) for who in members]
        self.happen(Leave(waiting, leaving))
        return waiting.answer.member_errors

    def commit(self, offset=5, *, member_id="", generation=-1, instance_id=None, partition=0, topic="t", **other):
        waiting = Waiting()
        commit = Commit(offset, -1, **({"metadata": "", "commit_timestamp_ms": self.now_ms} | other))
        offsets = {TopicPartition(topic, partition): commit}
        self.happen(CommitOffsets(waiting, member_id, instance_id, generation, offsets))
        return waiting.answer

    def commit_in_transaction(self, offset=5, *, producer_id=42, partition=0, topic="t", metadata="", **member):
        waiting = Waiting()
        commit = Commit(offset, -1, metadata, self.now_ms)
        offsets = {TopicPartition(topic, partition): commit}
        member = {"member_id": "", "instance_id": None, "generation": -1} | member
        self.happen(CommitOffsetsInTransaction(waiting, Transaction(producer_id, 0), offsets=offsets, **member))
        return waiting.answer

    def end_transaction(self, *, committed, producer_id=42):
        replay_marker(self.groups, producer_id, len(self.log), committed=committed)
        self.log.append((None, (producer_id, committed)))

    def time_is_over(self, timer):
        del self.timers[timer]
        self.happen(TimerFired(timer))

    # -- where groups get to

    def begin(self):
        """The time to join is over, however often it is extended for newcomers."""
        while JOIN_TIMER in self.timers:
            self.time_is_over(JOIN_TIMER)

    def joined(self, *client_ids, instance_ids=None):
        """New members join together, and a generation begins: their ids."""
        instances = instance_ids or [None] * len(client_ids)
        joins = [
            self.ask_to_join(client_id=client_id, instance_id=instance_id)
            for client_id, instance_id in zip(client_ids, instances, strict=True)
        ]
        self.begin()
        return [waiting.answer.member_id for waiting in joins]

    def stable(self, *client_ids, instance_ids=None):
        """New members join together and get "assignment of <client id>" each: their ids, the leader's first."""
        members = self.joined(*client_ids, instance_ids=instance_ids)
        assignments = {
            member_id: f"assignment of {client_id}".encode()
            for member_id, client_id in zip(members, client_ids, strict=True)
        }
        for member_id in reversed(members):
            self.ask_to_sync(member_id, assignments if member_id == self.group.leader_id else ())
        assert self.group.state is GroupState.STABLE
        return members


@pytest.fixture
def make_scene():
    """A scene with these limits changed."""
    return lambda **limits: Scene(Limits(**limits))


@pytest.fixture
def scene():
    """A scene with Kafka's defaults."""
    return Scene()


# -- the coordinator with everything around it
TOPIC_ID = bytes(15) + b"\x01"
DIRECTORY = f"/data/{GROUP_TOPIC}-0"


async def inline(function, *args):
    """A worker thread that takes its time."""
    await trio.sleep(0.001)
    return function(*args)


class House:
    """Broker 0: it leads the only partition of `__consumer_offsets`; broker 1 may follow."""

    def __init__(self, disk=None, *, settings=(), replicas=(0,), leader_epoch=1):
        self.disk = MemDisk() if disk is None else disk
        self.config = BrokerConfig({"group.initial.rebalance.delay.ms": "3000"} | dict(settings))
        self.started_at = trio.current_time()
        self.address = "127.0.0.1"  # of clients
        self.failures = []
        self.world = SimpleNamespace(now_ms=self.now_ms, rng=random.Random(1), in_thread=inline, disk=self.disk)
        self.world.in_request_thread = inline
        self.world.memory_bytes = 1 << 30
        self.metadata = ClusterMetadata()
        self.metadata.brokers[0] = BrokerInfo(0, {"PLAINTEXT": Endpoint("PLAINTEXT", "here", 9092)}, None)
        self.metadata.is_complete.set()
        self.stored_ids = {}
        self.know_topic(GROUP_TOPIC, 1)
        self.know_topic("t", 2)
        self.groups = GroupCoordinator(self.world, self.config, self.metadata, self.read_topic_ids)
        self.created = []
        self.fetched_to = 0
        self.topics = SimpleNamespace(ensure_internal=self.ensure_internal)
        self.quotas = SimpleNamespace(mutations_of=lambda *user, strict: Mutations(None, lambda: 0, strict=strict))
        self.store = None
        self.partition = self.open_partition()
        self.lead(leader_epoch, replicas)

    def now_ms(self):
        return 1_000_000 + round((trio.current_time() - self.started_at) * 1000)

    def know_topic(self, name, count, topic_id=TOPIC_ID):
        info = PartitionInfo(0, 1, [0], [0], [])
        self.metadata.topics[name] = TopicInfo(name, topic_id, dict.fromkeys(range(count), info))
        self.stored_ids[name] = topic_id

    async def read_topic_ids(self, topics):
        """Those of the store."""
        await trio.lowlevel.checkpoint()
        return {name: self.stored_ids[name] for name in topics if name in self.stored_ids}

    async def ensure_internal(self, name, take):
        self.created.append(name)

    def open_partition(self):
        key, topic_config = TopicPartition(GROUP_TOPIC, 0), self.config.topic({"cleanup.policy": "compact"})
        checkpointed = {"recovery_point": 0, "log_start_offset": None, "clean": False, "now_ms": 0}
        log = open_log(self.disk, DIRECTORY, key, topic_config, **checkpointed)
        partition = Partition(
            key,
            topic_config,
            0,
            self.now_ms,
            None,
            self.fail,
            AlterPartition(0, self.config, ClusterMetadata(), lambda: 0),
        )
        partition.log = log
        return partition

    def fail(self, partition, error):
        self.failures.append(error)
        self.resign()

    def lead(self, leader_epoch, replicas=(0,), in_sync=None):
        """LeaderAndIsr: this broker leads, with these replicas, all in sync unless some are named."""
        role = Role(0, leader_epoch, leader_epoch, 1, list(replicas), list(in_sync or replicas), 0, False)
        self.partition.become(self.partition.log, role)
        self.groups.runtime.on_elected(self.partition)

    def resign(self):
        """Another broker leads."""
        epoch = self.partition.leader_epoch
        self.partition.resign()
        self.groups.runtime.on_resigned(0, epoch)

    def replicate(self):
        """Broker 1 has fetched everything."""
        self.fetched_to = self.partition.log.log_end_offset
        self.partition.follower_fetched(1, self.fetched_to, log_start_offset=0)

    async def fetch_on(self):
        """Broker 1 goes on fetching, and gets no records before `replicate`."""
        waiter = Waiter(sleeps_through_commits=True)
        waiter.register([self.partition])
        while await waiter.wait(math.inf):
            waiter.take_dirty()
            while is_fetch_awaited(self.partition, 1):
                self.partition.follower_fetched(1, self.fetched_to, log_start_offset=0)

    async def ask(self, request, version=None):
        """What the broker answers to a request of this version, after both went through the codec."""
        version = request.MAX_VERSION if version is None else version
        decoded = m.decode(type(request), version, m.encode(request, version))
        call = Call(request.API_KEY, version, "client", "User:ANONYMOUS", self.address, "PLAINTEXT")
        response = await answer(self, call, decoded)
        return m.decode(type(response), version, m.encode(response, version))


@pytest.fixture
async def open_house(nursery):
    """A function that opens a house, its coordinator running. Tests take `autojump_clock`, or they take their time."""

    async def open_one(disk=None, **options):
        house = House(disk, **options)
        await nursery.start(house.groups.run)
        nursery.start_soon(house.fetch_on)
        return house

    return open_one


@pytest.fixture
async def house(open_house):
    """A house with Kafka's defaults and one replica."""
    return await open_house()
