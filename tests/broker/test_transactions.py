"""Stories of transactions: what a reader of committed records sees when brokers die and messages arrive late."""

import pytest
import trio

from barnabas.coordinators.transactions.markers import WriteAtOnce
from barnabas.coordinators.transactions.sender import MarkerSender
from barnabas.replication.replicas import Replicas
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TRANSACTION_TOPIC
from barnabas.world.net import ConnectionLost
from tests.broker.clusters import cluster, create_topic, leader_of, until
from tests.broker.requests import produce_many, producers_request
from tests.broker.transactional import T0, T1, THREE, U0, decided, one_broker
from tests.broker.writers import Writer, committed, leader_in, read_committed, stable_offset

# -- all or nothing


async def test_a_transaction_is_seen_when_it_is_committed_and_never_when_it_is_aborted(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0, U0)
    await writer.write("t", b"a")
    await writer.write("u", b"b")
    assert await committed(machines, "t") == await committed(machines, "u") == []
    assert stable_offset(machines, "t") == (0, 1)
    assert await writer.end(commit=True) is ErrorCode.NONE
    await decided(machines, "t")
    await decided(machines, "u")
    assert (await committed(machines, "t"), await committed(machines, "u")) == ([b"a"], [b"b"])
    await writer.transaction({T0: b"x", U0: b"y"}, commit=False)
    await writer.transaction({T0: b"c"})
    await decided(machines, "t")
    await decided(machines, "u")
    assert (await committed(machines, "t"), await committed(machines, "u")) == ([b"a", b"c"], [b"b"])


