"""The events of a transactional id, and the decisions that follow from them: the types of the pure part.

An event is a request of a producer, the end of a timeout, or the last confirmed marker. `decide` (`decide.py`) turns
it into a `Decision`: the answer, and the record to store, if any. An answer is sent when the newest record of the id is
committed, because it depends on that record.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordinators.transactions.state import NO_PRODUCER, Partitions, Producer, Recorded
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

# -- events


class InitProducer(NamedTuple):
    """InitProducerId: give the next epoch, and abort what the former owner of the id has left open."""

    timeout_ms: int
    expected: Producer | None = None  # the client's own id and epoch, if it recovers from an error (KIP-360)
    fresh_id: int | None = None  # a new producer id; None while the coordinator has not taken one


class AddPartitions(NamedTuple):
    """AddPartitionsToTxn, AddOffsetsToTxn: these partitions belong to the transaction."""

    producer: Producer
    partitions: Partitions


class VerifyPartitions(NamedTuple):
    """AddPartitionsToTxn of a partition leader, which asks whether they belong to it (KIP-890)."""

    producer: Producer
    partitions: Partitions


class EndTransaction(NamedTuple):
    """EndTxn."""

    producer: Producer
    commit: bool


class TimeoutPassed:
    """The transaction may have been open for longer than its timeout."""


class MarkersWritten:
    """Each partition has confirmed its marker."""


Event = InitProducer | AddPartitions | VerifyPartitions | EndTransaction | TimeoutPassed | MarkersWritten


# -- what follows


class Answer(NamedTuple):
    """An error code, and what the response has beside it."""

    error: ErrorCode
    producer: Producer = NO_PRODUCER  # InitProducerId
    partition_errors: Mapping[TopicPartition, ErrorCode] | None = None  # of VerifyPartitions


@dataclass(frozen=True, slots=True)
class Decision:
    """What follows from one event: an answer, and a record to store before it. None: no request waits.

    `answer` is that for a stored record; if it cannot be stored, the error of the append is the answer.
    """

    answer: Answer | None = None
    record: Recorded | None = None
    previous: Producer = NO_PRODUCER  # `TransactionalId.previous` after the record


def refuse(error: ErrorCode) -> Decision:
    """Nothing changes, and the request gets this error."""
    return Decision(Answer(error))


CONCURRENT_ANSWER = Answer(ErrorCode.CONCURRENT_TRANSACTIONS)
# This answer asks for the event to be decided again with a fresh producer id. The client gets it if
# there is no such id. Compared by identity.
NEEDS_PRODUCER_ID = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
CONCURRENT = Decision(CONCURRENT_ANSWER)
NOTHING = Decision()
