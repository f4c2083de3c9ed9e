"""Which leader epoch each offset was written in (pure): the epoch cache of KIP-101 and KIP-279, reference C.3.

    epoch    0   2       3
    start    0   40      95          log end offset 120
    offsets  |---|-------|-------|
             0   40      95      120

Two replicas whose logs diverged agree exactly as far as their epoch histories agree. So a follower asks the leader
where an epoch ended (`end_offset_for`) and truncates its log there, instead of to its own high watermark, which may be
behind. Epochs and start offsets both rise strictly; an entry that contradicts a newer one is dropped.

The caller writes `entries` to the partition's `leader-epoch-checkpoint` whenever a method returns that they changed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from barnabas.wire.errors import InvariantBroken

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Leader epoch -> start offset, both strictly rising."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        # Two parallel lists, so that both columns can be bisected.
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, start_offset in entries:
            self.assign(epoch, start_offset)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest_epoch(self) -> int | None:
        """The newest epoch; None without entries."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` starts at this offset. True if the entries changed."""
        if epoch < 0 or start_offset < 0:
            raise InvariantBroken(f"leader epoch {epoch} cannot start at offset {start_offset}")
        # A later batch of the current epoch changes nothing.
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        # Entries at or above the new one in either column come from a diverged log, or from an epoch in which nothing
        # was written: the new entry is the true one.
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def note_batch(self, epoch: int, base_offset: int) -> bool:
        """A batch of this epoch, -1 if none was known, is in the log. True if the entries changed."""
        # Nearly all batches are of the latest epoch, and one of an older epoch must not replace newer entries.
        latest = self._epochs[-1] if self._epochs else UNDEFINED_EPOCH
        return epoch > latest and self.assign(epoch, base_offset)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The answer to OffsetForLeaderEpoch: the largest known epoch <= `epoch`, and its end offset (KIP-279).

        (-1, -1) if `epoch` is -1 or newer than all entries, or if there are none.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        # The current epoch has not ended yet: it reaches to the log end.
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        # An epoch ends where the next higher one starts. An epoch older than all entries is answered with itself and
        # the first start offset, for all of its records lie below that.
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def divergence(self, last_epoch: int, offset: int, log_end_offset: int) -> tuple[int, int] | None:
        """Where a log that ends at `offset` in `last_epoch` diverges from this one: (epoch, end offset) (KIP-595).

        None if the other log is a prefix of this one; (-1, -1) if `last_epoch` is newer than all entries.
        """
        # The other log diverges if this one has no such epoch, or if the epoch ended here before `offset`.
        epoch, end_offset = self.end_offset_for(last_epoch, log_end_offset)
        return (epoch, end_offset) if epoch < last_epoch or end_offset < offset else None

    def epoch_for(self, offset: int) -> int | None:
        """The epoch of the record at this offset, or of the next append; None before the first start offset."""
        # An offset at or above the log end belongs to the latest epoch: the next append is in it.
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def truncate_from_end(self, offset: int) -> bool:
        """Drop the epochs that start at or above `offset`, the new log end. True if the entries changed."""
        # `bisect_left` drops an epoch that starts exactly at the new end, because it has lost all
        # of its records.
        kept = bisect_left(self._starts, offset)
        if kept == len(self._starts):
            return False
        del self._epochs[kept:], self._starts[kept:]
        return True

    def truncate_from_start(self, offset: int) -> bool:
        """Drop the epochs that end at or below `offset`, the new log start. True if the entries changed."""
        # The epoch that holds `offset` stays, and starts there now: the records at the log start belong to it.
        before = bisect_right(self._starts, offset)
        if before == 0 or (before == 1 and self._starts[0] == offset):
            return False
        del self._epochs[: before - 1], self._starts[: before - 1]
        self._starts[0] = offset
        return True

    def clear(self) -> bool:
        """Drop all entries (of an emptied log, or one in a format without epochs). True if there were any."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        return changed

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries})"
