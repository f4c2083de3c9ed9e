"""DescribeLogDirs and AlterReplicaLogDirs: this broker's log directories, and moves of logs between them (KIP-113).

DescribeLogDirs answers every log directory, with its logs of the requested partitions (null: of all), their sizes and
    their offset lag. An offline directory has KAFKA_STORAGE_ERROR and nothing else. Logs that are being deleted are
    left out. The future log, the target of a move, has its own row.
AlterReplicaLogDirs starts moves. The partition stays available, and the response does not wait for the move. A second
    request replaces the move if it names another directory, and cancels it if it names the current one. While any
    directory is offline no move starts (KAFKA_STORAGE_ERROR). For a partition that this broker does not host, the
    directory is remembered until the partition is created, and the row has UNKNOWN_TOPIC_OR_PARTITION or
    REPLICA_NOT_AVAILABLE, as in Kafka. A directory must be named by its exact absolute path (LOG_DIR_NOT_FOUND). Of a
    partition that is named twice the last entry counts.
Versions: DescribeLogDirs 0-4: 3+ a top-level error; 4 total and usable bytes of the volume (KIP-827).
    AlterReplicaLogDirs 0-2 are all alike.
Not done: nothing that is known.
"""

from collections.abc import Container

from barnabas.broker.call import Broker, Call
from barnabas.replication.logs.directory import DIRECTORY_NAME_BYTES_MAX, LogDirectory
from barnabas.storage.disk import StorageError
from barnabas.storage.log import PartitionLog
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition
from barnabas.world.pacing import paced

FUTURE_SUFFIX_LENGTH = len(f".{'0' * 32}-future")  # characters that the name of a future log's directory adds
NO_LAG = -1
# Kafka retains REPLICA_NOT_AVAILABLE in AlterReplicaLogDirs for compatibility; NOT_LEADER_OR_FOLLOWER is its successor.
KEPT_CODES = {ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.REPLICA_NOT_AVAILABLE}

DirectoryRow = m.DescribeLogDirsResponse.DescribeLogDirsResult
LogRow = m.DescribeLogDirsResponse.DescribeLogDirsPartition
TopicRow = m.DescribeLogDirsResponse.DescribeLogDirsTopic
AlteredTopic = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
AlteredRow = m.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult


# -- DescribeLogDirs


async def describe_log_dirs(broker: Broker, call: Call, request: m.DescribeLogDirsRequest) -> m.DescribeLogDirsResponse:
    """Every log directory with its requested logs. Raises Refuse(CLUSTER_AUTHORIZATION_FAILED)."""
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

    # Reading the volume's size may be the first access that finds the directory broken, so both cases end alike.
    try:
        if directory.failure is not None:
            raise directory.failure
        row.total_bytes, row.usable_bytes = await broker.replicas.logs.volume_bytes(directory)
    except StorageError:
        row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return row

    topics: dict[str, list[LogRow]] = {}

    # The table is a copy: logs may be created and deleted at the checkpoints of this loop.
    async for key, log in paced([*directory.logs.items(), *directory.future_logs.items()]):
        if wanted is None or key in wanted:
            is_future = key in directory.future_logs
            topics.setdefault(key.topic, []).append(_describe_log(broker, key, log, is_future=is_future))

    row.topics = [TopicRow(name=name, partitions=partitions) async for name, partitions in paced(topics.items())]
    return row


def _describe_log(broker: Broker, key: TopicPartition, log: PartitionLog, *, is_future: bool) -> LogRow:
    partition = broker.replicas.get(*key)
    lag = NO_LAG
    # A log without a hosted partition is a stray one. A future log lags behind the log that it is copied from. The
    # current log can only lag behind a high watermark beyond its own log end offset; normally its lag is 0.
    if not isinstance(partition, ErrorCode):
        current = partition.log or log
        lag = current.log_end_offset if is_future else max(partition.high_watermark, log.log_end_offset)
        lag -= log.log_end_offset
    return LogRow(partition_index=key.partition, partition_size=log.size_bytes, offset_lag=lag, is_future_key=is_future)


# -- AlterReplicaLogDirs


async def alter_replica_log_dirs(
    broker: Broker, call: Call, request: m.AlterReplicaLogDirsRequest
) -> m.AlterReplicaLogDirsResponse:
    """Start, replace or cancel moves; one error per partition. Raises Refuse(CLUSTER_AUTHORIZATION_FAILED)."""
    if not call.authorize("Alter", "Cluster"):
        raise Refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # This is a dict, so that of a repeated partition the last directory remains.
    places = {
        TopicPartition(topic.name, index): directory.path
        async for directory in paced(request.dirs)
        async for topic in paced(directory.topics)
        async for index in paced(topic.partitions)
    }
    topics: dict[str, list[AlteredRow]] = {}
    async for key, path in paced(places.items()):
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
    # A valid topic name may have 249 characters; with the suffix the directory name exceeds the file system's limit.
    if len(str(key)) + FUTURE_SUFFIX_LENGTH > DIRECTORY_NAME_BYTES_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    # Only the target is checked here. `place` checks the partition's own directory and starts the move.
    directory = broker.replicas.logs.placement.find(path)
    if isinstance(directory, ErrorCode):
        return directory
    return await broker.replicas.place(key, directory)


def _note(topics: dict[str, list[AlteredRow]], key: TopicPartition, code: ErrorCode) -> None:
    row = AlteredRow(partition_index=key.partition, error_code=KEPT_CODES.get(code, code))
    topics.setdefault(key.topic, []).append(row)
