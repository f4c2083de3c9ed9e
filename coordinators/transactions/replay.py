"""The transactional ids of one coordinator partition, and `replay`: the only way in which their recorded part changes
(pure).

A coordinator replays each record right after its append, and a new coordinator replays the whole log. So both have the
same state, and nothing has to be rolled back: a record that could not be appended was not replayed.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from barnabas.coordinators.transactions.overdue import Overdue
from barnabas.coordinators.transactions.records import TransactionRecord
from barnabas.coordinators.transactions.state import NO_PARTITIONS, PREPARED, Status, TransactionalId
from barnabas.wire.sentinels import NO_OFFSET


@dataclass(slots=True)
class TransactionalIds:
    """The ids by name, and those among them whose decision waits to be carried out."""

    by_name: dict[str, TransactionalId] = field(default_factory=dict)
    # In Prepare*, oldest record first: that is the order in which the records are committed. The sender of the markers
    # takes the ids out; a coordinator that loads the log finds all of them here.
    # Ordered, because the first entry of a plain dict is found behind all those that were removed before it.
    decided: OrderedDict[str, TransactionalId] = field(default_factory=OrderedDict)
    overdue: Overdue = field(default_factory=Overdue)
    forgotten_offset: int = NO_OFFSET  # of the newest tombstone; that an id is unknown rests on it


def replay(ids: TransactionalIds, record: TransactionRecord, offset: int) -> None:
    """Change the recorded part as the record at `offset` says."""
    name, recorded = record
    # Taken out even if the new state is Prepare*, too: the order of the entries is that of the records.
    ids.decided.pop(name, None)
    if recorded is None:
        ids.by_name.pop(name, None)
        ids.forgotten_offset = offset
        return
    known = ids.by_name.get(name)
    if known is None:
        known = ids.by_name[name] = TransactionalId(name, recorded)
    # The connections of another producer do not count: the id may pass to a client that connected earlier.
    elif known.producer != (recorded.producer_id, recorded.producer_epoch):
        known.connection = 0
    known.recorded, known.offset = recorded, offset
    known.unmarked = NO_PARTITIONS
    if recorded.status is Status.ONGOING:
        ids.overdue.watch(known)
    elif recorded.status in PREPARED:
        known.unmarked = dict(recorded.partitions)
        ids.decided[name] = known
