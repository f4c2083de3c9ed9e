"""What a Fetch plans: how much an answer holds until it is sent, and whose records they are."""

import pytest

from barnabas.broker.fetching.plan import CONVERTED_BYTES_MAX, INLINE_TOTAL_BYTES_MAX, FetchPlan
from barnabas.storage.disk import FileSlice
from barnabas.storage.memdisk import MemFile
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.fetching import with_records
from tests.broker.handlers.sessions import Session
from tests.broker.replica_group import Group
from tests.broker.requests import fetch_request, fetched, values_in


@pytest.fixture
def carried(monkeypatch) -> list[list[object]]:
    """What the rows of each fetch from here on carry, when nothing is left to do but to send them."""
    seen, warm = [], FetchPlan.warm

    async def noted(plan) -> None:
        await warm(plan)
        seen.append([row.records for row in plan.rows.values()])

    monkeypatch.setattr(FetchPlan, "warm", noted)
    return seen


# -- what an answer holds


async def test_an_answer_holds_so_many_bytes_in_memory_and_the_rest_as_slices(nursery, autojump_clock, carried):
    count = INLINE_TOTAL_BYTES_MAX // 30_000 + 3
    _, client, _ = await with_records(nursery, 1, size=30_000, partitions=count)
    answer = await client.ask(fetch_request([("t", each, 0) for each in range(count)], max_wait_ms=0), 12)
    assert [len(values_in(row)[0]) for _, row in fetched(answer)] == [30_000] * count
    in_memory = [piece for piece in carried[0] if isinstance(piece, bytes)]
    assert INLINE_TOTAL_BYTES_MAX - 31_000 < sum(map(len, in_memory)) <= INLINE_TOTAL_BYTES_MAX


async def test_an_answer_holds_so_many_descriptors_of_sealed_segments(nursery, autojump_clock, carried, monkeypatch):
    monkeypatch.setattr("barnabas.broker.fetching.plan.SEALED_SLICES_MAX", 2)
    _, client, _ = await with_records(nursery, 2, size=40_000, partitions=4, segment_bytes="50000")
    session = Session(client)
    rows = await session.rows([("t", each, 0) for each in range(4)], partition_max_bytes=41_000)
    assert [each for each, row in rows.items() if row.records] == [0, 1]
    rows = await session.rows([("t", 0, 1), ("t", 1, 1)])  # what was left over comes first; active segments are free
    assert [each for each, row in rows.items() if row.records] == [2, 3, 0, 1]
    assert [sum(isinstance(piece, FileSlice) for piece in pieces) for pieces in carried] == [2, 4]


async def test_an_old_reader_is_converted_so_much_at_a_time(nursery, autojump_clock, carried):
    _, client, _ = await with_records(nursery, 4, size=900_000)
    asked = fetch_request([("t", 0, 0)], max_wait_ms=0, partition_max_bytes=1 << 23)
    ((_, row),) = fetched(await client.ask(asked, 3))
    assert [len(value) for value in values_in(row)] == [900_000] * 2
    assert carried[0][0].size_bytes <= CONVERTED_BYTES_MAX


# -- data that the page cache lacks


@pytest.fixture
def asked_ahead(monkeypatch) -> list[tuple[int, int]]:
    """Nothing is in the page cache but what is read; what is asked for beyond that."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(MemFile, "resident", lambda file, position, size_bytes: position >= len(file.read(0, 1 << 24)))
    monkeypatch.setattr(MemFile, "will_need", lambda file, position, size_bytes: asked.append((position, size_bytes)))
    return asked


async def test_a_long_read_asks_for_what_follows_it(nursery, autojump_clock, carried, asked_ahead):
    _, client, _ = await with_records(nursery, 8, size=100_000)
    await client.ask(fetch_request([("t", 0, 0)], max_wait_ms=0, partition_max_bytes=300_000), 12)
    (read,) = carried[0]
    assert (read.position + read.size_bytes, read.size_bytes) in asked_ahead
    asked_ahead.clear()
    await client.ask(fetch_request([("t", 0, 6)], max_wait_ms=0), 12)
    ((last,),) = carried[1:]
    assert all(position <= last.position for position, _ in asked_ahead), "nothing follows the end of the log"


# -- whose records they are


async def test_a_fetch_by_the_id_of_an_earlier_topic_gets_none_of_the_new_ones_records(nursery, autojump_clock):
    group = await Group.start(nursery, count=2)
    old = group.topic("t", replicas=(1, 2))
    await old.led_by(1)
    old.replicas, old.leader, old.epoch = [2], 2, 5
    await group.clients[1].ask(await old._update_metadata())
    new = group.topic("t", replicas=(1,))
    new.leader, new.epoch, new.isr = 1, 0, [1]
    await group.clients[1].ask(await new.leader_and_isr_request())
    await group.clients[1].produce("t", b"new 0")
    row = await group.clients[1].fetch(old.topic_id, 0, version=13)
    assert (row.error_code, row.records) == (ErrorCode.INCONSISTENT_TOPIC_ID, b"")
    assert values_in(await group.clients[1].fetch(new.topic_id, 0, version=13)) == [b"new 0"]


async def test_the_id_of_a_topic_whose_replica_was_given_away_is_forgotten(nursery, autojump_clock):
    group = await Group.start(nursery, count=2)
    topic = group.topic("t", replicas=(1, 2))
    await topic.led_by(1)
    topic.replicas, topic.leader, topic.epoch = [2], 2, 5
    given_away = await topic._update_metadata()
    deleted = await topic._update_metadata()
    deleted.topic_states[0].partition_states[0].leader = -2
    for request in (given_away, deleted):
        await group.clients[1].ask(request)
    row = await group.clients[1].fetch(topic.topic_id, 0, version=13)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_of_a_log_that_is_being_cut_nothing_is_looked_at(nursery, autojump_clock, isolation_level):
    """A thread changes its epochs and producers meanwhile."""
    group = await Group.start(nursery, count=2)
    topic = group.topic("t", replicas=(1, 2))
    await topic.led_by(1)
    log = topic.replica(2).log
    log.is_being_cut, log.producers = True, None
    asked = fetch_request([("t", 0, 0)], max_wait_ms=0, isolation_level=isolation_level)
    ((_, row),) = fetched(await group.clients[2].ask(asked, 12))
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
