"""Reading records without a group: partitions, each from an offset on.

Each leader of the partitions is asked once, and what it sends is decoded in pieces: memory is bounded by FETCH_BYTES
and one piece, and a larger batch comes alone. The records of a partition come in the order of their offsets; what an
aborted transaction wrote is left out with `committed`.

Retention may delete records before they are read. The partition goes on at its earliest offset then, and `Taken` says
how many offsets were passed over.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import trio

from barnabas.client.cluster import OUTDATED, Cluster
from barnabas.client.errors import ClientError, Refused, Unreachable, check
from barnabas.client.offsets import list_offsets
from barnabas.wire import messages as m
from barnabas.wire.compression import CorruptRecords
from barnabas.wire.errors import ErrorCode, PeerTooOld
from barnabas.wire.record_batch import read_batch_header, walk_entries
from barnabas.wire.record_reader import ABORT, UNCHANGED, Record, read_all_records, read_control_record
from barnabas.wire.sentinels import CONSUMER, EARLIEST, LATEST, NO_LEADER_EPOCH
from barnabas.wire.topics import TopicPartition

FETCH_BYTES = 8 << 20  # of all leaders together; a larger batch comes alone
PARTITION_BYTES = 2 << 20
PIECE_BYTES = 1 << 20  # of keys and values, that are given at a time
PIECE_RECORDS_MAX = 2_000
WAIT_MS = 500
# A full request each time is simple, and a reader of a few partitions loses nothing by it.
NO_SESSION = -1
RETRIED = OUTDATED | {ErrorCode.OFFSET_NOT_AVAILABLE}
BATCH_MAGIC = 2  # older formats have messages without a header in common


class Taken(NamedTuple):
    """Records of one partition. `next_offset` is where the next ones begin, also if there are none.

    `lost_count` offsets before it were deleted unread; there are no records then. Compaction may have removed some of
    them before, and markers have offsets, too, so the number of records is at most this.
    """

    partition: TopicPartition
    records: list[Record]
    next_offset: int
    lost_count: int = 0


class Reader:
    """Reads partitions round by round. `positions` is where each goes on; one that is removed is read no more.

    While some partitions cannot be read, because they have no leader, the others are. `late` is the reason, when it has
    lasted for as long as an answer may take.
    """

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], *, committed: bool = False, rack: str = ""
    ) -> None:
        self.positions = dict(positions)
        self.late: ClientError | None = None
        self._late_at = math.inf
        self._cluster = cluster
        self._committed = committed
        self._rack = rack
        self._unread: deque[tuple[TopicPartition, Iterator[Taken]]] = deque()

    async def round(self) -> list[Taken]:
        """Some records of what was fetched; when all of it is given, each leader is asked once.

        It answers when it has records, or after WAIT_MS, and then nothing may be taken. ClientError for a damaged
        batch; Refused and Unreachable when no partition can be read.
        """
        retry = self._cluster.retry()
        while (taken := self._next()) is None:
            lost, failed, can_read = await self._fetch()
            self._note(failed)
            if lost:
                return lost
            # What some leaders have sent is given first. The others are asked in the next round.
            if self._unread:
                continue
            if failed is None:
                return []
            has_time = await retry.pause()
            if can_read:
                return []
            if not has_time:
                raise failed

        # A caller that has more to do than to read gets its turn, though nothing is waited for.
        await trio.lowlevel.checkpoint()
        return [taken]

    def _next(self) -> Taken | None:
        """The next records of what was fetched; None if all of it is given."""
        while self._unread:
            key, pieces = self._unread[0]
            # The caller may want no more of this partition.
            if key in self.positions:
                try:
                    taken = next(pieces, None)
                except CorruptRecords as error:
                    step = f"what is behind it: `consume {key.topic} -p {key.partition} --from OFFSET`"
                    raise ClientError(f"partition {key}, offset {self.positions[key]}: {error}; {step}") from None
                if taken is not None:
                    self.positions[key] = taken.next_offset
                    return taken
            self._unread.popleft()
        return None

    def _note(self, failed: ClientError | None) -> None:
        """Note why some partitions were not read."""
        now = trio.current_time()
        self._late_at = math.inf if failed is None else min(self._late_at, now + self._cluster.timeout_seconds)
        self.late = failed if now >= self._late_at else None

    async def _fetch(self) -> tuple[list[Taken], ClientError | None, bool]:
        """Ask each leader: what was lost; the last error after which a partition is asked for again; and whether
        another one could be read.
        """
        beyond: list[TopicPartition] = []
        failed: ClientError | None
        can_read = False
        led, failed = await self._cluster.by_leader(self.positions)
        for number, (leader, keys) in enumerate(led.items(), 1):
            # Where one leader has records, it is not slowed by others that wait for some.
            is_waiting = number == len(led) and not self._unread
            try:
                response = await self._cluster.ask_broker(leader, self._request(keys, len(led), is_waiting))
            except Unreachable as error:
                # Another attempt does not make the broker newer.
                if isinstance(error.__cause__, PeerTooOld):
                    raise
                for key in keys:
                    self._cluster.forget(key.topic)
                failed = error
                continue

            assert isinstance(response, m.FetchResponse)
            check(f"broker {leader}", response.error_code)
            for topic in response.responses:
                for row in topic.partitions:
                    key = TopicPartition(topic.topic, row.partition_index)
                    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        beyond.append(key)
                    elif row.error_code in RETRIED:
                        self._cluster.forget(topic.topic)
                        failed = Refused(f"partition {key}", row.error_code)
                    else:
                        check(f"partition {key}, offset {self.positions[key]}", row.error_code)
                        can_read = True
                        if row.records:
                            pieces = _pieces(key, row, self.positions[key], committed=self._committed)
                            self._unread.append((key, pieces))
        return [await self._passed_over(key) for key in beyond], failed, can_read

    def _request(self, keys: Iterable[TopicPartition], leader_count: int, is_waiting: bool) -> m.FetchRequest:
        """A request for these partitions, which waits for records or not."""
        # A request may take a third of the time, so that another broker can be asked in the rest.
        wait_ms = min(WAIT_MS, self._cluster.timeout_seconds * 1000 / 6) if is_waiting else 0
        topics: dict[str, list[m.FetchRequest.FetchPartition]] = {}
        for key in keys:
            row = m.FetchRequest.FetchPartition(
                partition=key.partition,
                current_leader_epoch=NO_LEADER_EPOCH,
                fetch_offset=self.positions[key],
                last_fetched_epoch=NO_LEADER_EPOCH,
                log_start_offset=-1,
                partition_max_bytes=PARTITION_BYTES,
            )
            topics.setdefault(key.topic, []).append(row)
        return m.FetchRequest(
            replica_id=CONSUMER,
            max_wait_ms=round(wait_ms),
            min_bytes=1,
            max_bytes=FETCH_BYTES // leader_count,  # all responses are in memory together
            isolation_level=1 if self._committed else 0,
            session_id=0,
            session_epoch=NO_SESSION,
            topics=[m.FetchRequest.FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
            rack_id=self._rack,
        )

    async def _passed_over(self, key: TopicPartition) -> Taken:
        """What became of a partition that has no record at its position. Refused if its log ends before it."""
        # Kafka's response to the Fetch does not say where the log begins.
        position = self.positions[key]
        start = (await list_offsets(self._cluster, {key: EARLIEST}))[key].offset
        if start <= position:
            end = (await list_offsets(self._cluster, {key: LATEST}))[key].offset
            raise _beyond(key, position, end)
        self.positions[key] = start
        return Taken(key, [], start, start - position)


async def check_positions(cluster: Cluster, positions: Mapping[TopicPartition, int]) -> None:
    """Refused for the first one that is beyond the end of its log; Unreachable."""
    for key, found in (await list_offsets(cluster, dict.fromkeys(positions, LATEST))).items():
        if positions[key] > found.offset:
            raise _beyond(key, positions[key], found.offset)


def _beyond(key: TopicPartition, position: int, end: int) -> Refused:
    why = f"the log ends at {end}: its topic was created again, or its leader has lost records"
    return Refused(f"partition {key}, offset {position}", ErrorCode.OFFSET_OUT_OF_RANGE, why)


def _pieces(
    key: TopicPartition, row: m.FetchResponse.PartitionData, offset: int, *, committed: bool
) -> Iterator[Taken]:
    """The records of a response from `offset` on, without markers and, with `committed`, without aborted ones.

    They are decoded as they are taken: as objects they need many times the bytes of a compressed batch. CorruptRecords.
    """
    data = row.records
    assert isinstance(data, bytes | bytearray | memoryview)
    records: list[Record] = []
    size_bytes = 0
    after = offset
    damage: CorruptRecords | None = None
    # A broker sends whole batches: the first one may begin before the offset that was asked for.
    try:
        for record, is_shown in _walked(row, data, committed=committed):
            if record.offset < offset:
                continue
            after = record.offset + 1
            if is_shown:
                records.append(record)
                size_bytes += len(record.key or b"") + len(record.value or b"")
            if len(records) >= PIECE_RECORDS_MAX or size_bytes >= PIECE_BYTES:
                yield Taken(key, records, after)
                records = []
                size_bytes = 0
    # What stands before a damaged batch is given first.
    except CorruptRecords as error:
        damage = error
    if damage is not None:
        if records:
            yield Taken(key, records, after)
        raise damage

    # The position goes on even if no record is shown: there may be nothing but markers, or
    # compaction may have removed the last records of a batch, or all of them.
    for position, entry in walk_entries(data):
        last = read_batch_header(data, position).last_offset if entry.magic == BATCH_MAGIC else entry.offset
        after = max(after, last + 1)
    if after > offset:
        yield Taken(key, records, after)


def _walked(
    row: m.FetchResponse.PartitionData, data: bytes | bytearray | memoryview, *, committed: bool
) -> Iterator[tuple[Record, bool]]:
    """Every record, and whether a reader sees it."""
    aborted = (
        sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ()) if committed else []
    )
    open_aborted: set[int] = set()
    for header, record in read_all_records(data, name_errors=UNCHANGED):
        # Formats 0 and 1 know no transactions.
        if header is None:
            yield record, True
            continue
        # A transaction of the list is aborted from its first offset to the marker.
        while aborted and aborted[0][0] <= record.offset:
            open_aborted.add(aborted.pop(0)[1])
        if header.is_control:
            # The marker ends the transaction, and the same producer may begin another one behind
            # it.
            if read_control_record(record).type == ABORT:
                open_aborted.discard(header.producer_id)
            yield record, False
        else:
            yield record, not (header.is_transactional and header.producer_id in open_aborted)
