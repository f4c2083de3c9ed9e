"""What happens to a controller: one type an event. What it does about each stands in `controller.HANDLERS`.

Most events come from a watch and carry nothing: a watch means "read again", and the handler compares what it reads with
the image. Reading arms the watch again, so at most one event of a watch is in the queue. The others are answers of
brokers, and questions that other parts of this broker ask (`Asked`).

A handler reads what it needs, replays facts that need no write, makes a decision (decisions.py) and commits it. An
exception in the middle of one ends the term; nobody was told anything that was not written.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

import trio

from barnabas.controller.paths import ProducerIdBlock
from barnabas.controller.state import LiveBroker
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

Result = TypeVar("Result")


class Event:
    """Something that a controller reacts to."""


@dataclass(frozen=True, slots=True)
class Startup(Event):
    """The term begins: read everything."""


@dataclass(frozen=True, slots=True)
class BrokerIdsTouched(Event):
    """A broker registered or its registration went."""


@dataclass(frozen=True, slots=True)
class RegistrationTouched(Event):
    """A broker's node was written."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicsTouched(Event):
    """A topic was created or deleted."""


@dataclass(frozen=True, slots=True)
class TopicTouched(Event):
    """A topic's node was written: it may have more partitions."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionMarksTouched(Event):
    """A topic was marked for deletion, or a mark went."""


@dataclass(frozen=True, slots=True)
class LogDirEventsTouched(Event):
    """A broker says that it lost a log directory."""


@dataclass(frozen=True, slots=True)
class UncleanElectionAllowed(Event):
    """A topic's configuration, or with None the brokers', allows unclean elections now."""

    topic: str | None


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered(Event):
    """A broker took its roles."""

    broker: LiveBroker
    response: m.LeaderAndIsrResponse


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered(Event):
    """A broker stopped replicas, and deleted those that it was to delete."""

    broker: LiveBroker
    request: m.StopReplicaRequest
    response: m.StopReplicaResponse


class Asked(Event, Generic[Result]):
    """A question: whoever asks waits, and is answered once, by the event's function or by the end of the term."""

    def __init__(self) -> None:
        self._answered = trio.Event()
        self._answer: Result | ErrorCode = ErrorCode.NOT_CONTROLLER

    def answer(self, value: Result | ErrorCode) -> None:
        """Answer; only the first answer counts."""
        if not self._answered.is_set():
            self._answer = value
            self._answered.set()

    async def wait(self) -> Result | ErrorCode:
        """The answer."""
        await self._answered.wait()
        return self._answer


class ProducerIdsAsked(Asked[ProducerIdBlock]):
    """A broker needs a block of producer ids."""

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


def response_event(broker: LiveBroker, request: m.Message, response: m.Message) -> Event | None:
    """The event that a broker's answer is; UpdateMetadata's says nothing."""
    if isinstance(response, m.LeaderAndIsrResponse):
        return LeaderAndIsrAnswered(broker, response)
    if isinstance(response, m.StopReplicaResponse) and isinstance(request, m.StopReplicaRequest):
        return StopReplicaAnswered(broker, request, response)
    return None


def error_name(code: int) -> str:
    """A code of a response, for the log."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
