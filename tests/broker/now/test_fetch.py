"""Fetches that are answered, or begun, in the step that has read them, beside the general way."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire import messages as m
from tests.broker.clusters import create_topic
from tests.broker.now.both_ways import see
from tests.broker.requests import batch_of, fetch_request, produce_request

LARGE = bytes(40_000)  # too large to be copied into the response: a file slice


def framed(number, request, version):
    """The bytes of a request of the client `test`."""
    head = b"\0\1" + version.to_bytes(2, "big") + number.to_bytes(4, "big") + b"\0\4test"
    return head + (b"\0" if version >= 12 else b"") + m.encode(request, version)


class Fetching:
    """A consumer, or the follower 2, that fetches t and u as its session demands."""

    def __init__(self, machine, client, topics, version, replica_id):
        self.machine, self.client, self.topics, self.version = machine, client, topics, version
        self.who = {"replica_id": replica_id}
        if version >= 15:
            state = m.FetchRequest.ReplicaState(replica_id=replica_id, replica_epoch=-1)
            self.who = {"replica_state": state}
        self.session = (0, 0)
        self.number = 0
        self.answers = []

    async def fetch(self, wanted, *, in_session=True, epoch_off=0, **fields):
        """Of (topic, partition, offset)."""
        wanted = [(self.topics[topic] if self.version >= 13 else topic, *rest) for topic, *rest in wanted]
        session = (self.session[0], self.session[1] + epoch_off) if in_session else (0, -1)
        request = fetch_request(wanted, session=session, **self.who, **fields)
        self.number += 1
        (answer,) = await self.client.ask(framed(self.number, request, self.version))
        self.answers.append(answer)
        if answer is None:
            self.session = (0, 0)
            return
        decoded = m.decode(m.FetchResponse, self.version, answer[5 if self.version >= 12 else 4 :])
        if in_session:
            is_known = decoded.session_id != 0 and decoded.error_code == 0
            self.session = (decoded.session_id, self.session[1] + 1) if is_known else (0, 0)


async def topics_of(machine, replica_id):
    replicas = [machine.broker.broker_id, *([2] if replica_id >= 0 else [])]
    if replica_id >= 0:
        await machine.join(2)
    client = await machine.connect()
    return client, {name: await create_topic(client, name, replicas, replicas) for name in ("t", "u")}


# -- the same answers and state

places = st.tuples(st.sampled_from(["t", "t", "u"]), st.sampled_from([0, 0, 1, 7]), st.sampled_from([0, 1, 2, 3, 50]))
fetches = st.fixed_dictionaries(
    {
        "wanted": st.lists(places, max_size=2, unique_by=lambda place: place[:2]),
        "in_session": st.sampled_from([True, True, True, False]),
        "epoch_off": st.sampled_from([0] * 9 + [1]),
        "max_wait_ms": st.sampled_from([0, 0, 500]),
        "min_bytes": st.sampled_from([1, 1, 0, 200]),
        "partition_max_bytes": st.sampled_from([1 << 20, 1 << 20, 100]),
        "leader_epoch": st.sampled_from([-1, -1, 0, 5]),
        "isolation_level": st.sampled_from([0, 0, 1]),
    }
)
produced = st.tuples(st.sampled_from([0, 0, 1]), st.sampled_from([b"v", b"v", LARGE]), st.booleans())
operations = st.lists(st.one_of(fetches, fetches, fetches, produced, st.just("deleted")), min_size=2, max_size=14)


@pytest.mark.thorough
@settings(max_examples=60)
@given(operations, st.sampled_from([7, 11, 12, 13, 17]), st.sampled_from([-1, -1, 2]))
def test_both_ways_give_the_same_answers_and_state(operations, version, replica_id):
    assert_same(operations, version, replica_id)


@settings(max_examples=6)
@given(operations, st.sampled_from([11, 17]), st.sampled_from([-1, 2]))
def test_both_ways_give_the_same_answers_and_state_in_a_few_histories(operations, version, replica_id):
    assert_same(operations, version, replica_id)


def assert_same(operations, version, replica_id):
    async def history(machine, client):
        other, topics = await topics_of(machine, replica_id)
        fetching = Fetching(machine, client, topics, version, replica_id)
        await other.produce("t", batch_of(b"first"), acks=1)
        await fetching.fetch([("t", 0, 0)])
        async with trio.open_nursery() as nursery:
            for number, operation in enumerate(operations):
                if isinstance(operation, dict):
                    await fetching.fetch(operation["wanted"], **{k: v for k, v in operation.items() if k != "wanted"})
                elif operation == "deleted":
                    partition = machine.broker.replicas.get("t", 0)
                    partition.delete_records(min(1, partition.high_watermark))
                else:
                    nursery.start_soon(produce, other, number, *operation)
                    await trio.sleep(0.01)
        return fetching.answers

    now, _ = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general


async def produce(client, number, partition, value, is_late):
    """At once, or while the next Fetch may wait."""
    # No two operations come at one moment: their order would be that in which Trio happens to run their tasks.
    if is_late:
        await trio.sleep(0.2 + 0.0007 * number)
    request = produce_request("t", batch_of(value), partition, acks=1)
    await client.send(request)
    await trio.sleep(0.001)


@pytest.mark.parametrize("version", [7, 11, 12, 17])
def test_records_in_the_page_cache_are_sent_from_the_file_now(version, monkeypatch):
    async def history(machine, client):
        other, topics = await topics_of(machine, -1)
        fetching = Fetching(machine, client, topics, version, -1)
        for _ in range(3):
            await other.produce("t", batch_of(LARGE), acks=1)
        await fetching.fetch([("t", 0, 0)])
        for number in range(4):
            await fetching.fetch([("t", 0, number)], max_wait_ms=100)
        await fetching.fetch([("t", 0, 1)], in_session=False)
        await fetching.fetch([("t", 0, 2)], in_session=False)
        with monkeypatch.context() as cold:
            file = machine.broker.replicas.get("t", 0).log.segments.active.file
            cold.setattr(type(file), "resident", lambda *_: False)
            await fetching.fetch([("t", 0, 2)], in_session=False)
        return fetching.answers

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general
    assert [len(answer) > len(LARGE) for answer in now.answers] == [True, True, True, True, False, True, True, True]
    # All but the first of each shape, and the one that begins the session. The last one is planned, and goes on.
    assert answered == 3 + 1 + 1


@pytest.mark.parametrize("version", [7, 11, 12, 17])
@pytest.mark.parametrize("replica_id", [-1, 2])
def test_what_is_ordinary_is_answered_now(version, replica_id):
    async def history(machine, client):
        other, topics = await topics_of(machine, replica_id)
        fetching = Fetching(machine, client, topics, version, replica_id)
        partition = machine.broker.replicas.get("t", 0)
        await fetching.fetch([("t", 0, 0)])
        for number in range(6):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(produce, other, number, 0, b"v", number % 2 == 1)
                # A consumer reads what is committed, so the follower has to fetch it.
                if replica_id < 0:
                    partition.follower_fetched(2, partition.log.log_end_offset, log_start_offset=0)
                await trio.sleep(0.01)
                await fetching.fetch([("t", 0, number)], max_wait_ms=1_000)
        await fetching.fetch([], max_wait_ms=100)
        await fetching.fetch([], max_wait_ms=100)
        for number in range(3):
            await fetching.fetch([("t", 0, number)], in_session=False)
        return fetching.answers

    now, answered = see(history, is_now=True)
    general, _ = see(history, is_now=False)
    assert now == general
    assert answered == 6 - 1 + 1 + 2, "all but the first of each shape, and the one that begins the session"
