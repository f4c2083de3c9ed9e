"""Reading records without a group: partitions, each from an offset on.

A round is one Fetch to each leader of the partitions, so memory is bounded by one response. The records of a partition
come in the order of their offsets; what an aborted transaction wrote is left out with `committed`.

Retention may delete records before they are read. The partition goes on at its earliest offset then, and `Taken` says
how many offsets were passed over.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.client.cluster import OUTDATED, Cluster
from barnabas.client.errors import ClientError, Refused, Unreachable, check
from barnabas.client.offsets import list_offsets
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerTooOld
from barnabas.wire.record_batch import read_batch_header, walk_entries
from barnabas.wire.record_reader import ABORT, Record, read_all_records, read_control_record
from barnabas.wire.sentinels import CONSUMER, EARLIEST, LATEST, NO_LEADER_EPOCH
from barnabas.wire.topics import TopicPartition

FETCH_BYTES = 16 << 20
PARTITION_BYTES = 4 << 20
WAIT_MS = 500
# A full request each time is simple, and a reader of a few partitions loses nothing by it.
NO_SESSION = -1
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
    """Reads partitions round by round. `positions` is where each goes on; one that is removed is read no more."""

    def __init__(
        self, cluster: Cluster, positions: Mapping[TopicPartition, int], *, committed: bool = False, rack: str = ""
    ) -> None:
        self.positions = dict(positions)
        self._cluster = cluster
        self._committed = committed
        self._rack = rack

    async def round(self) -> list[Taken]:
        """Ask each leader once, which answers when it has records, or after WAIT_MS. Refused, Unreachable."""
        retry = self._cluster.retry()
        while True:
            taken, outdated = await self._round()
            # What the other leaders have sent is given first. The outdated one is asked in the next
            # round.
            if taken or outdated is None:
                return taken
            if not await retry.pause():
                raise outdated

    async def _round(self) -> tuple[list[Taken], ClientError | None]:
        """What was read, and the last of the errors that say that a leader is another one now, or away."""
        found: list[Taken] = []
        beyond: list[TopicPartition] = []
        outdated: ClientError | None = None
        for leader, keys in (await self._cluster.by_leader(self.positions)).items():
            positions = {key: self.positions[key] for key in keys}
            request = _fetch_request(positions, committed=self._committed, rack=self._rack)
            try:
                response = await self._cluster.ask_broker(leader, request)
            except Unreachable as error:
                # Another attempt does not make the broker newer.
                if isinstance(error.__cause__, PeerTooOld):
                    raise
                for key in keys:
                    self._cluster.forget(key.topic)
                outdated = error
                continue

            assert isinstance(response, m.FetchResponse)
            check(f"broker {leader}", response.error_code)
            for topic in response.responses:
                for row in topic.partitions:
                    key = TopicPartition(topic.topic, row.partition_index)
                    if row.error_code in OUTDATED:
                        self._cluster.forget(topic.topic)
                        outdated = Refused(f"partition {key}", row.error_code)
                        continue
                    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        beyond.append(key)
                        continue
                    check(f"partition {key}, offset {positions[key]}", row.error_code)
                    taken = _taken(key, row, positions[key], committed=self._committed)
                    # The position goes on even if no record is shown: a batch may hold nothing but
                    # markers.
                    self.positions[key] = taken.next_offset
                    if taken.next_offset > positions[key]:
                        found.append(taken)
        return found + [await self._passed_over(key) for key in beyond], outdated

    async def _passed_over(self, key: TopicPartition) -> Taken:
        """What became of a partition that has no record at its position. Refused if its log ends before it."""
        # Kafka's response to the Fetch does not say where the log begins.
        position = self.positions[key]
        start = (await list_offsets(self._cluster, {key: EARLIEST}))[key].offset
        if start <= position:
            end = (await list_offsets(self._cluster, {key: LATEST}))[key].offset
            why = f"the log ends at {end}: its topic was created again, or its leader has lost records"
            raise Refused(f"partition {key}, offset {position}", ErrorCode.OFFSET_OUT_OF_RANGE, why)
        self.positions[key] = start
        return Taken(key, [], start, start - position)


def _fetch_request(positions: Mapping[TopicPartition, int], *, committed: bool, rack: str) -> m.FetchRequest:
    topics: dict[str, list[m.FetchRequest.FetchPartition]] = {}
    for (topic, partition), offset in positions.items():
        row = m.FetchRequest.FetchPartition(
            partition=partition,
            current_leader_epoch=NO_LEADER_EPOCH,
            fetch_offset=offset,
            last_fetched_epoch=NO_LEADER_EPOCH,
            log_start_offset=-1,
            partition_max_bytes=PARTITION_BYTES,
        )
        topics.setdefault(topic, []).append(row)
    return m.FetchRequest(
        replica_id=CONSUMER,
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        isolation_level=1 if committed else 0,
        session_id=0,
        session_epoch=NO_SESSION,
        topics=[m.FetchRequest.FetchTopic(topic=name, partitions=rows) for name, rows in topics.items()],
        rack_id=rack,
    )


def _taken(key: TopicPartition, row: m.FetchResponse.PartitionData, offset: int, *, committed: bool) -> Taken:
    """The records of a response from `offset` on, without markers and, with `committed`, without aborted ones."""
    data = row.records
    assert data is None or isinstance(data, bytes | bytearray | memoryview)
    records = []
    # A broker sends whole batches: the first one may begin before the offset that was asked for.
    for record, is_shown in _walked(row, data or b"", committed=committed):
        if is_shown and record.offset >= offset:
            records.append(record)

    # Compaction may have removed the last records of a batch, or all of them.
    after = offset
    for position, entry in walk_entries(data or b""):
        last = read_batch_header(data or b"", position).last_offset if entry.magic == BATCH_MAGIC else entry.offset
        after = max(after, last + 1)
    return Taken(key, records, after)


def _walked(
    row: m.FetchResponse.PartitionData, data: bytes | bytearray | memoryview, *, committed: bool
) -> Iterator[tuple[Record, bool]]:
    """Every record, and whether a reader sees it."""
    aborted = (
        sorted((each.first_offset, each.producer_id) for each in row.aborted_transactions or ()) if committed else []
    )
    open_aborted: set[int] = set()
    for header, record in read_all_records(data):
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
