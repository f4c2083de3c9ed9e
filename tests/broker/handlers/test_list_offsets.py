"""ListOffsets: ends of a partition, offsets by time, and answers that never go backwards."""

import random

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Record, build_batch
from tests.broker.clock import START_MS
from tests.broker.harness import Machine
from tests.broker.requests import batch_of, list_offsets_request, produce_request

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def at(*offsets_ms: int) -> bytearray:
    """A batch of records that old (milliseconds after the tests' beginning)."""
    records = [Record(0, START_MS + offset, None, b"v", []) for offset in offsets_ms]
    return bytearray(build_batch(records, timestamp_ms=0).data)


async def with_records(nursery, *batches, **configs):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t", **configs)
    for batch in batches:
        assert (await client.produce("t", batch)).error_code == 0
    return machine, client


# -- the ends


async def test_the_latest_offset_is_the_high_watermark_and_a_replicas_the_log_end(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    await client.produce("t", at(0, 1), acks=1)
    assert (await client.list_offset("t", LATEST)).offset == 0
    # Broker 2 does not fetch, so it may lead.
    assert (await client.list_offset("t", LATEST, isolation_level=1)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await client.list_offset("t", LATEST, replica_id=2)).offset == 2
    assert (await client.list_offset("t", START_MS)).offset == -1
    assert (await client.list_offset("t", MAX_TIMESTAMP)).offset == -1
    assert (await client.list_offset("t", START_MS, replica_id=2)).offset == 0


async def test_a_new_leader_that_cannot_know_the_end_says_so(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    me = machine.serving.broker_id
    await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    await client.produce("t", at(0, 5), acks=1)
    await client.give_role(machine, "t", isr=[me, 2], replicas=[me, 2])
    assert (await client.list_offset("t", LATEST)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await client.list_offset("t", LATEST, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await client.list_offset("t", START_MS + 5)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await client.list_offset("t", START_MS + 6)).offset == -1
    assert (await client.list_offset("t", EARLIEST)).offset == 0
    assert (await client.list_offset("t", LATEST, replica_id=2)).offset == 2
    await client.give_role(machine, "t", isr=[me], replicas=[me, 2])
    assert (await client.list_offset("t", LATEST)).offset == 2


async def test_the_log_start_moves_with_retention(nursery, autojump_clock):
    machine = await Machine(nursery, log_retention_check_interval_ms="1000", log_initial_task_delay_ms="0").start()
    client = await machine.connect()
    await client.create_topic("t", segment_bytes="100", retention_bytes="300")
    for _ in range(20):
        await client.produce("t", b"value")
    await trio.sleep(10)
    earliest = (await client.list_offset("t", EARLIEST)).offset
    assert 14 <= earliest <= 18
    assert (await client.fetch("t", earliest - 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert len(await client.read_values("t", earliest)) == 20 - earliest
    assert (await client.list_offset("t", 0)).offset == earliest


# -- by time


@pytest.mark.parametrize(
    ("asked", "offset", "timestamp"),
    [(-1000, 0, 0), (0, 0, 0), (1, 1, 10), (10, 1, 10), (11, 3, 20), (20, 3, 20), (25, 4, 30), (30, 4, 30)],
)
async def test_the_first_record_that_is_not_older_is_found(nursery, autojump_clock, asked, offset, timestamp):
    _, client = await with_records(nursery, at(0, 10), at(5, 20, 30))
    row = await client.list_offset("t", START_MS + asked)
    assert (row.error_code, row.offset, row.timestamp) == (0, offset, START_MS + timestamp)


async def test_the_largest_timestamp_names_its_first_record(nursery, autojump_clock):
    _, client = await with_records(nursery, at(0, 40, 3), at(5, 40))
    row = await client.list_offset("t", MAX_TIMESTAMP)
    assert (row.offset, row.timestamp) == (1, START_MS + 40)


async def test_times_are_found_over_many_segments_and_after_a_crash(nursery, autojump_clock):
    rng = random.Random(3)
    times = [rng.randrange(10_000) for _ in range(120)]
    batches = [at(*times[position : position + 3]) for position in range(0, 120, 3)]
    machine, client = await with_records(nursery, *batches, segment_bytes="700", index_interval_bytes="100")
    for restarted in (False, True):
        if restarted:
            await machine.crash()
            client = await (await machine.start()).connect()
        for asked in (*rng.sample(range(10_000), 30), 0, 9_999):
            expected = next((offset for offset, time in enumerate(times) if time >= asked), -1)
            assert (await client.list_offset("t", START_MS + asked)).offset == expected
        assert (await client.list_offset("t", MAX_TIMESTAMP)).offset == times.index(max(times))


async def test_a_compressed_batch_is_searched_inside(nursery, autojump_clock):
    records = [Record(0, START_MS + offset, None, b"v" * 50, []) for offset in range(50)]
    batch = bytearray(build_batch(records, timestamp_ms=0, codec=1).data)
    _, client = await with_records(nursery, batch)
    assert (await client.list_offset("t", START_MS + 33)).offset == 33


# -- versions and errors


async def test_version_0_answers_the_beginnings_of_segments(nursery, autojump_clock):
    _, client = await with_records(nursery, *[at(10 * number) for number in range(6)], segment_bytes="140")
    expected = {(LATEST, 100): [6, 4, 2, 0], (LATEST, 1): [6], (EARLIEST, 100): [0], (LATEST, 0): []}
    for (timestamp, most), offsets in expected.items():
        request = list_offsets_request([("t", 0, timestamp)], max_num_offsets=most)
        (row,) = (await client.ask(request, 0)).topics[0].partitions
        assert (row.error_code, row.old_style_offsets) == (0, offsets)


@pytest.mark.parametrize(("epoch", "code"), [(-1, 0), (0, 74), (1, 0), (2, 75)])
async def test_the_clients_idea_of_the_leader_epoch_is_checked(nursery, autojump_clock, epoch, code):
    machine, client = await with_records(nursery)
    await client.give_role(machine, "t")
    assert (await client.list_offset("t", LATEST, leader_epoch=epoch)).error_code == code


async def test_who_does_not_lead_says_so(nursery, autojump_clock):
    machine, client = await with_records(nursery)
    await client.give_role(machine, "t", leader=2, isr=[2], replicas=[2, machine.serving.broker_id])
    assert (await client.list_offset("t", LATEST)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_disk_that_fails_under_a_search_takes_its_directory_offline(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    await client.create_topic("t", 2)
    for partition in range(2):
        await client.produce("t", at(0, 10), partition)
    machine.disk.fail_next("read", path_part="/t-0/")
    assert (await client.list_offset("t", START_MS + 5, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.list_offset("t", LATEST, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.list_offset("t", START_MS + 5, 1)).offset == 1


async def test_a_topic_that_is_deleted_under_a_search_takes_no_directory_offline(nursery, autojump_clock):
    machine, client = await with_records(nursery, at(0), at(10))
    other = await machine.connect()
    machine.thread_seconds = 5.0
    # A search for the largest timestamp, which always runs in a thread.
    await client.send(list_offsets_request([("t", 0, MAX_TIMESTAMP)]))
    await trio.sleep(1)
    machine.thread_seconds = 0.001
    await other.delete_topic("t")
    assert (await client.receive()).topics[0].partitions[0].error_code in (3, 6, ErrorCode.KAFKA_STORAGE_ERROR)
    await other.create_topic("t")
    assert (await other.produce("t", at(0))).error_code == 0


# -- never backwards


async def test_what_is_answered_never_goes_backwards_whatever_happens(nursery, autojump_clock):
    rng = random.Random(11)
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t", flush_messages="3", segment_bytes="400")
    last = 0
    for _ in range(120):
        action = rng.random()
        if action < 0.6:
            await client.produce("t", batch_of(b"v"), acks=rng.choice([1, -1]))
        elif action < 0.7:
            await client.give_role(machine, "t")
        elif action < 0.75:
            await machine.crash()
            client = await (await machine.start()).connect()
        elif action < 0.8:
            await machine.stop()
            client = await (await machine.start()).connect()
        row = await client.list_offset("t", LATEST, isolation_level=rng.choice([0, 1]))
        if row.error_code == 0:
            assert row.offset >= last
            last = row.offset
    assert last > 40


async def test_a_reader_beside_many_writers_sees_the_end_rise_only(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    clients = [await machine.connect() for _ in range(5)]
    await clients[0].create_topic("t", flush_messages="2")
    seen = []

    async def write(client):
        for _ in range(20):
            await client.ask(produce_request("t", b"v"))

    async with trio.open_nursery() as writing:
        for client in clients[1:]:
            writing.start_soon(write, client)
        while not seen or seen[-1] < 80:
            seen.append((await clients[0].list_offset("t", LATEST)).offset)
            await trio.sleep(0.0005)
    assert seen == sorted(seen)
    assert len(set(seen)) > 5
    assert isinstance(await clients[0].ask(m.MetadataRequest(topics=[])), m.MetadataResponse)


@pytest.mark.parametrize(("version", "turns_least"), [(0, 1000), (9, 3)])
async def test_a_long_request_leaves_others_their_turns(nursery, autojump_clock, version, turns_least):
    """Version 0 looks at every segment of a partition, as often as it is named."""
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    machine.thread_seconds = 0  # virtual time stands while the others run: no thread would ever end
    asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST, max_num_offsets=1)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    nursery.start_soon(others)
    needed = []
    for count in 1, 2000:
        before = turns
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked] * count)
        await client.ask(m.ListOffsetsRequest(replica_id=-1, topics=[topic]), version)
        needed.append(turns - before)
    assert needed[1] - needed[0] >= turns_least
