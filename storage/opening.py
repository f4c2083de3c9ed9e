"""Opening the log of a partition, or creating it. `recovery.py` reads the files; what it repaired is synced here."""

from barnabas.storage.checkpoint import PARTITION_METADATA, read_partition_metadata
from barnabas.storage.disk import Disk, make_durable_directory
from barnabas.storage.files import OpenFiles, SegmentStore
from barnabas.storage.log import PartitionLog
from barnabas.storage.recovery import load_log
from barnabas.storage.settings import LogConfig
from barnabas.wire.topics import TopicPartition


def open_log(  # noqa: PLR0913  # what the checkpoints say, by keyword
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int | None,
    first_dirty_offset: int | None = None,
    clean: bool,
    now_ms: int,
    open_files: OpenFiles | None = None,
) -> PartitionLog:
    """Open a log, creating it if needed; after an unclean shutdown, check, repair and sync it. Blocking: long.

    The three offsets come from the checkpoint files (0 or None where a file has no entry for this partition).
    """
    make_durable_directory(disk, directory)
    store = SegmentStore(disk, directory, OpenFiles(disk) if open_files is None else open_files)
    try:
        loaded = load_log(
            store,
            config,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            first_dirty_offset=first_dirty_offset,
            clean=clean,
            now_ms=now_ms,
        )
        log = PartitionLog(store, topic_partition, config, loaded, now_ms)

        # The log may have been cut below the cleaner's checkpoint.
        if first_dirty_offset is not None:
            log.first_dirty_offset = min(first_dirty_offset, log.log_end_offset)
        log.topic_id = read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")

        # Recovery rebuilt indexes, epochs and snapshots; synced here, they let the recovery point rise to the log end.
        if not clean and not log.is_blank:
            log.sync_everything()
        return log
    except BaseException:
        store.open_files.drop_directory(directory)  # the active segment may already be open: do not leak its descriptor
        raise
