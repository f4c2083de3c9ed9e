"""`flush.ms`: flush a log that has had unflushed records for this time.

As in Kafka, logs are checked every `log.flush.scheduler.interval.ms`, by default never. Then records are synced only
when `flush.messages` is reached or a segment is rolled, or when the operating system writes them.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog


class FlushSchedule:
    """Remembers since when each log has unflushed records, and requests a flush after `flush.ms`."""

    def __init__(self, logs: "Callable[[], Iterable[PartitionLog]]", flusher: "Flusher") -> None:
        self._logs = logs
        self._flusher = flusher
        self._since: dict[PartitionLog, tuple[int, float]] = {}  # recovery point; when it was first seen behind

    async def step(self) -> None:
        """Check every log once."""
        now = trio.current_time()
        # The table is a new one each time: deleted logs drop out of it.
        before = self._since
        self._since = {}
        for log in self._logs():
            if log.recovery_point == log.log_end_offset:
                continue
            recovery_point, since = before.get(log, (-1, now))
            # The log was flushed since the last check, for another reason. What is unflushed now is younger than that
            # check, but its exact age is unknown. Counted from now, its flush is late by one interval at most.
            if recovery_point != log.recovery_point:
                since = now
            self._since[log] = log.recovery_point, since
            if (now - since) * 1000 >= log.config.flush_ms:
                self._flusher.want(log)
