"""Produce: appends record batches of clients to partition logs.

`server/dispatch.py` calls `produce`, and `refuse_produce` when `produce` fails as a whole.

Behaviour: each partition succeeds or fails on its own. A batch is validated (CRC, lengths, counts, timestamps, keys)
    before anything is written. acks=1 answers after the append. acks=all answers when the high watermark has passed the
    batch; the connection handles its next Produce meanwhile (`DelayedResponse`). acks=0 has no response; an error
    closes the connection. Clients may not write to internal topics (INVALID_TOPIC_EXCEPTION).
    OUT_OF_ORDER_SEQUENCE_NUMBER ends an idempotent producer. A leader of the past, whose log lacks what its successor
    got, would answer it to a batch that is in order. So this broker first makes sure that it has no successor
    (`replication/confirmation.py`): else NOT_LEADER_OR_FOLLOWER.
Versions: 0-2 carry messages of formats 0 and 1, stored as one batch of format 2 (`wire/upconvert.py`). 3-11 carry one
    batch of format 2 per partition; 8+ say which record was refused; 10+ name the new leader (KIP-951).
Transactions: a batch that begins a transaction in its partition is verified first
    (`coordinators/transactions/verification.py`), unless `transaction.partition.verification.enable` is off. Errors of
    the coordinator that a producer may retry become NOT_ENOUGH_REPLICAS, which every client retries. 11+ know
    TRANSACTION_ABORTABLE.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.fetching.current_leader import LeaderHints
from barnabas.coordinators.transactions.state import Producer
from barnabas.coordinators.transactions.verification import code_for
from barnabas.replication.acknowledgements import AppendedUpTo, acknowledgements
from barnabas.replication.appending import BATCH_FORMAT_2_VERSION, VALID_ACKS, Begun, Rules, append, begin
from barnabas.replication.confirmation import CONFIRMED_SECONDS
from barnabas.replication.partition import Partition
from barnabas.storage.duplicate_search import find_batch, fingerprint_of
from barnabas.storage.log import Appended
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation, error_name
from barnabas.wire.record_batch import (
    BATCH_MAGIC,
    BATCH_OVERHEAD_BYTES,
    LENGTH_OVERHEAD_BYTES,
    TRANSACTIONAL,
    read_batch_header,
    read_kind,
)
from barnabas.wire.records import RecordsRefused, check_produced
from barnabas.wire.topics import INTERNAL_TOPICS, TopicPartition
from barnabas.wire.upconvert import check_old_produced
from barnabas.world.freeing import emptied, take_apart
from barnabas.world.pacing import ROWS_AT_A_TIME, complete, pace_of_run, paced, pause_after, portions
from barnabas.world.tally import TopicTally
from barnabas.world.waiting import DelayedResponse

if TYPE_CHECKING:
    from barnabas.storage.verification import Guard
    from barnabas.wire.records import Batch, BatchHeader

RECORD_ERRORS_VERSION = 8
SMALLEST_ENTRY_BYTES = 14  # minimum of the length field of an entry, in any message format
LARGEST_ENTRY_BYTES = (1 << 31) - 1 - LENGTH_OVERHEAD_BYTES
CURRENT_LEADER_VERSION = 10
ABORTABLE_VERSION = 11  # from this version on clients know TRANSACTION_ABORTABLE (KIP-890)
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER

# Errors for which Kafka answers log_start_offset = -1. For all other append errors it answers the log start offset.
EXPECTED_ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)

TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

# Errors of the transaction coordinator.
RETRIABLE = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

logger = logging.getLogger(__name__)

Row = m.ProduceResponse.PartitionProduceResponse
Asked = dict[str, dict[int, m.ProduceRequest.PartitionProduceData]]  # by topic and partition
Transactional = dict[TopicPartition, "BatchHeader"]  # the transactional batches of a request


async def produce(broker: Broker, call: Call, request: m.ProduceRequest) -> m.ProduceResponse | DelayedResponse | None:
    """Append each partition's batch, and answer as `acks` demands.

    Returns the response, a `DelayedResponse` where acknowledgements are missing, or None for acks=0. Raises
    ProtocolViolation for acks=0 when a partition failed.
    """
    asked, refused, message, begun = await _look_through(call, request)
    verified = await _verify(broker, call, request.transactional_id, begun) if begun and not refused else {}
    topics: list[m.ProduceResponse.TopicProduceResponse] = []
    unacknowledged: list[tuple[str, Row, AppendedUpTo]] = []
    led_elsewhere: list[tuple[str, Row]] = []
    confirmed_by = trio.current_time() + CONFIRMED_SECONDS
    is_verifying = broker.config.transaction_partition_verification_enable
    rules = Rules(call.version, request.acks, broker.replicas.refused_batches, is_verifying)
    for topic, partitions in asked.items():
        rows: list[Row] = []
        for data in partitions.values():
            # The first partition needs no checkpoint: most requests have one partition.
            if rows or topics:
                await pause_after()
            row = Row(index=data.index, base_offset=-1)
            rows.append(row)

            # One transactional or unreadable batch fails all partitions of the request, as in
            # Kafka.
            if refused:
                row.error_code = refused
                row.error_message = message
                continue
            guard = verified.get(TopicPartition(topic, data.index)) if verified else None
            appended = await _append(broker, call, rules, topic, data, row, guard, confirmed_by)
            if appended is not None:
                unacknowledged.append((topic, row, appended))
            elif row.error_code == NOT_LEADER:
                led_elsewhere.append((topic, row))
        topics.append(m.ProduceResponse.TopicProduceResponse(name=topic, partition_responses=rows))

    await emptied(asked)
    if begun:
        await emptied(begun)
    response = m.ProduceResponse(responses=topics)
    if request.acks == 0:
        try:
            await _close_if_refused(topics)
        except ProtocolViolation:
            # A request may name any number of partitions that do not exist. Freeing all their rows at once would block
            # the event loop for milliseconds.
            await complete(take_apart(response), broker.world.in_request_thread)
            raise
        return None

    # With acks=1, or if the leader is the only in-sync replica of each partition, the answer need
    # not be queued.
    if not unacknowledged:
        if led_elsewhere:
            for _ in _naming_leaders(broker, call, response, led_elsewhere):
                await trio.lowlevel.checkpoint()
        return response

    decisions = acknowledgements([appended for _, _, appended in unacknowledged], request.acks)

    def acknowledged() -> m.ProduceResponse:
        return acknowledge(broker, call, response, unacknowledged, decisions.decided, led_elsewhere)

    return DelayedResponse(decisions, trio.current_time() + request.timeout_ms / 1000, acknowledged)


def acknowledge(
    broker: Broker,
    call: Call,
    response: m.ProduceResponse,
    waiting: Sequence[tuple[str, Row, object]],
    outcomes: Sequence[ErrorCode | None],
    led_elsewhere: list[tuple[str, Row]],
) -> m.ProduceResponse:
    """Set the outcomes in the rows of the response that waited for them, and name the leaders of those elsewhere."""
    for (topic, row, _), outcome in zip(waiting, outcomes, strict=True):
        # The offsets stay in the row whatever the outcome is, as in Kafka: the batch is in the local log.
        row.error_code = ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome

        # Leadership may move between the append and its acknowledgement; KIP-951 covers that error, too.
        if outcome is NOT_LEADER:
            led_elsewhere.append((topic, row))
    for _ in _naming_leaders(broker, call, response, led_elsewhere):
        pass  # this runs in the step of a commit, which cannot wait
    return response


def refuse_produce(request: m.ProduceRequest, version: int, code: ErrorCode) -> m.ProduceResponse | None:
    """The same error for every partition.

    With acks=0 there is no response: raises ProtocolViolation to close the connection, or returns None if the request
    names no partition.
    """
    topics = [
        m.ProduceResponse.TopicProduceResponse(
            name=topic.name,
            partition_responses=[
                Row(index=data.index, error_code=code, base_offset=-1) for data in topic.partition_data
            ],
        )
        for topic in request.topic_data
    ]
    if request.acks == 0:
        for topic in topics:
            _close_if_any_is_refused(topic.name, topic.partition_responses)
        return None

    return m.ProduceResponse(responses=topics)


async def _look_through(call: Call, request: m.ProduceRequest) -> tuple[Asked, ErrorCode, str | None, Transactional]:
    """(partitions by topic, error of the whole request or NONE, its message, transactional batches).

    A topic without partitions is left out. Of a partition that is named twice the last entry counts, as in Kafka.
    """
    asked: Asked = {}
    begun: Transactional = {}
    refused: tuple[ErrorCode, str | None] | None = None
    pace = pace_of_run()
    for topic in request.topic_data:
        # A topic without partitions counts as one step, so that a request of empty topics reaches a checkpoint, too.
        for data in topic.partition_data or (None,):
            if data is not None:
                # A repeated partition loses its first entry, but that entry can still fail the whole request.
                asked.setdefault(topic.name, {})[data.index] = data
                if begun:
                    begun.pop(TopicPartition(topic.name, data.index), None)
                if refused is None:
                    refused = _refuse_request(call, request, topic.name, data, begun)
            if pace.is_over():
                await pace.give_way()

    # One request belongs to one transaction.
    if refused is None and len(begun) > 1 and not await _is_of_one_producer(begun):
        refused = ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
    return (asked, *(refused or (ErrorCode.NONE, None)), begun)


async def _is_of_one_producer(begun: Transactional) -> bool:
    first = next(iter(begun.values()))
    async for header in paced(begun.values()):
        if (header.producer_id, header.producer_epoch) != (first.producer_id, first.producer_epoch):
            return False
    return True


def _refuse_request(
    call: Call, request: m.ProduceRequest, topic: str, data: m.ProduceRequest.PartitionProduceData, begun: Transactional
) -> tuple[ErrorCode, str | None] | None:
    """Why these records of one partition fail the whole request: (error, message), or None.

    A transactional batch is noted in `begun`.
    """
    records = data.records
    if records is None or len(records) < LENGTH_OVERHEAD_BYTES:
        return None
    if len(records) < BATCH_OVERHEAD_BYTES:
        return _why_unreadable(records)
    batch_length, magic, attributes = read_kind(records)
    if magic != BATCH_MAGIC or not _is_entry_size(batch_length):
        return _why_unreadable(records)
    if not attributes & TRANSACTIONAL:
        return None
    header = read_batch_header(records)

    # A batch without a producer id belongs to no transaction, as in Kafka.
    if header.producer_id >= 0:
        begun[TopicPartition(topic, data.index)] = header
    code = _refuse_transaction(call, request.transactional_id)
    return (code, None) if code else None


def _why_unreadable(records: memoryview) -> tuple[ErrorCode, str | None] | None:
    """The error of records whose first entry has no readable header of format 2; None where the entry may be valid.

    Kafka iterates over all batches before it appends, to see whether one is transactional. An entry that it cannot
    iterate over fails the whole request.
    """
    # All formats have the size of an entry at byte 8 and its magic at byte 16.
    size = int.from_bytes(records[8:12], "big", signed=True)
    magic = records[16] if len(records) > 16 else BATCH_MAGIC
    if size < SMALLEST_ENTRY_BYTES:
        message = f"Record size {size} is less than the minimum record overhead ({SMALLEST_ENTRY_BYTES})"
        return ErrorCode.CORRUPT_MESSAGE, message
    if magic > BATCH_MAGIC:
        signed = magic - 256 if magic > 127 else magic
        return ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {signed}"
    # Kafka adds the overhead to the size in an int; the overflow raises an exception without an error code of its own.
    return None if _is_entry_size(size) else (ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _is_entry_size(size: int) -> bool:
    return SMALLEST_ENTRY_BYTES <= size <= LARGEST_ENTRY_BYTES


def _refuse_transaction(call: Call, transactional_id: str | None) -> ErrorCode:
    if transactional_id is None or not call.authorize("Write", "TransactionalId", transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _verify(
    broker: Broker, call: Call, transactional_id: str | None, begun: Transactional
) -> "dict[TopicPartition, Guard | ErrorCode | None]":
    """Of each partition with a transactional batch: the guard to append it with, or its error.

    None where a transaction of the producer is open already, so that nothing is to be verified.
    """
    verified: dict[TopicPartition, Guard | ErrorCode | None] = {}

    # If verification is disabled, anybody may open transactions that no coordinator knows, as in
    # Kafka.
    if transactional_id is None or not broker.config.transaction_partition_verification_enable:
        return verified
    asked: list[TopicPartition] = []
    async for key, header in paced(begun.items()):
        # Internal topics are asked about, too: Kafka refuses batches for them only after it has
        # asked the coordinator.
        partition = broker.replicas.get(*key)
        if not call.authorize("Write", "Topic", key.topic, is_filter=True):
            continue

        # The error is kept for `_append`: this broker may host the partition by then, and would append
        # the batch without a guard.
        if isinstance(partition, ErrorCode):
            verified[key] = partition
            continue
        guard = partition.begin_verification(header.producer_id, header.producer_epoch, header.base_sequence)
        verified[key] = guard
        if guard is not None and not isinstance(guard, ErrorCode):
            asked.append(key)

    if asked:
        header = begun[asked[0]]
        producer = Producer(header.producer_id, header.producer_epoch)
        errors = await broker.verification.verify(transactional_id, producer, asked)
        knows_abortable = call.version >= ABORTABLE_VERSION
        async for key, error in paced(errors.items()):
            if error:
                verified[key] = code_for(error, knows_abortable=knows_abortable)

    return verified


def _refuse_unverified(
    rules: Rules, partition: Partition | ErrorCode, records: memoryview | None, row: Row, error: ErrorCode
) -> None:
    """Kafka's answers to a batch that may not begin a transaction."""
    row.error_code = error
    if error is ErrorCode.INVALID_TXN_STATE:
        row.error_message = "Partition was not added to the transaction"
    elif error in RETRIABLE:
        row.error_code = ErrorCode.NOT_ENOUGH_REPLICAS
        row.error_message = (
            f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        )

    # Later batches of this producer may pass the verification: they must be refused, and be sent again with this one.
    if records is not None and not isinstance(partition, ErrorCode):
        rules.refused_batches.note(partition, read_batch_header(records), ErrorCode(row.error_code))


