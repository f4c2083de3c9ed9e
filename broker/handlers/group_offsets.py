"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of a group.

Behaviour: a commit for a partition that does not exist is refused for that partition alone; all other partitions of a
    commit succeed or fail together, except for metadata that is too long, and beyond STORED_AT_A_TIME partitions, where
    Kafka refuses what does not fit into one batch. The offsets of a TxnOffsetCommit are a transactional batch in
    `__consumer_offsets`, and take effect when the transaction is committed; as in Produce, a batch that begins a
    transaction there is verified first. Errors of the coordinators that clients could not act on become those that make
    them look up the group coordinator, or retry. A partition without a committed offset is fetched as offset -1 without
    an error. OffsetDelete works on groups without members; on consumer groups with members for topics that no member
    subscribes to.
Versions: version 0 of OffsetCommit and OffsetFetch keeps offsets in the metadata store, as clients of Kafka 0.8 did,
    and has no members; 1+ uses `__consumer_offsets`. OffsetCommit 1 has a timestamp per partition, 2-4 a retention
    time; 6+ leader epochs; 7+ static members. TxnOffsetCommit 2+ leader epochs; 3+ members and generations, so that a
    member that has lost its partitions cannot commit (KIP-447); 4+ TRANSACTION_ABORTABLE. OffsetFetch 2+ null means all
    partitions of the group, and the group's error has its own field; before, each partition has it. 7+ may require
    stable offsets (KIP-447); 8+ names several groups (KIP-709).
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from barnabas.broker.call import Broker, Call
from barnabas.broker.repeats import Repeats, Seen
from barnabas.controller.store.paths import consumer_offset
from barnabas.controller.store.store import Create, NodeExists, NoNode, StoreError, with_ancestors
from barnabas.coordinators.groups.classic.decisions import IN_TRANSACTION_NOT_STORED
from barnabas.coordinators.groups.classic.events import (
    CommitAnswer,
    CommitOffsets,
    CommitOffsetsInTransaction,
    Transaction,
    Waiting,
)
from barnabas.coordinators.groups.coordinator import Confirmations
from barnabas.coordinators.groups.offsets import ReadOffset, java_length, read_offset
from barnabas.coordinators.groups.records import NO_EXPIRY, Commit
from barnabas.coordinators.transactions.state import Producer
from barnabas.coordinators.transactions.verification import code_for
from barnabas.storage.verification import Guard
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, Refuse
from barnabas.wire.sentinels import NO_LEADER_EPOCH, NO_OFFSET, NO_TIMESTAMP
from barnabas.wire.topics import GROUP_TOPIC, TopicPartition
from barnabas.world.connection_order import given_up
from barnabas.world.freeing import emptied
from barnabas.world.pacing import ROWS_AT_A_TIME, paced, pause_after, portions
from barnabas.world.rows import Rows

logger = logging.getLogger(__name__)

STORE_VERSION = 0
GROUP_ERROR_VERSION = 2
SEVERAL_GROUPS_VERSION = 8
NO_RETENTION = -1
NO_METADATA = ""
TIMESTAMP_MAX = (1 << 63) - 1
STORED_AT_A_TIME = 2000  # offsets of a commit: they are appended and replayed in one step of the event loop
ABORTABLE_VERSION = 4
# Characters in the paths of all nodes that one commit of version 0 may make in the metadata store: an id of 32 kB fits,
# and 300 levels with names of one letter. And characters in the paths that are checked in one step.
LEVELS_CHARACTERS_MAX = 1 << 18
CHECKED_CHARACTERS = 1 << 15
LOADING_VERSION = 2  # before, clients of TxnOffsetCommit do not know COORDINATOR_LOAD_IN_PROGRESS

