"""Fetch within sessions: turns of partitions, what wakes a session, and how many there may be (KIP-227)."""

import random

import trio

from barnabas.replication.fetch_sessions import PARTITIONS_PER_SLOT
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.fetching import only_row, with_records, with_topic
from tests.broker.handlers.sessions import Session
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, records_in, values_in


async def in_session(nursery, partitions=3, count=0, **configs):
    machine, client, _ = await with_records(nursery, count, partitions=partitions, **configs)
    session = Session(client)
    rows = await session.rows([("t", each, count) for each in range(partitions)])
    assert list(rows) == list(range(partitions))
    assert session.session_id > 0
    return machine, session, await machine.connect()


async def test_the_first_answer_in_another_leader_epoch_has_the_offsets_again(nursery, autojump_clock):
    # A follower has ignored a row of the epoch before if its role changed while the row was under way.
    _, session, _ = await in_session(nursery)
    assert await session.rows([("t", 1, 0)]) == {}
    assert list(await session.rows([("t", 1, 0)], leader_epoch=0)) == [1]
    assert await session.rows([("t", 1, 0)], leader_epoch=0) == {}


async def test_a_waiting_session_is_woken_by_an_append(nursery, autojump_clock):
    _, session, other = await in_session(nursery)
    answers = []

    async def wait():
        answers.append(await session.rows(max_wait_ms=60_000))

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await trio.sleep(5)
        began = trio.current_time()
        await other.produce("t", b"v", 2)
    assert list(answers[0]) == [2]
    assert trio.current_time() < began + 0.1


async def test_data_that_did_not_fit_comes_first_in_the_next_answer(nursery, autojump_clock):
    _, session, other = await in_session(nursery)
    for partition in range(3):
        await other.produce("t", bytes(1000), partition)
    seen = []
    positions = []
    for _ in range(3):
        rows = await session.rows(positions, max_bytes=1200)
        full = [index for index, row in rows.items() if row.records]
        assert len(full) == 1
        seen += full
        positions = [("t", full[0], 1)]
    assert sorted(seen) == [0, 1, 2]
    assert {index for index, row in (await session.rows(positions)).items() if row.records} == set()


async def test_a_partition_that_always_has_data_does_not_starve_the_others(nursery, autojump_clock):
    _, session, other = await in_session(nursery)
    for partition in range(3):
        for _ in range(5):
            await other.produce("t", bytes(1000), partition)
    offsets, positions = [0, 0, 0], []
    for _ in range(15):
        rows = await session.rows(positions, max_bytes=1200)
        ((index, row),) = [(index, row) for index, row in rows.items() if row.records]
        offsets[index] = records_in(row)[-1].offset + 1
        positions = [("t", index, offsets[index])]
        assert max(offsets) - min(offsets) <= 2
    assert offsets == [5, 5, 5]


async def test_a_high_watermark_and_a_log_start_that_moved_are_reported(nursery, autojump_clock):
    machine, session, other = await in_session(nursery)
    me = machine.serving.broker_id
    await other.give_role(machine, "t", 1, isr=[me, 2], replicas=[me, 2])
    await other.produce("t", b"v", 1, acks=1)
    assert (await session.rows()).keys() <= {1}
    assert await session.rows([("t", 1, 1)]) == {}
    await other.give_role(machine, "t", 1, isr=[me], replicas=[me, 2])
    assert {index: row.high_watermark for index, row in (await session.rows()).items()} == {1: 1}


async def test_without_slots_a_client_goes_on_with_full_requests(nursery, autojump_clock):
    properties = {"max_incremental_fetch_session_cache_slots": "1"}
    machine, client, _ = await with_records(nursery, properties=properties)
    first, second = Session(client), Session(await machine.connect())
    await first.rows([("t", 0, 0)])
    answer = await second.fetch([("t", 0, 0)])
    assert answer.session_id == 0
    assert len(records_in(only_row(answer))) == 3
    assert len(await first.rows()) == 1
    await trio.sleep(200)
    second.epoch = 0
    await second.rows([("t", 0, 0)])
    assert second.session_id > 0
    assert (await first.fetch()).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_that_is_closed_while_its_request_waits_is_gone(nursery, autojump_clock):
    machine, session, other = await in_session(nursery)
    await session.client.send(fetch_request([], session=(session.session_id, session.epoch), max_wait_ms=20_000), 12)
    await trio.testing.wait_all_tasks_blocked()
    fresh = Session(await machine.connect())
    fresh.session_id = session.session_id
    await fresh.rows([("t", 0, 0)])
    await other.produce("t", b"v", 0)
    assert (await session.client.receive()).error_code == 0
    assert values_in((await fresh.rows())[0]) == [b"v"]