async def _append(
    broker: Broker,
    call: Call,
    rules: Rules,
    topic: str,
    data: m.ProduceRequest.PartitionProduceData,
    row: Row,
    guard: "Guard | ErrorCode | None",
    confirmed_by: float,
) -> AppendedUpTo | None:
    """Validate and append one partition's batch, and fill its row. `guard`: of a transactional batch, as in `_verify`.
    `confirmed_by`: the deadline of a confirmation, if one is needed (trio's clock, s).

    Returns what the acknowledgement waits for; None when the row has its final state.

    The errors of the row are those of `_writable_partition`, `_checked_batch` and `replication.appending`.
    """
    begun: Begun | None = call.begun.get(data.index) if isinstance(call.begun, dict) else None
    partition = _writable_partition(broker, call, topic, data.index) if begun is None else begun.partition
    if isinstance(guard, ErrorCode):
        _refuse_unverified(rules, partition, data.records, row, guard)
        return None
    if isinstance(partition, ErrorCode):
        row.error_code = partition
        return None
    if begun is None:
        begun = begin(rules, partition, data.records, broker.world.now_ms(), guard)
    batch = begun.batch
    if batch is None:
        batch = await _checked_batch(broker, call, partition, data.records)

    # Kafka's order of checks: KafkaApis validates the request's form (`before_log`), ReplicaManager.appendRecords
    # validates acks, and the log validates the records.
    if rules.acks not in VALID_ACKS and not (isinstance(batch, RecordsRefused) and batch.before_log):
        row.error_code = ErrorCode.INVALID_REQUIRED_ACKS
        return None
    if isinstance(batch, RecordsRefused):
        _refuse_records(call, partition, data.records, batch, row)
        return None
    if batch is None:
        return None

    # Other tasks may have run since the step that appended the batch: the outcome depends on its `leading_since`.
    appended = begun.appended
    leading_since = begun.leading_since
    if appended is None:
        appended = append(rules, partition, batch, guard)
        leading_since = partition.leading_since
    if appended is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        appended = await _find_original(broker, partition, batch)
        if appended is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and await partition.confirm(confirmed_by):
            appended = NOT_LEADER
        leading_since = partition.leading_since
        rules.refused_batches.note(partition, batch.header, appended)

    if isinstance(appended, ErrorCode):
        row.error_code = appended
        partition.tally.failed_produce_requests += appended not in EXPECTED_ERRORS
        _name_first_offset(partition, row)
        return None

    row.base_offset = appended.base_offset
    row.log_append_time_ms = appended.append_time_ms
    row.log_start_offset = appended.log_start_offset

    up_to = AppendedUpTo(partition, appended.last_offset + 1, leading_since)
    outcome = up_to.outcome(rules.acks)
    if outcome is None:
        return up_to
    row.error_code = outcome
    return None


