"""A client of a `LocalBroker` inside a test: one blocking socket, and the few requests that these tests need."""

import socket
import threading
import time

from barnabas.client.blocking import BlockingConnection
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of
from barnabas.wire.records import build_batch, read_all_records

LATEST = -1
EARLIEST = -2
GROUP = 0
TRANSACTION = 1
PATIENCE_SECONDS = 10.0
VERSIONS = {
    m.ProduceRequest: 7,
    m.FetchRequest: 11,
    m.ListOffsetsRequest: 5,
    m.JoinGroupRequest: 3,
    m.SyncGroupRequest: 2,
    m.DescribeGroupsRequest: 4,
    m.OffsetCommitRequest: 6,
    m.OffsetFetchRequest: 5,
    m.InitProducerIdRequest: 1,
    m.AddPartitionsToTxnRequest: 1,
    m.CreateDelegationTokenRequest: 1,
    m.MetadataRequest: 8,
    m.FindCoordinatorRequest: 2,
}


class Client(BlockingConnection):
    """A connection to the first of these servers."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.split(",", maxsplit=1)[0].partition(":")
        super().__init__(socket.create_connection((host, int(port)), PATIENCE_SECONDS), "test")

    def __call__(self, request: m.Message) -> m.Message:
        return self.ask(request, VERSIONS[type(request)], m.response_class(APIS[key_of(request)]))

    def send_off(self, request: m.Message) -> None:
        """Send a request; `response` reads what comes."""
        self.request(request, VERSIONS[type(request)])

    def produce(self, topic: str, *values: bytes, partition: int = 0, acks: int = -1, timestamp_ms: int | None = None):
        """Produce one batch; the row of the answer."""
        at = round(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        batch = build_batch([(None, value) for value in values], timestamp_ms=at).data
        return self.produce_batch(topic, bytes(batch), partition=partition, acks=acks)

    def produce_batch(self, topic: str, batch: bytes, *, partition: int = 0, acks: int = -1, name: str | None = None):
        data = m.ProduceRequest.PartitionProduceData(index=partition, records=batch)
        rows = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        request = m.ProduceRequest(acks=acks, timeout_ms=600_000, transactional_id=name, topic_data=rows)
        return self(request).responses[0].partition_responses[0]

    @staticmethod
    def produce_request(topic: str, value: bytes) -> m.ProduceRequest:
        batch = build_batch([(None, value)], timestamp_ms=round(time.time() * 1000)).data
        data = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch))
        rows = [m.ProduceRequest.TopicProduceData(name=topic, partition_data=[data])]
        return m.ProduceRequest(acks=-1, timeout_ms=600_000, topic_data=rows)

    def offset(self, topic: str, timestamp: int = LATEST, partition: int = 0, isolation_level: int = 0) -> int:
        asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics = [m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[asked])]
        request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=topics)
        row = self(request).topics[0].partitions[0]
        assert row.error_code == 0, row
        return row.offset

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 500) -> m.FetchRequest:
        asked = m.FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [m.FetchRequest.FetchTopic(topic=topic, partitions=[asked])]
        return m.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=topics)

    def values(self, topic: str, partition: int = 0) -> list[bytes]:
        """The values from the beginning of a partition up to its high watermark."""
        offset = self.offset(topic, EARLIEST, partition)
        end = self.offset(topic, partition=partition)
        found: list[bytes] = []
        # A response ends where a segment does.
        while offset < end:
            row = self(self.fetch(topic, offset, partition=partition, max_wait_ms=0)).responses[0].partitions[0]
            records = [record for _, record in read_all_records(bytes(row.records or b""))]
            assert records, row
            found += [bytes(record.value) for record in records]
            offset = records[-1].offset + 1
        return found

    def find_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Wait until the group (or transactional id) has a coordinator."""
        request = m.FindCoordinatorRequest(key=key, key_type=key_type)
        eventually(lambda: self(request).error_code == 0)
        if key_type == GROUP:
            fetch = m.OffsetFetchRequest(group_id=key, topics=[])
            eventually(lambda: self(fetch).error_code == 0)

    def join(self, group: str, *, session_timeout_ms: int = 45_000) -> str:
        """Become the one member of a group; the member id."""
        self.find_coordinator(group)
        protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
        joined = self(
            m.JoinGroupRequest(
                group_id=group,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=session_timeout_ms,
                protocol_type="consumer",
                protocols=[protocol],
            )
        )
        assert joined.error_code == 0, joined
        mine = m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        synced = self(
            m.SyncGroupRequest(
                group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[mine]
            )
        )
        assert synced.error_code == 0, synced
        return joined.member_id

    def members(self, group: str) -> list[str]:
        (described,) = self(m.DescribeGroupsRequest(groups=[group])).groups
        return [each.member_id for each in described.members]


def eventually(look, seconds: float = PATIENCE_SECONDS):
    """Wait until `look` returns what is true, and return it."""
    deadline = time.monotonic() + seconds
    pace = threading.Event()
    while not (seen := look()):
        assert time.monotonic() < deadline, "what was waited for has not come"
        pace.wait(0.002)
    return seen
