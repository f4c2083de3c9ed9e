"""Plans the response to one Fetch: a row for each partition, without copying large reads.

The handler (`handlers/fetch.py`) calls `plan` for each partition, and again when a partition changed while the request
waits. Before it sends the rows it calls `warm`, and `convert` for clients before 0.11. If it sends nothing, it calls
`release`.

A row carries its records as bytes if the read is small and in the page cache, or else as a file slice, which the
connection sends with `sendfile`.
"""

from collections.abc import Iterator

from barnabas.broker.call import Broker, Call
from barnabas.broker.fetching.preferred_replica import RACK_AWARE_SELECTOR, choose_replica
from barnabas.replication.confirmation import is_fetch_awaited
from barnabas.replication.fetch_sessions import Wanted
from barnabas.replication.isr import Pulse
from barnabas.replication.partition import Partition
from barnabas.storage.disk import FileSlice, StorageError
from barnabas.storage.epochs import UNDEFINED_EPOCH
from barnabas.storage.log import PartitionLog
from barnabas.storage.segments import Read
from barnabas.wire import messages as m
from barnabas.wire.compression import CorruptRecords
from barnabas.wire.downconvert import Unconvertible, down_convert
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import FETCH_REPLICA_STATE_VERSION, NO_LEADER_EPOCH, READ_COMMITTED, UNKNOWN_BROKER_EPOCH
from barnabas.world.pacing import complete

# Fetch versions.
MESSAGE_FORMAT_1_VERSION = 2  # clients below it know message format 0 only
RECORD_FORMAT_2_VERSION = 4  # clients below it know message formats 0 and 1 only
ZSTD_VERSION = 10  # KIP-110
FOLLOWERS_SERVE_VERSION = 11  # KIP-392
# A read up to this size is copied into the response, which costs less than the system calls of a
# file slice. The limit for followers is higher, because they read each response at once.
INLINE_READ_BYTES_MAX = 1 << 15
INLINE_READ_BYTES_MAX_OF_FOLLOWERS = 1 << 17
# Bytes that one response may copy: they stay in memory until the client has read them, and nothing
# bounds the number of such responses.
INLINE_TOTAL_BYTES_MAX = 1 << 20
# The limit is for one response: each slice holds the descriptor of a sealed segment until it is
# sent. Active segments are open anyway.
SEALED_SLICES_MAX = 64
# The limit is for one response to a client before 0.11: the records are held in memory before and
# after the conversion (a first batch or message may be larger). Kafka converts up to the requested
# bytes.
CONVERTED_BYTES_MAX = 1 << 21
COUNTED_AT_A_TIME = 1000  # partitions whose bytes are counted between two checkpoints: half a millisecond
WARM_STEP_BYTES = 1 << 18  # read at a time, only to wait for the disk: the bytes are dropped
# `_ask_ahead` asks for as many bytes as were read. A read below the minimum is not taken for a part
# of a long one; to ask for more than the maximum may wait for the disk.
AHEAD_BYTES_MIN = 1 << 16
AHEAD_BYTES_MAX = 1 << 20
NOT_FOUND = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)

Aborted = m.FetchResponse.AbortedTransaction
Row = m.FetchResponse.PartitionData
Rows = dict[Wanted, Row]


