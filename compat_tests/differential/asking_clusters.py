"""Short functions that build requests about leaders, replicas and the controller; see `asking`."""

from collections.abc import Iterable, Mapping, Sequence

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, produce_one

# Less than a connection waits for an answer: Kafka may look for what it waits for just before it has begun to wait, and
# looks again only when the time is over.
TIMEOUT_MS = 6_000


def reassign(moves: Mapping[str, Mapping[int, Sequence[int] | None]], timeout_ms: int = TIMEOUT_MS) -> m.Message:
    """{topic: {partition: brokers, or None to cancel}}"""
    Request = m.AlterPartitionReassignmentsRequest
    rows = [
        Request.ReassignableTopic(
            name=name,
            partitions=[
                Request.ReassignablePartition(partition_index=index, replicas=None if to is None else list(to))
                for index, to in partitions.items()
            ],
        )
        for name, partitions in moves.items()
    ]
    return Request(timeout_ms=timeout_ms, topics=rows)


def reassignments(topics: Mapping[str, Sequence[int]] | None) -> m.ListPartitionReassignmentsRequest:
    Request = m.ListPartitionReassignmentsRequest
    rows = None
    if topics is not None:
        rows = [
            Request.ListPartitionReassignmentsTopics(name=name, partition_indexes=list(indexes))
            for name, indexes in topics.items()
        ]
    return Request(timeout_ms=TIMEOUT_MS, topics=rows)


def elect(
    topics: Mapping[str, Sequence[int]] | None, *, unclean: bool = False, timeout_ms: int = TIMEOUT_MS
) -> m.ElectLeadersRequest:
    Request = m.ElectLeadersRequest
    rows = None
    if topics is not None:
        rows = [Request.TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in topics.items()]
    return Request(election_type=int(unclean), topic_partitions=rows, timeout_ms=timeout_ms)


def end_of_epoch(
    topic: str, epoch: int = 0, leader_epoch: int = -1, replica: int = -1
) -> m.OffsetForLeaderEpochRequest:
    Request = m.OffsetForLeaderEpochRequest
    partition = Request.OffsetForLeaderPartition(partition=0, current_leader_epoch=leader_epoch, leader_epoch=epoch)
    return Request(replica_id=replica, topics=[Request.OffsetForLeaderTopic(topic=topic, partitions=[partition])])


def delete_records(topic: str, offset: int, timeout_ms: int = TIMEOUT_MS) -> m.DeleteRecordsRequest:
    Request = m.DeleteRecordsRequest
    partition = Request.DeleteRecordsPartition(partition_index=0, offset=offset)
    return Request(topics=[Request.DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=timeout_ms)


def create(*topics: m.CreateTopicsRequest.CreatableTopic, timeout_ms: int = TIMEOUT_MS) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms)


def delete(*names: str, timeout_ms: int = TIMEOUT_MS) -> m.DeleteTopicsRequest:
    State = m.DeleteTopicsRequest.DeleteTopicState
    states = [State(name=name, topic_id=bytes(16)) for name in names]
    return m.DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=timeout_ms)


def more_partitions(
    name: str, count: int, assigned: Iterable[Sequence[int]] | None = None, timeout_ms: int = TIMEOUT_MS
) -> m.CreatePartitionsRequest:
    Request = m.CreatePartitionsRequest
    rows = None
    if assigned is not None:
        rows = [Request.CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assigned]
    topic = Request.CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return Request(topics=[topic], timeout_ms=timeout_ms)


def describe_producers(topic: str, *partitions: int) -> m.DescribeProducersRequest:
    Topic = m.DescribeProducersRequest.TopicRequest
    return m.DescribeProducersRequest(topics=[Topic(name=topic, partition_indexes=list(partitions))])


def log_dirs(topics: Mapping[str, Sequence[int]] | None) -> m.DescribeLogDirsRequest:
    Topic = m.DescribeLogDirsRequest.DescribableLogDirTopic
    rows = None if topics is None else [Topic(topic=name, partitions=list(of)) for name, of in topics.items()]
    return m.DescribeLogDirsRequest(topics=rows)


def place(path: object, topics: Mapping[str, Sequence[int]]) -> m.AlterReplicaLogDirsRequest:
    Request = m.AlterReplicaLogDirsRequest
    rows = [Request.AlterReplicaLogDirTopic(name=name, partitions=list(of)) for name, of in topics.items()]
    return Request(dirs=[Request.AlterReplicaLogDir(path=str(path), topics=rows)])


def role(  # the state's own fields, by keyword
    topic: str,
    topic_id: bytes,
    replicas: Sequence[int],
    *,
    leader_epoch: int,
    partition_epoch: int = 0,
    is_new: bool = False,
) -> m.LeaderAndIsrRequest:
    """The first of the replicas leads, all are in sync; the caller must set the controller's epoch."""
    Request = m.LeaderAndIsrRequest
    state = Request.LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=replicas[0],
        leader_epoch=leader_epoch,
        isr=list(replicas),
        partition_epoch=partition_epoch,
        replicas=list(replicas),
        is_new=is_new,
    )
    named = Request.LeaderAndIsrTopicState(topic_name=topic, topic_id=topic_id, partition_states=[state])
    return Request(controller_id=-1, controller_epoch=-1, broker_epoch=-1, topic_states=[named])


def stop_replica(topic: str) -> m.StopReplicaRequest:
    """Stop it and delete its log, as at the deletion of its topic."""
    Request = m.StopReplicaRequest
    state = Request.StopReplicaPartitionState(partition_index=0, leader_epoch=-2, delete_partition=True)
    named = Request.StopReplicaTopicState(topic_name=topic, partition_states=[state])
    return Request(controller_id=-1, controller_epoch=-1, broker_epoch=-1, topic_states=[named])


def alter_partition(  # noqa: PLR0913  # the request's own fields
    topic: str,
    topic_id: bytes,
    broker: int,
    broker_epoch: int,
    isr: Mapping[int, int],
    *,
    partition: int = 0,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    recovering: bool = False,
) -> m.AlterPartitionRequest:
    """The in-sync replicas {broker: its epoch} that this broker wants."""
    Request = m.AlterPartitionRequest
    row = Request.PartitionData(
        partition_index=partition,
        leader_epoch=leader_epoch,
        new_isr=list(isr),
        new_isr_with_epochs=[Request.BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in isr.items()],
        leader_recovery_state=int(recovering),
        partition_epoch=partition_epoch,
    )
    changed = Request.TopicData(topic_name=topic, topic_id=topic_id, partitions=[row])
    return Request(broker_id=broker, broker_epoch=broker_epoch, topics=[changed])


def filled(side, of, replicas, **configs):
    """A topic of one partition on these brokers, with three records; its name."""
    topic = side.create_placed(of, [replicas], **configs)
    with side.at(replicas[0]) as leader:
        for number in range(3):
            leader.ask(produce_one(topic, batch(b"%d" % number, at=PAST_MS + number)), 9)
    return topic
