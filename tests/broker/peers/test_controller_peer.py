"""Requests to the controller while it changes, is missing, or does not respond."""

from itertools import pairwise

import pytest
import trio

from barnabas.broker.peers.controller_peer import ControllerPeer
from barnabas.config.live import BrokerConfig
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.world.metadata import ClusterMetadata

BLOCK = m.AllocateProducerIdsResponse(producer_id_start=0, producer_id_len=1000)
MOVED = m.AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER)
Live = m.UpdateMetadataRequest.UpdateMetadataBroker


class Peer:
    """Gives its answer: an exception, a response, or None for none at all."""

    def __init__(self, broker_id, answer):
        self.broker_id = broker_id
        self.answer = answer
        self.asked_at = []
        self.is_closed = False

    async def ask(self, request, deadline_ms, version_max=None):
        self.asked_at.append(trio.current_time())
        await trio.lowlevel.checkpoint()
        if self.answer is None:
            await trio.sleep_forever()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self):
        self.is_closed = True


class Brokers:
    """Three brokers, none of which is the controller, and the link of one to them."""

    def __init__(self):
        self.metadata = ClusterMetadata()
        self.answers = dict.fromkeys((1, 2, 3), MOVED)
        self.opened = []
        self.link = ControllerPeer(self, BrokerConfig({}), self.metadata, 1)

    def controller(self, broker_id, client_id):
        self.opened.append(Peer(broker_id, self.answers[broker_id]))
        return self.opened[-1]

    def name_controller(self, broker_id, live=(1, 2, 3)):
        live_brokers = [Live(id=each) for each in live]
        self.metadata.apply(m.UpdateMetadataRequest(controller_id=broker_id, live_brokers=live_brokers))

    async def ask(self, request=None, deadline_ms=60_000):
        return await self.link.ask(request or m.AllocateProducerIdsRequest(broker_id=1), deadline_ms)


@pytest.fixture
def brokers():
    return Brokers()


async def test_the_controller_that_metadata_names_is_asked(autojump_clock, brokers):
    brokers.answers[2] = BLOCK
    brokers.name_controller(2)
    assert [await brokers.ask() for _ in range(3)] == [BLOCK] * 3
    assert [peer.broker_id for peer in brokers.opened] == [2]


async def test_a_broker_that_refuses_a_controlled_shutdown_is_not_the_controller(autojump_clock, brokers):
    brokers.answers[2] = m.ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
    brokers.name_controller(2)
    with pytest.raises(PeerLost, match="not the controller"):
        await brokers.ask(m.ControlledShutdownRequest(), 1000)


async def test_a_question_waits_until_a_controller_is_named(autojump_clock, brokers, nursery):
    brokers.answers[3] = BLOCK

    async def name_one_later():
        await trio.sleep(10)
        brokers.name_controller(3)

    nursery.start_soon(name_one_later)
    assert await brokers.ask() == BLOCK
    assert trio.current_time() == 10


@pytest.mark.parametrize("answer", [MOVED, PeerLost("gone")])
async def test_who_is_it_no_longer_is_left_for_the_next(autojump_clock, brokers, nursery, answer):
    brokers.answers |= {2: answer, 3: BLOCK}
    brokers.name_controller(2)

    async def name_another_later():
        await trio.sleep(3)
        brokers.name_controller(3)

    nursery.start_soon(name_another_later)
    assert await brokers.ask() == BLOCK
    assert trio.current_time() == 3
    former, _ = brokers.opened
    assert former.is_closed


async def test_who_hangs_is_left_as_soon_as_there_is_another(autojump_clock, brokers, nursery):
    brokers.answers |= {2: None, 3: BLOCK}
    brokers.name_controller(2)
    await nursery.start(brokers.link.run)

    async def name_another_later():
        await trio.sleep(1)
        brokers.name_controller(2, live=(1, 2))  # that changes nothing about the controller
        await trio.sleep(2)
        brokers.name_controller(3)

    nursery.start_soon(name_another_later)
    assert await brokers.ask() == BLOCK
    assert trio.current_time() == 3
    assert [peer.broker_id for peer in brokers.opened] == [2, 3]


async def test_attempts_at_one_broker_become_rare(autojump_clock, brokers):
    brokers.name_controller(2)
    with pytest.raises(PeerLost, match="not the controller"):
        await brokers.ask(deadline_ms=5_000)
    at = brokers.opened[0].asked_at
    assert [round(after - before, 3) for before, after in pairwise(at)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1]


async def test_a_controller_that_is_not_alive_is_not_asked(autojump_clock, brokers):
    brokers.name_controller(2, live=(1, 3))
    with pytest.raises(PeerLost, match="no controller is known"):
        await brokers.ask(deadline_ms=5_000)
    assert brokers.opened == []


async def test_each_kind_of_request_has_a_connection_of_its_own(autojump_clock, brokers):
    brokers.answers[2] = BLOCK
    brokers.name_controller(2)
    await brokers.ask()
    await brokers.ask(m.AlterPartitionRequest())
    assert [peer.broker_id for peer in brokers.opened] == [2, 2]
