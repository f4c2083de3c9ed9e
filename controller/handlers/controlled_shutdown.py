"""ControlledShutdown on the controller: moves the leaderships of a broker that is about to stop (reference B.13).

From the first request until its registration is gone, the broker is not elected and not added to an ISR. The response
names the partitions that the broker still leads, because no other replica is in sync. The broker repeats the request
while there are any, at most `controlled.shutdown.max.retries` times, and then stops anyway.
"""

import logging
from functools import partial

from barnabas.controller.context import PARTITIONS_IN_A_BATCH, ControllerContext
from barnabas.controller.decide.leaders import (
    decide_controlled_shutdown,
    decide_stopped_followers,
    led_by,
    partitions_to_act_on,
)
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.events import ControlledShutdownAsked
from barnabas.controller.image.state import BrokerLeaving
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

NO_BROKER_EPOCH = -1

logger = logging.getLogger(__name__)


async def controlled_shutdown_asked(context: ControllerContext, event: ControlledShutdownAsked) -> None:
    """Move leadership away from the broker, and answer with the partitions that it still leads."""
    broker = context.image.brokers.get(event.broker_id)
    if broker is None:
        # Kafka 3.9.1 answers UNKNOWN_SERVER_ERROR if the request has a broker epoch: it looks up
        # the registered one before it checks whether the broker is alive.
        is_old = event.broker_epoch == NO_BROKER_EPOCH
        event.answer(ErrorCode.BROKER_NOT_AVAILABLE if is_old else ErrorCode.UNKNOWN_SERVER_ERROR)
    # A late request of an earlier registration must not stop the broker that is running now. Versions 0
    # and 1 of the request have no epoch, and are always accepted.
    elif NO_BROKER_EPOCH != event.broker_epoch < broker.epoch:
        event.answer(ErrorCode.STALE_BROKER_EPOCH)
    else:
        logger.info("broker %d is about to stop", event.broker_id)

        # This comes before the first decision, so that no election chooses this broker again. The
        # state is in no node: after a fail-over the new controller may elect the broker, until the
        # broker repeats its request there.
        context.replay(BrokerLeaving(event.broker_id))
        remaining: list[TopicPartition] = []
        for part in in_slices(list(context.image.held.get(event.broker_id, ())), PARTITIONS_IN_A_BATCH):
            concerned = partitions_to_act_on(context.image, part)

            # A follower that goes on fetching stays caught up, and its leader asks for it in the ISR again. So the
            # followers stop in the same batch in which they leave the ISRs.
            stopped = await context.decide(partial(decide_stopped_followers, event.broker_id), concerned)
            await context.elect(concerned, stopped, choose=decide_controlled_shutdown(event.broker_id))

            # The image is asked and not the decision: the store may have refused a change, or held
            # another leader.
            remaining += led_by(context.image, concerned, event.broker_id)
        event.answer(remaining)
