"""The broker as a process: starts, refused starts, output, stops, and faults that it survives."""

import contextlib
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

import pytest

from barnabas import __version__
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from compat_tests.raw import RawClient, create_topic, eventually, produce_request

READY_SECONDS = 30.0
MARKER = ".kafka_cleanshutdown"
READY_LINE = re.compile(r"barnabas (\S+) ready: broker (\d+) at (\w+)://(.+):(\d+), cluster ([\w-]{22}), data (.+)\n")

# None of these is imported before the ready line, unless trio itself imports it.
HEAVY_MODULES = {
    "asyncio",
    "cramjam",
    "http",
    "kazoo",
    "lz4",
    "prometheus_client",
    "rich",
    "snappy",
    "ssl",
    "zstandard",
}


class Running:
    """A broker that has printed its ready line."""

    def __init__(self, process: "subprocess.Popen[str]", ready_line: str, errors: pathlib.Path) -> None:
        found = READY_LINE.fullmatch(ready_line)
        assert found, ready_line
        self.process = process
        self.ready_line = ready_line
        self.version, self.broker_id, self.host, self.port = found[1], int(found[2]), found[4], int(found[5])
        self.errors = errors

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def said(self) -> str:
        """What it wrote to standard error."""
        return self.errors.read_text()


def command(*arguments: str, python: Sequence[str] = ()) -> list[str]:
    return [sys.executable, *python, "-m", "barnabas", "serve", *arguments]


@contextlib.contextmanager
def serving(
    folder: pathlib.Path, *arguments: str, wrapper: Sequence[str] = (), python: Sequence[str] = (), stderr: int = -1
) -> Iterator[Running]:
    """A broker in `folder`, on a free port unless the arguments say otherwise; killed at the end."""
    if not any(argument == "--listen" or argument.startswith("listeners=") for argument in arguments):
        arguments = (*arguments, "--listen", "127.0.0.1:0")
    errors = folder / "stderr.log"
    with errors.open("a") as log:
        process = subprocess.Popen(
            [*wrapper, *command("--data-dir", "data", *arguments, python=python)],
            stdout=subprocess.PIPE,
            stderr=log if stderr < 0 else stderr,
            text=True,
            cwd=folder,
        )
    try:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], READY_SECONDS)[0], errors.read_text()
        yield Running(process, process.stdout.readline(), errors)
    finally:
        process.kill()
        process.communicate()


def refused(folder: pathlib.Path, *arguments: str, wrapper: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    """A start that must fail; its log lines are dropped, what it says at the end is left."""
    ended = subprocess.run(
        [*wrapper, *command(*arguments)], capture_output=True, text=True, cwd=folder, timeout=60, check=False
    )
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    ended.stderr = "".join(line for line in ended.stderr.splitlines(True) if line.startswith("barnabas: "))
    return ended


def produce_one(client: RawClient, topic: str, value: bytes = b"value") -> int:
    """The error code of one more record."""
    batch = bytes(build_batch([(None, value)], timestamp_ms=1000).data)
    (answered,) = client.ask(produce_request(topic, batch), 9, m.ProduceResponse).responses
    return answered.partition_responses[0].error_code


def is_served(client: RawClient) -> bool:
    return bool(client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers)


def brokers_in_metadata(port: int) -> list[tuple[int, str, int]]:
    with RawClient(port) as client:
        metadata = client.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse)
    return [(broker.node_id, broker.host, broker.port) for broker in metadata.brokers]


# -- the ready line


def test_the_ready_line_tells_where_it_is_reached_and_it_is(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path) as broker:
        assert broker.version == __version__
        assert (broker.host, broker.port > 0) == ("127.0.0.1", True)
        assert broker.ready_line.endswith(", data data\n")
        assert brokers_in_metadata(broker.port) == [(broker.broker_id, "127.0.0.1", broker.port)]


def test_port_0_picks_a_free_port_each_time(tmp_path: pathlib.Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with serving(tmp_path / "a") as one, serving(tmp_path / "b") as other:
        assert one.port != other.port
        assert brokers_in_metadata(one.port) != brokers_in_metadata(other.port)


def test_nothing_heavy_is_imported_before_the_ready_line(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path, python=["-X", "importtime"]) as broker:
        imported = modules_imported(broker.said())
    trio_alone = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import trio"], capture_output=True, text=True, check=True
    )
    assert {"trio", "barnabas.broker.serve", "barnabas.broker.server.dispatch"} <= imported
    assert (imported - modules_imported(trio_alone.stderr)) & HEAVY_MODULES == set()


