"""Sequence numbers of transactional batches that are given again, or have a gap before them."""

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TRANSACTION_TOPIC
from tests.broker.transactional import T0, decided, one_broker
from tests.broker.writers import Writer, committed


async def test_a_record_that_is_made_again_after_its_abort_is_not_lost(nursery, autojump_clock):
    machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    record = writer.producing("t", b"a")
    assert (await writer.ask_leader("t", 0, record)).error_code == ErrorCode.NONE
    await writer.end(commit=False)
    await decided(machines)
    await writer.add(T0)
    # The application does its work again. Number, time and content are those of the aborted record, but no client
    # repeats that one: it would be acknowledged, and not be there.
    assert (await writer.ask_leader("t", 0, record)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_batch_behind_one_that_could_not_be_verified_is_sent_again_with_it(nursery, autojump_clock):
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    client, first = await machine.connect(), writer.producing("t", b"a")
    writer.sequences[T0] = 1
    second = writer.producing("t", b"b")

    async def code_of(request: m.ProduceRequest) -> int:
        return (await client.ask(request)).responses[0].partition_responses[0].error_code

    transactions, partition = machine.broker.transactions, machine.broker.replicas.get(TRANSACTION_TOPIC, 0)
    transactions.runtime.on_resigned(0, partition.leader_epoch)
    assert await code_of(first) == ErrorCode.NOT_ENOUGH_REPLICAS
    transactions.runtime.on_elected(partition)
    await writer.described()
    # OUT_OF_ORDER_SEQUENCE_NUMBER would end the transaction of librdkafka, which has sent both at once.
    assert await code_of(second) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [await code_of(first), await code_of(second)] == [ErrorCode.NONE] * 2
    assert await writer.end(commit=True) is ErrorCode.NONE
    await decided(machines)
    assert await committed(machines, "t") == [b"a", b"b"]
