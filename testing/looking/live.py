"""A running broker as the threads beside its loop look at it: its live parts, and waits for what they show (edge)."""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.running.loop import Loop

if TYPE_CHECKING:
    from barnabas.broker.call import Broker

SECONDS = 5.0  # that a wait takes at most, unless the test says otherwise
PACE_SECONDS = 0.001  # between two looks of a wait

Value = TypeVar("Value")


class Live:
    """`parts` raises a LocalBrokerError while the broker does not run."""

    def __init__(self, loop: Loop, parts: "Callable[[], Broker]") -> None:
        self._loop = loop
        self._parts = parts

    def look(self, function: "Callable[[Broker], Value]") -> Value:
        """What the function returns or raises for the live parts, in one step of the loop."""
        return self._loop.call(lambda: function(self._parts()))

    def ask(self, function: "Callable[[Broker], Awaitable[Value]]") -> Value:
        """The same of a function that waits."""

        async def asked() -> Value:
            return await function(self._parts())

        return self._loop.wait(asked)

    def wait_for_records(self, topic: str, count: int, seconds: float) -> None:
        """Wait until consumers can read so many records of a topic here; LocalBrokerError when they do not come.

        Records of all partitions count, also those that only end transactions, and those that were compacted away.
        """

        def readable(broker: "Broker") -> int:
            found = (each for each in broker.replicas if each.topic_partition.topic == topic)
            return sum(each.high_watermark - each.log.log_start_offset for each in found if each.log is not None)

        wait_until(
            lambda: self.look(readable) >= count,
            seconds,
            lambda: f"topic {topic!r} has {self.look(readable)} of {count} records",
        )


def wait_until(look: Callable[[], bool], seconds: float, missing: str | Callable[[], str]) -> None:
    """Wait until this is true; LocalBrokerError with what is missing when it does not come."""
    deadline = time.monotonic() + seconds
    while not look():
        if time.monotonic() > deadline:
            what = missing if isinstance(missing, str) else missing()
            raise LocalBrokerError(f"not within {seconds:g} s: {what}")
        time.sleep(PACE_SECONDS)
