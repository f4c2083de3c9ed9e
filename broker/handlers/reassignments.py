"""AlterPartitionReassignments and ListPartitionReassignments: moving partitions to other brokers (KIP-455).

Behaviour: only the active controller serves them (NOT_CONTROLLER otherwise, for the whole request). A reassignment is
    answered when it has begun, whatever `timeout_ms` says, as in Kafka; a partition that is named twice is moved to
    where the last entry wants it. What is listed are those of the asked partitions that are on their way.
Versions: 0 of both.
"""

from collections.abc import Iterable, Mapping, Sequence

from barnabas.broker.call import Broker, Call
from barnabas.broker.pacing import paced, portions
from barnabas.controller.decide.reassignments import PartitionRefused
from barnabas.controller.events import OngoingReassignmentsAsked, ReassignmentsAsked
from barnabas.controller.image.state import Assignment
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition

PARTITIONS_AT_A_TIME = 100  # the controller looks at these in one step
REPLICAS_MAX = 1000  # of a partition; so many brokers no cluster has
TOO_MANY_REPLICAS = PartitionRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"More than {REPLICAS_MAX} replicas.")
NO_MESSAGE = ""  # of an answer without error: Kafka leaves the field at its default

Target = Sequence[int] | None
Outcome = PartitionRefused | None
AlteredTopic = m.AlterPartitionReassignmentsResponse.ReassignableTopicResponse
AlteredRow = m.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse
OngoingTopic = m.ListPartitionReassignmentsResponse.OngoingTopicReassignment
OngoingRow = m.ListPartitionReassignmentsResponse.OngoingPartitionReassignment


async def alter_partition_reassignments(
    broker: Broker, call: Call, request: m.AlterPartitionReassignmentsRequest
) -> m.AlterPartitionReassignmentsResponse:
    """Begin, change or cancel reassignments."""
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    targets = {
        TopicPartition(topic.name, row.partition_index): row.replicas
        async for topic in paced(request.topics)
        async for row in paced(topic.partitions)
    }
    topics: dict[str, list[AlteredRow]] = {}
    for portion in list(portions(list(targets.items()), PARTITIONS_AT_A_TIME)) or [()]:  # none is a question, too
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
    too_many = {key for key, replicas in targets.items() if len(replicas or ()) > REPLICAS_MAX}
    asked = {key: replicas for key, replicas in targets.items() if key not in too_many}
    outcomes = await broker.candidate.ask(ReassignmentsAsked(asked))
    if isinstance(outcomes, ErrorCode):
        raise Refuse(outcomes)
    return outcomes | dict.fromkeys(too_many, TOO_MANY_REPLICAS)


async def list_partition_reassignments(
    broker: Broker, call: Call, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    """What is on its way."""
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
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
    """One error for the whole request."""
    return m.AlterPartitionReassignmentsResponse(error_code=code, error_message=_message(code))


def refuse_list_partition_reassignments(
    request: m.ListPartitionReassignmentsRequest, version: int, code: ErrorCode
) -> m.ListPartitionReassignmentsResponse:
    """One error for the whole request."""
    return m.ListPartitionReassignmentsResponse(error_code=code, error_message=_message(code))


async def _asked_partitions(request: m.ListPartitionReassignmentsRequest) -> Iterable[TopicPartition] | None:
    """None asks for all."""
    if request.topics is None:
        return None
    return [
        TopicPartition(topic.name, index)
        async for topic in paced(request.topics)
        async for index in paced(topic.partition_indexes)
    ]


def _ongoing(index: int, assignment: Assignment) -> OngoingRow:
    return OngoingRow(
        partition_index=index,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
    )


def _message(code: ErrorCode) -> str | None:
    return code.message if code == ErrorCode.NOT_CONTROLLER else None
