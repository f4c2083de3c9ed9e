"""What happens to a controller: one type an event. What it does about each stands in `controller.HANDLERS`.

Most events come from a watch and carry nothing: a watch means "read again", and the handler compares what it reads with
the image. Reading arms the watch again, so at most one event of a watch is in the queue. The others are answers of
brokers, and questions that other parts of this broker ask (`Asked`).

A handler reads what it needs, replays facts that need no write, makes a decision (replicas.py) and commits it. An
exception in the middle of one ends the term; nothing was sent that was not written. Only a `Request` whose
handler fails before it changed anything is passed over, and the term goes on.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import trio

from barnabas.controller.decide.isr import IsrChange
from barnabas.controller.decide.reassignments import PartitionRefused
from barnabas.controller.image.state import Assignment, Leadership, LiveBroker
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ProducerIdBlock
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

Result = TypeVar("Result")


class Event:
    """Something that a controller reacts to."""


class Request(Event):
    """A request, by a question, by a node or by the configuration: it may be left undone."""

    # The node that asks. It is removed when it cannot be handled, or each later controller would fail on it again.
    node: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class Startup(Event):
    """The term begins: read everything."""


@dataclass(frozen=True, slots=True)
class WorkLeftBehind(Request):
    """The term has begun: deletions and reassignments go on."""


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
class DeletionMarksTouched(Request):
    """A topic was marked for deletion, or a mark went."""


@dataclass(frozen=True, slots=True)
class LogDirEventsTouched(Event):
    """A broker says that it lost a log directory."""


@dataclass(frozen=True, slots=True)
class IsrChangeNotesTouched(Event):
    """A leader of an old level says that it wrote other in-sync replicas itself."""


@dataclass(frozen=True, slots=True)
class UncleanElectionAllowed(Request):
    """A topic's configuration, or with None the brokers', allows unclean elections now."""

    topic: str | None


@dataclass(frozen=True, slots=True)
class ReassignmentsTouched(Request):
    """Reassignments were requested in the store, or those that were are done."""

    node = paths.REASSIGN_PARTITIONS


@dataclass(frozen=True, slots=True)
class PreferredElectionsTouched(Request):
    """Preferred leaders were requested in the store, or those that were are elected."""

    node = paths.PREFERRED_REPLICA_ELECTION


@dataclass(frozen=True, slots=True)
class RebalanceDue(Request):
    """It is time to see whether leadership is spread as the assignments want it."""


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


class Asked(Request, Generic[Result]):
    """A question: its sender waits, and is answered once, by the event's function or by the end of the term."""

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


class ControlledShutdownAsked(Asked[list[TopicPartition]]):
    """A broker is about to stop; the answer is what it still leads though others hold it too."""

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class IsrChangesAsked(Asked[list[Leadership | ErrorCode]]):
    """A leader wants other in-sync replicas; an answer for each change, in their order.

    The topic is named by its id, or by its name where the request is older than ids.
    """

    def __init__(
        self, broker_id: int, broker_epoch: int, changes: Sequence[tuple[bytes | str, int, IsrChange]]
    ) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.changes = changes


class ElectionAsked(Asked[dict[TopicPartition, int | PartitionRefused]]):
    """The preferred replicas shall lead, or (unclean) any replica rather than none; the answer: who leads."""

    def __init__(self, topic_partitions: Iterable[TopicPartition], *, unclean: bool) -> None:
        super().__init__()
        self.topic_partitions = dict.fromkeys(topic_partitions)
        self.unclean = unclean


class ReassignmentsAsked(Asked[dict[TopicPartition, PartitionRefused | None]]):
    """Partitions shall move to these replicas, or (None) back where they came from.

    The answer is None where that began.
    """

    def __init__(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        super().__init__()
        self.targets = targets


class OngoingReassignmentsAsked(Asked[dict[TopicPartition, Assignment]]):
    """Which of these partitions, or (None) of all, are being reassigned, and how."""

    def __init__(self, topic_partitions: Iterable[TopicPartition] | None) -> None:
        super().__init__()
        self.topic_partitions = topic_partitions


def response_event(broker: LiveBroker, request: m.Message, response: m.Message) -> Event | None:
    """The event that a broker's answer is; UpdateMetadata's says nothing."""
    if isinstance(response, m.LeaderAndIsrResponse):
        return LeaderAndIsrAnswered(broker, response)
    if isinstance(response, m.StopReplicaResponse) and isinstance(request, m.StopReplicaRequest):
        return StopReplicaAnswered(broker, request, response)
    return None
