"""Attacks of hostile and careless clients, each as one pass over a running broker. `ATTACKS` is the table of them all.

An attack is prepared once (topics, stored batches, bytes) and then struck as often as wanted, from as many threads. A
pass ends when the broker has answered or has closed the connection; both are fine. What is measured meanwhile is what
others notice.
"""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode, error_name
from barnabas.wire.records import build_batch
from compat_tests.hostile import frames, transactions
from compat_tests.raw import RawClient, create_topic, eventually, frame_of, produce_request
from tests.wire.bombs import (
    TIME_MS,
    batch_of,
    disordered_bomb,
    empty_snappy_blocks,
    empty_zstd_blocks,
    header_bomb,
    large_records_bomb,
    message_set_bomb,
    tiny_records_bomb,
    value_bomb,
    window_bomb,
)

PATIENCE_SECONDS = 300.0
UNREAD_PARTITIONS = 600
UNREAD_BYTES = 30_000
TOPICS = 3000  # for answers about all topics
RETRY_TOPIC_BATCHES = 100_000
RETRY_BYTES = 120  # of a value: the batches take more than the 16 MiB that a search for a retry reads at most
PRODUCER_ID = 7_777_777
PRODUCERS = 100_000  # of one partition: each roll of the log writes a snapshot of them all
ROLLED_SEGMENT_BYTES = 1 << 20
SEARCHED_RECORDS = 150_000  # a search by time reads them in about a second
OLD_RECORDS = 1 << 18  # for consumers from before 0.11; with gzip they are less than max.message.bytes
OLD_MESSAGE_BYTES = 8_388_000  # a little less than what a message for such a consumer may have
JOINED_BYTES = 2 << 20  # of subscriptions: as many as a member may have, in as many protocols
JOINED_PROTOCOLS = 100
LISTED_IDS = 20_000
METADATA_CHARACTERS = 4000  # of a committed offset; offset.metadata.max.bytes allows 4096
KEPT = {"retention_ms": "-1"}  # the records are from 1970

Strike = Callable[[int, list[socket.socket]], None]


class Attack(NamedTuple):
    """`prepare(port)` once; `strike(port, kept)` is one pass, which puts sockets that stay open into `kept`."""

    prepare: Callable[[int], None]
    strike: Strike


def _nothing(port: int) -> None:
    """No topic is needed."""


def _topic(name: str, partitions: int = 1, **configs: str) -> Callable[[int], None]:
    return lambda port: _create(port, name, partitions, **configs)


def _create(port: int, name: str, partitions: int = 1, **configs: str) -> bool:
    """Create the topic; False if another attack has created it already."""
    with RawClient(port) as client:
        asked = m.MetadataRequest.MetadataRequestTopic(name=name)
        request = m.MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
        (known,) = client.ask(request, 9, m.MetadataResponse).topics
    if known.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return False
    create_topic(port, name, partitions, **configs)
    return True


def _stored(name: str, batch: Callable[[], bytes], **configs: str) -> Callable[[int], None]:
    """A topic that holds this batch."""

    def prepare(port: int) -> None:
        if _create(port, name, **KEPT | configs):
            _store(port, name, batch())

    return prepare


def _store(port: int, topic: str, batch: bytes, partition: int = 0) -> None:
    """Produce a batch; RuntimeError if the broker refuses it: the attack would strike at nothing."""
    with RawClient(port, timeout=PATIENCE_SECONDS) as client:
        request = produce_request(topic, batch, acks=1, partition=partition)
        (answer,) = client.ask(request, 9, m.ProduceResponse).responses
    _require(answer.partition_responses[0].error_code, f"a batch for {topic}")


def _require(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"{what} is refused: {error_name(code)}")


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
        client.receive_frame()


def _message(request: Callable[[], m.Message], version: int) -> Strike:
    return _frame(lambda: frame_of(request(), version, "hostile")[4:])


def _produce(topic: str, batch: Callable[[], bytes], version: int = 9) -> Strike:
    return _message(lambda: produce_request(topic, batch(), acks=1), version)


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


