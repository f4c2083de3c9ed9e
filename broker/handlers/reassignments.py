"""AlterPartitionReassignments and ListPartitionReassignments: moving partitions to other brokers (KIP-455).

Behaviour: only the active controller serves them (NOT_CONTROLLER otherwise, for the whole request). A reassignment is
    answered when it has begun, whatever `timeout_ms` says, as in Kafka; a partition that is named twice is moved to
    where the last entry wants it. What is listed are those of the asked partitions that are on their way.
Versions: 0 of both.
"""

from collections.abc import Iterable

from barnabas.broker.call import Broker, Call
from barnabas.controller.events import OngoingReassignmentsAsked, ReassignmentsAsked
from barnabas.controller.reassignments import PartitionRefused
from barnabas.controller.state import Assignment
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition

NO_MESSAGE = ""  # of an answer without error: Kafka leaves the field at its default

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
        for topic in request.topics
        for row in topic.partitions
    }
    outcomes = await broker.candidate.ask(ReassignmentsAsked(targets))
    if isinstance(outcomes, ErrorCode):
        return refuse_alter_partition_reassignments(request, call.version, outcomes)
    topics: dict[str, list[AlteredRow]] = {}
    for topic_partition, outcome in outcomes.items():
        code, message = outcome or PartitionRefused(ErrorCode.NONE)
        row = AlteredRow(partition_index=topic_partition.partition, error_code=code, error_message=message)
        topics.setdefault(topic_partition.topic, []).append(row)
    return m.AlterPartitionReassignmentsResponse(
        error_message=NO_MESSAGE,
        responses=[AlteredTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )


async def list_partition_reassignments(
    broker: Broker, call: Call, request: m.ListPartitionReassignmentsRequest
) -> m.ListPartitionReassignmentsResponse:
    """What is on its way."""
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    outcome = await broker.candidate.ask(OngoingReassignmentsAsked(_asked_partitions(request)))
    if isinstance(outcome, ErrorCode):
        return refuse_list_partition_reassignments(request, call.version, outcome)
    topics: dict[str, list[OngoingRow]] = {}
    for topic_partition, assignment in outcome.items():
        topics.setdefault(topic_partition.topic, []).append(_ongoing(topic_partition.partition, assignment))
    return m.ListPartitionReassignmentsResponse(
        error_message=NO_MESSAGE,
        topics=[OngoingTopic(name=name, partitions=rows) for name, rows in topics.items()],
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


def _asked_partitions(request: m.ListPartitionReassignmentsRequest) -> Iterable[TopicPartition] | None:
    """None asks for all."""
    if request.topics is None:
        return None
    return [TopicPartition(topic.name, index) for topic in request.topics for index in topic.partition_indexes]


def _ongoing(index: int, assignment: Assignment) -> OngoingRow:
    return OngoingRow(
        partition_index=index,
        replicas=assignment.replicas,
        adding_replicas=assignment.adding,
        removing_replicas=assignment.removing,
    )


def _message(code: ErrorCode) -> str | None:
    return code.message if code == ErrorCode.NOT_CONTROLLER else None