def _count_refused(tally: TopicTally, refused: RecordsRefused, size_bytes: int) -> None:
    """Count a batch that is not appended although its request has a valid form."""
    # Kafka calls a request failed only if it did not expect the error: a client that hears of
    # another leader goes there, and a batch that is too large is its producer's mistake.
    code = refused.code
    tally.produce_requests += 1
    tally.failed_produce_requests += code not in EXPECTED_ERRORS
    tally.invalid_crc_records += code is ErrorCode.CORRUPT_MESSAGE
    if code is ErrorCode.INVALID_RECORD:
        tally.no_key_records += len(refused.record_errors)
    if code in TOO_LARGE:
        tally.bytes_rejected += size_bytes


def _refuse_records(
    call: Call, partition: Partition, records: memoryview | None, refused: RecordsRefused, row: Row
) -> None:
    logger.debug("%s of %s: %s", partition.topic_partition, call.client_id, refused.reason)
    row.error_code = refused.code
    # Errors with `before_log` are found before Kafka looks at the log, so their rows have no log start offset.
    if not refused.before_log:
        _count_refused(partition.tally, refused, 0 if records is None else len(records))
        _name_first_offset(partition, row)
    if call.version >= RECORD_ERRORS_VERSION:
        row.error_message = refused.message
        row.record_errors = [
            m.ProduceResponse.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in refused.record_errors
        ]


