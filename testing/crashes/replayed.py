"""The transactions of a log that was just opened, compared with a replay of all batches that it holds (pure).

Producers, last stable offset and the index of aborted transactions come from snapshots, index files and the batches
behind them. Each must be what the batches say, from the first one on: nothing is forgotten, and nothing is left of
batches that are gone.
"""

from collections.abc import Iterable, Mapping

from barnabas.storage.entries import walk_buffer
from barnabas.storage.files import TRANSACTION_INDEX
from barnabas.storage.log import PartitionLog
from barnabas.storage.memdisk import MemDisk
from barnabas.storage.producers import ProducerStates
from barnabas.storage.replay import replay_producers
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.testing.crashes.truth import Violated


def check_transactions(log: PartitionLog, disk: MemDisk) -> None:
    """Violated unless producers, LSO and aborted transactions are those of the batches."""
    replayed = ProducerStates()
    aborted = []
    for segment in log.segments:
        for span, batch in walk_buffer(memoryview(disk.peek(segment.path))):
            if span.last_offset >= log.log_start_offset:
                ended = replay_producers(replayed, span, batch)
                aborted += [ended] if ended is not None else []
    _check_producers(log, replayed)
    _check_aborted(_indexed(log, disk), aborted)
    # With everything replicated the LSO is the begin of the oldest open transaction.
    oldest_open = replayed.oldest_open
    stable_offset = log.last_stable_offset(log.log_end_offset)
    if oldest_open is not None and stable_offset > max(oldest_open, log.log_start_offset):
        raise Violated(f"the last stable offset is {stable_offset}, but a transaction is open from {oldest_open}")


def _check_producers(log: PartitionLog, replayed: ProducerStates) -> None:
    # The log may know producers, and begins of transactions, whose batches were deleted.
    first_offset = max(log.segments[0].base_offset, log.log_start_offset)
    for state in replayed:
        known = log.producers.get(state.producer_id)
        if known is None or known.epoch != state.epoch:
            raise Violated(f"{known} where the batches say {state}")
        if state.last_offset >= 0 and known.last_sequence != state.last_sequence:
            raise Violated(f"{known} where the batches say {state}")
    known_open = log.producers.open_transactions
    for offset, producer_id in known_open.items():
        if offset >= first_offset and replayed.open_transactions.get(offset) != producer_id:
            raise Violated(f"no transaction of producer {producer_id} is open from {offset}")
    if missing := set(replayed.open_transactions.values()) - set(known_open.values()):
        raise Violated(f"the open transactions of {missing} are forgotten")


def _indexed(log: PartitionLog, disk: MemDisk) -> dict[int, AbortedTransaction]:
    """The aborted transactions that a fetch would find, by the offset of their marker."""
    entries: list[AbortedTransaction] = []
    # The segments are read themselves, because reads of the log may fail on this disk.
    for segment in log.segments:
        path = segment.store.path(segment.base_offset, TRANSACTION_INDEX)
        entries += segment.transactions.rows(bytes(disk.peek(path)))
    return {entry.last_offset: entry for entry in entries}


def _check_aborted(indexed: Mapping[int, AbortedTransaction], aborted: Iterable[AbortedTransaction]) -> None:
    for ended in aborted:
        entry = indexed.get(ended.last_offset)
        # Compaction, or the log start, may have taken the first batches of the transaction.
        if entry is None or entry.producer_id != ended.producer_id or entry.first_offset > ended.first_offset:
            raise Violated(f"{ended} is indexed as {entry}")
