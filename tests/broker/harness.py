"""A whole broker inside a test: `serve()` in a world of which nothing is real but the code.

The disk is a `MemDisk`, the store SQLite in memory, the network a pair of byte pipes for each connection, time virtual
(`autojump_clock`), and work in threads runs inline after a moment of virtual time. Disk, store and network belong to
the `Machine` and outlive the broker on it, so a test may stop it, crash it or cut the power, and start another one:

    machine = Machine(nursery, log_dirs="/a,/b")
    await machine.start()
    client = await machine.connect()
    await client.create_topic("t")
    assert (await client.produce("t", b"hello")).base_offset == 0
    await machine.cut_power(seed=1)
    await machine.start()

A test that waits for what never comes fails after `PATIENCE_SECONDS` of virtual time instead of hanging.
"""

import random
import struct
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from types import SimpleNamespace

import trio
import trio.testing

from barnabas.broker.call import Broker
from barnabas.broker.interception import Interception
from barnabas.broker.serve import serve
from barnabas.client.connection import Connection
from barnabas.config.live import BrokerConfig
from barnabas.controller.store import paths
from barnabas.controller.store.sqlitestore import STORE_MAX_BYTES, SqliteDatabase, open_sqlite_database
from barnabas.controller.store.store import Create, Delete, SetData
from barnabas.storage.disk import Disk
from barnabas.storage.memdisk import MemDisk
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frame import LENGTH_BYTES
from barnabas.world.net import Net, Stream
from barnabas.world.world import World, run_inline
from tests.broker.clock import now_ms
from tests.broker.memnet import MemNet
from tests.broker.requests import dotted, fetch_request, list_offsets_request, new_topics, produce_request, records_in
from tests.broker.steps import outside_steps

PATIENCE_SECONDS = 3600.0
THREAD_SECONDS = 0.001  # how long work in a thread takes


# -- disks


class CrashRecorder(MemDisk):
    """Remembers, right before some of its changes (by number), what a power failure at that moment would leave."""

    CHANGES = frozenset({"write", "sync", "truncate", "rename", "remove", "sync_directory", "replace_file"})

    def __init__(self, moments: Iterable[int], seed: int, note: Callable[[], object]) -> None:
        super().__init__(now_ms=now_ms)
        self.is_recording = True
        self.left_behind: list[tuple[MemDisk, object]] = []  # a disk, and what `note` said at that moment
        self._moments = dict.fromkeys(moments)
        self._rng = random.Random(seed)
        self._note = note
        self._count = 0

    def take_fault(self, operation, path):
        if self.is_recording and operation in self.CHANGES:
            if self._count in self._moments:
                self.left_behind.append((self.crash_machine(self._rng), self._note()))
            self._count += 1
        return super().take_fault(operation, path)

    def another(self):
        """What it leaves behind records nothing."""
        return MemDisk(capacity_bytes=self.capacity_bytes, now_ms=self.now_ms)


# -- the machine and its broker


