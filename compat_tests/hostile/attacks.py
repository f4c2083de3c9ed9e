"""What hostile and careless clients do, each as one pass over a running broker. `ATTACKS` is the table of them all.

An attack is prepared once (topics, stored batches, bytes) and then struck as often as wanted, from as many threads. A
pass ends when the broker has answered or has closed the connection; both are fine. What is measured meanwhile is what
others notice.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.asking import request_frame
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from compat_tests.hostile import frames
from compat_tests.raw import RawClient, create_topic, produce_request
from tests.wire.bombs import (
    TIME_MS,
    batch_of,
    empty_snappy_blocks,
    empty_zstd_blocks,
    header_bomb,
    tiny_records_bomb,
    value_bomb,
    window_bomb,
)

PATIENCE_SECONDS = 300.0
UNREAD_PARTITIONS = 600
UNREAD_BYTES = 30_000
TOPICS = 3000  # for answers about all topics
RETRY_TOPIC_BATCHES = 100_000  # their sequences: a retry of an early one is looked for behind all later ones
PRODUCER_ID = 7_777_777

Strike = Callable[[int, list[socket.socket]], None]


class Attack(NamedTuple):
    """`prepare(port)` once; `strike(port, kept)` is one pass, which puts sockets that stay open into `kept`."""

    prepare: Callable[[int], None]
    strike: Strike


def _nothing(port: int) -> None:
    """No topic is needed."""


def _topic(name: str, partitions: int = 1, **configs: str) -> Callable[[int], None]:
    return lambda port: _create(port, name, partitions, **configs)


def _create(port: int, name: str, partitions: int = 1, **configs: str) -> None:
    """The topic, unless another attack has made it already."""
    with RawClient(port) as client:
        asked = m.MetadataRequest.MetadataRequestTopic(name=name)
        request = m.MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
        (known,) = client.ask(request, 9, m.MetadataResponse).topics
    if known.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        create_topic(port, name, partitions, **configs)


# -- one frame, one answer


def _frame(build: Callable[[], bytes]) -> Strike:
    """Send the frame that `build` makes, once a process, and wait for what comes."""
    build = cache(build)

    def strike(port: int, kept: list[socket.socket]) -> None:
        with RawClient(port, timeout=PATIENCE_SECONDS) as client:
            _exchange(client, build())

    return strike


def _exchange(client: RawClient, frame: bytes) -> None:
    with contextlib.suppress(ConnectionError):  # the broker may close this connection
        client.send_frame(frame)
        client.read_frame()


def _message(request: Callable[[], m.Message], version: int) -> Strike:
    return _frame(lambda: request_frame(request(), version, 1, "hostile")[4:])


def _produce(topic: str, batch: Callable[[], bytes]) -> Strike:
    return _message(lambda: produce_request(topic, batch(), acks=1), 9)


# -- the requests


def _fetch_of_many(count: int) -> m.Message:
    row = m.FetchRequest.FetchPartition
    rows = [row(partition=1_000_000 + n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(count)]
    topics = [m.FetchRequest.FetchTopic(topic="none", partitions=rows)]
    return m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=0, session_epoch=0, topics=topics)


def _produce_to_many(count: int, acks: int) -> m.Message:
    row = m.ProduceRequest.PartitionProduceData
    topics = [m.ProduceRequest.TopicProduceData(name="none", partition_data=[row(index=n) for n in range(count)])]
    return m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def _offsets_of_many(count: int) -> m.Message:
    row = m.ListOffsetsRequest.ListOffsetsPartition
    rows = [row(partition_index=1_000_000 + n, timestamp=-1) for n in range(count)]
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name="none", partitions=rows)]
    return m.ListOffsetsRequest(replica_id=-1, topics=topics)


def _offsets_by_time(topic: str) -> m.Message:
    row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=TIME_MS + 1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[row])]
    return m.ListOffsetsRequest(replica_id=-1, topics=topics)


def _configs(resource_type: int, name: str, count: int) -> m.Message:
    resource = m.DescribeConfigsRequest.DescribeConfigsResource(resource_type=resource_type, resource_name=name)
    return m.DescribeConfigsRequest(resources=[resource] * count)


def _committed_of_many() -> m.Message:
    topics = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name=f"t{n}", partition_indexes=[0]) for n in range(60_000)]
    return m.OffsetFetchRequest(group_id="hostile", topics=topics)


def _committed_of_one_topic(count: int) -> m.Message:
    topics = [m.OffsetFetchRequest.OffsetFetchRequestTopic(name="wide", partition_indexes=range(count))]
    return m.OffsetFetchRequest(group_id="hostile", topics=topics)


def _commit_of_many(count: int) -> m.Message:
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition
    rows = [row(partition_index=n, committed_offset=n) for n in range(count)]
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name="wide", partitions=rows)]
    return m.OffsetCommitRequest(group_id="hostile", generation_id_or_member_epoch=-1, topics=topics)


def _fetch_for_ever(topic: str) -> m.Message:
    rows = [m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=rows)]
    return m.FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, max_bytes=1 << 20, topics=topics)


# -- what is more than one request


def _prepare_unread(port: int) -> None:
    _create(port, "unread", UNREAD_PARTITIONS)
    batch = bytes(build_batch([(None, os.urandom(UNREAD_BYTES))], timestamp_ms=TIME_MS).data)
    with RawClient(port, timeout=60) as client:
        for number in range(UNREAD_PARTITIONS):
            client.ask(produce_request("unread", batch, acks=1, partition=number), 9, m.ProduceResponse)


def _leave_unread(port: int, kept: list[socket.socket]) -> None:
    """Ask for the beginning of every partition, and read nothing of the answer."""
    row = m.FetchRequest.FetchPartition
    rows = [row(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(UNREAD_PARTITIONS)]
    topics = [m.FetchRequest.FetchTopic(topic="unread", partitions=rows)]
    _keep_unread(port, kept, m.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=2**31 - 1, topics=topics), 4)


def _keep_unread(port: int, kept: list[socket.socket], request: m.Message, version: int) -> None:
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(("127.0.0.1", port))
    reader.sendall(request_frame(request, version, 1, "hostile"))
    kept.append(reader)


def _prepare_topics(port: int) -> None:
    for first in range(0, TOPICS, 500):
        topic = m.CreateTopicsRequest.CreatableTopic
        topics = [topic(name=f"many-{n}", num_partitions=1, replication_factor=1) for n in range(first, first + 500)]
        with RawClient(port, timeout=120) as client:
            client.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=100_000), 5, m.CreateTopicsResponse)


def _leave_metadata_unread(port: int, kept: list[socket.socket]) -> None:
    _keep_unread(port, kept, m.MetadataRequest(topics=None), 9)


def _leave_while_it_waits(port: int, kept: list[socket.socket]) -> None:
    for _ in range(20):
        with RawClient(port) as client:
            client.request(_fetch_for_ever("empty"), 4)


def _leave_sessions_behind(port: int, kept: list[socket.socket]) -> None:
    """Open fetch sessions and go: the broker keeps them until others push them out."""
    rows = [m.FetchRequest.FetchPartition(partition=0, fetch_offset=1 << 40, partition_max_bytes=1)]
    topics = [m.FetchRequest.FetchTopic(topic="empty", partitions=rows)]
    request = m.FetchRequest(max_wait_ms=0, session_id=0, session_epoch=0, topics=topics)
    for _ in range(20):
        with RawClient(port) as client:
            client.ask(request, 11, m.FetchResponse)


def _claim_a_frame(port: int, kept: list[socket.socket]) -> None:
    claim = socket.create_connection(("127.0.0.1", port))
    claim.sendall(struct.pack(">ihhih", 90_000_000, 0, 9, 1, -1) + bytes(100_000))
    kept.append(claim)


def _prepare_search(port: int) -> None:
    _create(port, "searched")
    _produce("searched", lambda: tiny_records_bomb(1 << 20))(port, [])


def _sequenced(sequence: int, value: bytes) -> bytes:
    """One record, as an idempotent producer sends it."""
    numbers = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": sequence}
    return bytes(build_batch([(None, value)], timestamp_ms=TIME_MS, **numbers).data)


def _prepare_retries(port: int) -> None:
    _create(port, "retries")
    with RawClient(port, timeout=60) as client:
        for sequence in range(RETRY_TOPIC_BATCHES):
            batch = _sequenced(sequence, b"v")
            client.request(produce_request("retries", batch, acks=0), 9)
        client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse)


ATTACKS: dict[str, Attack] = {
    "2^20 headers": Attack(_topic("plain"), _produce("plain", lambda: header_bomb(1 << 20))),
    "2^22 headers": Attack(_topic("plain"), _produce("plain", lambda: header_bomb(1 << 22))),
    "2^27 headers": Attack(_topic("plain"), _produce("plain", lambda: header_bomb(1 << 27))),
    "2^22 headers, recompressed": Attack(
        _topic("lz4", compression_type="lz4"), _produce("lz4", lambda: header_bomb(1 << 22))
    ),
    "2^16 headers, recompressed": Attack(
        _topic("lz4", compression_type="lz4"), _produce("lz4", lambda: header_bomb(1 << 16))
    ),
    "2^21 headers, compacted topic": Attack(
        _topic("compacted", cleanup_policy="compact"), _produce("compacted", lambda: header_bomb(1 << 21))
    ),
    "2^21 tiny records": Attack(_topic("plain"), _produce("plain", lambda: tiny_records_bomb(1 << 21))),
    "2^20 tiny records, recompressed": Attack(
        _topic("lz4", compression_type="lz4"), _produce("lz4", lambda: tiny_records_bomb(1 << 20))
    ),
    "gzip, 256 MiB in a value": Attack(_topic("plain"), _produce("plain", lambda: value_bomb(256 << 20, Codec.GZIP))),
    "zstd, 100 MiB in a value": Attack(_topic("plain"), _produce("plain", lambda: value_bomb(100 << 20, Codec.ZSTD))),
    "zstd, 100 MiB, recompressed": Attack(
        _topic("lz4", compression_type="lz4"), _produce("lz4", lambda: value_bomb(100 << 20, Codec.ZSTD))
    ),
    "zstd, a window of 8 MiB": Attack(_topic("plain"), _produce("plain", lambda: window_bomb(23, 100 << 20))),
    "zstd, a window of 32 MiB, recompressed": Attack(
        _topic("lz4", compression_type="lz4"), _produce("lz4", lambda: window_bomb(25, 100 << 20))
    ),
    "zstd, 20,000 empty blocks": Attack(
        _topic("plain"), _produce("plain", lambda: batch_of(empty_zstd_blocks(20_000), Codec.ZSTD))
    ),
    "zstd, 300,000 empty blocks": Attack(
        _topic("plain"), _produce("plain", lambda: batch_of(empty_zstd_blocks(300_000), Codec.ZSTD))
    ),
    "snappy, 12,000 empty blocks": Attack(
        _topic("plain"), _produce("plain", lambda: batch_of(empty_snappy_blocks(12_000), Codec.SNAPPY))
    ),
    "search by time, tiny records": Attack(
        _prepare_search,
        _message(lambda: _offsets_by_time("searched"), 5),
    ),
    "Produce of 3 M empty topics": Attack(_nothing, _frame(lambda: frames.empty_topics(3_000_000))),
    "Produce of 20,000 empty topics": Attack(_nothing, _frame(lambda: frames.empty_topics(20_000))),
    "10 M tags in a header": Attack(_nothing, _frame(lambda: frames.header_tags(10_000_000))),
    "30,000 tags in a header": Attack(_nothing, _frame(lambda: frames.header_tags(30_000))),
    "10 M tags in a body": Attack(_nothing, _frame(lambda: frames.body_tags(10_000_000))),
    "Metadata of 20 M names": Attack(_nothing, _frame(lambda: frames.metadata(20_000_000))),
    "Metadata of 30,000 names": Attack(_nothing, _frame(lambda: frames.metadata(30_000))),
    "DescribeConfigs, a broker 8,000 times": Attack(_nothing, _message(lambda: _configs(4, "1001", 8000), 4)),
    "DescribeConfigs, a topic 8,000 times": Attack(_topic("plain"), _message(lambda: _configs(2, "plain", 8000), 4)),
    "FindCoordinator of 64,000 keys": Attack(_nothing, _frame(lambda: frames.coordinators(64_000))),
    "DescribeGroups of 64,000": Attack(
        _nothing, _message(lambda: m.DescribeGroupsRequest(groups=[f"g{n}" for n in range(64_000)]), 4)
    ),
    "DeleteGroups of 64,000": Attack(
        _nothing, _message(lambda: m.DeleteGroupsRequest(groups_names=[f"g{n}" for n in range(64_000)]), 1)
    ),
    "OffsetFetch of 60,000 topics": Attack(_nothing, _message(_committed_of_many, 5)),
    "OffsetFetch of 200,000 partitions": Attack(_nothing, _message(lambda: _committed_of_one_topic(200_000), 5)),
    "OffsetCommit of 4,000 partitions": Attack(_topic("wide", 4_000), _message(lambda: _commit_of_many(4_000), 8)),
    "Fetch of 50,000 partitions": Attack(_nothing, _message(lambda: _fetch_of_many(50_000), 11)),
    "Fetch of 200,000 partitions": Attack(_nothing, _message(lambda: _fetch_of_many(200_000), 11)),
    "Produce to 50,000 partitions": Attack(_nothing, _message(lambda: _produce_to_many(50_000, 1), 9)),
    "Produce to 50,000 partitions, acks 0": Attack(_nothing, _message(lambda: _produce_to_many(50_000, 0), 9)),
    "ListOffsets of 50,000 partitions": Attack(_nothing, _message(lambda: _offsets_of_many(50_000), 5)),
    "ListOffsets of 300,000 partitions": Attack(_nothing, _message(lambda: _offsets_of_many(300_000), 5)),
    "Metadata of all topics": Attack(_prepare_topics, _message(lambda: m.MetadataRequest(topics=None), 9)),
    "Metadata of all topics, unread": Attack(_prepare_topics, _leave_metadata_unread),
    "Fetch of 600 partitions, unread": Attack(_prepare_unread, _leave_unread),
    "clients that go while they wait": Attack(_topic("empty"), _leave_while_it_waits),
    "fetch sessions left behind": Attack(_topic("empty"), _leave_sessions_behind),
    "frames of 90 MB, half sent": Attack(_nothing, _claim_a_frame),
    "retries that are not in the log": Attack(_prepare_retries, _produce("retries", lambda: _sequenced(1, b"w"))),
}
