"""Compaction of transactions: aborted data goes, markers stay as long as they are needed, readers see no difference.

`compat_tests/test_compaction_of_transactions.py` compares what is left with what Apache Kafka leaves.
"""

import contextlib
import random
from typing import NamedTuple

import pytest

from barnabas.storage.check import check_partition
from barnabas.storage.cleaner import Cleaning, cleanable_part
from barnabas.storage.disk import StorageError
from barnabas.storage.dump import read_rows
from barnabas.storage.producers import Origin, ProducerStates
from barnabas.storage.transaction_index import AbortedTransaction
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import (
    ABORT,
    COMMIT,
    DELETE_HORIZON,
    TRANSACTIONAL,
    build_batch,
    build_control_batch,
    control_of,
    read_batch_header,
    read_records,
    walk_entries,
)

DAY_MS = 86_400_000
BOTH = pytest.mark.parametrize("outcome", [COMMIT, ABORT], ids=["commit", "abort"])


class Batch(NamedTuple):
    """What a test says of a batch that is left."""

    base_offset: int
    producer_id: int
    record_count: int
    has_horizon: bool


class Life:
    """A compacted log, its producers and their coordinator."""

    def __init__(self, world) -> None:
        self.world = world
        self.log = world.open()
        self._next: dict[tuple[int, int], int] = {}

    def put(self, *pairs, pid: int = -1, epoch: int = 0) -> int:
        """Append a batch, of a transaction if `pid` is given; its base offset."""
        fields = {}
        if pid >= 0:
            sequence = self._next.get((pid, epoch), 0)
            self._next[pid, epoch] = sequence + len(pairs)
            fields = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
            fields["attributes"] = TRANSACTIONAL
        return self._append(build_batch(pairs, timestamp_ms=self.world.now_ms, **fields), Origin.CLIENT)

    def mark(self, outcome: int, pid: int, *, epoch: int = 0) -> int:
        marker = build_control_batch(
            outcome, coordinator_epoch=0, producer_id=pid, producer_epoch=epoch, timestamp_ms=self.world.now_ms
        )
        return self._append(marker, Origin.COORDINATOR)

    def _append(self, batch, origin: Origin) -> int:
        appended = self.log.append_as_leader(batch, leader_epoch=0, origin=origin, now_ms=self.world.now_ms)
        assert not isinstance(appended, ErrorCode), appended
        return appended.base_offset

    def roll(self) -> None:
        self.log.roll(self.world.now_ms)
        self.world.flush(self.log)

    def cleaning(self, *, keys_max: int = 100_000) -> Cleaning:
        self.world.flush(self.log)
        part = cleanable_part(self.log, self.log.log_end_offset, self.world.now_ms)
        return Cleaning(self.log, part, keys_max=keys_max, window_bytes=0, now_ms=self.world.now_ms)

    def compact(self, **options) -> None:
        """Seal what is there, and clean it."""
        self.put((b"last", b"of the segment"))
        self.roll()
        cleaning = self.cleaning(**options)
        with contextlib.closing(cleaning.steps()) as steps:
            for step in steps:
                if step.replacement is not None:
                    assert step.replacement.apply(self.world.now_ms)
        self.log.first_dirty_offset = cleaning.end_offset

    def batches(self) -> list[Batch]:
        """What is left of the transactions."""
        return [
            Batch(header.base_offset, header.producer_id, header.record_count, bool(header.attributes & DELETE_HORIZON))
            for header, _ in self.entries()
            if header.producer_id >= 0
        ]

    def entries(self):
        data = self.world.log_bytes(self.log)
        return [
            (read_batch_header(data, position), data[position : position + entry.size_bytes])
            for position, entry in walk_entries(data)
        ]

    def aborted(self) -> list[tuple[int, int]]:
        return self.world.aborted(self.log, 0, self.log.log_end_offset)

    def findings(self) -> list[str]:
        return [str(finding) for finding in check_partition(self.world.disk, "/data/orders-0")]

    def read_committed(self, **options) -> dict[bytes, bytes]:
        """What a consumer sees that reads the log from its begin; each key's last value."""
        consumer = Consumer(self.log, **options)
        while consumer.fetch():
            pass
        return consumer.values


