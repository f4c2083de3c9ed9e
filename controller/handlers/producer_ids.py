"""AllocateProducerIds: blocks of producer ids, claimed in the metadata store (KIP-730; reference E.5).

The node has the last block that was allocated. No producer id may ever be given twice: two producers with one id would
fence each other, and their records would be taken for duplicates.
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
    # A request of an earlier registration is refused: its process may be gone, and the block would
    # never be used.
    elif broker.epoch != event.broker_epoch:
        event.answer(ErrorCode.STALE_BROKER_EPOCH)
    else:
        event.answer(await _claim_producer_ids(context, event.broker_id))


async def _claim_producer_ids(context: ControllerContext, broker_id: int) -> ProducerIdBlock | ErrorCode:
    while True:
        data, stat = await context.store.get(paths.PRODUCER_ID_BLOCK)
        first = 0
        # The node is created without data, at the start of the first broker: then no block has been allocated.
        if data is not None:
            previous = loading.parse(ProducerIdBlock.decode, data, paths.PRODUCER_ID_BLOCK)
            # If the node is malformed, allocation does not begin with 0 again: those ids have been
            # given out long ago.
            if previous is None or previous.last > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
                logger.error("no producer ids are left in %s: %r", paths.PRODUCER_ID_BLOCK, data)
                return ErrorCode.UNKNOWN_SERVER_ERROR
            first = previous.last + 1
        block = ProducerIdBlock(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
        # The write is conditional, and not only fenced: below 3.0-IV0 brokers claim blocks
        # themselves, past the controller.
        (outcome,) = await context.write([[SetData(paths.PRODUCER_ID_BLOCK, block.encode(), stat.version)]])
        # If the write is refused, another broker has claimed this block, or our own write was
        # carried out and its answer was lost. The next attempt takes the next block; a block whose
        # answer was lost is never used.
        if not isinstance(outcome, NodeError):
            return block