async def test_records_outside_of_transactions_wait_behind_an_open_one(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    assert (await (await machines[0].connect()).produce("t", b"plain")).error_code == 0
    assert await committed(machines, "t") == []
    await writer.end(commit=False)
    await decided(machines)
    assert await committed(machines, "t") == [b"plain"]


async def test_the_answer_to_a_commit_does_not_wait_for_the_markers(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        one, _, three = machines
        await create_topic(await one.connect(), "t", [3], min_insync_replicas="1")
        writer = Writer(machines, "id")
        await writer.init()
        await writer.add(T0)
        await writer.write("t", b"a")
        await three.crash()
        began = trio.current_time()
        assert await writer.end(commit=True) is ErrorCode.NONE
        assert trio.current_time() - began < 30
        assert (await writer.described()).transaction_state == "PrepareCommit"
        # The marker waits for the partition to have a leader again.
        await three.start()
        await decided(machines)
        assert await committed(machines, "t") == [b"a"]
        assert (await writer.completed()).transaction_state == "CompleteCommit"


async def test_a_partition_without_a_leader_does_not_hold_up_the_markers_of_others(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        one, _, three = machines
        client = await one.connect()
        await create_topic(client, "t", [3], min_insync_replicas="1")
        await create_topic(client, "u", [1, 2])
        writer = Writer(machines, "id")
        await writer.init()
        await writer.add(T0, U0)
        await writer.write("t", b"a")
        await writer.write("u", b"b")
        await three.crash()
        await writer.end(commit=True)
        await decided(machines, "u")
        assert await committed(machines, "u") == [b"b"]
        (topic,) = (await writer.described()).topics
        assert (topic.topic, list(topic.partitions)) == ("t", [0]), "only this one has no marker yet"


async def test_the_partition_of_a_deleted_topic_needs_no_marker(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        one, *_ = machines
        client = await one.connect()
        await create_topic(client, "t", [1, 2])
        await create_topic(client, "u", [2, 1])
        writer = Writer(machines, "id")
        await writer.init()
        await writer.add(T0, U0)
        await writer.write("t", b"a")
        await writer.write("u", b"b")
        await client.delete_topic("u")
        await writer.end(commit=True)
        await decided(machines, "t")
        assert (await writer.completed()).transaction_state == "CompleteCommit"


def send_all_markers(monkeypatch) -> None:
    """Also those that the coordinator's broker could write in one step, as if its partitions had other replicas."""
    monkeypatch.setattr(WriteAtOnce, "__call__", lambda *_: False)


async def test_a_partition_that_the_coordinator_has_not_heard_of_yet_gets_its_marker(
    nursery, autojump_clock, monkeypatch
):
    send_all_markers(monkeypatch)
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    # As if UpdateMetadata were late: the partition's leader learned of it earlier.
    known = machines[0].broker.metadata.topics
    late = known.pop("t")
    await writer.end(commit=True)
    await trio.sleep(10)
    assert (await writer.described()).transaction_state == "PrepareCommit"
    known["t"] = late
    await decided(machines)
    assert await committed(machines, "t") == [b"a"]
    assert (await writer.completed()).transaction_state == "CompleteCommit"


async def test_the_markers_of_own_partitions_are_written_in_the_step_that_decides(nursery, autojump_clock, monkeypatch):
    machines = await one_broker(nursery)
    asked = []
    monkeypatch.setattr(MarkerSender, "_send", lambda *sent: asked.append(sent))
    writer = Writer(machines, "id")
    await writer.init()
    for commit in (True, False):
        await writer.add(T0, U0)
        await writer.write("t", b"a")
        await writer.write("u", b"b")
        await writer.end(commit=commit)
        assert (await writer.described()).transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
        for topic in ("t", "u"):
            stable, high_watermark = stable_offset(machines, topic, 0)
            assert stable == high_watermark
    assert await committed(machines, "t") == [b"a"]
    assert asked == [], "there was no request"


async def test_a_marker_that_cannot_be_written_at_once_is_sent_until_it_is(nursery, autojump_clock, monkeypatch):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0, U0)
    await writer.write("t", b"a")
    await writer.write("u", b"b")
    get, refused = Replicas.get, {"t"}

    def of_an_offline_directory(self, topic, index):
        return ErrorCode.KAFKA_STORAGE_ERROR if topic in refused else get(self, topic, index)

    monkeypatch.setattr(Replicas, "get", of_an_offline_directory)
    await writer.end(commit=True)
    (topic,) = (await writer.described()).topics
    assert topic.topic == "t", "the other one has its marker"
    refused.clear()
    await decided(machines)
    assert await committed(machines, "t") == [b"a"]
    assert (await writer.completed()).transaction_state == "CompleteCommit"


async def test_a_partition_with_other_replicas_gets_one_marker(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1, 2, 3])
        await create_topic(client, "u", [2])
        writer = Writer(machines, "id")
        await writer.init()
        await writer.add(T0, U0)
        await writer.write("t", b"a")
        await writer.write("u", b"b")
        await writer.end(commit=True)
        for topic in ("t", "u"):
            await decided(machines, topic)
            _, high_watermark = stable_offset(machines, topic, 0)
            assert high_watermark == 2, "the record and its marker"
        assert (await writer.completed()).transaction_state == "CompleteCommit"


# -- zombies


async def test_a_zombie_that_recovers_does_not_abort_the_transaction_of_its_successor(nursery, autojump_clock):
    machines = await one_broker(nursery)
    zombie, successor = Writer(machines, "id"), Writer(machines, "id")
    await zombie.init()
    await successor.init()
    await successor.add(T0)
    await successor.write("t", b"a")
    # Kafka aborts the transaction, and then answers that the zombie is fenced.
    assert await zombie.init(recovers=True) is ErrorCode.PRODUCER_FENCED
    assert await successor.end(commit=True) is ErrorCode.NONE
    await decided(machines)
    assert await committed(machines, "t") == [b"a"]


async def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id", timeout_ms=20_000)
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    await trio.sleep(19)
    assert (await writer.described()).transaction_state == "Ongoing"
    await trio.sleep(12)
    assert (await writer.described()).transaction_state == "CompleteAbort"
    assert await writer.write("t", b"b") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await writer.end(commit=True) is ErrorCode.PRODUCER_FENCED
    assert stable_offset(machines, "t") == (2, 2)
    assert await committed(machines, "t") == []
    assert await writer.init() is ErrorCode.NONE
    await writer.transaction({T0: b"c"})
    await decided(machines)
    assert await committed(machines, "t") == [b"c"]


# -- messages that arrive late


@pytest.mark.parametrize("commit", [True, False])
async def test_a_produce_that_arrives_after_the_end_opens_no_transaction(nursery, autojump_clock, commit):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    late = writer.producing("t", b"late")
    await writer.end(commit=commit)
    await decided(machines)
    row = (await (await machines[0].connect()).ask(late)).responses[0].partition_responses[0]
    # Kafka's transactions that hang come from here (KIP-890).
    assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE
    stable, high_watermark = stable_offset(machines, "t")
    assert stable == high_watermark


async def test_numbers_that_are_given_again_after_an_abort_do_not_lose_records(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    assert (await writer.ask_leader("t", 0, writer.producing("t", b"aborted"))).error_code == ErrorCode.NONE
    await writer.end(commit=False)
    await decided(machines)
    await writer.add(T0)
    # As librdkafka does: it has no acknowledgement of the first batch, and gives its number to the next one. Kafka
    # acknowledges this batch as a repetition of the first, and it is lost.
    assert await writer.write("t", b"new") is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_an_end_on_a_connection_given_up_does_not_end_the_next_transaction(nursery, autojump_clock):
    # KAFKA-17754: the producer keeps its epoch, so that Kafka commits half of the next transaction.
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    old = await machines[0].connect()
    await writer.add(T0)
    await writer.write("t", b"a")
    again = await machines[0].connect()
    # The first EndTxn is on its way on `old`, when the client has asked again on another connection.
    assert (await again.ask(writer.ending(commit=True))).error_code == ErrorCode.NONE
    await writer.completed()
    writer._clients[machines[0]] = again
    await writer.add(T0)
    await writer.write("t", b"b")
    with pytest.raises(ConnectionLost):
        await old.ask(writer.ending(commit=True))
    assert (await writer.described()).transaction_state == "Ongoing"
    assert await writer.end(commit=False) is ErrorCode.NONE
    await decided(machines)
    assert await committed(machines, "t") == [b"a"]


async def test_markers_that_were_delayed_do_not_end_the_next_transaction(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    old, later = await machines[0].connect(), await machines[0].connect()
    old.in_flight.client_id = later.in_flight.client_id = "broker-7-txn-marker-sender"
    await writer.transaction({T0: b"a"})
    await decided(machines)
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        transaction_result=True,
        topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=100,
    )
    request = m.WriteTxnMarkersRequest(markers=[marker])
    (result,) = (await later.ask(request)).markers
    assert result.topics[0].partitions[0].error_code == ErrorCode.NONE
    with pytest.raises(ConnectionLost):
        await old.ask(request)


# -- brokers that die


async def test_a_new_coordinator_writes_the_markers_of_a_decision_that_it_finds(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        one, _, three = machines
        await create_topic(await one.connect(), "t", [3], min_insync_replicas="1")
        writer = Writer(machines, "id")
        await writer.init()
        await writer.add(T0)
        await writer.write("t", b"a")
        coordinator = await writer.coordinator()
        if coordinator is three:
            pytest.skip("the coordinator leads the partition, too")
        await three.crash()
        assert await writer.end(commit=True) is ErrorCode.NONE
        await three.start()
        await coordinator.crash()
        rest = [each for each in machines if each is not coordinator]
        await decided(rest)
        assert await committed(rest, "t") == [b"a"]
        assert (await writer.completed()).transaction_state == "CompleteCommit"
        assert await writer.coordinator() is not coordinator


async def test_a_restart_of_every_broker_keeps_transactions_open_and_decided(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        client = await machines[0].connect()
        await create_topic(client, "t", [1, 2, 3])
        await create_topic(client, "u", [2, 3, 1])
        first, second = Writer(machines, "first"), Writer(machines, "second")
        await first.init()
        await second.init()
        await first.transaction({T0: b"a"})
        await second.add(T0, U0)
        await second.write("t", b"b")
        await second.write("u", b"c")
        for machine in machines:
            await machine.crash()
        for machine in machines:
            await machine.start()
        second._clients.clear()
        assert await second.end(commit=True) is ErrorCode.NONE
        await decided(machines, "t")
        await decided(machines, "u")
        assert sorted(await committed(machines, "t")) == [b"a", b"b"]
        assert await committed(machines, "u") == [b"c"]


async def test_a_leader_that_moves_keeps_the_open_transaction(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2, 3, 1])
        writer = Writer(machines, "id")
        await writer.init()
        await writer.add(T0)
        await writer.write("t", b"a")
        await two.crash()
        rest = [one, three]
        await leader_of(rest, "t")
        assert await writer.write("t", b"b") is ErrorCode.NONE
        assert await writer.end(commit=True) is ErrorCode.NONE
        await decided(rest)
        await until(lambda: leader_in(rest, "t", 0) is not None)
        assert await committed(rest, "t") == [b"a", b"b"]
        # Each replica says the same, also one that missed it.
        await two.start()
        await until(lambda: all(_has_all(each) for each in machines), 60)
        states = [await _producer_of(each, writer) for each in machines]
        assert states[0] == states[1] == states[2]
        assert [await read_committed(leader_in(machines, "t", 0), "t")] == [[b"a", b"b"]]


def _has_all(machine) -> bool:
    found = machine.broker.replicas.get("t", 0)
    return not isinstance(found, ErrorCode) and found.log is not None and found.log.log_end_offset == 3


async def _producer_of(machine, writer) -> tuple:
    answer = await (await machine.connect()).ask(producers_request(T0))
    (state,) = answer.topics[0].partitions[0].active_producers
    assert state.producer_id == writer.producer_id
    return state.producer_epoch, state.last_sequence, state.coordinator_epoch, state.current_txn_start_offset


# -- offsets of groups

GROUPS = THREE | {"offsets_topic_replication_factor": "3", "offsets_topic_num_partitions": "1"}


async def test_an_init_whose_client_has_gone_does_not_fence_its_repetition(nursery, autojump_clock, monkeypatch):
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.transaction({T0: b"a"})
    await writer.completed()
    await writer.add(T0)
    send_all_markers(monkeypatch)
    send = MarkerSender._send

    async def slow(self, broker_id, taken):
        await trio.sleep(0.1)
        return await send(self, broker_id, taken)

    monkeypatch.setattr(MarkerSender, "_send", slow)
    await writer.end(commit=True)
    before = (await writer.described()).producer_epoch
    # It waits for the markers, and its client connects again meanwhile.
    client = await machine.connect()
    await client.send(m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000))
    await trio.sleep(0.02)
    client.close()
    await writer.completed()
    assert (await writer.described()).producer_epoch == before


async def test_a_partition_that_arrives_while_another_is_verified_is_not_refused(nursery, autojump_clock, monkeypatch):
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0, U0)
    get, verify, hosted = Replicas.get, machine.broker.verification.verify, []

    def get_late(self, topic, index):
        """Its LeaderAndIsr comes during the verification."""
        return get(self, topic, index) if topic != "u" or hosted else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def verify_long(*asked):
        hosted.append(True)
        return await verify(*asked)

    monkeypatch.setattr(Replicas, "get", get_late)
    monkeypatch.setattr(machine.broker.verification, "verify", verify_long)
    batch = writer.producing("t", b"a").topic_data[0].partition_data[0].records
    request = produce_many({T0: bytearray(batch), U0: bytearray(batch)}, name="id")
    answer = await (await machine.connect()).ask(request)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"t": ErrorCode.NONE, "u": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_a_zombie_cannot_commit_offsets(nursery, autojump_clock):
    machines = await one_broker(nursery)
    zombie, successor = Writer(machines, "id"), Writer(machines, "id")
    await zombie.init()
    assert await zombie.send_offsets("g", {T0: 1}) is ErrorCode.NONE
    await successor.init()
    assert await successor.committed_offset("g", T0) == -1
    assert await zombie.commit_offsets("g", {T0: 2}) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await successor.send_offsets("g", {T0: 3}) is ErrorCode.NONE
    await successor.end(commit=True)
    await successor.completed()
    assert await successor.committed_offset("g", T0) == 3


@pytest.mark.parametrize("commit", [True, False])
async def test_a_group_coordinator_that_moves_between_offset_and_marker_loses_nothing(nursery, autojump_clock, commit):
    async with cluster(nursery, 3, **GROUPS) as machines:
        await create_topic(await machines[0].connect(), "t", [1, 2, 3])
        writer = Writer(machines, "id")
        await writer.init()
        assert await writer.send_offsets("g", {T0: 5}) is ErrorCode.NONE
        await writer.end(commit=True)
        await writer.completed()
        assert await writer.send_offsets("g", {T0: 9}) is ErrorCode.NONE
        coordinator = leader_in(machines, "__consumer_offsets", 0)
        await coordinator.crash()
        rest = [each for each in machines if each is not coordinator]
        await leader_of(rest, "__consumer_offsets")
        assert await writer.committed_offset("g", T0) is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert await writer.committed_offset("g", T0, stable=False) == 5
        assert await writer.end(commit=commit) is ErrorCode.NONE
        await writer.completed()
        assert await writer.committed_offset("g", T0) == (9 if commit else 5)


# -- ids


async def test_an_unused_id_is_forgotten_and_its_client_gets_a_new_producer_id(nursery, autojump_clock):
    machines = await one_broker(
        nursery, transactional_id_expiration_ms="60000",
        transaction_remove_expired_transaction_cleanup_interval_ms="10000",
    )  # fmt: skip
    writer, busy = Writer(machines, "id"), Writer(machines, "busy", timeout_ms=900_000)
    await writer.init()
    await busy.init()
    await busy.add(T0)
    before = writer.producer
    await trio.sleep(80)
    assert (await writer.described()).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (await busy.described()).transaction_state == "Ongoing"
    assert await writer.add(T0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await writer.init(recovers=True) is ErrorCode.NONE
    assert writer.producer_id != before[0]


async def test_an_epoch_that_is_used_up_gives_a_new_producer_id(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    first_id = writer.producer_id
    state = machines[0].broker.transactions
    shard = state.runtime.find(0)
    known = shard.state.by_name["id"]
    known.recorded = known.recorded._replace(producer_epoch=32_765)
    await writer.init()
    assert writer.producer == (first_id, 32_766)
    await writer.transaction({T0: b"a"})
    await writer.completed()
    await writer.init()
    assert (writer.producer_epoch, writer.producer_id != first_id) == (0, True)
    await writer.transaction({T0: b"b"})
    await decided(machines)
    assert await committed(machines, "t") == [b"a", b"b"]


async def test_a_marker_for_a_partition_without_replica_here_is_refused_as_unknown(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        one, *_ = machines
        client = await one.connect()
        await create_topic(client, "t", [2, 3])
        Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
        topic = m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])
        marker = Marker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[topic], coordinator_epoch=0)
        (row,) = (await client.ask(m.WriteTxnMarkersRequest(markers=[marker]))).markers[0].topics[0].partitions
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_administrators_see_ids_and_their_transactions(nursery, autojump_clock):
    machines = await one_broker(nursery)
    one, two = Writer(machines, "one"), Writer(machines, "two")
    await one.init()
    await two.init()
    await two.add(T1, U0)
    row = await two.described()
    assert (row.transaction_state, row.transaction_timeout_ms, row.producer_id) == ("Ongoing", 60_000, two.producer_id)
    assert [(each.topic, list(each.partitions)) for each in row.topics] == [("t", [1]), ("u", [0])]
    client = await machines[0].connect()
    await trio.sleep(5)

    async def listed(**filters) -> list[str]:
        answer = await client.ask(m.ListTransactionsRequest(**filters))
        assert answer.error_code == 0
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert await listed() == ["one", "two"]
    assert await listed(state_filters=["Ongoing"]) == ["two"]
    assert await listed(producer_id_filters=[one.producer_id]) == ["one"]
    assert await listed(duration_filter=4000, state_filters=["Ongoing"]) == ["two"]
    assert await listed(duration_filter=6000, state_filters=["Ongoing"]) == []
    answer = await client.ask(m.ListTransactionsRequest(state_filters=["None"]))
    assert (list(answer.unknown_state_filters), answer.transaction_states) == (["None"], [])


async def test_the_topic_of_transactions_has_kafkas_settings(nursery, autojump_clock):
    machines = await one_broker(nursery)
    await Writer(machines, "id").init()
    config = machines[0].broker.replicas.get(TRANSACTION_TOPIC, 0).config
    assert (config.cleanup_policy, config.compression_type, config.min_insync_replicas) == (
        {"compact"}, "uncompressed", 1
    )  # fmt: skip
