"""The proxy in front of another Kafka, here a LocalCluster: what passes, what is changed, what is written down."""

import socket
import threading

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from barnabas.testing import FaultMissed, LocalBroker, LocalBrokerError, LocalCluster
from barnabas.testing.lab.control import Laboratory
from barnabas.testing.lab.relay import PICTURES_MAX
from barnabas.testing.lab.upstream import UpstreamProxy
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from barnabas.world.net import OsNet
from tests.testing.client import Client
from tests.testing.lab.http import ask, done


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(3, topics={"t": (3, 3)}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxy(cluster):
    with UpstreamProxy(cluster.brokers[1].bootstrap_servers) as proxy:
        yield proxy


@pytest.fixture
def faults(proxy):
    proxy.requests.clear()
    yield proxy.faults
    proxy.faults.clear()


@pytest.fixture
def topic(cluster, request):
    name = f"t{abs(hash(request.node.name))}"
    cluster.create_topic(name, 1, 3)
    return name


def values(cluster, topic):
    return [record.value for record in cluster.records(topic)]


def test_clients_find_only_the_ports_of_the_proxy(cluster, proxy):
    ours = {int(each.rpartition(":")[2]) for each in proxy.bootstrap_servers.split(",")}
    assert len(ours) == 3
    with Client(proxy.bootstrap_servers) as client:
        assert {broker.port for broker in client(m.MetadataRequest(topics=None)).brokers} == ours
        described = client.ask(m.DescribeClusterRequest(), 1, m.DescribeClusterResponse)
        assert {broker.port for broker in described.brokers} == ours
        found = client.ask(m.FindCoordinatorRequest(key="g"), 2, m.FindCoordinatorResponse)
        assert found.port in ours
        (found,) = client.ask(
            m.FindCoordinatorRequest(coordinator_keys=["g"]), 4, m.FindCoordinatorResponse
        ).coordinators
        assert found.port in ours


def test_no_version_is_offered_that_cannot_be_decoded_or_names_addresses(proxy):
    with Client(proxy.bootstrap_servers) as client:
        rows = client.ask(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse).api_keys
    newest = {row.api_key: row.max_version for row in rows}
    assert all(APIS[key].served and version <= APIS[key].max_version for key, version in newest.items())
    assert (newest[0], newest[1]) == (9, 15)


def test_an_unknown_version_of_apiversions_is_answered_in_version_0(proxy):
    host, _, port = proxy.bootstrap_servers.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(bytes.fromhex("0000000a 0012 0063 00000007 ffff".replace(" ", "")))
        answer = connection.recv(1000)
    assert answer[4:10] == bytes.fromhex("00000007 0023".replace(" ", ""))


def test_records_pass_from_producer_to_group(cluster, proxy, topic):
    producer = Producer({"bootstrap.servers": proxy.bootstrap_servers})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(20) == 0
    consumer = KafkaConsumer(
        topic, bootstrap_servers=proxy.bootstrap_servers, group_id=f"g-{topic}", auto_offset_reset="earliest"
    )
    assert [next(consumer).value for _ in range(100)] == [b"%d" % number for number in range(100)]
    consumer.close()


def test_a_lost_acknowledgement_is_lost_once(cluster, proxy, faults, topic):
    lost = faults.drop("Produce", "after", topic=topic, times=1)
    producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"42 gulden")
    assert producer.flush(20) == 0
    assert lost.fired == 1
    assert values(cluster, topic) == [b"42 gulden"]
    assert [entry.outcome for entry in proxy.requests("Produce")] == ["dropped", "answered"]


