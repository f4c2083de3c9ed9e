"""TxnOffsetCommit: offsets of a group that are committed with a transaction.

Behaviour: the offsets are stored as a transactional batch in the group's partition of `__consumer_offsets`, and take
    effect when the transaction is committed. As in Produce, a batch that begins a transaction there is verified first.
    Errors of the coordinators that clients could not act on become those that make them look up the group coordinator,
    or retry.
Versions: 0-4. 2+ leader epochs; 3+ member id, instance id and generation, so that a member that has lost its partitions
    cannot commit (KIP-447); 4+ know TRANSACTION_ABORTABLE.
"""

from barnabas.broker.call import Broker, Call
from barnabas.broker.cluster.topics import GROUP_TOPIC
from barnabas.broker.groups.decisions import IN_TRANSACTION_NOT_STORED
from barnabas.broker.groups.events import CommitAnswer, CommitOffsetsInTransaction, Transaction, Waiting
from barnabas.broker.groups.records import Commit
from barnabas.broker.pacing import paced
from barnabas.broker.transactions.state import Producer
from barnabas.broker.transactions.verification import code_for
from barnabas.storage.verification import Guard
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.topics import TopicPartition

ABORTABLE_VERSION = 4
LOADING_VERSION = 2  # before, clients do not know COORDINATOR_LOAD_IN_PROGRESS
COMMIT_COST = 2  # in rows of `pacing.ROWS_AT_A_TIME`: the time to read a commit

CommitRow = m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
CommitTopic = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
AskedPartition = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition


async def txn_offset_commit(broker: Broker, call: Call, request: m.TxnOffsetCommitRequest) -> m.TxnOffsetCommitResponse:
    """Store the offsets; one error code per partition.

    Raises Refuse: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED.
    """
    if not call.authorize("Write", "TransactionalId", request.transactional_id):
        raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    now_ms = broker.world.now_ms()
    # Keys keep the order of the request. Of a partition that is named twice the last commit counts.
    errors: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, Commit] = {}
    async for topic in paced(request.topics):
        may_read = call.authorize("Read", "Topic", topic.name)
        async for row in paced(topic.partitions, COMMIT_COST):
            key = TopicPartition(topic.name, row.partition_index)
            errors[key] = ErrorCode.NONE
            if not may_read:
                errors[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif broker.metadata.partition(*key) is None:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commits[key] = _commit(row, now_ms)
    if commits:
        answer = await _stored(broker, call, request, commits)
        error = answer.error
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_VERSION:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        async for key in paced(commits):
            errors[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE if key in answer.too_large else error
    topics: dict[str, list[CommitRow]] = {}
    async for (name, index), code in paced(errors.items()):
        topics.setdefault(name, []).append(CommitRow(partition_index=index, error_code=code))
    return m.TxnOffsetCommitResponse(
        topics=[CommitTopic(name=name, partitions=rows) async for name, rows in paced(topics.items())]
    )


async def _stored(
    broker: Broker, call: Call, request: m.TxnOffsetCommitRequest, commits: dict[TopicPartition, Commit]
) -> CommitAnswer:
    producer = Producer(request.producer_id, request.producer_epoch)
    offsets = TopicPartition(GROUP_TOPIC, broker.groups.placement.partition_of(request.group_id))
    if request.group_id == "":
        return CommitAnswer(ErrorCode.INVALID_GROUP_ID)
    guard = await _verify(broker, call, request.transactional_id, producer, offsets)
    if isinstance(guard, ErrorCode):
        return CommitAnswer(guard)
    is_verifying = broker.config.transaction_partition_verification_enable
    event = CommitOffsetsInTransaction(
        waiting=Waiting(),
        transaction=Transaction(*producer, guard, is_verifying=is_verifying),
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        offsets=commits,
    )
    return await broker.groups.commit_in_transaction(request.group_id, event)


async def _verify(
    broker: Broker, call: Call, transactional_id: str, producer: Producer, offsets: TopicPartition
) -> Guard | ErrorCode | None:
    """The guard to append the batch with, None where none is needed, or the error."""
    if not broker.config.transaction_partition_verification_enable:
        return None
    partition = broker.replicas.get(*offsets)
    if isinstance(partition, ErrorCode):
        return IN_TRANSACTION_NOT_STORED.get(partition, partition)
    guard = partition.begin_verification(*producer, -1)
    if isinstance(guard, ErrorCode):
        return IN_TRANSACTION_NOT_STORED.get(guard, guard)
    if guard is None:
        return None
    error = (await broker.verification.verify(transactional_id, producer, [offsets]))[offsets]
    if not error:
        return guard
    code = code_for(error, knows_abortable=call.version >= ABORTABLE_VERSION)
    return IN_TRANSACTION_NOT_STORED.get(code, code)


def _commit(row: AskedPartition, now_ms: int) -> Commit:
    return Commit(row.committed_offset, row.committed_leader_epoch, row.committed_metadata or "", now_ms)


def refuse_txn_offset_commit(
    request: m.TxnOffsetCommitRequest, version: int, code: ErrorCode
) -> m.TxnOffsetCommitResponse:
    """The same error for every partition. A partition that is named twice is answered once."""
    named: dict[str, dict[int, CommitRow]] = {topic.name: {} for topic in request.topics}
    for topic in request.topics:
        for row in topic.partitions:
            named[topic.name][row.partition_index] = CommitRow(partition_index=row.partition_index, error_code=code)
    return m.TxnOffsetCommitResponse(
        topics=[CommitTopic(name=name, partitions=list(rows.values())) for name, rows in named.items()]
    )