class Machine:
    """Disk, store, network, and at most one broker. Properties as `num_partitions="3"`; underscores are dots."""

    def __init__(
        self,
        nursery: trio.Nursery,
        *,
        disk: Disk | None = None,
        net: Net | None = None,
        database: SqliteDatabase | None = None,
        seed: int = 0,
        interception: Interception | None = None,
        **properties: str,
    ) -> None:
        self.interception = interception
        self.disk = disk or MemDisk(now_ms=now_ms)
        self.net = net or MemNet()
        self.properties = {
            "log.dirs": "/data",
            "listeners": "PLAINTEXT://127.0.0.1:9092",
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "1",
        } | dotted(properties)
        self.rng = random.Random(seed)
        self.serving = None
        self.broker: Broker | None = None  # the live parts, from before it serves
        self.failure: BaseException | None = None
        self.thread_seconds = THREAD_SECONDS
        self.store_max_bytes = STORE_MAX_BYTES
        self.boot_id: str | None = "boot 0"
        self.threads = 0  # how often work went into one
        self.leader_epochs: dict[tuple[str, int], int] = {}  # that tests gave out in the controller's name
        self._nursery = nursery
        self._database = database
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._ended = trio.Event()

    async def start(self, **properties: str) -> "Machine":
        """Start a broker and wait until it serves; a failure to do so is raised."""
        self.properties |= dotted(properties)
        self.failure, self._scope, self._stop, self._ended = None, trio.CancelScope(), trio.Event(), trio.Event()
        ready = trio.Event()
        self._nursery.start_soon(self._run, BrokerConfig(self.properties), ready)
        await first_of(ready, self._ended)
        if self.failure is not None:
            raise self.failure
        return self

    @property
    def is_running(self) -> bool:
        """Whether its broker serves."""
        return self.serving is not None and not self._ended.is_set()

    async def stop(self) -> None:
        """A clean stop."""
        self._stop.set()
        await self.ended()

    def ask_to_stop(self) -> None:
        """The same, without waiting for the end."""
        self._stop.set()

    def give_up(self) -> None:
        """Cancel the broker, as a second signal does."""
        self._scope.cancel()

    async def crash(self) -> None:
        """The process dies; the kernel and what it was given survive."""
        await self._die(self.disk.crash_process())

    async def cut_power(self, seed: int) -> None:
        """The machine dies: of what was not synced, some is lost."""
        self.boot_id = f"{self.boot_id}, {seed}"
        await self._die(self.disk.crash_machine(random.Random(seed)))

    async def ended(self) -> None:
        """Wait for the broker's end; `failure` says why it ended, when it did by itself."""
        with trio.fail_after(PATIENCE_SECONDS):
            await self._ended.wait()

    async def connect(self, listener: str = "PLAINTEXT", *, address: str = "127.0.0.1") -> "Client":
        """A client of one of the listeners."""
        if not isinstance(self.net, MemNet):
            (port,) = [each.port for each in self.serving.advertised if each.listener == listener]
            return Client(await self.net.connect("127.0.0.1", port))
        with outside_steps():
            ports = {each.listener: each.port for each in BrokerConfig(self.properties).listener_endpoints}
        return Client(await self.net.connect("127.0.0.1", ports[listener], address=address))

    async def controller_epoch(self) -> int:
        """What the store says; requests in the controller's name need it."""
        store = self._database.session()
        data, _ = await store.get(paths.CONTROLLER_EPOCH)
        await store.close()
        return paths.ControllerEpoch.decode(data).epoch

    async def broker_epoch(self) -> int:
        """That of this broker's registration."""
        store = self._database.session()
        stat = await store.exists(paths.broker(self.serving.broker_id))
        await store.close()
        return stat.czxid

    def session(self):
        """Another session with the store."""
        return self._database.session()

    async def depose(self) -> None:
        """Another broker becomes the controller and sends nothing."""
        epoch, store = await self.controller_epoch(), self._database.session()
        other = paths.ControllerNode(self.serving.broker_id + 1, now_ms()).encode()
        won = SetData(paths.CONTROLLER_EPOCH, paths.ControllerEpoch(epoch + 1).encode())
        await store.multi([Delete(paths.CONTROLLER), Create(paths.CONTROLLER, other, ephemeral=True), won])
        await trio.sleep(1)

    async def join(self, broker_id: int, port: int = 9999):
        """Register another broker, at an address where none answers; return its session, whose end removes it."""
        store = self._database.session()
        registration = paths.BrokerRegistration(
            (paths.Endpoint("PLAINTEXT", "127.0.0.1", port),), {"PLAINTEXT": "PLAINTEXT"}, now_ms()
        )
        await store.create(paths.broker(broker_id), registration.encode(), ephemeral=True)
        await trio.sleep(1)
        return store

    async def _die(self, disk: MemDisk) -> None:
        self._scope.cancel()
        await self.ended()
        self.disk = disk

    async def _run(self, config: BrokerConfig, ready: trio.Event) -> None:
        world = World(now_ms, self.rng, self.disk, self.net, self._open_store, self._in_thread, self._in_thread)
        # A microsecond at each reading. Turns end by the count of rows, but inside a `StepMeter`.
        world = world._replace(processor_seconds=partial(next, count(0, 1e-6)), watches_steps=False)
        world = world._replace(boot_id=self.boot_id)

        def started(serving) -> None:
            self.serving = serving
            ready.set()

        try:
            with self._scope:
                status = SimpleNamespace(started=started)
                await serve(
                    config,
                    world=world,
                    stop=self._stop,
                    task_status=status,
                    on_built=self._built,
                    interception=self.interception,
                )
        except Exception as error:
            self.failure = error
        finally:
            self._ended.set()

    def _built(self, broker: Broker) -> None:
        self.broker = broker

    async def _open_store(self, config, embedded_path: str):
        if self._database is None:
            self._database = await open_memory_database(self.store_max_bytes)
        return self._database.session()

    async def _in_thread(self, function, /, *args):
        """As trio does it: a thread that began is waited for, cancelled or not."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self.threads += 1
        with trio.CancelScope(shield=True):
            await trio.sleep(self.thread_seconds)
        with outside_steps():
            return function(*args)


async def with_topic(nursery, partitions=1, *, properties=None, **configs):
    """A broker with the topic t, and a client of it."""
    machine = await Machine(nursery, **(properties or {})).start()
    client = await machine.connect()
    await client.create_topic("t", partitions, **configs)
    return machine, client


async def open_memory_database(max_bytes: int = STORE_MAX_BYTES) -> SqliteDatabase:
    """A metadata store in memory, from which brokers take their sessions."""
    return await open_sqlite_database(":memory:", _run_apart, now_ms, max_bytes=max_bytes)


async def _run_apart(function, /, *args):
    """As `run_inline`, for what runs in a thread outside tests."""
    return await run_inline(_outside_steps, function, *args)


def _outside_steps(function, *args):
    with outside_steps():
        return function(*args)


async def first_of(*events: trio.Event) -> None:
    """Wait until one of them is set."""
    async with trio.open_nursery() as nursery:

        async def watch(event: trio.Event) -> None:
            await event.wait()
            nursery.cancel_scope.cancel()

        for event in events:
            nursery.start_soon(watch, event)


# -- clients


class Client(Connection):
    """A client that sends any request; by default in the highest version that is served.

    Its own work is outside of the measured steps: a `StepMeter` measures the broker in the same loop.
    """

    def __init__(self, stream: Stream) -> None:
        super().__init__(stream, "test")

    # bytes

    async def send_bytes(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def send_frame(self, body: bytes) -> None:
        await self.send_bytes(struct.pack(">i", len(body)) + body)

    async def receive_frame(self) -> bytes:
        with trio.fail_after(PATIENCE_SECONDS):
            frame = await super().receive_frame()
        with outside_steps():
            return bytes(frame)

    async def is_closed(self, within_seconds: float = PATIENCE_SECONDS) -> bool:
        """Whether the broker closes the connection, in this time, without another byte."""
        with trio.move_on_after(within_seconds):
            return await self.stream.receive_some(1) == b""
        return False

    async def is_quiet(self, seconds: float = 1.0) -> bool:
        """Whether nothing comes for so long, and the connection stays open."""
        with trio.move_on_after(seconds):
            await self.stream.receive_some(1)
            return False
        return True

    def has_received(self) -> bool:
        """Whether bytes of an answer are there."""
        self._reader.feed(self.stream.receive_now(1 << 16) or b"")
        return self._reader.pending_bytes > 0

    # requests

    async def send(self, request: m.Message, version: int | None = None) -> None:
        """Send a request without waiting for the answer."""
        await self.send_frame(self.frame_of(request, version))

    async def send_at_once(self, *requests: tuple[m.Message, int]) -> None:
        """Send requests of these versions in one piece."""
        frames = [self.frame_of(request, version) for request, version in requests]
        await self.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))

    def frame_of(self, request: m.Message, version: int | None = None) -> bytes:
        """The bytes of the next request, without their length."""
        version = APIS[key_of(request)].max_version if version is None else version
        with outside_steps():
            return self.in_flight.frame(request, version)[LENGTH_BYTES:]

    async def receive(self) -> m.Message:
        """The next answer."""
        frame = await self.receive_frame()
        with outside_steps():
            return self.in_flight.response(frame)

    async def ask(self, request: m.Message, version: int | None = None) -> m.Message:
        """Send a request and return its answer."""
        await self.send(request, version)
        return await self.receive()

    # topics

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic, which must succeed; its id."""
        with trio.fail_after(60):
            while True:  # a topic of that name may just be on its way out
                created = (await self.ask(new_topics(name, partitions, **configs))).topics[0]
                if created.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    break
                await trio.sleep(0.1)
        assert created.error_code == 0, (created.error_code, created.error_message)
        return created.topic_id

    async def delete_topic(self, name: str) -> None:
        topic = m.DeleteTopicsRequest.DeleteTopicState(name=name)
        (row,) = (await self.ask(m.DeleteTopicsRequest(topics=[topic], timeout_ms=30_000))).responses
        assert row.error_code == 0, row

    async def metadata(self, *names: str, version: int | None = None, create: bool = False):
        """What Metadata says of these topics, by name."""
        topics = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = await self.ask(m.MetadataRequest(topics=topics, allow_auto_topic_creation=create), version)
        return {topic.name: topic for topic in answer.topics}

    # records

    async def produce(self, topic: str, records, partition: int = 0, *, version: int | None = None, **fields):
        """Produce one batch with acks=all; the partition's row of the answer."""
        answer = await self.ask(produce_request(topic, records, partition, **fields), version)
        return answer.responses[0].partition_responses[0]

    async def fetch(self, topic, offset: int = 0, partition: int = 0, *, version: int = 12, **fields):
        """Fetch from one partition; its row of the answer. Versions from 13 on take the topic's id."""
        answer = await self.ask(fetch_request([(topic, partition, offset)], **fields), version)
        assert answer.error_code == 0, answer.error_code
        return answer.responses[0].partitions[0]

    async def list_offset(self, topic: str, timestamp: int, partition: int = 0, *, version: int = 9, **fields):
        """ListOffsets for one partition; its row of the answer."""
        answer = await self.ask(list_offsets_request([(topic, partition, timestamp)], **fields), version)
        return answer.topics[0].partitions[0]

    async def read_values(self, topic: str, offset: int = 0, partition: int = 0) -> list[bytes]:
        """Every value from an offset on."""
        values = []
        while True:
            row = await self.fetch(topic, offset, partition, max_wait_ms=0)
            assert row.error_code == 0, row.error_code
            records = records_in(row)
            if not records:
                return values
            values += [record.value for record in records if record.offset >= offset]
            offset = records[-1].offset + 1

    # what the controller says

    async def give_role(self, machine: Machine, topic: str, partition: int = 0, **role):
        """LeaderAndIsr in the controller's name, for one partition; the error code."""
        (asked,) = (await self.metadata(topic)).values()
        now = asked.partitions[partition]
        broker_id = machine.serving.broker_id
        leader_epoch = max(now.leader_epoch, machine.leader_epochs.get((topic, partition), 0)) + 1
        leader_epoch = machine.leader_epochs[topic, partition] = role.get("leader_epoch", leader_epoch)
        state = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=partition,
            controller_epoch=await machine.controller_epoch(),
            leader=role.get("leader", broker_id),
            leader_epoch=leader_epoch,
            isr=role.get("isr", [broker_id]),
            partition_epoch=1,
            replicas=role.get("replicas", [broker_id]),
        )
        request = m.LeaderAndIsrRequest(
            controller_id=broker_id,
            controller_epoch=state.controller_epoch,
            broker_epoch=-1,
            topic_states=[
                m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=role.get("topic_id", asked.topic_id), partition_states=[state]
                )
            ],
        )
        answer = await self.ask(request)
        return answer.error_code or answer.topics[0].partition_errors[0].error_code

    async def stop_replica(self, machine: Machine, topic: str, partition: int = 0, *, leader_epoch=-1, delete=False):
        """StopReplica in the controller's name, for one partition; the error code."""
        state = m.StopReplicaRequest.StopReplicaPartitionState(
            partition_index=partition, leader_epoch=leader_epoch, delete_partition=delete
        )
        request = m.StopReplicaRequest(
            controller_id=machine.serving.broker_id,
            controller_epoch=await machine.controller_epoch(),
            broker_epoch=-1,
            topic_states=[m.StopReplicaRequest.StopReplicaTopicState(topic_name=topic, partition_states=[state])],
        )
        answer = await self.ask(request)
        return answer.error_code or answer.partition_errors[0].error_code
