"""Fetch: records from partition logs to consumers and followers.

Behaviour: every wanted partition is planned (a bounded look into its log, no copy), and the answer is sent when at
    least `min_bytes` are planned, something failed, or `max_wait_ms` passed; until then the request waits, and only
    partitions that changed are planned again. The first batch of the first non-empty partition is sent whatever its
    size (KIP-74). Consumers read up to the high watermark, or to the last stable offset with read_committed; followers
    to the log end; the offset that a follower asks for is its progress, and the in-sync replicas and the high watermark
    follow from it (`Partition.follower_fetched`). Since version 11 a consumer may read from a follower, up to the high
    watermark there, and with `replica.selector.class` it is told which (KIP-392). Small reads travel inside the answer,
    large ones as file slices that the connection sends; what the page cache does not hold is read ahead in a thread.
Versions: 0-3 get their records in the message formats of before 0.11, unless `message.downconversion.enable` forbids it
    (UNSUPPORTED_VERSION); at least one whatever the limit, where Kafka cuts one off for 0-2; 7+ sessions (KIP-227); 9+
    leader epochs are checked; 12+ diverging epochs; 13+ topic ids instead of names; 16+ the current leader beside an
    error that means another one (KIP-951).
Not done: replication quotas (`leader.replication.throttled.rate`).
"""

from collections.abc import Iterable
from functools import partial

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION_ID,
    FetchSession,
    Key,
    Wanted,
)
from barnabas.broker.isr import UNKNOWN_BROKER_EPOCH, Pulse
from barnabas.broker.leader_hints import LeaderHints
from barnabas.broker.partition import NO_LEADER_EPOCH, Partition
from barnabas.broker.preferred_replica import RACK_AWARE_SELECTOR, choose_replica
from barnabas.broker.waiting import Waiter, Watched
from barnabas.storage.disk import FileSlice, StorageError
from barnabas.storage.log import PartitionLog
from barnabas.wire import messages as m
from barnabas.wire.compression import CorruptRecords
from barnabas.wire.downconvert import Unconvertible, down_convert
from barnabas.wire.errors import ErrorCode

MESSAGE_FORMAT_1_VERSION = 2  # before, readers know format 0 alone
RECORD_FORMAT_2_VERSION = 4
STORAGE_ERROR_VERSION = 6  # before, clients did not know it, and are told to look for another leader
SESSION_VERSION = 7
FOLLOWERS_SERVE_VERSION = 11
TOPIC_ID_VERSION = 13
REPLICA_STATE_VERSION = 15
CURRENT_LEADER_VERSION = 16
READ_COMMITTED = 1
INLINE_READ_BYTES_MAX = 1 << 15  # below this, read-and-join beats one more system call for sendfile
WARM_STEP_BYTES = 1 << 18
ZSTD_VERSION = 10
PARTITIONS_AT_A_TIME = 100  # planned in one step: about a millisecond
NOT_FOUND = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)

Row = m.FetchResponse.PartitionData
Rows = dict[Wanted, Row]