def _offsets_by_time(topic: str, timestamp: int = TIME_MS + 1, replica_id: int = -1, count: int = 1) -> m.Message:
    """One partition, `count` times: Kafka answers each of them in version 0, which has `max_num_offsets`."""
    row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=1)
    topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[row] * count)]
    return m.ListOffsetsRequest(replica_id=replica_id, topics=topics)


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


def _committed_of_one_group(count: int) -> m.Message:
    """All that a group has committed, as often as a request may repeat a group."""
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="noted", topics=None)
    return m.OffsetFetchRequest(groups=[group] * count)


def _fetch_at(topic: str, offset: int) -> m.Message:
    rows = [m.FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=rows)]
    return m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=topics)


def _producers_of(topic: str, partitions: int) -> m.Message:
    topics = [m.DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=range(partitions))]
    return m.DescribeProducersRequest(topics=topics)


def _transactions(count: int) -> m.Message:
    return m.DescribeTransactionsRequest(transactional_ids=[f"t{n}" for n in range(count)])


def _join(group_id: str, protocols: int, size_bytes: int) -> m.Message:
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol
    named = [protocol(name=f"p{n}", metadata=bytes(size_bytes // protocols)) for n in range(protocols)]
    return m.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=6000,
        rebalance_timeout_ms=6000,
        member_id="",
        protocol_type="consumer",
        protocols=named,
    )


def _fetch_for_ever(topic: str) -> m.Message:
    rows = [m.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)]
    topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=rows)]
    return m.FetchRequest(max_wait_ms=2**31 - 1, min_bytes=1, max_bytes=1 << 20, topics=topics)


# -- what is more than one request


def _prepare_unread(port: int) -> None:
    if _create(port, "unread", UNREAD_PARTITIONS, **KEPT):
        batch = bytes(build_batch([(None, os.urandom(UNREAD_BYTES))], timestamp_ms=TIME_MS).data)
        for number in range(UNREAD_PARTITIONS):
            _store(port, "unread", batch, number)


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
    reader.sendall(frame_of(request, version, "hostile"))
    kept.append(reader)


def _prepare_topics(port: int) -> None:
    for first in range(0, TOPICS, 500):
        topic = m.CreateTopicsRequest.CreatableTopic
        topics = [topic(name=f"many-{n}", num_partitions=1, replication_factor=1) for n in range(first, first + 500)]
        with RawClient(port, timeout=120) as client:
            answer = client.ask(m.CreateTopicsRequest(topics=topics, timeout_ms=100_000), 5, m.CreateTopicsResponse)
        for topic in answer.topics:
            if topic.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                _require(topic.error_code, topic.name)


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


def _sequenced(producer_id: int, sequence: int, value: bytes) -> bytes:
    """One record, as an idempotent producer sends it; of now, or the broker would forget the producer."""
    numbers = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    return bytes(build_batch([(None, value)], timestamp_ms=int(time.time() * 1000), **numbers).data)


def _store_all(port: int, topic: str, batches: Iterable[bytes], count: int) -> None:
    """Produce so many batches of one record; RuntimeError unless all are in the log."""
    with RawClient(port, timeout=PATIENCE_SECONDS) as client:
        for batch in batches:
            client.request(produce_request(topic, batch, acks=0), 9)
        (answer,) = client.ask(_offsets_by_time(topic, timestamp=-1), 5, m.ListOffsetsResponse).topics
    if answer.partitions[0].offset != count:
        raise RuntimeError(f"{topic} has {answer.partitions[0].offset} of {count} records")


def _prepare_retries(port: int) -> None:
    if _create(port, "retries"):
        value = bytes(RETRY_BYTES)
        batches = (_sequenced(PRODUCER_ID, sequence, value) for sequence in range(RETRY_TOPIC_BATCHES))
        _store_all(port, "retries", batches, RETRY_TOPIC_BATCHES)


