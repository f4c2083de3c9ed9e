"""Transactional producers of the simulated cluster, and how they interpret responses.

A `TransactionalWriter` behaves like Kafka's client (KIP-98, KIP-360): InitProducerId, then transactions, each with
AddPartitionsToTxn, batches to several partitions, EndTxn. What is answered with a retriable error, or not at all, is
asked again, on another connection. An error after which the client can go on lets it abort the transaction and ask for
the next epoch with its own one (`Abortable`). A fatal one ends this incarnation (`Fenced`): after a pause the next one
begins, which fences the client that has the id by then.

It is impatient: it often gives a connection up after a moment, so that the request that is still on its way arrives
behind later ones. Now and then it is silent for longer than the transaction may take, and then goes on as if nothing
had happened. A *rival* has the id of another writer: it appears now and then, fences the other one, and leaves, often
with an open transaction.

Everything that it sends and is answered goes into the books of `TransactionRules`.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from barnabas.coordinators.transactions.state import NO_PRODUCER, Producer
from barnabas.testing.simulation.history import ACKED, FAILED, Event, History
from barnabas.testing.simulation.party import ANSWER_SECONDS, Answer, Link, Lost, Party
from barnabas.testing.simulation.producers import BEFORE_APPEND, DELIVERED, PERHAPS_APPENDED, PRODUCE_TIMEOUT_MS
from barnabas.testing.simulation.transaction_rules import Attempt, TransactionRules
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import read_batch_header
from barnabas.wire.records import TRANSACTIONAL, build_batch
from barnabas.wire.sentinels import ACKS_ALL, NO_OFFSET
from barnabas.wire.topics import TopicPartition

PATIENCE_SECONDS = (0.1, 0.5, ANSWER_SECONDS)  # for an answer; drawn for each request
GIVE_UP_SECONDS = 15.0  # after which a request has failed
GIVING_UP_SHARE = 0.4  # of the batches without an answer
LATE_SHARE, LATE_SECONDS = 0.03, (0.1, 2.0)  # of the requests, which later ones overtake
ABANDONED_SHARE = 0.08  # of the transactions: aborted while a batch is on its way
FALSE_SHARE = 0.05  # of the transactions: one batch has an epoch that no client was given
OPEN_SECONDS = 0.4  # the mean of a pause in which a transaction stays open without need
SILENCE_FACTOR = 1.5  # times the timeout of the transaction: how long a silent writer pauses
PATIENT_SECONDS, PATIENT_TIMEOUT_MS = 38.0, 50_000  # the first transaction of a patient writer
KEYS, TOMBSTONE_SHARE = (b"a", b"b", b"c", b"d"), 0.15  # of records in tables

LOST_COORDINATOR = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
RETRIABLE = LOST_COORDINATOR | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class Fenced(Exception):
    """Another incarnation has the id, or the transaction took too long."""


class Abortable(Exception):
    """This transaction cannot be committed, but the producer can go on."""


class TransactionalPlan(NamedTuple):
    """How a writer with a transactional id behaves."""

    name: str
    partitions: Sequence[TopicPartition]
    timeout_ms: int
    pause_seconds: float = 1.0  # on average, between transactions
    silent_share: float = 0.05  # of the transactions, that take longer than they may
    abort_share: float = 0.3
    rival_seconds: float = 0.0  # between two appearances of a rival, on average
    tables: frozenset[str] = frozenset()  # topics whose records need a key
    is_patient: bool = False  # the first transaction may take long, and does


class TransactionalWriter:
    """One producer with a transactional id."""

    def __init__(self, party: Party, history: History, plan: TransactionalPlan, rules: TransactionRules) -> None:
        self.party = party
        self.plan = plan
        self.committed = 0  # transactions
        self._history = history
        self.rules = rules
        self.producer = NO_PRODUCER
        self._sequences: dict[TopicPartition, int] = {}
        self._coordinator_id: int | None = None
        self._written = 0
        self._number = 0
        self._left: Attempt | None = None  # the open transaction that this rival has left behind
        self._is_calm = False
        self._stopping = False

    @property
    def progress(self) -> int:
        """How far it has come."""
        return self.committed

    def calm(self) -> None:
        """No more silence; a rival comes no more."""
        self._is_calm = True
        if self.plan.rival_seconds:
            self._stopping = True

    def stop(self) -> None:
        """Begin no more transactions."""
        self._stopping = True

    async def run(self) -> None:
        """Write until stopped."""
        while not self._stopping:
            if self.plan.rival_seconds:
                await trio.sleep(self.party.rng.expovariate(1 / self.plan.rival_seconds))
            try:
                await self._live()
            except Fenced:
                self.producer = NO_PRODUCER
                self.rules.count("fenced")
                await self.party.pause(1.0)
            except Lost:
                # What became of the transaction is not known: as after a crash, the next incarnation begins.
                self.producer = NO_PRODUCER
                await self.party.pause()
        self.party.close()

    async def _live(self) -> None:
        """One incarnation: until it is fenced, loses its coordinator for long, or is stopped."""
        rng = self.party.rng
        plan = self.plan

        # A rival may still have the epoch of its last appearance, and go on with what it left.
        if self.producer is NO_PRODUCER or rng.random() < 0.7:
            self._left = None
            await self.init(recovers=False)
        left = rng.randint(1, 3) if plan.rival_seconds else 1 << 30
        while left > 0 and not self._stopping:
            left -= 1
            await trio.sleep(rng.expovariate(1 / plan.pause_seconds))
            if self._stopping:
                return
            attempt, self._left = self._left or self.begin(), None
            try:
                await self._fill(attempt)
                if plan.rival_seconds and not left and rng.random() < 0.5:
                    self._left = attempt
                    return
                await self.end(attempt, commit=rng.random() >= plan.abort_share)
                if plan.is_patient and self._number == 1:
                    self.producer = NO_PRODUCER  # the next incarnation has the usual timeout
                    return
            except Abortable:
                self.rules.count("recovered")
                await self.recover(attempt)

    async def begin_incarnation(self) -> None:
        """Take the id, unless it is ours; for those that write by hand, as the following."""
        if self.producer is NO_PRODUCER:
            await self.init(recovers=False)

    def forget_producer(self) -> None:
        """This incarnation is over."""
        self.producer = NO_PRODUCER

    def begin(self) -> Attempt:
        """A new transaction."""
        self._number += 1
        attempt = Attempt(self.plan.name, self.party.name, self._number, self.producer)
        self.rules.begun(attempt)
        return attempt

    async def _fill(self, attempt: Attempt) -> None:
        rng = self.party.rng
        plan = self.plan
        chosen = rng.sample(list(plan.partitions), rng.randint(1, len(plan.partitions)))

        # The partitions are added by one request or by two, the second one in the middle of the
        # transaction.
        first = rng.randint(1, len(chosen))
        await self.add(attempt, chosen[:first])

        # The abandoned batch is the first of the transaction in its partition, or comes after the
        # others.
        abandoned = rng.choice((0, first)) if not self._is_calm and rng.random() < ABANDONED_SHARE else None
        for number, key in enumerate(chosen[:first]):
            if number == abandoned:
                await self._abandon(attempt, key)
            await self.write(attempt, key)

        if not self._is_calm and rng.random() < FALSE_SHARE:
            await self._write_falsely(chosen[0])
        if abandoned is not None:
            await self._abandon(attempt, chosen[0])
        if not self._is_calm and rng.random() < plan.silent_share:
            self.rules.count("silent")
            await trio.sleep(SILENCE_FACTOR * plan.timeout_ms / 1000)
        if plan.is_patient and attempt.number == 1:
            await trio.sleep(PATIENT_SECONDS)
        if chosen[first:]:
            await self.add(attempt, chosen[first:])
            for key in chosen[first:]:
                await self.write(attempt, key)

        await trio.sleep(rng.expovariate(1 / OPEN_SECONDS))
        if rng.random() < 0.3:
            await self.write(attempt, chosen[0])

    async def recover(self, attempt: Attempt) -> None:
        """As after an error that the producer survives: abort, then take the next epoch (KIP-360).

        The next epoch alone is enough, too: it aborts what is open.
        """
        if self.party.rng.random() < 0.5:
            await self.end(attempt, commit=False)
        await self.init(recovers=True)

    # -- requests to the coordinator

    async def init(self, *, recovers: bool) -> None:
        before = self.producer if recovers else NO_PRODUCER
        is_long = self.plan.is_patient and not self._number
        request = m.InitProducerIdRequest(
            transactional_id=self.plan.name,
            transaction_timeout_ms=PATIENT_TIMEOUT_MS if is_long else self.plan.timeout_ms,
            producer_id=before.producer_id,
            producer_epoch=before.producer_epoch,
        )
        answer = await self._ask(request, m.InitProducerIdResponse, lambda answer: answer.error_code)
        if answer.error_code:
            raise Fenced(f"InitProducerId is answered with {answer.error_code}")
        self.producer = Producer(answer.producer_id, answer.producer_epoch)
        self._sequences.clear()
        self.rules.given(self.plan.name, self.producer, self.party.name, before)

    async def add_offsets(self, attempt: Attempt, group: str) -> None:
        """Offsets of this group belong to the transaction."""
        request = m.AddOffsetsToTxnRequest(
            transactional_id=self.plan.name,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            group_id=group,
        )
        answer = await self._ask(request, m.AddOffsetsToTxnResponse, lambda answer: answer.error_code)
        self._judge(answer.error_code)
        self.rules.added(attempt, ())

    async def add(self, attempt: Attempt, partitions: Sequence[TopicPartition]) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.plan.name,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.producer_epoch,
            v3_and_below_topics=[
                m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )
        answer = await self._ask(request, m.AddPartitionsToTxnResponse, _first_error)
        self._judge(_first_error(answer))
        self.rules.added(attempt, partitions)

    async def end(self, attempt: Attempt, *, commit: bool) -> None:
        attempt.asked = commit
        request = m.EndTxnRequest(
            transactional_id=self.plan.name,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=commit,
        )
        answer = await self._ask(request, m.EndTxnResponse, lambda answer: answer.error_code)

        # The coordinator never heard of the transaction that is aborted.
        if answer.error_code == ErrorCode.INVALID_TXN_STATE and not commit:
            return
        if answer.error_code:
            self.rules.refused(attempt, ErrorCode(answer.error_code))
            raise Fenced(f"EndTxn is answered with {answer.error_code}")
        self.rules.answered(attempt, is_commit=commit)
        self.committed += commit

    def _judge(self, code: int) -> None:
        if code in FENCED:
            raise Fenced(f"answered with {code}")
        if code:
            raise Abortable(f"answered with {code}")

    async def _ask(self, request: m.Message, kind: type[Answer], code_of: Callable[[Answer], int]) -> Answer:
        """The coordinator's answer, once it is none after which a client asks again."""
        deadline = trio.current_time() + GIVE_UP_SECONDS
        while trio.current_time() < deadline:
            try:
                link = await self._coordinator()
                answer = await self._patiently(link, request, kind)
            except Lost:
                self._coordinator_id = None
                await self.party.pause(0.05)
                continue
            code = code_of(answer)
            if code not in RETRIABLE:
                return answer
            if code in LOST_COORDINATOR:
                self._coordinator_id = None
            await self.party.pause(0.05)

        raise Lost(f"no answer to {type(request).__name__} in {GIVE_UP_SECONDS} s")

    async def _patiently(self, link: Link, request: m.Message, kind: type[Answer]) -> Answer:
        """The answer, if it comes in time; if not, the next request takes another connection, and may overtake it."""
        if not self._is_calm and self.party.rng.random() < LATE_SHARE:
            link.delay(self.party.rng.uniform(*LATE_SECONDS))
        with trio.move_on_after(self.party.rng.choice(PATIENCE_SECONDS)):
            return await link.ask(request, kind)
        self.party.abandon(link)
        raise Lost("no answer in time")

    async def _coordinator(self) -> Link:
        if self._coordinator_id is None:
            await self.party.refresh()
            link = await self.party.broker(self.party.rng.choice(sorted(self.party.view.brokers)))
            request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[self.plan.name])
            row = (await link.ask(request, m.FindCoordinatorResponse)).coordinators[0]
            if row.error_code:
                raise Lost(f"the coordinator is not known: {row.error_code}")
            self._coordinator_id = row.node_id
            self.party.view.brokers[row.node_id] = (row.host, row.port)
        return await self.party.broker(self._coordinator_id)

    # -- records

    async def write(self, attempt: Attempt, key: TopicPartition) -> None:
        """Bring a batch to the log, or give the transaction up."""
        data, count = self._batch(key)
        header = read_batch_header(data)
        self.rules.sent(attempt, key, header.crc)
        request = self._producing(key, data)
        deadline = trio.current_time() + GIVE_UP_SECONDS
        while trio.current_time() < deadline:
            try:
                link = await self.party.leader_of(*key)
                answer = await self._patiently(link, request, m.ProduceResponse)
            except Lost:
                self.party.mistrust(*key)

                # If the writer gives up, its batch may still be on its way.
                if self.party.rng.random() < GIVING_UP_SHARE:
                    break
                await self.party.pause(0.05)
                continue
            row = answer.responses[0].partition_responses[0]
            if row.error_code in DELIVERED:
                attempt.batches[key, header.crc] = True
                self._sequences[key] = self._sequences.get(key, 0) + count
                self._tell(ACKED, key, header.base_sequence, header.crc, row.base_offset)
                return
            if row.error_code not in BEFORE_APPEND | PERHAPS_APPENDED:
                self._tell(FAILED, key, header.base_sequence, header.crc)
                raise Abortable(f"{key} answers {row.error_code}")
            self.party.mistrust(*key)
            await self.party.pause(0.05)

        self._tell(FAILED, key, header.base_sequence, header.crc)
        raise Abortable(f"{key} takes nothing")

    async def _write_falsely(self, key: TopicPartition) -> None:
        """As a client that claims a higher epoch than it was given: it must be refused."""
        right = self.producer
        sequences = self._sequences
        self._sequences = {}
        self.producer = right._replace(producer_epoch=right.producer_epoch + 1)
        data, _ = self._batch(key)
        self.producer = right
        self._sequences = sequences
        try:
            link = await self.party.leader_of(*key)
            await link.ask(self._producing(key, data), m.ProduceResponse)
        except Lost:
            self.party.mistrust(*key)

    async def _abandon(self, attempt: Attempt, key: TopicPartition) -> None:
        """Send a batch, and abort the transaction while it is on its way."""
        data, _ = self._batch(key)
        self.rules.sent(attempt, key, read_batch_header(data).crc)
        try:
            link = await self.party.leader_of(*key)
            if self.party.rng.random() < 0.5:
                link.delay(self.party.rng.uniform(0, LATE_SECONDS[1]))
            await link.send(self._producing(key, data))
            self.party.abandon(link)
        except Lost:
            self.party.mistrust(*key)
        raise Abortable("given up with a batch on its way")

    def _producing(self, key: TopicPartition, data: bytes) -> m.ProduceRequest:
        partition = m.ProduceRequest.PartitionProduceData(index=key.partition, records=memoryview(data))
        return m.ProduceRequest(
            transactional_id=self.plan.name,
            acks=ACKS_ALL,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            topic_data=[m.ProduceRequest.TopicProduceData(name=key.topic, partition_data=[partition])],
        )

    def _batch(self, key: TopicPartition) -> tuple[bytes, int]:
        count = self.party.rng.randint(1, 2)
        records = []
        for _ in range(count):
            self._written += 1
            value = f"{self.party.name}:{self._number}:{self._written}:".encode().ljust(40, b".")
            records.append(self._record_of_table(value) if key.topic in self.plan.tables else (None, value))

        batch = build_batch(
            records,
            timestamp_ms=self._history.now_ms(),
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=self._sequences.get(key, 0),
            attributes=TRANSACTIONAL,
        )
        return bytes(batch.data), count

    def _record_of_table(self, value: bytes) -> tuple[bytes, bytes | None]:
        rng = self.party.rng
        return rng.choice(KEYS), None if rng.random() < TOMBSTONE_SHARE else value

    def _tell(self, kind: str, key: TopicPartition, sequence: int, digest: int, offset: int = NO_OFFSET) -> None:
        now_ms, (producer_id, epoch) = self._history.now_ms(), self.producer
        event = Event(now_ms, kind, *key, offset, self.party.name, producer_id, epoch, sequence, digest, ACKS_ALL)
        self._history.note(event)


def _first_error(answer: m.AddPartitionsToTxnResponse) -> int:
    """One that is no consequence of another partition's."""
    codes = [
        row.partition_error_code for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition
    ]
    worst = [code for code in codes if code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)]
    return worst[0] if worst else max(codes, default=0)
