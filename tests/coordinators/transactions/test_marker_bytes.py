"""WriteTxnMarkers on the wire: the bytes that Apache Kafka sends and answers, and what its brokers can bear.

`markers.json` has requests and answers of Apache Kafka 3.9.1 (`compat_tests/record_markers.py`). Kafka sends version 0
up to inter.broker.protocol.version 2.7, version 1 from 2.8 on. Reference: transactions, T.11, T.13, T.27.
"""

import json
import pathlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import trio

from barnabas.coordinators.runtime.shard import Shard
from barnabas.coordinators.transactions.connections import SENDER_CLIENT_ID
from barnabas.coordinators.transactions.owed import Debt, request_of
from barnabas.coordinators.transactions.state import Recorded, Status, TransactionalIds, TransactionRecord, replay
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frame import FrameReader, read_request_header
from barnabas.wire.topics import GROUP_TOPIC, TopicPartition
from tests.broker.clusters import cluster, create_topic
from tests.broker.harness import Client, Machine
from tests.broker.memnet import MemNet, MemStream
from tests.broker.writers import Writer
from tests.wire.client_frames import frame_of, response_in

THREE = {
    "offsets_topic_replication_factor": "3",
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
    "transaction_state_log_num_partitions": "3",
    "min_insync_replicas": "2",
}
WRITE_TXN_MARKERS = 27
# A Java coordinator fails on any other code, and on a missing row, and leaves all transactions of the answer open.
BEARABLE = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
}


class Exchange(NamedTuple):
    """A request and its answer, without their lengths."""

    name: str
    request: bytes
    answer: bytes

    def asked(self) -> m.WriteTxnMarkersRequest:
        header = read_request_header(memoryview(self.request))
        return m.decode(m.WriteTxnMarkersRequest, header.api_version, self.request, header.position)

    def answered(self) -> m.WriteTxnMarkersResponse:
        header = read_request_header(memoryview(self.request))
        return response_in(self.answer, header.api_key, header.api_version, header.correlation_id)


def recorded(version: int) -> list[Exchange]:
    rows = json.loads((pathlib.Path(__file__).parent / "markers.json").read_text())
    return [
        Exchange(row["name"], bytes.fromhex(row["request"]), bytes.fromhex(row["answer"]))
        for row in rows
        if row["version"] == version
    ]


# -- the bytes of Apache Kafka


class FakePartition:
    """A partition of `__transaction_state`, led in this epoch."""

    log = None
    is_leader = True

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch


