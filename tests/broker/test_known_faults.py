"""Faults of Apache Kafka 3.9 and of other brokers around transactions, each with a test that Barnabas does not have it.

`FAULTS` names the tests; those without a better place stand below.
"""

import ast
import pathlib

import pytest
import trio

from barnabas.coordinators.transactions.state import Status
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import GROUP_TOPIC
from barnabas.world.net import ConnectionLost
from tests.broker.clusters import cluster, create_topic, until
from tests.broker.harness import Machine
from tests.broker.planted_transactions import (
    asking,
    codes,
    marker,
    results,
    shard_of,
    stall_followers,
    statuses,
)
from tests.broker.transactional import T0, T1, THREE, U0, decided, one_broker
from tests.broker.writers import Writer, committed, stable_offset

TESTS = pathlib.Path(__file__).parents[1]
HERE = "broker/test_known_faults.py"
STORIES = "broker/test_transactions.py"
DECISIONS = "coordinators/transactions/test_decide.py"
OWED = "coordinators/transactions/test_owed.py"
SHARDS = "coordinators/runtime/test_shards.py"
VERIFICATION = "storage/test_verification.py"
FORGETTING = "coordinators/groups/test_forgetting.py"
ABORTED = "storage/test_aborted_transactions.py"

# The fault -> (file, test)
FAULTS = {
    "KAFKA-17754: an EndTxn of an abandoned connection ends the next transaction": (
        STORIES, "test_an_end_on_a_connection_given_up_does_not_end_the_next_transaction"),
    "KAFKA-17754: so does an AddPartitionsToTxn or AddOffsetsToTxn": (
        HERE, "test_a_request_on_a_connection_given_up_adds_nothing_to_the_next_transaction"),
    "KAFKA-17754: a TxnOffsetCommit of an abandoned connection sets the offsets of the next transaction back": (
        HERE, "test_offsets_on_a_connection_given_up_do_not_join_the_next_transaction"),
    "a delayed WriteTxnMarkers ends the next transaction": (
        STORIES, "test_markers_that_were_delayed_do_not_end_the_next_transaction"),
    "KAFKA-12671, 14402: a late Produce opens a transaction that never ends": (
        STORIES, "test_a_produce_that_arrives_after_the_end_opens_no_transaction"),
    "a marker is written for a decision that is not committed, and lost": (
        HERE, "test_no_marker_is_written_before_its_decision_is_committed"),
    "a decision that is not committed in time is taken back in memory": (
        HERE, "test_a_decision_that_is_not_committed_in_time_is_not_taken_back"),
    "a log that cannot be read is served in part": (
        SHARDS, "test_of_a_log_that_cannot_be_read_to_its_end_nothing_is_served"),
    "a load ends after the resignation, and its markers are sent": (
        SHARDS, "test_a_load_ends_with_the_leadership_for_which_it_began"),
    "KAFKA-16352: what is left of one transaction removes the next one from those that wait for markers": (
        OWED, "test_an_answer_to_an_older_decision_confirms_nothing"),
    "KAFKA-9777: a decision that no marker follows": (
        STORIES, "test_a_new_coordinator_writes_the_markers_of_a_decision_that_it_finds"),
    "KAFKA-9144: the coordinator epoch of a producer that only got markers expires early": (
        HERE, "test_a_marker_keeps_its_coordinators_epoch_as_long_as_a_record_would"),
    "KAFKA-17507: offsets take effect after the marker was answered": (
        HERE, "test_offsets_take_effect_before_the_marker_is_answered"),
    "KAFKA-16570: who fences a producer with an open transaction has to come back": (
        HERE, "test_an_open_transaction_is_fenced_with_one_request"),
    "KAFKA-19690: a zombie hears that its partition was not added": (
        VERIFICATION, "test_a_fenced_producer_hears_so_before_its_guard_is_looked_at"),
    "a zombie that recovers aborts the transaction of its successor": (
        STORIES, "test_a_zombie_that_recovers_does_not_abort_the_transaction_of_its_successor"),
    "the repetition of the request that gave the last epoch fails": (
        DECISIONS, "test_the_last_epoch_that_is_given_out_is_given_again_to_a_repeated_request"),
    "the epoch 32767 cannot be fenced": (
        DECISIONS, "test_the_highest_epoch_is_fenced_once_more_without_a_higher_one"),
    "an unexpected error of one marker leaves all of the answer undone": (
        OWED, "test_every_error_code_is_final_or_tried_again"),
    "so does a missing row": (OWED, "test_what_an_answer_does_not_name_is_tried_again"),
    "a marker that is refused is given up, also where it was refused for a moment": (
        OWED, "test_every_error_code_is_final_or_tried_again"),
    "a higher epoch is taken into an open transaction": (
        VERIFICATION, "test_a_higher_epoch_never_joins_an_open_transaction"),
    "so it is by TxnOffsetCommit": (HERE, "test_offsets_of_a_higher_epoch_do_not_join_an_open_transaction"),
    "one partition that the coordinator does not know refuses the verification of all": (
        HERE, "test_a_partition_that_the_coordinator_does_not_know_is_refused_alone"),
    "a marker request is never answered": (HERE, "test_every_order_of_good_and_bad_markers_is_answered"),
    "AddPartitionsToTxn of a broker without transactions is never answered": (
        HERE, "test_a_request_for_no_transaction_is_answered"),
    "verifications of one id throw each other out": (
        "coordinators/transactions/test_verification.py",
        "test_a_question_in_the_name_of_an_id_does_not_refuse_its_owner"),
    "verifications that are asked together get the error that one of their clients knows": (
        HERE, "test_each_client_hears_the_error_that_it_knows"),
    "the index of a follower lets a search stop too early": (
        ABORTED, "test_a_follower_indexes_a_chunk_batch_by_batch"),
    "deleted offsets come back with the end of a transaction": (
        FORGETTING, "test_a_deleted_offset_does_not_come_back_with_the_end_of_a_transaction"),
    "and after a restart": (
        "coordinators/groups/test_transactions.py",
        "test_a_tombstone_that_a_later_commit_hides_still_drops_what_was_pending"),
    "the list of aborted transactions ends with its segment": (
        ABORTED, "test_a_transaction_is_listed_whose_marker_is_segments_away"),
    "offsets of an open transaction expire with their group": (
        FORGETTING, "test_offsets_of_an_open_transaction_keep_a_group_alive"),
    "a decision waits for ever for the marker of a deleted partition": (
        STORIES, "test_the_partition_of_a_deleted_topic_needs_no_marker"),
    "records whose numbers were given before, in a transaction that was aborted, are acknowledged and lost": (
        STORIES, "test_numbers_that_are_given_again_after_an_abort_do_not_lose_records"),
    "even if they are the same as the aborted ones": (
        "broker/test_numbers_of_transactions.py", "test_a_record_that_is_made_again_after_its_abort_is_not_lost"),
    "a partition that is missing in the metadata cache is taken for deleted": (
        STORIES, "test_a_partition_that_the_coordinator_has_not_heard_of_yet_gets_its_marker"),
    "two markers of one producer in a request get two rows, of which one is lost": (
        HERE, "test_two_markers_of_a_producer_are_answered_in_one_row"),
    "a transaction is committed although its records are not replicated": (
        HERE, "test_a_record_of_a_transaction_is_acknowledged_when_it_is_replicated"),
    "a coordinator that was stopped answers with offsets from before those that its successor has committed": (
        "broker/test_moving_leaders.py",
        "test_a_coordinator_that_has_not_heard_of_its_successor_does_not_answer_for_it"),
    "and says that a transaction is committed, of the one before": (
        "broker/test_moving_leaders.py",
        "test_a_coordinator_that_has_not_heard_of_its_successor_ends_no_transaction"),
    "a late InitProducerId of a connection that is given up fences the client that has asked again": (
        "broker/test_given_up_connections.py",
        "test_a_late_init_does_not_fence_the_client_that_has_asked_again"),
    "a late EndTxn at a coordinator that was none meanwhile ends a transaction that is not whole": (
        "broker/test_given_up_connections.py",
        "test_a_late_end_at_a_coordinator_that_was_none_meanwhile_is_not_executed"),
    "two late EndTxn there prove each other": (
        "broker/test_given_up_connections.py",
        "test_late_ends_of_two_connections_are_no_proof_of_each_other"),
    "so does a late marker at a leader that was none meanwhile": (
        "broker/test_given_up_connections.py",
        "test_a_late_marker_at_a_leader_that_was_none_meanwhile_is_not_written"),
    "so do late offsets at a group coordinator": (
        "broker/test_given_up_connections.py",
        "test_late_offsets_at_a_coordinator_that_was_none_meanwhile_are_not_stored"),
    "offsets of an aborted transaction that come late are committed with the next": (
        "broker/test_given_up_connections.py",
        "test_late_offsets_of_an_aborted_transaction_are_not_committed_with_the_next"),
    "a leader that was stopped makes a consumer of its successor begin again": (
        "broker/test_moving_leaders.py",
        "test_a_leader_of_the_past_does_not_say_that_a_position_is_lost"),
    "a marker counts as a record": (HERE, "test_a_marker_is_no_record_of_its_producer"),
}  # fmt: skip