class Consumer:
    """Reads a log with read_committed, as Java's consumer does: a set of aborted producers for each answer."""

    def __init__(self, log, *, max_bytes: int = 700) -> None:
        self.log = log
        self.max_bytes = max_bytes
        self.offset = 0
        self.surplus = []
        self.high_watermark: int | None = None  # None: all is committed
        self.values: dict[bytes, bytes] = {}

    def fetch(self) -> bool:
        """One fetch; False at the last stable offset."""
        log = self.log
        committed = log.log_end_offset if self.high_watermark is None else self.high_watermark
        end_offset = log.last_stable_offset(committed)
        read = log.read(self.offset, max_bytes=self.max_bytes, end_offset=end_offset)
        assert not isinstance(read, ErrorCode), read
        aborted = sorted(log.aborted_in(read, self.offset, end_offset), key=lambda each: each.first_offset)
        if read.slice is None:
            return False
        data = read.slice.read()
        read.slice.release()
        skipped: set[int] = set()
        for position, entry in walk_entries(data):
            header = read_batch_header(data, position)
            # The list is what the bytes need: an entry that they do not need begins in a gap of compaction.
            assert all(each.first_offset < header.base_offset for each in self.surplus)
            self.surplus = []
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped.add(aborted.pop(0).producer_id)
            if header.is_control:
                control = control_of(data[position : position + entry.size_bytes])
                if control is not None and control.type == ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                self._take(read_records(data, position))
            self.offset = header.last_offset + 1
        self.surplus = aborted
        return True

    def _take(self, records) -> None:
        for record in records:
            if record.offset >= self.offset:
                self.values.pop(record.key, None)
                if record.value is not None:
                    self.values[record.key] = record.value


@pytest.fixture
def life(new_world) -> Life:
    return Life(new_world(compacted=True, deletes=False, segment_bytes=1 << 20))


def test_an_aborted_record_hides_no_committed_one(life):
    """A planted bug: compaction lets an aborted record overwrite a committed one."""
    life.put((b"a", b"good"), (b"b", b"good"))
    life.put((b"a", b"bad"), (b"b", None), (b"c", b"bad"), pid=1)
    life.mark(ABORT, 1)
    for _ in range(3):
        life.compact()
        assert life.read_committed() == {b"a": b"good", b"b": b"good", b"last": b"of the segment"}
        life.world.now_ms += 2 * DAY_MS


@pytest.mark.parametrize("fuse", range(12))
def test_crashes_while_segments_are_replaced_leave_no_abort_without_its_marker(life, crashing_disk, fuse):
    """A clean segment without a .txnindex must not find the old one beside it: it hides what its producer commits."""
    life.put((b"a", b"1"), pid=1)
    life.mark(ABORT, 1)
    life.put((b"b", b"2"), pid=1)
    life.mark(COMMIT, 1)
    life.compact()
    # The first of these passes drops the entry, the second one the marker.
    for _ in range(2):
        life.world.now_ms += DAY_MS
        life.put((b"last", b"of the segment"))
        life.roll()
        life.put((b"last", b"of the log"))
        steps = life.cleaning().steps()
        life.world.checkpoint(life.log)
        replacement = next(step.replacement for step in steps if step.replacement is not None)
        disk = life.world.disk
        life.log.segments.store.disk = crashing_disk(disk, fuse)
        with contextlib.suppress(StorageError), contextlib.closing(steps):
            replacement.apply(life.world.now_ms)
        life.world.disk = disk.crash_process()
        life.log = life.world.open()
    assert life.read_committed() == {b"b": b"2", b"last": b"of the log"}
    assert life.aborted() == []


