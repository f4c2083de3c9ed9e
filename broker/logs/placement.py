"""In which log directory the log of a partition is made (KIP-112, KIP-113).

Without a wish in the one that holds the fewest logs; what fails there is tried in the next. A client may have wished
(AlterReplicaLogDirs) that a partition which does not exist yet lies in a certain directory: then only there. Wishes are
kept in memory until they are granted, as in Kafka: a restart forgets them. They are limited, for a client may wish
anything, and the oldest go first.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.logs.directory import LogDirectory
    from barnabas.wire.topics import TopicPartition

REQUESTED_MAX = 10_000  # some megabytes; every partition that a broker hosts may be wished for


class LogPlacement:
    """The log directories, in the order in which a new log should try them."""

    def __init__(self, directories: "Iterable[LogDirectory]") -> None:
        self._directories = directories
        self._requested: dict[TopicPartition, LogDirectory] = {}

    def find(self, path: str) -> "LogDirectory | ErrorCode":
        """The directory that clients call so; LOG_DIR_NOT_FOUND, or KAFKA_STORAGE_ERROR when it is offline."""
        for directory in self._directories:
            if directory.absolute_path == path:
                return directory if directory.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.LOG_DIR_NOT_FOUND

    def request(self, key: "TopicPartition", directory: "LogDirectory") -> None:
        """When a log of this partition is made, make it there."""
        self._requested.pop(key, None)
        if len(self._requested) >= REQUESTED_MAX:
            del self._requested[next(iter(self._requested))]
        self._requested[key] = directory

    def candidates(self, key: "TopicPartition") -> "list[LogDirectory]":
        """Where its log may be made now, the best place first; nowhere, if the one that was wished is offline."""
        requested = self._requested.get(key)
        live = [directory for directory in self._directories if directory.failure is None]
        if requested is not None:
            return [requested] if requested in live else []
        return sorted(live, key=lambda directory: len(directory.logs) + directory.creating)

    def granted(self, key: "TopicPartition") -> None:
        """Its log was made."""
        self._requested.pop(key, None)
