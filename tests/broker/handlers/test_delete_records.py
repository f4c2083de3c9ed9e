"""DeleteRecords: which replicas the answer waits for, and what survives a restart."""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine
from tests.broker.requests import batch_of, deletion_request, epoch_request, fetch_request, values_in

EARLIEST, LATEST = -2, -1


async def with_records(nursery, count: int = 10, *, log_dirs: str = "/data", **configs):
    """A topic t with so many records, one a batch, of about 70 bytes each."""
    machine = await Machine(nursery, log_dirs=log_dirs).start()
    client = await machine.connect()
    await client.create_topic("t", **configs)
    for number in range(count):
        assert (await client.produce("t", b"%d" % number)).error_code == 0
    return machine, client


async def delete(client, offset: int, topic: str = "t", partition: int = 0, *, version: int = 2, **fields):
    """The one row of the answer, as (error code, low watermark)."""
    answer = await client.ask(deletion_request((topic, partition, offset), **fields), version)
    ((row,),) = [each.partitions for each in answer.topics]
    return row.error_code, row.low_watermark


async def bring_to_life(client, machine, *others: int) -> None:
    """UpdateMetadata in the controller's name: these brokers live, too."""
    endpoint = m.UpdateMetadataRequest.UpdateMetadataEndpoint(host="h", port=9092, listener="PLAINTEXT")
    update = m.UpdateMetadataRequest(
        controller_id=machine.serving.broker_id,
        controller_epoch=await machine.controller_epoch(),
        broker_epoch=-1,
        live_brokers=[
            m.UpdateMetadataRequest.UpdateMetadataBroker(id=each, endpoints=[endpoint])
            for each in (machine.serving.broker_id, *others)
        ],
    )
    assert (await client.ask(update)).error_code == 0


async def test_what_is_not_committed_cannot_be_deleted(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    await client.produce("t", b"10", acks=1)
    assert await delete(client, 11) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(client, -1) == (0, 10)


async def test_only_the_leader_deletes(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    await client.give_role(machine, "t", leader=2, replicas=[machine.serving.broker_id, 2])
    assert await delete(client, 1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_the_answer_waits_for_live_followers_until_it_times_out(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    me = machine.serving.broker_id
    await bring_to_life(client, machine, 2)
    await client.give_role(machine, "t", isr=[me], replicas=[me, 2])
    before = trio.current_time()
    assert await delete(client, 4, timeout_ms=3000) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert trio.current_time() - before == pytest.approx(3, abs=0.1)
    assert (await client.list_offset("t", EARLIEST)).offset == 4


async def test_a_waiting_deletion_hears_that_the_leadership_is_lost(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    me, other = machine.serving.broker_id, await machine.connect()
    await bring_to_life(client, machine, 2)
    await client.give_role(machine, "t", isr=[me], replicas=[me, 2])
    await client.send(deletion_request(("t", 0, 4), timeout_ms=60_000))
    await trio.sleep(1)
    await other.give_role(machine, "t", leader=2, replicas=[me, 2])
    (topic,) = (await client.receive()).topics
    assert [row.error_code for row in topic.partitions] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_a_dead_follower_is_not_waited_for(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me], replicas=[me, 2])
    assert await delete(client, 4) == (0, 4)


async def test_the_new_start_survives_a_power_failure_right_after_the_answer(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    assert await delete(client, 4) == (0, 4)
    await machine.cut_power(seed=1)
    await machine.start()
    client = await machine.connect()
    assert (await client.list_offset("t", EARLIEST)).offset >= 4


async def test_the_keeper_deletes_the_segments_that_no_consumer_can_read(nursery, autojump_clock):
    machine, client = await with_records(nursery, count=40, segment_bytes="1024", file_delete_delay_ms="1000")
    segments = [name for name in machine.disk.list("/data/t-0") if name.endswith(".log")]
    assert await delete(client, 30) == (0, 30)
    await trio.sleep(400)
    left = [name for name in machine.disk.list("/data/t-0") if name.endswith(".log")]
    assert len(segments) > len(left) >= 1
    assert await client.read_values("t", 30) == [b"%d" % number for number in range(30, 40)]
    await machine.stop()
    client = await (await machine.start()).connect()
    assert (await client.list_offset("t", EARLIEST)).offset == 30


@pytest.mark.parametrize("seed", range(8))
async def test_the_new_start_survives_a_power_failure_after_its_segments_have_gone(nursery, autojump_clock, seed):
    machine, client = await with_records(nursery, segment_bytes="100", flush_messages="1")
    assert await delete(client, 6) == (0, 6)
    await trio.sleep(301 + 61)  # the retention check, and after it the checkpoint of the log starts
    await machine.cut_power(seed)
    await machine.start()
    assert (await (await machine.connect()).list_offset("t", EARLIEST)).offset == 6


async def test_a_directory_that_fails_under_the_checkpoint_is_a_storage_error(nursery, autojump_clock):
    machine, client = await with_records(nursery, log_dirs="/data,/other")
    machine.disk.fail_next("replace_file", path_part="log-start-offset-checkpoint")
    assert await delete(client, 4) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


async def test_a_reader_that_waits_at_the_end_goes_on_waiting(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    other = await machine.connect()
    await client.send(fetch_request([("t", 0, 10)], max_wait_ms=60_000), 12)
    await trio.sleep(1)
    assert await delete(other, -1) == (0, 10)
    assert await client.is_quiet(5)
    await other.produce("t", b"10")
    ((row,),) = [topic.partitions for topic in (await client.receive()).responses]
    assert values_in(row) == [b"10"]


async def test_the_first_epoch_that_is_left_begins_with_the_log(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    await client.give_role(machine, "t")
    await client.produce("t", batch_of(b"10", b"11"))
    assert await delete(client, 11) == (0, 11)
    answer = await client.ask(epoch_request(("t", 0, 0)))
    row = answer.topics[0].partitions[0]
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, 0, 11)
