"""Blocks of producer ids, claimed in the metadata store for the brokers that ask (reference E.5).

The node holds the last block that was given out. A block is claimed by a conditional write, also in a Java cluster, so
no two brokers ever get the same; a block whose answer is lost is never used.
"""

import logging

from barnabas.controller.context import ControllerContext
from barnabas.controller.events import ProducerIdsAsked
from barnabas.controller.image import loading
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ProducerIdBlock
from barnabas.controller.store.store import NodeError, SetData
from barnabas.wire.errors import ErrorCode

PRODUCER_ID_BLOCK_SIZE = 1000
PRODUCER_ID_MAX = (1 << 63) - 1

logger = logging.getLogger(__name__)


async def producer_ids_asked(context: ControllerContext, event: ProducerIdsAsked) -> None:
    """Claim the next block for a broker."""
    broker = context.image.brokers.get(event.broker_id)
    if broker is None:
        event.answer(ErrorCode.BROKER_ID_NOT_REGISTERED)
    elif broker.epoch != event.broker_epoch:
        event.answer(ErrorCode.STALE_BROKER_EPOCH)
    else:
        event.answer(await _claim_producer_ids(context, event.broker_id))


async def _claim_producer_ids(context: ControllerContext, broker_id: int) -> ProducerIdBlock | ErrorCode:
    while True:
        data, stat = await context.store.get(paths.PRODUCER_ID_BLOCK)
        first = 0
        if data is not None:
            previous = loading.parse(ProducerIdBlock.decode, data, paths.PRODUCER_ID_BLOCK)
            if previous is None or previous.last > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
                logger.error("no producer ids are left in %s: %r", paths.PRODUCER_ID_BLOCK, data)
                return ErrorCode.UNKNOWN_SERVER_ERROR
            first = previous.last + 1
        block = ProducerIdBlock(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
        (outcome,) = await context.write([[SetData(paths.PRODUCER_ID_BLOCK, block.encode(), stat.version)]])
        if not isinstance(outcome, NodeError):
            return block
