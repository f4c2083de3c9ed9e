"""Requests between controller and brokers, in both directions.

Controller to broker: LeaderAndIsr, StopReplica and UpdateMetadata. `Replicas` applies them one at a time, in the order
    of arrival. A stale controller epoch (STALE_CONTROLLER_EPOCH) or broker epoch (STALE_BROKER_EPOCH) refuses the whole
    request, and so does a later connection of the same controller (STALE_CONTROLLER_EPOCH): Apache Kafka lets a delayed
    UpdateMetadata replace newer metadata, until the next change. Each partition has its own error for everything else
    (reference B.8).
Broker to controller: AlterPartition and ControlledShutdown. Only the active controller serves them; any other broker
    answers NOT_CONTROLLER, for ControlledShutdown STALE_CONTROLLER_EPOCH (reference B.10, B.13). This broker's own
    AlterPartition requests come from `replication/alter_partition.py`.
Versions: LeaderAndIsr 0-7 (0-1 flat, 2+ by topic, 5+ topic ids), StopReplica 0-4 (0 flat, 1-2 by topic with one delete
    flag, 3+ per partition), UpdateMetadata 0-8 (0-4 flat, 5+ by topic). AlterPartition 0-3: 2+ by topic id, and knows
    INELIGIBLE_REPLICA; 3 names the ISR members with their broker epochs. ControlledShutdown 0-3: 2+ with the broker
    epoch.
Not done: nothing that is known.
"""

from collections.abc import Iterable

from barnabas.broker.call import Broker, Call
from barnabas.controller.decide.isr import IsrChange
from barnabas.controller.events import AlterPartitionAsked, ControlledShutdownAsked
from barnabas.controller.image.state import Leadership
from barnabas.replication.roles import StoppedReplica
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from barnabas.world.connection_order import Source
from barnabas.world.pacing import paced

ROLES_BY_TOPIC_VERSION = 5
BY_TOPIC_ID_VERSION = 2
BROKER_EPOCHS_VERSION = 3


