"""A stage for stories: a small simulated cluster with one topic, one client, and all rules checked throughout.

    def test_a_story():
        async def story(stage):
            await stage.open("t", replicas=[1, 2, 3])
            assert await stage.write("a") == 0
            stage.pause(3)
            ...

        play(story, min_insync_replicas="2")

`play` runs the story in virtual time and fails if any rule was broken on the way, unless the story says so.
"""

from collections.abc import Awaitable, Callable

import trio

from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionState
from barnabas.storage.disk import parent_of
from barnabas.testing.simulation.cluster import open_cluster
from barnabas.testing.simulation.invariants import Checks
from barnabas.testing.simulation.observe import Observer, watch_tree
from barnabas.testing.simulation.party import Link, Lost, Party
from barnabas.testing.simulation.schedule import simulate
from barnabas.testing.simulation.story import Story
from barnabas.testing.simulation.transaction_rules import TransactionRules
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Batch, build_batch, read_all_records
from barnabas.wire.topics import GROUP_TOPIC, TopicPartition

STORE = "store"
PATIENCE_SECONDS = 60.0
ACKS_ALL = -1
TOPIC_RESOURCE, SET = 2, 0


def play(story: Callable[["Stage"], Awaitable[None]], *, brokers: int = 3, seed: int = 1, **properties: str) -> Checks:
    """Run the story; properties of the brokers as `min_insync_replicas="2"`."""
    checks, lines, failure = watch(story, brokers=brokers, seed=seed, **properties)
    assert checks.violations == [], "\n".join(lines[-60:])
    assert failure is None, "\n".join([*lines[-60:], str(failure)])
    return checks


def watch(
    story: Callable[["Stage"], Awaitable[None]], *, brokers: int = 3, seed: int = 1, **properties: str
) -> tuple[Checks, list[str], Exception | None]:
    """Run the story, whatever it breaks: the rules, its lines, and what it found wrong itself."""
    found = []

    async def main(simulation) -> None:
        lines = Story(simulation.clock.current_time)
        checks = Checks(lambda: lines.seconds, lines.tell)
        async with open_cluster(simulation, brokers=brokers, **properties) as cluster:
            checks.transactions = TransactionRules(checks.violate, cluster.now_ms)
            nodes = list(cluster.nodes.values())
            cluster.on_step(Observer(lambda: nodes, checks, simulation.clock.current_time).step)
            checks.in_sync.nodes = nodes
            watch_tree(cluster.store.tree, checks.leaders.stored)
            await cluster.start()
            failure = None
            try:
                await story(Stage(cluster, checks, lines))
            except (AssertionError, Lost) as error:
                failure = error
        found.append((checks, list(lines), failure))

    simulate(seed, main)
    return found[0]


