"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: requests about the offsets of a partition.

ListOffsets answers the offset for a timestamp, or for one of these special timestamps:
    -1 latest           the high watermark; with read_committed the last stable offset; for a replica the log end offset
    -2 earliest         the log start offset
    -3 max timestamp    the record with the largest timestamp
    -4 earliest local   as -2: there is no tiered storage
    -5 latest tiered    offset -1: there is no tiered storage
    A real timestamp finds the first record that is not older; where there is none the row has offset and timestamp -1
    without an error. Any other negative timestamp, or one newer than the request's version, is UNSUPPORTED_VERSION. A
    partition named twice is INVALID_REQUEST. A search by time reads the log in slices in threads
    (`replication/logs/gate.py`). A consumer with read_committed may take the end for all that was committed: Kafka
    Streams restores its state up to there. A leader of the past knows an earlier end. So this broker first makes sure
    that it has no successor (`replication/confirmation.py`): else NOT_LEADER_OR_FOLLOWER. Where a log begins may be an
    old answer.
OffsetForLeaderEpoch answers the largest leader epoch up to the requested one, and its end offset (reference C.3); -1
    and -1, without an error, outside the known epochs. A consumer then takes its offset for lost and begins elsewhere,
    so this broker first makes sure that it is no leader of the past, which has not heard of the requested epoch: else
    NOT_LEADER_OR_FOLLOWER.
DeleteRecords raises the log start offset; -1 means up to the high watermark. Retention deletes the segments later. The
    response has the low watermark. It waits until every live replica has the new log start offset, or `timeout_ms`
    passes (REQUEST_TIMED_OUT). A topic with cleanup.policy=compact alone is POLICY_VIOLATION, an internal topic
    INVALID_TOPIC_EXCEPTION. Of a partition named twice the last offset counts; the response has one entry per topic,
    and none for a topic without partitions.
