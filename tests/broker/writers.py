"""Transactional producers and readers of committed records, by hand, in a test of whole brokers.

    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(("t", 0))
    await writer.write("t", b"a")
    await writer.commit()
    assert await committed(machines, "t") == [b"a"]

A request that may be repeated is repeated, as clients do, at the broker that is responsible then.
"""

from collections.abc import Iterable, Sequence

import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import TRANSACTIONAL, read_all_records
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC, partition_for
from barnabas.world.net import ConnectionLost
from tests.broker.harness import Client, Machine
from tests.broker.requests import batch_of, fetch_request, produce_request

PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.1
TIMEOUT_MS = 60_000
READ_COMMITTED = 1
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class Writer:
    """A producer with a transactional id. Requests return their error code; NONE after as many attempts as needed."""

    def __init__(self, machines: Sequence[Machine], name: str, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self.machines = machines
        self.name = name
        self.timeout_ms = timeout_ms
        self.producer_id = self.producer_epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self._clients: dict[Machine, Client] = {}

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    async def init(self, *, recovers: bool = False) -> ErrorCode:
        """InitProducerId; with `recovers` as the owner of the current producer id and epoch."""
        answer = await self.ask_coordinator(
            m.InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=self.timeout_ms,
                producer_id=self.producer_id if recovers else -1,
                producer_epoch=self.producer_epoch if recovers else -1,
            )
        )
        if not answer.error_code:
            self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    async def add(self, *partitions: tuple[str, int]) -> ErrorCode:
        """AddPartitionsToTxn, version 3."""
        answer = await self.ask_coordinator(self.adding(*partitions), 3)
        return ErrorCode(_first_code(answer))

    def adding(self, *partitions: tuple[str, int]) -> m.AddPartitionsToTxnRequest:
        """The request."""
        return m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[index])
                for topic, index in partitions
            ],
        )

    async def write(self, topic: str, *values: bytes, partition: int = 0) -> ErrorCode:
        """Produce one transactional batch to the partition's leader."""
        row = await self.ask_leader(topic, partition, self.producing(topic, *values, partition=partition))
        if not row.error_code:
            self.sequences[topic, partition] = self.sequences.get((topic, partition), 0) + len(values)
        return ErrorCode(row.error_code)

    def producing(self, topic: str, *values: bytes, partition: int = 0) -> m.ProduceRequest:
        """The request, with the next sequence number."""
        batch = batch_of(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.sequences.get((topic, partition), 0),
            attributes=TRANSACTIONAL,
        )
        return produce_request(topic, batch, partition, transactional_id=self.name)

    async def send_offsets(self, group: str, offsets: dict[tuple[str, int], int], **member) -> ErrorCode:
        """AddOffsetsToTxn, and TxnOffsetCommit at the group's coordinator; `member` as in the request."""
        code = await self.add_offsets(group)
        return code or await self.commit_offsets(group, offsets, **member)

    async def add_offsets(self, group: str) -> ErrorCode:
        """AddOffsetsToTxn alone."""
        adding = m.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group,
        )
        return ErrorCode((await self.ask_coordinator(adding)).error_code)

    async def commit_offsets(self, group: str, offsets: dict[tuple[str, int], int], **member) -> ErrorCode:
        """TxnOffsetCommit alone."""
        return ErrorCode(_first_code(await self._ask_group(group, self.committing(group, offsets, **member))))

    def committing(self, group: str, offsets: dict[tuple[str, int], int], **member) -> m.TxnOffsetCommitRequest:
        """TxnOffsetCommit of these offsets; `member` as in the request."""
        row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
        topic_row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        topics = [
            topic_row(
                name=topic,
                partitions=[row(partition_index=index, committed_offset=offset, committed_metadata="")],
            )
            for (topic, index), offset in offsets.items()
        ]
        return m.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=topics,
            **member,
        )

    async def committed_offset(self, group: str, partition: tuple[str, int], *, stable: bool = True) -> int | ErrorCode:
        """OffsetFetch of one partition: the offset, -1 for none, or the error."""
        topic, index = partition
        asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group,
            topics=[m.OffsetFetchRequest.OffsetFetchRequestTopics(name=topic, partition_indexes=[index])],
        )
        answer = await self._ask_group(group, m.OffsetFetchRequest(groups=[asked], require_stable=stable))
        (row,) = answer.groups[0].topics[0].partitions
        return ErrorCode(row.error_code) if row.error_code else row.committed_offset

    async def _ask_group(self, group: str, request: m.Message) -> m.Message:
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                for machine in _living(self.machines):
                    if GROUP_TOPIC not in machine.broker.metadata.topics:
                        await (await self.client(machine)).ask(find)
                    leader = leader_in(self.machines, GROUP_TOPIC, machine.broker.groups.placement.partition_of(group))
                    answer = None if leader is None else await self._asked(leader, request, None)
                    if answer is not None and _first_code(answer) not in RETRIABLE:
                        return answer
                    await trio.sleep(PAUSE_SECONDS)

    async def end(self, *, commit: bool) -> ErrorCode:
        """EndTxn."""
        return ErrorCode((await self.ask_coordinator(self.ending(commit=commit))).error_code)

    def ending(self, *, commit: bool) -> m.EndTxnRequest:
        """The request."""
        return m.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )

    async def transaction(self, values: dict[tuple[str, int], bytes], *, commit: bool = True) -> None:
        """A whole one: a value for each partition."""
        assert await self.add(*values) is ErrorCode.NONE
        for (topic, partition), value in values.items():
            assert await self.write(topic, value, partition=partition) is ErrorCode.NONE
        assert await self.end(commit=commit) is ErrorCode.NONE

    async def described(self) -> m.Message:
        """DescribeTransactions for this id; its row."""
        request = m.DescribeTransactionsRequest(transactional_ids=[self.name])
        return (await self.ask_coordinator(request)).transaction_states[0]

    async def completed(self) -> m.Message:
        """The same, when no markers are under way."""
        with trio.fail_after(PATIENCE_SECONDS):
            while (row := await self.described()).transaction_state.startswith("Prepare"):
                await trio.sleep(PAUSE_SECONDS)
        return row

    async def coordinator(self) -> Machine:
        """The machine that leads the id's partition of `__transaction_state`; creates the topic."""
        request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                for machine in _living(self.machines):
                    if TRANSACTION_TOPIC not in machine.broker.metadata.topics:
                        await (await self.client(machine)).ask(request)
                    count = len(machine.broker.metadata.topics[TRANSACTION_TOPIC].partitions)
                    leader = leader_in(self.machines, TRANSACTION_TOPIC, partition_for(self.name, count))
                    if leader is not None:
                        return leader
                await trio.sleep(PAUSE_SECONDS)

    async def client(self, machine: Machine) -> Client:
        """A connection to this machine's broker, kept."""
        if machine not in self._clients:
            self._clients[machine] = await machine.connect()
        return self._clients[machine]

    async def ask_coordinator(self, request: m.Message, version: int | None = None) -> m.Message:
        """The answer of the coordinator, once it is none that a client repeats."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                answer = await self._asked(await self.coordinator(), request, version)
                if answer is not None and _first_code(answer) not in RETRIABLE:
                    return answer
                await trio.sleep(PAUSE_SECONDS)

    async def ask_leader(self, topic: str, partition: int, request: m.ProduceRequest) -> m.Message:
        """The row of a Produce at the leader of the partition."""
        with trio.fail_after(PATIENCE_SECONDS):
            while True:
                leader = leader_in(self.machines, topic, partition)
                if leader is not None:
                    answer = await self._asked(leader, request, None)
                    row = None if answer is None else answer.responses[0].partition_responses[0]
                    if row is not None and row.error_code not in RETRIABLE:
                        return row
                await trio.sleep(PAUSE_SECONDS)

    async def _asked(self, machine: Machine, request: m.Message, version: int | None) -> m.Message | None:
        """The answer; None if the broker has gone."""
        try:
            return await (await self.client(machine)).ask(request, version)
        except ConnectionLost:
            self._clients.pop(machine, None)
            return None


def _first_code(answer: m.Message) -> int:
    if isinstance(answer, m.AddPartitionsToTxnResponse):
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    if isinstance(answer, m.DescribeTransactionsResponse):
        return int(answer.transaction_states[0].error_code)
    if isinstance(answer, m.TxnOffsetCommitResponse):
        return int(answer.topics[0].partitions[0].error_code)
    if isinstance(answer, m.OffsetFetchResponse):
        return int(answer.groups[0].error_code)
    return int(answer.error_code)


def _living(machines: Iterable[Machine]) -> list[Machine]:
    return [each for each in machines if each.is_running]


def leader_in(machines: Sequence[Machine], topic: str, partition: int) -> Machine | None:
    """The living machine that leads the partition itself, and not only by hearsay."""
    for machine in _living(machines):
        found = machine.broker.replicas.get(topic, partition)
        if not isinstance(found, ErrorCode) and found.is_leader:
            return machine
    return None


async def read_committed(machine: Machine, topic: str, partition: int = 0) -> list[bytes]:
    """What a consumer with isolation.level=read_committed is given up to the LSO, without aborted records."""
    client = await machine.connect()
    values: list[bytes] = []
    offset = 0
    while True:
        request = fetch_request([(topic, partition, offset)], max_wait_ms=0, isolation_level=READ_COMMITTED)
        row = (await client.ask(request, 12)).responses[0].partitions[0]
        assert row.error_code == 0, row.error_code
        aborted = sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ())
        batches = batches_in(row)
        if not batches:
            return values
        skipped: set[int] = set()
        for header, records in batches:
            while aborted and aborted[0][0] <= header.last_offset:
                skipped.add(aborted.pop(0)[1])
            if header.is_control:
                if records[0].key[2:4] == b"\x00\x00":
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                values += [record.value for record in records if record.offset >= offset]
        offset = batches[-1][0].last_offset + 1


def batches_in(row: m.Message) -> list[tuple]:
    """(header, records) of each whole batch of a fetched partition."""
    batches: list[tuple] = []
    for header, record in read_all_records(row.records):
        if not batches or batches[-1][0].base_offset != header.base_offset:
            batches.append((header, []))
        batches[-1][1].append(record)
    return batches


async def committed(machines: Sequence[Machine], topic: str, partition: int = 0) -> list[bytes]:
    """`read_committed` at the partition's leader."""
    leader = leader_in(machines, topic, partition)
    assert leader is not None
    return await read_committed(leader, topic, partition)


def stable_offset(machines: Sequence[Machine], topic: str, partition: int = 0) -> tuple[int, int]:
    """(last stable offset, high watermark) at the leader: equal when no transaction is open."""
    leader = leader_in(machines, topic, partition)
    assert leader is not None
    found = leader.broker.replicas.get(topic, partition)
    return found.last_stable_offset, found.high_watermark
