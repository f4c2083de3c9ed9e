"""The entry of the pure part: one event in, one decision out.

    decide(known, event, now_ms, pending=...)   what follows from an event; `known` is None for an unknown id

The shell stores the record of the decision and replays it (`replay.py`), in the same step. A record that cannot be
stored changes nothing: the request gets `TRANSACTION_NOT_STORED` of the error.
"""

from barnabas.coordinators.runtime.shard import NOT_STORED
from barnabas.coordinators.transactions.adding import decide_adding, decide_verifying
from barnabas.coordinators.transactions.ending import decide_completion, decide_end, decide_timeout, decide_unused
from barnabas.coordinators.transactions.events import (
    NOTHING,
    AddPartitions,
    Decision,
    EndTransaction,
    Event,
    InitProducer,
    MarkersWritten,
    TimeoutPassed,
    Unused,
    VerifyPartitions,
)
from barnabas.coordinators.transactions.producing import decide_init
from barnabas.coordinators.transactions.state import TransactionalId
from barnabas.wire.errors import ErrorCode

# The errors of a failed append for clients, as in Kafka's TransactionStateManager. Others stay the same.
TRANSACTION_NOT_STORED = NOT_STORED | {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def decide(known: TransactionalId | None, event: Event, now_ms: int, *, pending: bool) -> Decision:
    """What follows from `event`; changes nothing. `pending`: the newest record of the id is not committed."""
    match event:
        case AddPartitions():
            return decide_adding(known, event, now_ms, pending=pending)
        case EndTransaction():
            return decide_end(known, event, now_ms, pending=pending)
        case VerifyPartitions():
            return decide_verifying(known, event)
        case InitProducer():
            return decide_init(known, event, now_ms, pending=pending)
    # The others come from the coordinator itself; the id may have been removed since.
    if known is None:
        return NOTHING
    match event:
        case MarkersWritten():
            return decide_completion(known, now_ms)
        case TimeoutPassed():
            return decide_timeout(known, now_ms, pending=pending)
        case Unused():
            return decide_unused(known, event, now_ms, pending=pending)