def modules_imported(importtime: str) -> set[str]:
    """The modules in the output of `python -X importtime`."""
    return {line.rpartition("|")[2].strip() for line in importtime.splitlines() if line.startswith("import time:")}


# -- stops


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_stops_it_cleanly_and_the_next_start_checks_no_log(
    tmp_path: pathlib.Path, number: signal.Signals
) -> None:
    with serving(tmp_path) as broker:
        create_topic(broker.port, "letters")
        with RawClient(broker.port) as client:
            assert produce_one(client, "letters") == ErrorCode.NONE
            assert broker.stop(number) == 0
    assert (tmp_path / "data" / MARKER).exists()
    with serving(tmp_path) as broker:
        assert not (tmp_path / "data" / MARKER).exists(), "from now on a crash is a crash"
        eventually(broker.said, lambda said: "loaded 1 logs" in said)  # lines are written by a thread of their own
    with serving(tmp_path) as broker:
        eventually(broker.said, lambda said: "loaded and checked 1 logs" in said)  # it was killed


def test_a_stop_ends_a_long_poll_and_idle_connections(tmp_path: pathlib.Path) -> None:
    fetch = m.FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[m.FetchRequest.FetchTopic(topic="letters")])
    fetch.topics[0].partitions = [m.FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)]
    with serving(tmp_path) as broker:
        create_topic(broker.port, "letters")
        with RawClient(broker.port) as idle, RawClient(broker.port) as waiting:
            waiting.request(fetch, 11)
            brokers_in_metadata(broker.port)
            assert broker.stop() == 0
            assert idle.is_closed_by_broker()
    assert (tmp_path / "data" / MARKER).exists()


# -- starts that are refused


def test_a_second_broker_on_the_same_directory_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path) as broker:
        second = refused(tmp_path, "--data-dir", "data", "--listen", "127.0.0.1:0")
        assert second.returncode == 1
        assert second.stderr.count("\n") == 1
        assert "data is used by another process" in second.stderr
        assert brokers_in_metadata(broker.port), "the first is unharmed"


def test_a_port_in_use_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = refused(tmp_path, "--data-dir", "data", "--listen", f"127.0.0.1:{port}")
    assert ended.returncode == 1
    assert ended.stderr == f"barnabas: cannot listen on PLAINTEXT://127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("log.segment.bytes=13", "log.segment.bytes"),
        ("num.partitions=many", "num.partitions"),
        ("compression.type=rar", "compression.type"),
        ("listeners=PLAINTEXT//nowhere", "listeners"),
    ],
)
def test_a_malformed_property_is_refused_with_file_line_and_key(tmp_path: pathlib.Path, line: str, key: str) -> None:
    (tmp_path / "server.properties").write_text(f"# a comment\nbroker.id=7\n\n{line}\n")
    ended = refused(tmp_path, "server.properties", "--data-dir", "data")
    assert ended.returncode == 2
    assert ended.stderr.startswith("barnabas: server.properties:4: ")
    assert key in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists(), "nothing was started"


