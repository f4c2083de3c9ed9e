"""Which leader epoch each offset was written in (pure): the epoch cache of KIP-101 and KIP-279, reference C.3.

    epoch    0   2       3
    start    0   40      95          log end offset 120
    offsets  |---|-------|-------|
             0   40      95      120

Two replicas whose logs went different ways agree exactly up to where their epoch histories agree. So a follower asks
the leader where an epoch ended (`end_offset_for`) and cuts its log there, instead of trusting its own high watermark,
which may be behind. Both columns rise strictly; an entry that contradicts a newer one is dropped for the newer.

The caller writes `entries` to the partition's `leader-epoch-checkpoint` whenever a method says that they changed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from barnabas.wire.errors import InvariantBroken

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """Epoch -> start offset, both rising."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
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
        """The newest epoch, or None when nothing is known."""
        return self._epochs[-1] if self._epochs else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` starts at this offset (appends call it for every batch); True if that was news."""
        if epoch < 0 or start_offset < 0:
            raise InvariantBroken(f"leader epoch {epoch} cannot start at offset {start_offset}")
        if self._epochs and epoch == self._epochs[-1] and start_offset >= self._starts[-1]:
            return False
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and where it ended: the answer to OffsetForLeaderEpoch.

        (-1, -1) when the question lies outside what is known. An epoch older than all that is known answers itself
        and the first start offset: whatever it wrote lies before that.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        return (self._epochs[higher - 1] if higher else epoch), self._starts[higher]

    def divergence(self, last_epoch: int, offset: int, log_end_offset: int) -> tuple[int, int] | None:
        """Where this log and one that ends at `offset`, its last records written in `last_epoch`, parted (KIP-595).

        None if the other is a beginning of this one; (-1, -1) when `last_epoch` lies outside what is known.
        """
        epoch, end_offset = self.end_offset_for(last_epoch, log_end_offset)
        return (epoch, end_offset) if epoch < last_epoch or end_offset < offset else None

    def epoch_for(self, offset: int) -> int | None:
        """The epoch in which this offset was (or will be) written; None before the first that is known."""
        index = bisect_right(self._starts, offset)
        return self._epochs[index - 1] if index else None

    def truncate_from_end(self, offset: int) -> bool:
        """The log was cut so that it ends at `offset`: epochs that begin there or later are gone. True if changed."""
        kept = bisect_left(self._starts, offset)
        if kept == len(self._starts):
            return False
        del self._epochs[kept:], self._starts[kept:]
        return True

    def truncate_from_start(self, offset: int) -> bool:
        """The log begins at `offset` now: of the epochs before, the one it lies in begins there. True if changed."""
        before = bisect_right(self._starts, offset)
        if before == 0 or (before == 1 and self._starts[0] == offset):
            return False
        del self._epochs[: before - 1], self._starts[: before - 1]
        self._starts[0] = offset
        return True

    def clear(self) -> bool:
        """Forget everything (the log was emptied, or holds a format without epochs); True if that was news."""
        changed = bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        return changed

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries})"
