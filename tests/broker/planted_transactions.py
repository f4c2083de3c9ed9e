"""What tests share with `test_hostile_transactions.py`."""

from functools import partial

import trio

from barnabas.coordinators.runtime.runtime import Write
from barnabas.coordinators.transactions.coordinator import _build, _replay_all
from barnabas.coordinators.transactions.state import Recorded, Status, TransactionRecord
from barnabas.wire import messages as m
from barnabas.wire.topics import TopicPartition
from tests.broker.clock import START_MS, now_ms
from tests.broker.harness import Machine

Asked = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


AskedTopic = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


def shard_of(machine: Machine, index: int = 0):
    return machine.broker.transactions.runtime.find(index)


def plant(machine: Machine, *records: TransactionRecord) -> None:
    """Records in the log and in the state, as the coordinator writes them, but nothing is done about them."""
    write = Write(_build(records, now_ms()), partial(_replay_all, records), "planted")
    planted = machine.broker.transactions.runtime.step(shard_of(machine), lambda *_: write)
    assert planted.answer == "planted"


def recorded(status: Status, partitions=(), *, producer_id=1000, timeout_ms=60_000, start_ms=START_MS) -> Recorded:
    keys = dict.fromkeys(TopicPartition(*each) for each in partitions)
    return Recorded(producer_id, 0, timeout_ms, status, keys, start_ms, start_ms)


def statuses(machine: Machine) -> dict[str, Status]:
    return {name: known.recorded.status for name, known in shard_of(machine).state.by_name.items()}


async def stall_followers(coordinator: Machine) -> None:
    """The followers do not hear of what the coordinator writes from now on, for as long as they wait for an answer."""
    (endpoint,) = coordinator.serving.advertised
    coordinator.net.stall_connections(endpoint.port)
    await trio.sleep(1)  # what they had asked for before is answered


def marker(producer, partitions, *, commit=False, coordinator_epoch=0) -> m.WriteTxnMarkersRequest:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    Marker, Topic = m.WriteTxnMarkersRequest.WritableTxnMarker, m.WriteTxnMarkersRequest.WritableTxnMarkerTopic
    asked = Marker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=commit,
        topics=[Topic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=coordinator_epoch,
    )
    return m.WriteTxnMarkersRequest(markers=[asked])


def codes(answer: m.WriteTxnMarkersResponse) -> list[int]:
    return [row.error_code for each in answer.markers for topic in each.topics for row in topic.partitions]


def asking(*transactions) -> m.AddPartitionsToTxnRequest:
    """AddPartitionsToTxn of a broker: (id, producer, partitions, verify_only)."""
    return m.AddPartitionsToTxnRequest(
        transactions=[
            Asked(
                transactional_id=name,
                producer_id=producer[0],
                producer_epoch=producer[1],
                verify_only=verify_only,
                topics=[AskedTopic(name=topic, partitions=[index]) for topic, index in partitions],
            )
            for name, producer, partitions, verify_only in transactions
        ]
    )


def results(answer: m.AddPartitionsToTxnResponse) -> dict[str, list[int]]:
    return {
        each.transactional_id: [
            row.partition_error_code for topic in each.topic_results for row in topic.results_by_partition
        ]
        for each in answer.results_by_transaction
    }
