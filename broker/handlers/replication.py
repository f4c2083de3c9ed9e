"""Between the controller and its brokers: LeaderAndIsr, StopReplica and UpdateMetadata are what it tells them,
AlterPartition and ControlledShutdown what they ask of it.

Behaviour: what the controller tells is applied in the order in which it comes, one at a time; a stale controller epoch
    (11) or broker epoch (77) refuses the whole request; everything else is an error code per partition (reference B.8).
    What brokers ask only the active controller answers: others say NOT_CONTROLLER, of a ControlledShutdown
    STALE_CONTROLLER_EPOCH, as in Kafka (reference B.10, B.13).
Versions: LeaderAndIsr 0-7 (0-1 flat, 2+ by topic, 5+ topic ids), StopReplica 0-4 (0 flat, 1-2 by topic with one delete
    flag, 3+ per partition), UpdateMetadata 0-8 (0-4 flat, 5+ by topic). AlterPartition 0-3: 2+ by topic id, and knows
    INELIGIBLE_REPLICA; 3 names the ISR's members with their broker epochs. ControlledShutdown 0-3: 2+ with the broker
    epoch.
Not done: nothing that is known. This broker's own AlterPartition is asked by `broker/replication/alter_partition.py`.
"""

from collections.abc import Iterable

from barnabas.broker.call import Broker, Call
from barnabas.broker.pacing import paced
from barnabas.broker.replication.replicas import StoppedReplica
from barnabas.controller.decide.isr import IsrChange
from barnabas.controller.events import ControlledShutdownAsked, IsrChangesAsked
from barnabas.controller.image.state import Leadership
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

ROLES_BY_TOPIC_VERSION = 5
BY_TOPIC_ID_VERSION = 2
BROKER_EPOCHS_VERSION = 3
ROW_COST = 2  # rows that take as long as one of AlterPartition


