"""InitProducerId (pure): the next epoch of a transactional id, which fences its former owner (T.6; KIP-98, KIP-360)."""

from barnabas.coordinators.transactions.ending import fence
from barnabas.coordinators.transactions.events import (
    CONCURRENT,
    CONCURRENT_ANSWER,
    Answer,
    Decision,
    InitProducer,
    NeedsProducerId,
    refuse,
)
from barnabas.coordinators.transactions.state import (
    EXHAUSTED_EPOCH,
    NO_PARTITIONS,
    NO_PRODUCER,
    NO_PRODUCER_EPOCH,
    NO_TIME,
    PREPARED,
    Producer,
    Recorded,
    Status,
    TransactionalId,
)
from barnabas.wire.errors import ErrorCode

FENCED = refuse(ErrorCode.PRODUCER_FENCED)


def decide_init(known: TransactionalId | None, event: InitProducer, now_ms: int, *, pending: bool) -> Decision:
    """Store the next epoch and answer with it. CONCURRENT_TRANSACTIONS until an open transaction is aborted.

    Error answers: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED (the client is not the owner that it says it is).
    """
    if known is None:
        return _first(event, now_ms)
    recorded, expected = known.recorded, event.expected
    # The owner of the id is checked when the client repeats the request.
    if pending or recorded.status in PREPARED:
        return CONCURRENT
    if expected is not None and not _may_be_owner(known, expected):
        return FENCED
    if recorded.status is Status.ONGOING:
        # A client that was fenced before must not abort the transaction of its successor. Kafka does not look.
        if expected is not None and expected.producer_epoch != recorded.producer_epoch:
            return FENCED
        # The client asks again, and gets its epoch when the abort is complete. The raised epoch reaches the partitions
        # with the markers: from then on they refuse the former owner.
        return Decision(CONCURRENT_ANSWER, fence(recorded, now_ms))
    return _next(known, event, now_ms)


def _may_be_owner(known: TransactionalId, expected: Producer) -> bool:
    """Whether the id and epoch that the client says it has are its own, or those that it had before the last answer."""
    if expected.producer_id == known.recorded.producer_id:
        return True
    # The former producer id was exhausted, and the client has not received the answer with the new one.
    return expected.producer_id == known.previous.producer_id and expected.producer_epoch >= EXHAUSTED_EPOCH


def _first(event: InitProducer, now_ms: int) -> Decision:
    # What the client expects does not count, as in Kafka: its id has expired here.
    if event.fresh_id is None:
        return Decision(NeedsProducerId())
    return _give(Recorded(event.fresh_id, 0, event.timeout_ms, Status.EMPTY, NO_PARTITIONS, now_ms), NO_PRODUCER)


def _next(known: TransactionalId, event: InitProducer, now_ms: int) -> Decision:
    """Of an id without an open transaction."""
    recorded, expected, owner = known.recorded, event.expected, known.producer
    empty = recorded.entering(Status.EMPTY, now_ms)
    empty = empty._replace(partitions=NO_PARTITIONS, timeout_ms=event.timeout_ms, start_ms=NO_TIME)
    is_owner = expected is None or expected.producer_epoch == owner.producer_epoch
    # The request is a repetition: the client has not received the answer. Of one that names no epoch this is not known,
    # and it gets a higher epoch.
    if not is_owner:
        assert expected is not None
        is_repeated = expected.producer_epoch == known.previous.producer_epoch
        return _give(empty, known.previous) if is_repeated else FENCED
    # With the epoch of a client that names none, a later request would look like a repetition.
    previous = Producer(owner.producer_id, NO_PRODUCER_EPOCH if expected is None else owner.producer_epoch)
    if owner.producer_epoch < EXHAUSTED_EPOCH:
        return _give(empty._replace(producer_epoch=owner.producer_epoch + 1), previous)
    if event.fresh_id is None:
        return Decision(NeedsProducerId())
    # As in Kafka's record the start of the last transaction stays.
    return _give(empty._replace(producer_id=event.fresh_id, producer_epoch=0, start_ms=recorded.start_ms), previous)


def _give(recorded: Recorded, previous: Producer) -> Decision:
    producer = Producer(recorded.producer_id, recorded.producer_epoch)
    return Decision(Answer(ErrorCode.NONE, producer), recorded, previous)