Versions: ListOffsets 0 answers a list of segment base offsets; 2+ isolation level; 4+ leader epochs; 7+ -3; 8+ -4; 9+
    -5. OffsetForLeaderEpoch 0-4 (2+ the caller's leader epoch). DeleteRecords 0-2 are all alike.
"""

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import counted
from barnabas.replication.confirmation import CONFIRMED_SECONDS, confirm_all
from barnabas.replication.logs.directory import LogDirectory
from barnabas.replication.partition import Deletion, Partition
from barnabas.storage.disk import StorageError
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment import RecordTime, TakesLonger
from barnabas.storage.segments import SEGMENTS_AT_A_TIME
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Steps
from barnabas.wire.sentinels import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, READ_COMMITTED
from barnabas.wire.topics import INTERNAL_TOPICS, TopicPartition
from barnabas.world.freeing import emptied
from barnabas.world.pacing import complete_inline, paced
from barnabas.world.waiting import await_decisions

MAX_TIMESTAMP = -3
SINCE_VERSION = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
STARTS = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED)  # they say nothing of the end of a log
CONSUMER_REPLICA_ID = -1
CONSUMERS_VERSION = 2  # of OffsetForLeaderEpoch
DEBUGGING_REPLICA_ID = -2  # Kafka's replica verification tool: followers answer it, too
ONE_OFFSET_VERSION = 1
LEADER_EPOCH_VERSION = 4
OFFSET_NOT_AVAILABLE_VERSION = 5

Row = m.ListOffsetsResponse.ListOffsetsPartitionResponse
Asked = m.ListOffsetsRequest.ListOffsetsPartition
DeletionTopic = m.DeleteRecordsResponse.DeleteRecordsTopicResult
DeletionRow = m.DeleteRecordsResponse.DeleteRecordsPartitionResult
EpochRow = m.OffsetForLeaderEpochResponse.EpochEndOffset
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


NOTHING = RecordTime(-1, -1, -1)  # no such record: Kafka answers this without an error


# -- ListOffsets


async def list_offsets(broker: Broker, call: Call, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
    """One offset (in version 0 a list) or an error for each requested partition."""
    named = await counted((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)
    topics = []
    to_find: list[tuple[str, Asked, Row]] = []
    async for topic in paced(request.topics):
        may_describe = call.authorize("Describe", "Topic", topic.name)
        rows = []
        async for asked in paced(topic.partitions):
            row = Row(partition_index=asked.partition_index)
            rows.append(row)
            if not may_describe:
                row.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            # Kafka checks for duplicates in the handler of versions 1+ only; version 0 answers each entry.
            elif named[topic.name, asked.partition_index] > 1 and call.version >= ONE_OFFSET_VERSION:
                row.error_code = ErrorCode.INVALID_REQUEST
            # An unknown negative timestamp counts as one of a later version.
            elif asked.timestamp < 0 and SINCE_VERSION.get(asked.timestamp, call.version + 1) > call.version:
                row.error_code = ErrorCode.UNSUPPORTED_VERSION
            else:
                to_find.append((topic.name, asked, row))
        topics.append(m.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=rows))

    confirmed = await _confirmed(broker, request, to_find)
    async for name, asked, row in paced(to_find):
        await _fill(broker, call, request, confirmed, name, asked, row)
    await emptied(named)
    await emptied(to_find)
    return m.ListOffsetsResponse(topics=topics)


def refuse_list_offsets(request: m.ListOffsetsRequest, version: int, code: ErrorCode) -> m.ListOffsetsResponse:
    """The same error for every partition."""
    return m.ListOffsetsResponse(
        topics=[
            m.ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[Row(partition_index=asked.partition_index, error_code=code) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _needs_confirmation(request: m.ListOffsetsRequest, asked: Asked) -> bool:
    is_committed = request.replica_id == CONSUMER_REPLICA_ID and request.isolation_level == READ_COMMITTED
    return is_committed and asked.timestamp not in STARTS


async def _confirmed(
    broker: Broker, request: m.ListOffsetsRequest, to_find: list[tuple[str, Asked, Row]]
) -> dict[Partition, ErrorCode]:
    """Of the partitions that need it: whether this broker is certain to be the leader."""
    partitions: list[Partition] = []
    async for topic, asked, _ in paced(to_find):
        if not _needs_confirmation(request, asked):
            continue
        partition = broker.replicas.get(topic, asked.partition_index)
        if not isinstance(partition, ErrorCode) and partition.is_leader:
            partitions.append(partition)
    return await confirm_all(partitions, trio.current_time() + CONFIRMED_SECONDS) if partitions else {}


async def _fill(
    broker: Broker,
    call: Call,
    request: m.ListOffsetsRequest,
    confirmed: dict[Partition, ErrorCode],
    topic: str,
    asked: Asked,
    row: Row,
) -> None:
    partition = broker.replicas.get(topic, asked.partition_index)
    if isinstance(partition, ErrorCode):
        row.error_code = partition
        return
    if request.replica_id == DEBUGGING_REPLICA_ID:
        log = partition.local_log(asked.current_leader_epoch)
    else:
        log = partition.leader_log(asked.current_leader_epoch)

    if isinstance(log, ErrorCode):
        row.error_code = log
        return
    may_be_outdated = _needs_confirmation(request, asked) and confirmed.get(partition, NOT_LEADER)

    # What the log holds is uncertain until the truncation ends; Fetch answers the same error.
    if may_be_outdated or log.is_being_cut:
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return
    end_offset = _end_offset(partition, log, request)
    if call.version < ONE_OFFSET_VERSION:
        offsets = await _find_several(broker, partition, log, asked, end_offset)
        if isinstance(offsets, ErrorCode):
            row.error_code = offsets
        else:
            row.old_style_offsets = offsets
        return

    # This is computed before the search, together with `end_offset`: both describe the moment at
    # which the request came.
    uncertain = _uncertain(partition, request, call.version)
    found = await _find(broker, partition, log, asked.timestamp, end_offset, uncertain)
    if isinstance(found, ErrorCode):
        row.error_code = found
        return
    row.timestamp = found.timestamp
    row.offset = found.offset
    if call.version >= LEADER_EPOCH_VERSION:
        row.leader_epoch = found.leader_epoch


def _end_offset(partition: Partition, log: PartitionLog, request: m.ListOffsetsRequest) -> int:
    if request.replica_id != CONSUMER_REPLICA_ID:
        return log.log_end_offset
    # A consumer must not get an offset that its own isolation level does not let it fetch up to.
    return partition.last_stable_offset if request.isolation_level == READ_COMMITTED else partition.high_watermark


def _uncertain(partition: Partition, request: m.ListOffsetsRequest, version: int) -> ErrorCode:
    """The error for a consumer while the high watermark may be lower than the previous leader's; otherwise NONE."""
    # KIP-207: a follower learns the high watermark with a delay. Until a new leader has committed up to its log end
    # offset at election, consumers would see offsets go backwards.
    if request.replica_id != CONSUMER_REPLICA_ID or partition.high_watermark >= partition.epoch_start_offset:
        return ErrorCode.NONE
    known = version >= OFFSET_NOT_AVAILABLE_VERSION
    return ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE


async def _find_several(
    broker: Broker, partition: Partition, log: PartitionLog, asked: Asked, end_offset: int
) -> list[int] | ErrorCode:
    """The answer of version 0. Errors: NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR."""
    # Only a real timestamp needs the disk. The checkpoint bounds the time on the event loop: each call visits all
    # segments, and version 0 may name one partition any number of times.
    if asked.timestamp in (LATEST, EARLIEST):
        await trio.lowlevel.checkpoint()
        return complete_inline(_offsets_before(broker, log, asked, end_offset))
    # Retention or compaction may change the segment files meanwhile; the search then starts over.
    steps = log.segments.undisturbed(lambda: _offsets_before(broker, log, asked, end_offset))
    return await broker.replicas.logs.gate.search(partition, log, steps)


def _offsets_before(broker: Broker, log: PartitionLog, asked: Asked, end_offset: int) -> Steps[list[int]]:
    """Version 0: segment base offsets and the end offset, descending, at most `max_num_offsets`.

    A timestamp leaves out the segments whose file was modified after it: version 0 is older than record timestamps.
    """
    segments = list(log.segments)
    # DeleteRecords may have raised the log start offset into the first segment.
    starts = [max(segment.base_offset, log.log_start_offset) for segment in segments]
    offsets = [*starts, end_offset] if end_offset > starts[-1] else starts
    if asked.timestamp == EARLIEST:
        offsets = offsets[:1]
    elif asked.timestamp != LATEST:
        written = []
        for number, segment in enumerate(segments, 1):
            written.append(broker.world.disk.modified_ms(segment.path))
            if number % SEGMENTS_AT_A_TIME == 0:
                yield None
        # The end offset gets the present time. `zip` drops it if an empty active segment left no such offset.
        written.append(broker.world.now_ms())
        offsets = [offset for offset, time_ms in zip(offsets, written, strict=False) if time_ms <= asked.timestamp]

    return [offset for offset in reversed(offsets) if offset <= end_offset][: max(0, asked.max_num_offsets)]


async def _find(
    broker: Broker, partition: Partition, log: PartitionLog, timestamp: int, end_offset: int, uncertain: ErrorCode
) -> RecordTime | ErrorCode:
    if timestamp == LATEST:
        return uncertain or RecordTime(-1, end_offset, partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        epoch = log.epochs.epoch_for(log.log_start_offset)
        return RecordTime(-1, log.log_start_offset, -1 if epoch is None else epoch)
    if timestamp == LATEST_TIERED:
        return NOTHING

    # The searches below go up to the log end offset, as in Kafka; the result is compared with
    # `end_offset` then.
    gate = broker.replicas.logs.gate
    if timestamp == MAX_TIMESTAMP:
        found = await gate.search(partition, log, log.offset_of_largest_timestamp())
    else:
        # Usually the indexes and one batch are enough, and the hop to a thread would cost more than all of it.
        try:
            found = gate.search_now(partition, log, lambda: log.offset_for_timestamp_now(timestamp, log.log_end_offset))
        except TakesLonger:
            found = await gate.search(partition, log, log.offset_for_timestamp(timestamp, log.log_end_offset))
    if found is None:
        return NOTHING
    if isinstance(found, ErrorCode):
        return found

    # A record at or above the end offset is not visible to this client. While the high watermark is uncertain it may
    # have been visible under the previous leader, so the client must retry.
    return found if found.offset < end_offset else uncertain or NOTHING


# -- OffsetForLeaderEpoch


async def offset_for_leader_epoch(
    broker: Broker, call: Call, request: m.OffsetForLeaderEpochRequest
) -> m.OffsetForLeaderEpochResponse:
    """The end offset of each requested leader epoch, or an error."""
    # Followers name themselves from version 3 on, and never send version 2. A confirmation waits for their fetches, so
    # they are answered without one.
    is_consumer = call.version == CONSUMERS_VERSION or request.replica_id == CONSUMER_REPLICA_ID
    confirmed_by = trio.current_time() + CONFIRMED_SECONDS if is_consumer else None
    topics = []
    async for topic in paced(request.topics):
        # Followers send this request before they truncate, consumers to detect truncation (KIP-320).
        may_ask = call.authorize("ClusterAction", "Cluster", is_filter=True) or call.authorize(
            "Describe", "Topic", topic.topic
        )
        rows = []
        async for asked in paced(topic.partitions):
            refused = EpochRow(partition=asked.partition, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            rows.append(await _epoch_end(broker, topic.topic, asked, confirmed_by) if may_ask else refused)
        topics.append(m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return m.OffsetForLeaderEpochResponse(topics=topics)


def refuse_offset_for_leader_epoch(
    request: m.OffsetForLeaderEpochRequest, version: int, code: ErrorCode
) -> m.OffsetForLeaderEpochResponse:
    """The same error for every partition."""
    return m.OffsetForLeaderEpochResponse(
        topics=[
            m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochRow(partition=asked.partition, error_code=code) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


async def _epoch_end(
    broker: Broker,
    topic: str,
    asked: m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition,
    confirmed_by: float | None,
) -> EpochRow:
    row = EpochRow(partition=asked.partition)
    partition = broker.replicas.get(topic, asked.partition)
    if isinstance(partition, ErrorCode):
        row.error_code = partition
        return row
    log = partition.leader_log(asked.current_leader_epoch)
    if isinstance(log, ErrorCode):
        row.error_code = log
        return row
    is_unheard_of = asked.leader_epoch > partition.leader_epoch
    if is_unheard_of and confirmed_by is not None and await partition.confirm(confirmed_by):
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return row
    row.leader_epoch, row.end_offset = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
    return row


# -- DeleteRecords


async def delete_records(broker: Broker, call: Call, request: m.DeleteRecordsRequest) -> m.DeleteRecordsResponse:
    """Raise the log start offset of each partition, and wait until its live replicas have it (KIP-107)."""
    deadline = trio.current_time() + request.timeout_ms / 1000
    offsets = {
        TopicPartition(topic.name, asked.partition_index): asked.offset
        async for topic in paced(request.topics)
        async for asked in paced(topic.partitions)
    }
    topics: dict[str, DeletionTopic] = {}
    waiting: list[tuple[Partition, int, DeletionRow]] = []
    async for key, offset in paced(offsets.items()):
        row = _deletion_row(topics, key)
        partition = _deletable_partition(broker, call, key)
        if isinstance(partition, ErrorCode):
            row.error_code = partition
            continue
        row.error_code, log_start_offset = partition.delete_records(offset)
        if not row.error_code:
            # This value is answered if the request times out.
            row.low_watermark = partition.low_watermark(broker.metadata.brokers)
            waiting.append((partition, log_start_offset, row))

    # The deletions are durable before the wait: no response may report one that a crash of this
    # broker would undo.
    await _make_durable(broker, waiting)
    await _await_deleted(broker, waiting, deadline)
    return m.DeleteRecordsResponse(topics=list(topics.values()))


def refuse_delete_records(request: m.DeleteRecordsRequest, version: int, code: ErrorCode) -> m.DeleteRecordsResponse:
    """The same error for every partition."""
    topics: dict[str, DeletionTopic] = {}
    named = {
        TopicPartition(topic.name, asked.partition_index): None
        for topic in request.topics
        for asked in topic.partitions
    }
    for key in named:
        _deletion_row(topics, key).error_code = code
    return m.DeleteRecordsResponse(topics=list(topics.values()))


def _deletion_row(topics: dict[str, DeletionTopic], key: TopicPartition) -> DeletionRow:
    """Add a row for this partition under its topic."""
    if key.topic not in topics:
        topics[key.topic] = DeletionTopic(name=key.topic, partitions=[])
    row = DeletionRow(partition_index=key.partition, low_watermark=-1)
    topics[key.topic].partitions.append(row)  # type: ignore[attr-defined]  # made above, as a list
    return row


def _deletable_partition(broker: Broker, call: Call, key: TopicPartition) -> Partition | ErrorCode:
    if not call.authorize("Delete", "Topic", key.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if broker.metadata.partition(*key) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # An internal topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, so this follows the
    # existence check, as in Kafka.
    if key.topic in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return broker.replicas.get(*key)


async def _make_durable(broker: Broker, waiting: list[tuple[Partition, int, DeletionRow]]) -> None:
    """Write the log start checkpoint of each directory; its rows get KAFKA_STORAGE_ERROR where that fails."""
    logs = broker.replicas.logs
    # One checkpoint file holds all partitions of a directory, so it is written once per directory.
    rows: dict[LogDirectory, list[DeletionRow]] = {}
    for partition, _, row in waiting:
        if partition.log is not None:
            rows.setdefault(logs.directory_of(partition.log), []).append(row)
    for directory, lost in rows.items():
        try:
            await logs.checkpoints.write_log_starts(directory)
        except StorageError:
            for row in lost:
                row.error_code = ErrorCode.KAFKA_STORAGE_ERROR
                row.low_watermark = -1


async def _await_deleted(broker: Broker, waiting: list[tuple[Partition, int, DeletionRow]], deadline: float) -> None:
    def outcome_of(index: int) -> Deletion | None:
        partition, offset, row = waiting[index]
        if row.error_code:
            return Deletion(ErrorCode(row.error_code))
        # Dead brokers are not waited for: a replica takes over the leader's log start offset when it fetches again.
        return partition.deletion_outcome(offset, broker.metadata.brokers)

    outcomes = await await_decisions([partition for partition, _, _ in waiting], outcome_of, deadline)
    for outcome, (_, _, row) in zip(outcomes, waiting, strict=True):
        # A timed-out row keeps the low watermark from before the wait, as in Kafka.
        if outcome is None:
            row.error_code = ErrorCode.REQUEST_TIMED_OUT
        else:
            row.error_code, row.low_watermark = outcome
