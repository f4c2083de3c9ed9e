"""What a controller counts, over all its terms on this broker (pure)."""

from collections.abc import Callable


def _ignore(seconds: float) -> None:
    """No part of the broker measures."""


class ControllerTally:
    """The elections of this broker's terms as the controller."""

    __slots__ = ("leader_elections", "on_brokers_changed", "unclean_elections")

    def __init__(self) -> None:
        self.leader_elections = 0  # new leaders of partitions
        self.unclean_elections = 0  # of these, the ones that were not in sync
        self.on_brokers_changed: Callable[[float], None] = _ignore  # gets the seconds that BrokerIdsTouched took
