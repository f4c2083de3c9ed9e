"""A follower's properties have their effect, as seen by a leader that records requests and sends prepared responses.

The test is the leader: it listens at the address of broker 2.
"""

import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import trio

from barnabas.wire import messages as m
from barnabas.wire.apis import request_header_version, response_header_version
from barnabas.wire.errors import ErrorCode
from barnabas.world.net import ConnectionLost
from tests.broker.clusters import FIRST_PORT, until
from tests.broker.replica_group import Group

FETCH = 1
LATEST, EARLIEST = -1, -2


class WrittenLeader:
    """Broker 2: what it was asked, when and over which connection."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, int, m.FetchRequest]] = []
        self.connections = 0
        self.offsets = {LATEST: 0, EARLIEST: 0}
        self.answer: Callable[[m.FetchRequest], m.FetchResponse | None] = nothing_new

    async def serve(self, net, nursery, *, task_status=trio.TASK_STATUS_IGNORED) -> None:
        listener = await net.listen("127.0.0.1", FIRST_PORT + 1, backlog=10)
        task_status.started()
        await listener.serve(self._connection, nursery)

    async def _connection(self, stream) -> None:
        self.connections += 1
        with suppress(ConnectionLost):
            await self._answer_all(stream)

    async def _answer_all(self, stream) -> None:
        number, data = self.connections, b""
        while True:
            received = await stream.receive_some(1 << 16)
            if not received:
                return
            data += received
            while len(data) >= 4 and len(data) >= 4 + struct.unpack(">i", data[:4])[0]:
                size = struct.unpack(">i", data[:4])[0]
                await self._answer(stream, number, data[4 : 4 + size])
                data = data[4 + size :]

    async def _answer(self, stream, number: int, frame: bytes) -> None:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        _, position = m.decode_from(m.RequestHeader, request_header_version(key, version), frame, 0)
        if key == FETCH:
            request = m.decode(m.FetchRequest, version, frame, position)
            self.asked.append((trio.current_time(), number, request))
            response = self.answer(request)
            if response is None:
                return
            if not any(topic.partitions and topic.partitions[0].error_code for topic in response.responses):
                await trio.sleep(request.max_wait_ms / 1000)
        else:
            request = m.decode(m.ListOffsetsRequest, version, frame, position)
            (asked,) = request.topics[0].partitions
            response = offset_answer(request.topics[0].name, self.offsets[asked.timestamp])
        header = m.encode(m.ResponseHeader(correlation_id=correlation_id), response_header_version(key, version))
        body = header + m.encode(response, version)
        await stream.send_all(struct.pack(">i", len(body)) + body)

    @property
    def last(self) -> m.FetchRequest:
        return self.asked[-1][2]

    def pauses(self) -> list[float]:
        """Between one request and the next."""
        times = [time for time, _, _ in self.asked]
        return [round(after - before, 3) for before, after in pairwise(times)]


def nothing_new(request: m.FetchRequest, **row) -> m.FetchResponse:
    """Of every partition that is named, nothing; without a session."""
    return m.FetchResponse(
        responses=[
            m.FetchResponse.FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    m.FetchResponse.PartitionData(partition_index=each.partition, records=b"", **row)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def offset_answer(topic: str, offset: int) -> m.ListOffsetsResponse:
    row = m.ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=offset)
    return m.ListOffsetsResponse(topics=[m.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic, partitions=[row])])


def out_of_range(request: m.FetchRequest) -> m.FetchResponse:
    return nothing_new(request, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)


def does_not_lead(request: m.FetchRequest) -> m.FetchResponse:
    return nothing_new(request, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


async def out_of_range_of(nursery, *, latest: int, earliest: int):
    """A broker with the offsets 0 to 4, whose leader says that this is out of its range."""
    group = await Group.start(nursery, count=1)
    leader = WrittenLeader()
    leader.answer, leader.offsets = out_of_range, {LATEST: latest, EARLIEST: earliest}
    group.also_alive = [2]
    await nursery.start(leader.serve, group.machines[1].net, nursery)
    topic = group.topic(replicas=[1, 2])
    await topic.led_by(1)
    await topic.produce(*[b"%d" % number for number in range(5)])
    await topic.led_by(2)
    await until(lambda: leader.asked)
    leader.answer = nothing_new if latest < 5 or earliest > 5 else out_of_range
    return topic, leader


async def following(nursery, topics: int = 1, **properties):
    """A broker that follows broker 2, in so many topics; both."""
    group = await Group.start(nursery, count=1, **properties)
    leader = WrittenLeader()
    group.also_alive = [2]
    await nursery.start(leader.serve, group.machines[1].net, nursery)
    for number in range(topics):
        await group.topic(f"t{number}", replicas=[1, 2]).led_by(2)
    await until(lambda: leader.asked)
    return group, leader


async def test_the_limits_of_a_fetch_are_said_in_it(nursery, autojump_clock):
    limits = {"response_max_bytes": "5000", "max_bytes": "3000", "min_bytes": "7", "wait_max_ms": "400"}
    _, leader = await following(nursery, **{f"replica_fetch_{name}": text for name, text in limits.items()})
    said = leader.last
    assert (said.max_bytes, said.min_bytes, said.max_wait_ms) == (5000, 7, 400)
    assert said.topics[0].partitions[0].partition_max_bytes == 3000


async def test_a_follower_that_gets_nothing_asks_once_in_its_longest_wait(nursery, autojump_clock):
    _, leader = await following(nursery, replica_fetch_wait_max_ms="2000")
    await trio.sleep(60)
    assert 29 <= len(leader.asked) <= 31


async def test_after_an_error_a_partition_rests_longer_each_time(nursery, autojump_clock):
    _, leader = await following(nursery, replica_fetch_backoff_ms="300")
    leader.answer = does_not_lead
    await trio.sleep(20)
    first = leader.pauses().index(0.05)
    assert leader.pauses()[first : first + 5] == [0.05, 0.1, 0.2, 0.3, 0.3]


async def test_the_first_rest_after_an_answer_is_short_again(nursery, autojump_clock):
    _, leader = await following(nursery, replica_fetch_backoff_ms="3000")
    leader.answer = does_not_lead
    await trio.sleep(20)
    assert leader.pauses()[-1] == 3.0
    leader.answer = nothing_new
    await trio.sleep(5)
    leader.answer = does_not_lead
    asked = len(leader.asked)
    await trio.sleep(2)
    assert 0.05 in leader.pauses()[asked - 1 :]


async def test_a_rest_of_no_time_is_still_no_busy_loop(nursery, autojump_clock):
    _, leader = await following(nursery, replica_fetch_backoff_ms="0")
    leader.answer = does_not_lead
    await trio.sleep(10)
    assert 900 <= len(leader.asked) <= 1100


async def test_a_leader_that_does_not_answer_in_time_is_asked_over_another_connection(nursery, autojump_clock):
    _, leader = await following(
        nursery, replica_socket_timeout_ms="5000", replica_fetch_backoff_ms="1000", replica_lag_time_max_ms="5000"
    )
    await trio.sleep(1)
    leader.answer = lambda request: None
    await trio.sleep(60)
    assert leader.pauses()[-2:] == [6.0, 6.0]
    assert leader.connections >= 3


async def test_partitions_are_divided_among_so_many_connections(nursery, autojump_clock):
    _, leader = await following(nursery, 20, num_replica_fetchers="4")
    await trio.sleep(2)
    assert len({number for _, number, _ in leader.asked[-4:]}) == 4


async def test_the_number_of_fetchers_changes_while_they_run(nursery, autojump_clock):
    group, leader = await following(nursery, 20)
    await trio.sleep(2)
    assert {number for _, number, _ in leader.asked[-4:]} == {leader.asked[-1][1]}
    await group.alter_brokers("num.replica.fetchers", "2")
    await trio.sleep(2)
    named = [{topic.topic_id for topic in request.topics} for _, _, request in leader.asked[-2:]]
    assert len(named[0] | named[1]) == 20
    assert not named[0] & named[1]


async def test_a_stop_replica_ends_the_fetching(nursery, autojump_clock):
    group, leader = await following(nursery)
    client = group.clients[1]
    assert await client.stop_replica(group.machines[1], "t0", leader_epoch=-1) == 0
    await trio.sleep(2)
    count = len(leader.asked)
    await trio.sleep(60)
    assert len(leader.asked) == count


async def test_a_partition_that_is_fenced_is_asked_for_again_after_the_next_role(nursery, autojump_clock):
    group = await Group.start(nursery, count=1)
    leader = WrittenLeader()
    leader.answer = lambda request: nothing_new(request, error_code=ErrorCode.FENCED_LEADER_EPOCH)
    group.also_alive = [2]
    await nursery.start(leader.serve, group.machines[1].net, nursery)
    topic = group.topic(replicas=[1, 2])
    await topic.led_by(2)
    await trio.sleep(60)
    assert len(leader.asked) == 1
    await topic.led_by(2)
    await trio.sleep(60)
    assert [request.topics[0].partitions[0].current_leader_epoch for _, _, request in leader.asked] == [0, 1]


async def test_the_broker_epoch_and_the_log_start_are_reported(nursery, autojump_clock):
    group, leader = await following(nursery)
    said = leader.last
    assert said.replica_state.replica_id == 1
    assert said.replica_state.replica_epoch == await group.machines[1].broker_epoch()
    assert said.topics[0].partitions[0].log_start_offset == 0


# -- out of range


async def test_a_log_that_ends_behind_its_leaders_is_cut_there(nursery, autojump_clock):
    topic, leader = await out_of_range_of(nursery, latest=3, earliest=0)
    await until(lambda: len(leader.asked) > 1)
    assert leader.last.topics[0].partitions[0].fetch_offset == 3
    assert topic.values(1) == [b"0", b"1", b"2"]


async def test_a_log_that_ends_before_its_leaders_starts_begins_again_there(nursery, autojump_clock):
    topic, leader = await out_of_range_of(nursery, latest=20, earliest=9)
    await until(lambda: len(leader.asked) > 1)
    said = leader.last.topics[0].partitions[0]
    assert (said.fetch_offset, said.last_fetched_epoch, said.log_start_offset) == (9, -1, 9)
    assert topic.values(1) == []


async def test_a_log_that_is_in_range_after_all_is_kept_and_asked_for_in_no_hurry(nursery, autojump_clock):
    topic, leader = await out_of_range_of(nursery, latest=5, earliest=0)
    await trio.sleep(10)
    assert 9 <= len(leader.asked) <= 15
    assert len(topic.values(1)) == 5
