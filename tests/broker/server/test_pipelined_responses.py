"""Several batches of one producer on their way to the followers: what is begun, what waits, and what leaves when.

The leader is a whole broker; its one follower is a client of the test, which fetches when the story says so.
"""

import math

import pytest
import trio

from barnabas.broker.server.pipelined_responses import PIPELINED_MAX, PipelinedResponses
from barnabas.wire.errors import ErrorCode
from barnabas.world.waiting import ACTING_MAX, PendingResponse, wake
from tests.broker.harness import Machine
from tests.broker.memnet import PIPE_BYTES, MemStream, Pipe
from tests.broker.requests import fetch_request, list_offsets_request, produce_request

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


@pytest.mark.parametrize("nonsense", ["length", "body", "refusal"])
async def test_what_breaks_the_protocol_takes_no_answer_from_those_that_wait(nursery, autojump_clock, nonsense):
    scene = await Scene.open(nursery)
    await scene.send(b"a")
    if nonsense == "refusal":  # of a batch that asks for no answer
        await scene.producer.send(produce_request("unheard-of", b"b", acks=0))
    else:
        frame = scene.producer.frame_of(produce_request("t", b"b"))
        size = -1 if nonsense == "length" else len(frame) // 2
        await scene.producer.send_bytes(size.to_bytes(4, "big", signed=True) + frame[: len(frame) // 2])
    await trio.sleep(0.1)
    await scene.fetches_from(1)
    assert await scene.answers(1) == [(0, 0)]
    assert await scene.producer.is_closed()
    assert scene.log_end == 1


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


class Acknowledgement(PendingResponse):
    """A delayed response about one partition."""

    watched = are_made = None  # these are attributes here

    def __init__(self, partition, text, outcome=None):
        super().__init__(math.inf)
        self.watched, self.outcome, self.text = [partition], outcome, text
        self.are_made = False

    def look(self):
        self.are_made = self.outcome is not None
        return self.are_made

    def encode_now(self):
        return [self.text]

    async def encode(self):
        return [self.text]


@pytest.fixture
def out():
    return Pipe()


@pytest.fixture
def queued(out):
    return PipelinedResponses(MemStream(Pipe(), out, "a client"))


async def test_what_is_committed_before_a_response_is_queued_is_not_missed(queued, autojump_clock):
    partition = Watched()
    late = Acknowledgement(partition, b"response")
    assert not late.look(), "the handler looks; then its large request is freed in steps"
    late.outcome = ErrorCode.NONE
    wake(partition)
    queued.add(late)
    assert await queued.take_ready() == [b"response"]


async def test_a_response_leaves_in_the_step_of_its_commit_while_others_wait(queued, out, nursery, autojump_clock):
    partition = Watched()
    first, second, third = (Acknowledgement(partition, text) for text in (b"1", b"2", b"3"))
    for each in (first, second, third):
        queued.add(each)
    received = []

    async def receive():
        received.append(await queued.receive(100))

    nursery.start_soon(receive)
    await trio.testing.wait_all_tasks_blocked()
    first.outcome = second.outcome = ErrorCode.NONE
    wake(partition, log_grew=False)
    assert out.data == b"12"
    await trio.testing.wait_all_tasks_blocked()
    assert received == [], "the third one still waits"
    third.outcome = ErrorCode.NONE
    wake(partition, log_grew=False)
    assert out.data == b"123"
    await trio.testing.wait_all_tasks_blocked()
    assert received == [None]
    assert not partition.waiters


async def test_what_the_network_does_not_take_in_that_step_leaves_later(queued, out, nursery, autojump_clock):
    partition = Watched()
    large = Acknowledgement(partition, bytes(PIPE_BYTES + 5))
    queued.add(large)
    nursery.start_soon(queued.receive, 100)
    await trio.testing.wait_all_tasks_blocked()
    large.outcome = ErrorCode.NONE
    wake(partition)
    assert len(out.data) == PIPE_BYTES
    assert [bytes(piece) for piece in await queued.take_ready()] == [bytes(5)]


async def test_a_connection_that_is_lost_learns_it_from_its_own_send(queued, out, nursery, autojump_clock):
    partition = Watched()
    lost = Acknowledgement(partition, b"response")
    queued.add(lost)
    nursery.start_soon(queued.receive, 100)
    await trio.testing.wait_all_tasks_blocked()
    out.abandoned, lost.outcome = True, ErrorCode.NONE
    wake(partition)
    assert await queued.take_ready() == [b"response"]


async def test_of_many_connections_a_few_are_answered_in_the_step_of_a_commit(nursery, autojump_clock):
    partition, pipes, all_of = Watched(), [], []
    for number in range(2 * ACTING_MAX):
        pipes.append(Pipe())
        queued = PipelinedResponses(MemStream(Pipe(), pipes[-1], f"client {number}"))
        all_of.append(Acknowledgement(partition, b"response"))
        queued.add(all_of[-1])
        nursery.start_soon(queued.receive, 100)
    await trio.testing.wait_all_tasks_blocked()
    for each in all_of:
        each.outcome = ErrorCode.NONE
    wake(partition)
    assert sum(pipe.data == b"response" for pipe in pipes) == ACTING_MAX


async def test_an_append_of_others_wakes_no_connection_that_waits_for_a_commit(queued, nursery, autojump_clock):
    partition = Watched()
    waiting = Acknowledgement(partition, b"response")
    queued.add(waiting)
    wake(partition, committed=False)
    assert not queued.dirty
    assert partition.waiters == {queued: None}, "and it hears of the commit"