async def test_a_session_that_makes_room_while_it_is_planned_watches_nothing(nursery, autojump_clock):
    machine = await Machine(nursery, max_incremental_fetch_session_cache_slots="1").start()
    consumer, follower = await machine.connect(), await machine.connect()
    await consumer.create_topic("t", 900)
    everything = [("t", each, 0) for each in range(900)]
    await consumer.send(fetch_request(everything, session=(0, 0), max_wait_ms=100), 12)
    for _ in range(4):  # it is planned in several steps
        await trio.lowlevel.checkpoint()
    await follower.ask(fetch_request([], session=(0, 0), replica_id=2), 12)
    await consumer.receive()
    assert sum(len(partition.waiters) for partition in machine.broker.replicas) == 0


async def test_a_session_that_grows_too_large_ends_and_its_client_names_everything_again(nursery, autojump_clock):
    machine = await Machine(nursery, max_incremental_fetch_session_cache_slots="1").start()
    session = Session(await machine.connect())
    await session.fetch([("t", each, 0) for each in range(PARTITIONS_PER_SLOT)])
    assert (await session.fetch([("t", 0, 1)])).error_code == 0
    answer = await session.fetch([("t", PARTITIONS_PER_SLOT, 0)])
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(machine.broker.fetch_sessions) == 0


async def test_the_sessions_of_consumers_that_are_gone_cost_one_append_only(nursery, autojump_clock):
    machine, client, _ = await with_topic(nursery)
    for _ in range(10):
        await Session(client).rows([("t", 0, 0)])
    partition = machine.broker.replicas.get("t", 0)
    assert len(partition.waiters) == 10
    await client.produce("t", b"v")
    assert partition.waiters == {}


async def test_sessions_and_full_requests_see_the_same_log(nursery, autojump_clock):
    """A random history: whatever the session shows, put together, is what a full fetch shows."""
    rng = random.Random(5)
    _, session, other = await in_session(nursery, 5)
    seen, written = [[] for _ in range(5)], [[] for _ in range(5)]
    for _ in range(150):
        for _ in range(rng.randrange(3)):
            partition, value = rng.randrange(5), rng.randbytes(rng.choice([10, 500, 3000]))
            await other.produce("t", value, partition)
            written[partition].append(value)
        moved = [("t", each, len(seen[each])) for each in range(5)] if rng.random() < 0.1 else []
        for index, row in (await session.rows(moved, max_bytes=rng.choice([100, 2000, 10**6]))).items():
            assert row.error_code == 0
            seen[index] += values_in(row)[len(seen[index]) - (first_offset(row) or 0) :] if row.records else []
    assert all(values[: len(part)] == part for values, part in zip(written, seen, strict=True))
    await session.rows([("t", each, len(seen[each])) for each in range(5)])
    for each in range(5):
        assert await other.read_values("t", 0, each) == written[each]


def first_offset(row):
    records = records_in(row)
    return records[0].offset if records else None


async def test_a_client_that_goes_before_its_first_answer_leaves_no_session(nursery, autojump_clock):
    # A follower interrupts its Fetch whenever partitions are added to it. The slots were used up within seconds.
    machine, client, _ = await with_topic(nursery)
    sessions = machine.broker.fetch_sessions
    await client.send(fetch_request([("t", 0, 0)], session=(0, 0), max_wait_ms=60_000), 12)
    await trio.sleep(0.1)
    assert len(sessions) == 1
    client.close()
    await trio.sleep(5)
    assert len(sessions) == 0
