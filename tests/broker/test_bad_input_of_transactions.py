"""Bad input of transactional producers, line by line: each request is answered, and no other id notices it.

Codes are Kafka's (compat_tests/differential/scenarios/transactions*.py compares them with those of a running one).
"""

import struct

import pytest
import trio

from barnabas.coordinators.transactions.state import Status, TransactionRecord
from barnabas.storage.producers import Origin
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import TRANSACTIONAL, build_batch
from barnabas.wire.topics import TRANSACTION_TOPIC
from barnabas.world.net import ConnectionLost
from barnabas.world.pacing import portions
from tests.broker.clock import now_ms
from tests.broker.clusters import until
from tests.broker.harness import Client, Machine
from tests.broker.planted_transactions import (
    AskedTopic,
    asking,
    codes,
    marker,
    plant,
    recorded,
    shard_of,
)
from tests.broker.requests import batch_of
from tests.broker.transactional import T0, T1, U0, decided, one_broker
from tests.broker.writers import Writer, committed, stable_offset

FENCED, FENCED_BEFORE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


async def a_writer(nursery, **properties) -> tuple[tuple[Machine, ...], Writer, Client]:
    """A producer that is in the second epoch of its id, and its connection."""
    machines = await one_broker(nursery, **properties)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.init()
    assert writer.producer_epoch == 1
    return machines, writer, await writer.client(machines[0])


async def others_go_on(machines) -> None:
    """A transaction of another id, with records and offsets, is committed as if nothing was."""
    other = Writer(machines, "other")
    assert await other.init() is ErrorCode.NONE
    assert await other.add(U0) is ErrorCode.NONE
    assert await other.write("u", b"of another id") is ErrorCode.NONE
    assert await other.send_offsets("other group", {T0: 1}) is ErrorCode.NONE
    assert await other.end(commit=True) is ErrorCode.NONE
    await other.completed()
    await decided(machines, "u")
    assert (await committed(machines, "u"))[-1] == b"of another id"
    assert await other.committed_offset("other group", T0) == 1


# -- epochs and producer ids


async def test_a_marker_from_anybody_ends_a_transaction_in_its_partition_alone(nursery, autojump_clock):
    # As in Kafka without an authorizer. The transaction goes on; docs/transactions.md says what that means for readers.
    machines, writer, _ = await a_writer(nursery)
    await writer.add(T0, T1)
    await writer.write("t", b"a")
    await writer.write("t", b"b", partition=1)
    assert codes(await (await machines[0].connect()).ask(marker(writer.producer, [T0]))) == [0]
    assert stable_offset(machines, "t", 0) == (2, 2)
    assert stable_offset(machines, "t", 1) == (0, 1)
    assert await writer.write("t", b"c") is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert (await committed(machines, "t", 0), await committed(machines, "t", 1)) == ([b"c"], [b"b"])
    await others_go_on(machines)


# -- ids


async def is_answered(client: Client, request: m.Message, version: int, name: bytes) -> bool:
    """Whether the request is answered with these bytes where its text has this many times `~`."""
    frame = client.frame_of(request, version)
    client.in_flight.forget()
    placeholder = b"~" * len(name)
    assert frame.count(placeholder) == 1
    await client.send_frame(bytes(frame).replace(placeholder, name))
    # Not decoded: bytes that are no text come back as a text that is longer than clients may read.
    return (await client.receive_frame())[:4] == struct.pack(">i", client.in_flight.correlation_id)


def requests_of(name: str) -> dict[str, tuple[m.Message, int]]:
    """Each request that names a transactional id, in its oldest and its newest version."""
    owner = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0}
    own_topics = [AskedTopic(name="t", partitions=[0])]
    offsets = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
        name="t",
        partitions=[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
    )
    batch = batch_of(b"v", attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0, base_sequence=0)
    data = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
    produced = m.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    made = {
        "init": m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000),
        "add offsets": m.AddOffsetsToTxnRequest(**owner, group_id="g"),
        "end": m.EndTxnRequest(**owner, committed=True),
        "offsets": m.TxnOffsetCommitRequest(**owner, group_id="g", topics=[offsets]),
        "describe": m.DescribeTransactionsRequest(transactional_ids=[name]),
        "produce": m.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=1000, topic_data=[produced]),
    }
    asked = {
        f"{label} {version}": (request, version)
        for label, request in made.items()
        for version in (3 if label == "produce" else 0, APIS[key_of(request)].max_version)
    }
    asked["find 1"] = m.FindCoordinatorRequest(key=name, key_type=1), 1
    asked["find 6"] = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 6
    of_client = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=own_topics,
    )
    asked |= {f"add {version}": (of_client, version) for version in (0, 3)}
    return asked | {f"add 5, {verify}": (asking((name, (1, 0), [T0], verify)), 5) for verify in (True, False)}