@pytest.mark.parametrize("fault", list(FAULTS))
def test_each_fault_has_its_test(fault):
    file, name = FAULTS[fault]
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = [each.name for each in tree.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    assert name in functions


async def test_a_request_on_a_connection_given_up_adds_nothing_to_the_next_transaction(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    old = await machines[0].connect()
    await writer.init()
    await writer.transaction({T0: b"a"})
    await writer.completed()
    await writer.add(T0)
    offsets = m.AddOffsetsToTxnRequest(
        transactional_id="id", producer_id=writer.producer_id, producer_epoch=writer.producer_epoch, group_id="g"
    )
    older = await machines[0].connect()
    writer._clients[machines[0]] = await machines[0].connect()
    await writer.add(T0)
    for client, request, version in ((old, writer.adding(U0), 3), (older, offsets, 4)):
        with pytest.raises(ConnectionLost):
            await client.ask(request, version)
    (topic,) = (await writer.described()).topics
    assert (topic.topic, list(topic.partitions)) == ("t", [0])


async def test_offsets_on_a_connection_given_up_do_not_join_the_next_transaction(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    old = await machines[0].connect()
    row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=10, committed_metadata=""
    )
    late = m.TxnOffsetCommitRequest(
        transactional_id="id",
        group_id="g",
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        topics=[m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
    )
    # It hangs on the way, and is repeated on a later connection.
    writer._clients.clear()
    assert await writer.send_offsets("g", {T0: 10}) is ErrorCode.NONE
    await writer.end(commit=True)
    await writer.completed()
    assert await writer.send_offsets("g", {T0: 20}) is ErrorCode.NONE
    with pytest.raises(ConnectionLost):
        await old.ask(late)
    await writer.end(commit=True)
    await writer.completed()
    assert await writer.committed_offset("g", T0) == 20


async def with_stalled_followers(machines) -> tuple[Writer, Machine]:
    """A writer with an open transaction, of a topic that its coordinator has alone. What the coordinator writes now is
    not committed.
    """
    writer = Writer(machines, "id")
    await writer.init()
    coordinator = await writer.coordinator()
    replicas = [coordinator.serving.broker_id]
    await create_topic(await machines[0].connect(), "t", replicas, min_insync_replicas="1")
    await writer.add(T0)
    assert await writer.write("t", b"a") is ErrorCode.NONE
    await stall_followers(coordinator)
    writer._clients.clear()
    return writer, coordinator


async def test_no_marker_is_written_before_its_decision_is_committed(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        writer, coordinator = await with_stalled_followers(machines)
        client = await coordinator.connect()
        await client.send(writer.ending(commit=True))
        await until(lambda: statuses(coordinator) == {"id": Status.PREPARE_COMMIT}, 5)
        await trio.sleep(5)
        partition = coordinator.broker.replicas.get("t", 0)
        assert (partition.log.log_end_offset, partition.last_stable_offset) == (1, 0)
        # The decision is lost with the coordinator: the next one has never heard of it.
        await coordinator.crash()
        others = [each for each in machines if each is not coordinator]
        await until(lambda: any(not isinstance(shard_of(each), ErrorCode) for each in others), 120)
        await coordinator.start()
        writer._clients.clear()
        assert (await writer.described()).transaction_state == "Ongoing"
        assert await writer.end(commit=False) is ErrorCode.NONE
        await decided(machines)
        assert await committed(machines, "t") == []


async def test_a_decision_that_is_not_committed_in_time_is_not_taken_back(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE, request_timeout_ms="5000") as machines:
        writer, coordinator = await with_stalled_followers(machines)
        client = await coordinator.connect()
        answer = await client.ask(writer.ending(commit=True))
        assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        # Kafka takes the transaction for open again, and aborts it.
        assert (await client.ask(writer.ending(commit=False))).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        assert (await writer.completed()).transaction_state == "CompleteCommit"
        await decided(machines)
        assert await committed(machines, "t") == [b"a"]


async def test_a_marker_keeps_its_coordinators_epoch_as_long_as_a_record_would(nursery, autojump_clock):
    machines = await one_broker(
        nursery, producer_id_expiration_ms="100000", producer_id_expiration_check_interval_ms="1000"
    )
    client = await machines[0].connect()
    assert codes(await client.ask(marker((5, 0), [T0], coordinator_epoch=7))) == [0]
    await trio.sleep(60)
    assert codes(await client.ask(marker((5, 0), [T0], coordinator_epoch=7))) == [0]
    await trio.sleep(60)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert codes(await client.ask(marker((5, 0), [T0], coordinator_epoch=6))) == [fenced]
    await trio.sleep(60)
    assert codes(await client.ask(marker((5, 0), [T0], coordinator_epoch=6))) == [0], "the last marker has expired"


async def test_offsets_take_effect_before_the_marker_is_answered(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    assert await writer.send_offsets("g", {T0: 5}) is ErrorCode.NONE
    client = await machines[0].connect()
    assert await writer.committed_offset("g", T0) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    request = marker(writer.producer, [(GROUP_TOPIC, 0)], commit=True)
    assert codes(await client.ask(request)) == [0]
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = await client.ask(m.OffsetFetchRequest(groups=[asked], require_stable=True))
    assert answer.groups[0].topics[0].partitions[0].committed_offset == 5


async def test_an_open_transaction_is_fenced_with_one_request(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    client = await machines[0].connect()
    answer = await client.ask(m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000))
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, writer.producer_id, 2)
    assert stable_offset(machines, "t") == (2, 2)


@pytest.mark.parametrize("verifies", ["true", "false"])
async def test_offsets_of_a_higher_epoch_do_not_join_an_open_transaction(nursery, autojump_clock, verifies):
    machines = await one_broker(nursery, transaction_partition_verification_enable=verifies)
    writer = Writer(machines, "id")
    await writer.init()
    assert await writer.send_offsets("g", {T0: 5}) is ErrorCode.NONE
    false = Writer(machines, "id")
    false.producer_id, false.producer_epoch = writer.producer_id, writer.producer_epoch + 1
    refused = ErrorCode.INVALID_PRODUCER_EPOCH if verifies == "true" else ErrorCode.INVALID_TXN_STATE
    assert await false.commit_offsets("g", {T1: 9}) is refused
    assert await writer.commit_offsets("g", {T1: 6}) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert (await writer.committed_offset("g", T0), await writer.committed_offset("g", T1)) == (5, 6)


async def test_a_partition_that_the_coordinator_does_not_know_is_refused_alone(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    client = await machines[0].connect()
    for version in (4, 5):
        answer = await client.ask(asking(("id", writer.producer, [("new", 0), T0, U0], True)), version)
        assert results(answer) == {"id": [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ErrorCode.TRANSACTION_ABORTABLE]}


@pytest.mark.parametrize("version", [0, 1])
async def test_every_order_of_good_and_bad_markers_is_answered(nursery, autojump_clock, version):
    machines = await one_broker(nursery)
    client = await machines[0].connect()
    good, bad, twice = marker((5, 0), [T0]), marker((6, 0), [("t", 9)]), marker((7, 0), [T0, T0])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for requests, expected in (
        ((good, bad), [0, unknown]),
        ((bad, good), [unknown, 0]),
        ((twice,), [0]),
        ((bad, twice, good), [unknown, 0, 0]),
        ((), []),
    ):
        request = m.WriteTxnMarkersRequest(markers=[each for every in requests for each in every.markers])
        answer = await client.ask(request, version)
        assert codes(answer) == expected
        assert [each.producer_id for each in answer.markers] == [every.markers[0].producer_id for every in requests]


async def test_two_markers_of_a_producer_are_answered_in_one_row(nursery, autojump_clock):
    machines = await one_broker(nursery)
    markers = [*marker((5, 0), [T0]).markers, *marker((5, 0), [T1, ("t", 9)]).markers]
    (row,) = (await (await machines[0].connect()).ask(m.WriteTxnMarkersRequest(markers=markers))).markers
    found = [(each.partition_index, each.error_code) for topic in row.topics for each in topic.partitions]
    assert (row.producer_id, found) == (5, [(0, 0), (1, 0), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])


@pytest.mark.parametrize("version", [4, 5])
async def test_a_request_for_no_transaction_is_answered(nursery, autojump_clock, version):
    machines = await one_broker(nursery)
    answer = await (await machines[0].connect()).ask(m.AddPartitionsToTxnRequest(transactions=[]), version)
    assert (answer.error_code, answer.results_by_transaction) == (0, [])


async def test_each_client_hears_the_error_that_it_knows(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    request = writer.producing("u", b"a")
    clients = [(await machines[0].connect(), version) for version in (9, 11, 10, 11)]
    for client, version in clients:
        await client.send(request, version)
    found = [(await client.receive()).responses[0].partition_responses[0].error_code for client, _ in clients]
    old, new = ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE
    assert found == [old, new, old, new]


async def test_a_record_of_a_transaction_is_acknowledged_when_it_is_replicated(nursery, autojump_clock):
    async with cluster(nursery, 3, **THREE) as machines:
        writer = Writer(machines, "id")
        await writer.init()
        leader = await writer.coordinator()
        others = [each.serving.broker_id for each in machines if each is not leader]
        await create_topic(await machines[0].connect(), "t", [leader.serving.broker_id, *others])
        await writer.add(T0)
        assert await writer.write("t", b"a") is ErrorCode.NONE
        await stall_followers(leader)
        client = await leader.connect()
        request = writer.producing("t", b"b")
        request.timeout_ms = 3000
        row = (await client.ask(request)).responses[0].partition_responses[0]
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT
        writer._clients.clear()
        leader.net.go_on_reading(leader.serving.advertised[0].port)
        # So its producer sends it again before it commits.
        assert await writer.write("t", b"b") is ErrorCode.NONE
        assert await writer.end(commit=True) is ErrorCode.NONE
        await decided(machines)
        assert await committed(machines, "t") == [b"a", b"b"]


async def test_a_marker_is_no_record_of_its_producer(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    for value, commit in ((b"a", True), (b"b", False), (b"c", True)):
        await writer.transaction({T0: value}, commit=commit)
        await writer.completed()
    # Markers have offsets, and no sequence numbers. `Writer` numbers its records without gaps.
    assert stable_offset(machines, "t") == (6, 6)
    partition = machines[0].broker.replicas.get("t", 0)
    producer = partition.log.producers.get(writer.producer_id)
    assert (producer.last_sequence, producer.last_offset) == (2, 4)
    assert await committed(machines, "t") == [b"a", b"c"]
