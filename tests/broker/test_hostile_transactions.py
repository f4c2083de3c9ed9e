"""Hostile clients of transactions: none of them may stop the transactions of others, or hold the event loop."""

from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.handlers import markers
from barnabas.coordinators.transactions.connections import SENDER_CLIENT_ID
from barnabas.coordinators.transactions.sender import MarkerSender
from barnabas.coordinators.transactions.state import Status, TransactionRecord
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC, partition_for
from barnabas.world.metadata import ClusterMetadata
from barnabas.world.net import ConnectionLost
from tests.broker.clusters import cluster, create_topic, until
from tests.broker.planted_transactions import (
    AskedTopic,
    asking,
    codes,
    marker,
    plant,
    recorded,
    results,
    shard_of,
    stall_followers,
    statuses,
)
from tests.broker.requests import produce_many
from tests.broker.steps import StepMeter
from tests.broker.transactional import T0, T1, THREE, decided, one_broker
from tests.broker.writers import PATIENCE_SECONDS, Writer, committed, leader_in, stable_offset


def pretend(monkeypatch, topic: str) -> SimpleNamespace:
    """The metadata have any partition of this topic, as long as `exists` is true, and it has no leader."""
    real = ClusterMetadata.partition
    topics = SimpleNamespace(exists=True)
    leaderless = SimpleNamespace(leader_id=NO_LEADER)

    def partition(self, name, index):
        if name == topic:
            return leaderless if topics.exists else None
        return real(self, name, index)

    monkeypatch.setattr(ClusterMetadata, "partition", partition)
    return topics


# -- many ids


async def test_thousands_of_decisions_without_partitions_are_completed_in_many_steps(nursery, autojump_clock):
    machines = await one_broker(nursery)
    (machine,) = machines
    await Writer(machines, "id").init()
    empty = recorded(Status.PREPARE_COMMIT)
    plant(machine, *(TransactionRecord(f"{number}", empty) for number in range(2000)))
    await machine.crash()
    with StepMeter() as meter:
        await machine.start()
        await until(lambda: not isinstance(shard_of(machine), ErrorCode))
        await until(lambda: set(statuses(machine).values()) == {Status.EMPTY, Status.COMPLETE_COMMIT})
    meter.check()


