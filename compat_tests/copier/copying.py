"""Copiers at work, and the strikes on them or on the brokers.

A strike comes when the reader has got its share of the numbers and, if brokers are struck, every ISR is full again.
Copiers that are faster than that are paused meanwhile, so that every strike finds them at work. What is struck is
restarted, a copier at once; a copier that ends by itself must have copied everything.
"""

import signal
import time
from collections.abc import Callable

from compat_tests.cluster.live import LiveCluster, await_none
from compat_tests.copier.cases import Case, Strike
from compat_tests.copier.copiers import Copier
from compat_tests.copier.reader import Reader

PROGRESS_SECONDS = 120.0  # a transaction may have to time out, and then a copier that has just started is slow
WHOLE_SECONDS = 180.0  # a whole start on a loaded machine
LOOK_SECONDS = 0.05
LAST_WORDS = 1500


class Stuck(Exception):
    """Nothing is copied any more, or a copier has failed."""


class Copying:
    """A copier for each partition; the caller must close it."""

    def __init__(self, cluster: LiveCluster, case: Case, numbers: int, reader: Reader) -> None:
        self.copiers = [Copier(cluster, number, case) for number in range(case.partitions)]
        self.struck: list[str] = []
        self._cluster = cluster
        self._case = case
        self._signal = signal.Signals[case.signal]
        self._numbers = numbers
        self._reader = reader
        self._is_paused = False
        self._quiet_since = 0.0

    def run(self, strikes: list[Strike]) -> None:
        """Copy everything. Stuck, NotWhole."""
        self._quiet_since = time.monotonic()
        for copier in self.copiers:
            copier.start()
        counts = [int(strike.share * self._numbers) for strike in strikes]
        for strike, count, next_count in zip(strikes, counts, [*counts[1:], self._numbers], strict=True):
            self._await(lambda count=count: len(self._reader.reads) >= count or self._is_done())
            if self._is_done():
                raise Stuck(f"everything was copied before {strike}")
            read = len(self._reader.reads)
            if self._case.target == "brokers":
                self._strike_broker(strike, next_count)
                victim = strike.victim
            else:
                victim = self._strike_copier(strike.victim)
            self.struck.append(f"{victim} at {read}")
        self._await(self._is_done)

    def close(self) -> None:
        """End all copiers."""
        for copier in self.copiers:
            copier.end()

    def _is_done(self) -> bool:
        return all(copier.status == 0 for copier in self.copiers)

    def _await(self, is_there: Callable[[], bool]) -> None:
        """Wait for it while numbers keep coming."""
        while not is_there():
            for copier in self.copiers:
                if copier.status:
                    raise Stuck(f"{copier.name} ended with status {copier.status}: {copier.log_text()[-LAST_WORDS:]}")
            quiet_s = time.monotonic() - max(self._reader.latest_at, self._quiet_since)
            if quiet_s > PROGRESS_SECONDS:
                raise Stuck(f"nothing was read for {quiet_s:.0f} s, after {len(self._reader.reads)} numbers")
            time.sleep(LOOK_SECONDS)

    def _strike_copier(self, wanted: int) -> int:
        """Strike this copier, or another one if it has copied everything; which one it was."""
        working = [number for number, copier in enumerate(self.copiers) if copier.status is None]
        victim = wanted if wanted in working else working[0]
        self.copiers[victim].restart(self._signal)
        self._quiet_since = time.monotonic()
        return victim

    def _strike_broker(self, strike: Strike, next_count: int) -> None:
        """The broker ends and comes back; returns when all ISRs are full again and the copiers go on."""
        broker = self._cluster.broker(strike.victim)
        broker.hold(self._signal)
        back_at = time.monotonic() + strike.down_s
        try:
            self._pacing(next_count, lambda: ["down by design"] if time.monotonic() < back_at else [])
            broker.release()
            self._pacing(next_count, lambda: self._cluster.view.what_is_not_whole(len(self._cluster.broker_ids)))
        finally:
            self._pause(False)
        self._quiet_since = time.monotonic()

    def _pacing(self, next_count: int, wrong: Callable[[], list[str]]) -> None:
        """Wait until nothing is wrong; the copiers get no further than to the next strike. NotWhole."""

        def look() -> list[str]:
            if len(self._reader.reads) >= next_count:
                self._pause(True)
            return wrong()

        await_none(look, WHOLE_SECONDS, pace_seconds=LOOK_SECONDS)

    def _pause(self, wanted: bool) -> None:
        if wanted != self._is_paused:
            self._is_paused = wanted
            for copier in self.copiers:
                copier.send(signal.SIGSTOP if wanted else signal.SIGCONT)
