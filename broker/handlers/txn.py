"""InitProducerId and AllocateProducerIds: ids for idempotent producers.

Behaviour: a producer without transactional id gets a fresh producer id with epoch 0 from this broker's block; blocks
    of a thousand come from the controller (reference E.5). A client that asks again with its own id and epoch
    (KIP-360) gets a fresh id as well, as in Kafka; with only one of the two it gets INVALID_REQUEST.
Versions: InitProducerId 0-5, AllocateProducerIds 0.
Not done: transactional ids, whose coordinator does not exist yet: UNSUPPORTED_VERSION, which ends a client's attempt.
"""

from barnabas.broker.call import Broker, Call
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


async def init_producer_id(broker: Broker, call: Call, request: m.InitProducerIdRequest) -> m.InitProducerIdResponse:
    """A producer id of its own for an idempotent producer."""
    if request.transactional_id is not None:
        if request.transactional_id == "":
            return refuse_init_producer_id(request, call.version, ErrorCode.INVALID_REQUEST)
        if not call.authorize("Write", "TransactionalId", request.transactional_id):
            return refuse_init_producer_id(request, call.version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        return refuse_init_producer_id(request, call.version, ErrorCode.UNSUPPORTED_VERSION)
    if not call.authorize("IdempotentWrite", "Cluster"):
        return refuse_init_producer_id(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        return refuse_init_producer_id(request, call.version, ErrorCode.INVALID_REQUEST)
    producer_id = await broker.producer_ids.next_id()
    if isinstance(producer_id, ErrorCode):
        return refuse_init_producer_id(request, call.version, producer_id)
    return m.InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def allocate_producer_ids(
    broker: Broker, call: Call, request: m.AllocateProducerIdsRequest
) -> m.AllocateProducerIdsResponse:
    """The next block of ids for a broker; only the active controller gives them out."""
    if not call.authorize("ClusterAction", "Cluster"):
        return refuse_allocate_producer_ids(request, call.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    block = await broker.candidate.allocate_producer_ids(request.broker_id, request.broker_epoch)
    if isinstance(block, ErrorCode):
        return refuse_allocate_producer_ids(request, call.version, block)
    return m.AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)


def refuse_init_producer_id(
    request: m.InitProducerIdRequest, version: int, code: ErrorCode
) -> m.InitProducerIdResponse:
    """One error and no id."""
    return m.InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)


def refuse_allocate_producer_ids(
    request: m.AllocateProducerIdsRequest, version: int, code: ErrorCode
) -> m.AllocateProducerIdsResponse:
    """One error and no block."""
    return m.AllocateProducerIdsResponse(error_code=code)
