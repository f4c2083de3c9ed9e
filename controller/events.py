"""The events that a controller handles, one type each. `controller.HANDLERS` names the handler of each type.

Most events come from a watch and carry no data: a watch means "read again", and the handler compares what it reads with
the image. Reading sets the watch again, so at most one event of a watch is in the queue. The other events are responses
of brokers, and questions that other parts of this broker ask (`Asked`).

A handler reads what it needs, replays facts that need no write, makes a decision (`decide/`) and commits it.
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
    """What the controller's queue holds."""


class Request(Event):
    """An event that asks for something (a question, a node, a changed property) and may be left undone.

    If its handler fails before it has changed anything, the term goes on (`Controller._handle`).
    """

    # The node that holds the request. It is removed if the handler fails, or each later controller would fail as well.
    node: ClassVar[str | None] = None


@dataclass(frozen=True, slots=True)
class Startup(Event):
    """The first event of a term: read everything."""


@dataclass(frozen=True, slots=True)
class WorkLeftBehind(Request):
    """Go on with the deletions and reassignments that the last controller did not complete.

    Not a part of `Startup`: a bug there would end every term.
    """


@dataclass(frozen=True, slots=True)
class BrokerIdsTouched(Event):
    """A registration was created or removed."""


@dataclass(frozen=True, slots=True)
class RegistrationTouched(Event):
    """A broker's node was written (new endpoints) or removed."""

    broker_id: int


@dataclass(frozen=True, slots=True)
class TopicsTouched(Event):
    """A topic's node was created or removed."""


@dataclass(frozen=True, slots=True)
class TopicTouched(Event):
    """A topic's node was written (it may have more partitions) or removed."""

    topic: str


@dataclass(frozen=True, slots=True)
class DeletionMarksTouched(Request):
    """A topic was marked for deletion, or a mark was removed."""


@dataclass(frozen=True, slots=True)
class LogDirEventsTouched(Event):
    """A broker reported in the store that it lost a log directory."""


@dataclass(frozen=True, slots=True)
class IsrChangeNotificationsTouched(Event):
    """A leader below 2.7-IV2 reported in the store that it has written another ISR itself."""


@dataclass(frozen=True, slots=True)
class UncleanElectionAllowed(Request):
    """`unclean.leader.election.enable` became true, for a topic or (None) for the brokers."""

    topic: str | None


@dataclass(frozen=True, slots=True)
class ReassignmentsTouched(Request):
    """/admin/reassign_partitions was written or removed."""

    node = paths.REASSIGN_PARTITIONS


@dataclass(frozen=True, slots=True)
class PreferredElectionsTouched(Request):
    """/admin/preferred_replica_election was written or removed."""

    node = paths.PREFERRED_REPLICA_ELECTION


@dataclass(frozen=True, slots=True)
class RebalanceDue(Request):
    """Time to compare the leaders with the preferred ones (`auto.leader.rebalance.enable`)."""


@dataclass(frozen=True, slots=True)
class LeaderAndIsrAnswered(Event):
    """A broker answered LeaderAndIsr; `broker` is the registration that it was sent to."""

    broker: LiveBroker
    response: m.LeaderAndIsrResponse


@dataclass(frozen=True, slots=True)
class StopReplicaAnswered(Event):
    """A broker answered StopReplica. The request says which replicas were to be deleted; the response lists errors."""

    broker: LiveBroker
    request: m.StopReplicaRequest
    response: m.StopReplicaResponse


class Asked(Request, Generic[Result]):
    """A question: a task of this broker waits for the answer of the handler, or for the end of the term."""

    def __init__(self) -> None:
        self._answered = trio.Event()
        self._answer: Result | ErrorCode = ErrorCode.NOT_CONTROLLER

    def answer(self, value: Result | ErrorCode) -> None:
        """Set the answer; only the first one counts."""
        # The end of the term refuses every question whose task has not returned yet, also one that has its answer.
        if not self._answered.is_set():
            self._answer = value
            self._answered.set()

    async def wait(self) -> Result | ErrorCode:
        """Wait for the answer: a result, or the error code of the whole request."""
        await self._answered.wait()
        return self._answer


class ProducerIdsAsked(Asked[ProducerIdBlock]):
    """A broker needs a block of producer ids (AllocateProducerIds, KIP-730)."""

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class ControlledShutdownAsked(Asked[list[TopicPartition]]):
    """A broker is about to stop (ControlledShutdown). The answer: the partitions that it still leads.

    Partitions with a single replica are left out.
    """

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch


class AlterPartitionAsked(Asked[list[Leadership | ErrorCode]]):
    """A leader proposes other ISRs (AlterPartition, KIP-497). The answer has one entry for each change, in their order.

    A change is (topic, partition index, change); the topic is its id, or its name in request versions below 2.
    """

    def __init__(
        self, broker_id: int, broker_epoch: int, changes: Sequence[tuple[bytes | str, int, IsrChange]]
    ) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.changes = changes


class ElectionAsked(Asked[dict[TopicPartition, int | PartitionRefused]]):
    """Elect the preferred leaders or, with `unclean`, any live replica where there is no leader (KIP-460).

    The answer has the leader of each partition, or why there was no election.
    """

    def __init__(self, topic_partitions: Iterable[TopicPartition], *, unclean: bool) -> None:
        super().__init__()
        # A partition that is named twice is elected, and answered, once.
        self.topic_partitions = dict.fromkeys(topic_partitions)
        self.unclean = unclean


class ReassignmentsAsked(Asked[dict[TopicPartition, PartitionRefused | None]]):
    """Move partitions to these replicas or, with None, cancel their reassignment (KIP-455).

    The answer has for each partition None if that has begun, or why it was refused.
    """

    def __init__(self, targets: Mapping[TopicPartition, Sequence[int] | None]) -> None:
        super().__init__()
        self.targets = targets


class OngoingReassignmentsAsked(Asked[dict[TopicPartition, Assignment]]):
    """Which of these partitions, or of all (None), are being reassigned, and how (KIP-455)."""

    def __init__(self, topic_partitions: Iterable[TopicPartition] | None) -> None:
        super().__init__()
        self.topic_partitions = topic_partitions


# Event -> the number of Kafka's `ControllerState` while it is handled. Between two events it is
# IDLE.
IDLE = 0
STATES: Mapping[type[Event], int] = {
    Startup: 1,
    WorkLeftBehind: 1,
    BrokerIdsTouched: 2,
    RegistrationTouched: 2,
    TopicsTouched: 3,
    TopicTouched: 3,
    DeletionMarksTouched: 4,
    StopReplicaAnswered: 4,
    ReassignmentsTouched: 5,
    ReassignmentsAsked: 5,
    RebalanceDue: 6,
    PreferredElectionsTouched: 7,
    ElectionAsked: 7,
    ControlledShutdownAsked: 8,
    IsrChangeNotificationsTouched: 9,
    AlterPartitionAsked: 9,
    LeaderAndIsrAnswered: 10,
    LogDirEventsTouched: 11,
    UncleanElectionAllowed: 14,
    OngoingReassignmentsAsked: 15,
    ProducerIdsAsked: IDLE,
}


def response_event(broker: LiveBroker, request: m.Message, response: m.Message) -> Event | None:
    """The event of a broker's response, or None: as in Kafka, a response to UpdateMetadata is ignored."""
    if isinstance(response, m.LeaderAndIsrResponse):
        return LeaderAndIsrAnswered(broker, response)
    if isinstance(response, m.StopReplicaResponse) and isinstance(request, m.StopReplicaRequest):
        return StopReplicaAnswered(broker, request, response)
    return None