class FetchPlan:
    """The rows planned so far for one request, their bytes (`planned_bytes`), and whether to answer now (`urgent`)."""

    def __init__(self, broker: Broker, call: Call, request: m.FetchRequest) -> None:
        self.broker = broker
        self.call = call
        self.replica_id = replica_id(call, request)

        # Followers are under the quotas of replication instead (KIP-73).
        self.is_under_quota = broker.quotas.is_active and self.replica_id < 0 and call.connection is not None
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        if call.version >= FETCH_REPLICA_STATE_VERSION:
            self.broker_epoch = request.replica_state.replica_epoch
        self.pulse: Pulse | None = None  # of a follower's fetch session
        self.may_read_follower = self.replica_id < 0 and call.version >= FOLLOWERS_SERVE_VERSION
        self.rack = ""  # the consumer's, if the response may name a preferred replica
        if self.may_read_follower and broker.config.replica_selector_class == RACK_AWARE_SELECTOR:
            self.rack = request.rack_id
        self.read_committed = request.isolation_level == READ_COMMITTED and self.replica_id < 0
        bytes_max = broker.config.fetch_max_bytes
        if call.version < RECORD_FORMAT_2_VERSION:
            bytes_max = min(bytes_max, CONVERTED_BYTES_MAX)

        # A response above what the quota allows in its whole window would exceed the quota however
        # long the client waited.
        if self.is_under_quota:
            at_a_time = broker.quotas.fetched.at_a_time(*call.quota_user)
            bytes_max = bytes_max if at_a_time is None else min(bytes_max, int(at_a_time))
        self.bytes_max = self.bytes_left = min(request.max_bytes, bytes_max)

        # Otherwise a `min_bytes` above `max_bytes` would always wait for the whole `max_wait_ms`.
        self.min_bytes = min(request.min_bytes, self.bytes_left)
        self.rows: Rows = {}
        self.partitions: dict[Wanted, Partition] = {}
        self.throttled: dict[Wanted, None] = {}  # a follower's partitions under KIP-73: their bytes count for the rate
        self.left_over: dict[Wanted, None] = {}  # partitions with records to read and no room in the response
        self._carrying: dict[Wanted, Row] = {}  # the rows that hold records
        self._inline_bytes = 0
        is_follower = self.replica_id >= 0
        self._inline_bytes_max = INLINE_READ_BYTES_MAX_OF_FOLLOWERS if is_follower else INLINE_READ_BYTES_MAX
        self.has_slices = False  # whether a row may carry a file slice
        self._sealed: set[Wanted] = set()  # partitions whose records are a slice of a sealed segment
        self.planned_bytes = 0
        self.awaited: dict[Wanted, None] = {}  # partitions whose leader waits for the follower's next fetches
        self.urgent = False  # an error, a diverging epoch or a preferred replica: answer without waiting

        # The handler sets this before it plans changed partitions again. From then on the request's
        # fetch offsets are old: they say nothing of the records that were appended during the wait.
        self.has_waited = False

    def plan(self, wanted: Wanted) -> Partition | None:
        """Plan one partition, or plan it again. Returns it if this broker hosts it, for the caller to watch it."""
        before = self.rows.pop(wanted, None)
        if before is not None:
            self._take_back(wanted)
            self.left_over.pop(wanted, None)
            self.awaited.pop(wanted, None)

        # Only a valid fetch counts as progress: `_note_progress` sets `wanted.follower` again if this one is valid.
        if wanted.follower is not None and not self.has_waited:
            wanted.part()
        partition = _find(self.broker, self.call, wanted, of_follower=self.replica_id >= 0)
        if isinstance(partition, ErrorCode):
            self._fail(wanted, partition)
            return None
        self.partitions[wanted] = partition
        if not self.has_waited:
            partition.tally.fetch_requests += 1
        try:
            self.rows[wanted] = self._read(partition, wanted)
        except StorageError as error:
            self._take_back(wanted)
            self._fail(wanted, partition.fail_storage(error))

        if self.replica_id >= 0 and is_fetch_awaited(partition, self.replica_id):
            self.awaited[wanted] = None
        return partition

    def is_joining(self, wanted: Wanted) -> bool:
        """Whether this is the fetch of a follower outside the ISR: any fetch of its session may let it join."""
        partition = self.partitions.get(wanted)
        return wanted.follower is not None and partition is not None and not partition.is_in_sync(wanted.follower)

    def is_warm(self) -> bool:
        """Whether all slices are in the page cache; then what comes behind them is asked for. False if that fails."""
        slices = [row.records for row in self._carrying.values() if isinstance(row.records, FileSlice)]
        try:
            if not all(piece.file.resident(piece.position, piece.size_bytes) for piece in slices):
                return False
            for piece in slices:
                _ask_ahead(piece)
        except StorageError:
            return False  # then `warm` gets the error and fails the row
        return True

    async def warm(self) -> None:
        """Read into the page cache, in a thread, the slices that it does not hold. A failed read fails its row."""
        # `sendfile` runs on the event loop and would block it for the disk.
        for wanted, row in list(self._carrying.items()):
            piece = row.records
            if not isinstance(piece, FileSlice):
                continue
            try:
                if not piece.file.resident(piece.position, piece.size_bytes):
                    # The cold reads are bounded: they must leave worker threads for writes, flushes
                    # and the store.
                    async with self.broker.cold_reads:
                        await self.broker.world.in_thread(_read_through, piece)
                _ask_ahead(piece)
            except StorageError as error:
                self._take_back(wanted)
                self._fail(wanted, self.partitions[wanted].fail_storage(error))

    async def convert(self) -> None:
        """Rewrite the records for a client before 0.11 in message format 0 or 1.

        Each partition gets at most the bytes that the request allows for it, and all together `bytes_max`.
        """
        magic = 1 if self.call.version >= MESSAGE_FORMAT_1_VERSION else 0

        # The bytes are counted again, because a small batch may decompress to many times its size.
        bytes_left = self.bytes_max
        for wanted, row in self._carrying.items():
            max_bytes = min(wanted.max_bytes, bytes_left)

            # The last partitions get nothing this time; the client fetches them with its next request.
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

                # For a codec that clients of this version do not know, Kafka answers null records.
                if isinstance(error, Unconvertible):
                    self.rows[wanted] = _unfit_row(wanted, code)
            else:
                _release(row)
                row.records = converted
                self.partitions[wanted].tally.fetch_conversions += 1
                bytes_left -= len(converted)

    async def _converted(self, records: "m.Records | None", first_offset: int, magic: int, max_bytes: int) -> bytes:
        """The records in message format `magic`, from `first_offset` on."""
        world = self.broker.world
        data = b""
        if isinstance(records, FileSlice):
            data = await world.in_thread(records.read)
        elif isinstance(records, (bytes, bytearray, memoryview)):
            data = bytes(records)
        # Decompression runs in steps: a client chose the records, and their cost is not known in
        # advance.
        converting = down_convert(data, magic, first_offset=first_offset, max_bytes=max_bytes)
        return await complete(converting, world.in_request_thread)

    def _why_unconverted(self, wanted: Wanted, error: Exception) -> ErrorCode:
        if isinstance(error, StorageError):
            return self.partitions[wanted].fail_storage(error)
        is_damaged = isinstance(error, CorruptRecords)
        return ErrorCode.CORRUPT_MESSAGE if is_damaged else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE

    def release(self) -> None:
        """Release the file slices of a plan that will not be sent: each holds a segment's file open."""
        for row in self._carrying.values():
            _release(row)

    def _fail(self, wanted: Wanted, code: ErrorCode) -> None:
        """Set an error row, and answer at once unless the partition was missing from the start."""
        row = self.rows[wanted] = failed_row(wanted, code)
        # An answer at once would make a client that names one missing partition in every fetch poll in a loop.
        if code in NOT_FOUND and not self.has_waited:
            row.aborted_transactions = ()
        else:
            self.urgent = True

    def _take_back(self, wanted: Wanted) -> None:
        # The bytes and the slice no longer count against the limits, so other partitions may use them.
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
        # During a truncation a thread changes the epochs and producers, of which the row is made.
        if refused or log is None or log.is_being_cut:
            self.urgent = True
            return failed_row(wanted, refused or ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # The version is checked first, because nearly all clients are newer.
        if self.call.version < ZSTD_VERSION and (unfit := self._why_unfit(partition)):
            self.urgent = True
            return _unfit_row(wanted, unfit)
        row = _row_at(partition, log, wanted, self.read_committed)
        if self.rack and partition.is_leader and self._is_redirected(partition, wanted, row):
            self.urgent = True
            return row
        is_held_back = self.replica_id >= 0 and self._is_held_back(partition, wanted)

        # This precedes the read: a follower that led before may fetch beyond the end of this log, and
        # the read would answer OFFSET_OUT_OF_RANGE instead of the offset to truncate to.
        if wanted.last_fetched_epoch >= 0 and self._diverges(log, wanted, row):
            return row

        # Followers read to the log end offset, consumers to the high watermark, or to the LSO with read_committed.
        end_offset = log.log_end_offset
        if self.replica_id < 0:
            end_offset = row.last_stable_offset if self.read_committed else row.high_watermark
        read = partition.read(
            wanted.fetch_offset,
            max_bytes=0 if is_held_back else max(0, min(wanted.max_bytes, self.bytes_left)),
            end_offset=end_offset,
            at_least_one=self.planned_bytes == 0 and not is_held_back,
        )
        if isinstance(read, ErrorCode):
            self.urgent = True
            return failed_row(wanted, read)

        # The fetch offset is the follower's log end offset. It counts once, when the request arrives: a request that
        # is planned again after a wait says nothing new. This follows the read, which refuses an offset out of range.
        if self.replica_id >= 0 and not self.has_waited:
            self._note_progress(partition, wanted, row)
        aborted = self._aborted_in(log, read, wanted, end_offset) if self.read_committed else None
        if self.read_committed and aborted is None:
            self.urgent = True
            partition.tally.failed_fetch_requests += 1
            return failed_row(wanted, ErrorCode.CORRUPT_MESSAGE)

        if read.slice is not None and self._add_records(log, wanted, row, read.slice):
            if aborted is not None:
                row.aborted_transactions = aborted
        elif wanted.fetch_offset < end_offset:
            self.left_over[wanted] = None

        return row

    def _why_unfit(self, partition: Partition) -> ErrorCode:
        """Why a client of this version cannot be sent the records of a topic; NONE if it can."""
        # The topic's configuration decides, since the batches are not looked into, as in Kafka (KIP-110).
        if partition.config.compression_type == "zstd":
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if self.call.version < RECORD_FORMAT_2_VERSION and not partition.config.message_downconversion_enable:
            return ErrorCode.UNSUPPORTED_VERSION
        return ErrorCode.NONE

    def _is_redirected(self, partition: Partition, wanted: Wanted, row: Row) -> bool:
        """Whether a consumer that names its rack shall fetch from a replica there from now on (KIP-392)."""
        preferred = self._preferred_replica(partition, wanted)
        if preferred is None:
            return False
        # As in Kafka, the row that names the replica has no records.
        row.preferred_read_replica = preferred
        row.aborted_transactions = None
        return True

    @staticmethod
    def _aborted_in(log: PartitionLog, read: Read, wanted: Wanted, end_offset: int) -> list[Aborted] | None:
        """The aborted transactions in what was read; None, and the read is released, if their index is damaged."""
        try:
            found = log.aborted_in(read, wanted.fetch_offset, end_offset)
        except (CorruptRecords, StorageError) as error:
            if read.slice is not None:
                read.slice.release()
            if isinstance(error, StorageError):
                raise
            # The next start, truncation or compaction rebuilds the index. Without it a read_committed consumer would
            # see aborted records, so it gets an error.
            return None
        # Usually `found` is empty.
        return (
            [Aborted(producer_id=each.producer_id, first_offset=each.first_offset) for each in found] if found else []
        )

    def _is_held_back(self, partition: Partition, wanted: Wanted) -> bool:
        """Whether a follower outside the ISR gets no records now, because it is throttled (KIP-73)."""
        throttle = self.broker.quotas.as_leader
        if not throttle.covers(partition.config, wanted.partition_index):
            return False
        self.throttled[wanted] = None
        return self.replica_id not in partition.in_sync_replicas and throttle.throttle_seconds() > 0

    def count_sent_of_one(self) -> bool:
        """As `count_sent`, of a response with the records of one partition or none; False of others."""
        carrying = self._carrying
        if len(carrying) > 1:
            return False
        for wanted in carrying:
            tally = self.partitions[wanted].tally
            if self.replica_id >= 0:
                tally.replication_bytes_out += self.planned_bytes
            else:
                tally.bytes_out += self.planned_bytes
        return True

    def count_sent(self) -> Iterator[None]:
        """Count the records that the response carries; yields now and then, if there are many partitions."""
        is_follower = self.replica_id >= 0
        for number, (wanted, row) in enumerate(self._carrying.items(), 1):
            tally = self.partitions[wanted].tally
            if is_follower:
                tally.replication_bytes_out += records_bytes(row)
            else:
                tally.bytes_out += records_bytes(row)
            # A response may carry thousands of partitions with a few bytes each: counting them needs checkpoints.
            if number % COUNTED_AT_A_TIME == 0:
                yield

    def note_throttled(self) -> None:
        """Count what is sent to throttled followers, those in the ISR included."""
        sent_bytes = sum(records_bytes(self.rows[wanted]) for wanted in self.throttled if wanted in self.rows)
        self.broker.quotas.as_leader.note(sent_bytes)

    def _refuse(self, partition: Partition, wanted: Wanted) -> ErrorCode:
        """The checks of the leader epoch and the role (reference C.5)."""
        refused = partition.check_leader_epoch(max(wanted.current_leader_epoch, NO_LEADER_EPOCH))
        if refused:
            return refused
        if not partition.is_leader:
            return ErrorCode.NONE if self.may_read_follower else ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.replica_id < 0 or self.replica_id in partition.followers:
            return ErrorCode.NONE
        # The LeaderAndIsr that adds this follower may not have reached this leader yet, and the
        # follower retries after UNKNOWN_LEADER_EPOCH, as in Kafka.
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if wanted.current_leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _note_progress(self, partition: Partition, wanted: Wanted, row: Row) -> None:
        """Take over the progress of a follower's valid fetch."""
        wanted.follower = partition.follower_fetched(
            self.replica_id,
            wanted.fetch_offset,
            log_start_offset=wanted.log_start_offset,
            broker_epoch=self.broker_epoch,
            pulse=self.pulse,
            connection=self.call.connection_number,
        )
        # This fetch may have raised the high watermark and the LSO, so the row, made before, gets the new ones.
        row.high_watermark = partition.high_watermark
        row.last_stable_offset = partition.last_stable_offset

    def _preferred_replica(self, partition: Partition, wanted: Wanted) -> int | None:
        # Only ISR members are chosen: a follower that falls behind would keep its consumers behind
        # as well.
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
        """Whether the fetcher's log diverges from this one (KIP-595); the row then gets the diverging epoch.

        It diverges if its last fetched epoch ends here below its fetch offset.
        """
        # The log end offset counts here, because a follower has uncommitted records of this leader, too.
        parted = log.epochs.divergence(wanted.last_fetched_epoch, wanted.fetch_offset, log.log_end_offset)
        if parted is None:
            return False
        epoch, end_offset = parted
        # The fetcher's epoch is newer than every epoch here, so there is no offset that it could truncate to.
        if epoch == UNDEFINED_EPOCH:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            row.high_watermark = row.last_stable_offset = row.log_start_offset = -1
        else:
            row.diverging_epoch = m.FetchResponse.EpochEndOffset(epoch=epoch, end_offset=end_offset)
        self.urgent = True
        return True

    def _add_records(self, log: PartitionLog, wanted: Wanted, row: Row, piece: FileSlice) -> bool:
        """Let the row carry these records, as bytes or as the slice; False if no more slices fit the response."""
        size = piece.size_bytes
        may_be_inline = size <= min(self._inline_bytes_max, INLINE_TOTAL_BYTES_MAX - self._inline_bytes)
        try:
            data = piece.file.read_resident(piece.position, size) if may_be_inline else None
        except StorageError:
            piece.release()
            raise

        row.records = piece if data is None else data
        self.has_slices |= data is None
        if data is not None:
            piece.release()
            self._inline_bytes += size
        # A slice of the active segment holds no descriptor of its own: its file is open anyway.
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
    """The broker id of the follower that fetches; negative for a consumer (version 15 moved the field, KIP-903)."""
    return request.replica_state.replica_id if call.version >= FETCH_REPLICA_STATE_VERSION else request.replica_id


def _find(broker: Broker, call: Call, wanted: Wanted, *, of_follower: bool) -> Partition | ErrorCode:
    # Followers read every topic, so they need the right of brokers, and Read does not suffice (CVE-2018-1288).
    if of_follower and not call.authorize("ClusterAction", "Cluster"):
        # No quota counts the time of a follower. Any client can claim to be one, so this refusal is counted.
        if call.spent is not None:
            call.spent.is_never_exempt = True
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED

    if isinstance(wanted.topic, bytes):
        name = broker.replicas.topic_name(wanted.topic)
        if name is None:
            return _why_id_is_gone(broker, wanted)
        wanted.name = name
    else:
        name = wanted.topic

    if not of_follower and not call.authorize("Read", "Topic", name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    partition = broker.replicas.get(name, wanted.partition_index)

    # The id was resolved to a name. The log of that name may already belong to a new topic with another id.
    log = None if isinstance(partition, ErrorCode) else partition.log
    if log is not None and isinstance(wanted.topic, bytes) and log.topic_id not in (None, wanted.topic):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    return partition


def _why_id_is_gone(broker: Broker, wanted: Wanted) -> ErrorCode:
    """The error for a topic id that this broker does not know."""
    # As in Kafka, a request or session that resolved the id once keeps the name, and the error is about the name.
    if wanted.name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    was_created_again = wanted.name in broker.metadata.topics
    return ErrorCode.INCONSISTENT_TOPIC_ID if was_created_again else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _row_at(partition: Partition, log: PartitionLog, wanted: Wanted, read_committed: bool) -> Row:
    """A row without records: the partition's high watermark, LSO and log start offset."""
    return Row(
        partition_index=wanted.partition_index,
        high_watermark=partition.high_watermark,
        last_stable_offset=partition.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=() if read_committed else None,
        records=b"",
    )


def failed_row(wanted: Wanted, code: ErrorCode) -> Row:
    """A row with this error, without offsets and records."""
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
    """An error row with null records, as Kafka sends when the records have no form for the client's version."""
    row = failed_row(wanted, code)
    row.aborted_transactions = []
    row.records = None
    return row


def _ask_ahead(piece: FileSlice) -> None:
    """Start reading what a consumer that goes on needs next, if the page cache lacks it."""
    # The next Fetch then finds its data in the page cache, and need not wait for the disk in a thread.
    position = piece.position + piece.size_bytes
    size_bytes = min(piece.size_bytes, AHEAD_BYTES_MAX)
    if size_bytes >= AHEAD_BYTES_MIN and not piece.file.resident(position, size_bytes):
        piece.file.will_need(position, size_bytes)


def _read_through(piece: FileSlice) -> None:
    piece.file.will_need(piece.position, piece.size_bytes)
    # `will_need` only starts the reads; reading is what waits for them. It goes in steps, to bound
    # the memory.
    for position in range(piece.position, piece.position + piece.size_bytes, WARM_STEP_BYTES):
        piece.file.read(position, min(WARM_STEP_BYTES, piece.position + piece.size_bytes - position))


def records_bytes(row: Row) -> int:
    """The size of a row's records, in memory or as a file slice; 0 without records."""
    records = row.records
    if records is None:
        return 0
    return len(records) if isinstance(records, (bytes, bytearray, memoryview)) else records.size_bytes


def _release(row: Row) -> None:
    if isinstance(row.records, FileSlice):
        row.records.release()
