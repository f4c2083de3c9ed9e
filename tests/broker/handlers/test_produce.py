"""Produce: acknowledgements, replicas in sync, leaders that change, group commit."""

import random

import pytest
import trio

from barnabas.storage.memdisk import MemDisk
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.clock import now_ms
from tests.broker.harness import Machine, with_topic
from tests.broker.requests import batch_of, idempotent, produce_many, produce_request

# -- acknowledgements


async def test_with_acks_0_nothing_is_sent_and_the_next_answer_is_the_next_requests(nursery, autojump_clock):
    _, client = await with_topic(nursery)
    await client.send(produce_request("t", b"silent", acks=0))
    assert await client.is_quiet()
    assert (await client.produce("t", b"loud")).base_offset == 1
    assert await client.read_values("t") == [b"silent", b"loud"]


async def test_with_acks_0_an_error_closes_the_connection_after_all_were_stored(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.send(produce_many({("unknown", 0): b"x", ("t", 0): b"stored"}, acks=0))
    assert await client.is_closed(within_seconds=1)
    assert await (await machine.connect()).read_values("t") == [b"stored"]


async def test_null_records_are_refused_which_kafka_does_not_answer(nursery, autojump_clock):
    _, client = await with_topic(nursery)
    assert (await client.produce("t", None)).error_code == ErrorCode.INVALID_RECORD


async def test_log_append_time_is_reported_and_written(nursery, autojump_clock):
    _, client = await with_topic(nursery, message_timestamp_type="LogAppendTime")
    await trio.sleep(100)
    row = await client.produce("t", batch_of(b"v"))
    assert row.log_append_time_ms == pytest.approx(now_ms(), abs=100)
    assert (await client.list_offset("t", -3)).timestamp == row.log_append_time_ms


async def test_large_batches_go_through_a_thread_and_come_out_the_same(nursery, autojump_clock):
    _, client = await with_topic(nursery)
    value = random.Random(1).randbytes(300_000)
    assert (await client.produce("t", value)).error_code == 0
    assert await client.read_values("t") == [value]


async def test_transactional_batches_are_refused_without_a_coordinator_to_ask(nursery, autojump_clock):
    _, client = await with_topic(nursery)
    batch = batch_of(b"v", attributes=16, producer_id=7, producer_epoch=0, base_sequence=0)
    row = await client.produce("t", batch, transactional_id="tx")
    assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "every client repeats it"
    assert row.error_message.endswith("Underlying error: COORDINATOR_NOT_AVAILABLE")
    assert (await client.produce("t", batch)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    other = batch_of(b"v", attributes=16, producer_id=8, producer_epoch=0, base_sequence=0)
    await client.create_topic("u")
    answer = await client.ask(produce_many({("t", 0): batch, ("u", 0): other}, name="tx"))
    codes = [topic.partition_responses[0].error_code for topic in answer.responses]
    assert codes == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2, "a request belongs to one transaction"
    control = batch_of(b"v", attributes=32, producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await client.produce("t", control)).error_code == ErrorCode.INVALID_RECORD
    assert await client.read_values("t") == []


# -- the in-sync replicas


async def test_acks_all_waits_for_the_high_watermark_and_times_out_but_the_record_stays(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    me = machine.serving.broker_id
    assert await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2]) == 0
    began = trio.current_time()
    row = await client.produce("t", b"v", timeout_ms=3000)
    assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    assert trio.current_time() == pytest.approx(began + 3, abs=0.1)
    assert (await client.produce("t", b"w", acks=1)).base_offset == 1
    assert await client.read_values("t") == []
    assert await client.give_role(machine, "t", isr=[me], replicas=[me, 2]) == 0
    assert await client.read_values("t") == [b"v", b"w"]


async def test_acks_all_is_answered_when_the_in_sync_replicas_shrink(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    await client.send(produce_request("t", b"v", timeout_ms=60_000))
    await trio.testing.wait_all_tasks_blocked()
    controller = await machine.connect()
    await controller.give_role(machine, "t", isr=[me], replicas=[me, 2])
    assert (await client.receive()).responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_too_few_in_sync_replicas_refuse_acks_all_only(nursery, autojump_clock):
    machine, client = await with_topic(nursery, min_insync_replicas="2")
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me], replicas=[me, 2])
    assert (await client.produce("t", b"v")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await client.produce("t", b"v", acks=1)).error_code == 0
    assert await client.read_values("t") == [], "what too few replicas hold is not committed"


async def lose_by_new_leader(machine, client):
    assert await client.give_role(machine, "t", leader=2, isr=[2], replicas=[machine.serving.broker_id, 2]) == 0


async def lose_by_stop(machine, client):
    assert await client.stop_replica(machine, "t") == 0


async def lose_by_deletion(machine, client):
    await client.delete_topic("t")


@pytest.mark.parametrize("lose", [lose_by_new_leader, lose_by_stop, lose_by_deletion])
async def test_a_produce_that_waits_is_answered_when_the_leadership_is_lost(nursery, autojump_clock, lose):
    machine, client = await with_topic(nursery)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    await client.send(produce_request("t", b"v", timeout_ms=60_000))
    await trio.testing.wait_all_tasks_blocked()
    began = trio.current_time()
    await lose(machine, await machine.connect())
    row = (await client.receive()).responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    assert trio.current_time() < began + 1


