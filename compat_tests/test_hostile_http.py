"""Hostile requests over HTTP beside a Kafka client: nothing changes, nothing runs, and the client notices nothing.

Each request is bytes on a connection of its own. What must come back is a status, or the end of the connection.
"""

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.console.http import BODY_BYTES_MAX, HEAD_BYTES_MAX
from barnabas.wire import messages as m
from compat_tests.brokers import BrokerProcess
from compat_tests.kafka import free_port
from compat_tests.raw import RawClient, ask, create_topic

confluent_kafka = pytest.importorskip("confluent_kafka")

SCRIPT = "<script>alert(1)</script>"
TOPIC = "letters"
SECONDS = 20.0
LATENCY_SECONDS_MAX = 5.0  # of a produced record: more would be a stall
RECORDS_MIN = 200
CLOSED = 0  # in place of a status
FORM = "Content-Type: application/x-www-form-urlencoded"
JSON = "Content-Type: application/json"


def get(path: str, *lines: str, host: str = "localhost", version: str = "1.1") -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"Host: {host}", *lines))
    return f"GET {path} HTTP/{version}\r\n{head}\r\n".encode()


def send(method: str, path: str, body: bytes, *lines: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in ("Host: localhost", f"Content-Length: {len(body)}", *lines))
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def send_chunks(chunks: bytes) -> bytes:
    return (
        f"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\n{JSON}\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + chunks
    )


