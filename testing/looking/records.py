"""The records of a topic as a test sees them (edge): read over a plain blocking connection, as any client reads.

The request is the same for a broker on a thread and one in a process. Records of open and of aborted transactions are
there as well, each with what became of its transaction.
"""

import socket
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.client.blocking import BlockingConnection
from barnabas.testing.arguments import HOST
from barnabas.testing.asking import CLIENT_ID
from barnabas.testing.errors import LocalBrokerError, NotThere
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_name
from barnabas.wire.record_reader import COMMIT, read_control_record, walk_records
from barnabas.wire.sentinels import CONSUMER, EARLIEST, FINAL_EPOCH, NO_LEADER_EPOCH, NO_PRODUCER_ID

SECONDS = 30.0
METADATA_VERSION = 8
LIST_OFFSETS_VERSION = 5
FETCH_VERSION = 11
FETCH_BYTES = 16 << 20


class StoredRecord(NamedTuple):
    """One record of a log. `transaction` is None outside of transactions, or "open", "committed" or "aborted"."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    producer_id: int
    transaction: str | None


def records_of(port: int, topic: str) -> list[StoredRecord]:
    """All records of a topic, by partition and offset, each read from its leader.

    `port` is where a broker listens. LocalBrokerError has the reason of a failure.
    """
    records: list[StoredRecord] = []
    try:
        with _connected(port) as connection:
            leaders = _leaders_of(connection, topic)
            for partition, leader_port in leaders.items():
                if leader_port == port:
                    records += _records_in(connection, topic, partition)
                else:
                    with _connected(leader_port) as another:
                        records += _records_in(another, topic, partition)
    except OSError as error:
        raise LocalBrokerError(f"topic {topic!r} cannot be read: {error}") from error
    return records


def _connected(port: int) -> BlockingConnection:
    return BlockingConnection(socket.create_connection((HOST, port), timeout=SECONDS), CLIENT_ID)


def _leaders_of(connection: BlockingConnection, topic: str) -> dict[int, int]:
    """Partition -> the port of its leader."""
    asked = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    answered = connection.ask(asked, METADATA_VERSION, m.MetadataResponse)
    (found,) = answered.topics
    _check(topic, found.error_code)
    ports = {broker.node_id: broker.port for broker in answered.brokers}
    rows = sorted(found.partitions, key=lambda row: row.partition_index)
    for row in rows:
        if row.leader_id not in ports:
            raise LocalBrokerError(f"topic {topic!r} cannot be read: partition {row.partition_index} has no leader")
    return {row.partition_index: ports[row.leader_id] for row in rows}


def _records_in(connection: BlockingConnection, topic: str, partition: int) -> list[StoredRecord]:
    offset = _first_offset(connection, topic, partition)
    found: list[StoredRecord] = []
    # Producer id -> where the records of its transaction are in `found`, until a marker decides about them.
    undecided: dict[int, list[int]] = {}
    while True:
        row = _fetched(connection, topic, partition, offset)
        assert isinstance(row.records, bytes | bytearray | memoryview)
        before = next_offset = offset
        for header, record in walk_records(row.records):
            # Compaction may have removed the last records of a batch, or all of them.
            if isinstance(record, int):
                next_offset = max(next_offset, record)
                continue
            if record.offset < offset:
                continue
            next_offset = record.offset + 1
            if header is not None and header.is_control:
                ended = "committed" if read_control_record(record).type == COMMIT else "aborted"
                for index in undecided.pop(header.producer_id, ()):
                    found[index] = found[index]._replace(transaction=ended)
                continue
            is_transactional = header is not None and header.is_transactional
            producer_id = NO_PRODUCER_ID if header is None else header.producer_id
            if is_transactional:
                undecided.setdefault(producer_id, []).append(len(found))
            found.append(
                StoredRecord(
                    partition=partition,
                    offset=record.offset,
                    timestamp_ms=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=tuple(record.headers),
                    producer_id=producer_id,
                    transaction="open" if is_transactional else None,
                )
            )
        offset = next_offset
        if offset >= row.high_watermark or offset == before:
            return found


def _first_offset(connection: BlockingConnection, topic: str, partition: int) -> int:
    asked = m.ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=[
            m.ListOffsetsRequest.ListOffsetsTopic(
                name=topic,
                partitions=[
                    m.ListOffsetsRequest.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=NO_LEADER_EPOCH, timestamp=EARLIEST
                    )
                ],
            )
        ],
    )
    (answered,) = connection.ask(asked, LIST_OFFSETS_VERSION, m.ListOffsetsResponse).topics
    (row,) = answered.partitions
    _check(topic, row.error_code)
    return row.offset


def _fetched(connection: BlockingConnection, topic: str, partition: int, offset: int) -> m.FetchResponse.PartitionData:
    wanted = m.FetchRequest.FetchPartition(
        partition=partition, current_leader_epoch=NO_LEADER_EPOCH, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
    )
    asked = m.FetchRequest(
        replica_id=CONSUMER,
        max_bytes=FETCH_BYTES,
        session_epoch=FINAL_EPOCH,
        topics=[m.FetchRequest.FetchTopic(topic=topic, partitions=[wanted])],
    )
    (answered,) = connection.ask(asked, FETCH_VERSION, m.FetchResponse).responses
    (row,) = answered.partitions
    _check(topic, row.error_code)
    return row


def _check(topic: str, error_code: int) -> None:
    if error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NotThere(f"there is no topic {topic!r}")
    if error_code:
        raise LocalBrokerError(f"topic {topic!r} cannot be read: {error_name(error_code)}")
