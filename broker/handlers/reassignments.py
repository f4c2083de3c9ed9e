"""AlterPartitionReassignments and ListPartitionReassignments: moving partitions to other brokers (KIP-455).

Behaviour: only the active controller serves them (otherwise top-level NOT_CONTROLLER). AlterPartitionReassignments
    answers when the reassignment has begun, whatever `timeout_ms` says, as in Kafka. Of a partition that is named twice
    the last entry counts. ListPartitionReassignments answers the requested partitions that have a reassignment.
Versions: 0 of both.
"""

from collections.abc import Iterable, Mapping, Sequence

from barnabas.broker.call import Broker, Call
from barnabas.controller.decide.reassignments import PartitionRefused
from barnabas.controller.events import OngoingReassignmentsAsked, ReassignmentsAsked
from barnabas.controller.image.state import Assignment
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition
from barnabas.world.pacing import paced, portions

PARTITIONS_AT_A_TIME = 100  # partitions in one request to the controller, which handles them in one step
REPLICAS_MAX = 1000  # replicas of one partition: bounds that step; no cluster has so many brokers
TOO_MANY_REPLICAS = PartitionRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"More than {REPLICAS_MAX} replicas.")
NO_MESSAGE = ""  # top-level message without an error: Kafka leaves the field at its default, which is not null

# Errors that refuse a request before any of it is looked at.
REFUSED_UNSEEN = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.ILLEGAL_SASL_STATE, ErrorCode.UNKNOWN_SERVER_ERROR)

Target = Sequence[int] | None
Outcome = PartitionRefused | None
AlteredTopic = m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse
AlteredRow = m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
OngoingTopic = m.ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingRow = m.ListPartitionReassignmentsResponse.OngoingPartitionReassignment


async def alter_partition_reassignments(
    broker: Broker, call: Call, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    """Begin, change or (null replicas) cancel reassignments; each partition has its own error.

    Raises Refuse: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER.
    """
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    # This is a dict, so that of a repeated partition the last target remains.
    targets = {
        TopicPartition(topic.name, row.partition_index): None if row.replicas is None else tuple(row.replicas)
        async for topic in paced(request.topics)
        async for row in paced(topic.partitions)
    }
    topics: dict[str, list[AlteredRow]] = {}

    # A request without partitions still asks the controller once: an inactive one must answer NOT_CONTROLLER.
    for portion in list(portions(list(targets.items()), PARTITIONS_AT_A_TIME)) or [()]:
        outcomes = await _begin(broker, dict(portion))
        for topic_partition, _ in portion:
            code, message = outcomes[topic_partition] or PartitionRefused(ErrorCode.NONE)
            row = AlteredRow(partition_index=topic_partition.partition, error_code=code, error_message=message)
            topics.setdefault(topic_partition.topic, []).append(row)

    return m.AlterPartitionReassignmentsResponse(
        error_message=NO_MESSAGE,
        responses=[AlteredTopic(name=name, partitions=rows) async for name, rows in paced(topics.items())],
    )


async def _begin(broker: Broker, targets: Mapping[TopicPartition, Target]) -> dict[TopicPartition, Outcome]:
    # Long lists are refused here, so that the controller's step stays short.
    too_many = {key for key, replicas in targets.items() if len(replicas or ()) > REPLICAS_MAX}
    asked = {key: replicas for key, replicas in targets.items() if key not in too_many}
    # If the controller changes between two portions, NOT_CONTROLLER fails the whole request. A client that retries it
    # sets the same targets again.
    outcomes = await broker.candidate.ask(ReassignmentsAsked(asked))
    if isinstance(outcomes, ErrorCode):
        raise Refuse(outcomes)
    return outcomes | dict.fromkeys(too_many, TOO_MANY_REPLICAS)


async def list_partition_reassignments(
    broker: Broker, call: Call, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    """The ongoing reassignments of the requested partitions. Refuse: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER."""
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # The request is not split into portions, because the controller's step only looks each
    # partition up.
    outcome = await broker.candidate.ask(OngoingReassignmentsAsked(await _asked_partitions(request)))
    if isinstance(outcome, ErrorCode):
        raise Refuse(outcome)
    topics: dict[str, list[OngoingRow]] = {}
    async for topic_partition, assignment in paced(outcome.items()):
        topics.setdefault(topic_partition.topic, []).append(_ongoing(topic_partition.partition, assignment))
    return m.ListPartitionReassignmentsResponse(
        error_message=NO_MESSAGE,
        topics=[OngoingTopic(name=name, partitions=rows) async for name, rows in paced(topics.items())],
    )


def refuse_alter_partition_reassignments(
    request: m.AlterPartitionReassignmentsRequest, version: int, code: ErrorCode
) -> m.AlterPartitionReassignmentsResponse:
    """A top-level error; what is refused before anything is looked at is refused at each partition, too."""
    topics: dict[str, list[AlteredRow]] = {}
    for topic in request.topics if code in REFUSED_UNSEEN else ():
        for row in topic.partitions:
            refused = AlteredRow(partition_index=row.partition_index, error_code=code, error_message=code.message)
            topics.setdefault(topic.name, []).append(refused)
    responses = [AlteredTopic(name=name, partitions=rows) for name, rows in topics.items()]
    return m.AlterPartitionReassignmentsResponse(error_code=code, error_message=_message(code), responses=responses)


def refuse_list_partition_reassignments(
    request: m.ListPartitionReassignmentsRequest, version: int, code: ErrorCode
) -> m.ListPartitionReassignmentsResponse:
    """A top-level error without partitions."""
    return m.ListPartitionReassignmentsResponse(error_code=code, error_message=_message(code))


async def _asked_partitions(request: m.ListPartitionReassignmentsRequest) -> Iterable[TopicPartition] | None:
    """The named partitions; None means all."""
    if request.topics is None:
        return None
    return [
        TopicPartition(topic.name, index)
        async for topic in paced(request.topics)
        async for index in paced(topic.partition_indexes)
    ]


def _ongoing(index: int, assignment: Assignment) -> OngoingRow:
    # While a partition moves, `replicas` are those of the target and of the origin together (RS in reference B.12).
    return OngoingRow(
        partition_index=index,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
    )


def _message(code: ErrorCode) -> str | None:
    # Kafka sets a top-level message for these errors only (the text of the second is a dump of the request).
    return code.message if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED) else None