def test_a_partition_fails_and_the_others_are_written(cluster, proxy, faults):
    cluster.create_topic("rows", 2, 3)
    cluster.move_leader("rows", 0, to=1)
    cluster.move_leader("rows", 1, to=1)
    faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="rows", partition=0, times=1)
    with Client(proxy.bootstrap_servers.split(",")[0]) as client:
        assert client.produce("rows", b"a", partition=0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert client.produce("rows", b"b", partition=1).error_code == 0
    assert values(cluster, "rows") == [b"b"]


@pytest.mark.parametrize(
    ("api", "set_fault"),
    [
        ("Produce", lambda faults: faults.delay("Produce", 0.2, times=1)),
        ("Produce", lambda faults: faults.throttle("Produce", 100, times=1)),
        ("Produce", lambda faults: faults.corrupt("Produce", times=1)),
        ("Produce", lambda faults: faults.drop("Produce", "midway", times=1)),
        ("Metadata", lambda faults: faults.stale("Metadata", times=1)),
        ("Metadata", lambda faults: faults.fail("Metadata", "LEADER_NOT_AVAILABLE", times=1)),
    ],
    ids=["delay", "throttle", "corrupt", "midway", "stale", "fail"],
)
def test_a_producer_gets_over_it(cluster, proxy, faults, topic, api, set_fault):
    fault = set_fault(faults)
    producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"v")
    assert producer.flush(20) == 0
    fault.wait(1)
    assert [entry.api for entry in fault.seen] == [api]
    assert values(cluster, topic) == [b"v"]


def test_a_function_that_fails_is_answered_as_by_a_broker(proxy, faults, mistakes):
    faults.answer("Metadata", lambda call, request, response: 1 / 0, times=1)
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="t")])
    with Client(proxy.bootstrap_servers) as client:
        assert client(asked).topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client(asked).topics[0].error_code == 0
    assert [entry.outcome for entry in proxy.requests("Metadata")] == ["answered", "answered"]
    (traceback,) = mistakes.take()
    assert "answer(Metadata, times=1) failed" in traceback


def test_a_fetched_topic_is_damaged_by_its_name_although_clients_send_its_id(cluster, proxy, faults, topic):
    with Client(cluster.brokers[cluster.leader(topic, 0)].bootstrap_servers) as client:
        client.produce(topic, b"v")
    torn = faults.corrupt("Fetch", topic=topic, times=1)
    # librdkafka names topics by their ids where that is offered, and compares checksums only when it is asked to.
    settings = {"bootstrap.servers": proxy.bootstrap_servers, "group.id": topic, "check.crcs": True}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    assert message.error() is not None or message.value() == b"v"
    consumer.close()
    assert torn.fired == 1


def test_stale_metadata_are_those_before_the_last_change(cluster, proxy, faults):
    cluster.create_topic("moved", 1, 3)
    cluster.move_leader("moved", 0, to=1)
    asked = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="moved")])

    def leader(client):
        return client(asked).topics[0].partitions[0].leader_id

    with Client(proxy.bootstrap_servers) as client:
        assert leader(client) == 1
        cluster.move_leader("moved", 0, to=2)
        assert [leader(client) for _ in range(3)] == [2, 2, 2]
        faults.stale("Metadata", times=1)
        assert [leader(client), leader(client)] == [1, 2]


def test_what_is_kept_for_stale_metadata_is_bounded(proxy, faults):
    with Client(proxy.bootstrap_servers) as client:
        for number in range(PICTURES_MAX + 20):
            topic = m.MetadataRequest.MetadataRequestTopic(name=f"none-{number}")
            client(m.MetadataRequest(topics=[topic], allow_auto_topic_creation=False))
    assert len(proxy._engine._pictures) == PICTURES_MAX


class FullNet(OsNet):
    """A machine on which no port is free any more."""

    async def listen(self, host, port, *, backlog):
        raise OSError(24, "Too many open files")


def test_a_proxy_without_a_free_port_says_so(cluster):
    proxy = UpstreamProxy(cluster.brokers[1].bootstrap_servers)
    proxy._net = FullNet()
    with pytest.raises(LocalBrokerError, match=r"there is no port for broker 1: .*Too many open files"):
        proxy.start()


def test_an_older_kafka_has_its_versions(proxy, faults):
    faults.as_kafka("2.8")
    with Client(proxy.bootstrap_servers) as client:
        rows = client.ask(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse).api_keys
    assert max(row.max_version for row in rows if row.api_key == 1) == 12


def test_a_request_without_acknowledgement_has_no_response(cluster, proxy, faults, topic):
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap_servers, acks=0, enable_idempotence=False)
    producer.send(topic, b"v")
    producer.flush()
    (entry,) = proxy.requests("Produce").wait(1, seconds=10)
    assert entry.outcome == "no response"
    producer.close()


