"""One history: a broker's log directory with one log, which is used, ends in every possible way, and starts again.

The code under test is the broker's: `Logs` with its periodic tasks and the flusher, in virtual time and one task at a
time, so that a seed determines the history. The history appends, flushes, rolls, truncates and deletes records;
retention, compaction, checkpoints and removals run at their intervals. Meanwhile operations of the disk fail (no
descriptor, no memory, no space, a broken device), and at one of them power fails: most often during work, sometimes
during the recovery that follows. In some histories producers write transactions. After each start the log is compared
with the guarantees (`truth.py`), and its transactions with a replay of what it holds (`replayed.py`).
"""

import random
from collections import Counter
from collections.abc import Collection
from functools import cache

import trio
from trio.testing import MockClock

from barnabas.config.live import BrokerConfig
from barnabas.replication.logs.directory import StoredIdentity
from barnabas.replication.logs.partition_logs import AllDirectoriesOffline, Logs
from barnabas.storage.disk import StorageError
from barnabas.storage.entries import leader_epoch_of, walk_buffer
from barnabas.storage.flusher import Flusher
from barnabas.storage.log import Appended, PartitionLog
from barnabas.storage.producers import Origin
from barnabas.storage.verification import Guard
from barnabas.testing.crashes.disk import FailingDisk, PowerCut
from barnabas.testing.crashes.replayed import check_transactions
from barnabas.testing.crashes.truth import End, Found, Truth, Violated, Written
from barnabas.testing.simulation.schedule import quiet, seeded_scheduler
from barnabas.wire.errors import InvariantBroken
from barnabas.wire.records import (
    ABORT,
    COMMIT,
    TRANSACTIONAL,
    Batch,
    build_batch,
    build_control_batch,
    control_of,
    read_batch_header,
    read_records,
)
from barnabas.wire.sentinels import NO_PRODUCER_ID
from barnabas.wire.topics import TopicPartition
from barnabas.world.world import World, run_inline

START_MS = 1_000_000_000
KEY = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
US = StoredIdentity(1, "castle")
STEPS = 60  # of work in one life
STARTS_MAX = 6  # in which something may go wrong; the next one goes well
KEYS = 5
PRODUCERS = 3
TRANSACTIONAL_SHARE = 0.4  # of the histories
TROUBLES = ((0.0, False), (0.005, False), (0.02, False), (0.05, True), (0.15, True))  # how often, and shortages only

