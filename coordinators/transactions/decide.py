"""What follows from an event of a transactional id (pure): one event in, one decision out (T.6 to T.10; KIP-98).

    decide(known, event, now_ms, pending=...)   `known` is None for an unknown id

The shell stores the record of the decision and replays it (`state.replay`), in the same step. A record that cannot be
stored changes nothing: the request gets `TRANSACTION_NOT_STORED` of the error.

InitProducerId gives the next epoch of an id, which fences its former owner (T.6, KIP-360). AddPartitionsToTxn and
AddOffsetsToTxn name the partitions of a transaction, and partition leaders ask for them (T.7, T.8, KIP-890). EndTxn, a
timeout and the last marker end it (T.9, T.10).
"""

from barnabas.coordinators.runtime.shard import NOT_STORED
from barnabas.coordinators.transactions.events import (
    CONCURRENT,
    CONCURRENT_ANSWER,
    NEEDS_PRODUCER_ID,
    NOTHING,
    AddPartitions,
    Answer,
    Decision,
    EndTransaction,
    Event,
    InitProducer,
    MarkersWritten,
    TimeoutPassed,
    VerifyPartitions,
    refuse,
)
from barnabas.coordinators.transactions.state import (
    AT_REST,
    EPOCH_MAX,
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
UNKNOWN_PRODUCER = refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING)

# The errors of a failed append for clients, as in Kafka's TransactionStateManager. Others stay the same.
TRANSACTION_NOT_STORED = NOT_STORED | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def decide(known: TransactionalId | None, event: Event, now_ms: int, *, pending: bool) -> Decision:
    """What follows from `event`; changes nothing. `pending`: the newest record of the id is not committed.

    Who is not the owner of the id is answered with INVALID_PRODUCER_ID_MAPPING or PRODUCER_FENCED.
    """
    if isinstance(event, InitProducer):
        return decide_init(known, event, now_ms, pending=pending)

    if isinstance(event, AddPartitions | EndTransaction | VerifyPartitions):
        if known is None or event.producer.producer_id != known.recorded.producer_id:
            return UNKNOWN_PRODUCER
        # A higher epoch than the current one was never given out, and is refused, too.
        if event.producer.producer_epoch != known.recorded.producer_epoch:
            return FENCED

    # The other events come from the coordinator itself; the id may have been removed since.
    elif known is None:
        return NOTHING

    match event:
        case AddPartitions():
            return decide_adding(known, event, now_ms, pending=pending)
        case EndTransaction():
            return decide_end(known, event, now_ms, pending=pending)
        case VerifyPartitions():
            return decide_verifying(known, event)
        case MarkersWritten():
            return decide_completion(known, now_ms)
        case TimeoutPassed():
            return decide_timeout(known, now_ms, pending=pending)


# -- InitProducerId


def decide_init(known: TransactionalId | None, event: InitProducer, now_ms: int, *, pending: bool) -> Decision:
    """Store the next epoch and answer with it. CONCURRENT_TRANSACTIONS until an open transaction is aborted.

    Error answers: CONCURRENT_TRANSACTIONS, PRODUCER_FENCED (the client is not the owner that it says it is).
    """
    if known is None:
        return _first(event, now_ms)
    recorded = known.recorded
    expected = event.expected
    # The owner of the id is checked when the client repeats the request.
    if pending or recorded.status in PREPARED:
        return CONCURRENT
    if expected is not None and not _may_be_owner(known, expected):
        return FENCED
    if recorded.status is Status.ONGOING:
        # A client that was fenced before must not abort the transaction of its successor. Kafka
        # does not check this.
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
        return Decision(NEEDS_PRODUCER_ID)
    return _give(Recorded(event.fresh_id, 0, event.timeout_ms, Status.EMPTY, NO_PARTITIONS, now_ms), NO_PRODUCER)


def _next(known: TransactionalId, event: InitProducer, now_ms: int) -> Decision:
    """Of an id without an open transaction."""
    recorded = known.recorded
    expected = event.expected
    owner = known.producer
    empty = recorded.entering(Status.EMPTY, now_ms)
    empty = empty._replace(partitions=NO_PARTITIONS, timeout_ms=event.timeout_ms, start_ms=NO_TIME)
    is_owner = expected is None or expected.producer_epoch == owner.producer_epoch

    # A client that names the previous epoch repeats its request: it has not received the answer,
    # and gets it again. A client that names no epoch is not recognised so, and gets a higher epoch.
    if not is_owner:
        assert expected is not None
        is_repeated = expected.producer_epoch == known.previous.producer_epoch
        return _give(empty, known.previous) if is_repeated else FENCED

    # If the client named no epoch, the former one is not remembered: a later request with it would
    # look like a repetition.
    previous = Producer(owner.producer_id, NO_PRODUCER_EPOCH if expected is None else owner.producer_epoch)
    if owner.producer_epoch < EXHAUSTED_EPOCH:
        return _give(empty._replace(producer_epoch=owner.producer_epoch + 1), previous)
    if event.fresh_id is None:
        return Decision(NEEDS_PRODUCER_ID)

    # The start of the last transaction stays, as in Kafka's record.
    return _give(empty._replace(producer_id=event.fresh_id, producer_epoch=0, start_ms=recorded.start_ms), previous)


