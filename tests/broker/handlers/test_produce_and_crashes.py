"""Produce: what a crash may cost, and retries after it."""

import random

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from barnabas.wire.errors import ErrorCode
from tests.broker.harness import CrashRecorder, Machine, with_topic
from tests.broker.requests import batch_of, idempotent


@pytest.mark.thorough
@settings(max_examples=30)
@given(
    moments=st.sets(st.integers(0, 250), min_size=1, max_size=4),
    seed=st.integers(0, 2**32),
    producers=st.integers(1, 6),
    segment_bytes=st.sampled_from(["300", "2000", "1000000"]),
)
def test_with_flush_messages_1_a_power_cut_at_any_moment_loses_nothing_acknowledged(
    moments, seed, producers, segment_bytes
):
    trio.run(_cut_power, moments, seed, producers, segment_bytes, clock=MockClock(autojump_threshold=0))


async def _cut_power(moments, seed, producers, segment_bytes):
    acknowledged: list[tuple[int, bytes]] = []
    disk = CrashRecorder(moments, seed, acknowledged.copy)
    disk.is_recording = False
    async with trio.open_nursery() as nursery:
        machine = await Machine(nursery, disk=disk).start()
        client = await machine.connect()
        await client.create_topic("t", flush_messages="1", segment_bytes=segment_bytes)
        disk.is_recording = True
        async with trio.open_nursery() as producing:
            for number in range(producers):
                producing.start_soon(_produce_some, await machine.connect(), number, acknowledged)
        disk.is_recording = False
        await machine.stop()
        for left, promised in disk.left_behind:
            machine.disk = left
            client = await (await machine.start()).connect()
            values = await client.read_values("t")
            assert [values[offset : offset + 1] for offset, _ in promised] == [[value] for _, value in promised]
            assert (await client.produce("t", b"goes on")).base_offset == len(values)
            await machine.crash()
        nursery.cancel_scope.cancel()


async def _produce_some(client, number, acknowledged):
    for sequence in range(12):
        value = b"%d.%d" % (number, sequence)
        batch = batch_of(value, producer_id=number, producer_epoch=0, base_sequence=sequence)
        row = await client.produce("t", batch, acks=-1 if sequence % 2 else 1)
        assert row.error_code == 0
        acknowledged.append((row.base_offset, value))


@pytest.mark.parametrize("seed", range(5))
async def test_a_process_crash_loses_nothing_acknowledged(nursery, autojump_clock, seed):
    machine = await Machine(nursery).start()
    clients = [await machine.connect() for _ in range(4)]
    await clients[0].create_topic("t", segment_bytes="1000")
    acknowledged: list[tuple[int, bytes]] = []
    with trio.CancelScope() as producing:
        async with trio.open_nursery() as inner:
            for number, client in enumerate(clients):
                inner.start_soon(_produce_on, client, number, acknowledged, random.Random(seed), 40, producing)
    await machine.crash()
    client = await (await machine.start()).connect()
    values = await client.read_values("t")
    assert all(values[offset] == value for offset, value in acknowledged)
    assert len(acknowledged) >= 40


async def _produce_on(client, number, acknowledged, rng, enough, scope):
    while len(acknowledged) < enough:
        value = b"%d.%d" % (number, rng.randrange(1000))
        acknowledged.append(((await client.produce("t", value)).base_offset, value))
    scope.cancel()


async def test_a_retry_after_a_crash_is_still_a_duplicate(nursery, autojump_clock):
    machine, client = await with_topic(nursery, segment_bytes="200")
    for number in range(10):
        await client.produce("t", idempotent(number))
    await machine.crash()
    client = await (await machine.start()).connect()
    assert (await client.produce("t", idempotent(9))).base_offset == 9
    assert (await client.produce("t", idempotent(11))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.produce("t", idempotent(10))).base_offset == 10


async def test_a_retry_behind_more_than_five_newer_batches_is_a_duplicate(nursery, autojump_clock):
    """A client retries like this if it sent new batches to a new leader before the old leader had responded."""
    _, client = await with_topic(nursery)
    batches = [idempotent(number) for number in range(10)]
    for _ in range(2):
        assert [(await client.produce("t", batch)).base_offset for batch in batches] == list(range(10))
    never_written = await client.produce("t", idempotent(0, count=2))
    assert never_written.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(await client.read_values("t")) == 10


async def test_other_records_under_numbers_that_are_in_the_log_are_not_taken_for_a_retry(nursery, autojump_clock):
    """So does a producer send that is given an id again, by a metadata store that was put back from a backup."""
    _, client = await with_topic(nursery)
    for number in range(10):
        await client.produce("t", idempotent(number))
    other = batch_of(b"other", producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await client.produce("t", other)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_what_was_not_found_once_is_not_looked_for_again(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    for number in range(10):
        await client.produce("t", idempotent(number))
    batch, visits = idempotent(0, count=2), []
    for _ in range(3):
        before = machine.threads
        assert (await client.produce("t", batch)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        visits.append(machine.threads - before)
    assert visits[0] > 0
    assert visits[1:] == [0, 0]


async def test_a_retry_after_a_restart_is_a_duplicate_though_not_in_the_snapshot(nursery, autojump_clock):
    """Refused as out of order, as Apache Kafka does, all five would be written again under a new epoch."""
    machine, client = await with_topic(nursery)
    batches = [idempotent(number) for number in range(5)]
    for batch in batches:
        await client.produce("t", batch)
    await machine.stop()
    client = await (await machine.start()).connect()
    assert [(await client.produce("t", batch)).base_offset for batch in batches] == [0, 1, 2, 3, 4]
    assert (await client.produce("t", idempotent(6))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(await client.read_values("t")) == 5


async def test_a_disk_that_fails_while_a_duplicate_is_searched_goes_offline(nursery, autojump_clock):
    machine = await Machine(nursery, log_dirs="/a,/b").start()
    client = await machine.connect()
    await client.create_topic("t", 2)
    for number in range(5):
        await client.produce("t", idempotent(number))
    await machine.stop()
    client = await (await machine.start()).connect()
    machine.disk.fail_next("read", path_part="/t-0/")
    assert (await client.produce("t", idempotent(1))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(machine.broker.replicas.logs.offline_directories) == ["/a"]
    assert (await client.produce("t", b"v", 1)).error_code == 0
