"""`LocalBroker`: a whole broker for a test, a script or a notebook, reached over TCP like any other (edge).

    with LocalBroker(topics=["letters"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs on a daemon thread of its own (`thread.py`), with its data in memory or in a directory (`machine.py`), or as a
child process (`child.py`). The object keeps its port and its data while brokers on it are stopped, killed and
restarted; data in memory are dropped at the end of the `with` block.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from barnabas.testing.arguments import DEFAULTS, HOST, check_count, is_number, properties_of, texts
from barnabas.testing.asking import create_topic
from barnabas.testing.child import REASON_CHARACTERS, BrokerChild
from barnabas.testing.errors import LocalBrokerError, TopicRefused
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.call import Broker
    from barnabas.testing.clock import BrokerClock
    from barnabas.testing.disk import LiveDisk
    from barnabas.testing.faults import Faults
    from barnabas.testing.groups import Groups
    from barnabas.testing.interceptor import Interceptor
    from barnabas.testing.live import Live
    from barnabas.testing.machine import Snapshot
    from barnabas.testing.producers import Producers
    from barnabas.testing.records import StoredRecord
    from barnabas.testing.requests import RequestLog
    from barnabas.testing.secured import Secured

PORT_MAX = 65_535
OURS = {"listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect"}


class _Host(Protocol):
    """Where brokers live, one after the other."""

    def start(self, port: int) -> int:
        """Start one and wait until it serves; its port."""

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def control_port(self, port: int) -> int:
        """Where requests of this package go, if clients go to `port`."""

    def is_alive(self) -> bool:
        """Whether the broker that was started has not ended by itself."""

    def interceptor(self) -> "Interceptor":
        """What is between clients and brokers. LocalBrokerError if they run where nothing can be."""

    def release(self) -> None:
        """No broker is started again: clear all faults, so that no request is held back."""

    def close(self) -> None:
        """Remove the data; no broker runs."""


class LocalBroker:
    """A broker on a free port of 127.0.0.1, from the start of a `with` block to its end.

    `data_dir`   where its data are; None: in memory (with `process`, in a temporary directory)
    `config`     Kafka's broker properties, by their names, over the defaults below
    `topics`     names, or names with partition counts; those that do not exist in `data_dir` are created
    `port`       where it listens; 0: the system picks a free port
    `security`   PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, with an authority and a user of its own: `client_config`
    `mechanism`  of SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    `process`    run it as a child process: it has its own interpreter, and can be killed by a real signal

    Everything is as in `barnabas serve` but for these defaults, which suit tests:

    group.initial.rebalance.delay.ms=0         a new group does not wait for further members
    group.min.session.timeout.ms=10            a test can use short sessions; Kafka's minimum is 6 s
    offsets.topic.num.partitions=1             creating fifty logs for the first group takes longer than most tests
    transaction.state.log.num.partitions=1     the same

    Brokers in one process share its interpreter; for measurements use `process`. Not for concurrent use: only one
    thread may start, stop and kill. Without a `with` block call `start`, and `close` at the end.
    """

    def __init__(
        self,
        *,
        data_dir: str | PathLike[str] | None = None,
        config: Mapping[str, str] | None = None,
        topics: Iterable[str] | Mapping[str, int] | None = None,
        port: int = 0,
        security: str = "PLAINTEXT",
        mechanism: str = "PLAIN",
        process: bool = False,
    ) -> None:
        properties = properties_of(config, DEFAULTS, OURS, "LocalBroker")
        if not is_number(port) or not 0 <= port <= PORT_MAX:
            raise LocalBrokerError(f"port: a number from 0 (any free port) to {PORT_MAX}, not {port!r}")
        self._topics = _partition_counts(topics)
        directory = None if data_dir is None else Path(fspath(data_dir)).absolute()
        if process and security != "PLAINTEXT":
            raise LocalBrokerError("security: a broker in a process of its own gets its listeners by `config`")
        secured = _secured(security, mechanism, properties)
        self._secured = secured
        self._host: _Host = (
            _ChildHost(directory, properties) if process else _ThreadHost(directory, properties, secured)
        )
        self._port = port
        self._started = False
        self._runs = False
        self._closed = False

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for clients; it stays the same when the broker is killed and restarted."""
        self._check_started()
        return f"{HOST}:{self._port}"

    def client_config(self, client: str) -> dict[str, object]:
        """The settings with which a client reaches this broker: confluent-kafka, kafka-python, aiokafka or java."""
        return self._secured.client_config(client, self.bootstrap_servers)

    @property
    def clock(self) -> "BrokerClock":
        """The time of the broker; it outlives restarts. LocalBrokerError with `process`, which has real time."""
        if not isinstance(self._host, _ThreadHost):
            raise LocalBrokerError("clock: a broker in a process of its own has the time of the operating system")
        return self._host.clock

    @property
    def groups(self) -> "Groups":
        """The consumer groups by their ids. LocalBrokerError with `process`."""
        from barnabas.testing.groups import Groups

        return Groups(self._live("groups"))

    @property
    def producers(self) -> "Producers":
        """The producers that the broker knows. LocalBrokerError with `process`."""
        from barnabas.testing.producers import Producers

        return Producers(self._live("producers"), self._host.control_port(self._port))

    @property
    def disk(self) -> "LiveDisk":
        """The disk, whether a broker runs or not. LocalBrokerError unless the data are in memory."""
        if not isinstance(self._host, _ThreadHost):
            raise LocalBrokerError("disk: the data are in a directory; only a disk in memory can be harmed")
        return self._host.disk()

    def snapshot(self) -> "Snapshot":
        """The topics, records, groups and all else that the broker has now. LocalBrokerError unless it is in memory."""
        return self._memory("snapshot").snapshot()

    def restore(self, snapshot: "Snapshot") -> None:
        """Let the broker have what it had at a snapshot, also one of another `LocalBroker`, in a new life.

        Connections end, as when a broker is killed and restarted; the port and the time stay. LocalBrokerError unless
        the data are in memory.
        """
        memory = self._memory("restore")
        if self._runs:
            self.kill()
        memory.restore(snapshot)
        self.start()

    def lose(self, topic: str, partition: int = 0, *, records: int) -> int:
        """Let the broker die, and a log lose its last batches, with so many records or a few more; then restart it.

        So a disk loses what it has confirmed. Returns how many records were lost. LocalBrokerError with `process`.
        """
        check_count("records", records)
        if not isinstance(self._host, _ThreadHost):
            raise LocalBrokerError("lose: a broker in a process of its own loses nothing")
        self.kill()
        try:
            return self._host.lose(topic, partition, records)
        finally:
            self.start()

    def wait_for_records(self, topic: str, count: int, *, seconds: float = 5) -> None:
        """Wait until consumers can read so many records of a topic. LocalBrokerError with `process`."""
        self._live("wait_for_records").wait_for_records(topic, count, seconds)

    @property
    def is_running(self) -> bool:
        """Whether a broker was started, neither stopped nor killed, and has not ended by itself."""
        return self._runs and self._host.is_alive()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until it can be used; `config` are its properties."""
        self._check_running()
        create_topic(self._host.control_port(self._port), name, partitions, texts(config))

    @property
    def faults(self) -> "Faults":
        """What the broker does wrong to clients; they stay when it is restarted."""
        self._check_started()
        interceptor = self._host.interceptor()
        interceptor.want_pictures()
        return interceptor.faults

    @property
    def requests(self) -> "RequestLog":
        """The requests of clients, from the first use of this on."""
        self._check_started()
        log = self._host.interceptor().log
        log.is_on = True
        return log

    def records(self, topic: str) -> "list[StoredRecord]":
        """What is in the topic, by partition and offset, with what became of transactions."""
        from barnabas.testing.records import records_of

        self._check_running()
        return records_of(self._host.control_port(self._port), topic)

    def start(self) -> Self:
        """Start the broker and wait until it serves (`with` does this)."""
        if self._runs:
            raise LocalBrokerError("the broker runs already")
        if self._closed:
            raise LocalBrokerError(self._why_not())
        # The topics are created once: a test that deletes one does not want it back after a
        # restart.
        is_first = not self._started
        self._port = self._host.start(self._port)
        self._started = self._runs = True
        if is_first:
            self._create_first_topics()
        return self

    def stop(self) -> None:
        """Stop cleanly; the data stay for `restart`. LocalBrokerError if the broker had ended on its own."""
        if self._runs:
            self._runs = False
            self._host.stop()

    def kill(self) -> None:
        """End the broker like `kill -9`: written data are there at the next start; no file is closed."""
        self._check_running()
        self._runs = False
        self._host.kill()

    def restart(self) -> None:
        """Start again on the same port with the same data, after `stop` or `kill`; stops a running broker first."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop, and drop data that are not in `data_dir` (the end of `with` does this)."""
        if self._closed:
            return
        self._closed = True
        try:
            self._host.release()
            self.stop()
        finally:
            self._host.close()
            self._secured.close()

    def __enter__(self) -> Self:
        try:
            return self if self._runs else self.start()
        except BaseException:
            self.close()  # there is no `with` block that would
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _create_first_topics(self) -> None:
        try:
            self._secured.add_user(self._host.control_port(self._port))
            for name, partitions in self._topics.items():
                try:
                    create_topic(self._host.control_port(self._port), name, partitions, {})
                except TopicRefused as refused:
                    # A data directory may have the topic from an earlier run.
                    if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                        raise
        except BaseException:
            self.close()
            raise

    def _check_started(self) -> None:
        if not self._started or self._closed:
            raise LocalBrokerError(self._why_not())

    def _memory(self, what: str) -> "_ThreadHost":
        self._check_started()
        if not isinstance(self._host, _ThreadHost) or not self._host.is_in_memory:
            raise LocalBrokerError(f"{what}: the data are in a directory, and not in memory")
        return self._host

    def _live(self, what: str) -> "Live":
        if not isinstance(self._host, _ThreadHost):
            raise LocalBrokerError(f"{what}: a broker in a process of its own is reached by its clients only")
        self._check_running()
        return self._host.live()

    def _check_running(self) -> None:
        if not self._runs:
            raise LocalBrokerError(self._why_not())

    def _why_not(self) -> str:
        if self._closed:
            return "the broker was closed: its `with` block is over"
        return "the broker is stopped: restart it" if self._started else "the broker was not started: use `with`"


