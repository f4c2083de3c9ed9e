"""Requests about transactions on one broker: what one answers that knows none, and the form of answers, as Kafka's."""

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import LOG_APPEND_TIME, TRANSACTIONAL
from tests.broker.harness import Machine
from tests.broker.requests import batch_of, fetch_request
from tests.broker.writers import Writer, batches_in


async def test_a_transactional_id_has_no_coordinator_before_its_topic_exists(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    asked = m.DescribeTransactionsRequest(transactional_ids=["b", "", "b"])
    rows = (await client.ask(asked)).transaction_states
    assert [(row.transactional_id, row.error_code) for row in rows] == [("b", 16), ("", 42), ("b", 16)]
    await client.create_topic("__transaction_state", 3)
    rows = (await client.ask(asked)).transaction_states
    assert [row.error_code for row in rows] == [105, 42, 105]


@pytest.mark.parametrize("version", range(2))
async def test_the_list_of_transactions_is_empty_and_names_unknown_states(nursery, autojump_clock, version):
    client = await (await Machine(nursery).start()).connect()
    wanted = ["Ongoing", "nonsense", "ongoing", "PrepareEpochFence", "Dead", "nonsense"]
    answer = await client.ask(m.ListTransactionsRequest(state_filters=wanted, producer_id_filters=[1]), version)
    assert (answer.error_code, answer.transaction_states) == (0, [])
    assert answer.unknown_state_filters == ["nonsense", "ongoing"]


# -- the form of answers, as compared with Kafka's


async def writer_and_client(nursery, *, verifies="true", **configs):
    """A producer with a transactional id and its connection, and topics t and u; t has two partitions."""
    properties = {"transaction_partition_verification_enable": verifies, "transaction_state_log_num_partitions": "1"}
    machine = await Machine(nursery, **properties).start()
    writer = Writer([machine], "id")
    client = await writer.client(machine)
    await client.create_topic("t", 2, **configs)
    await client.create_topic("u")
    await writer.init()
    return writer, client


def rows_of(topics):
    return [(topic.name, [row.partition_index for row in topic.results_by_partition]) for topic in topics]


async def test_what_the_coordinator_says_is_answered_in_the_form_of_the_request(nursery, autojump_clock):
    writer, client = await writer_and_client(nursery)
    Topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    request = writer.adding()
    request.v3_and_below_topics = [Topic(name="t", partitions=[1, 1]), Topic(name="u", partitions=[])]
    answer = await client.ask(request, 3)
    assert rows_of(answer.results_by_topic_v3_and_below) == [("t", [1, 1]), ("u", [])]
    # What is decided about each partition is answered once for each.
    request.v3_and_below_topics.append(Topic(name="nope", partitions=[0, 0]))
    answer = await client.ask(request, 3)
    assert rows_of(answer.results_by_topic_v3_and_below) == [("t", [1]), ("nope", [0])]


async def test_a_marker_without_partitions_has_no_row(nursery, autojump_clock):
    _, client = await writer_and_client(nursery)
    Marker = m.WriteTxnMarkersRequest.WritableTxnMarker
    marker = Marker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[], coordinator_epoch=0)
    assert (await client.ask(m.WriteTxnMarkersRequest(markers=[marker]))).markers == []


async def test_a_marker_says_that_the_topic_has_the_time_of_the_append(nursery, autojump_clock):
    writer, client = await writer_and_client(nursery, message_timestamp_type="LogAppendTime")
    await writer.transaction({("t", 0): b"a"})
    await writer.completed()
    row = (await client.ask(fetch_request([("t", 0, 0)]), 12)).responses[0].partitions[0]
    assert [header.attributes & LOG_APPEND_TIME for header, _ in batches_in(row)] == [LOG_APPEND_TIME] * 2


async def test_a_topic_without_partitions_has_no_row_among_committed_offsets(nursery, autojump_clock):
    writer, client = await writer_and_client(nursery)
    topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name="t", partitions=[])
    request = m.TxnOffsetCommitRequest(
        transactional_id="id", group_id="g", producer_id=writer.producer_id, producer_epoch=0, topics=[topic]
    )
    assert (await client.ask(request)).topics == []


async def test_metadata_that_are_too_long_are_refused_as_such_whatever_the_others_hear(nursery, autojump_clock):
    writer, client = await writer_and_client(nursery, verifies="false")
    await writer.send_offsets("g", {("t", 0): 1})
    row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    topic = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
        name="t",
        partitions=[
            row(partition_index=0, committed_offset=5, committed_metadata="x" * 4097),
            row(partition_index=1, committed_offset=5, committed_metadata="x" * 4096),
        ],
    )
    # Of an epoch that cannot join the open transaction.
    request = m.TxnOffsetCommitRequest(
        transactional_id="id", group_id="g", producer_id=writer.producer_id, producer_epoch=9, topics=[topic]
    )
    found = [each.error_code for each in (await client.ask(request)).topics[0].partitions]
    assert found == [ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_TXN_STATE]


async def test_a_transactional_batch_without_producer_belongs_to_no_transaction(nursery, autojump_clock):
    _, client = await writer_and_client(nursery)
    batch = batch_of(b"v", attributes=TRANSACTIONAL)
    assert (await client.produce("t", batch, transactional_id="id")).error_code == 0
    assert (await client.produce("t", batch)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_a_batch_for_an_internal_topic_is_verified_before_it_is_refused(nursery, autojump_clock):
    writer, client = await writer_and_client(nursery)
    batch = batch_of(b"v", attributes=TRANSACTIONAL, producer_id=writer.producer_id, producer_epoch=0, base_sequence=0)
    row = await client.produce("__transaction_state", batch, transactional_id="id")
    assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE


async def test_batches_of_several_producers_fail_a_request_but_only_those_that_count(nursery, autojump_clock):
    writer, client = await writer_and_client(nursery)
    await writer.add(("t", 0), ("t", 1))
    Topic, Partition = m.ProduceRequest.TopicProduceData, m.ProduceRequest.PartitionProduceData

    def asked(*parts):
        partitions = [
            Partition(
                index=index,
                records=batch_of(
                    b"v", attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, base_sequence=0
                ),
            )
            for index, producer_id in parts
        ]
        topics = [Topic(name="t", partition_data=partitions)]
        return m.ProduceRequest(transactional_id="id", acks=-1, timeout_ms=1000, topic_data=topics)

    async def codes(*parts):
        rows = (await client.ask(asked(*parts), 11)).responses[0].partition_responses
        return {row.error_code for row in rows}

    own, other = writer.producer_id, writer.producer_id + 1000
    assert await codes((0, own), (1, other)) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    # Of a partition that is named twice the last batch counts.
    assert await codes((0, own), (1, other), (1, own)) == {ErrorCode.NONE}
