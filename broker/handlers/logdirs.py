"""DescribeLogDirs: what lies in which log directory. AlterReplicaLogDirs: where a partition shall lie.

Behaviour of DescribeLogDirs: every log directory, with the logs of the asked partitions that are in it (null: of all),
    their sizes, and how far the log end is behind the high watermark (0, or -1 for a log that no partition uses). A
    directory that is offline is KAFKA_STORAGE_ERROR and nothing else. Logs that are being deleted are left out.
    A future log is marked as one, with how far it is behind the log that it is copied from.
Behaviour of AlterReplicaLogDirs: a partition moves to the directory while it is served, and the answer does not wait
    for it. To ask for another one ends the move, to ask for the one where it is cancels it. While any directory is
    offline nothing begins to move: KAFKA_STORAGE_ERROR. The wish for a partition that does not exist here is kept until
    it is created, and answered with the error that says so (UNKNOWN_TOPIC_OR_PARTITION, REPLICA_NOT_AVAILABLE), as in
    Kafka. A directory must be named by its absolute path, exactly: LOG_DIR_NOT_FOUND. A partition named twice counts
    once, the last time. A topic name too long for the directory of a move is INVALID_TOPIC_EXCEPTION.
Versions: DescribeLogDirs 0-4: 3+ an error for the whole answer; 4 the size of the volume and what is free of it.
    AlterReplicaLogDirs 0-2 are all alike.
Not done: nothing that is known.
"""

from collections.abc import Container

from barnabas.broker.call import Broker, Call
from barnabas.broker.logs.directory import DIRECTORY_NAME_BYTES_MAX, LogDirectory
from barnabas.broker.pacing import paced
from barnabas.storage.disk import StorageError
from barnabas.storage.log import PartitionLog
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition

FUTURE_SUFFIX_LENGTH = len(f".{'0' * 32}-future")  # of the directory that a log is moved to
NO_LAG = -1
KEPT_CODES = {ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.REPLICA_NOT_AVAILABLE}  # as before there was the other
PARTITION_COST = 3  # rows that take as long as to look at one

DirectoryRow = m.DescribeLogDirsResponse.DescribeLogDirsResult
LogRow = m.DescribeLogDirsResponse.DescribeLogDirsPartition
TopicRow = m.DescribeLogDirsResponse.DescribeLogDirsTopic
AlteredTopic = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
AlteredRow = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


# -- DescribeLogDirs


async def describe_log_dirs(broker: Broker, call: Call, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
    """Every log directory, and the asked logs in it."""
    if not call.authorize("Describe", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index)
            async for topic in paced(request.topics)
            async for index in paced(topic.partitions)
        }
    directories = broker.replicas.logs.directories
    return m.DescribeLogDirsResponse(results=[await _describe(broker, each, wanted) for each in directories])


async def _describe(broker: Broker, directory: LogDirectory, wanted: Container[TopicPartition] | None) -> DirectoryRow:
    row = DirectoryRow(log_dir=directory.absolute_path)
    try:
        if directory.failure is not None:
            raise directory.failure
        row.total_bytes, row.usable_bytes = await broker.replicas.logs.volume_bytes(directory)
    except StorageError:
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return row
    topics: dict[str, list[LogRow]] = {}
    async for key, log in paced([*directory.logs.items(), *directory.future_logs.items()], PARTITION_COST):
        if wanted is None or key in wanted:
            is_future = key in directory.future_logs
            topics.setdefault(key.topic, []).append(_describe_log(broker, key, log, is_future=is_future))
    row.topics = [TopicRow(name=name, partitions=partitions) async for name, partitions in paced(topics.items())]
    return row


def _describe_log(broker: Broker, key: TopicPartition, log: PartitionLog, *, is_future: bool) -> LogRow:
    partition = broker.replicas.get(*key)
    lag = NO_LAG
    if not isinstance(partition, ErrorCode):
        current = partition.log or log
        lag = current.log_end_offset if is_future else max(partition.high_watermark, log.log_end_offset)
        lag -= log.log_end_offset
    return LogRow(partition_index=key.partition, partition_size=log.size_bytes, offset_lag=lag, is_future_key=is_future)


# -- AlterReplicaLogDirs


async def alter_replica_log_dirs(
    broker: Broker, call: Call, request: m.AlterReplicaLogDirsRequest
) -> m.AlterReplicaLogDirsResponse:
    """Keep each wish that can be kept."""
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    places = {
        TopicPartition(topic.name, index): directory.path
        async for directory in paced(request.dirs)
        async for topic in paced(directory.topics)
        async for index in paced(topic.partitions)
    }
    topics: dict[str, list[AlteredRow]] = {}
    async for key, path in paced(places.items(), PARTITION_COST):
        _note(topics, key, await _place(broker, key, path))
    return m.AlterReplicaLogDirsResponse(
        results=[AlteredTopic(topic_name=name, partitions=rows) async for name, rows in paced(topics.items())]
    )


def refuse_alter_replica_log_dirs(
    request: m.AlterReplicaLogDirsRequest, version: int, code: ErrorCode
) -> m.AlterReplicaLogDirsResponse:
    """The same error for every partition."""
    topics: dict[str, list[AlteredRow]] = {}
    named = {
        TopicPartition(topic.name, index): None
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    for key in named:
        _note(topics, key, code)
    return m.AlterReplicaLogDirsResponse(
        results=[AlteredTopic(topic_name=name, partitions=rows) for name, rows in topics.items()]
    )


async def _place(broker: Broker, key: TopicPartition, path: str) -> ErrorCode:
    if len(str(key)) + FUTURE_SUFFIX_LENGTH > DIRECTORY_NAME_BYTES_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    directory = broker.replicas.logs.placement.find(path)
    if isinstance(directory, ErrorCode):
        return directory
    return await broker.replicas.place(key, directory)


def _note(topics: dict[str, list[AlteredRow]], key: TopicPartition, code: ErrorCode) -> None:
    row = AlteredRow(partition_index=key.partition, error_code=KEPT_CODES.get(code, code))
    topics.setdefault(key.topic, []).append(row)
