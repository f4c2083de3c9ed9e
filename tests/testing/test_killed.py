"""What a broker in memory has acknowledged is there after a kill, whatever it did at that moment."""

import socket
import threading

import trio

from barnabas.client.blocking import BlockingConnection
from barnabas.testing import LocalBroker
from barnabas.wire import messages as m
from barnabas.wire.records import build_batch

KILLS = 8
VERSIONS = {m.ProduceRequest: 7, m.ListOffsetsRequest: 5}
LATEST = -1


def produce():
    data = m.ProduceRequest.PartitionProduceData(
        index=0, records=bytes(build_batch([(None, b"a")], timestamp_ms=1).data)
    )
    return m.ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[m.ProduceRequest.TopicProduceData(name="t", partition_data=[data])]
    )


class Client(BlockingConnection):
    """A connection, and requests one after the other."""

    def __init__(self, broker):
        host, _, port = broker.bootstrap_servers.partition(":")
        super().__init__(socket.create_connection((host, int(port)), timeout=10), "client")

    def send_request(self, request):
        self.request(request, VERSIONS[type(request)])

    def receive(self):
        """The response, or None if the connection has ended."""
        try:
            return self.response()
        except ConnectionError:
            return None

    def end_offset(self):
        asked = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[asked])
        request = m.ListOffsetsRequest(replica_id=-1, topics=[topic])
        response = self.ask(request, VERSIONS[type(request)], m.ListOffsetsResponse)
        return response.topics[0].partitions[0].offset


def kill_with(broker, request, client):
    """Kill the broker in the same turn of its event loop in which a request arrives."""
    host, stands, may_go_on = broker._host, threading.Event(), threading.Event()

    async def stand():
        stands.set()
        may_go_on.wait(10)

    host.loop.tell(lambda: trio.lowlevel.spawn_system_task(stand))
    stands.wait(10)
    client.send_request(request)
    host.loop.tell(host._thread.life.die)
    may_go_on.set()
    broker.kill()


def test_a_request_that_is_answered_in_the_turn_of_the_kill_has_its_records_there():
    """The order of tasks in a turn is random: half of the kills come before the request."""
    with LocalBroker(topics=["t"]) as broker:
        for _ in range(KILLS):
            client = Client(broker)
            before = client.end_offset()
            kill_with(broker, produce(), client)
            is_acknowledged = client.receive() is not None
            client.close()
            broker.restart()
            client = Client(broker)
            assert client.end_offset() >= before + is_acknowledged
            client.close()