class FetchPlan:
    """What is planned so far for one request: rows by partition, their bytes, and whether one says something now."""

    def __init__(self, broker: Broker, call: Call, request: m.FetchRequest) -> None:
        self.broker = broker
        self.call = call
        self.replica_id = _replica_id(call, request)
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        if call.version >= REPLICA_STATE_VERSION:
            self.broker_epoch = request.replica_state.replica_epoch
        self.pulse: Pulse | None = None  # of the session in which a follower fetches
        self.may_read_follower = self.replica_id < 0 and call.version >= FOLLOWERS_SERVE_VERSION
        self.rack = ""  # of a consumer that may be sent to a follower
        if self.may_read_follower and broker.config.replica_selector_class == RACK_AWARE_SELECTOR:
            self.rack = request.rack_id
        self.read_committed = request.isolation_level == READ_COMMITTED and self.replica_id < 0
        self.bytes_max = self.bytes_left = min(request.max_bytes, broker.config.fetch_max_bytes)
        self.min_bytes = min(request.min_bytes, self.bytes_left)
        self.rows: Rows = {}
        self.partitions: dict[Wanted, Partition] = {}
        self.left_over: dict[Wanted, None] = {}  # there is something to read, and no room for it
        self.planned_bytes = 0
        self.urgent = False
        self.has_waited = False

    def plan(self, wanted: Wanted) -> Partition | None:
        """Plan (again) one partition; returns it when it is hosted here, so that its changes can be watched."""
        before = self.rows.pop(wanted, None)
        if before is not None:
            self._take_back(before)
            self.left_over.pop(wanted, None)
        if wanted.follower is not None and not self.has_waited:
            wanted.part()  # until this fetch is found to be in order, too
        partition = _find(self.broker, self.call, wanted)
        if isinstance(partition, ErrorCode):
            self._fail(wanted, partition)
            return None
        self.partitions[wanted] = partition
        try:
            self.rows[wanted] = self._read(partition, wanted)
        except StorageError as error:
            self._fail(wanted, partition.fail_storage(error))
        return partition

    def is_joining(self, wanted: Wanted) -> bool:
        """Whether a follower fetches this that is not in sync: it joins by a fetch, perhaps one that names nothing."""
        partition = self.partitions.get(wanted)
        return wanted.follower is not None and partition is not None and not partition.is_in_sync(wanted.follower)

    async def warm(self) -> None:
        """Read ahead, in a thread, what the page cache does not hold: `sendfile` on the loop would wait for it."""
        for wanted, row in list(self.rows.items()):
            piece = row.records
            if not isinstance(piece, FileSlice):
                continue
            try:
                if not piece.file.resident(piece.position, piece.size_bytes):
                    async with self.broker.cold_reads:
                        await self.broker.world.in_thread(_read_through, piece)
            except StorageError as error:
                self._take_back(self.rows.pop(wanted))
                self._fail(wanted, self.partitions[wanted].fail_storage(error))

    async def convert(self) -> None:
        """Rewrite the records of a reader of before 0.11 in the format that it knows.

        What a small batch decompresses to is limited by what was asked for, and all of it by `fetch.max.bytes`: beyond
        it the partitions that come last get nothing this time.
        """
        magic = 1 if self.call.version >= MESSAGE_FORMAT_1_VERSION else 0
        bytes_left = self.bytes_max
        for wanted, row in list(self.rows.items()):
            if row.error_code:
                continue
            max_bytes = min(wanted.max_bytes, bytes_left)
            size, work = _records_bytes(row), partial(_converted, row.records, wanted.fetch_offset, magic, max_bytes)
            if size and bytes_left <= 0:
                _release(row)
                row.records = b""
                continue
            try:
                converted = work() if size <= INLINE_READ_BYTES_MAX else await self.broker.world.in_thread(work)
            except (Unconvertible, CorruptRecords, StorageError) as error:
                _release(row)
                code = self._why_unconverted(wanted, error)
                self._fail(wanted, code)
                if isinstance(error, Unconvertible):
                    self.rows[wanted] = _unfit_row(wanted, code)
            else:
                _release(row)
                row.records = converted
                bytes_left -= len(converted)

    def _why_unconverted(self, wanted: Wanted, error: Exception) -> ErrorCode:
        if isinstance(error, StorageError):
            return self.partitions[wanted].fail_storage(error)
        is_damaged = isinstance(error, CorruptRecords)
        return ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def release(self) -> None:
        """Give back the file slices of a plan that will not be sent."""
        for row in self.rows.values():
            _release(row)

    def _fail(self, wanted: Wanted, code: ErrorCode) -> None:
        """Answer at once; but what is not there from the start must not keep a client from waiting for the rest."""
        row = self.rows[wanted] = _failed_row(wanted, code)
        if code in NOT_FOUND and not self.has_waited:
            row.aborted_transactions = []
        else:
            self.urgent = True

    def _take_back(self, row: Row) -> None:
        size = _records_bytes(row)
        self.planned_bytes -= size
        self.bytes_left += size
        _release(row)

    def _read(self, partition: Partition, wanted: Wanted) -> Row:
        refused = self._refuse(partition, wanted)
        log = partition.log
        if refused or log is None:
            self.urgent = True
            return _failed_row(wanted, refused or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.call.version < ZSTD_VERSION and partition.config.compression_type == "zstd":
            self.urgent = True
            return _unfit_row(wanted, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self.call.version < RECORD_FORMAT_2_VERSION and not partition.config.message_downconversion_enable:
            self.urgent = True
            return _unfit_row(wanted, ErrorCode.UNSUPPORTED_VERSION)
        row = _row_at(partition, log, wanted, self.read_committed)
        if self.rack and partition.is_leader:
            preferred = self._preferred_replica(partition, wanted)
            if preferred is not None:
                row.preferred_read_replica, row.aborted_transactions = preferred, None
                self.urgent = True
                return row
        if wanted.last_fetched_epoch >= 0 and self._diverges(log, wanted, row):
            return row
        end_offset = log.log_end_offset
        if self.replica_id < 0:
            end_offset = row.last_stable_offset if self.read_committed else row.high_watermark
        read = partition.read(
            wanted.fetch_offset,
            max_bytes=max(0, min(wanted.max_bytes, self.bytes_left)),
            end_offset=end_offset,
            at_least_one=self.planned_bytes == 0,
        )
        if isinstance(read, ErrorCode):
            self.urgent = True
            return _failed_row(wanted, read)
        if self.replica_id >= 0 and not self.has_waited:
            self._note_progress(partition, wanted, row)
        if read.slice is not None:
            self._add_records(row, read.slice)
            if self.read_committed:
                row.aborted_transactions = [
                    m.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in log.aborted_transactions(wanted.fetch_offset, end_offset)
                ]
        elif wanted.fetch_offset < end_offset:
            self.left_over[wanted] = None
        return row

    def _refuse(self, partition: Partition, wanted: Wanted) -> ErrorCode:
        """Role and epoch checks of C.5."""
        refused = partition.check_leader_epoch(max(wanted.current_leader_epoch, NO_LEADER_EPOCH))
        if refused:
            return refused
        if not partition.is_leader:
            return ErrorCode.NONE if self.may_read_follower else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.replica_id < 0 or self.replica_id in partition.followers:
            return ErrorCode.NONE
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if wanted.current_leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _note_progress(self, partition: Partition, wanted: Wanted, row: Row) -> None:
        """A follower's fetch is in order; what that moved, it is told at once."""
        wanted.follower = partition.follower_fetched(
            self.replica_id,
            wanted.fetch_offset,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=self.broker_epoch,
            pulse=self.pulse,
        )
        row.high_watermark, row.last_stable_offset = partition.high_watermark, partition.last_stable_offset

    def _preferred_replica(self, partition: Partition, wanted: Wanted) -> int | None:
        brokers = self.broker.metadata.brokers
        return choose_replica(
            self.rack,
            wanted.fetch_offset,
            self.broker.config.broker_rack,
            partition.in_sync_replicas,
            partition.followers.values(),
            brokers,
        )

    def _diverges(self, log: PartitionLog, wanted: Wanted, row: Row) -> bool:
        """KIP-595's check: did the fetcher's last epoch end earlier here than where it wants to go on?"""
        epoch, end_offset = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
        if epoch == -1:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            row.high_watermark = row.last_stable_offset = row.log_start_offset = -1
        elif epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            row.diverging_epoch = m.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        else:
            return False
        self.urgent = True
        return True

    def _add_records(self, row: Row, piece: FileSlice) -> None:
        size = piece.size_bytes
        row.records = piece
        try:
            is_inline = size <= INLINE_READ_BYTES_MAX and piece.file.resident(piece.position, size)
            if is_inline:
                row.records = piece.read()
        except StorageError:
            piece.release()
            raise
        if is_inline:
            piece.release()
        self.planned_bytes += size
        self.bytes_left -= size


async def fetch(broker: Broker, call: Call, request: m.FetchRequest) -> m.FetchResponse:
    """Plan, wait for enough, answer."""
    opened = _open(broker, call, request)
    if isinstance(opened, ErrorCode):
        return m.FetchResponse(error_code=opened)
    session, wanted, incremental = opened
    plan = FetchPlan(broker, call, request)
    try:
        if session is not None:
            await _fill_from_session(plan, session, request)
        else:
            await _fill(plan, wanted, request)
        await plan.warm()
        if call.version < RECORD_FORMAT_2_VERSION:
            await plan.convert()
    except BaseException:
        plan.release()
        raise
    if session is not None:
        rows = _told(plan, session, incremental=incremental)
        response = m.FetchResponse(session_id=session.session_id, responses=_by_topic(rows))
    else:
        rows = plan.rows
        response = m.FetchResponse(responses=_by_topic(rows))
    if plan.urgent and call.version >= CURRENT_LEADER_VERSION:
        _name_leaders(broker, call, rows, response)
    if plan.urgent and call.version < STORAGE_ERROR_VERSION:
        for row in rows.values():
            if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    return response


def refuse_fetch(request: m.FetchRequest, version: int, code: ErrorCode) -> m.FetchResponse:
    """The same error for every partition, and for the whole where the version has a place for it."""
    rows = {wanted: _failed_row(wanted, code) for wanted in _wanted_partitions(request, version)}
    for row in rows.values():
        row.aborted_transactions = [] if code in NOT_FOUND else None
    top = code if version >= SESSION_VERSION else ErrorCode.NONE
    return m.FetchResponse(error_code=top, responses=_by_topic(rows))


def _name_leaders(broker: Broker, call: Call, rows: Rows, response: m.FetchResponse) -> None:
    """Beside an error that means another leader, say who leads now and where it is reached (KIP-951)."""
    hints = LeaderHints(broker, call.listener)
    for wanted, row in rows.items():
        if row.error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            continue
        name = broker.metadata.topic_name(wanted.topic) if isinstance(wanted.topic, bytes) else wanted.topic
        leader = hints.leader_of(name or "", wanted.partition_index)
        if leader is not None:
            row.current_leader = m.FetchResponse.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    response.node_endpoints = [
        m.FetchResponse.NodeEndpoint(node_id=node.broker_id, host=node.host, port=node.port, rack=node.rack)
        for node in hints.nodes.values()
    ]


# -- sessions


def _open(
    broker: Broker, call: Call, request: m.FetchRequest
) -> tuple[FetchSession | None, list[Wanted], bool] | ErrorCode:
    """(session or None, partitions of a request without session, whether it is incremental)."""
    sessions, now = broker.fetch_sessions, trio.current_time()
    if call.version < SESSION_VERSION or request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if request.session_id != NO_SESSION_ID:
            sessions.close(request.session_id)
        wanted = _wanted_partitions(request, call.version)
        if call.version < SESSION_VERSION or request.session_epoch == FINAL_EPOCH:
            return None, wanted, False
        slots, of_follower = broker.config.max_incremental_fetch_session_cache_slots, _replica_id(call, request) >= 0
        session = sessions.create(now, slots, len(wanted), of_follower=of_follower)
        if session is None:
            return None, wanted, False
        session.uses_topic_ids = call.version >= TOPIC_ID_VERSION
        for each in wanted:
            session.want(each)
        return session, [], False
    continued = sessions.continue_session(
        request.session_id, request.session_epoch, now, uses_topic_ids=call.version >= TOPIC_ID_VERSION
    )
    if isinstance(continued, ErrorCode):
        return continued
    for change in _wanted_partitions(request, call.version):
        _update(continued, change)
    for forgotten in request.forgotten_topics_data:
        topic = forgotten.topic_id if call.version >= TOPIC_ID_VERSION else forgotten.topic
        for index in forgotten.partitions:
            continued.forget((topic, index))
    if not continued.wanted:
        sessions.close(continued.session_id)
        return None, [], False
    return continued, [], True


def _update(session: FetchSession, change: Wanted) -> None:
    """A partition named in an incremental request: new, or with another position; what it was told stays known."""
    known = session.wanted.get((change.topic, change.partition_index))
    if known is None:
        session.want(change)
        return
    known.fetch_offset = change.fetch_offset
    known.max_bytes = change.max_bytes
    known.current_leader_epoch = change.current_leader_epoch
    known.last_fetched_epoch = change.last_fetched_epoch
    known.log_start_offset = change.log_start_offset
    session.want(known)


async def _fill_from_session(plan: FetchPlan, session: FetchSession, request: m.FetchRequest) -> None:
    """Plan what is due, and what becomes due while waiting."""
    deadline = trio.current_time() + request.max_wait_ms / 1000
    due: list[Wanted] = []
    plan.pulse = session.pulse
    session.pulse.broker_epoch = plan.broker_epoch
    began_ms = plan.broker.isr_changes.now_ms()
    try:
        while True:
            due = session.take_due()
            for number, wanted in enumerate(due, 1):
                session.watch(wanted, plan.plan(wanted))
                await _give_way(number)
            session.pulse.last_fetch_ms = began_ms  # of what is not due, nothing changed until then
            if _enough(plan, request) or not session.is_watching or not await session.waiter.wait(deadline):
                return
            plan.has_waited = True
    except BaseException:
        session.due.update(dict.fromkeys([*plan.rows, *due]))
        raise


def _told(plan: FetchPlan, session: FetchSession, *, incremental: bool) -> Rows:
    """The rows that the answer holds, remembered as told; failures, left-over data and who is to join stay due."""
    rows: Rows = {}
    served: list[Wanted] = []
    for wanted, row in plan.rows.items():
        has_news = row.error_code != 0 or _records_bytes(row) > 0 or row.diverging_epoch.epoch >= 0
        if has_news:
            served.append(wanted)  # there may be more
        elif wanted in plan.left_over or plan.is_joining(wanted):
            session.due[wanted] = None  # first of all the next time
        offsets = row.high_watermark, row.log_start_offset
        if has_news or not incremental or offsets != (wanted.sent_high_watermark, wanted.sent_log_start_offset):
            rows[wanted] = row
        wanted.sent_high_watermark, wanted.sent_log_start_offset = offsets
    session.due.update(dict.fromkeys(served))
    return rows


# -- without a session


async def _fill(plan: FetchPlan, wanted: Iterable[Wanted], request: m.FetchRequest) -> None:
    """Plan everything; while too little is there, wait for changes and plan those again."""
    deadline = trio.current_time() + request.max_wait_ms / 1000
    found: dict[Watched, Wanted] = {}
    waiter = Waiter(sleeps_through_commits=plan.replica_id >= 0)
    try:
        for number, each in enumerate(wanted, 1):
            partition = plan.plan(each)
            if partition is not None:
                found[partition] = each
                waiter.register([partition])  # in the step that planned it: no change in between is missed
            await _give_way(number)
        while found and not _enough(plan, request) and await waiter.wait(deadline):
            plan.has_waited = True
            for changed in waiter.take_dirty():
                plan.plan(found[changed])
    finally:
        waiter.unregister(found)


async def _give_way(number: int) -> None:
    """Give others a turn after so many partitions."""
    if number % PARTITIONS_AT_A_TIME == 0:
        await trio.lowlevel.checkpoint()


def _enough(plan: FetchPlan, request: m.FetchRequest) -> bool:
    return plan.urgent or plan.planned_bytes >= plan.min_bytes or request.max_wait_ms <= 0


# -- requests and rows


def _replica_id(call: Call, request: m.FetchRequest) -> int:
    """The follower that asks; negative where it is a consumer."""
    return request.replica_state.replica_id if call.version >= REPLICA_STATE_VERSION else request.replica_id


def _wanted_partitions(request: m.FetchRequest, version: int) -> list[Wanted]:
    """What the request names; of a partition that is named twice, the last counts."""
    named: dict[Key, Wanted] = {}
    for topic in request.topics:
        name = topic.topic_id if version >= TOPIC_ID_VERSION else topic.topic
        for partition in topic.partitions:
            wanted = named[name, partition.partition] = Wanted(name, partition.partition)
            wanted.fetch_offset = partition.fetch_offset
            wanted.max_bytes = partition.partition_max_bytes
            wanted.current_leader_epoch = partition.current_leader_epoch
            wanted.last_fetched_epoch = partition.last_fetched_epoch
            wanted.log_start_offset = partition.log_start_offset
    return list(named.values())


def _find(broker: Broker, call: Call, wanted: Wanted) -> Partition | ErrorCode:
    if isinstance(wanted.topic, bytes):
        name = broker.replicas.topic_name(wanted.topic)
        if name is None:
            return _why_id_is_gone(broker, wanted)
        wanted.name = name
    else:
        name = wanted.topic
    if not call.authorize("Read", "Topic", name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return broker.replicas.get(name, wanted.partition_index)


def _why_id_is_gone(broker: Broker, wanted: Wanted) -> ErrorCode:
    """A topic that this request or session has met is asked for by its name from then on, as in Kafka."""
    if wanted.name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    was_created_again = wanted.name in broker.metadata.topics
    return ErrorCode.INCONSISTENT_TOPIC_ID if was_created_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _row_at(partition: Partition, log: PartitionLog, wanted: Wanted, read_committed: bool) -> Row:
    """A row without records: where the partition stands."""
    return Row(
        partition_index=wanted.partition_index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=[] if read_committed else None,
        records=b"",
    )


def _failed_row(wanted: Wanted, code: ErrorCode) -> Row:
    return Row(
        partition_index=wanted.partition_index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=None,
        records=b"",
    )


def _unfit_row(wanted: Wanted, code: ErrorCode) -> Row:
    """There are records, and not in a form for this version: Kafka says so without any."""
    row = _failed_row(wanted, code)
    row.aborted_transactions, row.records = [], None
    return row


def _by_topic(rows: Rows) -> list[m.FetchResponse.FetchableTopicResponse]:
    """Rows in their order, neighbours of the same topic together."""
    topics: list[m.FetchResponse.FetchableTopicResponse] = []
    current: str | bytes | None = None
    members: list[Row] = []
    for wanted, row in rows.items():
        if wanted.topic != current:
            current, members = wanted.topic, []
            topic = m.FetchResponse.FetchableTopicResponse(partitions=members)
            if isinstance(current, bytes):
                topic.topic_id = current
            else:
                topic.topic = current
            topics.append(topic)
        members.append(row)
    return topics


def _read_through(piece: FileSlice) -> None:
    piece.file.will_need(piece.position, piece.size_bytes)
    for position in range(piece.position, piece.position + piece.size_bytes, WARM_STEP_BYTES):
        piece.file.read(position, min(WARM_STEP_BYTES, piece.position + piece.size_bytes - position))


def _records_bytes(row: Row) -> int:
    records = row.records
    if records is None:
        return 0
    return len(records) if isinstance(records, (bytes, bytearray, memoryview)) else records.size_bytes


def _converted(records: "m.Records | None", first_offset: int, magic: int, max_bytes: int) -> bytes:
    """Records as messages of this format."""
    data = b""
    if isinstance(records, FileSlice):
        data = records.read()
    elif isinstance(records, (bytes, bytearray, memoryview)):
        data = bytes(records)
    return down_convert(data, magic, first_offset=first_offset, max_bytes=max_bytes)


def _release(row: Row) -> None:
    if isinstance(row.records, FileSlice):
        row.records.release()
