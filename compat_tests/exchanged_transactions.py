"""The states of a directory in which a transaction, or what is left of one, changes hands (reference, T.27).

A case brings its state about at one broker (`leave`), looks at the files while none runs (`rest`), ends it at the next
broker (`end`), and goes on at a third (`keep`). What a reader of committed records must get is in `expected`.
"""

import time
from itertools import chain

from confluent_kafka import Consumer, TopicPartition

from barnabas.storage.checkpoint import read_checkpoint
from barnabas.storage.osdisk import OsDisk
from barnabas.storage.producers import decode_snapshot
from barnabas.storage.transaction_index import parse_transactions
from barnabas.wire import topics
from barnabas.wire.records import DELETE_HORIZON, BatchHeader, read_batch_header, walk_entries
from compat_tests.differential.asking import batch, list_offsets, metadata, produce_one
from compat_tests.differential.asking_groups import commit, offsets_of
from compat_tests.differential.asking_transactions import (
    NOT_FOUND,
    READ_COMMITTED,
    Writer,
    end,
    first_code,
    init,
    marker,
    markers,
    producers_of,
)
from compat_tests.differential.side import Answer, Side
from compat_tests.raw import RawClient
from compat_tests.test_compaction import set_topic_config

LONG_MS = 900_000
PATIENCE_SECONDS = 60.0
OUT_OF_ORDER, INVALID_EPOCH, INVALID_STATE, UNKNOWN_ID, UNSTABLE, FENCED = 45, 47, 48, 49, 88, 90
EPOCH_EXHAUSTED = 32766
SENT_AHEAD = 50
SEGMENT_BYTES = 600
NEVER, ALWAYS = "1", "0.0001"  # min.cleanable.dirty.ratio: the dirty share must exceed it
SHORT_MS = 1000

Where = tuple[str, int]  # topic and partition
Value = bytes | tuple[bytes, bytes]


def committed(side: Side, topic: str, partition: int = 0, offset: int = 0) -> list[tuple[bytes | None, bytes]]:
    """Keys and values that a consumer of committed records gets, up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{side.port}",
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    records = []
    while (message := consumer.poll(PATIENCE_SECONDS)) is not None and message.error() is None:
        records.append((message.key(), message.value()))
    consumer.close()
    assert message is not None, f"nothing came of {topic}-{partition} from {offset} on"
    return records


class Case:
    """One state; its topics and ids have its name."""

    compacted = False

    def __init__(self, name: str) -> None:
        self.name = name
        self.writers: list[Writer] = []
        self.expected: dict[Where, list[Value]] = {}
        self.side: Side
        self.topic = ""
        self.has_ended = False

    def move_to(self, side: Side) -> None:
        self.side = side
        for writer in self.writers:
            writer.move_to(side)

    def leave(self) -> None:
        """Bring the state about."""
        raise NotImplementedError

    def rest(self) -> None:
        """Look at the files while no broker runs."""

    def end(self) -> None:
        """What follows from the state at the next broker, and is read there."""
        raise NotImplementedError

    def keep(self) -> None:
        """Back at the first broker all of it is still there, and each writer that is left goes on."""
        self.check()
        for number, writer in enumerate(self.writers):
            value = (b"again %d" % number, b"v") if self.compacted else b"again %d" % number
            self.transact(writer, value)
        self.check()

    def check(self) -> None:
        """A reader gets what is expected, and no transaction keeps it from the rest."""
        for (topic, partition), values in self.expected.items():
            read = committed(self.side, topic, partition)
            assert [value for _, value in read] == values, (topic, partition)
            assert self.ends(topic, partition)[0] == self.ends(topic, partition)[1]

    # -- what cases do

    def create(self, partitions: int = 1, **configs: str) -> None:
        self.topic = self.side.create_topic(self.name, partitions, **configs)

    def writer(self, of: str = "id", timeout_ms: int = LONG_MS) -> Writer:
        """A new producer; of an id that was used before, the next one."""
        writer = Writer(self.side, f"{self.name}-{of}", timeout_ms)
        assert writer.init().error_code == 0
        self.writers.append(writer)
        return writer

    def transact(self, writer: Writer, *values: Value, commits: bool = True, partition: int = 0) -> None:
        """A whole transaction in one partition."""
        self.begin(writer, *values, partition=partition)
        self.finish(writer, commits=commits)
        if commits:
            self.expected.setdefault((self.topic, partition), []).extend(values)

    def begin(self, writer: Writer, *values: Value, partition: int = 0) -> None:
        assert first_code(writer.add(self.topic, partitions=(partition,))) == 0
        self.write(writer, *values, partition=partition)

    def write(self, writer: Writer, *values: Value, partition: int = 0) -> None:
        answer = writer.write(self.topic, *values, partition=partition)
        assert produced(answer) == 0, answer

    def finish(self, writer: Writer, *, commits: bool) -> None:
        answer = writer.end(commit=commits)
        assert answer.error_code == 0, answer

    def ask_to_end(self, writer: Writer, *, commits: bool) -> int:
        """The code of one EndTxn."""
        return int(writer.client.ask(end(*writer.who, commit=commits), 3).error_code)

    def ends(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Last stable offset and high watermark."""
        asked = [
            self.side.ask(list_offsets({topic: [(partition, -1)]}, isolation=isolation), 7)
            for isolation in (READ_COMMITTED, 0)
        ]
        stable, high = (answer.topics[0].partitions[0].offset for answer in asked)
        return int(stable), int(high)

    def opened_at(self, writer: Writer, partition: int = 0) -> int:
        """The offset at which the producer's transaction begins in the topic; -1 if none is open."""
        (row,) = producers_of(self.side, self.topic, partition).topics[0].partitions
        found = {each.producer_id: int(each.current_txn_start_offset) for each in row.active_producers}
        return found.get(writer.producer, -1)


