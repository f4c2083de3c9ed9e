"""The plan of one flush of a log: the files that have to be synced (see `log.py`)."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from barnabas.storage.checkpoint import LEADER_EPOCH_CHECKPOINT
from barnabas.storage.disk import File
from barnabas.storage.files import SNAPSHOT, SegmentStore
from barnabas.storage.packed_table import PackedRows
from barnabas.storage.producers import encode_snapshot
from barnabas.storage.segment import Segment
from barnabas.storage.segments import LogSegments


class UnsavedSnapshot(NamedTuple):
    """The entries of the producers when the log ended at this offset, whose snapshot has to be written."""

    offset: int
    producers: PackedRows


def save_snapshots(store: SegmentStore, snapshots: Iterable[UnsavedSnapshot]) -> None:
    """Write these snapshots, each into its file. Blocking: long. Durable: no."""
    for snapshot in snapshots:
        store.save(store.path(snapshot.offset, SNAPSHOT), encode_snapshot(snapshot.producers))


class FlushPlan:
    """The files to sync so that everything below `offset` survives. Created and released on the event loop."""

    __slots__ = (
        "_active",
        "_epochs",
        "_sealed",
        "_store",
        "epochs_version",
        "generation",
        "names_version",
        "offset",
        "snapshots",
        "synced_stable_offset",
    )

    def __init__(
        self,
        segments: LogSegments,
        offset: int,
        synced_stable_offset: int,
        sealed: Sequence[Segment],
        epochs: str | None,
        epochs_version: int,
        names_version: int | None,
        snapshots: Sequence[UnsavedSnapshot],
    ) -> None:
        # The event loop may roll and delete this segment during the sync; the reference keeps the descriptor open.
        segments.active.file.retain()
        self.offset = offset
        self.synced_stable_offset = synced_stable_offset
        self.generation = segments.generation
        self.epochs_version = epochs_version
        self.names_version = names_version  # None: no file was made since the last directory sync
        self.snapshots = snapshots
        # `sync` runs in a thread and must not look at the log, which the event loop goes on changing: so everything
        # that it needs is taken here.
        self._store = segments.store
        self._active: File | None = segments.active.file
        self._sealed = sealed
        self._epochs = epochs

    def sync(self) -> None:
        """Sync the files in offset order, then the epoch file and the directory. Blocking: long, in any thread."""
        # The snapshots go before the sealed segments, because the sync of each one includes the
        # snapshot at its end.
        save_snapshots(self._store, self.snapshots)
        # The syncs go in offset order: a power failure between two of them leaves no synced segment
        # behind an unsynced one.
        for segment in self._sealed:
            segment.sync(self.offset)
        # The active segment's indexes are not synced: recovery rebuilds them from the recovery point on in any case.
        if self._active is not None:
            self._active.sync()
        # The epoch file is written after the records and before the recovery point moves: so
        # recovery finds each epoch in the file, or in the batches that it reads.
        if self._epochs is not None:
            path = f"{self._store.directory}/{LEADER_EPOCH_CHECKPOINT}"
            self._store.disk.replace_file(path, self._epochs.encode())  # syncs the directory, too
        elif self.names_version is not None:
            self._store.disk.sync_directory(self._store.directory)

    def release(self) -> None:
        """Release the active segment's file; idempotent. `flushed` calls it; after a failed sync the caller must."""
        file = self._active
        self._active = None
        if file is not None:
            file.release()
