"""The channels: order, patience, and that a removed broker is left alone at once."""

import pytest
import trio
import trio.testing

from barnabas.controller.channels import ControllerChannels
from barnabas.wire import messages as m
from barnabas.wire.errors import PeerLost


class Peer:
    """Takes requests while it is up; `slow_seconds` passes before each answer."""

    def __init__(self):
        self.asked = []
        self.taken = []
        self.is_up = True
        self.slow_seconds = 0
        self.is_closed = False

    async def ask(self, request, deadline_ms):
        self.asked.append((trio.current_time(), request.controller_epoch, deadline_ms))
        await trio.sleep(self.slow_seconds)
        if not self.is_up:
            raise PeerLost("down")
        self.taken.append(request.controller_epoch)
        return m.UpdateMetadataResponse()

    def close(self):
        self.is_closed = True


def numbered(*numbers):
    return [m.UpdateMetadataRequest(controller_epoch=number) for number in numbers]


@pytest.fixture
def answers():
    return []


@pytest.fixture
def peers():
    return {1: Peer(), 2: Peer()}


@pytest.fixture
def channels(nursery, peers, answers, make):
    def answered(broker, request, response):
        answers.append((broker.broker_id, request.controller_epoch, type(response).__name__))

    channels = ControllerChannels(nursery, lambda broker: peers[broker.broker_id], answered, lambda: 30_000)
    for broker_id in peers:
        channels.add(make.broker(broker_id))
    return channels


async def test_requests_arrive_in_order_and_answers_are_reported(autojump_clock, channels, peers, answers):
    channels.send(1, numbered(1, 2))
    channels.send(1, numbered(3))
    await trio.sleep(1)
    assert peers[1].taken == [1, 2, 3]
    assert answers == [(1, number, "UpdateMetadataResponse") for number in (1, 2, 3)]


async def test_one_request_is_on_its_way_at_a_time(autojump_clock, channels, peers):
    peers[1].slow_seconds = 2
    channels.send(1, numbered(1, 2))
    await trio.sleep(1)
    assert [number for _, number, _ in peers[1].asked] == [1]
    await trio.sleep(2)
    assert [number for _, number, _ in peers[1].asked] == [1, 2]


async def test_a_request_is_repeated_every_100_ms_until_it_is_taken(autojump_clock, channels, peers):
    peers[1].is_up = False
    began = trio.current_time()
    channels.send(1, numbered(1, 2))
    await trio.sleep(0.25)
    assert [round(at - began, 3) for at, _, _ in peers[1].asked] == [0, 0.1, 0.2]
    peers[1].is_up = True
    await trio.sleep(0.2)
    assert peers[1].taken == [1, 2]


async def test_a_broker_that_is_down_holds_up_no_other(autojump_clock, channels, peers):
    peers[1].is_up = False
    channels.send(1, numbered(1))
    channels.send(2, numbered(1))
    await trio.sleep(1)
    assert (peers[1].taken, peers[2].taken) == ([], [1])


async def test_a_removed_broker_is_not_asked_again(autojump_clock, channels, peers):
    peers[1].is_up = False
    channels.send(1, numbered(1, 2))
    await trio.sleep(1)
    channels.remove(1)
    before = len(peers[1].asked)
    await trio.sleep(60)
    assert len(peers[1].asked) == before


async def test_a_request_under_way_is_given_up_with_its_broker(autojump_clock, channels, peers, answers):
    peers[1].slow_seconds = 5
    channels.send(1, numbered(1))
    await trio.sleep(1)
    channels.remove(1)
    await trio.sleep(60)
    assert (peers[1].taken, answers) == ([], [])


async def test_a_broker_that_returns_gets_only_what_is_sent_to_its_new_life(autojump_clock, channels, peers, make):
    peers[1].is_up = False
    channels.send(1, numbered(1))
    await trio.sleep(1)
    channels.remove(1)
    peers[1].is_up = True
    channels.add(make.broker(1, epoch=500))
    channels.send(1, numbered(2))
    await trio.sleep(1)
    assert peers[1].taken == [2]


async def test_a_broker_that_moved_is_reached_at_its_new_address(autojump_clock, channels, peers, make):
    old = peers[1]
    old.is_up = False
    channels.send(1, numbered(1))
    await trio.sleep(1)
    peers[1] = Peer()
    channels.change(make.broker(1, port=1))
    await trio.sleep(1)
    assert (old.taken, peers[1].taken) == ([], [1])


async def test_every_attempt_has_the_configured_deadline(autojump_clock, channels, peers):
    channels.send(2, numbered(1))
    await trio.sleep(1)
    assert [deadline_ms for _, _, deadline_ms in peers[2].asked] == [30_000]


async def test_a_broker_that_stays_down_is_mentioned_every_ten_seconds(autojump_clock, channels, peers, caplog):
    peers[1].is_up = False
    channels.send(1, numbered(1))
    await trio.sleep(25)
    assert len(peers[1].asked) > 200
    assert len(caplog.records) == 3
    assert caplog.records[0].getMessage() == "broker 1 did not take UpdateMetadataRequest (attempt 1): down"


async def test_what_is_no_longer_asked_is_closed(autojump_clock, channels, peers, make):
    moved, removed = peers[1], peers[2]
    peers[1] = Peer()
    channels.change(make.broker(1, port=1))
    channels.remove(2)
    await trio.sleep(1)
    assert (moved.is_closed, removed.is_closed, peers[1].is_closed) == (True, True, False)