HOSTILE: dict[str, tuple[bytes, int]] = {
    # A page of another site.
    "foreign host": (get("/v1/cluster", host="evil.example"), 421),
    "host that begins well": (get("/v1/cluster", host="localhost.evil.example"), 421),
    "host that ends well": (get("/v1/cluster", host="evil-localhost"), 421),
    "host behind an address": (get("/v1/cluster", host="[::1].evil.example"), 421),
    "host with a user": (get("/v1/cluster", host="localhost@evil.example"), 421),
    "host that is a script": (get("/v1/cluster", host=SCRIPT), 421),
    "empty host": (get("/v1/cluster", host=""), 421),
    "no host": (b"GET /v1/cluster HTTP/1.1\r\n\r\n", 400),
    "two hosts": (get("/v1/cluster", "Host: evil.example"), 400),
    "old version without a host": (b"GET /v1/cluster HTTP/1.0\r\n\r\n", 421),
    "foreign origin": (get("/v1/cluster", "Origin: http://evil.example"), 403),
    "origin of a file": (get("/v1/cluster", "Origin: null"), 403),
    "origin of another port": (get("/v1/cluster", "Origin: http://localhost:1"), 403),
    "cross-site fetch": (get("/v1/cluster", "Sec-Fetch-Site: cross-site"), 403),
    "same-site fetch": (get("/v1/cluster", "Sec-Fetch-Site: same-site"), 403),
    "cross-site frame": (get("/v1/cluster", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"), 403),
    # What would change something.
    "form": (send("POST", "/v1/topics", b"name=taken", FORM), 415),
    "form with a file": (send("POST", "/v1/topics", b"--x--", "Content-Type: multipart/form-data; boundary=x"), 415),
    "form as text": (send("POST", "/v1/topics", b'{"name": "taken"}', "Content-Type: text/plain"), 415),
    "post": (send("POST", "/v1/topics", b'{"name": "taken"}', JSON), 405),
    "put": (send("PUT", f"/v1/topics/{TOPIC}", b"{}", JSON), 405),
    "patch": (send("PATCH", f"/v1/topics/{TOPIC}/configs", b'{"retention.ms": "1"}', JSON), 405),
    "delete": (send("DELETE", f"/v1/topics/{TOPIC}", b""), 405),
    "method of the lab": (send("POST", "/v1/reset", b"{}", JSON), 404),
    "kill": (send("POST", "/v1/brokers/1/kill", b"{}", JSON), 404),
    "options": (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 415),
    "trace": (b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 415),
    "connect": (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 415),
    "overridden method": (get(f"/v1/topics/{TOPIC}", "X-HTTP-Method-Override: DELETE"), 200),
    # Files.
    "traversal": (get("/../../../../etc/passwd"), 404),
    "quoted traversal": (get("/%2e%2e/%2e%2e/%2e%2e/etc/passwd"), 404),
    "traversal with backslashes": (get("/..%5c..%5cetc%5cpasswd"), 404),
    "traversal twice quoted": (get("/%252e%252e/etc/passwd"), 404),
    "traversal in a name": (get("/v1/topics/..%2f..%2fetc%2fpasswd"), 404),
    "traversal in the store": (get("/v1/store?path=/../../etc/passwd"), 404),
    "source": (get("/http.py"), 404),
    "null in a path": (get("/app.js%00.html"), 404),
    "another machine's address": (get("http://evil.example/v1/cluster"), 404),
    # Scripts.
    "script as a topic": (get(f"/v1/topics/{SCRIPT}"), 404),
    "script as a group": (get(f"/v1/groups/{SCRIPT}"), 404),
    "number of thousands of digits": (get(f"/v1/topics/{TOPIC}/records?offset=" + "9" * 5000), 400),
    "script as an offset": (get(f"/v1/topics/{TOPIC}/records?offset={SCRIPT}"), 400),
    "script as a header": (get("/v1/cluster", f"User-Agent: {SCRIPT}"), 200),
    "answer split in two": (get("/v1/topics/a%0d%0aSet-Cookie:%20a=b"), 404),
    # Frames.
    "huge head": (get("/", "X: " + "y" * HEAD_BYTES_MAX), 431),
    "many short headers": (get("/", *["a:"] * 3000), 431),
    "many headers": (get("/", *(f"X{number}: y" for number in range(5000))), 431),
    "long path": (get("/" + "a" * HEAD_BYTES_MAX), 431),
    "huge body": (send("POST", "/v1/topics", bytes(BODY_BYTES_MAX + 1), JSON), 413),
    "negative length": (b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
    "two lengths": (get("/", "Content-Length: 1", "Content-Length: 2"), 400),
    "two framings": (get("/healthz", "Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\n", 411),
    "broken chunk": (send_chunks(b"z\r\n"), 411),
    "chunks of one byte": (send_chunks(b"1\r\n{\r\n" * 10_000), 411),
    "folded header": (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\x00\r\n\r\n", 400),
    "no HTTP": (b"nonsense\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n", 400),
    "Kafka": (b"\x00\x00\x00\x0c\x00\x12\x00\x00\x00\x00\x00\x01\x00\x02me\r\n\r\n", 400),
}
# They never end; the connection is left open while all others are sent.
HALVES = {
    "nothing": b"",
    "half a line": b"GET /v1/clus",
    "half a head": b"GET /v1/cluster HTTP/1.1\r\nHost: localh",
    "half a body": b"POST /v1/topics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{",
}


class Served:
    """A broker with its page."""

    def __init__(self, broker: BrokerProcess, port: int) -> None:
        self.broker = broker
        self.port = port

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), SECONDS)

    def ask(self, raw: bytes) -> tuple[int, dict[str, str], bytes]:
        """The status (CLOSED without an answer), headers and body that these bytes get."""
        with self.connect() as connection:
            try:
                connection.sendall(raw)
                answer = http.client.HTTPResponse(connection)
                answer.begin()
                return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
            # It may close before it has read all.
            except (ConnectionError, http.client.HTTPException):
                return CLOSED, {}, b""

    def state(self) -> dict[str, object]:
        """What a request could have changed: topics, their properties, groups, ACLs, and the files."""
        paths = ["/v1/topics", f"/v1/topics/{TOPIC}/configs", "/v1/groups", "/v1/acls", "/v1/quotas"]
        state: dict[str, object] = {path: json.loads(self.ask(get(path))[2]) for path in paths}
        for topic in state["/v1/topics"]["topics"]:
            # What the Kafka client writes meanwhile.
            for number in ("records", "size_bytes"):
                topic.pop(number, None)
        state["files"] = sorted(str(path) for path in self.broker.data_dir.rglob("*"))
        return state


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    port = free_port()
    with BrokerProcess(tmp_path_factory.mktemp("hostile-http"), barnabas_http_listener=f"127.0.0.1:{port}") as broker:
        create_topic(broker.port, TOPIC)
        yield Served(broker, port)


class Customer:
    """A Kafka client in a thread of its own: it produces one record after the other and notes how long each takes."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._over = threading.Event()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "retries": 0})
        self._thread = threading.Thread(target=self._produce)
        self.longest_seconds = 0.0
        self.errors: list[str] = []
        self.sent = 0

    def __enter__(self) -> "Customer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _produce(self) -> None:
        while not self._over.is_set() or self.sent < RECORDS_MIN:
            began = time.monotonic()
            self._producer.produce(TOPIC, str(self.sent), on_delivery=self._delivered)
            self._producer.flush()
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            self.sent += 1

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.errors.append(str(error))


def test_a_kafka_client_notices_nothing_of_hostile_requests(served):
    assert len(HOSTILE) + len(HALVES) >= 40
    before = served.state()
    halves = [served.connect() for _ in HALVES]
    with Customer(served.broker) as customer:
        for connection, begun in zip(halves, HALVES.values(), strict=True):
            connection.sendall(begun)
        wrong = {}
        for name, (raw, wanted) in HOSTILE.items():
            status, headers, body = served.ask(raw)
            if status != wanted:
                wrong[name] = status, body[:200]
            if not is_harmless(headers):
                wrong[name] = status, headers
        assert served.ask(get("/healthz"))[0] == 200, "half requests hold nothing up"
    for connection in halves:
        connection.close()

    assert wrong == {}
    assert customer.errors == []
    assert customer.longest_seconds < LATENCY_SECONDS_MAX
    assert end_of(served.broker) == customer.sent >= RECORDS_MIN
    assert served.state() == before
    assert "Traceback" not in served.broker.log_path.read_text()


def is_harmless(headers: dict[str, str]) -> bool:
    """Whether no browser would run what has come back, whatever it is."""
    return not headers or (
        headers.get("x-content-type-options") == "nosniff"
        and "default-src 'self'" in headers.get("content-security-policy", "")
        and headers.get("content-type", "").startswith(("application/json", "text/plain"))
        and not headers.keys() & {"set-cookie", "access-control-allow-origin"}
    )


def end_of(broker: BrokerProcess) -> int:
    Request = m.ListOffsetsRequest
    row = Request.ListOffsetsPartition(partition_index=0, timestamp=-1)
    with RawClient(broker.port) as client:
        answer = ask(client, Request(replica_id=-1, topics=[Request.ListOffsetsTopic(name=TOPIC, partitions=[row])]), 5)
    return int(answer.topics[0].partitions[0].offset)


def test_scripts_that_clients_send_come_back_as_json(served):
    servers = {"bootstrap.servers": served.broker.bootstrap}
    producer = confluent_kafka.Producer({**servers, "client.id": SCRIPT})
    producer.produce(TOPIC, SCRIPT, key=SCRIPT, headers={SCRIPT: SCRIPT})
    assert producer.flush(30) == 0
    consumer = confluent_kafka.Consumer({**servers, "group.id": SCRIPT, "client.id": SCRIPT})
    consumer.commit(offsets=[confluent_kafka.TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    consumer.close()

    quoted = SCRIPT.replace("/", "%2f")
    for path in (f"/v1/topics/{TOPIC}/records?newest=1", f"/v1/groups/{quoted}", "/v1/groups", "/metrics"):
        status, headers, body = served.ask(get(path))
        assert status == 200, path
        assert SCRIPT.encode() in body, path
        assert is_harmless(headers), path
