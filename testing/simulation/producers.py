"""Producers of the simulated cluster, and how they interpret responses.

A `Writer` writes to one partition. An idempotent one behaves like Kafka's client (KIP-98): at most `in_flight` batches
in flight, each with its sequence number. A batch with a retriable error, or without a response, is sent again with the
*same* number, followed by all later batches in order. A batch ends in one of three ways:

    acked      a response without error (or DUPLICATE_SEQUENCE_NUMBER)
    refused    each attempt was refused with an error that a leader sends before it appends
    failed     anything else: the delivery time ran out after an attempt whose outcome is unknown, or after an error
               that may come after the append

Kafka's client for Java goes further (`writes_on`): while batches wait for a replaced leader, it sends new batches to
the new leader, which accepts them if it has the old ones. Then it sends the old ones again, after the new ones.

After a batch that is not "acked" the sequence has a gap, so the writer gets a new producer id, as Kafka's client gets a
new epoch. Writers with acks=1 and acks=0 have no sequence and try once.

A `Twin` writes under the id of another writer, like a producer that got the same id after the metadata store was
restored from a backup. Its batch has the sequence numbers of a batch in the log, but other content: it must be refused.

Every value is unique, so that a batch can be identified in any log.
"""

from dataclasses import dataclass
from typing import NamedTuple

import trio

from barnabas.testing.simulation.history import ACKED, FAILED, OUT_OF_ORDER, REFUSED, Event, History
from barnabas.testing.simulation.party import Link, Lost, Party
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import read_batch_header
from barnabas.wire.records import build_batch
from barnabas.wire.sentinels import ACKS_ALL, NO_OFFSET

PAUSE_SECONDS_MAX = 15.0  # after the faults, each writer must be seen to make progress
DELIVERY_SECONDS = 20.0
PRODUCE_TIMEOUT_MS = 3000
BATCHES_BETWEEN = 8  # after the batch whose numbers a twin uses: brokers know a producer's last five by number only
PATIENCE_SECONDS = 0.3  # with a leader, before a producer that goes on looks for another one

# Answers after which the client asks again. Those of the first set come before the append, so
# nothing was written.
BEFORE_APPEND = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
PERHAPS_APPENDED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,  # also the answer to an append whose leader resigned while it waited
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
SEQUENCE_REFUSED = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
DELIVERED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})


class WriterPlan(NamedTuple):
    """How a writer behaves."""

    topic: str
    partition: int
    acks: int = ACKS_ALL
    in_flight: int = 5
    pause_seconds: float = 0.5  # on average, between bursts
    records_max: int = 3
    value_bytes: int = 40
    writes_on: bool = False  # to a new leader, while requests to the old one are unanswered


@dataclass(slots=True)
class Pending:
    """A batch on its way."""

    data: bytes
    digest: int
    producer_id: int
    producer_epoch: int
    sequence: int
    count: int
    since: float
    perhaps_appended: bool = False