@BOTH
def test_a_marker_stays_a_pass_longer_than_its_data_and_then_until_its_horizon(life, outcome):
    """A planted bug: compaction removes the marker together with the data."""
    life.put((b"a", b"1"), pid=1)
    life.mark(outcome, 1)
    life.put((b"a", b"2"), pid=1)
    life.mark(COMMIT, 1)
    life.put((b"a", b"3"), pid=2)
    life.mark(COMMIT, 2)
    life.compact()
    last = [Batch(2, 1, 0, False), Batch(3, 1, 1, False), Batch(4, 2, 1, False), Batch(5, 2, 1, False)]
    assert life.batches() == [Batch(1, 1, 1, False), *last], "the data of 0 is gone, its marker is there"
    assert life.aborted() == ([(1, 0)] if outcome == ABORT else [])
    life.compact()
    assert life.batches() == [Batch(1, 1, 1, True), *last], "from now on a reader has a day to see it"
    assert life.aborted() == []
    assert len(life.entries()[0][1]) > 78, "the timestamp is now a difference from the horizon"
    row, *_ = read_rows(life.world.disk, life.log.segments[0].path)
    assert row["delete_horizon"] == life.world.now_ms + DAY_MS
    life.world.now_ms += DAY_MS - 1
    life.compact()
    assert life.batches() == [Batch(1, 1, 1, True), *last]
    life.world.now_ms += 1
    life.compact()
    assert life.batches() == last
    assert life.findings() == []


def test_the_marker_of_a_producers_last_batch_stays_with_it(life):
    """An emptied batch opens a transaction when the log is replayed, so something has to end it."""
    for pid, outcome in ((1, ABORT), (2, COMMIT)):
        life.put((b"a", b"%d" % pid), pid=pid)
        life.mark(outcome, pid)
    life.put((b"a", b"3"))
    for _ in range(4):
        life.compact()
        life.world.now_ms += 2 * DAY_MS
    everything = [Batch(0, 1, 0, False), Batch(1, 1, 1, False), Batch(2, 2, 0, False), Batch(3, 2, 1, False)]
    assert life.batches() == everything
    assert life.aborted() == [(1, 0)]
    life.log = life.world.after_process_crash().open()
    assert life.log.last_stable_offset(life.log.log_end_offset) == life.log.log_end_offset
    assert life.log.producers.get(1).last_sequence == 0


def test_a_producer_that_is_known_by_a_marker_alone_keeps_its_last_control_batch(life):
    life.put((b"a", b"1"), pid=1)
    life.mark(ABORT, 1, epoch=1)  # the fence raised the epoch
    life.put((b"a", b"2"))
    for _ in range(4):
        life.compact()
        life.world.now_ms += 2 * DAY_MS
    assert life.batches() == [Batch(1, 1, 0, False)], "emptied, as Kafka does it"
    life.put((b"b", b"1"), pid=1, epoch=1)
    life.mark(COMMIT, 1, epoch=1)
    life.compact()
    assert life.batches()[0].base_offset > 1


def test_a_transaction_with_its_marker_in_a_later_segment_is_aborted_in_all_of_them(life):
    life.put((b"a", b"good"))
    life.put((b"a", b"bad"), pid=1)
    life.roll()
    life.put((b"b", b"bad"), pid=1)
    life.roll()
    life.put((b"c", b"bad"), pid=1)
    life.mark(ABORT, 1)
    life.log.config.segment_bytes = 100  # so that they are not joined
    life.compact()
    assert life.read_committed() == {b"a": b"good", b"last": b"of the segment"}
    assert life.batches() == [Batch(3, 1, 0, False), Batch(4, 1, 1, False)]
    assert life.aborted() == [(1, 1)]


def test_a_marker_in_the_active_segment_aborts_what_is_cleaned(life):
    life.put((b"a", b"good"))
    life.put((b"a", b"bad"), pid=1)
    life.roll()
    life.put((b"b", b"bad"), pid=1)
    life.mark(ABORT, 1)
    cleaning = life.cleaning()
    assert cleaning.part.end_offset == 2
    with contextlib.closing(cleaning.steps()) as steps:
        for step in steps:
            if step.replacement is not None:
                step.replacement.apply(life.world.now_ms)
    assert life.batches() == [Batch(2, 1, 1, False), Batch(3, 1, 1, False)]
    assert life.aborted() == [(1, 1)]
    assert life.read_committed() == {b"a": b"good"}


def test_nothing_of_an_open_transaction_is_cleaned(life):
    life.put((b"a", b"1"))
    life.roll()
    life.put((b"a", b"2"), pid=1)
    life.compact()
    assert [header.base_offset for header, _ in life.entries()] == [0, 1, 2]
    assert life.log.first_dirty_offset == 1
    life.mark(ABORT, 1)
    life.compact()
    assert life.read_committed() == {b"a": b"1", b"last": b"of the segment"}


