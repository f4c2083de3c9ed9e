"""What a broker logs for the person who runs it: one line for what has happened."""

import contextlib
import re
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from barnabas.testing import LocalBrokerError
from barnabas.wire import messages as m
from compat_tests.brokers import BrokerProcess, run_barnabas
from compat_tests.raw import RawClient, eventually

SECONDS = 20.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        yield running


def lines_about(broker: BrokerProcess, text: str, count: int = 1) -> list[str]:
    """The INFO lines with this text, without time and logger, once there are so many."""

    def found() -> list[str]:
        lines = [line for line in broker.log_text().splitlines() if " INFO " in line and text in line]
        return [line.partition(" INFO ")[2].partition(": ")[2] for line in lines]

    eventually(found, lambda lines: len(lines) >= count)
    return found()


def test_a_topic_that_is_created_grown_and_deleted_has_a_line_each(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for futures in (
        admin.create_topics([NewTopic("letters", 2, 1)]),
        admin.create_partitions([NewPartitions("letters", 5)]),
        admin.delete_topics(["letters"]),
    ):
        futures["letters"].result(SECONDS)
    assert lines_about(broker, "letters", 3) == [
        "topic letters was created, with 2 partitions",
        "topic letters has 5 partitions, 3 of them new",
        "deleting topic letters",
    ]


def test_a_topic_that_its_first_record_creates_has_a_line(broker: BrokerProcess) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("made-by-producing", b"value")
    assert producer.flush(SECONDS) == 0
    assert lines_about(broker, "made-by-producing") == ["topic made-by-producing was created, with 1 partitions"]


def test_the_first_transaction_has_one_line_and_not_one_for_each_partition(broker: BrokerProcess) -> None:
    Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "t"}).init_transactions(SECONDS)
    assert lines_about(broker, "__transaction_state") == ["topic __transaction_state was created, with 50 partitions"]
    assert "transactional ids" not in broker.log_text()


def test_a_client_of_tls_on_a_port_without_it_is_called_so(broker: BrokerProcess) -> None:
    with (
        socket.create_connection(("127.0.0.1", broker.port), SECONDS) as plain,
        contextlib.suppress(OSError),  # that the broker closes is what is expected
    ):
        ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
    eventually(
        broker.log_text, lambda said: "The client speaks TLS (SSL or SASL_SSL), and this listener does not" in said
    )


def test_a_browser_is_called_so(tmp_path) -> None:
    # A broker of its own: a second line about the same address would be held back for ten seconds.
    with BrokerProcess(tmp_path) as broker:
        with socket.create_connection(("127.0.0.1", broker.port), SECONDS) as browser:
            browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert browser.recv(1) == b""
        eventually(broker.log_text, lambda said: "The client speaks HTTP: this port is for Kafka's protocol" in said)
        with RawClient(broker.port) as client:
            assert client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers


def test_a_stop_is_logged_when_it_begins_and_when_it_is_over(tmp_path) -> None:
    with BrokerProcess(tmp_path) as broker:
        assert broker.stop() == 0
        last = broker.log_text().splitlines()
    begun = [number for number, line in enumerate(last) if " INFO " in line and "SIGTERM: stopping" in line]
    assert len(begun) == 1, last
    assert re.search(r" INFO \S+: stopped$", last[-1])


def test_a_directory_that_cannot_be_made_is_said_with_its_path_and_errno_first(tmp_path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("no directory")
    broker = BrokerProcess(tmp_path, log_dirs=str(blocked / "data"))
    with pytest.raises(LocalBrokerError, match=r"/blocked/data: ENOTDIR, a part of the path is no directory \("):
        broker.start()


def test_a_zookeeper_that_is_not_there_is_said_at_the_first_attempt(tmp_path) -> None:
    """With the properties of the file that comes with Apache Kafka for ZooKeeper mode."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    (tmp_path / "server.properties").write_text(
        "broker.id=0\nnum.network.threads=3\nlog.dirs=kafka-logs\noffsets.topic.replication.factor=1\n"
        f"zookeeper.connect=localhost:{port}\nzookeeper.connection.timeout.ms=180000\n"
    )
    command = [sys.executable, "-m", "barnabas", "serve", "server.properties", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as broker:
        assert broker.stderr is not None
        said = broker.stderr.readline()
        broker.terminate()
        assert broker.wait(SECONDS) == 0
    assert f"ZooKeeper at localhost:{port} cannot be reached: Connection refused; trying again." in said
    assert "One broker alone needs no ZooKeeper: remove zookeeper.connect" in said


def test_what_refused_the_last_attempt_is_a_part_of_the_error(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    settings = ("zookeeper.connect", f"127.0.0.1:{port}"), ("zookeeper.connection.timeout.ms", "500")
    arguments = [f"--set={name}={value}" for name, value in settings]
    ended = run_barnabas("serve", f"--data-dir={tmp_path}", "--listen=127.0.0.1:0", *arguments)
    assert ended.returncode == 1
    reason = f"no session within 500 ms: ZooKeeper at 127.0.0.1:{port} cannot be reached: Connection refused"
    assert ended.stderr.splitlines()[-1] == f"barnabas: metadata store 127.0.0.1:{port}: {reason}"
    # A command that only reads says it once, at its end.
    exported = run_barnabas("store", "export", "--zookeeper", f"127.0.0.1:{port}")
    assert exported.returncode == 1
    assert exported.stderr.count("\n") == 1
