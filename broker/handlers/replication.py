"""LeaderAndIsr, StopReplica, UpdateMetadata: what the controller tells its brokers.

Behaviour: requests are applied in the order in which they come, one at a time; a stale controller epoch (11) or broker
    epoch (77) refuses the whole request; everything else is an error code per partition (reference B.8).
Versions: LeaderAndIsr 0-7 (0-1 flat, 2+ by topic, 5+ topic ids), StopReplica 0-4 (0 flat, 1-2 by topic with one delete
    flag, 3+ per partition), UpdateMetadata 0-8 (0-4 flat, 5+ by topic).
"""

from collections.abc import Iterable, Iterator

from barnabas.broker.call import Broker, Call
from barnabas.broker.replicas import AskedState, StoppedReplica
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition


def _authorize(call: Call) -> None:
    if not call.authorize("ClusterAction", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def leader_and_isr(broker: Broker, call: Call, request: m.LeaderAndIsrRequest) -> m.LeaderAndIsrResponse:
    """Take the roles that the controller gave."""
    _authorize(call)
    errors = await broker.replicas.leader_and_isr(request, list(_asked_states(request)))
    if isinstance(errors, ErrorCode):
        return m.LeaderAndIsrResponse(error_code=errors)
    if call.version < 5:
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


async def stop_replica(broker: Broker, call: Call, request: m.StopReplicaRequest) -> m.StopReplicaResponse:
    """Stop hosting partitions."""
    _authorize(call)
    errors = await broker.replicas.stop_replica(request, list(_stopped_replicas(request)))
    if isinstance(errors, ErrorCode):
        return m.StopReplicaResponse(error_code=errors)
    rows = [
        m.StopReplicaResponse.StopReplicaPartitionError(
            topic_name=key.topic, partition_index=key.partition, error_code=error
        )
        for key, error in errors.items()
    ]
    return m.StopReplicaResponse(partition_errors=rows)


async def update_metadata(broker: Broker, call: Call, request: m.UpdateMetadataRequest) -> m.UpdateMetadataResponse:
    """Take over the controller's picture of the cluster."""
    _authorize(call)
    return m.UpdateMetadataResponse(error_code=await broker.replicas.update_metadata(request))


def refuse_leader_and_isr(request: m.LeaderAndIsrRequest, version: int, code: ErrorCode) -> m.LeaderAndIsrResponse:
    """One error for the whole request."""
    return m.LeaderAndIsrResponse(error_code=code)


def refuse_stop_replica(request: m.StopReplicaRequest, version: int, code: ErrorCode) -> m.StopReplicaResponse:
    """One error for the whole request."""
    return m.StopReplicaResponse(error_code=code)


def refuse_update_metadata(request: m.UpdateMetadataRequest, version: int, code: ErrorCode) -> m.UpdateMetadataResponse:
    """One error for the whole request."""
    return m.UpdateMetadataResponse(error_code=code)


def _asked_states(request: m.LeaderAndIsrRequest) -> Iterator[AskedState]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield TopicPartition(topic.topic_name, state.partition_index), topic.topic_id, state
    for state in request.ungrouped_partition_states:
        yield TopicPartition(state.topic_name, state.partition_index), ZERO_TOPIC_ID, state


def _stopped_replicas(request: m.StopReplicaRequest) -> Iterator[StoppedReplica]:
    """Whichever of the three shapes the version has."""
    for topic_state in request.topic_states:
        for state in topic_state.partition_states:
            key = TopicPartition(topic_state.topic_name, state.partition_index)
            yield key, state.leader_epoch, state.delete_partition
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield TopicPartition(topic.name, index), -1, request.delete_partitions
    for single in request.ungrouped_partitions:
        yield TopicPartition(single.topic_name, single.partition_index), -1, request.delete_partitions


def _leader_and_isr_rows(
    errors: dict[TopicPartition, ErrorCode], keys: Iterable[TopicPartition], *, named: bool
) -> list[m.LeaderAndIsrResponse.LeaderAndIsrPartitionError]:
    return [
        m.LeaderAndIsrResponse.LeaderAndIsrPartitionError(
            topic_name=key.topic if named else "", partition_index=key.partition, error_code=errors[key]
        )
        for key in keys
    ]
