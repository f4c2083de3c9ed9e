"""Producers with transactional ids, and a client that pings.

    python -m bench.transaction_clients WHAT BOOTSTRAP TOPIC IDS TRANSACTIONS

Each runs in a process of its own and prints one line of JSON: the seconds that all transactions took, and the latency
of each in ms, from its begin to the answer of EndTxn.

`one-by-one` is confluent-kafka in its default settings; `one-by-one-mocked` is the same at the mock cluster in its own
process, which stores nothing, so no broker makes this client much faster. `at-once` has many ids in one process, so it
uses plain sockets to cost little beside the broker; it sends what the Java producer sends, and pauses as that does.
"""

import heapq
import json
import select
import selectors
import sys
import time
from collections.abc import Callable, Generator, Sequence
from itertools import count
from typing import Any, NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import TRANSACTIONAL, build_batch
from barnabas.wire.sentinels import NO_PRODUCER_ID
from bench.contenders import metadata_of
from bench.load import PRODUCE_VERSION, Case, Client, batch_of

FIND_VERSION, INIT_VERSION, ADD_VERSION, END_VERSION = 3, 4, 3, 3
TRANSACTION = 1  # the type of FindCoordinator
TRANSACTION_TIMEOUT_MS = 600_000
# Java's ADD_PARTITIONS_RETRY_BACKOFF_MS: the pause while the markers of the transaction before are written. librdkafka
# has the same.
RETRY_SECONDS = 0.02
PATIENCE_SECONDS = 60.0
RECORD_BYTES = 100
FIRST_TRANSACTIONS = 5  # that are not measured: connections, metadata
PING_SECONDS = 0.002
REPEATED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,  # of a leader that could not ask the coordinator, too
)

AskedTopic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Ask(NamedTuple):
    """A request to the broker at this port."""

    port: int
    request: m.Message
    version: int


# A work yields requests, and receives their responses; a float is a pause in seconds.
Steps = Generator[Ask | float, Any, None]


class Connection:
    """A socket with one request under way."""

    def __init__(self, port: int) -> None:
        self.client = Client(port)

    def send(self, asked: Ask) -> None:
        self.client.request(asked.request, asked.version)

    def receive(self) -> m.Message:
        return self.client.response()

    def ask(self, request: m.Message, version: int) -> Any:
        """Send, and wait for the response."""
        self.send(Ask(0, request, version))
        return self.receive()


def run(works: Sequence[Steps]) -> None:
    """Do all of them at once, each over connections of its own, as clients in processes of their own would."""
    selector, pauses, numbers = selectors.DefaultSelector(), [], count()
    connections: dict[tuple[int, int], Connection] = {}

    def advance(number: int, received: m.Message | None) -> bool:
        """Whether the work goes on."""
        try:
            asked = works[number].send(received)
        except StopIteration:
            return False
        if isinstance(asked, float):
            heapq.heappush(pauses, (time.monotonic() + asked, next(numbers), number))
            return True
        connection = connections.get((number, asked.port))
        if connection is None:
            connection = connections[number, asked.port] = Connection(asked.port)
            selector.register(connection.client.socket, selectors.EVENT_READ, (number, connection))
        connection.send(asked)
        return True

    going_on = sum(advance(number, None) for number in range(len(works)))
    while going_on:
        wait = max(pauses[0][0] - time.monotonic(), 0) if pauses else PATIENCE_SECONDS
        ready = selector.select(wait)
        if not ready and not pauses:
            raise RuntimeError(f"{going_on} requests were not answered")
        for key, _ in ready:
            number, connection = key.data
            going_on -= not advance(number, connection.receive())
        while pauses and pauses[0][0] <= time.monotonic():
            _, _, number = heapq.heappop(pauses)
            going_on -= not advance(number, None)
    for connection in connections.values():
        connection.client.close()


