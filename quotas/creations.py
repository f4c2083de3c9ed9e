"""`max.connection.creation.rate` of the broker and of its listeners (pure): KIP-612; reference security.md, S.19.

A connection above a rate waits until it is accepted, and those behind it wait as well.
"""

from typing import Protocol

from barnabas.quotas.rates import INT32_MAX, Rate, Window, throttle_ms


class RateConfig(Protocol):
    """The properties that are read at each connection."""

    @property
    def max_connection_creation_rate(self) -> int: ...
    def connections_per_second(self, listener: str) -> int: ...
    def is_brokers_own(self, listener: str) -> bool: ...


class ConnectionCreations:
    """The rates at which connections are accepted."""

    def __init__(self, config: RateConfig, window: Window) -> None:
        self._config = config
        self._window = window
        self._of_broker = Rate(window)
        self._of_listeners: dict[str, Rate] = {}

    def is_limited(self, listener: str) -> bool:
        """Whether a rate is set."""
        limits = self._config.connections_per_second(listener), self._config.max_connection_creation_rate
        return min(limits) < INT32_MAX

    def record(self, listener: str, now_ms: int) -> int:
        """Record a connection; how long it waits, at most one sample of the window."""
        throttled_ms = 0
        limit = self._config.connections_per_second(listener)
        if limit < INT32_MAX:
            rate = self._of_listeners.setdefault(listener, Rate(self._window))
            rate.record(1, now_ms)
            throttled_ms = throttle_ms(rate, limit, now_ms)
        limit = self._config.max_connection_creation_rate

        # The brokers' own listener is exempt: otherwise clients could keep brokers from replicating.
        if limit < INT32_MAX and not self._config.is_brokers_own(listener):
            self._of_broker.record(1, now_ms)
            throttled_ms = max(throttled_ms, throttle_ms(self._of_broker, limit, now_ms))
        return min(throttled_ms, self._window.sample_ms)