def test_markers_without_any_data_go_after_their_horizon(life):
    for outcome in (COMMIT, ABORT, COMMIT):
        life.mark(outcome, 1)
    life.put((b"x", b"1"), pid=1)
    life.mark(COMMIT, 1)
    life.compact()
    assert [batch.has_horizon for batch in life.batches()] == [True, True, True, False, False]
    life.world.now_ms += DAY_MS
    life.compact()
    assert [batch.base_offset for batch in life.batches()] == [3, 4]


def test_a_full_map_ends_the_pass_and_the_next_one_knows_what_is_aborted(life):
    for number in range(12):
        life.put((b"k%d" % number, b"good"), pid=2)
        life.put((b"k%d" % number, b"bad"), pid=1)
        life.mark(COMMIT, 2)
        life.mark(ABORT, 1)
    expected = life.read_committed()
    for _ in range(6):
        life.compact(keys_max=3)
        assert {key: value for key, value in life.read_committed().items() if key != b"last"} == expected


def test_an_index_entry_without_its_marker_makes_nothing_disappear(life):
    life.put((b"a", b"1"), pid=1)
    life.mark(COMMIT, 1)
    life.put((b"b", b"1"), pid=1)
    life.mark(COMMIT, 1)
    life.log.segments.active.transactions.append(AbortedTransaction(1, 0, 1, 2))
    life.compact()
    assert (b"b", b"1") in life.read_committed().items()


# -- a long random life

KEYS, PRODUCERS, PASSES = 40, 6, 25


class Model:
    """What was written, and what a read_committed consumer must see of it."""

    def __init__(self) -> None:
        self.records: list[tuple[int, bytes, bytes | None, int]] = []  # offset, key, value, number of the transaction
        self.aborted: set[int] = set()
        self.values: dict[bytes, bytes] = {}
        self._seen = 0  # records that are in `values`

    def committed(self, stable_offset: int) -> dict[bytes, bytes]:
        """The last committed value of each key below this offset, which never falls."""
        while self._seen < len(self.records) and self.records[self._seen][0] < stable_offset:
            _, key, value, transaction = self.records[self._seen]
            if transaction not in self.aborted:
                self.values.pop(key, None)
                if value is not None:
                    self.values[key] = value
            self._seen += 1
        return self.values

    def cut(self, offset: int) -> None:
        while self.records and self.records[-1][0] >= offset:
            self.records.pop()