def _give(recorded: Recorded, previous: Producer) -> Decision:
    producer = Producer(recorded.producer_id, recorded.producer_epoch)
    return Decision(Answer(ErrorCode.NONE, producer), recorded, previous)


# -- AddPartitionsToTxn, AddOffsetsToTxn


def decide_adding(known: TransactionalId, event: AddPartitions, now_ms: int, *, pending: bool) -> Decision:
    """Add the partitions to the open transaction, or begin one. They are stored before any record is written to them.

    Error answer: CONCURRENT_TRANSACTIONS.
    """
    recorded = known.recorded
    if pending or recorded.status in PREPARED:
        return CONCURRENT
    done = Answer(ErrorCode.NONE)
    if recorded.status is Status.ONGOING:
        if all(each in recorded.partitions for each in event.partitions):
            return Decision(done)
        partitions = {**recorded.partitions, **event.partitions}
        start_ms = recorded.start_ms
    # A new transaction begins without partitions: the records of Complete* and Empty have none.
    else:
        partitions = dict(event.partitions)
        start_ms = now_ms

    ongoing = recorded.entering(Status.ONGOING, now_ms)
    return Decision(done, ongoing._replace(partitions=partitions, start_ms=start_ms), known.previous)


def decide_verifying(known: TransactionalId, event: VerifyPartitions) -> Decision:
    """Say of each partition whether the transaction has it; TRANSACTION_ABORTABLE if not.

    Error answer: CONCURRENT_TRANSACTIONS (the transaction is decided).
    """
    # The request is not refused while a record is pending: the answer waits for it.
    if known.recorded.status in PREPARED:
        return CONCURRENT
    added = known.recorded.partitions
    errors = {each: ErrorCode.NONE if each in added else ErrorCode.TRANSACTION_ABORTABLE for each in event.partitions}
    return Decision(Answer(ErrorCode.NONE, partition_errors=errors))


# -- the end of a transaction, and of an id


def decide_end(known: TransactionalId, event: EndTransaction, now_ms: int, *, pending: bool) -> Decision:
    """Store the decision; the answer does not wait for the markers.

    Error answers: CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE.
    """
    recorded = known.recorded
    # The client repeats the request until the markers are written. As in Kafka, only then does a
    # client that asks for the contrary of the decision learn that.
    if pending or recorded.status in PREPARED:
        return CONCURRENT
    if recorded.status is Status.ONGOING:
        decided = recorded.entering(Status.PREPARE_COMMIT if event.commit else Status.PREPARE_ABORT, now_ms)
        return Decision(Answer(ErrorCode.NONE), decided, known.previous)
    # Without a transaction there is nothing to end; a decision cannot be reversed.
    if recorded.status is Status.EMPTY or recorded.is_commit != event.commit:
        return refuse(ErrorCode.INVALID_TXN_STATE)
    return Decision(Answer(ErrorCode.NONE))


def decide_timeout(known: TransactionalId, now_ms: int, *, pending: bool) -> Decision:
    """Abort the transaction if its time is over, and fence its producer, which may be alive and slow."""
    recorded = known.recorded
    # While a record is pending, nothing changes: `_abort_overdue_of` looks at the id again later.
    if pending or not is_overdue(recorded, now_ms):
        return NOTHING
    return Decision(record=fence(recorded, now_ms))


def is_overdue(recorded: Recorded, now_ms: int) -> bool:
    """Whether the transaction is open for longer than its timeout."""
    return recorded.status is Status.ONGOING and recorded.start_ms + recorded.timeout_ms < now_ms


def fence(recorded: Recorded, now_ms: int) -> Recorded:
    """The abort of an open transaction whose producer may still be alive: with a higher epoch.

    The markers carry the epoch, and the partitions refuse all lower ones from then on.
    """
    # The highest epoch is given to no client, so the markers of a second fence need no higher one.
    epoch = min(recorded.producer_epoch + 1, EPOCH_MAX)
    return recorded.entering(Status.PREPARE_ABORT, now_ms)._replace(producer_epoch=epoch)


def decide_completion(known: TransactionalId, now_ms: int) -> Decision:
    """Store that each partition has its marker: the next transaction may begin."""
    recorded = known.recorded
    if recorded.status not in PREPARED or known.unmarked:
        return NOTHING
    status = Status.COMPLETE_COMMIT if recorded.is_commit else Status.COMPLETE_ABORT
    complete = recorded.entering(status, now_ms)._replace(partitions=NO_PARTITIONS)
    return Decision(record=complete, previous=known.previous)


def is_unused(recorded: Recorded, now_ms: int, expiration_ms: int, *, pending: bool) -> bool:
    """Whether an id was not used for long, and may be forgotten. A client that comes back gets a new producer id."""
    return not pending and recorded.status in AT_REST and recorded.last_update_ms <= now_ms - expiration_ms
