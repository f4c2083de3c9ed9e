"""Transactional clients in processes of their own, which record in a ledger what they do and what they hear of it.

    python -m compat_tests.cluster.etl feed|transform|read FILE

The file has in JSON: client (its settings), ledger, name, source (the input topic), topics (partitions of each topic,
by name), size (bytes).

    feed        writes transactions to the input topic, `rate` records/s; at its end it commits one in every partition
    transform   a member of `group`: reads committed records of the input topic, and writes one for each to every other
                topic. Records and offsets are one transaction, with the group's metadata (KIP-447)
    read        reads every partition from its beginning, with `isolation`, without a group

Some transactions are aborted, and some are taken over by a successor with the same transactional id, after which the
fenced producer still tries to commit. A `name` is a transactional id as well, and `incarnation` counts its processes.
SIGTERM ends a client in order: a transaction is ended, and a reader reads to the end.
"""

import json
import pathlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from compat_tests.cluster.ledger import Ledger, make_value, read_stamp
from compat_tests.cluster.worker import ASK_SECONDS, QUICK_RETRIES, WORDS, Ended

CALL_SECONDS = 5.0
TRANSACTION_TIMEOUT_MS = 10_000
OFFSETS_SECONDS = 7.0  # after a hang the next producer aborts the transaction, and all must be whole within 30 s
BATCH_RECORDS = 50
BATCH_SECONDS = 0.2
COMMIT, ABORT, FENCED = "commit", "abort", "fenced"
WEIGHTS = {COMMIT: 80, ABORT: 16, FENCED: 4}


class Input(NamedTuple):
    """Where an input record is."""

    partition: int
    offset: int


class ClientHangs(Exception):
    """A call of the client does not return."""


class Transaction:
    """One transaction: what is put into it."""

    def __init__(self, name: str, producer: Producer, ledger: Ledger, size: int) -> None:
        self.name = name
        self.offsets: dict[int, int] = {}
        self._records: list[tuple[str, int, int, Input | None]] = []
        self._producer = producer
        self._ledger = ledger
        self._size = size
        self._failures: list[KafkaException] = []

    def produce(self, topic: str, partition: int, source: Input | None = None) -> None:
        number = len(self._records)
        self._records.append((topic, partition, number, source))
        value = make_value(self.name, number, self._size)
        self._producer.produce(topic, value, key=b"%d" % number, partition=partition, on_delivery=self._delivered)
        self._producer.poll(0)

    def commit_offsets(self, topic: str, offsets: dict[int, int], consumer: Consumer) -> None:
        self.offsets = offsets
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        # librdkafka 2.16 remembers which broker coordinates a group. If it can reach no broker it forgets all brokers,
        # but not this one: then it waits without end for a connection that it has given up.
        call = threading.Thread(
            target=self._send_offsets, args=(places, consumer.consumer_group_metadata()), daemon=True
        )
        call.start()
        call.join(OFFSETS_SECONDS)
        if call.is_alive():
            raise ClientHangs("send_offsets_to_transaction does not return")
        if self._failures:
            raise self._failures[0]

    def _send_offsets(self, places: list[TopicPartition], group_metadata: object) -> None:
        try:
            insist(self._producer.send_offsets_to_transaction, places, group_metadata)
        except KafkaException as error:  # raised again by the caller, which waits for this thread
            self._failures.append(error)

    def note_ending(self, wish: str) -> None:
        """From now on the coordinator may know the wish."""
        records = [[topic, partition, number, source] for topic, partition, number, source in self._records]
        self._ledger.write("ending", transaction=self.name, wish=wish, records=records, offsets=self.offsets)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        stamp = read_stamp(message.value())
        place = {"topic": message.topic(), "partition": message.partition(), **stamp._asdict()}
        if error is None:
            self._ledger.write("acked", offset=message.offset(), **place)
        else:
            self._ledger.write("failed", reason=str(error), **place)


def flush(producer: Producer) -> int:
    """How many records have no fate yet after CALL_SECONDS. KafkaException when the client cannot go on.

    After an abort librdkafka may number records again that a leader had stored before it died; the next leader refuses
    them as out of order.
    """
    try:
        return int(producer.flush(CALL_SECONDS))
    # A fatal error is raised as a KafkaError, whose class is no exception's: no other clause catches it.
    except:
        error = sys.exc_info()[1]
        if isinstance(error, KafkaError):
            raise KafkaException(error) from None
        raise


