"""Chooses the log directory for a new log (KIP-112, KIP-113).

The directory with the fewest logs comes first; if creating the log there fails, the next one is tried. If a client
requested a directory for the partition before it existed (AlterReplicaLogDirs), only that one is used. As in Kafka,
requests are kept in memory until the log is created, and are lost at a restart.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.replication.logs.directory import LogDirectory
    from barnabas.wire.topics import TopicPartition

# Requested directories that are kept: a few megabytes, enough for every partition that a broker hosts. Without a limit
# a client could fill the memory, because it may name any partition.
REQUESTED_MAX = 10_000


class LogPlacement:
    """The requested directories, and the order in which directories are tried for a new log."""

    def __init__(self, directories: "Iterable[LogDirectory]") -> None:
        self._directories = directories
        self._requested: dict[TopicPartition, LogDirectory] = {}

    def find(self, path: str) -> "LogDirectory | ErrorCode":
        """The directory with this absolute path; LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR when it is offline."""
        for directory in self._directories:
            if directory.absolute_path == path:
                return directory if directory.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.LOG_DIR_NOT_FOUND

    def request(self, key: "TopicPartition", directory: "LogDirectory") -> None:
        """When a log of this partition is created, create it there."""
        # A repeated request moves to the end of the table. The oldest request is dropped first.
        self._requested.pop(key, None)
        if len(self._requested) >= REQUESTED_MAX:
            del self._requested[next(iter(self._requested))]
        self._requested[key] = directory

    def candidates(self, key: "TopicPartition") -> "list[LogDirectory]":
        """The directories to try for a new log, the best first; empty if the requested directory is offline."""
        requested = self._requested.get(key)
        live = [directory for directory in self._directories if directory.failure is None]
        # No other directory is tried, even if the requested one is offline: the client may need its space or speed, and
        # the log would have to be moved there later.
        if requested is not None:
            return [requested] if requested in live else []
        # Logs that are being created count too. Otherwise all partitions of a new topic, which are created at the same
        # time, would go to the same directory.
        return sorted(live, key=lambda directory: len(directory.logs) + directory.creating)

    def granted(self, key: "TopicPartition") -> None:
        """Forget the requested directory: the log was created."""
        self._requested.pop(key, None)