def test_all_malformed_properties_are_reported_at_once(tmp_path: pathlib.Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=0\nlog.segment.bytes=13\n")
    ended = refused(tmp_path, "server.properties", "--set", "broker.id=none")
    assert ended.returncode == 2
    assert [line.split(": ")[1] for line in ended.stderr.splitlines()] == [
        "server.properties:1",
        "server.properties:2",
        "--set",
    ]


def test_a_directory_of_another_cluster_is_refused(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path) as broker:
        assert broker.stop() == 0
    meta = tmp_path / "data" / "meta.properties"
    meta.write_text(re.sub(r"cluster\.id=.*", "cluster.id=AAAAAAAAAAAAAAAAAAAAAA", meta.read_text()))
    ended = refused(tmp_path, "--data-dir", "data", "--listen", "127.0.0.1:0")
    assert ended.returncode == 2
    assert "AAAAAAAAAAAAAAAAAAAAAA" in ended.stderr


def test_a_directory_that_holds_something_else_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data" / "photographs").mkdir(parents=True)
    ended = refused(tmp_path, "--data-dir", "data", "--listen", "127.0.0.1:0")
    assert ended.returncode == 1
    assert "photographs is not named <topic>-<partition>" in ended.stderr


def test_a_directory_that_cannot_be_written_is_refused_in_one_line(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    ended = refused(tmp_path, "--data-dir", "file/data", "--listen", "127.0.0.1:0")
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1
    assert "file/data" in ended.stderr


# -- settings that deserve a word


def test_settings_that_do_nothing_are_named_in_warnings(tmp_path: pathlib.Path) -> None:
    (tmp_path / "server.properties").write_text("num.partition=3\nnum.io.threads=16\nnum.network.threads=3\n")
    with serving(tmp_path, "server.properties", "--set", "my.own.property=1") as broker:
        warnings = [line.partition(" WARNING ")[2] for line in broker.said().splitlines() if " WARNING " in line]
    said = "\n".join(warnings)
    assert "server.properties:1: num.partition is not a known property; did you mean num.partitions?" in said
    assert "server.properties:2: num.io.threads has no effect in this version" in said
    assert "--set: my.own.property is not a known property" in said
    assert "num.network.threads" not in said, "its default changes nothing"


# -- advertised addresses


def test_advertised_listeners_are_what_clients_get(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path, "--set", "advertised.listeners=PLAINTEXT://castle.example:1234") as broker:
        listening = listening_ports(broker.process.pid)
        assert (broker.host, broker.port) == ("castle.example", 1234)
        (port,) = listening
        assert brokers_in_metadata(port) == [(broker.broker_id, "castle.example", 1234)]


def listening_ports(pid: int) -> set[int]:
    """The TCP ports on which a process listens, from /proc."""
    if not os.path.exists("/proc/self/net/tcp"):
        pytest.skip("which port it listens on is read from /proc")
    sockets = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            sockets.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    ports = set()
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in sockets:
            ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def test_a_wildcard_address_advertises_the_name_of_the_machine(tmp_path: pathlib.Path) -> None:
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        pytest.skip("this machine's name has no address")
    with serving(tmp_path, "--set", "listeners=PLAINTEXT://:0") as broker:
        assert broker.host == socket.gethostname()
        assert brokers_in_metadata(broker.port) == [(broker.broker_id, socket.gethostname(), broker.port)]


def test_a_wildcard_address_without_a_name_to_advertise_is_refused(tmp_path: pathlib.Path) -> None:
    renamed = ["unshare", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh"]
    if subprocess.run([*renamed, "true"], capture_output=True, check=False).returncode:
        give_up = pytest.fail if "CI" in os.environ else pytest.skip
        give_up("even root cannot give a process a machine name of its own here")
    if (
        os.geteuid() != 0
        or shutil.which("unshare") is None
        or subprocess.run([*renamed, "true"], check=False).returncode
    ):
        pytest.skip("only root on Linux can give a process a machine name of its own")
    ended = refused(tmp_path, "--data-dir", "data", "--set", "listeners=PLAINTEXT://:0", wrapper=renamed)
    assert ended.returncode == 2
    assert "nowhere.invalid" in ended.stderr
    assert "set advertised.listeners" in ended.stderr


# -- limits


def test_an_idle_connection_is_closed_and_a_busy_one_is_not(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path, "--set", "connections.max.idle.ms=1000") as broker, contextlib.ExitStack() as clients:
        busy, idle = (clients.enter_context(RawClient(broker.port)) for _ in range(2))
        idle.socket.settimeout(0.1)
        deadline = time.monotonic() + 15
        while not closed_by_now(idle):
            assert time.monotonic() < deadline, "the idle connection is still open"
            assert is_served(busy)
        assert is_served(busy)


def closed_by_now(client: RawClient) -> bool:
    """Whether the broker closed this connection; waits for as long as the socket's timeout."""
    try:
        return client.is_closed_by_broker()
    except TimeoutError:
        return False


def test_beyond_max_connections_one_waits_until_another_leaves(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path, "--set", "max.connections=2") as broker, contextlib.ExitStack() as clients:
        one, two, three = (clients.enter_context(RawClient(broker.port)) for _ in range(3))
        assert is_served(one)
        assert is_served(two)
        three.socket.settimeout(0.3)
        with pytest.raises(TimeoutError):
            is_served(three)
        one.socket.close()
        three.socket.settimeout(10)
        assert three.receive_frame(), "what it asked is answered now"


def test_beyond_max_connections_per_ip_a_connection_is_closed(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path, "--set", "max.connections.per.ip=1") as broker, RawClient(broker.port) as one:
        assert one.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers
        with RawClient(broker.port) as other:
            assert other.is_closed_by_broker()
        assert one.ask(m.MetadataRequest(topics=[]), 9, m.MetadataResponse).brokers


def open_files_limits(pid: int) -> tuple[str, str]:
    """The soft and the hard limit."""
    for line in pathlib.Path(f"/proc/{pid}/limits").read_text().splitlines():
        if line.startswith("Max open files"):
            return line.split()[3], line.split()[4]
    raise RuntimeError("the kernel does not tell the limit of open files")


@pytest.mark.skipif(not os.path.exists("/proc/self/limits"), reason="the limit is read from /proc")
def test_the_soft_limit_of_open_files_is_raised_to_the_hard_one(tmp_path: pathlib.Path) -> None:
    limited = ["sh", "-c", 'ulimit -Sn 128; ulimit -Hn 512; exec "$@"', "sh"]
    with serving(tmp_path, wrapper=limited) as broker:
        assert open_files_limits(broker.process.pid) == ("512", "512")


def test_when_descriptors_run_out_accepting_pauses_and_no_other_notices(tmp_path: pathlib.Path) -> None:
    limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]
    often = "replica.high.watermark.checkpoint.interval.ms=100"  # it needs a descriptor each time
    with serving(tmp_path, "--set", often, wrapper=limited) as broker, contextlib.ExitStack() as crowd:
        create_topic(broker.port, "letters")
        early = crowd.enter_context(RawClient(broker.port))
        assert produce_one(early, "letters") == ErrorCode.NONE
        others = [crowd.enter_context(RawClient(broker.port)) for _ in range(60)]
        late = others[-1]
        late.socket.settimeout(0.2)
        late.request(m.MetadataRequest(topics=[]), 9)
        for _ in range(5):
            assert produce_one(early, "letters") == ErrorCode.NONE
            with pytest.raises(TimeoutError):
                late.socket.recv(1)
        create_topic_on(early, "more-letters")
        assert produce_one(early, "more-letters") == ErrorCode.NONE, "files find descriptors all the same"
        for other in others[:-1]:
            other.socket.close()
        late.socket.settimeout(10)
        assert late.receive_frame(), "what it asked is answered now"
        assert "accepting connections pauses" in broker.said()
        assert broker.stop() == 0


def create_topic_on(client: RawClient, topic: str) -> None:
    asked = m.CreateTopicsRequest.CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    request = m.CreateTopicsRequest(topics=[asked], timeout_ms=10_000)
    assert client.ask(request, 5, m.CreateTopicsResponse).topics[0].error_code == ErrorCode.NONE


# -- a reader of standard error that hangs


def wait_until_full(pipe: int) -> None:
    deadline = time.monotonic() + 10
    while select.select([], [pipe], [], 0)[1]:
        assert time.monotonic() < deadline, "the pipe is not full: there were too few lines"
        time.sleep(0.01)


def test_a_full_pipe_on_standard_error_stops_nothing(tmp_path: pathlib.Path) -> None:
    lines = [f"listener.name.l{number}.some.property.of.a.single.listener=1\n" for number in range(1500)]
    (tmp_path / "server.properties").write_text("".join(lines))  # each is worth a warning
    reading, writing = os.pipe()
    try:
        with serving(tmp_path, "server.properties", stderr=writing) as broker:
            wait_until_full(writing)
            create_topic(broker.port, "letters")
            with RawClient(broker.port) as client:
                assert produce_one(client, "letters") == ErrorCode.NONE
            assert broker.stop() == 0
        assert (tmp_path / "data" / MARKER).exists()
    finally:
        os.close(reading)
        os.close(writing)