class TransactionalProducer:
    """A producer that carries out transactions, and is replaced when it cannot go on."""

    def __init__(self, options: dict[str, Any], ledger: Ledger) -> None:
        self._options = options
        self._ledger = ledger
        self._count = 0
        self._producer = self._make()

    def carry_out(self, fill: Callable[[Transaction], None], wish: str) -> str:
        """One transaction that `fill` puts something into; its outcome: committed, aborted or unknown."""
        producer = self._producer
        producer.begin_transaction()
        name = f"{self._options['name']}-{self._options['incarnation']}-{self._count}"
        self._count += 1
        transaction = Transaction(name, producer, self._ledger, self._options["size"])
        self._ledger.write("begun", transaction=name, id=self._options["name"])
        is_commit_asked = False
        try:
            fill(transaction)
            while flush(producer):
                pass  # every record's fate is known within the timeout of the transaction
            if wish == FENCED:
                return self._commit_when_fenced(transaction)
            if wish == COMMIT:
                transaction.note_ending(COMMIT)
                is_commit_asked = True
                insist(producer.commit_transaction)
                return self._conclude(transaction, "committed")
        except ClientHangs as error:
            self._ledger.write("note", transaction=name, text=str(error))
            transaction.note_ending(ABORT)
            self._producer = self._make()  # aborts what is open
            return self._conclude(transaction, "aborted")
        except KafkaException as error:
            self._ledger.write("note", transaction=name, text=str(error))
            if is_commit_asked and not error.args[0].txn_requires_abort():
                self._producer = self._make()
                return self._conclude(transaction, "unknown")
        if not is_commit_asked:
            transaction.note_ending(ABORT)
        return self._abort(transaction, is_commit_asked)

    def _abort(self, transaction: Transaction, is_commit_asked: bool) -> str:
        try:
            insist(self._producer.abort_transaction)
        except KafkaException as error:  # fenced, most of the time: the coordinator has aborted it already
            self._ledger.write("note", transaction=transaction.name, text=str(error))
            self._producer = self._make()
            if is_commit_asked:
                return self._conclude(transaction, "unknown")
        return self._conclude(transaction, "aborted")

    def _commit_when_fenced(self, transaction: Transaction) -> str:
        """A successor takes the id over; only then the producer asks for the commit."""
        fenced, self._producer = self._producer, self._make()
        self._ledger.write("fenced", transaction=transaction.name)
        transaction.note_ending(COMMIT)
        try:
            insist(fenced.commit_transaction)
        except KafkaException as error:
            self._ledger.write("note", transaction=transaction.name, text=str(error))
            return self._conclude(transaction, "aborted")
        return self._conclude(transaction, "committed")

    def _conclude(self, transaction: Transaction, outcome: str) -> str:
        self._ledger.write("ended", transaction=transaction.name, id=self._options["name"], outcome=outcome)
        if outcome == "committed":
            for partition, offset in transaction.offsets.items():
                where = {"topic": self._options["source"], "partition": partition, "offset": offset}
                self._ledger.write("committed", member=self._options["name"], group=self._options["group"], **where)
        return outcome

    def _make(self) -> Producer:
        producer = Producer(
            {
                **self._options["client"],
                "client.id": self._options["name"],
                "transactional.id": self._options["name"],
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
                **QUICK_RETRIES,
                **WORDS,
            }
        )
        insist(producer.init_transactions)
        return producer


def insist(call: Callable[..., object], *arguments: object) -> None:
    """Make this call of a transactional producer until it has an outcome; KafkaException."""
    while True:
        try:
            call(*arguments, CALL_SECONDS)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def feed(options: dict[str, Any], ledger: Ledger, ended: Ended) -> None:
    """Transactions of records for the input topic, at a steady pace."""
    producer = TransactionalProducer(options, ledger)
    rng = random.Random(options["seed"])
    source, partitions = options["source"], options["topics"][options["source"]]

    def fill(transaction: Transaction) -> None:
        for _ in range(rng.randint(1, 2 * int(options["rate"] * BATCH_SECONDS))):
            transaction.produce(source, rng.randrange(partitions))
            time.sleep(1 / options["rate"])

    def fill_last(transaction: Transaction) -> None:
        for partition in range(partitions):
            transaction.produce(source, partition)

    while not ended.is_set:
        producer.carry_out(fill, draw_wish(rng))
    while producer.carry_out(fill_last, COMMIT) != "committed":
        pass


def draw_wish(rng: random.Random) -> str:
    return rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]


