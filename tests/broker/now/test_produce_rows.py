"""Produces to several partitions of a topic, answered in the step that has read them, beside the general way."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import TRANSACTIONAL
from barnabas.wire.records import build_batch
from barnabas.world.waiting import wake
from tests.broker.clusters import create_topic
from tests.broker.now.both_ways import damaged, nothing_happens, see

STAMP_MS = 1_700_000_000_000
PARTITIONS = 4
LARGE = bytes(70_000)


def framed(number, rows, version, acks, topic="t"):
    """The bytes of a request of the client `test`: of (partition, records)."""
    data = [m.ProduceRequest.PartitionProduceData(index=index, records=records) for index, records in rows]
    topics = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=data)]
    request = m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    head = b"\0\0" + version.to_bytes(2, "big") + number.to_bytes(4, "big") + b"\0\4test"
    return head + (b"\0" if version >= 9 else b"") + m.encode(request, version)


def batch(value=b"v", **producer):
    return bytearray(build_batch([(None, value)], timestamp_ms=STAMP_MS, **producer).data)


def sequenced(sequence):
    return batch(producer_id=7, producer_epoch=0, base_sequence=sequence)


# Ordinary ones; in order or not, and duplicates; too large for a step or the topic; of a transaction; damaged.
batches = st.sampled_from(
    [
        *[batch()] * 6,
        *map(sequenced, [0, 0, 1, 1, 2, 9]),
        batch(LARGE),
        batch(bytes(100_000)),
        batch(producer_id=8, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL),
        batch()[:-1],
        batch()[:-1] + b"?",
    ]
)
rows = st.lists(st.tuples(st.sampled_from([0, 0, 1, 2, 3, 9]), batches), min_size=1, max_size=5)
damages = st.one_of(st.none(), st.none(), st.tuples(st.integers(1, 400), st.integers(0, 7)), st.integers(1, 80))
steps = st.lists(st.tuples(rows, damages), min_size=1, max_size=8)


def history_of(steps, version, acks):
    async def history(machine, client):
        own = await machine.connect()
        await own.create_topic("t", PARTITIONS, **{"max.message.bytes": "80000"})
        usual = [(index, batch()) for index in range(PARTITIONS)]
        answers = [await client.ask(framed(number, usual, version, acks)) for number in range(2)]
        for number, (rows, damage) in enumerate(steps, 2):
            answers.append(await client.ask(damaged(framed(number, rows, version, acks), damage)))
        return answers

    return history


def assert_same(steps, version, acks):
    history = history_of(steps, version, acks)
    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert answered >= 1
    assert now == general


@pytest.mark.thorough
@settings(max_examples=60)
@given(steps, st.sampled_from([5, 8, 9, 11]), st.sampled_from([1, -1]))
def test_both_ways_give_the_same_answers_log_bytes_and_state(steps, version, acks):
    assert_same(steps, version, acks)


@settings(max_examples=6)
@given(steps, st.sampled_from([8, 11]), st.sampled_from([1, -1]))
def test_both_ways_give_the_same_answers_log_bytes_and_state_in_a_few_histories(steps, version, acks):
    assert_same(steps, version, acks)


@pytest.mark.parametrize("version", [5, 8, 9, 11])
@pytest.mark.parametrize("acks", [1, -1])
def test_any_number_of_partitions_is_answered_now(version, acks):
    async def history(machine, client):
        await (await machine.connect()).create_topic("t", PARTITIONS)
        counts = [4, 4, 2, 3, 4, 1, 1]
        return [
            await client.ask(framed(number, [(index, batch()) for index in range(count)], version, acks))
            for number, count in enumerate(counts)
        ]

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general
    assert answered == 5, "all but the first of several partitions, and the first of one"


def test_rows_that_were_appended_before_one_that_fails_are_appended_once():
    async def history(machine, client):
        await (await machine.connect()).create_topic("t", PARTITIONS)
        usual = [(index, sequenced(0)) for index in range(3)]
        failing = [(0, sequenced(1)), (1, sequenced(5)), (2, sequenced(1))]
        return [await client.ask(framed(n, each, 11, -1)) for n, each in enumerate([usual, failing, failing])]

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general
    assert answered == 2
    assert now.states["t-0"][1:2] == now.states["t-2"][1:2] == (2,)
    assert now.states["t-1"][1:2] == (1,)


async def leadership_ends_and_begins_again(partition):
    await trio.sleep(0.5)
    partition.leading_since += 1
    wake(partition)


async def the_follower_fetches(partition):
    await trio.sleep(0.5)
    partition.follower_fetched(2, partition.log.log_end_offset, log_start_offset=0)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (nothing_happens, ErrorCode.REQUEST_TIMED_OUT),
        (leadership_ends_and_begins_again, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (the_follower_fetches, ErrorCode.NONE),
    ],
)
def test_a_row_that_waits_for_a_follower_is_waited_for_by_the_handler(end, code):
    async def history(machine, client):
        await machine.join(2)
        own = machine.broker.broker_id
        await create_topic(await machine.connect(), "t", *[[own, 2]] * 3)
        partitions = [machine.broker.replicas.get("t", index) for index in range(3)]
        rows = [(index, batch()) for index in range(3)]
        answers = [await client.ask(framed(1, rows, 11, -1))]
        async with trio.open_nursery() as nursery:
            for partition, how in zip(partitions, [the_follower_fetches, end, the_follower_fetches], strict=True):
                nursery.start_soon(how, partition)
            answers.append(await client.ask(framed(2, rows, 11, -1)))
        return answers

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general
    assert answered == 1
    (answer,) = now.answers[-1]
    codes = [row.error_code for row in m.decode(m.ProduceResponse, 11, answer[5:]).responses[0].partition_responses]
    assert codes == [ErrorCode.NONE, code, ErrorCode.NONE]
