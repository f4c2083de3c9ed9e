"""The aborted transactions that a read_committed fetch lists: those that the bytes it sends need (KIP-98)."""

import random

import pytest

from barnabas.storage import segment
from barnabas.storage.transaction_index import ROW, AbortedTransaction
from barnabas.wire.records import ABORT, COMMIT, TRANSACTIONAL, read_batch_header, walk_entries


class Writers:
    """Producers that write transactions to a log, one record a batch."""

    def __init__(self, world) -> None:
        self.world = world
        self.log = world.open()
        self._sequences: dict[int, int] = {}

    def put(self, *producer_ids: int, size: int = 20) -> None:
        for producer_id in producer_ids:
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + 1
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            appended = self.world.append(self.log, size=size, attributes=TRANSACTIONAL, **fields)
            assert appended.base_offset == self.log.log_end_offset - 1

    def end(self, outcome: int, *producer_ids: int) -> None:
        for producer_id in producer_ids:
            self.world.append_marker(self.log, outcome, producer_id)

    def listed(self, offset: int, *, max_bytes: int = 1 << 20, end_offset: int | None = None) -> list[tuple[int, int]]:
        """What a fetch lists: (producer id, first offset)."""
        end_offset = self.log.log_end_offset if end_offset is None else end_offset
        read = self.log.read(offset, max_bytes=max_bytes, end_offset=end_offset)
        found = self.log.aborted_in(read, offset, end_offset)
        if read.slice is not None:
            read.slice.release()
        return [(each.producer_id, each.first_offset) for each in found]

    def entries(self) -> list[AbortedTransaction]:
        return self.log.segments.aborted_transactions(0, self.log.log_end_offset)


@pytest.fixture
def writers(new_world) -> Writers:
    return Writers(new_world(index_interval_bytes=0))


def test_the_list_ends_with_the_bytes_that_are_sent(writers):
    """Kafka's may reach far beyond them."""
    for _ in range(5):
        writers.put(7)
        writers.end(ABORT, 7)
    size = writers.log.size_bytes // 5
    assert writers.listed(0, max_bytes=size) == [(7, 0)]
    assert writers.listed(0, max_bytes=size + 10) == [(7, 0)], "a batch that is cut off is not read"
    assert writers.listed(0, max_bytes=3 * size) == [(7, 0), (7, 2), (7, 4)]
    assert writers.listed(0, end_offset=5) == [(7, 0), (7, 2), (7, 4)]
    assert writers.listed(4, max_bytes=1) == [(7, 4)]
    assert writers.listed(10) == []


def test_a_transaction_that_ended_before_the_fetch_is_not_listed(writers):
    """It would hide a later transaction of the same producer, for its marker is not read any more."""
    writers.put(7)
    writers.end(ABORT, 7)
    writers.put(7)
    writers.end(COMMIT, 7)
    assert writers.listed(1) == [(7, 0)]
    assert writers.listed(2) == []


def test_a_transaction_is_listed_whose_marker_is_segments_away(writers):
    """A planted bug: the list stops one entry early."""
    writers.put(7, 8, 9)
    writers.log.roll(1)
    writers.end(ABORT, 8)
    writers.put(8)
    writers.log.roll(2)
    writers.end(COMMIT, 9)
    writers.log.roll(3)
    writers.end(ABORT, 8)
    writers.log.roll(4)
    writers.put(9)
    writers.end(ABORT, 7)
    assert writers.listed(0) == [(8, 1), (7, 0)]
    assert writers.listed(0, max_bytes=1) == [(7, 0)]
    assert writers.listed(3) == [(8, 1), (8, 4), (7, 0)]
    assert [entry.last_stable_offset for entry in writers.entries()] == [0, 0, 7], "the oldest other open transaction"


def test_an_entry_names_where_the_oldest_other_open_transaction_begins(writers):
    """A planted bug: it always names its own end, so that searches stop too early."""
    writers.put(7, 8)
    writers.end(ABORT, 8)
    writers.put(8)
    writers.end(ABORT, 7)
    writers.end(ABORT, 8)
    assert [entry.last_stable_offset for entry in writers.entries()] == [0, 3, 6]
    assert writers.listed(0, max_bytes=1) == [(7, 0)]