def _partition_counts(topics: object) -> Mapping[str, int]:
    """Topic -> its number of partitions. LocalBrokerError for anything but names, or names with numbers."""
    if isinstance(topics, Mapping):
        counts = list(topics.items())
    # The letters of a name alone would be topics as well.
    elif isinstance(topics, Iterable) and not isinstance(topics, str | bytes):
        counts = [(name, 1) for name in topics]
    else:
        counts = [] if topics is None else [(topics, None)]
    for name, count in counts:
        if not isinstance(name, str) or not is_number(count):
            raise LocalBrokerError(
                "topics: a list of names, such as ['orders'], or names with numbers of partitions, such as"
                f" {{'orders': 3}}; not {topics!r}"
            )
    return dict(counts)


def _secured(security: str, mechanism: str, properties: Mapping[str, str]) -> "Secured":
    from barnabas.testing import secured

    taken = secured.OURS & properties.keys() if security != "PLAINTEXT" else set()
    if taken:
        raise LocalBrokerError(f"{', '.join(sorted(taken))}: with `security` LocalBroker sets this itself")
    return secured.Secured(security, mechanism)


class _ThreadHost:
    """Brokers on threads of this process."""

    def __init__(self, data_dir: Path | None, properties: Mapping[str, str], secured: "Secured") -> None:
        from barnabas.testing.clock import BrokerClock
        from barnabas.testing.loop import Loop
        from barnabas.testing.machine import DirectoryMachine, MemoryMachine

        self._properties = properties
        self._secured = secured
        self._control_port = 0
        self._interceptor: Interceptor | None = None
        self._loop = Loop()
        self.clock = BrokerClock(self._loop)
        now_ms = self.clock.now_ms
        self._machine = MemoryMachine(now_ms) if data_dir is None else DirectoryMachine(str(data_dir), now_ms)

    def start(self, port: int) -> int:
        from barnabas.config.live import BrokerConfig
        from barnabas.config.parse import ConfigError
        from barnabas.testing.thread import BrokerThread

        where = {**self._secured.properties(port, self._control_port), "log.dirs": self._machine.log_directory}
        try:
            config = BrokerConfig({**self._properties, **where})
        except ConfigError as error:
            raise LocalBrokerError(str(error)) from error
        self._thread = BrokerThread(config, self._machine, self.interceptor(), loop=self._loop, clock=self.clock)
        with self.clock.running():
            port, *others = self._thread.start()
        self._control_port = others[0] if others else port
        return port

    def control_port(self, port: int) -> int:
        return self._control_port or port

    def live(self) -> "Live":
        """The broker that runs."""
        from barnabas.testing.live import Live

        return Live(self._loop, self._parts)

    def is_alive(self) -> bool:
        return not self._thread.life.ended.done()

    def disk(self) -> "LiveDisk":
        """The disk of all brokers here."""
        from barnabas.testing.disk import LiveDisk

        return LiveDisk(self._loop, lambda: self._machine.disk)

    @property
    def is_in_memory(self) -> bool:
        """Whether the data are in memory."""
        from barnabas.testing.machine import MemoryMachine

        return isinstance(self._machine, MemoryMachine)

    def snapshot(self) -> "Snapshot":
        """The data in memory as they are now."""
        from barnabas.testing.loop import NoLoop
        from barnabas.testing.machine import MemoryMachine

        assert isinstance(self._machine, MemoryMachine)
        try:
            return self._loop.call(self._machine.snapshot)
        except NoLoop:
            return self._machine.snapshot()

    def restore(self, snapshot: "Snapshot") -> None:
        """Have these data in memory at the next start; no broker runs."""
        from barnabas.testing.machine import MemoryMachine

        assert isinstance(self._machine, MemoryMachine)
        self._machine.restore(snapshot)

    def lose(self, topic: str, partition: int, records: int) -> int:
        """Remove the end of a log; no broker runs."""
        from barnabas.testing.disk import lose_records

        return lose_records(self._machine.disk, self._machine.log_directory, topic, partition, records)

    def _parts(self) -> "Broker":
        built = self._thread.life.broker
        if built is None:
            raise LocalBrokerError("the broker is not ready")
        return built

    def stop(self) -> None:
        with self.clock.running(), self._unless_harmed():
            self._thread.stop()

    def kill(self) -> None:
        with self._unless_harmed():
            self._thread.kill()

    @contextmanager
    def _unless_harmed(self) -> Iterator[None]:
        """A broker that ended because the test harmed its disk has ended as the test wants."""
        try:
            yield
        except LocalBrokerError:
            if not getattr(self._machine.disk, "has_failed", False):
                raise

    def interceptor(self) -> "Interceptor":
        """What is between clients and each broker."""
        from barnabas.testing.interceptor import Interceptor

        if self._interceptor is None:
            self._interceptor = Interceptor()
        return self._interceptor

    def release(self) -> None:
        if self._interceptor is not None:
            self._interceptor.close()

    def close(self) -> None:
        from barnabas.testing.thread import forget

        forget(self._machine)


class _ChildHost:
    """Brokers as child processes."""

    def __init__(self, data_dir: Path | None, properties: Mapping[str, str]) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        scratch = Path(self._scratch.name)
        self._child = BrokerChild(data_dir or scratch / "data", properties, scratch / "broker.log")

    def start(self, port: int) -> int:
        self._child.port = port
        self._child.start()
        return self._child.port

    def stop(self) -> None:
        status = self._child.stop()
        if status != 0:
            raise LocalBrokerError(
                f"the broker ended with status {status}:\n{self._child.log_text()[-REASON_CHARACTERS:]}"
            )

    def kill(self) -> None:
        self._child.kill()

    def control_port(self, port: int) -> int:
        return port

    def is_alive(self) -> bool:
        return self._child.is_running()

    def interceptor(self) -> "Interceptor":
        raise LocalBrokerError("a broker in a process of its own has no faults and no request log: leave out `process`")

    def release(self) -> None: ...

    def close(self) -> None:
        self._scratch.cleanup()