async def _find_original(broker: Broker, partition: Partition, batch: "Batch") -> "Appended | ErrorCode":
    """Search the log for a batch that was refused as out of order; OUT_OF_ORDER_SEQUENCE_NUMBER where it is not there.

    Kafka keeps the last five batches of each producer and refuses older retries. Here a retry that is byte for byte in
    the log gets its original offset (`storage/duplicate_search.py`), unless that is in a transaction that has ended.
    """
    log = partition.log
    leader_epoch = partition.leader_epoch

    # A sequence ahead of the producer's last one cannot be a retry.
    if log is None or not log.producers.is_behind(batch.header):
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    gate = broker.replicas.logs.gate

    # Some clients resend a refused batch without end, and each search reads up to 16 MiB. The leader epoch is part of
    # the key because a new epoch may bring another log content.
    question = (partition.topic_partition, leader_epoch, fingerprint_of(batch))
    if gate.was_fruitless(question):
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    # The gate refuses logs that are being truncated, and runs the search in slices in request threads.
    found = await gate.search(partition, log, find_batch(log, batch))
    if isinstance(found, ErrorCode):
        return found

    # The search ran in threads: if the role changed meanwhile, a truncation may have removed the batch that it found.
    if partition.log is not log or partition.leader_epoch != leader_epoch or not partition.is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    # A producer gives its batches up before it ends their transaction. So this is no retry: the application repeats a
    # record in its next transaction, with the same sequence number and time. As a duplicate it would be lost.
    if found is None or (batch.header.is_transactional and log.producers.has_ended(batch.header, found.base_offset)):
        gate.note_fruitless(question)
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return Appended(found.base_offset, found.last_offset, found.append_time_ms, log.log_start_offset, True)


