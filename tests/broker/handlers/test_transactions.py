"""Requests about transactions on one broker: before there is a coordinator, and errors that come before others."""

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import TRANSACTIONAL
from tests.broker.harness import Machine
from tests.broker.requests import batch_of
from tests.broker.writers import Writer


async def test_a_transactional_id_has_no_coordinator_before_its_topic_exists(nursery, autojump_clock):
    client = await (await Machine(nursery).start()).connect()
    asked = m.DescribeTransactionsRequest(transactional_ids=["b", "", "b"])
    rows = (await client.ask(asked)).transaction_states
    assert [(row.transactional_id, row.error_code) for row in rows] == [("b", 16), ("", 42), ("b", 16)]
    await client.create_topic("__transaction_state", 3)
    rows = (await client.ask(asked)).transaction_states
    assert [row.error_code for row in rows] == [105, 42, 105]


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


async def test_a_batch_for_an_internal_topic_is_verified_before_it_is_refused(nursery, autojump_clock):
    writer, client = await writer_and_client(nursery)
    batch = batch_of(b"v", attributes=TRANSACTIONAL, producer_id=writer.producer_id, producer_epoch=0, base_sequence=0)
    row = await client.produce("__transaction_state", batch, transactional_id="id")
    assert row.error_code == ErrorCode.TRANSACTION_ABORTABLE
