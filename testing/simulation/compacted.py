"""Compacted topics: rule X14, checked in each replica after each pass and at each start, and by those who read tables.

The log of such a topic changes behind its end. `Truth.restored` says what its batches were when they were appended, so
that all other rules about logs hold for it as well.

In some histories tombstones go soon (`delete.retention.ms`). A reader that takes longer than that from a record to its
tombstone may miss the tombstone, as with Kafka; so of keys that were deleted such a reader may have the old value.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.storage.entries import walk_buffer
from barnabas.storage.index import IndexCorrupt
from barnabas.testing.simulation.committed_readers import filter_batches
from barnabas.testing.simulation.consumers import Reader, ReaderPlan
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.party import Party
from barnabas.testing.simulation.transaction_replicas import aborted_of
from barnabas.wire import messages as m
from barnabas.wire.records import read_records
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition import Partition
    from barnabas.storage.memdisk import MemDisk
    from barnabas.testing.simulation.transaction_rules import TransactionRules
    from barnabas.testing.simulation.truth import Shadow, Truth

    # The reader, its topic, id and partition, what it has read, the last stable offset where it ended, and how long it
    # has read.
    TellTable = Callable[[str, tuple[str, bytes, int], "Table", int, float], None]

Table = Mapping[bytes, bytes | None]  # the last value of each key; None is a tombstone


def committed_records(row: m.FetchResponse.PartitionData, stable_offset: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Key and value of what a consumer gives to its user, below the last stable offset."""
    _, delivered = filter_batches(row)
    for span, data in walk_buffer(row.records):  # type: ignore[arg-type]  # `filter_batches` has refused None
        if span.base_offset in delivered and span.last_offset < stable_offset:
            for record in read_records(data):
                yield record.key or b"", record.value


def check_table(
    rules: "TransactionRules",
    truth: "Truth",
    where: str,
    table: Table,
    stable_offset: int,
    *,
    may_lack_tombstones: bool = False,
) -> None:
    """X14: this was read from the beginning of the log to the last stable offset."""
    if TopicPartition(truth.topic, truth.partition) in rules.void:
        return
    expected: dict[bytes, bytes | None] = {}
    replaced: set[bytes] = set()  # by records further on, which may already hide those before
    for batch in truth.committed:
        if not batch.is_control and (not batch.is_transactional or rules.is_committed(truth, batch)):
            for offset, key, value in _records_of(truth, batch.crc):
                if offset < stable_offset:
                    expected[key] = value
                else:
                    replaced.add(key)

    if may_lack_tombstones:
        replaced |= {key for key, value in expected.items() if value is None}
    for key in (expected.keys() | table.keys()) - replaced:
        if table.get(key) != expected.get(key):
            found = table.get(key)
            right = expected.get(key)
            rules.violate("X14", f"{where} finds {found!r} for {key!r} in {truth} below {stable_offset}, not {right!r}")
            return


def _records_of(truth: "Truth", checksum: int) -> Iterable[tuple[int, bytes, bytes | None]]:
    records = truth.contents.get(checksum)
    return records if isinstance(records, tuple) else ()


def check_compacted(
    rules: "TransactionRules", disk: "MemDisk", truth: "Truth", shadow: "Shadow", partition: "Partition"
) -> None:
    """X14 of a replica whose log was read again: a pass has ended, or its broker has started."""
    log = partition.log
    stable_offset = partition.last_stable_offset
    if log is None or log.is_being_cut:
        return
    try:
        indexed = aborted_of(log, disk)
    except IndexCorrupt:
        return  # X13 reports this

    data = b"".join(bytes(disk.peek(segment.path)[: segment.size_bytes]) for segment in log.segments)
    aborted = [
        m.FetchResponse.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in indexed
        if each.first_offset < stable_offset
    ]
    row = m.FetchResponse.PartitionData(aborted_transactions=aborted, records=memoryview(data))
    table = dict(committed_records(row, stable_offset))
    check_table(rules, truth, f"a reader at broker {shadow.broker_id}", table, stable_offset)


class TableReader(Reader):
    """A consumer that reads a compacted topic from its beginning to its end, again and again, in small responses."""

    isolation_level = 1
    fetch_bytes = 1500

    def __init__(self, party: Party, history: History, plan: ReaderPlan, tell_table: "TellTable") -> None:
        super().__init__(party, history, plan)
        self._tell_table = tell_table
        self._tables: dict[int, dict[bytes, bytes | None]] = {}
        self._began: dict[int, float] = {}

    async def _take(self, row: m.FetchResponse.PartitionData) -> None:
        partition = row.partition_index
        if row.error_code or row.preferred_read_replica >= 0:
            await super()._take(row)
            return
        table = self._tables.setdefault(partition, {})
        began = self._began.setdefault(partition, trio.current_time())
        if row.records:
            self.served += 1
            table.update(committed_records(row, row.last_stable_offset))
            for span, _ in walk_buffer(row.records):  # type: ignore[arg-type]  # as above
                self._positions[partition] = span.last_offset + 1
            return

        where = (self.plan.topic, self._topic_id, partition)
        self._tell_table(self.party.name, where, table, row.last_stable_offset, trio.current_time() - began)
        if self.party.rng.random() < 0.5:
            self._begin_again(partition)

    async def _look_up(self, partition: int) -> None:
        """A leader that has less than another one had."""
        self._begin_again(partition)

    def _begin_again(self, partition: int) -> None:
        self._positions[partition] = 0
        self._tables.pop(partition, None)
        self._began.pop(partition, None)