def produced(answer: Answer) -> int:
    return int(answer.responses[0].partition_responses[0].error_code)


# -- transactions


class Open(Case):
    """The producer goes on where it was, and commits."""

    def leave(self) -> None:
        self.create(2)
        writer = self.writer()
        writer.add(self.topic, partitions=(0, 1))
        self.write(writer, b"a", b"b")
        self.write(writer, b"c", partition=1)
        assert writer.is_in("Ongoing")

    def end(self) -> None:
        (writer,) = self.writers
        assert writer.is_in("Ongoing")
        assert committed(self.side, self.topic) == []
        assert self.ends(self.topic) == (0, 2)
        self.write(writer, b"d")
        self.finish(writer, commits=True)
        self.expected = {(self.topic, 0): [b"a", b"b", b"d"], (self.topic, 1): [b"c"]}


class Fenced(Case):
    """The producer's successor begins at the next broker: what was open is aborted, and the producer is shut out."""

    def leave(self) -> None:
        self.create()
        self.begin(self.writer(), b"lost")

    def end(self) -> None:
        former = self.writers.pop()
        successor = self.writer()
        assert (successor.producer, successor.epoch > former.epoch) == (former.producer, True)
        assert produced(former.produce(self.topic, former.records(1, b"late"))) == INVALID_EPOCH
        assert self.ask_to_end(former, commits=True) == FENCED
        former.close()
        self.transact(successor, b"a")


class Overdue(Case):
    """A transaction that is open for too long is aborted by the next broker; the first one did not look."""

    def leave(self) -> None:
        self.create()
        self.begin(self.writer(timeout_ms=SHORT_MS), b"lost")

    def end(self) -> None:
        (writer,) = self.writers
        self.side.wait(lambda: writer.is_in("CompleteAbort"))
        assert produced(writer.produce(self.topic, writer.records(1, b"late"))) == INVALID_EPOCH
        assert self.ask_to_end(writer, commits=True) == FENCED
        writer.init()
        self.transact(writer, b"a")


class Prepared(Case):
    """The end is decided, and one of two partitions has no marker yet: it knows a later coordinator than the first one.

    The coordinator of the next broker is that later one, and sends what is owed.
    """

    commits = True

    def leave(self) -> None:
        self.create(2)
        writer = self.writer()
        writer.add(self.topic, partitions=(0, 1))
        later = marker(writer.producer, writer.epoch, {self.topic: [1]}, coordinator_epoch=self.next_coordinator())
        assert self.side.ask(markers(later), 1).markers[0].topics[0].partitions[0].error_code == 0
        for partition in (0, 1):
            self.write(writer, b"a%d" % partition, partition=partition)
        assert self.ask_to_end(writer, commits=self.commits) == 0
        self.side.wait(lambda: self.opened_at(writer) < 0)
        assert self.opened_at(writer, 1) == 1
        assert writer.is_in("PrepareCommit" if self.commits else "PrepareAbort")

    def next_coordinator(self) -> int:
        """An epoch that no partition of `__transaction_state` has reached."""
        (topic,) = self.side.ask(metadata("__transaction_state"), 9).topics
        return 1 + max(int(each.leader_epoch) for each in topic.partitions)

    def end(self) -> None:
        (writer,) = self.writers
        self.side.wait(lambda: writer.is_in("CompleteCommit", "CompleteAbort"))
        for partition in (0, 1):
            self.expected[self.topic, partition] = [b"a%d" % partition] if self.commits else []
        self.check()
        assert self.ask_to_end(writer, commits=self.commits) == 0
        assert self.ask_to_end(writer, commits=not self.commits) == INVALID_STATE


