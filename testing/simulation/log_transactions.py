"""The transactions in one replica's log, as its batches say (pure).

This is a second, simple computation of what `storage/producers.py` and the transaction index hold: which transactions
are open, where each one began and ended, and the last stable offset that follows. It is computed from the batches in
their order, so it is right for a replica that was restarted, truncated or filled by a follower.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.coordinators.transactions.state import TransactionRecord
from barnabas.wire.records import ABORT, BatchHeader


class Marker(NamedTuple):
    """What the record of a control batch says."""

    is_commit: bool
    coordinator_epoch: int


class Ended(NamedTuple):
    """A transaction that a marker ended in this log; the fields of an aborted one are those of its index entry."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int
    is_commit: bool


def marker_of(control_type: int, coordinator_epoch: int) -> Marker:
    """From the fields of the record."""
    return Marker(control_type != ABORT, coordinator_epoch)


class LogTransactions:
    """Grows with the log; after a truncation it is made again."""

    def __init__(self) -> None:
        self.open: dict[int, int] = {}  # producer id -> first offset, in the order of the offsets
        self.openers: dict[int, int] = {}  # producer id -> checksum of the batch that has opened it
        self.ended: list[Ended] = []
        # This is the newest record of each id in `__transaction_state`, and its offset.
        self.ids: dict[str, tuple[object, int]] = {}
        # What ended below this offset was read again by the process, maybe from a snapshot. A
        # snapshot does not say that a marker is not committed yet.
        self.reread_end = 0
        self._undecided: list[Ended] = []  # whose markers were not known to be committed
        self._compacted: list[Ended] = []  # whose batches compaction has removed, but for the marker perhaps

    def take(self, batch: BatchHeader, contents: Mapping[int, object]) -> Ended | None:
        """The next batch of the log; the transaction that it ends."""
        if not batch.is_transactional:
            content = contents.get(batch.crc)
            for offset, record in enumerate(content if isinstance(content, list) else (), batch.base_offset):
                self._take_decision(record, offset)
            return None

        if not batch.is_control:
            if batch.producer_id not in self.open:
                self.open[batch.producer_id] = batch.base_offset
                self.openers[batch.producer_id] = batch.crc
            return None

        marker = contents.get(batch.crc)
        first_offset = self.open.pop(batch.producer_id, None)
        if first_offset is None or not isinstance(marker, Marker):
            return None
        stable = next(iter(self.open.values()), batch.base_offset + 1)
        ended = Ended(batch.producer_id, first_offset, batch.base_offset, stable, marker.is_commit)
        self.ended.append(ended)
        self._undecided.append(ended)
        return ended

    def inherit(self, former: "LogTransactions", end_offset: int) -> None:
        """Take over what the log does not show any more after a compaction; its end is `end_offset`."""
        # A process that begins again has such a transaction from a snapshot, and may not know that its marker is
        # committed.
        known = {each.last_offset for each in self.ended}
        self._compacted = [
            each
            for each in (*former._compacted, *former.ended)
            if each.last_offset < end_offset and each.last_offset not in known
        ]
        self._undecided += self._compacted

    def _take_decision(self, record: TransactionRecord, offset: int) -> None:
        if record.recorded is None:
            self.ids.pop(record.name, None)
        else:
            self.ids[record.name] = record.recorded, offset

    def stable_offsets(self, high_watermark: int, start_offset: int) -> tuple[int, int]:
        """The least and the greatest last stable offset that is right.

        They differ only where a transaction ended before the process began, and its marker is not committed.
        """
        self._undecided = [each for each in self._undecided if each.last_offset >= high_watermark]
        begun = next(iter(self.open.values()), high_watermark)
        least = min([begun, *(each.first_offset for each in self._undecided)])
        greatest = min([begun, *(each.first_offset for each in self._undecided if each.last_offset >= self.reread_end)])
        return (
            min(max(least, start_offset), high_watermark),
            min(max(greatest, start_offset), high_watermark),
        )
