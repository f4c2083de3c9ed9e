"""How far a broker is between its start and its end, for what is attached to it: health, metrics, a page."""

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.call import Broker
    from barnabas.replication.logs.directory import Loading


class BrokerState(IntEnum):
    """Kafka's states, with the numbers of its metric BrokerState."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2  # from the opening of the logs until it serves
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6  # leadership is being handed over; clients are still served
    SHUTTING_DOWN = 7


@dataclass(slots=True)
class Life:
    """One life of a broker; `serve` keeps it up to date."""

    state: BrokerState = BrokerState.NOT_RUNNING
    loading: "Loading | None" = None  # how many logs are open, from the state RECOVERY on
    broker: "Broker | None" = None  # the live parts, from before they run