class RandomLife(Life):
    """A life by chance: transactions that overlap, tombstones, aborts, fences, restarts, crashes, truncations."""

    def __init__(self, world, seed: int) -> None:
        super().__init__(world)
        self.rng = random.Random(seed)
        self.model = Model()
        self.high_watermark = 0
        self.open: dict[int, int] = {}  # producer id -> number of its transaction
        self.epochs = dict.fromkeys(range(PRODUCERS), 0)
        self.transactions = 0

    @property
    def stable_offset(self) -> int:
        return self.log.last_stable_offset(self.high_watermark)

    def step(self) -> None:
        rng = self.rng
        way = rng.random()
        if way < 0.6:
            self.write(rng.randrange(PRODUCERS))
        elif way < 0.7:
            self.write(-1)
        elif self.open and way < 0.97:
            self.end(rng.choice(list(self.open)))
        elif way < 0.98:
            self.high_watermark = self.log.log_end_offset
        elif way < 0.985:
            self.truncate()
        elif way < 0.987:
            self.restart()
        if rng.random() < 0.002:
            self.roll()

    def write(self, pid: int) -> None:
        rng = self.rng
        transaction = 0
        if pid >= 0:
            if pid not in self.open:
                self.transactions += 1
                self.open[pid] = self.transactions
            transaction = self.open[pid]
        count = rng.choice((1, 1, 2, 3))
        pairs = [
            (b"k%d" % rng.randrange(KEYS), None if rng.random() < 0.2 else b"v%d" % rng.randrange(10**9))
            for _ in range(count)
        ]
        base_offset = self.put(*pairs, pid=pid, epoch=self.epochs.get(pid, 0))
        self.model.records += [(at, *pair, transaction) for at, pair in enumerate(pairs, base_offset)]

    def end(self, pid: int) -> None:
        outcome = self.rng.choice((COMMIT, COMMIT, ABORT))
        if outcome == ABORT:
            self.model.aborted.add(self.open[pid])
            # A fence raises the epoch before it aborts.
            self.epochs[pid] += self.rng.random() < 0.1
        del self.open[pid]
        self.mark(outcome, pid, epoch=self.epochs[pid])

    def end_all(self) -> None:
        for pid in list(self.open):
            self.end(pid)
        self.high_watermark = self.log.log_end_offset

    def truncate(self) -> None:
        """Lose the end of the log above the high watermark, and go on with producers that begin again."""
        log = self.log
        offset = self.rng.randint(self.high_watermark, log.log_end_offset)
        log.truncate_to(offset)
        self.world.checkpoint(log)
        self.model.cut(log.log_end_offset)
        # What was ended may be open again: all is ended in a known way now.
        self._next.clear()
        for pid in self.epochs:
            state = log.producers.get(pid)
            is_open = state is not None and state.transaction_first_offset is not None
            if is_open:
                self.open[pid] = self.number_from(state.transaction_first_offset)
                self.model.aborted.discard(self.open[pid])
                self.epochs[pid] = state.epoch  # the marker that raised it may be gone
            else:
                self.open.pop(pid, None)
            if state is not None:
                self._next[pid, state.epoch] = state.last_sequence + 1

    def number_from(self, offset: int) -> int:
        return next(number for at, _, _, number in reversed(self.model.records) if at == offset)

    def restart(self) -> None:
        self.world.flush(self.log)
        self.world.checkpoint(self.log)
        if self.rng.random() < 0.5:
            self.log = self.world.restarted(self.log)
        else:
            self.world = self.world.after_process_crash()
            self.log = self.world.open()

    def reader(self) -> Consumer:
        reader = Consumer(self.log, max_bytes=self.rng.choice((1000, 20_000, 100_000)))
        reader.high_watermark = self.high_watermark
        return reader

    def check(self, reader: Consumer) -> None:
        """Let the reader go on to the end: it sees what the model says."""
        while reader.fetch():
            pass
        assert reader.values == self.model.committed(self.stable_offset)

    def clean(self) -> None:
        """One pass, beside readers: one that has read a part before, and one that reads on with each step."""
        self.roll()
        self.check(self.reader())
        early, beside = self.reader(), self.reader()
        for _ in range(self.rng.randrange(20)):
            early.fetch()
        part = cleanable_part(self.log, self.high_watermark, self.world.now_ms)
        keys_max = self.rng.choice((7, 1000, 1000))
        cleaning = Cleaning(self.log, part, keys_max=keys_max, window_bytes=0, now_ms=self.world.now_ms)
        with contextlib.closing(cleaning.steps()) as steps:
            for number, step in enumerate(steps):
                if step.replacement is not None:
                    assert step.replacement.apply(self.world.now_ms)
                if number % 10 == 0:
                    beside.fetch()
        self.log.first_dirty_offset = cleaning.end_offset
        for reader in (early, beside, self.reader()):
            self.check(reader)

    def check_states(self) -> None:
        """What a replay of all that is left says of the producers, compared with the state of the log."""
        replayed = ProducerStates()
        for header, data in self.entries():
            replayed.update(header, control=control_of(data) if header.is_control else None)
        assert set(replayed.open_transactions) == set(self.log.producers.open_transactions)
        for state in self.log.producers:
            if state.last_offset >= 0:
                again = replayed.get(state.producer_id)
                assert (again.epoch, again.last_sequence) == (state.epoch, state.last_sequence)
        assert self.findings() == []


@pytest.mark.parametrize(
    ("seed", "records"),
    [(1, 4000), (2, 4000), pytest.param(3, 200_000, marks=[pytest.mark.thorough, pytest.mark.long])],
)
def test_readers_see_the_last_committed_values_around_each_pass(new_world, seed, records):
    world = new_world(compacted=True, deletes=False, segment_bytes=20_000, delete_retention_ms=1000)
    life = RandomLife(world, seed)
    for number in range(1, PASSES + 1):
        while len(life.model.records) < records * number // PASSES:
            life.step()
        life.clean()
        life.check_states()
        life.world.now_ms += life.rng.choice((0, 500, 2000))
        if number % 5 == 0:
            life.end_all()
    assert life.log.first_dirty_offset > records // 2
    assert len(life.entries()) < records / 5, "little was compacted"
