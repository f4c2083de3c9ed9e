"""Several batches of one producer on their way to the followers: what is begun, what waits, and what leaves when.

The leader is a whole broker; its one follower is a client of the test, which fetches when the story says so.
"""

import math

import trio

from barnabas.broker.replication.waiting import Decisions, DelayedResponse, wake
from barnabas.broker.server.pipelined_responses import PIPELINED_MAX, PipelinedResponses
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine, fetch_request, list_offsets_request, produce_request

FOLLOWER = 2
LATEST = -1


class Scene:
    """A partition that is led here and followed by the test; acks=all waits for it."""

    @classmethod
    async def open(cls, nursery):
        scene = cls()
        scene.machine = await Machine(nursery).start()
        scene.producer, scene.follower = await scene.machine.connect(), await scene.machine.connect()
        await scene.producer.create_topic("t")
        scene.me = scene.machine.serving.broker_id
        await scene.led_by(scene.me)
        return scene

    async def led_by(self, broker_id):
        role = {"leader": broker_id, "isr": [self.me, FOLLOWER], "replicas": [self.me, FOLLOWER]}
        assert await self.follower.give_role(self.machine, "t", **role) == 0

    @property
    def log_end(self):
        return self.machine.broker.replicas.get("t", 0).log.log_end_offset

    async def send(self, *values, **fields):
        """Produce these, a request each, without waiting for answers."""
        for value in values:
            await self.producer.send(produce_request("t", value, **fields))
        await trio.sleep(0.1)

    async def answers(self, count):
        """The next answers: an error code and a base offset each."""
        rows = [(await self.producer.receive()).responses[0].partition_responses[0] for _ in range(count)]
        return [(row.error_code, row.base_offset) for row in rows]

    async def fetches_from(self, offset):
        """The follower has everything below this offset."""
        await self.follower.ask(fetch_request([("t", 0, offset)], replica_id=FOLLOWER, max_wait_ms=0), 12)


async def test_batches_are_appended_while_the_first_waits_and_acknowledged_in_their_order(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a", b"b", b"c")
    assert scene.log_end == 3
    assert await scene.producer.is_quiet()
    await scene.fetches_from(2)
    assert await scene.answers(2) == [(0, 0), (0, 1)]
    assert await scene.producer.is_quiet()
    await scene.fetches_from(3)
    assert await scene.answers(1) == [(0, 2)]


async def test_so_many_batches_are_begun_and_the_next_when_one_is_acknowledged(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(*[b"v"] * (PIPELINED_MAX + 2))
    assert scene.log_end == PIPELINED_MAX
    await scene.fetches_from(1)
    assert await scene.answers(1) == [(0, 0)]
    await trio.sleep(0.1)
    assert scene.log_end == PIPELINED_MAX + 1


async def test_a_request_of_another_kind_waits_until_everything_before_it_is_answered(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a", b"b")
    await scene.producer.send(list_offsets_request([("t", 0, LATEST)]), 9)
    await scene.fetches_from(1)
    assert await scene.answers(1) == [(0, 0)]
    assert await scene.producer.is_quiet()
    await scene.fetches_from(2)
    assert await scene.answers(1) == [(0, 1)]
    assert (await scene.producer.receive()).topics[0].partitions[0].offset == 2


async def test_a_batch_that_is_refused_says_so_behind_those_that_wait(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a")
    await scene.producer.send(produce_request("unheard-of", b"b"))
    assert await scene.producer.is_quiet()
    await scene.fetches_from(1)
    assert await scene.answers(2) == [(0, 0), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)]


async def test_a_batch_that_asks_for_no_answer_has_none_among_those_that_wait(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a")
    await scene.send(b"b", acks=0)
    scene.producer._asked.popitem()
    await scene.send(b"c")
    assert scene.log_end == 3
    await scene.fetches_from(3)
    assert await scene.answers(2) == [(0, 0), (0, 2)]


async def test_each_has_its_own_deadline_and_none_overtakes(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a", timeout_ms=5000)
    await scene.send(b"b", timeout_ms=1000)
    await scene.send(b"c", timeout_ms=8000)
    began = trio.current_time()
    assert await scene.answers(2) == [(ErrorCode.REQUEST_TIMED_OUT, 0), (ErrorCode.REQUEST_TIMED_OUT, 1)]
    assert 4.5 < trio.current_time() - began < 5.5
    await scene.fetches_from(3)
    assert await scene.answers(1) == [(0, 2)]


async def test_what_is_acknowledged_stays_so_although_an_older_one_still_waits(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.producer.create_topic("alone")
    await scene.send(b"a")
    await scene.producer.send(produce_request("alone", b"b"))
    await scene.led_by(FOLLOWER)
    assert await scene.answers(2) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), (0, 0)]


async def test_a_leader_that_resigns_says_so_to_all_that_wait(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a", b"b")
    await scene.led_by(FOLLOWER)
    assert await scene.answers(2) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, 0), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)]


async def test_half_a_request_behind_those_that_wait_is_kept(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a")
    frame = scene.producer.frame_of(produce_request("t", b"b"))
    await scene.producer.send_bytes(len(frame).to_bytes(4, "big") + frame[:20])
    await scene.fetches_from(1)
    await scene.producer.send_bytes(frame[20:])
    await trio.sleep(0.1)
    assert scene.log_end == 2
    assert await scene.answers(1) == [(0, 0)]


async def test_a_broker_that_stops_answers_pending_requests(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a", b"b", timeout_ms=2000)
    scene.machine.ask_to_stop()
    assert await scene.answers(2) == [(ErrorCode.REQUEST_TIMED_OUT, 0), (ErrorCode.REQUEST_TIMED_OUT, 1)]
    assert await scene.producer.is_closed()


async def test_nothing_is_sent_to_a_client_that_left(nursery, autojump_clock):
    scene = await Scene.open(nursery)
    await scene.send(b"a", b"b")
    partition = scene.machine.broker.replicas.get("t", 0)
    assert len(partition.waiters) == 1
    scene.producer.close()
    with trio.fail_after(15):
        while partition.waiters:
            await trio.sleep(0.1)
    assert isinstance(await scene.follower.metadata("t"), dict)


class Watched:
    """A partition, as far as what waits for it knows it."""

    def __init__(self):
        self.waiters = {}


async def test_what_is_committed_before_a_response_is_queued_is_not_missed(autojump_clock):
    partition, outcomes = Watched(), [None]
    decisions = Decisions([partition], outcomes.__getitem__)
    assert not decisions.look(), "the handler looks; then its large request is freed in steps"
    outcomes[0] = ErrorCode.NONE
    wake(partition)

    async def encode():
        return [b"response"]

    response = DelayedResponse(decisions, math.inf, lambda: None)
    response.encode = encode
    queued = PipelinedResponses()
    queued.add(response)
    assert await queued.take_ready() == [b"response"]