def test_a_request_that_hangs_goes_on_when_the_fault_is_removed(proxy, faults):
    hung = faults.hang("Metadata")
    answers = []
    with Client(proxy.bootstrap_servers) as client:
        asks = threading.Thread(target=lambda: answers.append(client(m.MetadataRequest(topics=None))))
        asks.start()
        hung.wait(1)
        hung.remove()
        asks.join(10)
    assert len(answers[0].brokers) == 3


def test_a_broker_that_ends_closes_the_connections_of_its_clients(cluster, proxy, faults):
    with Client(proxy.bootstrap_servers.split(",")[2]) as client:
        client(m.MetadataRequest(topics=None))
        cluster.kill(3)
        with pytest.raises(OSError, match="closed"):
            client(m.MetadataRequest(topics=None))
    cluster.recover()


def test_faults_are_set_over_http_as_well(cluster, proxy, faults):
    with Laboratory(proxy) as lab:
        fault = done(lab, "POST", "/v1/faults", {"throttle": "Metadata", "ms": 1})
        with Client(proxy.bootstrap_servers) as client:
            client(m.MetadataRequest(topics=None))
        assert done(lab, "GET", f"/v1/faults/{fault['id']}/wait")["fired"] == 1
        status, answer = ask(lab, "POST", "/v1/brokers/1/kill")
        assert (status, answer["error"]) == (409, "this is no LocalCluster: there are faults and the request log only")


def test_a_fault_that_is_not_hit_says_what_came(proxy, faults):
    fault = faults.fail("Fetch", "UNKNOWN_SERVER_ERROR")
    with Client(proxy.bootstrap_servers) as client:
        client(m.MetadataRequest(topics=None))
    with pytest.raises(FaultMissed, match="1 x Metadata v8"):
        fault.check()


# -- an upstream with TLS and logins


@pytest.mark.parametrize(
    ("security", "mechanism"), [("SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-256"), ("SASL_PLAINTEXT", "PLAIN")]
)
def test_an_upstream_is_reached_by_tls_and_a_login_and_its_clients_need_neither(security, mechanism):
    with LocalBroker(topics=["t"], security=security, mechanism=mechanism) as broker:
        with UpstreamProxy(broker.bootstrap_servers, broker.client_config("java")) as proxy:
            lost = proxy.faults.drop("Produce", "after", topic="t", times=1)
            with Client(proxy.bootstrap_servers) as client:
                client.send_off(client.produce_request("t", b"v"))
                with pytest.raises(ConnectionError):
                    client.response()
            assert lost.fired == 1
        assert [each.value for each in broker.records("t")] == [b"v"]


def test_an_upstream_that_wants_tls_or_another_login_is_said_in_one_line():
    with LocalBroker(security="SASL_SSL") as broker:
        wanted = broker.client_config("java")
        wrong = wanted["sasl.jaas.config"].replace('password="', 'password="x')
        for properties, why in (
            ({}, "it (cannot be reached|speaks no Kafka)"),
            ({**wanted, "sasl.jaas.config": wrong}, "it cannot be reached, or closes the connection: .*password"),
            ({**wanted, "ssl.truststore.location": "/castle"}, ".*/castle"),
            ({**wanted, "security.protocol": "TLS"}, "security.protocol is 'TLS'"),
        ):
            with pytest.raises(LocalBrokerError, match=rf"^upstream 127\.0\.0\.1:\d+: {why}") as raised:
                UpstreamProxy(broker.bootstrap_servers, properties).start()
            assert "\n" not in str(raised.value)


# -- an upstream that is none


def test_an_upstream_that_is_away_is_said_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(LocalBrokerError, match=rf"^upstream 127\.0\.0\.1:{port}: it cannot be reached"):
        UpstreamProxy(f"127.0.0.1:{port}").start()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\7", b""])
def test_an_upstream_that_speaks_no_kafka_is_said_in_one_line(answer):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            connection.recv(1000)
            connection.sendall(answer)
            connection.close()

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(
            LocalBrokerError, match=r"^upstream 127.*: it (speaks no Kafka|cannot be reached)"
        ) as raised:
            UpstreamProxy(f"127.0.0.1:{listener.getsockname()[1]}").start()
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["castle", "castle:", ":9092", "castle:0", "castle:99999"])
def test_an_upstream_has_a_host_and_a_port(text):
    with pytest.raises(LocalBrokerError, match="upstream: a host with a port"):
        UpstreamProxy(text)
