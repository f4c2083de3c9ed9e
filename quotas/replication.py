"""The rates of throttled replication (pure); KIP-73, reference security.md, S.20.

An administrator, mostly `kafka-reassign-partitions --throttle`, names the throttled replicas in the topics'
configuration, and the rates in that of the brokers. A broker counts what it sends for them as their leader, and what it
receives for them as their follower. Above the rate it serves and asks for none that is out of sync: replicas in the ISR
are never held back, since acknowledgements wait for them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.quotas.rates import SimpleRate, Window, throttle_ms

if TYPE_CHECKING:
    from barnabas.config.live import TopicConfig

ALL_REPLICAS = "*"
THROTTLE_SECONDS_MAX = 1.0  # the rate, or the list of throttled replicas, may be changed meanwhile


class ReplicationThrottle:
    """What a broker has sent or received for its throttled replicas, beside the rate that is allowed.

    `allowed` is that rate in bytes a second, `replicas_of` the setting of a topic that names replicas as
    partition:broker, and `now_ms` a clock that does not go back.
    """

    def __init__(
        self,
        broker_id: int,
        window: Window,
        allowed: Callable[[], int],
        replicas_of: "Callable[[TopicConfig], frozenset[str]]",
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._rate = SimpleRate(window)
        self._allowed = allowed
        self._replicas_of = replicas_of
        self._now_ms = now_ms

    def covers(self, config: "TopicConfig", partition: int) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        replicas = self._replicas_of(config)
        return bool(replicas) and (f"{partition}:{self._broker_id}" in replicas or ALL_REPLICAS in replicas)

    def note(self, size_bytes: int) -> None:
        """Count bytes of throttled replicas, of those in sync, too."""
        self._rate.record(size_bytes, self._now_ms())

    def throttle_seconds(self) -> float:
        """How long nothing may pass for throttled replicas that are out of sync; 0 if the rate is not above the limit.

        At most THROTTLE_SECONDS_MAX: then the caller asks again.
        """
        # Each round of each fetcher asks, and usually no replica is throttled.
        if self._rate.is_unused:
            return 0.0
        return min(throttle_ms(self._rate, self._allowed(), self._now_ms()) / 1000, THROTTLE_SECONDS_MAX)