@pytest.mark.parametrize("lose", [lose_by_new_leader, lose_by_stop, lose_by_deletion])
async def test_a_leadership_that_is_lost_while_a_large_batch_is_checked_appends_nothing(nursery, autojump_clock, lose):
    machine, client = await with_topic(nursery)
    other = await machine.connect()
    await other.give_role(machine, "t")
    machine.thread_seconds = 5.0
    await client.send(produce_request("t", bytes(300_000)))
    await trio.sleep(1)
    machine.thread_seconds = 0.001
    await lose(machine, other)
    row = (await client.receive()).responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    if lose is not lose_by_deletion:
        await other.give_role(machine, "t")
        assert await other.read_values("t") == []


async def test_a_topic_made_again_while_a_large_batch_is_checked_does_not_get_it(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    other = await machine.connect()
    machine.thread_seconds = 5.0
    await client.send(produce_request("t", bytes(300_000)))
    await trio.sleep(1)
    machine.thread_seconds = 0.001
    await other.delete_topic("t")
    await other.create_topic("t")
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 6
    assert await other.read_values("t") == []


async def test_who_is_not_the_leader_says_who_is(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await lose_by_new_leader(machine, client)
    answer = await client.ask(produce_request("t", b"v"), 10)
    (row,) = answer.responses[0].partition_responses
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 1)  # before UpdateMetadata says so
    assert list(answer.node_endpoints) == []  # the broker does not have the address of broker 2 yet
    assert (await client.produce("t", b"v", version=9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- idempotence


async def test_a_duplicate_waits_for_the_high_watermark_as_its_original_did(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    assert (await client.produce("t", idempotent(0), timeout_ms=1000)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await client.produce("t", idempotent(0), timeout_ms=1000)).error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (await client.produce("t", idempotent(0), acks=1)).base_offset == 0
    await client.give_role(machine, "t", isr=[me], replicas=[me, 2])
    assert (await client.produce("t", idempotent(0))).base_offset == 0
    assert len(await client.read_values("t")) == 1


async def test_producers_that_come_together_get_different_ids(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    given_ids = []

    async def ask(client):
        given_ids.append((await client.ask(m.InitProducerIdRequest(transactional_id=None))).producer_id)

    async with trio.open_nursery() as asking:
        for _ in range(50):
            asking.start_soon(ask, await machine.connect())
    assert len(set(given_ids)) == 50
    assert min(given_ids) >= 0


# -- group commit


class CountingDisk(MemDisk):
    """Counts syncs of logs, each of which takes a while."""

    syncs = 0

    def check_fault(self, operation, path):
        if operation == "sync" and path.endswith(".log"):
            self.syncs += 1
        super().check_fault(operation, path)


async def test_with_flush_messages_1_an_answer_waits_for_the_sync(nursery, autojump_clock):
    machine, client = await with_topic(nursery, flush_messages="1")
    machine.thread_seconds = 2.0
    for acks in (1, -1):
        began = trio.current_time()
        assert (await client.produce("t", b"v", acks=acks)).error_code == 0
        assert trio.current_time() >= began + 2


async def test_without_flush_messages_it_does_not(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    machine.thread_seconds = 2.0
    began = trio.current_time()
    assert (await client.produce("t", b"v")).error_code == 0
    assert trio.current_time() < began + 0.1


async def test_what_is_not_synced_is_not_read_either(nursery, autojump_clock):
    machine, client = await with_topic(nursery, flush_messages="1")
    reader = await machine.connect()
    machine.thread_seconds = 5.0
    await client.send(produce_request("t", b"v"))
    await trio.sleep(1)
    assert await reader.read_values("t") == []
    assert (await reader.list_offset("t", -1)).offset == 0
    assert (await client.receive()).responses[0].partition_responses[0].error_code == 0
    assert await reader.read_values("t") == [b"v"]


async def test_a_hundred_producers_share_syncs(nursery, autojump_clock):
    machine = await Machine(nursery, disk=CountingDisk(now_ms=now_ms)).start()
    clients = [await machine.connect() for _ in range(100)]
    await clients[0].create_topic("t", 4, flush_messages="1")
    machine.thread_seconds = 0.01
    machine.disk.syncs, began = 0, trio.current_time()
    codes = []

    async def work(client, number):
        for _ in range(5):
            row = await client.produce("t", b"v", number % 4)
            codes.append(row.error_code)

    async with trio.open_nursery() as working:
        for number, client in enumerate(clients):
            working.start_soon(work, client, number)
    assert codes == [0] * 500
    assert machine.disk.syncs <= 50
    assert trio.current_time() - began < 0.2


async def test_a_failed_sync_acknowledges_nothing_that_waited_for_it(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    clients = [await machine.connect() for _ in range(10)]
    await clients[0].create_topic("t", 2, flush_messages="1")
    (directory,) = [path for path in ("/a", "/b") if machine.disk.exists(f"{path}/t-0")]
    machine.disk.fail_next("sync", path_part=f"{directory}/t-0")
    for client in clients:
        await client.send(produce_request("t", b"v"))
    rows = [(await client.receive()).responses[0].partition_responses[0] for client in clients]
    assert {row.error_code for row in rows} <= {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (await clients[0].produce("t", b"v")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await clients[0].produce("t", b"v", 1)).error_code == 0