CommitRow = m.OffsetCommitResponse.OffsetCommitResponsePartition
CommitTopic = m.OffsetCommitResponse.OffsetCommitResponseTopic
TransactionalRow = m.TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition
TransactionalTopic = m.TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
FetchRow = m.OffsetFetchResponse.OffsetFetchResponsePartition
FetchTopic = m.OffsetFetchResponse.OffsetFetchResponseTopic
GroupRow = m.OffsetFetchResponse.OffsetFetchResponsePartitions
GroupTopic = m.OffsetFetchResponse.OffsetFetchResponseTopics
GroupResult = m.OffsetFetchResponse.OffsetFetchResponseGroup
FetchedRow = TypeVar("FetchedRow", FetchRow, GroupRow)
DeletedRow = m.OffsetDeleteResponse.OffsetDeleteResponsePartition
DeletedTopic = m.OffsetDeleteResponse.OffsetDeleteResponseTopic


class AskedPartition(Protocol):
    """A partition in a request that commits offsets."""

    partition_index: int


AskedRow = TypeVar("AskedRow", bound=AskedPartition)


class AskedTopic(Protocol[AskedRow]):
    """A topic in a request that commits offsets."""

    name: str
    partitions: Sequence[AskedRow]


# -- OffsetCommit


async def offset_commit(broker: Broker, call: Call, request: m.OffsetCommitRequest) -> m.OffsetCommitResponse:
    """Commit offsets; one error code per partition. Raises Refuse(GROUP_AUTHORIZATION_FAILED)."""
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    errors, commits = await _asked_commits(broker, call, request.topics, partial(_commit, request))

    # Version 0 has no group members and no generation: each offset is a node of its own, and may fail on its own.
    if commits and call.version == STORE_VERSION:
        async for key, commit in paced(commits.items()):
            errors[key] = await _commit_to_store(broker, request.group_id, key, commit)
    elif commits:
        # The commits are one event: membership and generation are checked once, and the offsets are
        # stored together.
        for some in portions(list(commits.items()), STORED_AT_A_TIME):
            answer = await broker.groups.commit(request.group_id, _event(request, dict(some)))
            if answer.error:
                async for key, _ in paced(some):
                    errors[key] = answer.error
            async for key in paced(answer.too_large):
                errors[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE

    known = broker.metadata.topics

    # A topic without partitions is left out, unless it does not exist.
    topics: dict[str, list[CommitRow]] = {
        topic.name: []
        async for topic in paced(request.topics)
        if topic.partitions or topic.name not in known  # as Kafka does
    }
    async for (name, index), code in paced(errors.items()):
        topics[name].append(CommitRow(partition_index=index, error_code=code))
    return m.OffsetCommitResponse(
        topics=[CommitTopic(name=name, partitions=rows) async for name, rows in paced(topics.items())]
    )


async def _asked_commits(
    broker: Broker,
    call: Call,
    topics: Sequence[AskedTopic[AskedRow]],
    commit_of: Callable[[AskedRow, int, bytes], Commit],
) -> tuple[dict[TopicPartition, ErrorCode], dict[TopicPartition, Commit]]:
    """What an OffsetCommit or TxnOffsetCommit asks for: the error of each partition, and what is to be committed.

    `commit_of` makes the commit of a row, at this time (ms), of the topic with this id. Keys keep the order of the
    request, which is the order of the response. Of a partition that is named twice the last commit counts, and it is
    answered once.
    """
    now_ms = broker.world.now_ms()
    errors: dict[TopicPartition, ErrorCode] = {}
    commits: dict[TopicPartition, Commit] = {}
    async for topic in paced(topics):
        may_read = call.authorize("Read", "Topic", topic.name)
        async for row in paced(topic.partitions):
            key = TopicPartition(topic.name, row.partition_index)
            errors[key] = ErrorCode.NONE
            if not may_read:
                errors[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            # A partition that does not exist cannot be deleted: its offset would stay until it expires.
            elif (info := broker.metadata.topics.get(topic.name)) is None or key.partition not in info.partitions:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                commits[key] = commit_of(row, now_ms, info.topic_id)

    return errors, commits


def _commit(
    request: m.OffsetCommitRequest,
    row: m.OffsetCommitRequest.OffsetCommitRequestPartition,
    now_ms: int,
    topic_id: bytes,
) -> Commit:
    keeps_for_ms = request.retention_time_ms
    return Commit(
        row.committed_offset,
        row.committed_leader_epoch,
        row.committed_metadata or NO_METADATA,
        # Version 1 may send the time of the commit; the field does not exist in other versions.
        now_ms if row.commit_timestamp == NO_TIMESTAMP else row.commit_timestamp,
        # The client chooses the retention time freely; the sum must stay an int64 for the record.
        NO_EXPIRY if keeps_for_ms == NO_RETENTION else min(now_ms + keeps_for_ms, TIMESTAMP_MAX),
        topic_id,
    )


def _event(request: m.OffsetCommitRequest, commits: dict[TopicPartition, Commit]) -> CommitOffsets:
    waiting: Waiting[CommitAnswer] = Waiting()
    return CommitOffsets(
        waiting, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch, commits
    )


def refuse_offset_commit(request: m.OffsetCommitRequest, version: int, code: ErrorCode) -> m.OffsetCommitResponse:
    """The same error for every partition. A partition that is named twice is answered once."""
    return m.OffsetCommitResponse(
        topics=[
            CommitTopic(name=name, partitions=[CommitRow(partition_index=index, error_code=code) for index in indexes])
            for name, indexes in _named_partitions(request.topics).items()
        ]
    )


def _named_partitions(topics: Sequence[AskedTopic[AskedRow]]) -> dict[str, dict[int, None]]:
    """The partitions of each topic, each once, in the order of the request."""
    named: dict[str, dict[int, None]] = {topic.name: {} for topic in topics}
    for topic in topics:
        named[topic.name].update(dict.fromkeys(row.partition_index for row in topic.partitions))
    return named


# -- TxnOffsetCommit


async def txn_offset_commit(broker: Broker, call: Call, request: m.TxnOffsetCommitRequest) -> m.TxnOffsetCommitResponse:
    """Store the offsets; one error code per partition.

    Raises Refuse: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED; ProtocolViolation for an
    overtaken request.
    """
    if not call.authorize("Write", "TransactionalId", request.transactional_id):
        raise Refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not call.authorize("Read", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    errors, commits = await _asked_commits(broker, call, request.topics, _commit_in_transaction)
    if commits:
        answer = await _stored_in_transaction(broker, call, request, commits)
        error = answer.error
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_VERSION:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        async for key in paced(commits):
            errors[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE if key in answer.too_large else error

    topics: dict[str, list[TransactionalRow]] = {}
    async for (name, index), code in paced(errors.items()):
        topics.setdefault(name, []).append(TransactionalRow(partition_index=index, error_code=code))
    return m.TxnOffsetCommitResponse(
        topics=[TransactionalTopic(name=name, partitions=rows) async for name, rows in paced(topics.items())]
    )


async def _stored_in_transaction(
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

    def is_given_up() -> bool:
        # A client that gives a connection up repeats its request on a later one, and may begin the next transaction
        # there. Executed after that, this request would set back the offsets of that transaction, or add to them.
        if call.connection is None:
            return False
        return call.has_hung_up() or broker.committers.is_overtaken(producer, call.connection_number)

    answer = await broker.groups.commit_in_transaction(request.group_id, event, call.connection_number, is_given_up)
    if answer is None:
        raise given_up(call.client_id)

    # The connection is noted after a success only: a request that is refused may come from anybody,
    # and must not shut the producer out.
    if not answer.error:
        broker.committers.note(producer, call.connection_number)
    return answer


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


def _commit_in_transaction(
    row: m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition, now_ms: int, topic_id: bytes
) -> Commit:
    metadata = row.committed_metadata or NO_METADATA
    return Commit(row.committed_offset, row.committed_leader_epoch, metadata, now_ms, topic_id=topic_id)


def refuse_txn_offset_commit(
    request: m.TxnOffsetCommitRequest, version: int, code: ErrorCode
) -> m.TxnOffsetCommitResponse:
    """The same error for every partition. A partition that is named twice is answered once."""
    return m.TxnOffsetCommitResponse(
        topics=[
            TransactionalTopic(
                name=name, partitions=[TransactionalRow(partition_index=index, error_code=code) for index in indexes]
            )
            for name, indexes in _named_partitions(request.topics).items()
        ]
    )


# -- OffsetFetch


async def offset_fetch(broker: Broker, call: Call, request: m.OffsetFetchRequest) -> m.OffsetFetchResponse:
    """Committed offsets of one group, or from version 8 on of several.

    Before version 8 raises Refuse with the group's error; from version 8 on each group has its own error. Raises
    Refuse(INVALID_REQUEST) for a group that is repeated too often.
    """
    if call.version >= SEVERAL_GROUPS_VERSION:
        groups = []
        # "All partitions" of one group may be hundreds of kilobytes, for a few bytes of the request.
        repeats = Repeats()
        confirmed = Confirmations()
        async for asked in paced(request.groups):
            repeats.note(asked.group_id)
            groups.append(await _fetch_group(broker, call, request, asked, confirmed))
        return m.OffsetFetchResponse(groups=groups)

    read = await _fetch(broker, call, request, request.group_id, request.topics, Confirmations())
    if isinstance(read, ErrorCode):
        raise Refuse(read)
    # `Rows` makes each row when it is encoded: as objects, 100,000 rows would need ten times the request's memory.
    return m.OffsetFetchResponse(
        topics=Rows(read.topics, lambda name: FetchTopic(name=name, partitions=Rows(*read.rows_of(name, FetchRow))))
    )


async def _fetch_group(
    broker: Broker,
    call: Call,
    request: m.OffsetFetchRequest,
    asked: m.OffsetFetchRequest.OffsetFetchRequestGroup,
    confirmed: Confirmations,
) -> GroupResult:
    read = await _fetch(broker, call, request, asked.group_id, asked.topics, confirmed)
    if isinstance(read, ErrorCode):
        return GroupResult(group_id=asked.group_id, error_code=read)
    return GroupResult(
        group_id=asked.group_id,
        topics=Rows(read.topics, lambda name: GroupTopic(name=name, partitions=Rows(*read.rows_of(name, GroupRow)))),
    )


class _Read(NamedTuple):
    """The answer for one group: partition indexes by topic, and a function that reads one committed offset."""

    topics: Mapping[str, Sequence[int]]
    read: Callable[[TopicPartition], ReadOffset]

    def rows_of(self, topic: str, kind: type[FetchedRow]) -> tuple[Sequence[int], Callable[[int], FetchedRow]]:
        """The two arguments of `Rows` for a topic: its partitions, and the function that makes a row of one."""
        return self.topics[topic], lambda index: _fetched(kind, self.read(TopicPartition(topic, index)))


async def _fetch(
    broker: Broker,
    call: Call,
    request: m.OffsetFetchRequest,
    group_id: str,
    topics: Sequence[m.OffsetFetchRequest.OffsetFetchRequestTopic]
    | Sequence[m.OffsetFetchRequest.OffsetFetchRequestTopics]
    | None,
    confirmed: Confirmations,
) -> _Read | ErrorCode:
    """The committed offsets of the named partitions, or of all (`topics` None), or the error of the group.

    A topic that the caller may not describe has TOPIC_AUTHORIZATION_FAILED if it is named; otherwise it is left out.
    """
    if not call.authorize("Describe", "Group", group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if topics is None:
        view = await broker.groups.fetch_offsets(group_id, None, confirmed, require_stable=request.require_stable)
        if isinstance(view, ErrorCode):
            return view
        committed = await _by_topic(view.offsets)

        # An error row would reveal that the group reads a topic that the caller may not describe.
        shown = {
            name: committed[name]
            async for name in paced(committed)
            if call.authorize("Describe", "Topic", name, is_filter=True)
        }
        return _Read(shown, partial(read_offset, view))

    wanted = await _wanted(topics)
    seen = {name: wanted[name] async for name in paced(wanted) if call.authorize("Describe", "Topic", name)}
    if call.version == STORE_VERSION:
        keys = [TopicPartition(name, index) for name, indexes in seen.items() async for index in paced(indexes)]

        # The offsets are read now, not when the rows are encoded: each needs a round trip to the store.
        stored = {key: await _fetch_from_store(broker, group_id, key) async for key in paced(keys)}
        read = stored.__getitem__
    else:
        view = await broker.groups.fetch_offsets(group_id, seen, confirmed, require_stable=request.require_stable)
        if isinstance(view, ErrorCode):
            return view
        read = partial(read_offset, view)

    # The usual case, without a check for each row.
    if len(seen) == len(wanted):
        return _Read(wanted, read)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    # Only the topics in `seen` were read; the others keep their place in the order of the response.
    return _Read(wanted, lambda key: read(key) if key.topic in seen else ReadOffset(key, None, refused))


async def _wanted(
    topics: Sequence[m.OffsetFetchRequest.OffsetFetchRequestTopic]
    | Sequence[m.OffsetFetchRequest.OffsetFetchRequestTopics],
) -> "dict[str, array[int]]":
    """Partition indexes by topic, each once; a topic without partitions is left out."""
    # An array takes four bytes per partition, as the request does; a list of ints would take many times that.
    named: dict[str, array[int]] = {}
    known: dict[str, Seen] = {}
    for topic in topics:
        for some in portions(topic.partition_indexes, ROWS_AT_A_TIME):
            if topic.name not in named:
                named[topic.name], known[topic.name] = array("i"), Seen()
            named[topic.name].extend(known[topic.name].take_new(some))
            await pause_after(len(some))
        await pause_after(1)
    # The sets are freed in steps, because a request may name very many topics.
    await emptied(known)
    return named


async def _by_topic(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    async for topic, index in paced(keys):
        topics.setdefault(topic, []).append(index)
    return topics


def _fetched(kind: type[FetchedRow], row: ReadOffset) -> FetchedRow:
    """One partition's row. The row classes of versions 0-7 and 8+ have the same fields."""
    commit = row.commit
    return kind(
        partition_index=row.topic_partition.partition,
        committed_offset=commit.offset if commit else NO_OFFSET,
        committed_leader_epoch=commit.leader_epoch if commit else NO_LEADER_EPOCH,
        metadata=commit.metadata if commit else NO_METADATA,
        error_code=row.error,
    )


def refuse_offset_fetch(request: m.OffsetFetchRequest, version: int, code: ErrorCode) -> m.OffsetFetchResponse:
    """The same error for every group (8+), at the top level (2-7), or for every partition (0-1)."""
    if version >= SEVERAL_GROUPS_VERSION:
        groups = [GroupResult(group_id=group.group_id, error_code=code) for group in request.groups]
        return m.OffsetFetchResponse(groups=groups)
    if version >= GROUP_ERROR_VERSION:
        return m.OffsetFetchResponse(error_code=code)
    topics: dict[str, dict[int, FetchRow]] = {}
    for topic in request.topics or ():
        for index in topic.partition_indexes:
            row = _fetched(FetchRow, ReadOffset(TopicPartition(topic.name, index), None, code))
            topics.setdefault(topic.name, {})[index] = row
    return m.OffsetFetchResponse(
        topics=[FetchTopic(name=name, partitions=list(rows.values())) for name, rows in topics.items()]
    )


# -- OffsetDelete


async def offset_delete(broker: Broker, call: Call, request: m.OffsetDeleteRequest) -> m.OffsetDeleteResponse:
    """Delete committed offsets (KIP-496): Refuse with the group's error, otherwise one error code per partition."""
    if not call.authorize("Delete", "Group", request.group_id):
        raise Refuse(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    codes: dict[TopicPartition, ErrorCode] = {}
    wanted: list[TopicPartition] = []
    async for topic in paced(request.topics):
        may_read = call.authorize("Read", "Topic", topic.name)
        async for row in paced(topic.partitions):
            key = TopicPartition(topic.name, row.partition_index)
            if not may_read:
                codes[key] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif broker.metadata.partition(*key) is None:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                wanted.append(key)

    # The group is asked even if no partition is left, because its own error still has to be found.
    answer = await broker.groups.delete_offsets(request.group_id, wanted)
    if answer.error:
        raise Refuse(answer.error)

    # Partitions that were refused here come first; the coordinator has not seen them.
    return await _deleted({**codes, **answer.codes})


async def _deleted(codes: Mapping[TopicPartition, ErrorCode]) -> m.OffsetDeleteResponse:
    topics: dict[str, list[DeletedRow]] = {}
    async for (topic, index), code in paced(codes.items()):
        topics.setdefault(topic, []).append(DeletedRow(partition_index=index, error_code=code))
    return m.OffsetDeleteResponse(
        topics=[DeletedTopic(name=name, partitions=rows) async for name, rows in paced(topics.items())]
    )


# -- version 0: the metadata store


async def _commit_to_store(broker: Broker, group_id: str, key: TopicPartition, commit: Commit) -> ErrorCode:
    # The metadata is checked, as in Kafka, although the store keeps the offset alone.
    if java_length(commit.metadata) > broker.config.offset_metadata_max_bytes:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    path = consumer_offset(group_id, key.topic, key.partition)
    data = str(commit.offset).encode()
    try:
        # `set` comes first, because only the first commit of a partition finds no node.
        try:
            await broker.store.set(path, data)
        except NoNode:
            await _create_in_store(broker, path)
            await broker.store.set(path, data)
    except (StoreError, ValueError) as error:  # ValueError: the group id is not a valid node name
        logger.warning("an offset cannot be committed to the store: %s", error, extra={"peer": "metadata store"})
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE


# The creation is not atomic: the parents are shared with other partitions and groups, so each node
# may exist already.
async def _create_in_store(broker: Broker, path: str) -> None:
    """Create the node and its parents. NodeExists is no error: another broker may create them at the same time."""
    # A slash in a group id begins another level, as in Kafka, and the path of each level holds all those above it.
    levels = path.count("/")
    if levels * len(path) > LEVELS_CHARACTERS_MAX:
        raise ValueError(f"the group id would make {levels} levels of nodes, whose paths are too long together")
    # The nodes are created in parts, because the operations are checked on the event loop.
    for nodes in portions(with_ancestors([path]), max(1, CHECKED_CHARACTERS // len(path))):
        for outcome in await broker.store.batch([Create(node) for node in nodes]):
            if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists):
                raise outcome


async def _fetch_from_store(broker: Broker, group_id: str, key: TopicPartition) -> ReadOffset:
    """The offset in the metadata store; UNKNOWN_TOPIC_OR_PARTITION if none was committed.

    Version 0 has no other way to say that there is no offset.
    """
    unknown = ReadOffset(key, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker.metadata.partition(*key) is None:
        return unknown
    try:
        data, _ = await broker.store.get(consumer_offset(group_id, key.topic, key.partition))
        return ReadOffset(key, Commit(int(data or b""), NO_LEADER_EPOCH, NO_METADATA, NO_TIMESTAMP))
    except NoNode:
        return unknown
    except (StoreError, ValueError) as error:  # ValueError: not a valid node name, or the node holds no number
        logger.warning("an offset cannot be read in the store: %s", error, extra={"peer": "metadata store"})
        return ReadOffset(key, None, ErrorCode.UNKNOWN_SERVER_ERROR)