class PreparedAbort(Prepared):
    commits = False


class Complete(Case):
    """The transaction has ended. Its producer may ask that once more, and begins the next one."""

    commits = True

    def leave(self) -> None:
        self.create()
        self.transact(self.writer(), b"a", b"b", commits=self.commits)

    def end(self) -> None:
        (writer,) = self.writers
        assert writer.is_in("CompleteCommit" if self.commits else "CompleteAbort")
        self.expected.setdefault((self.topic, 0), [])
        self.check()
        assert self.ask_to_end(writer, commits=self.commits) == 0
        assert self.ask_to_end(writer, commits=not self.commits) == INVALID_STATE
        self.transact(writer, b"next")


class CompleteAbort(Complete):
    commits = False


class Rotated(Case):
    """One id has a second producer id, for the epochs of the first are used up; another one has its last epoch."""

    def leave(self) -> None:
        self.create(2)
        rotated, exhausted = self.writer("rotated"), self.writer("exhausted")
        self.exhaust(rotated, exhausted)
        self.former = rotated.producer
        self.transact(rotated, b"old")
        self.begin(rotated, b"lost")
        rotated.init()
        assert (rotated.producer != self.former, rotated.epoch) == (True, 0)
        self.transact(rotated, b"new")
        self.begin(exhausted, b"lost", partition=1)

    def exhaust(self, *writers: Writer) -> None:
        """Take epochs until the last that a client gets."""
        while left := EPOCH_EXHAUSTED - writers[0].epoch:
            count = min(left, SENT_AHEAD)
            for writer in writers * count:
                writer.client.send(init(writer.name, writer.timeout_ms), 4)
            for writer in writers:
                answers = [writer.client.receive() for _ in range(count)]
                assert all(answer.error_code == 0 for answer in answers), answers
                writer.epoch = answers[-1].producer_epoch
        assert {writer.epoch for writer in writers} == {EPOCH_EXHAUSTED}

    def end(self) -> None:
        rotated, exhausted = self.writers
        assert rotated.described().transaction_states[0].producer_id == rotated.producer
        assert rotated.client.ask(init(rotated.name, LONG_MS, self.former, EPOCH_EXHAUSTED), 4).error_code == FENCED
        late = batch(b"late", producer_id=self.former, producer_epoch=EPOCH_EXHAUSTED, base_sequence=2, attributes=16)
        # The coordinator knows another producer id, the partition a later epoch.
        assert produced(rotated.produce(self.topic, late)) in (UNKNOWN_ID, INVALID_EPOCH)
        self.transact(rotated, b"next")
        former = exhausted.producer
        exhausted.init()
        assert (exhausted.producer != former, exhausted.epoch) == (True, 0)
        self.transact(exhausted, b"a", partition=1)


class Forgotten(Case):
    """The id was unused for too long, and only a tombstone is left. Its producer is refused; a new one begins."""

    def leave(self) -> None:
        self.create()
        writer = self.writer()
        self.transact(writer, b"a")
        self.side.wait(lambda: self.is_forgotten(writer))

    def is_forgotten(self, writer: Writer) -> bool:
        return bool(writer.described().transaction_states[0].error_code == NOT_FOUND)

    def end(self) -> None:
        (writer,) = self.writers
        assert self.is_forgotten(writer)
        assert self.ask_to_end(writer, commits=True) == UNKNOWN_ID
        assert first_code(writer.add(self.topic)) == UNKNOWN_ID
        former = writer.producer
        writer.init()
        assert (writer.producer != former, writer.epoch) == (True, 0)
        self.transact(writer, b"b")


