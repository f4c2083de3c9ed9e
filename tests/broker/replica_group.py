"""Three brokers on one network, each on a machine of its own, and a test that gives out the roles.

The controller knows nothing of the topics that are made here: a test says who leads and who follows, in its name, so
that each step of a story is exactly what the story needs.

    group = await Group.start(nursery)
    topic = group.topic("t")
    await topic.led_by(1)
    await topic.produce(b"a")
    await topic.is_copied_to(2, 3)
"""

import trio

from barnabas.controller.store import paths
from barnabas.storage.checkpoint import read_checkpoint
from barnabas.storage.entries import walk_buffer
from barnabas.wire import messages as m
from barnabas.wire.records import read_all_records
from barnabas.wire.topics import TopicPartition
from tests.broker.clusters import FIRST_PORT, machines_of_cluster
from tests.broker.harness import PATIENCE_SECONDS, Client
from tests.broker.requests import deletion_request, produce_request

LISTENER = "PLAINTEXT"
BROKER = 4  # the type of a resource that has a configuration


class Group:
    """The machines, by broker id, and a connection to each that lives."""

    def __init__(self, machines) -> None:
        self.machines = dict(enumerate(machines, 1))
        self.clients: dict[int, Client] = {}
        self.also_alive: list[int] = []  # brokers that are no machines
        self._topics = 0

    @classmethod
    async def start(cls, nursery, *, count: int = 3, **properties: str) -> "Group":
        group = cls(await machines_of_cluster(nursery, count, **properties))
        for broker_id in group.machines:
            await group.start_broker(broker_id)
        return group

    async def start_broker(self, broker_id: int, **properties: str) -> None:
        machine = self.machines[broker_id]
        await machine.start(**properties)
        self.clients[broker_id] = await machine.connect()
        await trio.sleep(1)  # everybody has heard of it

    async def crash(self, broker_id: int) -> None:
        """The process dies."""
        del self.clients[broker_id]
        await self.machines[broker_id].crash()
        await trio.sleep(1)

    async def cut_power(self, broker_id: int, seed: int = 0) -> None:
        """The machine dies, and forgets of what was not synced what it pleases."""
        del self.clients[broker_id]
        await self.machines[broker_id].cut_power(seed)
        await trio.sleep(1)

    async def stop(self, broker_id: int) -> None:
        """A clean stop."""
        self.clients.pop(broker_id).close()
        await self.machines[broker_id].stop()
        await trio.sleep(1)

    async def alter_brokers(self, name: str, value: str) -> None:
        """Set a property of all brokers."""
        config = m.IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=0, value=value)
        resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, configs=[config])
        answer = await self.clients[1].ask(m.IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer

    async def lead_together(self, topics: "list[Topic]", leader: int) -> None:
        """A new leader epoch of all of these topics, given in one request."""
        answers = await self.ask_to_lead_together(topics, leader)
        assert {code for codes in answers.values() for code in codes} == {0}

    async def ask_to_lead_together(self, topics: "list[Topic]", leader: int) -> dict[int, list[int]]:
        """The same; what each broker answers."""
        for topic in topics:
            await topic.led_by(leader, to=[])
        request, answers = await self.request_to_lead(topics), {}
        for broker_id, client in self.clients.items():
            answer = await client.ask(request)
            answers[broker_id] = [row.error_code for each in answer.topics for row in each.partition_errors]
        return answers

    async def request_to_lead(self, topics: "list[Topic]") -> m.LeaderAndIsrRequest:
        """One LeaderAndIsr for all of these, as things stand."""
        requests = [await topic.leader_and_isr_request() for topic in topics]
        requests[0].topic_states = [state for request in requests for state in request.topic_states]
        return requests[0]

    async def controller_epoch(self) -> int:
        return await self.machines[1].controller_epoch()

    def topic(self, name: str = "t", *, replicas=(1, 2, 3), with_id: bool = True) -> "Topic":
        """A topic of one partition; its node is created with its first leader."""
        self._topics += 1
        return Topic(self, name, list(replicas), bytes([self._topics]) * 16 if with_id else bytes(16))


class Topic:
    """A topic of one partition, as its controller sees it: the test."""

    def __init__(self, group: Group, name: str, replicas: list[int], topic_id: bytes) -> None:
        self.group = group
        self.name = name
        self.replicas = replicas
        self.topic_id = topic_id
        self.leader = -1
        self.epoch = -1
        self.isr = replicas
        self.key = TopicPartition(name, 0)
        self.path = f"/data/{self.key}"

    # -- roles

    async def led_by(self, leader: int, *, isr=None, to=None) -> None:
        """Send LeaderAndIsr with a new leader epoch to all running brokers, or to `to`."""
        if self.epoch < 0:
            await self._exist()
        self.leader, self.epoch = leader, self.epoch + 1
        self.isr = [each for each in self.replicas if each in self.group.clients] if isr is None else list(isr)
        await self.tell(*(self.replicas if to is None else to))

    async def _exist(self) -> None:
        """Create the topic's node, so that brokers keep the topic; it is empty, so no controller manages the topic."""
        store = self.group.machines[1].session()
        await store.create(paths.topic(self.name))
        await store.close()

    async def tell(self, *brokers: int) -> None:
        """Tell these, as far as they live, how things stand; which they must take."""
        for broker_id in brokers:
            client = self.group.clients.get(broker_id)
            if client is not None and broker_id in self.replicas:
                answer = await client.ask(await self._update_metadata())
                assert answer.error_code == 0
                answer = await client.ask(await self.leader_and_isr_request())
                assert (answer.error_code, answer.topics[0].partition_errors[0].error_code) == (0, 0)

    async def stopped_on(self, broker_id: int, *, delete: bool) -> None:
        client = self.group.clients[broker_id]
        assert await client.stop_replica(self.group.machines[1], self.name, delete=delete) == 0

    async def leader_and_isr_request(self) -> m.LeaderAndIsrRequest:
        state = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
            partition_index=0,
            controller_epoch=await self.group.controller_epoch(),
            leader=self.leader,
            leader_epoch=self.epoch,
            isr=self.isr,
            partition_epoch=self.epoch,
            replicas=self.replicas,
            is_new=self.epoch == 0,
        )
        topic = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name=self.name, topic_id=self.topic_id, partition_states=[state]
        )
        return m.LeaderAndIsrRequest(
            controller_id=1, controller_epoch=state.controller_epoch, broker_epoch=-1, topic_states=[topic]
        )

    async def _update_metadata(self) -> m.UpdateMetadataRequest:
        epoch = await self.group.controller_epoch()
        request = m.UpdateMetadataRequest
        state = request.UpdateMetadataPartitionState(
            partition_index=0,
            controller_epoch=epoch,
            leader=self.leader,
            leader_epoch=self.epoch,
            isr=self.isr,
            zk_version=self.epoch,
            replicas=self.replicas,
        )
        brokers = [
            request.UpdateMetadataBroker(
                id=each,
                endpoints=[
                    request.UpdateMetadataEndpoint(
                        port=FIRST_PORT + each - 1, host="127.0.0.1", listener=LISTENER, security_protocol=0
                    )
                ],
            )
            for each in [*self.group.clients, *self.group.also_alive]
        ]
        topic = request.UpdateMetadataTopicState(topic_name=self.name, topic_id=self.topic_id, partition_states=[state])
        return request(
            controller_id=1, controller_epoch=epoch, broker_epoch=-1, topic_states=[topic], live_brokers=brokers
        )

    # -- records

    async def produce(self, *values: bytes, acks: int = 1, records=None) -> list[int]:
        """Produce these one after the other at the leader; their offsets."""
        offsets = []
        for value in [records] if records is not None else values:
            request = produce_request(self.name, value, acks=acks)
            if acks == 0:
                await self.group.clients[self.leader].send(request)
                continue
            answer = await self.group.clients[self.leader].ask(request)
            row = answer.responses[0].partition_responses[0]
            assert row.error_code == 0, row
            offsets.append(row.base_offset)
        return offsets

    async def delete_records(self, offset: int) -> int:
        """DeleteRecords at the leader, which must succeed; the low watermark."""
        answer = await self.group.clients[self.leader].ask(deletion_request((self.name, 0, offset)))
        row = answer.topics[0].partitions[0]
        assert row.error_code == 0, row
        return row.low_watermark

    def log_bytes(self, broker_id: int) -> bytes:
        """All segments of this replica's log."""
        disk = self.group.machines[broker_id].disk
        if not disk.exists(self.path):
            return b""
        names = sorted(name for name in disk.list(self.path) if name.endswith(".log"))
        return b"".join(disk.read_file(f"{self.path}/{name}") for name in names)

    def values(self, broker_id: int) -> list[bytes]:
        """What the log of this replica holds."""
        return [record.value for _, record in read_all_records(self.log_bytes(broker_id))]

    def offsets(self, broker_id: int) -> list[int]:
        """The base offsets of its batches."""
        return [span.base_offset for span, _ in walk_buffer(memoryview(self.log_bytes(broker_id)))]

    def replica(self, broker_id: int):
        """The partition as this broker has it."""
        return self.group.machines[broker_id].broker.replicas.get(self.name, 0)

    def written_high_watermark(self, broker_id: int) -> int:
        """What this replica wrote down last."""
        path = "/data/replication-offset-checkpoint"
        return read_checkpoint(self.group.machines[broker_id].disk, path)[self.key]

    async def is_copied_to(self, *followers: int, within_seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until these logs are the leader's, byte by byte."""
        with trio.fail_after(within_seconds):
            while any(self.log_bytes(each) != self.log_bytes(self.leader) for each in followers):
                await trio.sleep(0.01)
