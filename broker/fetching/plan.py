"""What a Fetch has planned so far: rows by partition, without copying records.

A plan takes a bounded look at each wanted partition, and looks again when the partition changed. Small reads travel
inside the answer, large ones as file slices that the connection sends; what the page cache does not hold is read ahead
in a thread. The handler (`handlers/fetch.py`) decides what is planned and when the answer is sent.
"""

from barnabas.broker.call import Broker, Call
from barnabas.broker.fetching.preferred_replica import RACK_AWARE_SELECTOR, choose_replica
from barnabas.broker.pacing import complete
from barnabas.broker.replication.fetch_sessions import Wanted
from barnabas.broker.replication.isr import Pulse
from barnabas.broker.replication.partition import Partition
from barnabas.storage.disk import FileSlice, StorageError
from barnabas.storage.epochs import UNDEFINED_EPOCH
from barnabas.storage.log import PartitionLog
from barnabas.wire import messages as m
from barnabas.wire.compression import CorruptRecords
from barnabas.wire.downconvert import Unconvertible, down_convert
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import FETCH_REPLICA_STATE_VERSION, NO_LEADER_EPOCH, READ_COMMITTED, UNKNOWN_BROKER_EPOCH

MESSAGE_FORMAT_1_VERSION = 2  # before, readers know format 0 alone
RECORD_FORMAT_2_VERSION = 4
ZSTD_VERSION = 10
FOLLOWERS_SERVE_VERSION = 11
INLINE_READ_BYTES_MAX = 1 << 15  # below this, read-and-join beats one more system call for sendfile
# Of one answer: it stays in memory until the client has read it, and nothing else bounds the number of such answers.
INLINE_TOTAL_BYTES_MAX = 1 << 20
# Of one answer: each holds the descriptor of a sealed segment until it is sent. Active segments are open in any case.
SEALED_SLICES_MAX = 64
# Of one answer to a reader of before 0.11: what is converted, and what it becomes, are held in memory (a first batch or
# message may be larger). Kafka converts up to what was asked for.
CONVERTED_BYTES_MAX = 1 << 21
WARM_STEP_BYTES = 1 << 18
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
        self.replica_id = replica_id(call, request)
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        if call.version >= FETCH_REPLICA_STATE_VERSION:
            self.broker_epoch = request.replica_state.replica_epoch
        self.pulse: Pulse | None = None  # of the session in which a follower fetches
        self.may_read_follower = self.replica_id < 0 and call.version >= FOLLOWERS_SERVE_VERSION
        self.rack = ""  # of a consumer that may be sent to a follower
        if self.may_read_follower and broker.config.replica_selector_class == RACK_AWARE_SELECTOR:
            self.rack = request.rack_id
        self.read_committed = request.isolation_level == READ_COMMITTED and self.replica_id < 0
        bytes_max = broker.config.fetch_max_bytes
        if call.version < RECORD_FORMAT_2_VERSION:
            bytes_max = min(bytes_max, CONVERTED_BYTES_MAX)
        self.bytes_max = self.bytes_left = min(request.max_bytes, bytes_max)
        self.min_bytes = min(request.min_bytes, self.bytes_left)
        self.rows: Rows = {}
        self.partitions: dict[Wanted, Partition] = {}
        self.left_over: dict[Wanted, None] = {}  # there is something to read, and no room for it
        self._carrying: dict[Wanted, Row] = {}  # the rows that hold records
        self._inline_bytes = 0
        self._sealed: set[Wanted] = set()  # whose records are a slice of a sealed segment
        self.planned_bytes = 0
        self.urgent = False
        self.has_waited = False

    def plan(self, wanted: Wanted) -> Partition | None:
        """Plan (again) one partition; returns it when it is hosted here, so that its changes can be watched."""
        before = self.rows.pop(wanted, None)
        if before is not None:
            self._take_back(wanted)
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
            self._take_back(wanted)
            self._fail(wanted, partition.fail_storage(error))
        return partition

    def is_joining(self, wanted: Wanted) -> bool:
        """Whether a follower fetches this that is not in sync: it joins by a fetch, perhaps one that names nothing."""
        partition = self.partitions.get(wanted)
        return wanted.follower is not None and partition is not None and not partition.is_in_sync(wanted.follower)

    async def warm(self) -> None:
        """Read ahead, in a thread, what the page cache does not hold: `sendfile` on the loop would wait for it."""
        for wanted, row in list(self._carrying.items()):
            piece = row.records
            if not isinstance(piece, FileSlice):
                continue
            try:
                if not piece.file.resident(piece.position, piece.size_bytes):
                    async with self.broker.cold_reads:
                        await self.broker.world.in_thread(_read_through, piece)
            except StorageError as error:
                self._take_back(wanted)
                self._fail(wanted, self.partitions[wanted].fail_storage(error))

    async def convert(self) -> None:
        """Rewrite the records of a reader of before 0.11 in the format that it knows.

        What a small batch decompresses to is limited by what was asked for, and all of it by `fetch.max.bytes`: beyond
        it the partitions that come last get nothing this time. What takes long goes in steps to a thread.
        """
        magic = 1 if self.call.version >= MESSAGE_FORMAT_1_VERSION else 0
        bytes_left = self.bytes_max
        for wanted, row in self._carrying.items():
            max_bytes = min(wanted.max_bytes, bytes_left)
            if bytes_left <= 0:
                _release(row)
                row.records = b""
                continue
            try:
                converted = await self._converted(row.records, wanted.fetch_offset, magic, max_bytes)
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

    async def _converted(self, records: "m.Records | None", first_offset: int, magic: int, max_bytes: int) -> bytes:
        """Records as messages of this format."""
        world, data = self.broker.world, b""
        if isinstance(records, FileSlice):
            data = await world.in_thread(records.read)
        elif isinstance(records, (bytes, bytearray, memoryview)):
            data = bytes(records)
        converting = down_convert(data, magic, first_offset=first_offset, max_bytes=max_bytes)
        return await complete(converting, world.in_request_thread)

    def _why_unconverted(self, wanted: Wanted, error: Exception) -> ErrorCode:
        if isinstance(error, StorageError):
            return self.partitions[wanted].fail_storage(error)
        is_damaged = isinstance(error, CorruptRecords)
        return ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def release(self) -> None:
        """Give back the file slices of a plan that will not be sent."""
        for row in self._carrying.values():
            _release(row)

    def _fail(self, wanted: Wanted, code: ErrorCode) -> None:
        """Answer at once; but what is not there from the start must not keep a client from waiting for the rest."""
        row = self.rows[wanted] = failed_row(wanted, code)
        if code in NOT_FOUND and not self.has_waited:
            row.aborted_transactions = ()
        else:
            self.urgent = True

    def _take_back(self, wanted: Wanted) -> None:
        row = self._carrying.pop(wanted, None)
        if row is None:
            return
        size = records_bytes(row)
        self.planned_bytes -= size
        self.bytes_left += size
        if isinstance(row.records, FileSlice):
            self._sealed.discard(wanted)
            row.records.release()
        else:
            self._inline_bytes -= size

    def _read(self, partition: Partition, wanted: Wanted) -> Row:
        refused = self._refuse(partition, wanted)
        log = partition.log
        if refused or log is None:
            self.urgent = True
            return failed_row(wanted, refused or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.call.version < ZSTD_VERSION and partition.config.compression_type == "zstd":
            self.urgent = True
            return _unfit_row(wanted, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if self.call.version < RECORD_FORMAT_2_VERSION and not partition.config.message_downconversion_enable:
            self.urgent = True
            return _unfit_row(wanted, ErrorCode.UNSUPPORTED_VERSION)
        row = _row_at(partition, log, wanted, self.read_committed)
        # A consumer that names its rack reads from a replica there, and asks the leader no more (KIP-392).
        if self.rack and partition.is_leader:
            preferred = self._preferred_replica(partition, wanted)
            if preferred is not None:
                row.preferred_read_replica, row.aborted_transactions = preferred, None
                self.urgent = True
                return row
        if wanted.last_fetched_epoch >= 0 and self._diverges(log, wanted, row):
            return row
        # Followers read to the log end, consumers only what is committed, or what is decided with read_committed.
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
            return failed_row(wanted, read)
        # The fetch offset says what the follower has. It counts once, when the request comes: if the request waits and
        # is planned again, the follower has not fetched in between.
        if self.replica_id >= 0 and not self.has_waited:
            self._note_progress(partition, wanted, row)
        try:
            aborted = log.aborted_transactions(wanted.fetch_offset, end_offset) if self.read_committed else []
        except CorruptRecords:  # the index is damaged; the next start, truncation or compaction rebuilds it
            self.urgent = True
            if read.slice is not None:
                read.slice.release()
            return failed_row(wanted, ErrorCode.CORRUPT_MESSAGE)
        if read.slice is not None and self._add_records(log, wanted, row, read.slice):
            if self.read_committed:
                row.aborted_transactions = [
                    m.FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
                    for producer_id, first_offset in aborted
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
        """A follower's fetch is in order; if it raised the high watermark, this very response says so."""
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
        parted = log.epochs.divergence(wanted.last_fetched_epoch, wanted.fetch_offset, log.log_end_offset)
        if parted is None:
            return False
        epoch, end_offset = parted
        if epoch == UNDEFINED_EPOCH:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            row.high_watermark = row.last_stable_offset = row.log_start_offset = -1
        else:
            row.diverging_epoch = m.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        self.urgent = True
        return True

    def _add_records(self, log: PartitionLog, wanted: Wanted, row: Row, piece: FileSlice) -> bool:
        """Let the row carry these records, as bytes or as the slice; False if the answer has no room for a slice."""
        size = piece.size_bytes
        may_be_inline = size <= min(INLINE_READ_BYTES_MAX, INLINE_TOTAL_BYTES_MAX - self._inline_bytes)
        try:
            data = piece.file.read_resident(piece.position, size) if may_be_inline else None
        except StorageError:
            piece.release()
            raise
        row.records = piece if data is None else data
        if data is not None:
            piece.release()
            self._inline_bytes += size
        elif piece.file is not log.segments.active.file:
            if len(self._sealed) >= SEALED_SLICES_MAX:
                piece.release()
                row.records = b""
                return False
            self._sealed.add(wanted)
        self._carrying[wanted] = row
        self.planned_bytes += size
        self.bytes_left -= size
        return True


def replica_id(call: Call, request: m.FetchRequest) -> int:
    """The follower that asks; negative where it is a consumer."""
    return request.replica_state.replica_id if call.version >= FETCH_REPLICA_STATE_VERSION else request.replica_id


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
    partition = broker.replicas.get(name, wanted.partition_index)
    # The id was looked up by name, and a topic of the same name may have taken the place of the one that is asked for.
    log = None if isinstance(partition, ErrorCode) else partition.log
    if log is not None and isinstance(wanted.topic, bytes) and log.topic_id not in (None, wanted.topic):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return partition


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
        aborted_transactions=() if read_committed else None,
        records=b"",
    )


def failed_row(wanted: Wanted, code: ErrorCode) -> Row:
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
    row = failed_row(wanted, code)
    row.aborted_transactions, row.records = [], None
    return row


def _read_through(piece: FileSlice) -> None:
    piece.file.will_need(piece.position, piece.size_bytes)
    for position in range(piece.position, piece.position + piece.size_bytes, WARM_STEP_BYTES):
        piece.file.read(position, min(WARM_STEP_BYTES, piece.position + piece.size_bytes - position))


def records_bytes(row: Row) -> int:
    records = row.records
    if records is None:
        return 0
    return len(records) if isinstance(records, (bytes, bytearray, memoryview)) else records.size_bytes


def _release(row: Row) -> None:
    if isinstance(row.records, FileSlice):
        row.records.release()
