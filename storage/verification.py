"""Which transactional batches their coordinator has verified (pure): KIP-890, reference transactions.md, T.12 and T.21.

A Produce that is delayed past the end of its transaction would open another one, which never ends. So a leader
asks the transaction coordinator before it lets a producer begin a transaction in a partition. Between the question and
the append the state may change; a *guard* shows whether it has:

    guard = begin(...)          an entry of this producer id is found or made, with its guard
    ... the coordinator answers: this partition is in the transaction ...
    append(batch, guard)        accepted if the entry still has this guard

Every transactional append of the producer id, data or marker, removes the entry. So a marker that comes between the
answer and the append makes the guard worthless, and the batch cannot open a transaction behind the one that it was
verified for. A new entry has a new guard, which no earlier answer can have proved.

An entry also remembers the lowest sequence that was to be verified. Two batches of one producer may overtake each other
while they wait for the coordinator; the later one must not begin the transaction.
"""

from typing import NamedTuple

from barnabas.wire.record_batch import SEQUENCE_MAX

# Entries of one partition, of 200 bytes each. An entry lives from the question to the append; but anyone who may write
# can ask for any producer id, and the entry of a refused id stays until it expires. Beyond the limit the oldest goes.
ENTRIES_MAX = 1000


def is_before(one: int, other: int) -> bool:
    """Whether a sequence comes before another one. They wrap: it does if that is less than half of the range away."""
    return 0 < (other - one) & SEQUENCE_MAX <= SEQUENCE_MAX // 2


class Guard:
    """A proof that is valid as long as its entry exists; compared by identity."""

    __slots__ = ()


class Entry(NamedTuple):
    """A producer id whose next transactional batch is being verified."""

    guard: Guard
    asked_ms: int
    epoch: int
    lowest_sequence: int  # of the batches of this epoch that are being verified


class Verifications:
    """The entries of one partition, by producer id. They are not persisted: a restart asks again."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}  # in the order of the last `begin` for each

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, producer_id: int, epoch: int, base_sequence: int, now_ms: int) -> Guard:
        """The guard with which a batch of this epoch and base sequence may be appended once it is verified."""
        entry = self._entries.pop(producer_id, None)
        if entry is None:
            entry = Entry(Guard(), now_ms, epoch, base_sequence)
        elif epoch > entry.epoch:
            # Sequences begin again with each epoch. The guard stays: it only proves that nothing
            # was appended since it was made, while the coordinator's answer verifies the epoch.
            entry = Entry(entry.guard, now_ms, epoch, base_sequence)
        elif epoch == entry.epoch:
            lowest = base_sequence if is_before(base_sequence, entry.lowest_sequence) else entry.lowest_sequence
            entry = Entry(entry.guard, now_ms, epoch, lowest)
        if len(self._entries) >= ENTRIES_MAX:
            del self._entries[next(iter(self._entries))]
        self._entries[producer_id] = entry
        return entry.guard

    def is_proved(self, producer_id: int, guard: Guard | None) -> bool:
        """Whether this is the guard of the producer id's entry."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.guard is guard

    def is_overtaking(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Whether a batch of this epoch with a lower sequence was to be verified, and is not in the log yet."""
        entry = self._entries.get(producer_id)
        # Epochs are compared, unlike in Kafka: the epoch of an entry is a client's claim, and a
        # false one must not refuse the batches of the real producer.
        return entry is not None and entry.epoch == epoch and is_before(entry.lowest_sequence, base_sequence)

    def end(self, producer_id: int) -> None:
        """A transactional batch of this producer id was appended: what was asked before it proves nothing more."""
        self._entries.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the entries that were not asked for since `expiration_ms`."""
        while self._entries:
            producer_id, oldest = next(iter(self._entries.items()))
            if now_ms - oldest.asked_ms < expiration_ms:
                return
            del self._entries[producer_id]

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()