class Transformer:
    """A group member that reads, transforms and writes; its offsets are in its transactions."""

    def __init__(self, options: dict[str, Any], ledger: Ledger) -> None:
        self._options = options
        self._ledger = ledger
        self._source = options["source"]
        self._outputs = {topic: count for topic, count in options["topics"].items() if topic != self._source}
        self._rng = random.Random(options["seed"])
        self._producer = TransactionalProducer(options, ledger)
        self._batch: list[Message] = []
        self._consumer = Consumer(
            {
                **consumer_settings(options),
                "group.id": options["group"],
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 1000,
            }
        )
        self._consumer.subscribe([self._source], on_assign=self._assigned, on_revoke=self._revoked)

    def run(self, ended: Ended) -> None:
        while not ended.is_set:
            self._gather()
            if self._batch and self._producer.carry_out(self._fill, draw_wish(self._rng)) != "committed":
                self._rewind()
            self._batch = []
        self._consumer.close()

    def _gather(self) -> None:
        """What arrives in a moment; what it got for partitions that are lost meanwhile is dropped."""
        until = time.monotonic() + BATCH_SECONDS
        while len(self._batch) < BATCH_RECORDS and (left := until - time.monotonic()) > 0:
            message = self._consumer.poll(left)
            if message is not None and message.error() is None:
                self._batch.append(message)

    def _fill(self, transaction: Transaction) -> None:
        for message in self._batch:
            source = Input(message.partition(), message.offset())
            for topic, partitions in self._outputs.items():
                transaction.produce(topic, sum(source) % partitions, source)
        offsets = {message.partition(): message.offset() + 1 for message in self._batch}
        transaction.commit_offsets(self._source, offsets, self._consumer)

    def _rewind(self) -> None:
        """Read on from what the group has committed: the transaction has not."""
        if places := self._consumer.assignment():
            self._assign(places, seconds=float("inf"))

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._assign(places, ASK_SECONDS)  # if there is no answer in this time, the client asks by itself

    def _assign(self, places: list[TopicPartition], seconds: float) -> None:
        """Ask for the committed offsets, which waits for transactions that are under way, and read on from there."""
        asked = time.time()
        committed = self._committed(places, seconds)
        for place in committed:
            offset = max(place.offset, -1)  # librdkafka's word for nothing is -1001
            where = {"topic": place.topic, "partition": place.partition, "offset": offset}
            self._ledger.write(
                "resumed", member=self._options["name"], group=self._options["group"], asked=asked, **where
            )
            place.offset = max(offset, 0)
        if committed:
            self._consumer.assign(committed)

    def _committed(self, places: list[TopicPartition], seconds: float) -> list[TopicPartition]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                committed = self._consumer.committed(places, timeout=CALL_SECONDS)
            except KafkaException:
                continue
            if all(place.error is None for place in committed):
                return committed
        return []

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._batch = []
        for place in places:
            who = {"member": self._options["name"], "group": self._options["group"]}
            self._ledger.write("revoked", **who, topic=place.topic, partition=place.partition)


def read(options: dict[str, Any], ledger: Ledger, ended: Ended) -> None:
    """Note every record, until SIGTERM has come and the end at that time is reached."""
    consumer = Consumer(
        {
            **consumer_settings(options),
            "group.id": options["name"],  # it needs one, and does not use it
            "isolation.level": options["isolation"],
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    places = [TopicPartition(topic, number, 0) for topic, count in options["topics"].items() for number in range(count)]
    consumer.assign(places)
    reached: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] | None = None
    while ends is None or any(reached.get(place, 0) < end for place, end in ends.items()):
        for message in consumer.consume(500, timeout=0.2):
            place = message.topic(), message.partition()
            if message.error() is None:
                where = {"topic": place[0], "partition": place[1], "offset": message.offset()}
                who = {"member": options["name"], "isolation": options["isolation"]}
                ledger.write("read", **who, **where, **read_stamp(message.value())._asdict())
                reached[place] = message.offset() + 1
            elif message.error().code() == KafkaError._PARTITION_EOF:
                reached[place] = message.offset()
            elif message.error().code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(message.error())
        if ended.is_set and ends is None:
            # The client does not repeat this request when a partition has moved. The loop does, while it reads on.
            with suppress(KafkaException):
                ends = dict(ends_of(consumer, places))
    consumer.close()


def ends_of(consumer: Consumer, places: list[TopicPartition]) -> Iterator[tuple[tuple[str, int], int]]:
    for place in places:
        _, end = consumer.get_watermark_offsets(place, timeout=ASK_SECONDS)
        yield (place.topic, place.partition), end


def consumer_settings(options: dict[str, Any]) -> dict[str, Any]:
    return {
        **options["client"],
        "client.id": options["name"],
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 200,
        **QUICK_RETRIES,
        **WORDS,
    }


def main() -> None:
    work, options = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text())
    ended = Ended()
    ledger = Ledger(pathlib.Path(options["ledger"]))
    if work == "feed":
        feed(options, ledger, ended)
    elif work == "transform":
        Transformer(options, ledger).run(ended)
    else:
        read(options, ledger, ended)
    ledger.close()


if __name__ == "__main__":
    main()