class PendingOffsets(Case):
    """A group's offsets in two transactions: one commits and one aborts at the next broker."""

    def leave(self) -> None:
        self.create(2)
        self.group = self.side.name(self.name)
        self.side.await_coordinator(self.group)
        assert self.side.ask(commit(self.group, [(self.topic, [(0, 3), (1, 3)])]), 5).topics[0].partitions
        for partition, writer in enumerate((self.writer("committing"), self.writer("aborting"))):
            assert writer.add_offsets(self.group).error_code == 0
            answer = writer.commit_offsets(self.group, (self.topic, [(partition, 7)]))
            assert answer.topics[0].partitions[0].error_code == 0, answer
        assert self.offsets() == [(-1, UNSTABLE), (-1, UNSTABLE)]

    def offsets(self, *, stable: bool = True) -> list[tuple[int, int]]:
        """Offset and error of either partition."""
        self.side.await_coordinator(self.group)
        request = offsets_of(self.group, [(self.topic, [0, 1])], require_stable=stable)
        (topic,) = self.side.ask(request, 8).groups[0].topics
        return [(each.committed_offset, each.error_code) for each in topic.partitions]

    def end(self) -> None:
        committing, aborting = self.writers
        assert self.offsets() == [(-1, UNSTABLE), (-1, UNSTABLE)]
        assert self.offsets(stable=False) == [(3, 0), (3, 0)]
        self.finish(committing, commits=True)
        assert self.offsets() == [(7, 0), (-1, UNSTABLE)]
        self.finish(aborting, commits=False)
        assert self.offsets() == [(7, 0), (3, 0)]

    def keep(self) -> None:
        assert self.offsets() == [(7, 0), (3, 0)]
        super().keep()


# -- files


class AcrossSegments(Case):
    """Aborted transactions that begin in one segment and end in a later one; one of them ends at the next broker."""

    def leave(self) -> None:
        self.create(2, segment_bytes=str(SEGMENT_BYTES))
        aborting, committing, last = (self.writer(of) for of in ("aborting", "committing", "last"))
        self.begin(last, b"lost", partition=1)
        for number in range(12):
            for partition in (0, 1):
                self.begin(aborting, b"lost %d" % number + bytes(200), partition=partition)
                self.transact(committing, b"kept %d" % number + bytes(200), partition=partition)
            if number % 3 == 2:
                self.finish(aborting, commits=False)

    def rest(self) -> None:
        folder = self.side.directory / f"{self.topic}-0"
        entries = [list(parse_transactions(path.read_bytes())) for path in sorted(folder.glob("*.txnindex"))]
        assert len(list(chain.from_iterable(entries))) == 4
        bases = [int(path.name[:20]) for path in folder.glob("*.log")]
        for entry in chain.from_iterable(entries):
            assert any(entry.first_offset < base <= entry.last_offset for base in bases)

    def end(self) -> None:
        assert [value for _, value in committed(self.side, self.topic)] == self.expected[self.topic, 0]
        assert committed(self.side, self.topic, 1) == []
        self.finish(self.writers[2], commits=False)
        values = self.expected[self.topic, 0]
        for offset in range(self.ends(self.topic)[1]):
            read = [value for _, value in committed(self.side, self.topic, 0, offset)]
            assert read == values[len(values) - len(read) :]


class InSnapshots(Case):
    """Transactions that were open when segments began, and still are."""

    def leave(self) -> None:
        self.create(segment_bytes=str(SEGMENT_BYTES))
        *opened, other = (self.writer(of) for of in ("committing", "aborting", "other"))
        for writer in opened:
            self.begin(writer, b"first of %d" % writer.producer)
        for number in range(6):
            self.transact(other, b"between %d" % number + bytes(200))

    def rest(self) -> None:
        folder = self.side.directory / f"{self.topic}-0"
        snapshots = [list(decode_snapshot(path.read_bytes())) for path in folder.glob("*.snapshot")]
        opened = {(writer.producer, number) for number, writer in enumerate(self.writers[:2])}
        with_both = [each for each in snapshots if opened <= {(row.producer_id, row.first_offset) for row in each}]
        assert len(with_both) >= 2

    def end(self) -> None:
        committing, aborting, _ = self.writers
        assert [self.opened_at(writer) for writer in self.writers] == [0, 1, -1]
        assert committed(self.side, self.topic) == []
        for writer in (committing, aborting):
            self.write(writer, b"second of %d" % writer.producer)
        self.finish(committing, commits=True)
        assert self.opened_at(aborting) == self.ends(self.topic)[0] == 1
        self.finish(aborting, commits=False)
        between = self.expected[self.topic, 0]
        first, second = (b"%s of %d" % (word, committing.producer) for word in (b"first", b"second"))
        self.expected[self.topic, 0] = [first, *between, second]