class Stage:
    """What a story needs: who holds what, who is in sync, and hands to write and to do harm."""

    def __init__(self, cluster, checks: Checks, lines: Story) -> None:
        self.cluster = cluster
        self.lines = lines
        self.checks = checks
        self.net = cluster.net
        bootstrap = [(node.name, 9092) for node in cluster.nodes.values()]
        self.client = Party("client", cluster.client_net("client"), bootstrap, cluster.simulation.rng("client"))
        self.topic = ""

    # -- the topic

    async def open(self, topic: str, *, replicas: list[int], **configs: str) -> None:
        """Make the topic that the story is about: one partition on these brokers, the first of which leads."""
        self.topic = topic
        if configs.get("unclean_leader_election_enable") == "true":
            self.checks.leaders.unclean_topics.add(topic)
        if configs.get("flush_messages") == "1":
            self.checks.leaders.synced_topics.add(topic)
        if configs.get("cleanup_policy") == "compact":
            self.checks.truths.compacted_topics.add(topic)
        wanted = m.CreateTopicsRequest.CreatableTopic(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)],
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=name.replace("_", "."), value=value)
                for name, value in configs.items()
            ],
        )
        link = await self._controller()
        answer = await link.ask(m.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), m.CreateTopicsResponse)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        await self.until(lambda: all(self.replica(each) is not None for each in replicas))

    async def delete(self) -> None:
        """Delete the topic, and wait until the metadata store has forgotten it."""
        state = m.DeleteTopicsRequest.DeleteTopicState(name=self.topic)
        link = await self._controller()
        answer = await link.ask(m.DeleteTopicsRequest(topics=[state], timeout_ms=10_000), m.DeleteTopicsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer
        await self.until(lambda: self.cluster.store.tree.stat(paths.topic(self.topic)) is None)
        self.client.view.forget(self.topic)

    async def configure(self, **configs: str) -> None:
        """Set properties of the topic."""
        await self._alter(TOPIC_RESOURCE, self.topic, configs)

    async def move(self, broker_id: int, directory: str) -> None:
        """Let the replica of this broker lie in another log directory."""
        moved = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=self.topic, partitions=[0])
        directories = [m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=directory, topics=[moved])]
        link = await self.client.broker(broker_id)
        answer = await link.ask(m.AlterReplicaLogDirsRequest(dirs=directories), m.AlterReplicaLogDirsResponse)
        assert answer.results[0].partitions[0].error_code == ErrorCode.NONE, answer

    async def _controller(self) -> Link:
        while True:
            try:
                return await self.client.controller()
            except Lost:
                await trio.sleep(0.05)  # some broker is known that is no more

    async def _alter(self, resource_type: int, name: str, configs: dict[str, str]) -> None:
        request = m.IncrementalAlterConfigsRequest
        changes = [
            request.AlterableConfig(name=key.replace("_", "."), config_operation=SET, value=value)
            for key, value in configs.items()
        ]
        resource = request.AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=changes)
        link = await self._controller()
        answer = await link.ask(request(resources=[resource]), m.IncrementalAlterConfigsResponse)
        assert answer.responses[0].error_code == ErrorCode.NONE, answer

    async def reassign(self, replicas: list[int]) -> None:
        """Ask for other replicas."""
        part = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=self.topic, partitions=[part])
        link = await self._controller()
        request = m.AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=[topic])
        answer = await link.ask(request, m.AlterPartitionReassignmentsResponse)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE, answer

    # -- what is so

    @property
    def now(self) -> float:
        """Virtual seconds."""
        return self.cluster.now_seconds

    def replica(self, broker_id: int):
        """The partition as this broker sees it; None while it hosts none."""
        broker = self.cluster.nodes[broker_id].broker
        found = None if broker is None else broker.replicas.get(self.topic, 0)
        return None if isinstance(found, ErrorCode) else found

    def leads(self, broker_id: int) -> bool:
        """Whether this broker has heard that it leads."""
        replica = self.replica(broker_id)
        return replica is not None and replica.is_leader

    def leads_offsets(self, broker_id: int) -> bool:
        """Whether this broker leads the partition of committed offsets: it loads them, or serves them."""
        broker = self.cluster.nodes[broker_id].broker
        found = None if broker is None else broker.replicas.get(GROUP_TOPIC, 0)
        return found is not None and not isinstance(found, ErrorCode) and found.is_leader

    async def coordinator(self, key: str, key_type: int = 0) -> int:
        """The broker that coordinates the group, or with `key_type` 1 the transactional id, as soon as there is one."""
        request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        while True:
            try:
                await self.client.refresh()
                link = await self.client.broker(self.client.rng.choice(sorted(self.client.view.brokers)))
                found = (await link.ask(request, m.FindCoordinatorResponse)).coordinators[0]
                if not found.error_code:
                    return found.node_id
            except Lost:
                pass
            await trio.sleep(0.05)

    def known_id(self, broker_id: int) -> bytes | None:
        """The id of the topic as this broker's metadata have it."""
        broker = self.cluster.nodes[broker_id].broker
        info = None if broker is None else broker.metadata.topics.get(self.topic)
        return None if info is None else info.topic_id

    def end(self, broker_id: int) -> int:
        """Where this broker's log ends."""
        return self.replica(broker_id).log.log_end_offset

    def high_watermark(self, broker_id: int) -> int:
        """This broker's high watermark."""
        return self.replica(broker_id).high_watermark

    def values(self, broker_id: int) -> list[str | None]:
        """The values that lie in this broker's log, of tombstones None."""
        log = self.replica(broker_id).log
        disk = self.cluster.nodes[broker_id].disk
        data = b"".join(disk.peek(segment.path)[: segment.size_bytes] for segment in log.segments)
        return [None if each.value is None else each.value.decode() for _, each in read_all_records(memoryview(data))]

    @property
    def state(self) -> PartitionState:
        """What the metadata store says of the partition."""
        path = paths.partition_state(self.topic, 0)
        return PartitionState.decode(self.cluster.store.tree.get(path)[0], path)

    @property
    def in_sync(self) -> list[int]:
        """The in-sync replicas by the metadata store, in their order."""
        return sorted(self.state.isr)

    def isr_history(self) -> list[list[int]]:
        """Every set of in-sync replicas that there was, one after the other."""
        states = [each.state for each in self.checks.leaders.states_of(self.topic, 0)]
        found: list[list[int]] = []
        for state in states:
            if not found or sorted(state.isr) != found[-1]:
                found.append(sorted(state.isr))
        return found

    async def until(self, is_so: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> float:
        """Wait until something is so; how long that took."""
        began = self.now
        while not is_so():
            assert self.now - began < seconds, "\n".join([*list(self.lines)[-40:], f"not so after {seconds} s"])
            await trio.sleep(0.01)
        return self.now - began

    def directory(self, broker_id: int) -> str:
        """The log directory in which this broker has its log."""
        return parent_of(self.replica(broker_id).log.directory)

    def future(self, broker_id: int):
        """The future log of the replica of this broker, or None."""
        broker = self.cluster.nodes[broker_id].broker
        return None if broker is None else broker.replicas.logs.futures.get(TopicPartition(self.topic, 0))

    # -- records

    async def write(
        self, *values: str | None, key: str | None = None, acks: int = ACKS_ALL, timeout_ms: int = 30_000
    ) -> int:
        """Write one batch to the leader; its base offset, or minus the error's code."""
        records = [(None if key is None else key.encode(), None if v is None else v.encode()) for v in values]
        batch = build_batch(records, timestamp_ms=self.cluster.now_ms())
        return await self.send(batch, acks=acks, timeout_ms=timeout_ms)

    async def send(self, batch: Batch, *, acks: int = ACKS_ALL, timeout_ms: int = 30_000) -> int:
        """Send a batch to the leader; its base offset, or minus the error's code."""
        data = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch.data))
        request = m.ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[m.ProduceRequest.TopicProduceData(name=self.topic, partition_data=[data])],
        )
        began = self.now
        while True:
            try:
                link = await self.client.leader_of(self.topic, 0)
                answer = await link.ask(request, m.ProduceResponse, timeout_ms / 1000 + 1)
                row = answer.responses[0].partition_responses[0]
                if row.error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE):
                    return -row.error_code if row.error_code else row.base_offset
            except Lost:
                pass
            assert self.now - began < PATIENCE_SECONDS, "no broker accepts the records"
            self.client.mistrust(self.topic, 0)
            await trio.sleep(0.05)

    async def read(self, offset: int = 0) -> list[str]:
        """What the leader serves to a consumer from an offset on."""
        began = self.now
        while True:
            try:
                return await self._read_once(offset)
            except Lost:
                assert self.now - began < PATIENCE_SECONDS, "no broker serves it"
                self.client.mistrust(self.topic, 0)
                await trio.sleep(0.05)

    async def _read_once(self, offset: int) -> list[str]:
        link = await self.client.leader_of(self.topic, 0)
        asked = m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic_id = self.client.view.topic_ids[self.topic]
        topic = m.FetchRequest.FetchTopic(topic=self.topic, topic_id=topic_id, partitions=[asked])
        answer = await link.ask(m.FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[topic]), m.FetchResponse)
        row = answer.responses[0].partitions[0]
        if row.error_code != ErrorCode.NONE:
            raise Lost(f"error {row.error_code}")
        return [record.value.decode() for _, record in read_all_records(row.records)]

    # -- harm

    def cut(self, one: int | str, other: int | str) -> None:
        """Let nothing pass between two parties."""
        for source, target in _both_ways(one, other):
            self.net.cut(source, target)

    def mend(self, one: int | str, other: int | str) -> None:
        """Let everything pass again."""
        for source, target in _both_ways(one, other):
            self.net.mend(source, target)

    def kill(self, broker_id: int) -> None:
        """The process dies."""
        self.cluster.nodes[broker_id].crash_process()

    def cut_power(self, broker_id: int) -> None:
        """The machine dies, and everything that was not synced is lost."""
        self.checks.lost_power(broker_id)
        self.cluster.nodes[broker_id].crash_machine(_LosesAll())

    async def finish(self, broker_id: int) -> None:
        """A clean stop."""
        await self.cluster.nodes[broker_id].stop()

    async def start(self, broker_id: int) -> None:
        """Start the broker again."""
        await self.cluster.nodes[broker_id].start(self.cluster.nursery)


class _LosesAll:
    """Chance that always takes the first choice: of unsynced changes, none survives."""

    def choice(self, values):
        return values[0]

    def randint(self, low, high):
        return low

    def randrange(self, stop):
        return 0

    def random(self):
        return 0.0


def _both_ways(one: int | str, other: int | str) -> list[tuple[str, str]]:
    names = [each if isinstance(each, str) else f"broker-{each}" for each in (one, other)]
    return [(names[0], names[1]), (names[1], names[0])]