# Only brokers should have ClusterAction: with it a client could move leaders and change any ISR.
def _authorize(call: Call) -> None:
    if not call.authorize("ClusterAction", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def _source(call: Call) -> Source:
    return Source(call.client_id, call.connection_number)


async def leader_and_isr(broker: Broker, call: Call, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
    """Apply leader and follower roles; the response has one error code per partition."""
    _authorize(call)
    states = [
        (TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state)
        async for topic in paced(request.topic_states)
        async for state in paced(topic.partition_states)
    ]
    # Versions 0 and 1 fill this list instead of `topic_states`; the decoder leaves the other one empty.
    states += [
        (TopicPartition(state.topic_name, state.partition_index), ZERO_TOPIC_ID, state)
        async for state in paced(request.ungrouped_partition_states)
    ]
    # Version 5 added topic ids. ZERO_TOPIC_ID in older requests means that the controller knows none.
    errors = await broker.replicas.leader_and_isr(request, states, _source(call))
    # Kafka repeats the error of the whole request at each partition, which `refuse_leader_and_isr` does.
    if isinstance(errors, ErrorCode):
        raise Refuse(errors)
    return _roles_taken(request, call.version, errors)


async def stop_replica(broker: Broker, call: Call, request: m.StopReplicaRequest) -> m.StopReplicaResponse:
    """Stop the replicas of partitions, and delete their logs where the request says so."""
    _authorize(call)
    # The requests of the controller are carried out one after the other, because it relies on their
    # order.
    errors = await broker.replicas.stop_replica(request, await _stopped_replicas(request), _source(call))
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
    """Apply the controller's changes to the metadata cache."""
    _authorize(call)
    error = await broker.replicas.update_metadata(request, _source(call))
    return m.UpdateMetadataResponse(error_code=error)


async def controlled_shutdown(
    broker: Broker, call: Call, request: m.ControlledShutdownRequest
) -> m.ControlledShutdownResponse:
    """Move leadership away from a broker that is about to stop; the response lists what it still leads."""
    _authorize(call)
    outcome = await broker.candidate.ask(ControlledShutdownAsked(request.broker_id, request.broker_epoch))
    if isinstance(outcome, ErrorCode):
        # Kafka's controller throws ControllerMovedException here, which the protocol maps to STALE_CONTROLLER_EPOCH.
        is_not_controller = outcome == ErrorCode.NOT_CONTROLLER
        code = ErrorCode.STALE_CONTROLLER_EPOCH if is_not_controller else outcome
        raise Refuse(code)
    remaining = [
        m.ControlledShutdownResponse.RemainingPartition(topic_name=key.topic, partition_index=key.partition)
        for key in outcome
    ]
    return m.ControlledShutdownResponse(remaining_partitions=remaining)


async def alter_partition(broker: Broker, call: Call, request: m.AlterPartitionRequest) -> m.AlterPartitionResponse:
    """Change the ISR of partitions on behalf of their leader (KIP-497); each partition has its own error."""
    _authorize(call)
    by_id = call.version >= BY_TOPIC_ID_VERSION

    # The key is an id from version 2 on: a deleted topic and its successor have one name but two ids.
    changes = [
        (topic.topic_id if by_id else topic.topic_name, row.partition_index, await _isr_change(row, call.version))
        async for topic in paced(request.topics)
        async for row in paced(topic.partitions)
    ]
    outcomes = await broker.candidate.ask(AlterPartitionAsked(request.broker_id, request.broker_epoch, changes))
    if isinstance(outcomes, ErrorCode):
        raise Refuse(outcomes)

    # The outcomes have the order of `changes`, so a second walk over the request pairs them with their rows.
    answers = iter(outcomes)
    topics = [
        m.AlterPartitionResponse.TopicData(
            topic_name=topic.topic_name,
            topic_id=topic.topic_id,
            partitions=[
                _altered(row.partition_index, next(answers), call.version) async for row in paced(topic.partitions)
            ],
        )
        async for topic in paced(request.topics)
    ]
    return m.AlterPartitionResponse(topics=topics)


def refuse_leader_and_isr(request: m.LeaderAndIsrRequest, version: int, code: ErrorCode) -> m.LeaderAndIsrResponse:
    """The same error at the top level and at each partition."""
    named = [(topic.topic_name, state) for topic in request.topic_states for state in topic.partition_states]
    named += [(state.topic_name, state) for state in request.ungrouped_partition_states]
    errors = {TopicPartition(name, state.partition_index): code for name, state in named}
    response = _roles_taken(request, version, errors)
    response.error_code = code
    return response


async def _stopped_replicas(request: m.StopReplicaRequest) -> list[StoppedReplica]:
    """(partition, leader epoch, whether to delete) of each replica; the decoder fills the list of one version only."""
    stopped: list[StoppedReplica] = []
    async for topic_state in paced(request.topic_states):
        async for state in paced(topic_state.partition_states):
            key = TopicPartition(topic_state.topic_name, state.partition_index)
            stopped.append((key, state.leader_epoch, state.delete_partition))
    async for topic in paced(request.topics):
        named = [TopicPartition(topic.name, index) async for index in paced(topic.partition_indexes)]
        # Before version 3 the request has no leader epoch per partition; -1 skips its check.
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
    # The response names topics by id from version 5 on, so the rows leave the name empty.
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
    # KIP-903: the controller compares the broker epochs with the registered ones. So a broker that restarted without
    # its data does not enter the ISR for what its previous run had fetched.
    with_epochs = asked.new_isr_with_epochs if version >= BROKER_EPOCHS_VERSION else ()
    return IsrChange(
        asked.leader_epoch,
        asked.partition_epoch,
        # Version 3 replaces `new_isr` by `new_isr_with_epochs`. An ISR is never empty, so empty means the older field.
        tuple([member.broker_id async for member in paced(with_epochs)]) or tuple(asked.new_isr),
        {member.broker_id: member.broker_epoch async for member in paced(with_epochs)},
        asked.leader_recovery_state,
    )


def _altered(index: int, outcome: Leadership | ErrorCode, version: int) -> m.AlterPartitionResponse.PartitionData:
    row = m.AlterPartitionResponse.PartitionData(partition_index=index)
    if isinstance(outcome, ErrorCode):
        row.error_code = outcome
        # INELIGIBLE_REPLICA came with version 2 (KIP-841). The leader treats both alike: the ISR was not changed.
        if outcome == ErrorCode.INELIGIBLE_REPLICA and version < BY_TOPIC_ID_VERSION:
            row.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED
        return row
    state, row.partition_epoch = outcome
    row.leader_id = state.leader
    row.leader_epoch = state.leader_epoch
    row.isr = state.isr
    row.leader_recovery_state = state.leader_recovery_state
    return row
