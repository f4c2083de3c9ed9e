"""Produce requests that are answered in the step that has read them, beside the general way."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from tests.broker.clusters import create_topic
from tests.broker.harness import with_topic
from tests.broker.now.both_ways import damaged, nothing_happens, see
from tests.broker.requests import batch_of, idempotent, produce_request

STAMP_MS = 1_700_000_000_000

# -- the same answers, bytes and state


def framed(number, request, version):
    """The bytes of a request of the client `test`."""
    head = b"\0\0" + version.to_bytes(2, "big") + number.to_bytes(4, "big") + b"\0\4test"
    return head + (b"\0" if version >= 9 else b"") + m.encode(request, version)


def producer_of(producer_id, epoch, sequence):
    return {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}


batches = st.builds(
    lambda values, key, codec, stamp, producer: (
        build_batch(
            [(key, value) for value in values],
            timestamp_ms=stamp,
            codec=codec,
            **producer,
        ).data
    ),
    values=st.lists(st.sampled_from([b"", b"v", bytes(100), None]), min_size=1, max_size=4),
    key=st.sampled_from([None, b"k"]),
    codec=st.sampled_from([0, 0, 0, 1]),
    stamp=st.sampled_from([STAMP_MS, STAMP_MS + 1, -1, 1 << 45]),
    producer=st.sampled_from([{}, {}, *map(producer_of, [7, 7, 7, 7, 7, 8], [0, 0, 0, 0, 1, 0], [0, 1, 2, 9, 0, 0])]),
)
requests = st.builds(
    lambda data, topic, partition, acks, version, transactional_id: (
        produce_request(topic, bytearray(data), partition, acks=acks, transactional_id=transactional_id),
        version,
    ),
    data=batches,
    topic=st.sampled_from(["t", "t", "compacted", "missing", "__consumer_offsets"]),
    partition=st.sampled_from([0, 0, 1, 7]),
    acks=st.sampled_from([1, 1, -1, -1, 0, 5]),
    version=st.sampled_from([11, 11, 9, 8, 7, 5, 3]),
    transactional_id=st.sampled_from([None, None, None, "x"]),
)
# What happens to the bytes of a frame: nothing, one bit at a place from its end, or its end is missing.
damages = st.one_of(st.none(), st.none(), st.tuples(st.integers(1, 300), st.integers(0, 7)), st.integers(1, 80))
steps = st.lists(st.lists(st.tuples(requests, damages), min_size=1, max_size=3), min_size=1, max_size=8)


@pytest.mark.thorough
@settings(max_examples=60)
@given(steps=steps, first=st.sampled_from([1, -1]))
def test_both_ways_give_the_same_answers_log_bytes_and_state(steps, first):
    assert_same(steps, first)


@settings(max_examples=6)
@given(steps=steps, first=st.sampled_from([1, -1]))
def test_both_ways_give_the_same_answers_log_bytes_and_state_in_a_few_histories(steps, first):
    assert_same(steps, first)


def assert_same(steps, first):
    async def history(machine, client):
        own = await machine.connect()
        await own.create_topic("t", 2, **{"max.message.bytes": "400"})
        await own.create_topic("compacted", 1, **{"cleanup.policy": "compact"})
        # The shape of these is known from here on.
        usual = [(produce_request("t", batch_of(b"v", key=b"k"), acks=first), 11) for _ in range(2)]
        answers = [await client.ask(*(framed(number, *each) for number, each in enumerate(usual)))]
        for number, step in enumerate(steps, 1):
            frames = [
                damaged(framed(10 * number + place, *request), damage) for place, (request, damage) in enumerate(step)
            ]
            answers.append(await client.ask(*frames))
        return answers

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert answered >= 1
    assert now.answers == general.answers
    assert now.logs == general.logs
    assert now.states == general.states
    assert now.counts == general.counts


def test_what_is_ordinary_is_answered_now():
    """Not only by the few requests that `assert_same` begins with."""

    async def history(_, client):
        await (await client.machine.connect()).create_topic("t", 2)
        answers = []
        for number in range(20):
            request = produce_request("t", idempotent(number // 2), number % 2, acks=(1, -1)[number // 10])
            answers.append(await client.ask(framed(number, request, 11)))
        return answers

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general
    assert answered == 18, "the first one with acks=1, and the first one with acks=all, are learnt from"


async def leadership_ends(partition):
    await trio.sleep(1)
    partition.resign()


async def the_follower_fetches(partition):
    await trio.sleep(1)
    partition.follower_fetched(2, partition.log.log_end_offset, log_start_offset=0)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (nothing_happens, ErrorCode.REQUEST_TIMED_OUT),
        (leadership_ends, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (the_follower_fetches, ErrorCode.NONE),
    ],
)
def test_a_wait_for_a_follower_ends_the_same_both_ways(end, code):
    async def history(machine, client):
        await machine.join(2)
        await create_topic(await machine.connect(), "t", [machine.broker.broker_id, 2])
        partition = machine.broker.replicas.get("t", 0)
        request = produce_request("t", batch_of(b"v"), acks=-1, timeout_ms=3_000)
        answers = [await client.ask(framed(1, request, 11))]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(end, partition)
            answers.append(await client.ask(framed(2, request, 11), framed(3, request, 11)))
        return answers

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general
    assert answered == 2
    second, third = now.answers[-1]
    for each in (second, third):
        (row,) = m.decode(m.ProduceResponse, 11, each[5:]).responses[0].partition_responses
        assert row.error_code == code


# -- what has another shape


@pytest.fixture
async def learnt(nursery):
    """A broker, the shape that a Produce to partition 1 of t has left, and its frame."""
    machine, client = await with_topic(nursery, 2)
    connections = set(machine.broker.tally.connections)
    client = await machine.connect()
    frame = framed(3, produce_request("t", bytearray(build_batch([(None, b"v")], timestamp_ms=STAMP_MS).data), 1), 11)
    await client.send_frame(frame)
    await client.receive_frame()
    (connection,) = set(machine.broker.tally.connections) - connections
    (shape,) = connection.shapes._shapes
    return machine, shape, frame


def log_ends(machine):
    return [partition.log.log_end_offset for partition in machine.broker.replicas]


async def test_a_frame_with_any_other_byte_before_its_index_has_another_shape(learnt, autojump_clock):
    machine, shape, frame = learnt
    before = log_ends(machine)
    index_at = frame.index(b"\2t\2\0\0\0\1") + 3
    correlation_id = range(4, 8)
    for place in range(index_at):
        for bit in range(8):
            changed = bytearray(frame)
            changed[place] ^= 1 << bit
            if place not in correlation_id:
                assert shape.answer(machine.broker, memoryview(changed), 0.0) is None, (place, bit)
    assert log_ends(machine) == before


async def test_a_frame_that_is_longer_or_shorter_than_it_says_has_another_shape(learnt, autojump_clock):
    machine, shape, frame = learnt
    before = log_ends(machine)
    for length in range(len(frame)):
        assert shape.answer(machine.broker, memoryview(bytearray(frame[:length])), 0.0) is None
    for more in (b"\0", b"\1", bytes(1 << 14)):
        assert shape.answer(machine.broker, memoryview(bytearray(frame + more)), 0.0) is None
    for place in range(len(frame) - 3, len(frame)):  # tags
        changed = bytearray(frame)
        changed[place] = 1
        assert shape.answer(machine.broker, memoryview(changed), 0.0) is None
    assert log_ends(machine) == before


async def test_one_shape_answers_for_all_partitions_of_a_topic(learnt, autojump_clock):
    machine, shape, frame = learnt
    index_at = frame.index(b"\2t\2\0\0\0\1") + 3
    other = bytearray(frame)
    other[index_at : index_at + 4] = bytes(4)
    (response,) = shape.answer(machine.broker, memoryview(other), 0.0)
    decoded = m.decode(m.ProduceResponse, 11, response[9:])
    assert response[4:8] == frame[4:8]
    (row,) = decoded.responses[0].partition_responses
    assert (row.index, row.error_code, row.base_offset) == (0, ErrorCode.NONE, 0)
    other[index_at : index_at + 4] = b"\0\0\0\7"
    assert shape.answer(machine.broker, memoryview(other), 0.0) is None, "there is no such partition"


async def test_a_connection_that_has_ended_keeps_no_shape(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", b"v", acks=1)
    (connection,) = machine.broker.tally.connections
    assert len(connection.shapes._shapes) == 1
    client.close()
    await trio.sleep(1)
    assert connection.shapes._shapes == [], "it would hold the connection itself"


async def test_a_topic_that_is_deleted_takes_no_more_records(learnt, autojump_clock):
    machine, shape, frame = learnt
    await (await machine.connect()).delete_topic("t")
    await trio.sleep(5)
    assert shape.answer(machine.broker, memoryview(bytearray(frame)), 0.0) is None


async def test_a_refusal_is_handed_on_and_not_asked_for_again(learnt, autojump_clock):
    machine, shape, frame = learnt
    damaged_frame = bytearray(frame)
    damaged_frame[-4] ^= 1
    begun = shape.answer(machine.broker, memoryview(damaged_frame), 0.0)[1]
    assert begun.partition is machine.broker.replicas.get("t", 1)
    assert begun.batch is None, "the check in steps names the fault"

    partition = machine.broker.replicas.get("t", 1)
    partition.in_sync_replicas = []
    begun = shape.answer(machine.broker, memoryview(bytearray(frame)), 0.0)[1]
    assert begun.appended is ErrorCode.NOT_ENOUGH_REPLICAS


# -- what is unusual


async def test_with_quotas_or_interception_nothing_is_answered_now(learnt, autojump_clock, monkeypatch):
    machine, _, frame = learnt
    connection = next(each for each in machine.broker.tally.connections if each.shapes._shapes)

    def answer():
        return connection.shapes.answer(machine.broker, memoryview(bytearray(frame)), 0.0)

    assert answer() is not None
    for quota in ("is_active", "limits_request_time"):
        monkeypatch.setattr(machine.broker.quotas, quota, True)
        assert answer() is None
        monkeypatch.setattr(machine.broker.quotas, quota, False)
    object.__setattr__(machine.broker, "interception", Active())
    assert answer() is None
    object.__setattr__(machine.broker, "interception", None)
    assert answer() is not None


class Active:
    is_active = True
    armed_keys = (0,)


async def test_a_connection_keeps_few_shapes_and_learns_seldom_when_it_needs_more(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    for number in range(6):
        await client.create_topic(f"t{number}")
    (connection,) = machine.broker.tally.connections
    learnt = []
    for _ in range(12):
        for number in range(6):
            await client.produce(f"t{number}", b"v", acks=1)
            learnt.append(connection.shapes._shapes)
    assert max(map(len, learnt)) == 4
    assert 4 <= len({id(shapes[0]) for shapes in learnt}) <= 8
