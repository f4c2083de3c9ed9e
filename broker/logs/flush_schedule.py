"""`flush.ms`: have a log flushed when it has held unflushed records for so long.

As in Kafka the topic's setting acts only as often as `log.flush.scheduler.interval.ms` has the logs looked at, which by
default is never: what is written is left to the operating system, and to `flush.messages` where that is set.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import trio

if TYPE_CHECKING:
    from barnabas.storage.flusher import Flusher
    from barnabas.storage.log import PartitionLog


class FlushSchedule:
    """Remembers since when each log lags, and hands it to the flusher when that was too long ago."""

    def __init__(self, logs: "Callable[[], Iterable[PartitionLog]]", flusher: "Flusher") -> None:
        self._logs = logs
        self._flusher = flusher
        self._since: dict[PartitionLog, tuple[int, float]] = {}  # recovery point, and when it was first seen to lag

    async def step(self) -> None:
        """Look at every log once."""
        now = trio.current_time()
        before, self._since = self._since, {}
        for log in self._logs():
            if log.recovery_point == log.log_end_offset:
                continue
            recovery_point, since = before.get(log, (-1, now))
            if recovery_point != log.recovery_point:
                since = now
            self._since[log] = log.recovery_point, since
            if (now - since) * 1000 >= log.config.flush_ms:
                self._flusher.want(log)
