"""The administrator of the simulated cluster: creates, extends and deletes topics, moves partitions, deletes records.

One `Admin` does one thing at a time, drawn by weight. It ignores refusals and missing responses: the change may then
have happened or not. The invariants must permit a change before it happens (records that may be deleted from now on,
topics that may disappear), so it is noted in `Permissions` *before* the request is sent.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import trio

from barnabas.testing.simulation.history import NOWHERE
from barnabas.testing.simulation.party import Lost, Party
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

TIMEOUT_MS = 5000
TOPIC_RESOURCE, SET = 2, 0
PREFERRED = 0


class TopicPlan(NamedTuple):
    """A topic of the run."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]
    is_volatile: bool = False  # it is deleted and made again
    has_twin: bool = False  # a `Twin` writes to it, so no record is deleted: its producer would be forgotten

    @property
    def in_sync_min(self) -> int:
        """On how many replicas a record is before it is acknowledged with acks=all, if there are so many."""
        return int(self.configs.get("min.insync.replicas", 1))

    def with_config(self, name: str, value: str) -> "TopicPlan":
        """The same topic with another value of this property."""
        return self._replace(configs=self.configs | {name: value})

    @property
    def is_compacted(self) -> bool:
        """Whether it is a table: only transactional writers write to it, and its readers begin at its beginning."""
        return self.configs.get("cleanup.policy") == "compact"


class Permissions(Protocol):
    """Who must know what the administrator may cause."""

    def records_may_go(self, topic: str, partition: int, offset: int) -> None:
        """Records of this partition below the offset may be deleted from now on."""

    def topic_may_go(self, topic: str) -> None:
        """The topic may be deleted from now on."""

    def in_sync_may_be(self, topic: str, replicas: int) -> None:
        """An acknowledgement with acks=all may need so few replicas from now on."""