class TransactionalProducer:
    """A producer with a transactional id; each method is a part of a work."""

    def __init__(self, port: int, name: str) -> None:
        """`port`: of any broker."""
        self.name = name
        self._port = port
        self.coordinator_port = 0
        self.producer_id, self.epoch = NO_PRODUCER_ID, -1
        self._sequences: dict[tuple[str, int], int] = {}

    def find_coordinator(self) -> Steps:
        """FindCoordinator. The first one creates `__transaction_state`."""
        request = m.FindCoordinatorRequest(key=self.name, key_type=TRANSACTION)
        response = yield from repeated(self._port, request, FIND_VERSION)
        self.coordinator_port = response.port

    def init(self) -> Steps:
        """InitProducerId."""
        request = m.InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS, producer_id=-1, producer_epoch=-1
        )
        response = yield from repeated(self.coordinator_port, request, INIT_VERSION)
        self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def add(self, partitions: dict[str, list[int]]) -> Steps:
        """AddPartitionsToTxn."""
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AskedTopic(name=name, partitions=indexes) for name, indexes in partitions.items()],
        )
        yield from repeated(self.coordinator_port, request, ADD_VERSION)

    def produce(self, leader_port: int, partitions: dict[str, list[int]]) -> Steps:
        """A record to each of these partitions of one leader."""
        topics = [
            m.ProduceRequest.TopicProduceData(
                name=name,
                partition_data=[
                    m.ProduceRequest.PartitionProduceData(index=index, records=self._next_batch(name, index))
                    for index in indexes
                ],
            )
            for name, indexes in partitions.items()
        ]
        request = m.ProduceRequest(transactional_id=self.name, acks=-1, timeout_ms=30_000, topic_data=topics)
        yield from repeated(leader_port, request, PRODUCE_VERSION)

    def end(self) -> Steps:
        """EndTxn: commit."""
        yield from repeated(self.coordinator_port, self.end_request(), END_VERSION)

    def end_request(self) -> m.EndTxnRequest:
        """EndTxn: commit."""
        return m.EndTxnRequest(
            transactional_id=self.name, producer_id=self.producer_id, producer_epoch=self.epoch, committed=True
        )

    def _next_batch(self, topic: str, index: int) -> bytes:
        sequence = self._sequences.get((topic, index), 0)
        self._sequences[topic, index] = sequence + 1
        batch = build_batch(
            [(None, bytes(RECORD_BYTES))],
            timestamp_ms=int(time.time() * 1000),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        return bytes(batch.data)


def repeated(port: int, request: m.Message, version: int) -> Generator[Ask | float, Any, Any]:
    """Ask until the response has no error that clients repeat; the response. RuntimeError for other errors."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        response = yield Ask(port, request, version)
        errors = errors_in(response)
        if not errors:
            return response
        if any(each not in REPEATED for each in errors) or time.monotonic() > deadline:
            raise RuntimeError(f"{type(request).__name__} failed: {[ErrorCode(each).name for each in errors]}")
        yield RETRY_SECONDS


def errors_in(response: Any) -> set[int]:
    """The error codes of a response, except NONE."""
    if isinstance(response, m.ProduceResponse):
        return {row.error_code for topic in response.responses for row in topic.partition_responses} - {0}
    if isinstance(response, m.AddPartitionsToTxnResponse):
        rows = (row for topic in response.results_by_topic_v3_and_below for row in topic.results_by_partition)
        return {row.partition_error_code for row in rows} - {0}
    return {response.error_code} - {0}


def check(response: Any) -> None:
    if errors := errors_in(response):
        raise RuntimeError(f"{type(response).__name__} has errors: {[ErrorCode(each).name for each in errors]}")


def leader_ports(port: int, topic: str) -> list[int]:
    """The port of each partition's leader, by partition index."""
    metadata = metadata_of(port, topic)
    ports = {broker.node_id: broker.port for broker in metadata.brokers}
    rows = sorted(metadata.topics[0].partitions, key=lambda row: row.partition_index)
    return [ports[row.leader_id] for row in rows]


# -- programs


class Took(NamedTuple):
    """What a program measured."""

    seconds: float
    latencies_ms: list[float]


def one_by_one(bootstrap: str, topic: str, ids: int, transactions: int) -> Took:
    """confluent-kafka: transactions of one record, one after the other."""
    return confluent({"bootstrap.servers": bootstrap}, topic, transactions)


def one_by_one_mocked(bootstrap: str, topic: str, ids: int, transactions: int) -> Took:
    """The same at librdkafka's mock cluster, whatever `bootstrap` is."""
    return confluent({"test.mock.num.brokers": 1, "log_level": 0}, topic, transactions)


def confluent(config: dict[str, str | int], topic: str, transactions: int) -> Took:
    """Transactions of one record, one after the other, with the cluster that `config` names."""
    from confluent_kafka import Producer

    producer = Producer({**config, "transactional.id": f"{topic}-one-by-one"})
    producer.init_transactions(PATIENCE_SECONDS)
    latencies, began = [], 0.0
    for number in range(-FIRST_TRANSACTIONS, transactions):
        if number == 0:
            began = time.perf_counter()
        begun = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic, bytes(RECORD_BYTES))
        producer.commit_transaction(PATIENCE_SECONDS)
        if number >= 0:
            latencies.append((time.perf_counter() - begun) * 1000)
    return Took(time.perf_counter() - began, latencies)