ODD_NAMES = {
    "a lone surrogate": b"\xed\xa0\x80",
    "no UTF-8": b"\xff\xfe\x80",
    "a null character": b"\x00",
    "beyond the basic plane": "\U0001f3f0".encode(),
    "32 kB": b"x" * 32_767,
    "32 kB that are three times as long as text": b"\xff" * 32_767,
}


@pytest.mark.parametrize("label", list(ODD_NAMES))
async def test_an_id_of_any_bytes_is_answered(nursery, autojump_clock, label):
    name = ODD_NAMES[label]
    machines = await one_broker(nursery)
    await Writer(machines, "before").init()
    for what, (request, version) in requests_of("~" * len(name)).items():
        client = await machines[0].connect()
        try:
            assert await is_answered(client, request, version, name), what
        except ConnectionLost:
            pytest.fail(f"{what}: closed")
    (machine,) = machines
    await machine.crash()
    await machine.start()
    await others_go_on(machines)


async def test_a_null_id_is_no_producer_of_transactions(nursery, autojump_clock):
    machines, writer, client = await a_writer(nursery)
    answer = await client.ask(m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-5))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
    batch = batch_of(b"v", attributes=TRANSACTIONAL, producer_id=writer.producer_id, producer_epoch=1, base_sequence=0)
    assert (await client.produce("t", batch)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    # Elsewhere the field cannot be null: a connection on which it is ends, as in Kafka.
    for request, version, before in (
        (writer.ending(commit=True), 1, b"\x00\x02id"),
        (writer.ending(commit=True), 4, b"\x03id"),
        (writer.adding(T0), 1, b"\x00\x02id"),
        (writer.adding(T0), 3, b"\x03id"),
    ):
        broken = await machines[0].connect()
        frame = bytes(broken.frame_of(request, version))
        assert frame.count(before) == 1
        await broken.send_frame(frame.replace(before, b"\xff\xff" if len(before) == 4 else b"\x00"))
        assert await broken.is_closed()
    await others_go_on(machines)


async def test_100_000_ids_keep_no_other_waiting(nursery, autojump_clock):
    machines = await one_broker(nursery)
    (machine,) = machines
    await Writer(machines, "before").init()
    empty = recorded(Status.EMPTY)
    for numbers in portions(range(100_000), 5000):
        plant(machine, *(TransactionRecord(f"{number}", empty) for number in numbers))
    await machine.crash()
    await machine.start()
    await until(lambda: not isinstance(shard_of(machine), ErrorCode))
    await others_go_on(machines)
    listed = (await (await machine.connect()).ask(m.ListTransactionsRequest())).transaction_states
    assert len(listed) == 100_002


# -- offsets


async def test_offsets_for_a_group_that_does_not_exist_or_was_deleted_are_stored(nursery, autojump_clock):
    machines, writer, client = await a_writer(nursery)
    assert await writer.send_offsets("new", {T0: 1}) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert await writer.committed_offset("new", T0) == 1
    assert await writer.send_offsets("new", {T0: 2}) is ErrorCode.NONE
    deleted = (await client.ask(m.DeleteGroupsRequest(groups_names=["new"]))).results[0]
    assert deleted.error_code == 0
    assert await writer.committed_offset("new", T0) == -1
    # What comes after the deletion counts.
    assert await writer.commit_offsets("new", {T1: 3}) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    for _ in range(2):
        assert await writer.committed_offset("new", T0) == -1
        assert await writer.committed_offset("new", T1) == 3
        await machines[0].crash()
        await machines[0].start()


async def test_offsets_while_the_group_rebalances(nursery, autojump_clock):
    machines, writer, client = await a_writer(nursery)
    assert await writer.committed_offset("g", T0) == -1
    joining = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id="",
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    member = await client.ask(joining, 3)
    assert (member.error_code, member.generation_id) == (0, 1)
    # CompletingRebalance: the leader has not sent the assignments. As in Kafka that is no reason to refuse them.
    own = {"member_id": member.member_id, "generation_id": 1}
    assert await writer.send_offsets("g", {T0: 1}, **own) is ErrorCode.NONE
    assert await writer.commit_offsets("g", {T0: 2}, **own | {"generation_id": 0}) is ErrorCode.ILLEGAL_GENERATION
    assert await writer.commit_offsets("g", {T0: 2}, **own | {"member_id": "no"}) is ErrorCode.UNKNOWN_MEMBER_ID
    # PreparingRebalance: another member joins.
    other = await machines[0].connect()
    await other.send(joining, 3)
    await trio.sleep(0.1)
    assert await writer.commit_offsets("g", {T1: 3}, **own) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert (await writer.committed_offset("g", T0), await writer.committed_offset("g", T1)) == (1, 3)


async def test_metadata_that_are_too_long_are_refused_for_their_partition_alone(nursery, autojump_clock):
    _, writer, client = await a_writer(nursery, offset_metadata_max_bytes="10")
    await writer.send_offsets("g", {T0: 1})
    row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    rows = [
        row(partition_index=0, committed_offset=5, committed_metadata="x" * 11),
        row(partition_index=1, committed_offset=6, committed_metadata="x" * 10),
        row(partition_index=2, committed_offset=7, committed_metadata=None),
    ]
    request = m.TxnOffsetCommitRequest(
        transactional_id="id", group_id="g", producer_id=writer.producer_id, producer_epoch=1,
        topics=[topic(name="t", partitions=rows)],
    )  # fmt: skip
    found = [each.error_code for each in (await client.ask(request)).topics[0].partitions]
    assert found == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert (await writer.committed_offset("g", T0), await writer.committed_offset("g", T1)) == (1, 6)


# -- EndTxn


async def test_requests_in_a_pipeline_are_answered_in_order(nursery, autojump_clock):
    machines, writer, client = await a_writer(nursery)
    adding, producing = writer.adding(T0), writer.producing("t", b"a")
    commit, abort = writer.ending(commit=True), writer.ending(commit=False)
    # The whole transaction without a pause, as no client writes it, and then another end.
    for request, version in ((adding, 3), (producing, 11), (commit, 4), (abort, 4), (commit, 4), (adding, 3)):
        await client.send(request, version)
    answers = [_code(await client.receive()) for _ in range(6)]
    assert answers[:3] == [0, 0, 0]
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert answers[3] in (concurrent, ErrorCode.INVALID_TXN_STATE)
    assert answers[4] in (concurrent, 0)
    assert answers[5] in (concurrent, 0)
    await writer.completed()
    assert await committed(machines, "t") == [b"a"]
    await others_go_on(machines)


@pytest.mark.parametrize("part", [0.0, 0.3, 0.99, 1.0])
async def test_a_connection_that_breaks_in_any_request_breaks_nothing_else(nursery, autojump_clock, part):
    """Half of each request, or all of it, and the client is gone. It goes on with another connection."""
    machines, writer, _ = await a_writer(nursery)
    offsets = m.AddOffsetsToTxnRequest(
        transactional_id="id", producer_id=writer.producer_id, producer_epoch=1, group_id="g"
    )
    steps = [(writer.adding(T0), 3), (writer.producing("t", b"a"), 11), (offsets, 4), (writer.ending(commit=True), 4)]
    for request, version in steps:
        leaver = await machines[0].connect()
        frame = bytes(leaver.frame_of(request, version))
        whole = struct.pack(">i", len(frame)) + frame
        await leaver.send_bytes(whole[: int(len(whole) * part)])
        leaver.close()
        await trio.sleep(0.1)
        # The client repeats it.
        client = await machines[0].connect()
        assert _code(await client.ask(request, version)) == 0
    await decided(machines)
    assert await committed(machines, "t") == [b"a"]
    assert stable_offset(machines, "t") == (2, 2)
    await others_go_on(machines)


# -- records of `__transaction_state`

VALUE = struct.pack(">hqhib", 0, 5, 0, 60_000, 0) + struct.pack(">iqq", -1, 1, -1)
BROKEN_RECORDS = {
    "no key": (None, VALUE),
    "an empty key": (b"", VALUE),
    "a key that ends early": (b"\x00\x00\x00\x05ab", VALUE),
    "a value that ends early": (b"\x00\x00\x00\x01a", VALUE[:-1]),
    "an empty value": (b"\x00\x00\x00\x01a", b""),
    "a value of a future version": (b"\x00\x00\x00\x01a", b"\x00\x02" + VALUE[2:]),
    "a value of a negative version": (b"\x00\x00\x00\x01a", b"\xff\xff" + VALUE[2:]),
    "a state that is never stored": (b"\x00\x00\x00\x01a", VALUE[:16] + b"\x06" + VALUE[17:]),
    "a negative state": (b"\x00\x00\x00\x01a", VALUE[:16] + b"\xff" + VALUE[17:]),
}


async def with_record(nursery, key: bytes | None, value: bytes | None):
    """A broker that was started with this record at the end of partition 0 of `__transaction_state`, of two."""
    machine = await Machine(nursery, transaction_state_log_num_partitions="2").start()
    client = await machine.connect()
    await client.create_topic("t", 2)
    await client.create_topic("u")
    here, there = Writer([machine], "b"), Writer([machine], "a")  # by their hashes
    await here.init()
    await there.init()
    partition = machine.broker.replicas.get(TRANSACTION_TOPIC, 0)
    batch = build_batch([(key, value)], timestamp_ms=now_ms())
    partition.log.append_as_leader(
        batch, leader_epoch=partition.leader_epoch, origin=Origin.COORDINATOR, now_ms=now_ms()
    )
    await machine.crash()
    await machine.start()
    return machine, here, there


@pytest.mark.parametrize("label", list(BROKEN_RECORDS))
async def test_a_partition_with_a_broken_record_is_not_served_and_the_others_are(
    nursery, autojump_clock, caplog, label
):
    machine, here, there = await with_record(nursery, *BROKEN_RECORDS[label])
    await until(lambda: "cannot be loaded and is not served" in caplog.text)
    client = await machine.connect()
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    row = (await client.ask(m.DescribeTransactionsRequest(transactional_ids=["b"]))).transaction_states[0]
    assert row.error_code == unavailable
    assert (await client.ask(here.ending(commit=True))).error_code == unavailable
    assert _code(await client.ask(here.adding(T0), 3)) == unavailable
    # Of the ids of that partition nothing is known, and a list without them would be wrong.
    assert (await client.ask(m.ListTransactionsRequest())).error_code == unavailable
    await there.transaction({T0: b"a"})
    assert (await there.completed()).transaction_state == "CompleteCommit"


async def test_a_record_of_a_future_kind_is_passed_over(nursery, autojump_clock, caplog):
    _, here, there = await with_record(nursery, b"\x00\x01\x00\x01a", b"anything")
    await until(lambda: "passed over a record" in caplog.text)
    for writer in (here, there):
        await writer.transaction({T0: b"a"})
        assert (await writer.completed()).transaction_state == "CompleteCommit"


# -- answers


def _code(answer: m.Message) -> int:
    """The first error code of an answer."""
    match answer:
        case m.AddPartitionsToTxnResponse():
            if answer.results_by_transaction:
                return int(next(iter(_rows(answer))).partition_error_code)
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        case m.TxnOffsetCommitResponse():
            return int(answer.topics[0].partitions[0].error_code)
        case m.DescribeTransactionsResponse():
            return int(answer.transaction_states[0].error_code)
        case m.ProduceResponse():
            return int(answer.responses[0].partition_responses[0].error_code)
        case m.FindCoordinatorResponse() if answer.coordinators:
            return int(answer.coordinators[0].error_code)
    return int(answer.error_code)


def _rows(answer: m.AddPartitionsToTxnResponse):
    topics = [topic for each in answer.results_by_transaction for topic in each.topic_results]
    return [row for topic in topics for row in topic.results_by_partition]
