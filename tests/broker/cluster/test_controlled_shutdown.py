"""What a stopping broker asks of the controller, how often, and when it does not ask at all."""

from types import SimpleNamespace

import pytest
import trio

from barnabas.broker.cluster.controlled_shutdown import controlled_shutdown
from barnabas.config.live import BrokerConfig
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from tests.broker.harness import Machine
from tests.broker.requests import dotted

LEFT = m.ControlledShutdownResponse(
    remaining_partitions=[m.ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=3)]
)
DONE = m.ControlledShutdownResponse()
MOVED = m.ControlledShutdownResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)


class Controller:
    """Gives these answers, one after the other; an exception is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def ask(self, request, deadline_ms):
        await trio.lowlevel.checkpoint()
        self.asked.append((trio.current_time(), request.broker_id, request.broker_epoch, deadline_ms))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def stop(controller, *, brokers=(1, 2), **properties):
    """How long it takes."""
    metadata = SimpleNamespace(brokers=dict.fromkeys(brokers))
    replicas = SimpleNamespace(broker_id=1, broker_epoch=77)
    began = trio.current_time()
    await controlled_shutdown(BrokerConfig(dotted(properties)), metadata, replicas, controller)
    return trio.current_time() - began


async def test_one_answer_that_leaves_nothing_is_enough(autojump_clock):
    controller = Controller(DONE)
    assert await stop(controller) == 0
    assert controller.asked == [(0.0, 1, 77, 30_000)]


@pytest.mark.parametrize("answer", [LEFT, MOVED])
async def test_what_is_left_is_asked_for_again(autojump_clock, answer):
    controller = Controller(answer, DONE)
    assert await stop(controller) == 5
    assert len(controller.asked) == 2


async def test_after_some_attempts_it_stops_anyway(autojump_clock, caplog):
    controller = Controller(*[LEFT] * 9)
    assert await stop(controller) == 10
    assert len(controller.asked) == 3
    assert "t-3 first" in caplog.text
    assert "not handed over" in caplog.text


async def test_without_a_controller_it_stops_when_the_first_attempt_is_over(autojump_clock, caplog):
    controller = Controller(PeerLost("no node"), DONE)
    assert await stop(controller) == 0
    assert len(controller.asked) == 1
    assert "no controller answers: no node" in caplog.text


async def test_attempts_and_pauses_are_configured(autojump_clock):
    controller = Controller(*[LEFT] * 9)
    times = {"controlled_shutdown_max_retries": "5", "controlled_shutdown_retry_backoff_ms": "100"}
    assert await stop(controller, **times) == pytest.approx(0.4)
    assert len(controller.asked) == 5


async def test_it_does_not_ask_where_that_is_disabled(autojump_clock):
    controller = Controller()
    assert await stop(controller, controlled_shutdown_enable="false") == 0
    assert controller.asked == []


@pytest.mark.parametrize("brokers", [(), (1,)])
async def test_alone_it_stops_at_once(autojump_clock, brokers):
    controller = Controller()
    assert await stop(controller, brokers=brokers) == 0
    assert controller.asked == []


async def test_a_single_broker_stops_at_once(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t", 3)
    began = trio.current_time()
    await machine.stop()
    assert trio.current_time() - began < 1


async def test_a_pause_below_zero_is_none(autojump_clock):
    assert await stop(Controller(LEFT, DONE), controlled_shutdown_retry_backoff_ms="-1") == 0