def _name_first_offset(partition: Partition, row: Row) -> None:
    """Set log_start_offset beside an append error that is not in EXPECTED_ERRORS, as Kafka does."""
    if row.error_code not in EXPECTED_ERRORS and partition.log is not None:
        row.log_start_offset = partition.log.log_start_offset


def _writable_partition(broker: Broker, call: Call, topic: str, index: int) -> Partition | ErrorCode:
    if not call.authorize("Write", "Topic", topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    # An internal topic that does not exist yet is UNKNOWN_TOPIC_OR_PARTITION: Kafka checks existence first.
    if topic in INTERNAL_TOPICS and broker.metadata.partition(topic, index) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return broker.replicas.get(topic, index)


async def _checked_batch(
    broker: Broker, call: Call, partition: Partition, records: memoryview | None
) -> "Batch | RecordsRefused | None":
    """The validated batch, or why it is refused.

    None where a request of version 0-2 has no complete message: Kafka answers success with offset -1.
    """
    if records is None:
        return RecordsRefused(ErrorCode.INVALID_RECORD, "the partition carries no record batch", before_log=True)
    rules = partition.config
    now_ms = broker.world.now_ms()
    name = partition.topic_partition
    if call.version < BATCH_FORMAT_2_VERSION:
        old = await complete(check_old_produced(records, rules, now_ms, name), broker.world.in_request_thread)
        # Each record is converted to format 2, so each one counts.
        if old is not None and not isinstance(old, RecordsRefused):
            partition.tally.produce_conversions += old.header.record_count
        return old
    return await complete(check_produced(records, rules, now_ms, call.version, name), broker.world.in_request_thread)


async def _close_if_refused(topics: Sequence[m.ProduceResponse.TopicProduceResponse]) -> None:
    """acks=0 has no response, so closing the connection is the only way to report an error (ProtocolViolation)."""
    for topic in topics:
        for rows in portions(topic.partition_responses, ROWS_AT_A_TIME):
            _close_if_any_is_refused(topic.name, rows)
            await pause_after(len(rows))


def _close_if_any_is_refused(topic: str, rows: Sequence[Row]) -> None:
    for row in rows:
        if row.error_code:
            raise ProtocolViolation(
                f"produce with acks=0 to {TopicPartition(topic, row.index)} failed: {error_name(row.error_code)}"
            )


def _naming_leaders(
    broker: Broker, call: Call, response: m.ProduceResponse, rows: list[tuple[str, Row]]
) -> Iterator[None]:
    """Set the current leader and its address beside NOT_LEADER_OR_FOLLOWER, in steps: it saves the client a Metadata
    request."""
    if not rows or call.version < CURRENT_LEADER_VERSION:
        return
    hints = LeaderHints(broker.replicas, broker.metadata, call.listener)
    for some in portions(rows, ROWS_AT_A_TIME):
        for topic, row in some:
            leader = hints.leader_of(topic, row.index)
            if leader is not None:
                row.current_leader = m.ProduceResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        yield

    response.node_endpoints = [
        m.ProduceResponse.NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
        for node in hints.nodes.values()
    ]