def _authorize(call: Call) -> None:
    if not call.authorize("ClusterAction", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def leader_and_isr(broker: Broker, call: Call, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
    """Take the roles that the controller gave."""
    _authorize(call)
    states = [
        (TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state)
        async for topic in paced(request.topic_states)
        async for state in paced(topic.partition_states)
    ]
    states += [
        (TopicPartition(state.topic_name, state.partition_index), ZERO_TOPIC_ID, state)
        async for state in paced(request.ungrouped_partition_states)
    ]
    errors = await broker.replicas.leader_and_isr(request, states)
    if isinstance(errors, ErrorCode):
        raise Refuse(errors)
    return _roles_taken(request, call.version, errors)


async def stop_replica(broker: Broker, call: Call, request: m.StopReplicaRequest) -> m.StopReplicaResponse:
    """Stop hosting partitions."""
    _authorize(call)
    errors = await broker.replicas.stop_replica(request, await _stopped_replicas(request))
    if isinstance(errors, ErrorCode):
        return m.StopReplicaResponse(error_code=errors)
    rows = [
        m.StopReplicaResponse.StopReplicaPartitionError(
            topic_name=key.topic, partition_index=key.partition, error_code=error
        )
        async for key, error in paced(errors.items())
    ]
    return m.StopReplicaResponse(partition_errors=rows)


async def update_metadata(broker: Broker, call: Call, request: m.UpdateMetadataRequest) -> m.UpdateMetadataResponse:
    """Take over the controller's metadata."""
    _authorize(call)
    return m.UpdateMetadataResponse(error_code=await broker.replicas.update_metadata(request))


async def controlled_shutdown(
    broker: Broker, call: Call, request: m.ControlledShutdownRequest
) -> m.ControlledShutdownResponse:
    """A broker is about to stop: move leadership away from it, and say what it still leads."""
    _authorize(call)
    outcome = await broker.candidate.ask(ControlledShutdownAsked(request.broker_id, request.broker_epoch))
    if isinstance(outcome, ErrorCode):
        is_not_controller = outcome == ErrorCode.NOT_CONTROLLER
        code = ErrorCode.STALE_CONTROLLER_EPOCH if is_not_controller else outcome
        raise Refuse(code)
    remaining = [
        m.ControlledShutdownResponse.RemainingPartition(topic_name=key.topic, partition_index=key.partition)
        for key in outcome
    ]
    return m.ControlledShutdownResponse(remaining_partitions=remaining)


async def alter_partition(broker: Broker, call: Call, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
    """A leader wants other in-sync replicas."""
    _authorize(call)
    by_id = call.version >= BY_TOPIC_ID_VERSION
    changes = [
        (topic.topic_id if by_id else topic.topic_name, row.partition_index, await _isr_change(row, call.version))
        async for topic in paced(request.topics)
        async for row in paced(topic.partitions, ROW_COST)
    ]
    outcomes = await broker.candidate.ask(IsrChangesAsked(request.broker_id, request.broker_epoch, changes))
    if isinstance(outcomes, ErrorCode):
        raise Refuse(outcomes)
    answers = iter(outcomes)
    topics = [
        m.AlterPartitionResponse.TopicData(
            topic_name=topic.topic_name,
            topic_id=topic.topic_id,
            partitions=[
                _altered(row.partition_index, next(answers), call.version)
                async for row in paced(topic.partitions, ROW_COST)
            ],
        )
        async for topic in paced(request.topics)
    ]
    return m.AlterPartitionResponse(topics=topics)


def refuse_leader_and_isr(request: m.LeaderAndIsrRequest, version: int, code: ErrorCode) -> m.LeaderAndIsrResponse:
    """One error for the whole request, and for each partition."""
    named = [(topic.topic_name, state) for topic in request.topic_states for state in topic.partition_states]
    named += [(state.topic_name, state) for state in request.ungrouped_partition_states]
    errors = {TopicPartition(name, state.partition_index): code for name, state in named}
    response = _roles_taken(request, version, errors)
    response.error_code = code
    return response


async def _stopped_replicas(request: m.StopReplicaRequest) -> list[StoppedReplica]:
    """Whichever of the three shapes the version has."""
    stopped: list[StoppedReplica] = []
    async for topic_state in paced(request.topic_states):
        async for state in paced(topic_state.partition_states):
            key = TopicPartition(topic_state.topic_name, state.partition_index)
            stopped.append((key, state.leader_epoch, state.delete_partition))
    async for topic in paced(request.topics):
        named = [TopicPartition(topic.name, index) async for index in paced(topic.partition_indexes)]
        stopped += [(key, -1, request.delete_partitions) async for key in paced(named)]
    stopped += [
        (TopicPartition(single.topic_name, single.partition_index), -1, request.delete_partitions)
        async for single in paced(request.ungrouped_partitions)
    ]
    return stopped


def _roles_taken(
    request: m.LeaderAndIsrRequest, version: int, errors: dict[TopicPartition, ErrorCode]
) -> m.LeaderAndIsrResponse:
    if version < ROLES_BY_TOPIC_VERSION:
        return m.LeaderAndIsrResponse(partition_errors=_leader_and_isr_rows(errors, errors, named=True))
    topics = [
        m.LeaderAndIsrResponse.LeaderAndIsrTopicError(
            topic_id=topic.topic_id,
            partition_errors=_leader_and_isr_rows(
                errors,
                (TopicPartition(topic.topic_name, state.partition_index) for state in topic.partition_states),
                named=False,
            ),
        )
        for topic in request.topic_states
    ]
    return m.LeaderAndIsrResponse(topics=topics)


def _leader_and_isr_rows(
    errors: dict[TopicPartition, ErrorCode], keys: Iterable[TopicPartition], *, named: bool
) -> list[m.LeaderAndIsrResponse.LeaderAndIsrPartitionError]:
    return [
        m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
            topic_name=key.topic if named else "", partition_index=key.partition, error_code=errors[key]
        )
        for key in keys
    ]


async def _isr_change(asked: m.AlterPartitionRequest.PartitionData, version: int) -> IsrChange:
    with_epochs = asked.new_isr_with_epochs if version >= BROKER_EPOCHS_VERSION else ()
    return IsrChange(
        asked.leader_epoch,
        asked.partition_epoch,
        tuple([member.broker_id async for member in paced(with_epochs)]) or tuple(asked.new_isr),
        {member.broker_id: member.broker_epoch async for member in paced(with_epochs)},
        asked.leader_recovery_state,
    )


def _altered(index: int, outcome: Leadership | ErrorCode, version: int) -> m.AlterPartitionResponse.PartitionData:
    row = m.AlterPartitionResponse.PartitionData(partition_index=index)
    if isinstance(outcome, ErrorCode):
        row.error_code = outcome
        if outcome == ErrorCode.INELIGIBLE_REPLICA and version < BY_TOPIC_ID_VERSION:
            row.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
        return row
    state, row.partition_epoch = outcome
    row.leader_id, row.leader_epoch, row.isr = state.leader, state.leader_epoch, state.isr
    row.leader_recovery_state = state.leader_recovery_state
    return row
