"""Rates over the last seconds, and the throttle time of one above its quota (pure); reference security.md, S.17.

Kafka's `Rate` sums samples of one second each, by default the last eleven. It divides by the time since the oldest
sample began, and if that is less than ten seconds, by those that are missing as well: a client that has sent nothing
may therefore send ten seconds' worth at once, and the mean approaches the quota.

Every number here is Kafka's, because clients compare throttle times: `throttle_ms` is in responses.
"""

import math
from typing import NamedTuple

INT32_MAX = (1 << 31) - 1


class Window(NamedTuple):
    """How much of the past counts: `quota.window.num` samples of `quota.window.size.seconds`."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def all_ms(self) -> int:
        """The time that all samples cover."""
        return self.samples * self.sample_ms


class _Sample:
    __slots__ = ("began_at_ms", "last_at_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.began_at_ms = self.last_at_ms = now_ms
        self.total = 0.0


class Rate:
    """What was recorded per second. Times are on one clock that does not go back."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add a value; a negative one takes back what was recorded."""
        sample = self._current_sample(now_ms)
        sample.total += value
        sample.last_at_ms = now_ms

    def _current_sample(self, now_ms: int) -> _Sample:
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.began_at_ms < self._window.sample_ms:
            return sample
        # There is one sample more than the window counts, because samples do not begin in step with it.
        self._current = (self._current + 1) % (self._window.samples + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    @property
    def is_unused(self) -> bool:
        """Whether nothing was ever recorded."""
        return not self._samples

    def per_second(self, now_ms: int) -> float:
        """The rate now."""
        window_ms = self.window_ms(now_ms)
        return sum(sample.total for sample in self._samples) / (window_ms / 1000)

    def window_ms(self, now_ms: int) -> int:
        """The time by which the rate divides."""
        elapsed_ms = self._elapsed_ms(now_ms)
        window = self._window
        missing = window.samples - 1 - elapsed_ms // window.sample_ms
        return max(elapsed_ms + max(missing, 0) * window.sample_ms, 1)

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time since the oldest sample began, once those that count no more are empty."""
        oldest_ms = now_ms
        for sample in self._samples:
            if now_ms - sample.last_at_ms >= self._window.all_ms:
                sample.reset(now_ms)
            oldest_ms = min(oldest_ms, sample.began_at_ms)
        return now_ms - oldest_ms


class SimpleRate(Rate):
    """The rate of replication: no time is added, so nothing may be sent in advance."""

    def window_ms(self, now_ms: int) -> int:
        return max(self._elapsed_ms(now_ms), self._window.sample_ms)


def throttle_ms(rate: Rate, quota: float, now_ms: int) -> int:
    """How long it takes until a rate is down to its quota if nothing more is recorded; 0 if it is not above it."""
    excess = rate.per_second(now_ms) - quota
    if excess <= 0:
        return 0
    # With a quota of 0 nothing may pass. Kafka divides by zero here, and the overflow makes the throttle time 0.
    if quota == 0:
        return INT32_MAX
    return java_round(excess / quota * rate.window_ms(now_ms))


def java_round(milliseconds: float) -> int:
    """As Java's Math.round: halves go up, NaN is 0. Between 0 and what a response can carry."""
    # NaN and infinity come of quotas that are not finite, or too small to divide by: AlterClientQuotas accepts these.
    if not milliseconds > 0:
        return 0
    return math.floor(min(milliseconds, INT32_MAX) + 0.5)