class Compacted(Case):
    """A compacted topic; what is expected of it is the last committed value of each key."""

    compacted = True

    def create(self, partitions: int = 1, **configs: str) -> None:
        super().create(
            partitions,
            cleanup_policy="compact",
            segment_bytes=str(SEGMENT_BYTES),
            min_cleanable_dirty_ratio=NEVER,
            delete_retention_ms=str(SHORT_MS),
            file_delete_delay_ms="0",
            **configs,
        )

    def clean(self) -> None:
        """Fill the active segment, and wait for one pass over those before it."""
        for _ in range(2):
            filler = batch((b"filler", bytes(SEGMENT_BYTES - 100)))
            assert produced(self.side.ask(produce_one(self.topic, filler), 9)) == 0
        bases = [int(path.name[:20]) for path in (self.side.directory / f"{self.topic}-0").glob("*.log")]
        for ratio in (ALWAYS, NEVER):
            with RawClient(self.side.port) as client:
                set_topic_config(client, self.topic, "min.cleanable.dirty.ratio", ratio)
            self.side.wait(lambda: self.clean_offset() == max(bases), PATIENCE_SECONDS)

    def clean_offset(self) -> int:
        path = self.side.directory / "cleaner-offset-checkpoint"
        return read_checkpoint(OsDisk(), str(path)).get(topics.TopicPartition(self.topic, 0), 0) if path.exists() else 0

    def headers(self) -> list[BatchHeader]:
        """The batches of the partition, as they lie there."""
        files = [path.read_bytes() for path in sorted((self.side.directory / f"{self.topic}-0").glob("*.log"))]
        return [read_batch_header(data, position) for data in files for position, _ in walk_entries(data)]

    def horizons(self) -> list[int]:
        return [each.base_timestamp for each in self.headers() if each.attributes & DELETE_HORIZON]

    def emptied(self) -> set[int]:
        """The producers that have a batch without records."""
        return {each.producer_id for each in self.headers() if not each.record_count}

    def check(self) -> None:
        pairs = [pair for pair in self.expected[self.topic, 0] if isinstance(pair, tuple)]
        read = dict(committed(self.side, self.topic))
        read.pop(b"filler", None)
        assert read == dict(pairs)
        assert self.ends(self.topic)[0] == self.ends(self.topic)[1]


class Horizons(Compacted):
    """The data of a transaction is gone, and its marker may go at a time that is noted in it."""

    def leave(self) -> None:
        self.create()
        first, second = self.writer("first"), self.writer("second")
        self.transact(first, (b"a", b"1"), (b"b", b"1"))
        self.transact(second, (b"a", b"2"), (b"b", b"2"))
        self.transact(first, (b"c", b"1"))
        self.clean()
        self.clean()

    def rest(self) -> None:
        assert self.horizons()

    def end(self) -> None:
        self.check()
        former = self.horizons()
        self.side.wait(lambda: time.time() * 1000 > max(former))
        self.clean()
        assert not set(former) & set(self.horizons())
        self.check()
        for writer in self.writers:
            self.transact(writer, (b"a", b"%d" % writer.producer))


class Emptied(Compacted):
    """A producer's last records are gone, and a batch without records says which sequence number came last."""

    def leave(self) -> None:
        self.create()
        overwritten, overwriting, aborting = (self.writer(of) for of in ("overwritten", "overwriting", "aborting"))
        self.transact(overwritten, (b"a", b"1"), (b"b", b"1"))
        self.transact(overwriting, (b"a", b"2"), (b"b", b"2"))
        self.transact(aborting, (b"a", b"bad"), (b"c", b"bad"), commits=False)
        self.clean()

    def rest(self) -> None:
        overwritten, overwriting, aborting = (writer.producer for writer in self.writers)
        assert {overwritten, aborting} <= self.emptied()
        assert overwriting not in self.emptied()

    def end(self) -> None:
        self.check()
        for writer in self.writers:
            assert first_code(writer.add(self.topic)) == 0
            assert produced(writer.produce(self.topic, writer.records(5, (b"x", b"bad")))) == OUT_OF_ORDER
            self.transact(writer, (b"d", b"%d" % writer.producer))
        self.clean()
        self.check()


CASES: dict[str, type[Case]] = {
    "forgotten": Forgotten,  # first, since for it ids are forgotten soon
    "open": Open,
    "open-fenced": Fenced,
    "open-overdue": Overdue,
    "prepare-commit": Prepared,
    "prepare-abort": PreparedAbort,
    "complete-commit": Complete,
    "complete-abort": CompleteAbort,
    "rotated": Rotated,
    "pending-offsets": PendingOffsets,
    "aborted-across-segments": AcrossSegments,
    "open-in-snapshots": InSnapshots,
    "horizons": Horizons,
    "emptied-batches": Emptied,
}