class Admin:
    """One administrator."""

    def __init__(
        self,
        party: Party,
        topics: Sequence[TopicPlan],
        permissions: Permissions,
        directories: Sequence[str] = (),
        weights: Mapping[str, int] | None = None,
    ) -> None:
        self.party = party
        self.counts: dict[str, int] = {}  # what was answered without an error
        self._plans = {plan.name: plan for plan in topics}
        self._permissions = permissions
        self.ended = trio.Event()
        self._stopping = False
        self._operations = {
            self.delete_records: 4,
            self.elect_leaders: 3,
            self.reassign: 4,
            self.cancel_reassignments: 1,
            self.alter_config: 2,
            self.grow: 1,
            self.recreate: 2,
        }
        self._directories = directories
        for name, weight in (weights or {}).items():
            self._operations[getattr(self, name)] = weight

    def stop(self) -> None:
        """Begin nothing more; `ended` is set when what was begun is brought to its end."""
        self._stopping = True

    async def run(self, pause_seconds: float) -> None:
        """Do something every so often, until stopped."""
        rng = self.party.rng
        operations = list(self._operations)
        weights = list(self._operations.values())
        while not self._stopping:
            await trio.sleep(rng.expovariate(1 / pause_seconds))
            if self._stopping:
                break
            (operation,) = rng.choices(operations, weights)
            try:
                if await operation():
                    self.counts[operation.__name__] = self.counts.get(operation.__name__, 0) + 1
            except Lost:
                continue

        self.ended.set()

    async def create(self, plan: TopicPlan) -> ErrorCode:
        """Make a topic; the answer's code."""
        topic = m.CreateTopicsRequest.CreatableTopic(
            name=plan.name,
            num_partitions=plan.partitions,
            replication_factor=plan.replication_factor,
            configs=[
                m.CreateTopicsRequest.CreatableTopicConfig(name=name, value=value)
                for name, value in plan.configs.items()
            ],
        )
        link = await self.party.controller()
        request = m.CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = await link.ask(request, m.CreateTopicsResponse, TIMEOUT_MS / 1000 + 1)
        return ErrorCode(answer.topics[0].error_code)

    async def create_all(self) -> None:
        """Make every topic of the plan, however long it takes."""
        for plan in self._plans.values():
            await self._insist(plan)

    async def _insist(self, plan: TopicPlan) -> None:
        while True:
            try:
                if await self.create(plan) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
            except Lost:
                pass
            await self.party.pause(0.3)

    async def keep_all(self) -> None:
        """Make again what is missing of the topics that may be deleted (a deletion may end late), until cancelled."""
        while True:
            for plan in self._plans.values():
                if plan.is_volatile:
                    try:
                        await self.create(plan)
                    except Lost:
                        await self.party.pause()
            await self.party.pause(1.0)

    # -- operations: True when the answer was without error

    async def delete_records(self) -> bool:
        """Delete a partition's records up to some offset of the log."""
        topic, partition = await self._any_partition()
        if self._plans[topic].has_twin:
            return False
        link = await self.party.leader_of(topic, partition)
        asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=-1)
        latest = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])
        ends = await link.ask(m.ListOffsetsRequest(replica_id=-1, topics=[latest]), m.ListOffsetsResponse)
        row = ends.topics[0].partitions[0]
        if row.error_code or row.offset <= 0:
            return False
        offset = self.party.rng.randint(0, row.offset)
        self._permissions.records_may_go(topic, partition, offset)
        until = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = m.DeleteRecordsRequest(
            topics=[m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[until])], timeout_ms=TIMEOUT_MS
        )
        answer = await link.ask(request, m.DeleteRecordsResponse, TIMEOUT_MS / 1000 + 1)
        return not answer.topics[0].partitions[0].error_code

    async def elect_leaders(self) -> bool:
        """Elect the preferred leaders of everything."""
        link = await self.party.controller()
        request = m.ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None, timeout_ms=TIMEOUT_MS)
        return not (await link.ask(request, m.ElectLeadersResponse, TIMEOUT_MS / 1000 + 1)).error_code

    async def reassign(self) -> bool:
        """Give a partition other replicas."""
        return await self._reassign_at_random(*await self._any_partition())

    async def reassign_volatile(self) -> bool:
        """Give a partition of a volatile topic other replicas: those before keep its log if they are not reached."""
        topic = self._any_volatile()
        return await self._reassign_at_random(topic, await self._partition_of(topic))

    async def _reassign_at_random(self, topic: str, partition: int) -> bool:
        place = self.party.view.places[topic, partition]
        brokers = sorted(self.party.view.brokers)
        count = min(len(place.replicas), len(brokers))
        return await self._reassign(topic, partition, self.party.rng.sample(brokers, count))

    async def cancel_reassignments(self) -> bool:
        """Take back a reassignment, if one is under way."""
        topic, partition = await self._any_partition()
        return await self._reassign(topic, partition, None)

    async def alter_config(self) -> bool:
        """Change a property of a topic that changes nothing for the invariants."""
        topic, _ = await self._any_partition()
        return await self._alter_config(topic, "segment.bytes", str(self.party.rng.choice((4096, 16384, 1 << 20))))

    async def alter_guarantees(self) -> bool:
        """Change how many replicas an acknowledgement needs, or how long records are kept."""
        topic, _ = await self._any_partition()
        plan = self._plans[topic]
        if self.party.rng.random() < 0.5:
            replicas = self.party.rng.choice((1, 2))
            self._permissions.in_sync_may_be(topic, replicas)
            return await self._alter_config(topic, "min.insync.replicas", str(replicas))
        if plan.has_twin or plan.is_compacted or not self._operations[self.delete_records]:
            return False
        for partition in self.party.view.partitions_of(topic):
            self._permissions.records_may_go(topic, partition, NOWHERE)
        return await self._alter_config(topic, "retention.ms", self.party.rng.choice(("1000", "5000", "-1")))

    async def _alter_config(self, topic: str, name: str, value: str) -> bool:
        config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=SET, value=value)
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[config]
        )
        link = await self.party.controller()
        answer = await link.ask(
            m.IncrementalAlterConfigsRequest(resources=[resource]), m.IncrementalAlterConfigsResponse
        )
        return not answer.responses[0].error_code

    async def grow(self) -> bool:
        """Add a partition to a volatile topic."""
        topic = self._any_volatile()
        await self.party.refresh(topic)
        count = len(self.party.view.partitions_of(topic))
        if not 0 < count < 6:
            return False
        growth = m.CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count + 1, assignments=None)
        link = await self.party.controller()
        request = m.CreatePartitionsRequest(topics=[growth], timeout_ms=TIMEOUT_MS)
        answer = await link.ask(request, m.CreatePartitionsResponse, TIMEOUT_MS / 1000 + 1)
        return not answer.results[0].error_code

    async def recreate(self) -> bool:
        """Delete a volatile topic, and make another one of that name."""
        topic = self._any_volatile()
        self._permissions.topic_may_go(topic)
        try:
            link = await self.party.controller()
            state = m.DeleteTopicsRequest.DeleteTopicState(name=topic)
            request = m.DeleteTopicsRequest(topics=[state], timeout_ms=TIMEOUT_MS)
            answer = await link.ask(request, m.DeleteTopicsResponse, TIMEOUT_MS / 1000 + 1)
            deleted = not answer.responses[0].error_code
        except Lost:
            deleted = False
        await self.party.pause(0.5)
        await self._insist(self._plans[topic])
        return deleted

    async def move_between_directories(self) -> bool:
        """Let a replica lie in one of its broker's log directories."""
        topic, partition = await self._any_partition()
        place = self.party.view.places[topic, partition]
        link = await self.party.broker(self.party.rng.choice(place.replicas))
        moved = m.AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[partition])
        path = self.party.rng.choice(self._directories)
        request = m.AlterReplicaLogDirsRequest(
            dirs=[m.AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[moved])]
        )
        answer = await link.ask(request, m.AlterReplicaLogDirsResponse)
        return not answer.results[0].partitions[0].error_code

    # -- parts

    async def _reassign(self, topic: str, partition: int, replicas: list[int] | None) -> bool:
        part = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=partition, replicas=replicas)
        request = m.AlterPartitionReassignmentsRequest(
            timeout_ms=TIMEOUT_MS,
            topics=[m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[part])],
        )
        link = await self.party.controller()
        answer = await link.ask(request, m.AlterPartitionReassignmentsResponse, TIMEOUT_MS / 1000 + 1)
        return not (answer.error_code or answer.responses[0].partitions[0].error_code)

    async def _any_partition(self) -> tuple[str, int]:
        topic = self.party.rng.choice(list(self._plans))
        return topic, await self._partition_of(topic)

    async def _partition_of(self, topic: str) -> int:
        await self.party.refresh(topic)
        partitions = self.party.view.partitions_of(topic)
        if not partitions:
            raise Lost(f"{topic} is not known")
        return self.party.rng.choice(partitions)

    def _any_volatile(self) -> str:
        volatile = [plan.name for plan in self._plans.values() if plan.is_volatile]
        if not volatile:
            raise Lost("no topic may be deleted")
        return self.party.rng.choice(volatile)
