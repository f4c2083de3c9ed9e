"""A broker that is about to stop hands over what it leads: ControlledShutdown on the controller (reference B.13).

From the first request on the broker is elected for nothing and taken into no ISR, until its registration goes. It asks
again as long as the answer names partitions that it still leads because no other replica is in sync, and then stops
anyway.
"""

import logging
from functools import partial

from barnabas.controller.context import PARTITIONS_IN_A_BATCH, ControllerContext
from barnabas.controller.decide.leaders import (
    decide_controlled_shutdown,
    decide_stopped_followers,
    led_by,
    partitions_to_hand_over,
)
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.events import ControlledShutdownAsked
from barnabas.controller.image.state import BrokerLeaving
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

NO_BROKER_EPOCH = -1

logger = logging.getLogger(__name__)


async def controlled_shutdown_asked(context: ControllerContext, event: ControlledShutdownAsked) -> None:
    """Move leadership away from the broker, and say what it still leads."""
    broker = context.image.brokers.get(event.broker_id)
    if broker is None:
        # So says Kafka 3.9.1 of a broker that is not registered: it looks its epoch up before it asks whether it lives.
        is_old = event.broker_epoch == NO_BROKER_EPOCH
        event.answer(ErrorCode.BROKER_NOT_AVAILABLE if is_old else ErrorCode.UNKNOWN_SERVER_ERROR)
    elif NO_BROKER_EPOCH != event.broker_epoch < broker.epoch:
        event.answer(ErrorCode.STALE_BROKER_EPOCH)
    else:
        logger.info("broker %d is about to stop", event.broker_id)
        context.replay(BrokerLeaving(event.broker_id))
        remaining: list[TopicPartition] = []
        for part in in_slices(list(context.image.held.get(event.broker_id, ())), PARTITIONS_IN_A_BATCH):
            concerned = partitions_to_hand_over(context.image, part)
            stopped = await context.decide(partial(decide_stopped_followers, event.broker_id), concerned)
            await context.elect(concerned, stopped, choose=decide_controlled_shutdown(event.broker_id))
            remaining += led_by(context.image, concerned, event.broker_id)
        event.answer(remaining)
