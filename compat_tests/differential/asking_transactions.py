"""Short functions that build requests about transactions, and a producer that does as clients do; see `asking`.

A `Writer` repeats what clients repeat (a coordinator that loads, markers of the transaction before), so that both
brokers are in the same state afterwards, however long it takes them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from barnabas.wire import messages as m
from barnabas.wire.records import TRANSACTIONAL
from compat_tests.differential.asking import batch, fetch, list_offsets, produce_one
from compat_tests.differential.asking_clusters import describe_producers
from compat_tests.differential.side import Answer, Connection, Side

TIMEOUT_MS = 60_000
READ_COMMITTED = 1
ABORTABLE_VERSION = 11  # of Produce
NOT_FOUND = 105
# Loading, not available, not the coordinator, concurrent transactions.
REPEATED = (14, 15, 16, 51)
# Enough ids for every partition of `__transaction_state`.
IDS = "abcdefghijkl"
LATER_EPOCH = 1000  # of a coordinator

Topics = Mapping[str, Iterable[int]] | Iterable[tuple[str, Iterable[int]]]


def init(
    name: str | None, timeout_ms: int = TIMEOUT_MS, producer: int = -1, epoch: int = -1
) -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(
        transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer, producer_epoch=epoch
    )


def _topics(topics: Topics) -> list[m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic]:
    pairs = topics.items() if isinstance(topics, Mapping) else topics
    Topic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    return [Topic(name=topic, partitions=list(indexes)) for topic, indexes in pairs]


def add(name: str, producer: int, epoch: int, topics: Topics) -> m.AddPartitionsToTxnRequest:
    """Up to version 3: one transaction of a client."""
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=producer,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=_topics(topics),
    )


def add_several(*transactions: tuple[str, int, int, Topics], verify: bool = False) -> m.AddPartitionsToTxnRequest:
    """From version 4 on: (id, producer, epoch, topics) of each transaction."""
    Transaction = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    return m.AddPartitionsToTxnRequest(
        transactions=[
            Transaction(
                transactional_id=name,
                producer_id=producer,
                producer_epoch=epoch,
                verify_only=verify,
                topics=_topics(topics),
            )
            for name, producer, epoch, topics in transactions
        ]
    )


def verify(*transactions: tuple[str, int, int, Topics]) -> m.AddPartitionsToTxnRequest:
    return add_several(*transactions, verify=True)


def add_offsets(name: str, producer: int, epoch: int, group: str) -> m.AddOffsetsToTxnRequest:
    return m.AddOffsetsToTxnRequest(transactional_id=name, producer_id=producer, producer_epoch=epoch, group_id=group)


def end(name: str, producer: int, epoch: int, *, commit: bool = True) -> m.EndTxnRequest:
    return m.EndTxnRequest(transactional_id=name, producer_id=producer, producer_epoch=epoch, committed=commit)


def commit_in(  # the request's own fields
    name: str,
    group: str,
    producer: int,
    epoch: int,
    topics: Iterable[tuple[str, Iterable[Sequence[Any]]]],
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> m.TxnOffsetCommitRequest:
    """[(topic, [(partition, offset, metadata "", leader epoch -1)])]"""
    Request = m.TxnOffsetCommitRequest

    def of(index: int, offset: int, metadata: str | None = "", leader_epoch: int = -1) -> Any:
        return Request.TxnOffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=offset,
            committed_metadata=metadata,
            committed_leader_epoch=leader_epoch,
        )

    return Request(
        transactional_id=name,
        group_id=group,
        producer_id=producer,
        producer_epoch=epoch,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[
            Request.TxnOffsetCommitRequestTopic(name=topic, partitions=[of(*each) for each in partitions])
            for topic, partitions in topics
        ],
    )


def marker(
    producer: int, epoch: int, topics: Topics, *, commit: bool = True, coordinator_epoch: int = 0
) -> m.WriteTxnMarkersRequest.WritableTxnMarker:
    Request = m.WriteTxnMarkersRequest
    pairs = topics.items() if isinstance(topics, Mapping) else topics
    return Request.WritableTxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        transaction_result=commit,
        coordinator_epoch=coordinator_epoch,
        topics=[
            Request.WritableTxnMarkerTopic(name=topic, partition_indexes=list(indexes)) for topic, indexes in pairs
        ],
    )


def markers(*written: m.WriteTxnMarkersRequest.WritableTxnMarker) -> m.WriteTxnMarkersRequest:
    return m.WriteTxnMarkersRequest(markers=list(written))


def described(side: Side, *names: str) -> Answer:
    return side.ask(m.DescribeTransactionsRequest(transactional_ids=list(names)), 0)


def producers_of(side: Side, topic: str, *partitions: int) -> Answer:
    return side.ask(describe_producers(topic, *(partitions or (0,))), 0)


def read(topic: str, offset: int = 0, partition: int = 0, **fields: Any) -> m.FetchRequest:
    """Committed records."""
    return fetch([(topic, [(partition, offset)])], isolation=READ_COMMITTED, **fields)


def seen(client: Connection, topic: str, partition: int = 0) -> Iterable[tuple[str, Answer]]:
    """All of a partition, and its two ends for a reader of committed records."""
    yield "all", client.ask(fetch([(topic, [(partition, 0)])]), 12)
    for isolation in (0, READ_COMMITTED):
        yield f"end {isolation}", client.ask(list_offsets({topic: [(partition, -1)]}, isolation=isolation), 7)


def records_of(producer: int, epoch: int, sequence: int, *values: bytes, **fields: Any) -> bytes:
    """A transactional batch."""
    usual = {"attributes": TRANSACTIONAL}
    return batch(*values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **usual | fields)


def await_transactions(side: Side) -> None:
    """Wait until every partition of `__transaction_state` is led and loaded, and all leaders have producer ids."""
    find = m.FindCoordinatorRequest(key="a", key_type=1)
    side.wait(lambda: side.ask(find, 2).error_code == 0)
    for name in IDS:
        side.wait(lambda name=name: described(side, name).transaction_states[0].error_code == NOT_FOUND)
        side.wait(lambda name=name: side.ask(init(side.name(f"warm-{name}")), 4).error_code == 0)


class Writer:
    """A producer with a transactional id of its scenario. Answers are those of the last attempt."""

    def __init__(self, side: Side, of: str = "id", timeout_ms: int = TIMEOUT_MS) -> None:
        self.side = side
        self.name = side.name(of)
        self.timeout_ms = timeout_ms
        self.producer = self.epoch = -1
        self._client: Connection | None = None
        self._sequences: dict[tuple[str, int], int] = {}

    @property
    def who(self) -> tuple[str, int, int]:
        return self.name, self.producer, self.epoch

    @property
    def client(self) -> Connection:
        """One connection, as clients have; requests on an older one are not executed here."""
        if self._client is None:
            self._client = self.side.connect()
        return self._client

    def __enter__(self) -> "Writer":
        await_transactions(self.side)
        self.init()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def move_to(self, side: Side) -> None:
        """Go on with the same producer id, epoch and sequence numbers at a broker that took the directory over."""
        self.close()
        self.side = side

    def init(self, *expected: int, version: int = 4) -> Answer:
        """InitProducerId until it succeeds, or fails for good; `expected` are a producer id and an epoch."""
        answer = self._until_final(lambda: self.client.ask(init(self.name, self.timeout_ms, *expected), version))
        if not answer.error_code:
            self.producer, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
        return answer

    def add(self, *topics: str, partitions: Iterable[int] = (0,), version: int = 3) -> Answer:
        return self._until_final(lambda: self.client.ask(add(*self.who, dict.fromkeys(topics, partitions)), version))

    def add_offsets(self, group: str, version: int = 3) -> Answer:
        return self._until_final(lambda: self.client.ask(add_offsets(*self.who, group), version))

    def write(self, topic: str, *values: bytes, partition: int = 0, version: int = ABORTABLE_VERSION) -> Answer:
        """Produce with the next sequence number."""
        sequence = self._sequences.get((topic, partition), 0)
        answer = self.produce(topic, self.records(sequence, *values), partition=partition, version=version)
        if not isinstance(answer, str) and not answer.responses[0].partition_responses[0].error_code:
            self._sequences[topic, partition] = sequence + len(values or (b"v",))
        return answer

    def records(self, sequence: int, *values: bytes, **fields: Any) -> bytes:
        return records_of(self.producer, self.epoch, sequence, *values, **fields)

    def produce(
        self, topic: str, records: bytes, *, partition: int = 0, version: int = ABORTABLE_VERSION, **fields: Any
    ) -> Answer:
        return self.client.ask(self.producing(topic, records, partition, **fields), version)

    def producing(self, topic: str, records: bytes, partition: int = 0, **fields: Any) -> m.ProduceRequest:
        return produce_one(topic, records, partition, **{"transactional_id": self.name} | fields)

    def commit_offsets(self, group: str, *offsets: tuple[str, Iterable[Sequence[Any]]], version: int = 3) -> Answer:
        return self.client.ask(commit_in(self.name, group, self.producer, self.epoch, offsets), version)

    def end(self, *, commit: bool = True, version: int = 3) -> Answer:
        """EndTxn, and the answer once all markers are written."""
        answer = self._until_final(lambda: self.client.ask(end(*self.who, commit=commit), version))
        self.settle()
        return answer

    def transaction(self, topic: str, *values: bytes, commit: bool = True, partition: int = 0) -> None:
        """A whole one in one partition."""
        self.add(topic, partitions=(partition,))
        self.write(topic, *values, partition=partition)
        self.end(commit=commit)

    def described(self) -> Answer:
        return described(self.side, self.name)

    def is_in(self, *states: str) -> bool:
        return self.described().transaction_states[0].transaction_state in states

    def settle(self) -> None:
        """Wait for the markers."""
        self.side.wait(lambda: not self.is_in("PrepareCommit", "PrepareAbort"))

    def _until_final(self, ask: Callable[[], Answer]) -> Answer:
        last: list[Answer] = []

        def is_final() -> bool:
            last[:] = [ask()]
            return isinstance(last[0], str) or first_code(last[0]) not in REPEATED

        self.side.wait(is_final)
        return last[0]


def first_code(answer: Answer) -> int:
    """The error of a request with one error, or of its first partition."""
    if isinstance(answer, m.AddPartitionsToTxnResponse):
        rows = [row for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition]
        return int(rows[0].partition_error_code) if rows else 0
    return int(answer.error_code)


class Stuck:
    """A transaction that stays decided: one of its partitions has seen a marker of a later coordinator, and refuses."""

    def __init__(self, writer: Writer, *, commit: bool | None = True) -> None:
        """With None it is not ended yet."""
        self.side = writer.side
        self.topic = self.side.create_topic(f"stuck-{writer.name.rsplit('-', 1)[-1]}")
        writer.add(self.topic)
        later = marker(writer.producer, writer.epoch, {self.topic: [0]}, coordinator_epoch=LATER_EPOCH)
        answer = self.side.ask(markers(later), 1)
        assert answer.markers[0].topics[0].partitions[0].error_code == 0, answer
        if commit is not None:
            writer.client.ask(end(*writer.who, commit=commit), 3)

    def __enter__(self) -> "Stuck":
        return self

    def __exit__(self, *_: object) -> None:
        self.side.give_up_topic(self.topic)