async def test_a_transaction_that_is_not_yet_aborted_does_not_keep_others_open(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        await create_topic(await machines[0].connect(), "t", [1, 2, 3])
        writers = [Writer(machines, f"{number}", timeout_ms=1000) for number in range(5)]
        for writer in writers:
            await writer.init()
        coordinator = await writers[0].coordinator()
        for writer in writers:
            assert await writer.add(T0) is ErrorCode.NONE
        await stall_followers(coordinator)
        await until(lambda: Status.PREPARE_ABORT in statuses(coordinator).values(), 30)
        assert set(statuses(coordinator).values()) == {Status.PREPARE_ABORT}


async def test_an_id_that_belongs_to_another_partition_by_now_is_aborted_nevertheless(nursery, autojump_clock):
    # The topic got more partitions, and the open transaction stays where it began.
    machines = await one_broker(nursery)
    name = next(name for name in "abcdef" if partition_for(name, 3))
    writer = Writer(machines, name, timeout_ms=1000)
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    topic = m.CreatePartitionsRequest.CreatePartitionsTopic(name=TRANSACTION_TOPIC, count=3, assignments=None)
    request = m.CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
    (row,) = (await (await machines[0].connect()).ask(request)).results
    assert row.error_code == 0
    assert await writer.add(T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    await decided(machines)
    assert await committed(machines, "t") == []


async def test_ids_of_32_kb_expire_although_they_do_not_fit_into_one_batch(nursery, autojump_clock):
    machines = await one_broker(
        nursery, transactional_id_expiration_ms="60000",
        transaction_remove_expired_transaction_cleanup_interval_ms="10000",
    )  # fmt: skip
    for number in range(60):
        await Writer(machines, f"{number:02}" * 16_000).init()
    assert len(statuses(machines[0])) == 60
    await trio.sleep(80)
    assert statuses(machines[0]) == {}


# -- others' names


async def test_an_id_that_passes_to_a_client_that_connected_earlier_is_not_overtaken(nursery, autojump_clock):
    machines = await one_broker(nursery)
    first, second = Writer(machines, "id"), Writer(machines, "id")
    early, late = await first.client(machines[0]), await second.client(machines[0])
    await second.init()
    await second.transaction({T0: b"a"})
    await first.init()
    # On this very connection.
    answer = await early.ask(first.adding(T0), 3)
    assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
    assert await first.write("t", b"b") is ErrorCode.NONE
    assert (await early.ask(first.ending(commit=True))).error_code == 0
    assert (await late.ask(second.ending(commit=False))).error_code == ErrorCode.PRODUCER_FENCED
    await decided(machines)
    assert await committed(machines, "t") == [b"a", b"b"]


async def test_a_partition_that_a_marker_names_often_gets_it_once(nursery, autojump_clock):
    machines = await one_broker(nursery)
    client = await machines[0].connect()
    answer = await client.ask(marker((5, 0), [T0] * 1000 + [T1]))
    assert codes(answer) == [0, 0]
    assert stable_offset(machines, "t", 0) == stable_offset(machines, "t", 1) == (1, 1)


async def test_the_coordinators_own_log_gets_no_markers(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    client = await machines[0].connect()
    own = [(TRANSACTION_TOPIC, 0)]
    before = shard_of(machines[0]).partition.log.log_end_offset
    assert codes(await client.ask(marker((5, 0), own))) == [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT]
    assert shard_of(machines[0]).partition.log.log_end_offset == before
    # Brokers may add it to a transaction, as anyone may without an authorizer. The transaction ends nevertheless.
    answer = await client.ask(asking(("id", writer.producer, [*own, T0], False)))
    assert results(answer) == {"id": [0, 0]}
    assert await writer.end(commit=True) is ErrorCode.NONE
    assert (await writer.completed()).transaction_state == "CompleteCommit"
    await machines[0].crash()
    await machines[0].start()
    assert (await Writer(machines, "id").described()).transaction_state == "CompleteCommit"


async def test_markers_are_overtaken_also_in_the_middle_of_a_request(nursery, autojump_clock, monkeypatch):
    # Between two parts of it the coordinator has sent all of it again, on a later connection, and goes on.
    machines = await one_broker(nursery)
    old = await machines[0].connect()
    old.in_flight.client_id = SENDER_CLIENT_ID.format(7)
    right, later_number, written = markers._append, 1 << 40, []

    def append(broker, *args, **kwargs):
        written.append(right(broker, *args, **kwargs))
        if len(written) == 100:
            assert not broker.marker_senders.is_overtaken(old.in_flight.client_id, later_number)
        return written[-1]

    monkeypatch.setattr(markers, "_append", append)
    asked = [marker((number, 0), [T0]).markers[0] for number in range(3000)]
    with pytest.raises(ConnectionLost):
        await old.ask(m.WriteTxnMarkersRequest(markers=asked))
    assert stable_offset(machines, "t") == (100, 100)


# -- questions of leaders


async def test_an_id_that_cannot_be_committed_keeps_no_question_about_others_waiting(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        await create_topic(await machines[0].connect(), "t", [1, 2, 3])
        slow, quick = Writer(machines, "slow"), Writer(machines, "quick")
        await slow.init()
        await quick.init()
        await quick.add(T0)
        coordinator = await slow.coordinator()
        await stall_followers(coordinator)
        client, other = await coordinator.connect(), await coordinator.connect()
        await other.send(slow.adding(T0), 3)
        await trio.sleep(0.01)
        began = trio.current_time()
        answer = await client.ask(asking(("slow", slow.producer, [T0], True), ("quick", quick.producer, [T0], True)))
        assert trio.current_time() - began < 2
        # A leader repeats the question that gets no answer.
        assert results(answer) == {"slow": [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS], "quick": [0]}


async def test_offsets_that_cannot_be_verified_in_time_do_not_end_a_java_producer(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE, offsets_topic_replication_factor="1") as machines:
        await create_topic(await machines[0].connect(), "t", [1, 2, 3])
        writer = Writer(machines, "id")
        await writer.init()
        assert await writer.send_offsets("g", {T0: 1}) is ErrorCode.NONE
        await writer.end(commit=True)
        await writer.completed()
        await writer.add_offsets("g")
        coordinator = await writer.coordinator()
        await stall_followers(coordinator)
        # As a new coordinator, whose followers have not fetched yet, finds the record of AddOffsetsToTxn.
        await (await coordinator.connect()).send(writer.adding(T0), 3)
        index = coordinator.broker.groups.placement.partition_of("g")
        client = await leader_in(machines, GROUP_TOPIC, index).connect()
        (topic,) = (await client.ask(writer.committing("g", {T0: 2}))).topics
        # CONCURRENT_TRANSACTIONS is fatal there.
        assert topic.partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# -- large requests


async def test_a_transaction_of_many_partitions_is_gone_through_in_many_steps(nursery, autojump_clock):
    count = 1500
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    client = await writer.client(machines[0])
    await client.create_topic("wide", count)
    adding = writer.adding()
    adding.v3_and_below_topics = [AskedTopic(name="wide", partitions=list(range(count)))]
    batch = writer.producing("wide", b"a").topic_data[0].partition_data[0].records
    producing = produce_many({("wide", index): bytearray(batch) for index in range(count)}, name="id")
    with StepMeter() as adds:
        answer = await client.ask(adding, 3)
        row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
        assert row.partition_error_code == 0
    # The clock bounds the steps of Produce and WriteTxnMarkers, which stands still here.
    rows = (await client.ask(producing)).responses[0].partition_responses
    assert {row.error_code for row in rows} == {0}
    assert await writer.end(commit=False) is ErrorCode.NONE
    await writer.completed()
    adds.check()
    assert stable_offset(machines, "wide", count - 1) == (2, 2)


async def test_50_000_partitions_in_a_transaction_do_not_hold_the_loop(nursery, autojump_clock, monkeypatch):
    count = 50_000
    machines = await one_broker(nursery)
    (machine,) = machines
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    # They have no leader; for the coordinator it is all the same whether they will have one.
    wide = pretend(monkeypatch, "wide")
    adding = writer.adding()
    adding.v3_and_below_topics = [AskedTopic(name="wide", partitions=list(range(count)))]
    client = await writer.client(machine)
    with StepMeter() as meter:
        answer = await client.ask(adding, 3)
        rows = answer.results_by_topic_v3_and_below[0].results_by_partition
        assert (len(rows), {row.partition_error_code for row in rows}) == (count, {0})
        assert await writer.end(commit=True) is ErrorCode.NONE
        await decided(machines)
        # Others go on meanwhile.
        other = Writer(machines, "other")
        await other.init()
        await other.transaction({T1: b"b"})
        assert (await other.completed()).transaction_state == "CompleteCommit"
        # And they are deleted.
        wide.exists = False
        await until(lambda: statuses(machine)["id"] is Status.COMPLETE_COMMIT, PATIENCE_SECONDS)
    meter.check()
    assert await committed(machines, "t") == [b"a"]


async def test_a_transaction_that_does_not_fit_into_a_record_can_still_be_ended(nursery, autojump_clock, monkeypatch):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    pretend(monkeypatch, "wide")
    adding = writer.adding()
    adding.v3_and_below_topics = [AskedTopic(name="wide", partitions=list(range(300_000)))]
    answer = await (await writer.client(machines[0])).ask(adding, 3)
    row = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
    assert row.partition_error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert await committed(machines, "t") == [b"a"]


async def test_markers_of_a_shard_that_was_given_up_are_dropped_in_short_steps(nursery, autojump_clock, monkeypatch):
    (machine,) = machines = await one_broker(nursery)
    await Writer(machines, "id").init()
    send, answered = MarkerSender._send, trio.Event()

    async def answer_late(self, broker_id, taken):
        await answered.wait()
        return await send(self, broker_id, taken)

    monkeypatch.setattr(MarkerSender, "_send", answer_late)
    for start in range(0, 4000, 1000):
        prepared = [recorded(Status.PREPARE_COMMIT, [T0], producer_id=n) for n in range(start, start + 1000)]
        plant(machine, *(TransactionRecord(f"{each.producer_id}", each) for each in prepared))
    shard = shard_of(machine)
    machine.broker.transactions._act(shard)
    await until(lambda: not shard.state.decided, 600)
    await (await machine.connect()).give_role(machine, TRANSACTION_TOPIC, leader=7)
    with StepMeter() as meter:
        answered.set()
        await trio.sleep(5)
    meter.check()


async def test_a_broker_that_adds_partitions_is_no_later_connection_of_the_producer(nursery, autojump_clock):
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    client = await writer.client(machine)
    broker = await machine.connect()
    assert results(await broker.ask(asking(("id", writer.producer, [T0], False)))) == {"id": [0]}
    assert (await client.ask(writer.ending(commit=True))).error_code == 0


async def test_a_broker_that_adds_for_many_does_not_wait_for_the_markers_of_each(nursery, autojump_clock, monkeypatch):
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    pretend(monkeypatch, "wide")  # it has no leader, so the transaction stays decided
    assert await writer.add(("wide", 0)) is ErrorCode.NONE
    await writer.end(commit=True)
    began = trio.current_time()
    await (await machine.connect()).ask(asking(*[("id", writer.producer, [T0], False)] * 1000))
    assert trio.current_time() - began < 1


async def test_what_was_asked_about_a_partition_without_producers_is_forgotten(nursery, autojump_clock):
    often = {"producer_id_expiration_ms": "100000", "producer_id_expiration_check_interval_ms": "1000"}
    (machine,) = machines = await one_broker(nursery, **often)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    assert await writer.write("u", b"a") is ErrorCode.TRANSACTION_ABORTABLE
    producers = machine.broker.replicas.get("u", 0).log.producers
    assert producers.verification_count == 1
    await trio.sleep(300)
    assert producers.verification_count == 0