PROPERTIES = {
    "log.dirs": "/data",
    "log.initial.task.delay.ms": "11",
    "log.retention.check.interval.ms": "53",
    "log.flush.offset.checkpoint.interval.ms": "41",
    "log.flush.start.offset.checkpoint.interval.ms": "43",
    "replica.high.watermark.checkpoint.interval.ms": "61",
    "log.cleaner.backoff.ms": "37",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


@cache
def _broker_config() -> BrokerConfig:
    return BrokerConfig(PROPERTIES)


async def _ids_of(topics: Collection[str]) -> dict[str, bytes | None]:
    """Of the topics in the store."""
    return dict.fromkeys(topics, TOPIC_ID)


class History:
    """One history, by its seed."""

    def __init__(self, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = rng = random.Random(seed)

        # Transactions have a generator of their own, so that histories without them stay as they are.
        self.transactions = random.Random(f"{seed} transactions")
        self.is_transactional = self.transactions.random() < TRANSACTIONAL_SHARE
        is_compacted = rng.random() < 0.5
        has_retention = not is_compacted and rng.random() < 0.5
        self._is_compacted = is_compacted
        self._topic = _broker_config().topic(
            {
                "cleanup.policy": "compact" if is_compacted else "delete",
                "segment.bytes": rng.choice(("250", "400", "900")),
                "index.interval.bytes": rng.choice(("0", "60", "200")),
                "retention.bytes": rng.choice(("700", "1500")) if has_retention else "-1",
                "retention.ms": "-1",
                "file.delete.delay.ms": rng.choice(("0", "20", "100")),
                "delete.retention.ms": rng.choice(("0", "0", "1000000")),
                "min.cleanable.dirty.ratio": "0",
                "flush.messages": rng.choice(("1", "4", "9223372036854775807")),
            }
        )
        self._truth = Truth(is_compacted=is_compacted, has_retention=has_retention)
        self._disk = FailingDisk(rng, lambda: START_MS)
        self._trouble, self._disk.lacks_only = rng.choice(TROUBLES)
        self._batch_of: dict[int, int] = {}  # offset -> where its batch begins
        self.leader_epoch = 0
        self._log: PartitionLog | None = None
        self._end = End.STOP

    def run(self) -> None:
        """Live, end and start again; Violated if a start finds less, or more, than was promised."""
        for _ in range(self._rng.choice((1, 1, 2, 3))):
            self._disk.fuse = self._rng.randrange(5, 300)
            self._disk.trouble = self._trouble
            self._until_it_ends(STEPS)
            if self._end is End.POWER and self._rng.random() < 0.4:
                self._disk.fuse = self._rng.randrange(40)
                self._until_it_ends(0)
        self._disk.fuse = None
        self._disk.trouble = 0.0
        self._until_it_ends(1)
        if self._log is None or self._log.recovery_point < self._log.log_end_offset or self._end is not End.STOP:
            raise Violated("the last start did not end in a log that can be written")

    def _until_it_ends(self, steps: int) -> None:
        """One life of a broker, with as many starts as it takes."""
        self._log = None
        for attempt in range(STARTS_MAX + 1):
            if attempt == STARTS_MAX:
                self._disk.trouble = 0.0
            try:
                has_lived = trio.run(self._live, steps, clock=MockClock(autojump_threshold=0))
            except* PowerCut:
                has_lived = self._power_failed()
            if has_lived:
                return
            self.counts["failed starts"] += 1
        raise Violated("no start succeeds, though nothing goes wrong any more")

    def _power_failed(self) -> bool:
        remains = self._disk.remains
        if remains is None:
            raise InvariantBroken("power failed, and nothing remains")
        if self._log is not None:
            self._truth.log_start_offset = self._log.log_start_offset
        self._disk = remains
        self._end = End.POWER
        self.counts["power failures"] += 1
        return True

    # -- a life

    async def _live(self, steps: int) -> bool:
        """Start, work, end; False if there was no start."""
        flusher = Flusher(run_inline)
        world = World(self._now_ms, self._rng, self._disk, None, None, run_inline, run_inline)  # type: ignore[arg-type]  # neither net nor store
        logs = Logs(_broker_config(), world, flusher)
        self._disk.now_ms = self._now_ms
        log = await self._start(logs)
        if log is None:
            return False
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(flusher.run, self._note_flushed, logs.fail_directory_of)
                await nursery.start(logs.run, lambda: {KEY: self._truth.high_watermark}, lambda *_: None)
                await _Work(self, logs, flusher, log).do(steps)
                nursery.cancel_scope.cancel()
        except* AllDirectoriesOffline:
            self.counts["failed directories"] += 1
        await self._stop(logs, log)
        return True

    def _now_ms(self) -> int:
        return START_MS + round(trio.current_time() * 1000)

    async def _start(self, logs: Logs) -> PartitionLog | None:
        """Start, and check what was found; None if something went wrong."""
        log: PartitionLog | None = None
        try:
            await logs.open()
            await logs.load(US, lambda topic: self._topic, _ids_of)
            log = logs.get(KEY)
            self._check(log)
            if log is None:
                log = await logs.create(KEY, TOPIC_ID, self._topic)
        except* (StorageError, AllDirectoriesOffline):
            logs.abandon()
        self._log = log
        return log

    def _check(self, log: PartitionLog | None) -> None:
        found = Found([], 0, 0, 0, []) if log is None else found_in(log, self._disk)
        self._truth.check(found, self._end)
        if log is not None:
            check_transactions(log, self._disk)
        self._truth.settle(found)
        self._end = End.PROCESS

    async def _stop(self, logs: Logs, log: PartitionLog) -> None:
        """The end of a process: in order, or not."""
        truth = self._truth
        is_orderly = self._disk.fuse is None or self._rng.random() < 0.6
        if is_orderly and logs.get(KEY) is log:
            await logs.close()
            if truth.cut_offset is None:
                truth.durable_offset = max(truth.durable_offset, log.recovery_point)
            self._end = End.STOP
            self.counts["stops"] += 1
        else:
            logs.abandon()
            self._end = End.PROCESS
            self.counts["ends of the process"] += 1
        truth.log_start_offset = log.log_start_offset

    def _note_flushed(self, log: PartitionLog) -> None:
        truth = self._truth
        offset = log.recovery_point
        # A truncation waits for a flush that runs: what it will cut off is synced, but promised no more.
        if truth.cut_offset is not None:
            offset = min(offset, truth.cut_offset)
        truth.durable_offset = max(truth.durable_offset, offset)


class _Work:
    """What is done to the log in one life."""

    def __init__(self, history: History, logs: Logs, flusher: Flusher, log: PartitionLog) -> None:
        self._history = history
        self._truth = history._truth
        self._rng = history._rng
        self._logs = logs
        self._flusher = flusher
        self._log = log

    async def do(self, steps: int) -> None:
        """So many steps, fewer if the directory fails."""
        is_transactional = self._history.is_transactional
        choices = (
            (self._append, 25 if is_transactional else 55),
            (self._want_flush, 8),
            (self._flush, 6),
            (self._roll, 4),
            (self._truncate, 4),
            (self._delete_records, 0 if self._history._is_compacted else 3),
            (self._pause, 20),
            (self._append_to_transaction, 25 if is_transactional else 0),
            (self._end_transaction, 15 if is_transactional else 0),
        )
        ways, weights = zip(*choices, strict=True)

        # The first flush may have failed already.
        if self._logs.get(KEY) is not self._log:
            return
        for _ in range(steps):
            way = self._rng.choices(ways, weights)[0] if steps > 1 else self._append
            self._history.counts[way.__name__.strip("_").replace("_", " ")] += 1
            try:
                await way()
            except StorageError as error:
                self._logs.fail_directory_of(self._log, error)
            if self._logs.get(KEY) is not self._log:
                return
            if self._rng.random() < 0.5:
                truth = self._truth
                truth.high_watermark = self._rng.randint(truth.high_watermark, truth.log_end_offset)

    async def _append(self) -> None:
        rng = self._rng
        self._history.leader_epoch += rng.random() < 0.1  # it never falls, whatever becomes of the log
        written = [self._record(self._history.leader_epoch) for _ in range(rng.choice((1, 1, 2, 3)))]
        batch = build_batch([(each.key, each.value) for each in written], timestamp_ms=self._history._now_ms())
        self._put(batch, written, Origin.CLIENT)

    async def _append_to_transaction(self) -> None:
        """A batch of a producer, which begins a transaction or goes on with it."""
        rng = self._history.transactions
        now_ms = self._history._now_ms()
        producer_id = rng.randrange(PRODUCERS)
        state = self._log.producers.get(producer_id)
        epoch = 0 if state is None else state.epoch
        sequence = 0 if state is None else state.last_sequence + 1
        written = [
            self._record(self._history.leader_epoch)._replace(producer_id=producer_id)
            for _ in range(rng.choice((1, 2)))
        ]
        batch = build_batch(
            [(each.key, each.value) for each in written],
            timestamp_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        guard = self._log.producers.begin_verification(producer_id, epoch, sequence, now_ms)
        self._put(batch, written, Origin.CLIENT, guard)

    async def _end_transaction(self) -> None:
        """A marker, also for a producer without an open transaction; a fence raises its epoch."""
        rng = self._history.transactions
        producer_id = rng.randrange(PRODUCERS)
        outcome = rng.choice((COMMIT, ABORT))
        state = self._log.producers.get(producer_id)
        epoch = (0 if state is None else state.epoch) + (outcome == ABORT and rng.random() < 0.1)
        marker = build_control_batch(
            outcome,
            coordinator_epoch=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp_ms=self._history._now_ms(),
        )
        (record,) = read_records(marker.data)
        written = Written(record.key, record.value, self._history.leader_epoch, producer_id, outcome)
        self._put(marker, [written], Origin.COORDINATOR)

    def _put(self, batch: Batch, written: list[Written], origin: Origin, guard: Guard | None = None) -> None:
        """Append a batch with these records."""
        log = self._log
        epoch = self._history.leader_epoch
        offset = log.log_end_offset
        has_failed = True
        self._truth.append(offset, written)
        try:
            appended = log.append_as_leader(
                batch,
                leader_epoch=epoch,
                origin=origin,
                now_ms=self._history._now_ms(),
                guard=guard,
                is_verifying=True,
            )
            if not isinstance(appended, Appended):
                raise Violated(f"{batch} is refused with {appended!r}")
            has_failed = False
        except StorageError as error:
            self._logs.fail_directory_of(log, error)

        self._truth.appended(offset, written, has_failed=has_failed)
        self._history._batch_of |= dict.fromkeys(range(offset, offset + len(written)), offset)
        if log.flush_demanded and not has_failed:
            self._flusher.want(log)

    def _record(self, epoch: int) -> Written:
        rng = self._rng
        value = rng.choice((b"v%d" % rng.randrange(10**6), b"w%d" % rng.randrange(10**6), bytes(rng.randrange(80))))
        if not self._history._is_compacted:
            return Written(None, value, epoch)
        return Written(b"k%d" % rng.randrange(KEYS), None if rng.random() < 0.25 else value, epoch)

    async def _want_flush(self) -> None:
        self._flusher.want(self._log)

    async def _flush(self) -> None:
        await self._flusher.flush([self._log])

    async def _roll(self) -> None:
        self._log.roll(self._history._now_ms())
        self._flusher.want(self._log)

    async def _pause(self) -> None:
        await trio.sleep(self._rng.randrange(1, 60) / 1000)

    async def _truncate(self) -> None:
        log = self._log
        truth = self._truth
        offset = self._rng.randint(max(truth.high_watermark, log.log_start_offset), log.log_end_offset)
        base_offset = self._history._batch_of.get(offset, offset)
        if offset < log.log_end_offset and base_offset >= max(truth.high_watermark, log.log_start_offset):
            truth.begin_cut(base_offset)
            await self._logs.truncation.truncate(log, offset, truth.end_cut)

    async def _delete_records(self) -> None:
        log = self._log
        truth = self._truth
        if truth.high_watermark > log.log_start_offset:
            offset = self._rng.randint(log.log_start_offset, truth.high_watermark)
            log.raise_log_start(offset)
            await self._logs.checkpoints.write_log_starts(self._logs.directory_of(log))
            truth.promised_start = max(truth.promised_start, offset)


def found_in(log: PartitionLog, disk: FailingDisk) -> Found:
    """What is in a log that was just opened."""
    records = []
    for segment in log.segments:
        for span, batch in walk_buffer(memoryview(disk.peek(segment.path))):
            epoch = leader_epoch_of(span, batch)
            header = read_batch_header(batch)
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            control = control_of(batch) if header.is_control else None
            outcome = None if control is None else control.type
            records += [
                (record.offset, Written(record.key, record.value, epoch, producer_id, outcome))
                for record in read_records(batch)
            ]
    return Found(records, log.log_start_offset, log.log_end_offset, log.recovery_point, list(log.epochs.entries))


def run_history(seed: int) -> Counter[str]:
    """Run one history; what happened in it. Violated if a promise was broken."""
    history = History(seed)
    with seeded_scheduler(random.Random(f"{seed} scheduler")), quiet():
        history.run()
    return history.counts
