"""The state of one transactional id (pure), and the transitions of its states (reference transactions, T.4; KIP-98).

A producer with a transactional id writes to many partitions in one transaction, which is committed or aborted as a
whole. The coordinator stores each step as a record of `__transaction_state`; the last record of an id is its state:

    Empty            the id has a producer id and epoch; nothing was written since
    Ongoing          a transaction is open: its partitions are known, and its result is not
    PrepareCommit    the decision. The markers are being written to the partitions; nothing can change the result
    PrepareAbort     the same, for an abort
    CompleteCommit   each partition has its marker
    CompleteAbort    the same, for an abort

    event \\ state     none         Empty          Ongoing                  Prepare*    Complete*
    InitProducer      new id: 0    epoch + 1      epoch + 1, PrepareAbort  51          epoch + 1, Empty
    AddPartitions     49           Ongoing        Ongoing, with more       51          Ongoing, new start
    EndTransaction    49           48             Prepare*                 51          NONE, or 48
    timeout           -            -              epoch + 1, PrepareAbort  -           -
    all markers sent  -            -              -                        Complete*   -
    long unused       -            tombstone      -                        -           tombstone

(48 INVALID_TXN_STATE, 49 INVALID_PRODUCER_ID_MAPPING, 51 CONCURRENT_TRANSACTIONS.) `decide.py` has the rows.

An id is *pending* while its newest record is not committed, that is, below the high watermark. A request that would
change the id meanwhile gets CONCURRENT_TRANSACTIONS, which clients retry.

`replay` is the only way in which the recorded part of an id changes. A coordinator replays each record right after its
append, and a new coordinator replays the whole log. So both have the same state, and nothing has to be rolled back: a
record that could not be appended was not replayed.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import NamedTuple

from barnabas.wire.errors import InvariantBroken
from barnabas.wire.sentinels import NO_OFFSET, NO_PRODUCER_ID
from barnabas.wire.topics import TopicPartition

NO_PRODUCER_EPOCH = -1
NO_TIME = -1
# The largest epoch that fits into an int16. Clients get lower ones, as fencing a client needs a
# higher epoch.
EPOCH_MAX = (1 << 15) - 1
EXHAUSTED_EPOCH = EPOCH_MAX - 1  # from it on, InitProducerId gives a new producer id

Partitions = Mapping[TopicPartition, None]  # a value: never changed in place
# All ids without partitions share this dict: otherwise each idle id would have two empty dicts of
# 64
# bytes.
NO_PARTITIONS: dict[TopicPartition, None] = {}


class Status(IntEnum):
    """The states, by their numbers in the records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


# Kafka's names. Kafka also has UNSTORED_STATUS_NAMES, for moments and without a record; filters may
# name them.
STATUS_NAMES = {
    Status.EMPTY: "Empty",
    Status.ONGOING: "Ongoing",
    Status.PREPARE_COMMIT: "PrepareCommit",
    Status.PREPARE_ABORT: "PrepareAbort",
    Status.COMPLETE_COMMIT: "CompleteCommit",
    Status.COMPLETE_ABORT: "CompleteAbort",
}
UNSTORED_STATUS_NAMES = ("Dead", "PrepareEpochFence")

PREPARED = (Status.PREPARE_COMMIT, Status.PREPARE_ABORT)
# An id is between transactions in these: it may get another epoch, begin a transaction, or be
# removed.
AT_REST = (Status.EMPTY, Status.COMPLETE_COMMIT, Status.COMPLETE_ABORT)

VALID_PREVIOUS_STATES: Mapping[Status, tuple[Status, ...]] = {
    Status.EMPTY: AT_REST,
    Status.ONGOING: (Status.ONGOING, *AT_REST),
    Status.PREPARE_COMMIT: (Status.ONGOING,),
    Status.PREPARE_ABORT: (Status.ONGOING,),
    Status.COMPLETE_COMMIT: (Status.PREPARE_COMMIT,),
    Status.COMPLETE_ABORT: (Status.PREPARE_ABORT,),
}


class Recorded(NamedTuple):
    """What a record says about an id. Times are the wall clock in ms."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int  # of the transaction
    status: Status
    partitions: Partitions
    last_update_ms: int  # when this state was entered
    start_ms: int = NO_TIME  # of the transaction

    @property
    def is_commit(self) -> bool:
        """Whether the decision is to commit; only in Prepare* and Complete*."""
        return self.status in (Status.PREPARE_COMMIT, Status.COMPLETE_COMMIT)

    def entering(self, status: Status, now_ms: int) -> "Recorded":
        """The same in another state. Raises InvariantBroken if the table does not allow it."""
        if self.status not in VALID_PREVIOUS_STATES[status]:
            raise InvariantBroken(f"a transaction cannot go from {self.status.name} to {status.name}")
        return self._replace(status=status, last_update_ms=now_ms)


class Producer(NamedTuple):
    """A producer id and epoch."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


NO_PRODUCER = Producer()