def _retry(port: int, kept: list[socket.socket]) -> None:
    """Send an early sequence with another value each time: the broker remembers the searches that found nothing."""
    request = produce_request("retries", _sequenced(PRODUCER_ID, 1, os.urandom(16)), acks=1)
    with RawClient(port, timeout=PATIENCE_SECONDS) as client:
        _exchange(client, frame_of(request, 9, "hostile")[4:])


def _prepare_producers(port: int) -> None:
    if _create(port, "rolling", segment_bytes=str(ROLLED_SEGMENT_BYTES)):
        batches = (_sequenced(PRODUCER_ID + number, 0, b"v") for number in range(PRODUCERS))
        _store_all(port, "rolling", batches, PRODUCERS)


def _rolling_batch() -> bytes:
    """More than half a segment: each of these batches begins another one."""
    value = os.urandom(ROLLED_SEGMENT_BYTES // 2 + 1)
    return bytes(build_batch([(None, value)], timestamp_ms=int(time.time() * 1000)).data)


def _prepare_ids(port: int) -> None:
    """Wait until the broker coordinates transactions."""
    _create(port, "plain")
    with RawClient(port) as client:
        find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=[transactions.NAME])
        eventually(
            lambda: client.ask(find, 4, m.FindCoordinatorResponse).coordinators[0].error_code, lambda code: code == 0
        )
        eventually(
            lambda: client.ask(transactions.init(), 4, m.InitProducerIdResponse).error_code, lambda code: code == 0
        )


def _prepare_many_ids(port: int) -> None:
    _prepare_ids(port)
    with RawClient(port) as client:
        for number in range(LISTED_IDS):
            client.ask(transactions.init(f"listed {number}"), 4, m.InitProducerIdResponse)


def _prepare_wide_transaction(port: int) -> None:
    _prepare_ids(port)
    _create(port, "wide", 4_000)


def _transact(port: int, kept: list[socket.socket]) -> None:
    """With an id of its own, as several strike at once."""
    with RawClient(port, timeout=PATIENCE_SECONDS) as client:
        transactions.transact(client, "wide", 4_000, name=f"wide {os.getpid()} {threading.get_ident()} {time.time()}")


def _leave_open(port: int, kept: list[socket.socket]) -> None:
    with RawClient(port, timeout=PATIENCE_SECONDS) as client:
        for number in range(20):
            name = f"open {os.getpid()} {threading.get_ident()} {time.time()} {number}"
            transactions.transact(client, "plain", 1, name=name, ends=False)


def _compacted(name: str, segment_bytes: int) -> Callable[[int], None]:
    """A topic that is compacted as soon as a segment is full."""
    return _topic(name, cleanup_policy="compact", min_cleanable_dirty_ratio="0", segment_bytes=str(segment_bytes))


def _prepare_group(port: int) -> None:
    """Wait until the broker coordinates groups: before, each request about a group is NOT_COORDINATOR."""
    with RawClient(port) as client:
        find, fetch = m.FindCoordinatorRequest(key="hostile"), m.OffsetFetchRequest(group_id="hostile", topics=[])
        eventually(lambda: client.ask(find, 3, m.FindCoordinatorResponse).error_code, lambda code: code == 0)
        eventually(lambda: client.ask(fetch, 5, m.OffsetFetchResponse).error_code, lambda code: code == 0)


def _prepare_commits(port: int) -> None:
    _prepare_group(port)
    _create(port, "wide", 4_000)


def _prepare_noted(port: int) -> None:
    """A group with 400 kB of metadata beside its offsets."""
    _prepare_group(port)
    _create(port, "noted", 100)
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition
    note = "x" * METADATA_CHARACTERS
    rows = [row(partition_index=n, committed_offset=n, committed_metadata=note) for n in range(100)]
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name="noted", partitions=rows)]
    request = m.OffsetCommitRequest(group_id="noted", generation_id_or_member_epoch=-1, topics=topics)
    with RawClient(port) as client:
        (answer,) = client.ask(request, 8, m.OffsetCommitResponse).topics
    for each in answer.partitions:
        _require(each.error_code, "a commit")