def debt_of(marker: m.WriteTxnMarkersRequest.WritableTxnMarker) -> tuple[Debt, list[TopicPartition]]:
    """The decision that such a marker tells, and the partitions that it is sent for."""
    shard = Shard(0, FakePartition(marker.coordinator_epoch), TransactionalIds())
    partitions = [TopicPartition(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    status = Status.PREPARE_COMMIT if marker.transaction_result else Status.PREPARE_ABORT
    state = Recorded(marker.producer_id, marker.producer_epoch, 60_000, status, dict.fromkeys(partitions), 0, 0)
    replay(shard.state, TransactionRecord("id", state), 0)
    return Debt(shard, shard.state.by_name["id"]), partitions


@pytest.mark.parametrize("version", [0, 1])
def test_a_coordinator_sends_the_bytes_that_kafkas_sends(version):
    sent = [each for each in recorded(version) if each.name.startswith("coordinator")]
    assert len(sent) == 4
    for each in sent:
        header = read_request_header(memoryview(each.request))
        ours = request_of([debt_of(marker) for marker in each.asked().markers])
        frame = frame_of(ours, version, header.correlation_id, SENDER_CLIENT_ID.format(1))
        assert frame == each.request, each.name


@pytest.mark.parametrize("version", [0, 1])
async def test_a_leader_answers_with_the_bytes_that_kafkas_answers(nursery, autojump_clock, version):
    client = await (await Machine(nursery).start()).connect()
    await client.create_topic("markers-one", 3)
    await client.create_topic("markers-other", 2)
    await client.create_topic("markers-few", min_insync_replicas="2")
    await group_coordinator(client)
    codes = set()
    for each in recorded(version):
        await client.send_frame(each.request)
        answer = each._replace(answer=await client.receive_frame())
        # Kafka's order is that of its hash maps, and no coordinator depends on it.
        assert rows_of(answer) == rows_of(each), each.name
        if len(rows_of(each)) < 2:
            assert answer.answer == each.answer, each.name
        assert len(answer.answer) == len(each.answer)
        codes |= {row[3] for row in rows_of(each)}
    assert codes == {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }


async def group_coordinator(client: Client) -> None:
    """Wait until it has loaded its log."""
    find = m.FindCoordinatorRequest(coordinator_keys=["g"])
    beat = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="x")
    with trio.fail_after(60):
        while (await client.ask(find)).coordinators[0].error_code:
            await trio.sleep(0.1)
        while (await client.ask(beat)).error_code != ErrorCode.UNKNOWN_MEMBER_ID:
            await trio.sleep(0.1)


def rows_of(exchange: Exchange) -> Counter[tuple[int, str, int, int]]:
    """Producer id, topic, partition and error code."""
    return Counter(
        (marker.producer_id, topic.name, row.partition_index, row.error_code)
        for marker in exchange.answered().markers
        for topic in marker.topics
        for row in topic.partitions
    )


# -- the bytes between brokers of ours


class RecordedStream:
    """The end of a connection that asks, with all bytes that went through it."""

    def __init__(self, stream: MemStream) -> None:
        self.sent, self.received = bytearray(), bytearray()
        self._stream = stream

    async def send_all(self, data: bytes) -> None:
        self.sent += data
        await self._stream.send_all(data)

    async def receive_some(self, max_bytes: int) -> bytes:
        data = await self._stream.receive_some(max_bytes)
        self.received += data
        return data

    def close(self) -> None:
        self._stream.close()


class RecordingNet(MemNet):
    """It keeps the bytes of all connections."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[RecordedStream] = []

    async def connect(self, *where, **how) -> RecordedStream:
        self.streams.append(RecordedStream(await super().connect(*where, **how)))
        return self.streams[-1]

    def exchanges(self, api_key: int) -> list[Exchange]:
        """Requests of this API and their answers."""
        return [
            Exchange("", request, answer)
            for stream in self.streams
            # The last request of a connection may have no answer.
            for request, answer in zip(frames_of(stream.sent), frames_of(stream.received), strict=False)
            if read_request_header(memoryview(request)).api_key == api_key
        ]


def frames_of(data: bytes) -> Iterator[bytes]:
    reader = FrameReader(1 << 30)
    reader.feed(data)
    while (frame := reader.next_frame()) is not None:
        yield bytes(frame)


async def many_transactions(writer: Writer) -> None:
    partitions = [(topic, index) for topic in ("t", "u") for index in range(3)]
    await writer.init()
    for number in range(20):
        some = partitions[number % 3 : number % 3 + 1 + number % 4]
        assert await writer.add(*some) is ErrorCode.NONE
        for topic, index in some:
            assert await writer.write(topic, b"%d" % number, partition=index) is ErrorCode.NONE
        if number % 2:
            assert await writer.send_offsets(writer.name, {("t", 0): number}) is ErrorCode.NONE
        assert await writer.end(commit=bool(number % 3)) is ErrorCode.NONE
        await trio.sleep(0.1)  # so that some are under way when a broker dies


@pytest.mark.parametrize(("metadata_version", "version"), [("2.7", 0), ("3.9", 1)])
async def test_brokers_send_and_answer_what_those_of_kafka_bear(nursery, autojump_clock, metadata_version, version):
    net = RecordingNet()
    async with cluster(nursery, 3, net=net, inter_broker_protocol_version=metadata_version, **THREE) as machines:
        client = await machines[0].connect()
        for topic in ("t", "u"):
            await create_topic(client, topic, [1, 2, 3], [2, 3, 1], [3, 1, 2])
        async with trio.open_nursery() as busy:
            for name in "abcd":
                busy.start_soon(many_transactions, Writer(machines, name))
            await trio.sleep(1)
            await machines[1].crash()
            await trio.sleep(30)
            await machines[1].start()
    exchanges = net.exchanges(WRITE_TXN_MARKERS)
    for each in exchanges:
        header = read_request_header(memoryview(each.request))
        assert header.api_version == version
        assert header.client_id in {SENDER_CLIENT_ID.format(broker_id) for broker_id in (1, 2, 3)}
        asked = [
            (marker.producer_id, topic.name, index)
            for marker in each.asked().markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        answered = rows_of(each)
        assert_is_bearable(each.asked())
        assert Counter(row[:3] for row in answered.elements()) == Counter(asked)
        assert {row[3] for row in answered} <= BEARABLE
    markers = [marker for each in exchanges for marker in each.asked().markers]
    assert {marker.transaction_result for marker in markers} == {True, False}
    assert max(len(each.asked().markers) for each in exchanges) > 1
    assert max(len(marker.topics) for marker in markers) > 1
    assert any(topic.name == GROUP_TOPIC for marker in markers for topic in marker.topics)


def assert_is_bearable(request: m.WriteTxnMarkersRequest) -> None:
    """A leader of Kafka answers this request: no producer, topic or partition is there twice, and nothing is empty."""
    assert request.markers
    producers = [marker.producer_id for marker in request.markers]
    assert len(set(producers)) == len(producers)
    for marker in request.markers:
        assert marker.topics
        names = [topic.name for topic in marker.topics]
        assert len(set(names)) == len(names)
        for topic in marker.topics:
            assert topic.partition_indexes
            assert len(set(topic.partition_indexes)) == len(topic.partition_indexes)
