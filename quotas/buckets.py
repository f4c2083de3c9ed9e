"""The token bucket of `controller_mutation_rate` (pure): KIP-599; reference security.md, S.17 and S.19.

It holds as many tokens as the quota gives in the whole window, and is full in the beginning. An operation may begin
while the bucket is not below zero, and may take it below zero, whatever it costs.
"""

from barnabas.quotas.rates import INT32_MAX, Window, java_round


class TokenBucket:
    """The tokens of one client. Times are on one clock that does not go back."""

    def __init__(self, window: Window, quota: float, now_ms: int) -> None:
        self._window = window
        self._quota = quota  # tokens per second
        self._tokens = self._burst
        self._filled_at_ms = now_ms

    @property
    def _burst(self) -> float:
        return self._window.samples * (self._window.sample_ms / 1000) * self._quota

    def set_quota(self, quota: float) -> None:
        """Take over a changed quota. The tokens stay."""
        self._quota = quota

    def record(self, permits: float, now_ms: int) -> None:
        """Take tokens."""
        self._fill(now_ms)
        self._tokens = min(self._tokens - permits, self._burst)

    def throttle_ms(self, now_ms: int) -> int:
        """How long until there are no tokens missing; 0 if none are."""
        self._fill(now_ms)

        # The comparison is not >=: with a quota that is not finite the tokens may be NaN, which
        # throttles no client, as in Kafka.
        if not self._tokens < 0:
            return 0
        return java_round(-self._tokens / self._quota * 1000) if self._quota > 0 else INT32_MAX

    def _fill(self, now_ms: int) -> None:
        gained = self._quota * ((now_ms - self._filled_at_ms) / 1000)

        # `min` has its arguments in this order, so that NaN becomes the burst once the quota is finite.
        self._tokens = min(self._burst, self._tokens + gained)
        self._filled_at_ms = now_ms