def at_once(bootstrap: str, topic: str, ids: int, transactions: int) -> Took:
    """Many ids, each with transactions of one record, one after the other. Id n writes to partition n of the topic."""
    port = int(bootstrap.split(",", maxsplit=1)[0].rpartition(":")[2])
    ports = leader_ports(port, topic)
    producers = [TransactionalProducer(port, f"{topic}-{number}") for number in range(ids)]
    latencies: list[float] = []

    def prepare(producer: TransactionalProducer) -> Steps:
        yield from producer.find_coordinator()
        yield from producer.init()

    def work(number: int, times: int, noted: list[float]) -> Steps:
        producer, index = producers[number], number % len(ports)
        for _ in range(times):
            begun = time.perf_counter()
            yield from producer.add({topic: [index]})
            yield from producer.produce(ports[index], {topic: [index]})
            yield from producer.end()
            noted.append((time.perf_counter() - begun) * 1000)

    run([prepare(producer) for producer in producers])
    run([work(number, FIRST_TRANSACTIONS, []) for number in range(ids)])
    each = -(-transactions // ids)
    began = time.perf_counter()
    run([work(number, each, latencies) for number in range(ids)])
    return Took(time.perf_counter() - began, latencies)


def pings(bootstrap: str, topic: str, ids: int, transactions: int) -> Took:
    """One record each 2 ms to a topic, without transaction, until standard input ends. The broker may start later."""
    batch = m.ProduceRequest.PartitionProduceData(index=0, records=batch_of(Case("", 1, RECORD_BYTES)))
    data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=[batch])
    request = m.ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
    print("pings", flush=True)
    connection = connected(int(bootstrap.rpartition(":")[2]))
    began = time.perf_counter()
    # The first latency is the time from the connection to the first record, for a broker may be there without topics.
    while errors_in(connection.ask(request, PRODUCE_VERSION)):
        if time.perf_counter() > began + PATIENCE_SECONDS:
            raise RuntimeError(f"nothing can be written to {topic}")
        time.sleep(PING_SECONDS)
    latencies = [(time.perf_counter() - began) * 1000]
    while not select.select([sys.stdin], [], [], PING_SECONDS)[0]:
        begun = time.perf_counter()
        response = connection.ask(request, PRODUCE_VERSION)
        latencies.append((time.perf_counter() - begun) * 1000)
        check(response)
    return Took(time.perf_counter() - began, latencies)


def connected(port: int) -> Connection:
    """A connection, as soon as a broker listens."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return Connection(port)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(PING_SECONDS)


PROGRAMS: dict[str, Callable[[str, str, int, int], Took]] = {
    "one-by-one": one_by_one,
    "one-by-one-mocked": one_by_one_mocked,
    "at-once": at_once,
    "pings": pings,
}


def main() -> None:
    what, bootstrap, topic, ids, transactions = sys.argv[1:]
    took = PROGRAMS[what](bootstrap, topic, int(ids), int(transactions))
    print(json.dumps({"seconds": took.seconds, "latencies": sorted(took.latencies_ms)}), flush=True)


if __name__ == "__main__":
    main()