def _join_and_wait(port: int, kept: list[socket.socket]) -> None:
    with RawClient(port, timeout=PATIENCE_SECONDS) as client:
        _exchange(client, frame_of(_large_join(), 3, "hostile")[4:])


def _join_and_leave(port: int, kept: list[socket.socket]) -> None:
    """The member stays in the group until its session ends."""
    with RawClient(port) as client:
        client.request(_large_join(), 3)


def _large_join() -> m.Message:
    return _join(f"join-{os.urandom(8).hex()}", JOINED_PROTOCOLS, JOINED_BYTES)


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
    "2^18 tiny records": Attack(_topic("plain"), _produce("plain", lambda: tiny_records_bomb(1 << 18))),
    "2^19 tiny records in disorder, refused": Attack(
        _topic("plain"), _produce("plain", lambda: disordered_bomb(1 << 19))
    ),
    "2^17 tiny records, recompressed": Attack(
        _topic("lz4", compression_type="lz4"), _produce("lz4", lambda: tiny_records_bomb(1 << 17))
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
        _stored("searched", lambda: tiny_records_bomb(SEARCHED_RECORDS)),
        _message(lambda: _offsets_by_time("searched"), 5),
    ),
    "search by time, tiny records, as replica -2": Attack(
        _stored("searched", lambda: tiny_records_bomb(SEARCHED_RECORDS)),
        _message(lambda: _offsets_by_time("searched", replica_id=-2), 5),
    ),
    "search for the largest time, tiny records": Attack(
        _stored("searched", lambda: tiny_records_bomb(SEARCHED_RECORDS)),
        _message(lambda: _offsets_by_time("searched", timestamp=-3), 7),
    ),
    "Fetch 3 of the last of 2^18 tiny records": Attack(
        _stored("old", lambda: tiny_records_bomb(OLD_RECORDS, Codec.GZIP)),
        _message(lambda: _fetch_at("old", OLD_RECORDS - 1), 3),
    ),
    "Fetch 0 of 2^18 tiny records": Attack(
        _stored("old", lambda: tiny_records_bomb(OLD_RECORDS, Codec.GZIP)), _message(lambda: _fetch_at("old", 0), 0)
    ),
    "Fetch 3 of the last of 15 records of 8 MB": Attack(
        _stored("old-large", lambda: large_records_bomb(15, OLD_MESSAGE_BYTES, Codec.GZIP)),
        _message(lambda: _fetch_at("old-large", 14), 3),
    ),
    "Produce 2 of 2^17 tiny messages": Attack(
        _topic("plain"), _produce("plain", lambda: message_set_bomb([0] * (1 << 17), 1), 2)
    ),
    "Produce 2 of 8 messages of 15 MiB": Attack(
        _topic("plain"), _produce("plain", lambda: message_set_bomb([15 << 20] * 8, 1), 2)
    ),
    "Produce 0 of a message of 120 MiB, refused": Attack(
        _topic("plain"), _produce("plain", lambda: message_set_bomb([120 << 20], 0), 0)
    ),
    "compaction of values of 100 MiB": Attack(
        _compacted("cleaned-values", 1 << 15), _produce("cleaned-values", lambda: value_bomb(100 << 20, Codec.ZSTD))
    ),
    "compaction of 2^17 tiny records": Attack(
        _compacted("cleaned-records", 1 << 17),
        _produce("cleaned-records", lambda: tiny_records_bomb(1 << 17, key=b"k")),
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
    "OffsetFetch of 60,000 topics": Attack(_prepare_group, _message(_committed_of_many, 5)),
    "OffsetFetch of 200,000 partitions": Attack(_prepare_group, _message(lambda: _committed_of_one_topic(200_000), 5)),
    "OffsetFetch of 400 kB, 11 times": Attack(_prepare_noted, _message(lambda: _committed_of_one_group(11), 8)),
    "OffsetCommit of 4,000 partitions": Attack(_prepare_commits, _message(lambda: _commit_of_many(4_000), 8)),
    "JoinGroup of 60,000 protocols, refused": Attack(_prepare_group, _message(lambda: _join("wide", 60_000, 0), 3)),
    "JoinGroup of 2 MiB": Attack(_prepare_group, _join_and_wait),
    "JoinGroup of 2 MiB, left waiting": Attack(_prepare_group, _join_and_leave),
    "AddPartitionsToTxn of 50,000 partitions, refused": Attack(
        _prepare_ids, _message(lambda: transactions.adding("none", 50_000), 3)
    ),
    "AddPartitionsToTxn 5 of 30,000 ids, refused": Attack(
        _prepare_ids, _message(lambda: transactions.asking_about(30_000, verify_only=False), 5)
    ),
    "AddPartitionsToTxn 5 of 30,000 ids, to verify": Attack(
        _prepare_ids, _message(lambda: transactions.asking_about(30_000, verify_only=True), 5)
    ),
    "WriteTxnMarkers of 10,000 producers": Attack(
        _topic("plain"), _message(lambda: transactions.markers(10_000, 1), 1)
    ),
    "WriteTxnMarkers of a partition 200,000 times": Attack(
        _topic("plain"), _message(lambda: transactions.markers(1, 200_000), 1)
    ),
    "TxnOffsetCommit of 20,000 partitions, refused": Attack(
        _prepare_ids, _message(lambda: transactions.offsets("none", 20_000), 3)
    ),
    "InitProducerId of 32 kB": Attack(_prepare_ids, _message(lambda: transactions.init(transactions.LONGEST_NAME), 4)),
    "ListTransactions of 20,000": Attack(_prepare_many_ids, _message(m.ListTransactionsRequest, 1)),
    "a transaction of 4,000 partitions": Attack(_prepare_wide_transaction, _transact),
    "transactional Produce to 4,000 partitions, refused": Attack(
        _prepare_wide_transaction, _message(lambda: transactions.produced("wide", 4_000), 11)
    ),
    "transactions left open": Attack(_prepare_ids, _leave_open),
    "DescribeTransactions of 64,000": Attack(_nothing, _message(lambda: _transactions(64_000), 0)),
    "DescribeProducers of 64,000 partitions": Attack(
        _topic("plain"), _message(lambda: _producers_of("plain", 64_000), 0)
    ),
    "DescribeProducers of 100,000": Attack(_prepare_producers, _message(lambda: _producers_of("rolling", 1), 0)),
    "Fetch of 50,000 partitions": Attack(_nothing, _message(lambda: _fetch_of_many(50_000), 11)),
    "Fetch of 200,000 partitions": Attack(_nothing, _message(lambda: _fetch_of_many(200_000), 11)),
    "Produce to 50,000 partitions": Attack(_nothing, _message(lambda: _produce_to_many(50_000, 1), 9)),
    "Produce to 50,000 partitions, acks 0": Attack(_nothing, _message(lambda: _produce_to_many(50_000, 0), 9)),
    "ListOffsets of 50,000 partitions": Attack(_nothing, _message(lambda: _offsets_of_many(50_000), 5)),
    "ListOffsets 0 of a partition 2,000 times": Attack(
        _topic("plain"), _message(lambda: _offsets_by_time("plain", count=2_000), 0)
    ),
    "ListOffsets of 300,000 partitions": Attack(_nothing, _message(lambda: _offsets_of_many(300_000), 5)),
    "Metadata of all topics": Attack(_prepare_topics, _message(lambda: m.MetadataRequest(topics=None), 9)),
    "Metadata of all topics, unread": Attack(_prepare_topics, _leave_metadata_unread),
    "Fetch of 600 partitions, unread": Attack(_prepare_unread, _leave_unread),
    "clients that go while they wait": Attack(_topic("empty"), _leave_while_it_waits),
    "fetch sessions left behind": Attack(_topic("empty"), _leave_sessions_behind),
    "frames of 90 MB, half sent": Attack(_nothing, _claim_a_frame),
    "retries that are not in the log": Attack(_prepare_retries, _retry),
    "rolls with 100,000 producers": Attack(_prepare_producers, _produce("rolling", _rolling_batch)),
}