class TransactionalId:
    """A transactional id: what its newest record says, and what only this coordinator knows.

    `recorded` changes by `replay` alone. The rest is lost when another broker becomes the coordinator.
    """

    __slots__ = ("__weakref__", "connection", "name", "offset", "previous", "recorded", "unmarked")

    def __init__(self, name: str, recorded: Recorded, offset: int = NO_OFFSET) -> None:
        self.name = name
        self.recorded = recorded
        self.offset = offset  # of the newest record
        # The producer that the last InitProducerId named and replaced: it may repeat that request (KIP-360).
        self.previous = NO_PRODUCER
        # These are the partitions that, in Prepare*, have not confirmed their marker to this
        # coordinator.
        self.unmarked = NO_PARTITIONS
        self.connection = 0  # the latest connection that used this producer id and epoch (`connections.py`)

    def __repr__(self) -> str:
        known = self.recorded
        return f"<TransactionalId {self.name!r} {known.status.name} {known.producer_id}/{known.producer_epoch}>"

    @property
    def producer(self) -> Producer:
        """The owner of the id."""
        return Producer(self.recorded.producer_id, self.recorded.producer_epoch)


class TransactionRecord(NamedTuple):
    """The newest state of a transactional id; `recorded` None: a tombstone."""

    name: str
    recorded: Recorded | None
    previous: Producer = NO_PRODUCER  # `TransactionalId.previous` from this record on; not in the log


class Overdue:
    """Open transactions by the time at which they take too long (reference transactions, T.10).

    Usually an id has one entry, and a transaction that begins costs nothing while the id has one: the entry is moved
    when it comes to the top. It gets an earlier one if its next transaction has a shorter timeout. Times are the wall
    clock in ms.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, TransactionalId]] = []
        self._numbers = count()  # orders entries of the same time, as ids cannot be compared
        self._queued: dict[TransactionalId, int] = {}  # the time of its earliest entry; later ones do not count

    def __len__(self) -> int:
        return len(self._heap)

    def watch(self, known: TransactionalId) -> None:
        """The id has an open transaction."""
        at_ms = _deadline_of(known)
        if at_ms < self._queued.get(known, at_ms + 1):
            self._push(known, at_ms)

    def pop(self, now_ms: int) -> Iterator[TransactionalId]:
        """The ids that had an open transaction when its time was over; look again whether they still have it."""
        while self._heap and self._heap[0][0] < now_ms:
            at_ms, _, known = heapq.heappop(self._heap)
            # This entry is obsolete: an earlier entry of the same id has been popped.
            if self._queued.get(known) != at_ms:
                continue
            del self._queued[known]
            # The transaction of the entry has ended.
            if known.recorded.status is not Status.ONGOING:
                continue
            # A later transaction of the id is open, and not overdue yet.
            if (deadline_ms := _deadline_of(known)) >= now_ms:
                self._push(known, deadline_ms)
            else:
                yield known

    def _push(self, known: TransactionalId, at_ms: int) -> None:
        self._queued[known] = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), known))


def _deadline_of(known: TransactionalId) -> int:
    return known.recorded.start_ms + known.recorded.timeout_ms


@dataclass(slots=True)
class TransactionalIds:
    """The ids by name, and those among them whose decision waits to be carried out."""

    by_name: dict[str, TransactionalId] = field(default_factory=dict)
    # These ids are in Prepare*, oldest record first: that is the order in which the records are
    # committed. The sender of the markers takes the ids out; a coordinator that loads the log finds
    # all of them here.
    # The dict is an OrderedDict, because `next(iter(...))` of a plain dict first steps over all
    # entries that were removed from its front.
    decided: OrderedDict[str, TransactionalId] = field(default_factory=OrderedDict)
    overdue: Overdue = field(default_factory=Overdue)
    forgotten_offset: int = NO_OFFSET  # of the newest tombstone; the answer that an id is unknown depends on it


def replay(ids: TransactionalIds, record: TransactionRecord, offset: int) -> None:
    """Change the recorded part as the record at `offset` says."""
    name, recorded, previous = record

    # The id is taken out even if the new state is Prepare*, too: the order of the entries is that
    # of the records.
    ids.decided.pop(name, None)
    if recorded is None:
        ids.by_name.pop(name, None)
        ids.forgotten_offset = offset
        return

    known = ids.by_name.get(name)
    if known is None:
        known = ids.by_name[name] = TransactionalId(name, recorded)
    # The id has another producer, which may be a client with an older connection: that must not
    # count as overtaken by a connection of the former producer.
    elif known.producer != (recorded.producer_id, recorded.producer_epoch):
        known.connection = 0

    known.recorded = recorded
    known.offset = offset
    known.previous = previous
    known.unmarked = NO_PARTITIONS
    if recorded.status is Status.ONGOING:
        ids.overdue.watch(known)
    elif recorded.status in PREPARED:
        known.unmarked = dict(recorded.partitions)
        ids.decided[name] = known