class Writer:
    """One producer of one partition."""

    def __init__(self, party: Party, history: History, plan: WriterPlan) -> None:
        self.party = party
        self.plan = plan
        self.acked = 0  # batches
        self.delivered: list[Pending] = []  # with acks=all, under the producer id of now
        self._history = history
        self._window: list[Pending] = []
        self._producer_id = -1
        self._producer_epoch = -1
        self._sequence = 0
        self._written = 0
        self._stopping = False

    @property
    def progress(self) -> int:
        """How far it has come."""
        return self.acked

    def stop(self) -> None:
        """Write nothing new; what is under way is brought to an end."""
        self._stopping = True

    async def run(self) -> None:
        """Write until stopped."""
        rng = self.party.rng
        plan = self.plan
        while not self._stopping:
            await trio.sleep(min(rng.expovariate(1 / plan.pause_seconds), PAUSE_SECONDS_MAX))
            if self._stopping:
                break
            if plan.acks == ACKS_ALL:
                await self._deliver(rng.randint(1, plan.in_flight))
            else:
                await self._try_once(self._make())
        self.party.close()

    # -- batches

    def _make(self) -> Pending:
        count = self.party.rng.randint(1, self.plan.records_max)
        sequence = self._sequence if self._producer_id >= 0 else -1
        if sequence >= 0:
            self._sequence += count
        return self._batch_of(count, self._producer_id, self._producer_epoch, sequence)

    def _batch_of(self, count: int, producer_id: int, producer_epoch: int, sequence: int) -> Pending:
        plan = self.plan
        records = []
        for _ in range(count):
            self._written += 1
            value = f"{self.party.name}:{self._written}:".encode()
            records.append((None, value.ljust(plan.value_bytes, b".")))

        batch = build_batch(
            records,
            timestamp_ms=self._history.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        digest = read_batch_header(batch.data).crc
        now = trio.current_time()
        return Pending(bytes(batch.data), digest, producer_id, producer_epoch, sequence, count, now)

    def _request(self, pending: Pending) -> m.ProduceRequest:
        data = m.ProduceRequest.PartitionProduceData(index=self.plan.partition, records=memoryview(pending.data))
        topic = m.ProduceRequest.TopicProduceData(name=self.plan.topic, partition_data=[data])
        return m.ProduceRequest(acks=self.plan.acks, timeout_ms=PRODUCE_TIMEOUT_MS, topic_data=[topic])

    # -- acks=1 and acks=0

    async def _try_once(self, pending: Pending) -> None:
        try:
            link = await self.party.leader_of(self.plan.topic, self.plan.partition)
        except Lost:
            self._tell(REFUSED, pending)
            return

        try:
            await link.send(self._request(pending))
            if self.plan.acks == 0:
                self._tell(FAILED, pending)  # its outcome is unknown
                return
            row = (await link.receive(m.ProduceResponse)).responses[0].partition_responses[0]
        except Lost:
            self.party.mistrust(self.plan.topic, self.plan.partition)
            self._tell(FAILED, pending)
            return

        if row.error_code:
            self.party.mistrust(self.plan.topic, self.plan.partition)
            self._tell(REFUSED if row.error_code in BEFORE_APPEND else FAILED, pending)
        else:
            self.acked += 1
            self._tell(ACKED, pending, row.base_offset)

    # -- acks=all, idempotent

    async def _deliver(self, burst: int) -> None:
        """Bring a burst of batches to the log, whatever it takes, or give them up."""
        deadline = trio.current_time() + DELIVERY_SECONDS
        while self._producer_id < 0:
            if self._stopping or trio.current_time() > deadline:
                return
            await self._take_producer_id()

        self._window = [self._make() for _ in range(burst)]
        while self._window:
            await self._send_window()
            if not self._window:
                return
            if trio.current_time() > deadline:
                self._give_up()
                return
            self.party.mistrust(self.plan.topic, self.plan.partition)
            await self.party.pause()

    async def _take_producer_id(self) -> None:
        request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        try:
            await self.party.refresh(self.plan.topic)
            link = await self.party.broker(self.party.rng.choice(sorted(self.party.view.brokers)))
            answer = await link.ask(request, m.InitProducerIdResponse)
        except (Lost, IndexError):
            await self.party.pause()
            return
        if answer.error_code:
            await self.party.pause()
            return
        self._producer_id = answer.producer_id
        self._producer_epoch = answer.producer_epoch
        self._sequence = 0

    async def _send_window(self) -> None:
        """Send all that is not settled, in order, and take the answers; what is left then is to be sent again."""
        try:
            link = await self.party.leader_of(self.plan.topic, self.plan.partition)
        except Lost:
            return

        sent = []
        try:
            for pending in self._window:
                sent.append(pending)
                await link.send(self._request(pending))
            if self.plan.writes_on:
                with trio.move_on_after(PATIENCE_SECONDS):
                    await self._take_answers(link, sent)
                if sent:
                    await self._write_on(link)
            await self._take_answers(link, sent)
        except Lost:
            for pending in sent:
                pending.perhaps_appended = True

    async def _write_on(self, old: Link) -> None:
        """Send new batches to a leader that is not the old one, and take its answers."""
        plan = self.plan
        self.party.mistrust(plan.topic, plan.partition)
        try:
            link = await self.party.leader_of(plan.topic, plan.partition)
        except Lost:
            return

        if link is old:
            return
        sent = [self._make() for _ in range(self.party.rng.randint(1, plan.in_flight))]
        self._window += sent
        try:
            for pending in sent:
                await link.send(self._request(pending))
            await self._take_answers(link, sent)
        except Lost:
            for pending in sent:
                pending.perhaps_appended = True

    async def _take_answers(self, link: Link, sent: list[Pending]) -> None:
        waiting = list(sent)
        while waiting:
            row = (await link.receive(m.ProduceResponse)).responses[0].partition_responses[0]
            pending = waiting.pop(0)
            sent.remove(pending)
            if pending in self._window:
                self._settle(pending, row)

    def _settle(self, pending: Pending, row: m.ProduceResponse.PartitionProduceResponse) -> None:
        """What this answer says of the batch; a batch that stays in the window is sent again."""
        code = row.error_code
        if code in DELIVERED:
            self._window.remove(pending)
            self.delivered.append(pending)
            self.acked += 1
            self._tell(ACKED, pending, row.base_offset)
        elif code in PERHAPS_APPENDED:
            pending.perhaps_appended = True
        elif code in SEQUENCE_REFUSED:
            if pending is self._window[0]:
                self._tell(OUT_OF_ORDER, pending)
                self._give_up()
        elif code not in BEFORE_APPEND:
            pending.perhaps_appended = True
            self._give_up()

    def _give_up(self) -> None:
        """All that is under way failed; a new producer id begins at 0."""
        for pending in self._window:
            self._tell(FAILED if pending.perhaps_appended else REFUSED, pending)
        self._window.clear()
        self.delivered.clear()
        self._producer_id = -1

    def _tell(self, kind: str, pending: Pending, offset: int = NO_OFFSET) -> None:
        place = self.party.view.places.get((self.plan.topic, self.plan.partition))
        self._history.note(
            Event(
                self._history.now_ms(),
                kind,
                self.plan.topic,
                self.plan.partition,
                offset,
                self.party.name,
                pending.producer_id,
                pending.producer_epoch,
                pending.sequence,
                pending.digest,
                self.plan.acks,
                leader_epoch=-1 if place is None else place.leader_epoch,
            )
        )


class Twin(Writer):
    """A producer with the id of another writer, which has written all that it is going to under these numbers."""

    def __init__(self, party: Party, history: History, plan: WriterPlan, other: Writer) -> None:
        super().__init__(party, history, plan)
        self._other = other

    async def run(self) -> None:
        """Now and then write a batch with the numbers of one that the other wrote long ago."""
        while not self._stopping:
            await trio.sleep(self.party.rng.expovariate(1 / self.plan.pause_seconds))
            old = self._other.delivered[:-BATCHES_BETWEEN]
            if old and not self._stopping:
                like = self.party.rng.choice(old)
                await self._try_once(self._batch_of(like.count, like.producer_id, like.producer_epoch, like.sequence))
        self.party.close()