def test_a_follower_indexes_a_chunk_batch_by_batch(writers, new_world):
    """A planted bug: all producers of a chunk first, then its transactions (as Kafka's follower)."""
    writers.put(7)
    writers.end(ABORT, 7)
    writers.put(7, 8)
    writers.end(ABORT, 7)
    writers.end(ABORT, 8)
    follower = new_world()
    log = follower.open()
    log.append_as_follower(memoryview(writers.world.log_bytes(writers.log)), 1)
    assert log.segments.aborted_transactions(0, 6) == writers.entries()
    assert [entry.last_stable_offset for entry in writers.entries()] == [2, 3, 6]


def test_a_stable_offset_that_kafkas_follower_wrote_too_large_stops_no_search(writers):
    writers.put(7)
    writers.end(ABORT, 7)
    writers.put(7, 8)
    writers.end(ABORT, 7)
    # Producer 8 began at 3 when Kafka wrote the first entry, behind the next transaction of 7, which it left out.
    entry = writers.entries()[0]._replace(last_stable_offset=3)
    ROW.pack_into(writers.log.segments.active.transactions.unsaved, 0, 0, *entry)
    assert writers.listed(0, end_offset=3) == [(7, 0), (7, 2)]


def test_a_search_reads_little_of_a_long_index(new_world, monkeypatch):
    world = new_world(index_interval_bytes=0)
    writers = Writers(world)
    for _ in range(3000):
        writers.put(7)
        writers.end(ABORT, 7)
    writers.log.roll(1)
    path = writers.log.segments.store.path(0, ".txnindex")
    file = writers.log.segments.store.open_files.get(path)
    read, counted = type(file).read, []
    monkeypatch.setattr(type(file), "read", lambda self, at, size: counted.append(size) or read(self, at, size))
    assert writers.listed(3000, max_bytes=400) == [(7, 3000), (7, 3002)]
    assert len(counted) < 60
    assert sum(counted) < 30_000, "of 100,000 bytes of the index and 50,000 of the other one"


@pytest.mark.parametrize("seed", range(30))
def test_any_fetch_lists_what_its_bytes_need(new_world, monkeypatch, seed):
    rng = random.Random(seed)
    monkeypatch.setattr(segment, "INDEX_SAVE_STEP_BYTES", rng.choice((ROW.size, 3 * ROW.size, 1 << 16)))
    world = new_world(segment_bytes=rng.choice((300, 1000, 5000)), index_interval_bytes=rng.choice((0, 100, 1000)))
    writers = Writers(world)
    began: dict[int, int] = {}
    aborted = []
    for _ in range(150):
        producer_id = rng.randrange(6)
        offset = writers.log.log_end_offset
        if rng.random() < 0.6:
            writers.put(producer_id, size=rng.randrange(60))
            began.setdefault(producer_id, offset)
        elif producer_id in began:
            outcome = rng.choice((COMMIT, ABORT))
            writers.end(outcome, producer_id)
            first_offset = began.pop(producer_id)
            if outcome == ABORT:
                aborted.append((producer_id, first_offset, offset))
    log = writers.log
    if rng.random() < 0.5:
        log = writers.log = world.restarted(log)
    stable_offset = log.last_stable_offset(log.log_end_offset)
    for _ in range(60):
        offset, max_bytes = rng.randrange(stable_offset), rng.choice((1, 100, 500, 4000))
        read = log.read(offset, max_bytes=max_bytes, end_offset=stable_offset)
        data = read.slice.read()
        read.slice.release()
        end_offset = max(read_batch_header(data, position).last_offset + 1 for position, _ in walk_entries(data))
        needed = [(pid, first) for pid, first, last in aborted if first < end_offset and last >= offset]
        assert writers.listed(offset, max_bytes=max_bytes, end_offset=stable_offset) == needed
