"""What is done to three brokers of either kind before their metrics are compared: requests, one after the other."""

import time
from collections.abc import Sequence

from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from compat_tests.raw import RawClient, ask, eventually, produce_request
from compat_tests.small_cluster import SmallCluster

LETTERS, COMPACTED, SMALL = "letters", "compacted", "small"
TOPICS = {
    LETTERS: ([[1, 2, 3], [2, 3, 1], [3, 1, 2]], {}),
    COMPACTED: ([[2, 1, 3]], {"cleanup.policy": "compact"}),
    SMALL: ([[1, 2, 3]], {"max.message.bytes": "1000"}),
}
GROUP = "clerks"
CODECS = (Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
RECORDS = [(b"K.", b"to the castle")] * 20
END = len(RECORDS) * len(CODECS)  # of each partition of LETTERS
PRODUCE, FETCH, LIST_OFFSETS, COMMIT, READ_COMMITS, FIND, CREATE = 9, 11, 5, 7, 5, 3, 5


def run(cluster: SmallCluster) -> None:
    """All of it. Every error is one that is wanted."""
    clients = {broker: RawClient(port) for broker, port in cluster.ports.items()}
    try:
        create_topics(clients[1])
        for broker, client in clients.items():
            partition = broker - 1
            for codec in CODECS:
                assert produce(client, LETTERS, batch(RECORDS, codec), partition) == ErrorCode.NONE
        spoil(clients)
        read(clients)
        commit(clients)
    finally:
        for client in clients.values():
            client.close()


def batch(records: Sequence[tuple[bytes | None, bytes]], codec: Codec = Codec.NONE) -> bytes:
    return bytes(build_batch(records, timestamp_ms=int(time.time() * 1000), codec=codec).data)


def create_topics(client: RawClient) -> None:
    Request = m.CreateTopicsRequest
    topics = []
    for name, (replicas, configs) in TOPICS.items():
        rows = [
            Request.CreatableReplicaAssignment(partition_index=index, broker_ids=each)
            for index, each in enumerate(replicas)
        ]
        values = [Request.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topics.append(
            Request.CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=rows, configs=values
            )
        )
    answer = ask(client, Request(topics=topics, timeout_ms=30_000), CREATE)
    assert [row.error_code for row in answer.topics] == [0, 0, 0], answer
    wanted = {name: [each[0] for each in replicas] for name, (replicas, _) in TOPICS.items()}
    eventually(lambda: leaders(client), lambda found: found == wanted)


def leaders(client: RawClient) -> dict[str, list[int]]:
    asked = [m.MetadataRequest.MetadataRequestTopic(name=name) for name in TOPICS]
    topics = ask(client, m.MetadataRequest(topics=asked), 8).topics
    return {
        topic.name: [row.leader_id for row in sorted(topic.partitions, key=lambda row: row.partition_index)]
        for topic in topics
    }


def produce(client: RawClient, topic: str, records: bytes, partition: int = 0, version: int = PRODUCE) -> ErrorCode:
    answer = ask(client, produce_request(topic, records, partition=partition), version)
    (row,) = answer.responses[0].partition_responses
    return ErrorCode(row.error_code)


def spoil(clients: dict[int, RawClient]) -> None:
    """Produce what is refused: too large, without a key, damaged, unknown, and at another broker than the leader."""
    too_large = batch([(b"K.", bytes(2000))])
    damaged = bytearray(batch(RECORDS))
    damaged[-1] ^= 1
    assert produce(clients[1], SMALL, too_large) == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(clients[2], COMPACTED, batch([(None, b"no key")])) == ErrorCode.INVALID_RECORD
    assert produce(clients[1], LETTERS, bytes(damaged)) == ErrorCode.CORRUPT_MESSAGE
    assert produce(clients[1], "unknown", batch(RECORDS)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(clients[2], LETTERS, batch(RECORDS)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produce(clients[2], COMPACTED, batch(RECORDS)) == ErrorCode.NONE


def read(clients: dict[int, RawClient]) -> None:
    for broker, client in clients.items():
        for offset, error in ((0, ErrorCode.NONE), (50, ErrorCode.NONE), (10_000, ErrorCode.OFFSET_OUT_OF_RANGE)):
            assert fetch(client, broker - 1, offset) == error
        assert list_offsets(client, broker - 1) == END
    assert fetch(clients[1], 99, 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def fetch(client: RawClient, partition: int, offset: int) -> ErrorCode:
    Request = m.FetchRequest
    row = Request.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = Request(
        max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=[Request.FetchTopic(topic=LETTERS, partitions=[row])]
    )
    (answer,) = ask(client, request, FETCH).responses[0].partitions
    return ErrorCode(answer.error_code)


def list_offsets(client: RawClient, partition: int) -> int:
    Request = m.ListOffsetsRequest
    row = Request.ListOffsetsPartition(partition_index=partition, timestamp=-1)
    request = Request(replica_id=-1, topics=[Request.ListOffsetsTopic(name=LETTERS, partitions=[row])])
    (answer,) = ask(client, request, LIST_OFFSETS).topics[0].partitions
    return int(answer.offset)


def commit(clients: dict[int, RawClient]) -> None:
    """Commit the end of each partition, without a member."""
    # For the age of records that are not consumed Barnabas reads them, and that is counted as well.
    find = m.FindCoordinatorRequest(key=GROUP, key_type=0)
    found = eventually(lambda: ask(clients[1], find, FIND), lambda answer: answer.error_code == ErrorCode.NONE)
    client = clients[found.node_id]
    Request = m.OffsetCommitRequest
    rows = [Request.OffsetCommitRequestPartition(partition_index=each, committed_offset=END) for each in range(3)]
    request = Request(group_id=GROUP, topics=[Request.OffsetCommitRequestTopic(name=LETTERS, partitions=rows)])

    def codes(answer: m.OffsetCommitResponse) -> set[int]:
        return {row.error_code for row in answer.topics[0].partitions}

    # The coordinator may still be loading what its partition has: nothing.
    eventually(lambda: ask(client, request, COMMIT), lambda answer: codes(answer) == {ErrorCode.NONE})
