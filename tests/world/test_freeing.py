"""Many objects are freed in steps."""

from itertools import pairwise

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.world.freeing import ENTRIES_AT_A_TIME, FREED_AT_A_TIME, emptied, emptied_by_topic, take_apart
from barnabas.world.rows import Rows

F = m.FetchRequest
TOPICS, PARTITIONS = 30, 200


def request_of_many():
    topics = [
        F.FetchTopic(topic=f"t{n}", partitions=[F.FetchPartition() for _ in range(PARTITIONS)]) for n in range(TOPICS)
    ]
    return F(topics=topics, forgotten_topics_data=[F.ForgottenTopic(topic="u", partitions=list(range(5000)))])


def lists_of(request):
    return [request.topics, *(topic.partitions for topic in request.topics), request.forgotten_topics_data]


def test_a_message_is_taken_apart_in_steps_of_so_many_objects():
    request = request_of_many()
    lists = lists_of(request)
    left, steps = [sum(map(len, lists))], 0
    for _ in take_apart(request):
        left.append(sum(map(len, lists)))
        steps += 1
    assert not any(lists)
    assert steps >= (TOPICS * PARTITIONS + 5000) / FREED_AT_A_TIME - 1
    assert max(before - after for before, after in pairwise(left)) <= 2 * FREED_AT_A_TIME


def test_a_request_of_which_half_was_decoded_holds_all_that_was_made():
    encoded = m.encode(request_of_many(), 12)
    request = F()
    steps = m.decode_steps(request, 12, memoryview(bytearray(encoded)), 0)
    for _ in range(3):
        next(steps)
    steps.close()
    lists = lists_of(request)
    assert 0 < len(lists[0]) < TOPICS
    assert lists[-2], "the topic in the middle of which decoding ended is there, with its partitions"
    for _ in take_apart(request):
        pass
    assert not any(lists)


async def test_others_run_while_tables_are_emptied(autojump_clock):
    table, rows = dict.fromkeys(range(4 * ENTRIES_AT_A_TIME)), list(range(4 * ENTRIES_AT_A_TIME))
    seen = []

    async def look():
        while len(seen) < 5:
            seen.append((len(table), len(rows)))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        await emptied(table, rows)
    assert any(ENTRIES_AT_A_TIME < entries < 4 * ENTRIES_AT_A_TIME for entries, _ in seen)
    assert any(ENTRIES_AT_A_TIME < entries < 4 * ENTRIES_AT_A_TIME for _, entries in seen)
    assert len(table) == len(rows) == ENTRIES_AT_A_TIME


@pytest.mark.parametrize("topics", [1, 10, 2 * ENTRIES_AT_A_TIME])
async def test_others_run_while_a_table_of_tables_is_emptied(autojump_clock, topics):
    tables = {f"t{n}": dict.fromkeys(range(4 * ENTRIES_AT_A_TIME // topics)) for n in range(topics)}
    inner, lefts = list(tables.values()), []

    async def look():
        for _ in range(20):
            lefts.append(sum(map(len, inner)))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        nursery.start_soon(emptied_by_topic, tables)
    assert lefts[-1] == 0
    # The order of the two tasks within a turn of the scheduler is random: up to two steps lie between two looks.
    assert max(before - after for before, after in pairwise([4 * ENTRIES_AT_A_TIME, *lefts])) <= 2 * ENTRIES_AT_A_TIME
    assert not tables


def test_the_table_of_rows_is_emptied_in_steps():
    table = {f"t{n}": [n] for n in range(3 * FREED_AT_A_TIME)}
    topic = m.OffsetFetchResponse.OffsetFetchResponseTopic
    response = m.OffsetFetchResponse(topics=Rows(table, lambda name: topic(name=name, partitions=[])))
    left = [len(table), *(len(table) for _ in take_apart(response)), len(table)]
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) <= FREED_AT_A_TIME
