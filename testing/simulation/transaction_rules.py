"""The rules about transactions: what coordinators decide, what logs hold, what clients are answered.

*Theory of operation.* There are two views of a transaction. A `Transaction` is the coordinator's: it begins with a
committed record Ongoing in `__transaction_state`, and is decided by a committed PrepareCommit or PrepareAbort. An
`Attempt` is the client's: what it wrote, what it asked for, what it was answered. They are brought together by what the
coordinator acknowledges, and by the batches: each has an owner among the attempts (its checksum), and belongs to the
transaction that its producer id has open when a leader appends it.

So every rule is about few things that are known at that moment:

    a record of a decision is committed     X1 X6 X9 X10  do the states allow it, and did the client ask for it?
    a leader appends a batch                X6            is it in a transaction that the coordinator has open?
    a leader appends a marker               X7            is this decision committed?
    a marker is committed                   X6            of which transaction has the partition its marker now?
    a client gets an answer                 X1 X8 X9      is it what was decided?
    a reader gets batches                   X3 X4         is their transaction committed, and of those left out aborted?
    anything about a replica changes        X5 X13        its last stable offset, its index of aborted transactions
    a compacted log was cleaned, or read    X14           the last committed value of each key (`compacted.py`)

A permitted loss (`Checks`) makes the books of that partition void; one of `__transaction_state`, all books.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.coordinators.transactions.records import decode_record
from barnabas.coordinators.transactions.state import (
    AT_REST,
    PREPARED,
    VALID_PREVIOUS_STATES,
    Producer,
    Recorded,
    Status,
    TransactionRecord,
)
from barnabas.testing.simulation import moments
from barnabas.testing.simulation.log_transactions import LogTransactions, Marker, marker_of
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import BatchHeader, read_control_record, read_records
from barnabas.wire.topics import INTERNAL_TOPICS, TRANSACTION_TOPIC, TopicPartition

if TYPE_CHECKING:
    from barnabas.testing.simulation.truth import Shadow, Truth

TRANSACTION_RULES = {
    "X1": "a transaction is decided once, as its producer asked, and as it was answered",
    "X2": "all acknowledged records of a committed transaction are visible in the end, and none of an aborted one",
    "X3": "a reader of committed records is served none of an undecided or aborted transaction",
    "X4": "a reader of committed records is served every one, in order and once",
    "X5": "the last stable offset follows from the log and the high watermark; in the end nothing is open",
    "X6": "in each partition one marker ends a transaction, behind its data and before the next one",
    "X7": "a marker is written only when the decision is committed",
    "X8": "a committed offset of a group is there if and only if its transaction was committed",
    "X9": "after an epoch is given out, nothing of a lower one is committed",
    "X10": "each input is consumed by one committed transaction",
    "X11": "what a coordinator serves equals the replay of its log",
    "X12": "in the end no decision is unfinished, and nothing waits in a queue",
    "X13": "the producers and the index of aborted transactions of a replica follow from its log",
    "X14": "who reads a compacted topic from its beginning gets the last committed value of each key",
}

Violate = Callable[[str, str], None]
Input = tuple[str, TopicPartition]  # group, partition


@dataclass(eq=False, slots=True)
class Transaction:
    """As its coordinator has stored it."""

    name: str  # the transactional id
    number: int  # of this transaction among those of the id
    producer: Producer
    partitions: Mapping[TopicPartition, None]
    is_commit: bool | None = None  # None: undecided
    marker_epoch: int = -1
    is_complete: bool = False
    marked: dict[TopicPartition, None] = field(default_factory=dict)  # where its marker is committed
    appended: dict[tuple[TopicPartition, int], None] = field(default_factory=dict)  # where, and in which leader epoch
    attempt: "Attempt | None" = None

    def __str__(self) -> str:
        result = {None: "undecided", True: "committed", False: "aborted"}[self.is_commit]
        return f"transaction {self.number} of {self.name!r} ({result}, producer {_text(self.producer)})"


@dataclass(eq=False, slots=True)
class Attempt:
    """A transaction as its client knows it. True is a commit, False an abort, None neither."""

    name: str
    client: str
    number: int  # of this attempt among those of the client
    producer: Producer
    batches: dict[tuple[TopicPartition, int], bool] = field(default_factory=dict)  # by checksum; acknowledged or not
    offsets: dict[Input, tuple[int, int]] = field(default_factory=dict)  # of the input: from, to
    asked: bool | None = None
    answered: bool | None = None
    stored: Transaction | None = None

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.client} ({self.name!r}, producer {_text(self.producer)})"


@dataclass(eq=False, slots=True)
class _Id:
    """What is committed about one transactional id."""

    recorded: Recorded | None = None
    transactions: list[Transaction] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    producers: list[Producer] = field(default_factory=list)  # in the order in which they became the owner
    given: Producer | None = None  # the newest that a client was given

    @property
    def latest(self) -> Transaction | None:
        return self.transactions[-1] if self.transactions else None


class TransactionRules:
    """The books of one run, and their rules. Partitions are named by topic and index: no topic is made again."""

    def __init__(self, violate: Violate, now_ms: Callable[[], int]) -> None:
        self.is_void = False  # decisions were lost, as the rules permit
        self.void: set[TopicPartition] = set()  # partitions that have lost records, as the rules permit
        self.counts: dict[str, int] = {}
        self.on_moment: Callable[[moments.Moment], None] = lambda moment: None
        self._violate = violate
        self._now_ms = now_ms
        self._ids: dict[str, _Id] = {}
        self._names: dict[int, str] = {}  # of producer ids
        self._owners: dict[Producer, str] = {}  # the client that was given this producer first
        self._attempts: dict[tuple[TopicPartition, int], Attempt] = {}  # by checksum
        self._belongs: dict[tuple[TopicPartition, int], Transaction] = {}  # by checksum
        self._written: set[TopicPartition] = set()  # partitions to which a leader has written anything
        self._unplaced: set[tuple[TopicPartition, int]] = set()  # batches of leaders that were replaced, by checksum

        # Input -> (since when, up to which offset) committed transactions have consumed it.
        self._consumed: dict[Input, list[tuple[int, int]]] = {}
        self._generations: dict[str, int] = {}
        self._markers: list[
            tuple[TopicPartition, BatchHeader, Marker, int | None]
        ] = []  # that were appended in this step

    def violate(self, rule: str, text: str) -> None:
        """This rule is broken, unless the books are void."""
        if not self.is_void:
            self._violate(rule, text)

    def count(self, what: str) -> None:
        """Something noteworthy happened."""
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- logs

    def look_into(self, truth: "Truth") -> Callable[[BatchHeader, bytearray, int], None] | None:
        """What reads the contents of a partition's batches that count here."""
        contents = truth.contents
        holds_decisions = truth.topic == TRANSACTION_TOPIC

        def look(header: BatchHeader, data: bytearray, position: int) -> None:
            if header.crc in contents:
                return
            if header.is_control:
                for record in read_records(data, position):
                    contents[header.crc] = marker_of(*read_control_record(record))
            elif truth.is_compacted:
                records = read_records(data, position)
                contents[header.crc] = tuple((each.offset, each.key, each.value) for each in records)
            elif holds_decisions:
                decoded = [decode_record(record.key, record.value) for record in read_records(data, position)]
                contents[header.crc] = [each for each in decoded if each is not None]

        return look

    def begin_again(self, truth: "Truth", shadow: "Shadow") -> None:
        """The replica's log was read again: what it holds is taken from its beginning."""
        former, shadow.transactions = shadow.transactions, LogTransactions()
        for batch in shadow.batches:
            if batch.base_offset not in shadow.removed:
                shadow.transactions.take(batch, truth.contents)
        if truth.is_compacted and shadow.batches:
            shadow.transactions.inherit(former, shadow.batches[-1].last_offset + 1)

    def taken(self, truth: "Truth", shadow: "Shadow", batch: BatchHeader, *, is_new: bool) -> None:
        """A replica has another batch; `is_new`: its leader has just appended it."""
        view = shadow.transactions
        self._written.add(TopicPartition(truth.topic, truth.partition))
        content = truth.contents.get(batch.crc)
        if is_new and isinstance(content, list):
            self._tell_decisions(moments.PREPARED, content, shadow.broker_id)
        if is_new and batch.is_transactional:
            opener = view.openers.get(batch.producer_id) if batch.producer_id in view.open else None
            self._check_appended(truth, batch, opener)
            if opener is None and not batch.is_control:
                name = self._names.get(batch.producer_id, "")
                self.on_moment(moments.Moment(moments.OPENED, shadow.broker_id, name))
        if batch.base_offset not in shadow.removed:
            view.take(batch, truth.contents)

    def _tell_decisions(self, kind: str, records: Sequence[TransactionRecord], broker_id: int) -> None:
        for record in records:
            if record.recorded is not None and record.recorded.status in PREPARED:
                self.on_moment(moments.Moment(kind, broker_id, record.name))

    def _check_appended(self, truth: "Truth", batch: BatchHeader, opened: int | None) -> None:
        """`opened`: the checksum of the batch that has opened what is open there of this producer."""
        key = TopicPartition(truth.topic, truth.partition)
        marker = truth.contents.get(batch.crc)
        if isinstance(marker, Marker):
            # The marker is checked when the step ends: the decision may be committed in this step, and
            # be seen after the marker.
            self._markers.append((key, batch, marker, opened))
            return
        # A leader that does not know that it was replaced may ask a coordinator that does not know
        # that either. Its batches are committed only if it leads again before another leader has
        # written: `committed` places them then.
        if batch.partition_leader_epoch < max(truth.leaders, default=-1):
            self._unplaced.add((key, batch.crc))
        else:
            self._place(truth, batch, opens=opened is None)

    def _place(self, truth: "Truth", batch: BatchHeader, *, opens: bool) -> None:
        """The batch belongs to the transaction that is open."""
        key = TopicPartition(truth.topic, truth.partition)
        where = f"{truth} offset {batch.base_offset}, of producer {batch.producer_id} epoch {batch.producer_epoch}"
        known = self._id_of(batch.producer_id)
        latest = None if known is None else known.latest
        if known is None or latest is None or latest.is_complete or key not in latest.partitions:
            if opens:
                self.violate("X6", f"{where}, opens a transaction that its coordinator does not have: {latest}")
            return

        if latest.producer != (batch.producer_id, batch.producer_epoch):
            self.violate("X6", f"{where}, is appended to {latest}")
            return
        if opens and (key in latest.marked or (key, batch.partition_leader_epoch) in latest.appended):
            self.violate("X6", f"{where}, comes behind the marker of {latest}")
        self._belongs[key, batch.crc] = latest
        attempt = self._attempts.get((key, batch.crc))
        if attempt is not None:
            self._join(attempt, latest, where)

    def _join(self, attempt: Attempt, stored: Transaction, where: str) -> None:
        """The two views are of one transaction."""
        if attempt.stored is None and stored.attempt is None:
            attempt.stored = stored
            stored.attempt = attempt
        if attempt.stored is not stored or stored.attempt is not attempt:
            self.violate(
                "X1",
                f"{where}: {attempt} belongs to {stored}; that of {stored.attempt}, this to {attempt.stored}",
            )

    def looked(self) -> None:
        """Everything that changed in this step was looked at."""
        for each in self._markers:
            self._check_marker(*each)
        self._markers.clear()

    def _check_marker(self, key: TopicPartition, batch: BatchHeader, marker: Marker, opened: int | None) -> None:
        """X7: this decision is below the high watermark, and X6: it is that of the transaction which is open."""
        known = self._id_of(batch.producer_id)
        ends = None if opened is None else self._belongs.get((key, opened))
        if ends is not None and (ends.is_commit, ends.marker_epoch) != (marker.is_commit, batch.producer_epoch):
            self.violate("X6", f"{key} gets a marker of epoch {batch.producer_epoch} that ends {ends}")
        for each in [] if known is None else reversed(known.transactions):
            is_its_producer = (each.producer.producer_id, each.marker_epoch) == (
                batch.producer_id,
                batch.producer_epoch,
            )
            if each.is_commit is marker.is_commit and is_its_producer:
                each.appended[key, batch.partition_leader_epoch] = None
                return

        result = "COMMIT" if marker.is_commit else "ABORT"
        text = f"{key} gets {result} at {batch.base_offset} of producer {batch.producer_id}"
        latest = None if known is None else known.latest
        self.violate("X7", f"{text} epoch {batch.producer_epoch}; what is committed is {latest}")

    def committed(self, truth: "Truth", batch: BatchHeader, broker_id: int) -> None:
        """The high watermark of a leader, this broker, passed the batch."""
        content = truth.contents.get(batch.crc)
        key = TopicPartition(truth.topic, truth.partition)
        if truth.topic == TRANSACTION_TOPIC and isinstance(content, list):
            for record in content:
                self._decided(record)
            self._tell_decisions(moments.DECIDED, content, broker_id)
        elif isinstance(content, Marker):
            self._note_marked(key, batch, content)
        elif batch.is_transactional:
            known = self._id_of(batch.producer_id)
            if known is None or known.given is None:
                return
            mine = (batch.producer_id, batch.producer_epoch)
            if (key, batch.crc) in self._unplaced:
                self._place(truth, batch, opens=False)
            belongs = self._belongs.get((key, batch.crc))
            if self._is_older(known, Producer(*mine)) and (belongs is None or belongs.is_commit is None):
                self.violate(
                    "X9", f"{truth} offset {batch.base_offset} is of {_text(mine)}, after {_text(known.given)}"
                )

    def _note_marked(self, key: TopicPartition, batch: BatchHeader, marker: Marker) -> None:
        """A marker is committed: this partition has it."""
        known = self._id_of(batch.producer_id)
        latest = None if known is None else known.latest
        if latest is None or latest.is_commit is not marker.is_commit or latest.marker_epoch != batch.producer_epoch:
            return
        latest.marked[key] = None

    def lost(self, truth: "Truth") -> None:
        """The partition has lost records, as the rules permit."""
        self.void.add(TopicPartition(truth.topic, truth.partition))
        if truth.topic in INTERNAL_TOPICS:
            self.is_void = True

    def is_committed(self, truth: "Truth", batch: BatchHeader) -> bool:
        """Whether the batch belongs to a transaction that is decided to be committed."""
        belongs = self._belongs.get((TopicPartition(truth.topic, truth.partition), batch.crc))
        return belongs is not None and belongs.is_commit is True

    # -- decisions

    def _id_of(self, producer_id: int) -> _Id | None:
        name = self._names.get(producer_id)
        return None if name is None else self._ids[name]

    def _decided(self, record: TransactionRecord) -> None:
        """A record of an id is committed."""
        name = record.name
        recorded = record.recorded
        known = self._ids.setdefault(name, _Id())
        before = known.recorded
        known.recorded = recorded
        if recorded is None:
            return
        if before is not None and before.status not in VALID_PREVIOUS_STATES[recorded.status]:
            self.violate("X1", f"{name!r} goes from {before.status.name} to {recorded.status.name}")
        producer = Producer(recorded.producer_id, recorded.producer_epoch)
        if not known.producers or known.producers[-1] != producer:
            known.producers.append(producer)
            self._names[producer.producer_id] = name
        latest = known.latest
        if recorded.status is Status.ONGOING:
            if before is None or before.status is not Status.ONGOING or latest is None:
                known.transactions.append(Transaction(name, len(known.transactions) + 1, producer, recorded.partitions))
            else:
                latest.partitions = recorded.partitions
        elif latest is not None and recorded.status in PREPARED:
            self._check_decision(known, latest, recorded)
        elif latest is not None and recorded.status in AT_REST and recorded.status is not Status.EMPTY:
            self._check_completion(latest)

    def _check_decision(self, known: _Id, decided: Transaction, recorded: Recorded) -> None:
        decided.is_commit = recorded.is_commit
        decided.marker_epoch = recorded.producer_epoch
        self.count("committed" if decided.is_commit else "aborted")
        is_fenced = recorded.producer_epoch != decided.producer.producer_epoch
        if decided.is_commit and self._is_older(known, decided.producer):
            self.violate("X9", f"{decided} after {_text(known.given or (-1, -1))} was given out")
        if is_fenced and decided.is_commit:
            self.violate("X9", f"{decided} with the epoch {recorded.producer_epoch}")
        if not is_fenced:
            attempts = [decided.attempt] if decided.attempt else known.attempts
            if not any(each.asked is decided.is_commit and each.producer == decided.producer for each in attempts):
                rule = "X1" if decided.is_commit else "X9"
                self.violate(rule, f"{decided}, which no client asked for: {decided.attempt}")

        attempt = decided.attempt
        if decided.is_commit and attempt is not None:
            self._consume(attempt)

    def _consume(self, attempt: Attempt) -> None:
        """X10: what a committed transaction consumed begins where the one before ended."""
        for key, (begin, end) in attempt.offsets.items():
            consumed = self._consumed.setdefault(key, [])
            expected = consumed[-1][1] if consumed else 0
            if begin != expected:
                self.violate("X10", f"{attempt} consumes {begin} to {end} of {key}, where {expected} comes next")
            consumed.append((self._now_ms(), end))

    def _check_completion(self, complete: Transaction) -> None:
        complete.is_complete = True
        # A partition may be added before its topic exists, such as that of a group whose first offsets would create the
        # offsets topic. If nothing was written to it, the transaction needs no marker there.
        ended = complete.marked.keys() | self.void
        unmarked = [each for each in complete.partitions if each in self._written and each not in ended]
        if unmarked:
            self.violate("X6", f"{complete} is complete without a marker in {', '.join(map(str, unmarked))}")

    def _is_older(self, known: _Id, producer: Producer) -> bool:
        """Whether a client was given a later owner of the id than this one."""
        if known.given is None or producer not in known.producers or known.given not in known.producers:
            return False
        return known.producers.index(producer) < known.producers.index(known.given)

    # -- clients

    def begun(self, attempt: Attempt) -> None:
        """A client begins a transaction."""
        self._ids.setdefault(attempt.name, _Id()).attempts.append(attempt)

    def sent(self, attempt: Attempt, key: TopicPartition, checksum: int) -> None:
        """A client sends this batch for the first time."""
        attempt.batches[key, checksum] = False
        self._attempts[key, checksum] = attempt

    def given(self, name: str, producer: Producer, client: str, expected: Producer) -> None:
        """A client is answered that it owns the id, after it has said what it had before, or NO_PRODUCER."""
        owner = self._owners.setdefault(producer, client)
        if owner != client:
            self.violate("X9", f"{client} is given {_text(producer)} for {name!r}, which {owner} was given before")
        known = self._ids.setdefault(name, _Id())
        if producer not in known.producers:
            self.violate("X7", f"{name!r} is given {_text(producer)}, which is not committed")
            return
        if self._is_older(known, producer):
            return  # the answer was late
        if expected in known.producers and known.given is not None and self._is_older(known, expected):
            other = self._owners[known.given]
            if other != client:
                self.violate("X9", f"{client} recovers with {_text(expected)}, and {other} has {_text(known.given)}")

        known.given = producer
        for each in known.transactions:
            if each.producer != producer and not each.is_complete and not self._is_older_than(known, producer, each):
                self.violate("X9", f"{name!r} is given {_text(producer)}, and there is {each}")

    def _is_older_than(self, known: _Id, producer: Producer, transaction: Transaction) -> bool:
        return known.producers.index(producer) < known.producers.index(transaction.producer)

    def added(self, attempt: Attempt, partitions: Iterable[TopicPartition]) -> None:
        """The coordinator has answered that these partitions belong to the transaction."""
        stored = self._ids[attempt.name].latest
        if (
            stored is None
            or stored.producer != attempt.producer
            or any(each not in stored.partitions for each in partitions)
        ):
            if not self._is_older(self._ids[attempt.name], attempt.producer):
                self.violate("X7", f"{attempt} is answered that partitions are added; committed is {stored}")
            return
        self._join(attempt, stored, "the answer")

    def answered(self, attempt: Attempt, *, is_commit: bool) -> None:
        """The coordinator has answered that the transaction is committed, or aborted."""
        attempt.answered = is_commit
        stored = attempt.stored
        if stored is None:
            if any(attempt.batches.values()):
                self.violate("X1", f"{attempt} has records, and none is in a transaction")
        elif stored.is_commit is not is_commit:
            self.violate("X1", f"{attempt} is answered {'committed' if is_commit else 'aborted'}: {stored}")

    def refused(self, attempt: Attempt, code: ErrorCode) -> None:
        """EndTxn of a transaction was refused for good."""
        self.count(f"EndTxn: {code.name}")
        if code is ErrorCode.INVALID_TXN_STATE and any(attempt.batches.values()):
            self.violate("X1", f"{attempt} is answered {code.name}: {attempt.stored}")

    def resumed(self, group: str, generation: int, key: TopicPartition, offset: int, asked_ms: int) -> None:
        """X8: a group was answered where it is. It is asked only for what is stable."""
        if generation < self._generations.get(group, -1):
            return  # the response may come from a deposed coordinator
        known = self._consumed.get((group, key), [])
        before = max((index for index, (at_ms, _) in enumerate(known) if at_ms <= asked_ms), default=-1)
        possible = {end for _, end in known[max(before, 0) :]} | ({0} if before < 0 else set())
        if offset not in possible and key not in self.void:
            self.violate(
                "X8", f"{group} is answered {offset} of {key}; committed in transactions is {sorted(possible)}"
            )

    def generation(self, group: str, generation: int) -> None:
        """A member is given a generation of its group."""
        self._generations[group] = max(generation, self._generations.get(group, -1))

    # -- readers

    def read(self, truth: "Truth", name: str, served: Sequence[BatchHeader], delivered: Container[int]) -> None:
        """A reader of committed records was served batches, and gives those at some base offsets to its user."""
        key = TopicPartition(truth.topic, truth.partition)
        if key in self.void:
            return
        end_offset: int | None = None
        for batch in served:
            if end_offset is not None and batch.base_offset != end_offset:
                self.violate("X4", f"{name} is served {batch.base_offset} behind {end_offset} of {truth}")
            end_offset = batch.last_offset + 1
            if batch.is_control or not batch.is_transactional:
                continue
            belongs = self._belongs.get((key, batch.crc))
            if batch.base_offset in delivered:
                if belongs is None or not belongs.is_commit:
                    self.violate("X3", f"{name} is given offset {batch.base_offset} of {truth}, of {belongs}")
            elif belongs is not None and belongs.is_commit is not False:
                self.violate("X4", f"{name} is not given offset {batch.base_offset} of {truth}, of {belongs}")

    # -- the end

    def why_not_ended(self, truths: "Iterable[Truth]") -> tuple[str, str] | None:
        """What is not finished although no client writes any more: the rule and what is missing."""
        if self.is_void:
            return None
        for name, known in self._ids.items():
            recorded = known.recorded
            if recorded is not None and recorded.status not in AT_REST:
                return "X12", f"{name!r} is {recorded.status.name}: {known.latest}"
        for truth in truths:
            for shadow in truth.shadows.values():
                # Replicas with another end are left over: their broker was away when they should
                # have been deleted.
                is_current = shadow.end_offset == truth.committed_end
                if shadow.transactions.open and is_current and not shadow.is_gone:
                    return "X5", f"{truth} at {shadow.broker_id} has open transactions: {shadow.transactions.open}"
        return None

    def check_attempts(self, truths: Iterable["Truth"]) -> None:
        """X2: nothing is open any more; what became of the attempts?"""
        present = {
            (TopicPartition(truth.topic, truth.partition), batch.crc) for truth in truths for batch in truth.committed
        }
        for known in self._ids.values():
            for attempt in known.attempts:
                acknowledged = [
                    each for each, is_acked in attempt.batches.items() if is_acked and each[0] not in self.void
                ]
                missing = [each for each in acknowledged if each not in present]
                stored = attempt.stored
                if missing:
                    self.violate("X2", f"{attempt} lacks acknowledged batches: {missing}")
                if acknowledged and (stored is None or stored.is_commit is None):
                    self.violate("X2", f"{attempt} has acknowledged records and no end: {stored}")


def _text(producer: Producer | tuple[int, int]) -> str:
    return f"{producer[0]} epoch {producer[1]}"
