"""`LocalBroker`: a whole broker for a test, a script or a notebook, reached over TCP like any other (edge).

    with LocalBroker(topics=["letters"]) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

It runs on a daemon thread of its own, with its data in memory or in a directory, or as a child process
(`running/hosts.py`). The object keeps its port and its data while brokers on it are stopped, killed and
restarted; data in memory are dropped at the end of the `with` block.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Self

from barnabas.testing.arguments import DEFAULTS, HOST, check_count, is_number, properties_of, texts
from barnabas.testing.asking import create_topic
from barnabas.testing.errors import LocalBrokerError, TopicRefused
from barnabas.testing.running.hosts import ChildHost, Host, ThreadHost
from barnabas.testing.running.local_kafka import LocalKafka, secured_listeners
from barnabas.wire.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.testing.faults.interceptor import Interceptor
    from barnabas.testing.looking.groups import Groups
    from barnabas.testing.looking.live import Live
    from barnabas.testing.looking.producers import Producers
    from barnabas.testing.looking.records import StoredRecord
    from barnabas.testing.running.clock import BrokerClock
    from barnabas.testing.running.disk import LiveDisk
    from barnabas.testing.running.machine import Snapshot

PORT_MAX = 65_535
OURS = {"listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect"}


class LocalBroker(LocalKafka):
    """A broker on a free port of 127.0.0.1, from the start of a `with` block to its end.

    `data_dir`   where its data are; None: in memory (with `process`, in a temporary directory)
    `config`     Kafka's broker properties, by their names, over the defaults below
    `topics`     names, or names with partition counts; those that do not exist in `data_dir` are created
    `port`       where it listens; 0: the system picks a free port
    `security`   PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, with an authority and a user of its own: `client_config`
    `mechanism`  of SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
    `client_certificate`    with SSL: clients need a certificate, and have this common name; the principal of "billing"
                 is User:CN=billing
    `http`       serve its page, metrics and health on another free port: `page_url`
    `process`    run it as a child process: it has its own interpreter, and can be killed by a real signal

    Everything is as in `barnabas serve` but for these defaults, which suit tests:

    group.initial.rebalance.delay.ms=0         a new group does not wait for further members
    group.min.session.timeout.ms=10            a test can use short sessions; Kafka's minimum is 6 s
    offsets.topic.num.partitions=1             creating fifty logs for the first group takes longer than most tests
    transaction.state.log.num.partitions=1     the same

    Brokers in one process share its interpreter; for measurements use `process`. Not for concurrent use: only one
    thread may start, stop and kill. Without a `with` block call `start`, and `close` at the end.
    """

    def __init__(  # noqa: PLR0913  # each is given by its name, and most tests give none
        self,
        *,
        data_dir: str | PathLike[str] | None = None,
        config: Mapping[str, str] | None = None,
        topics: Iterable[str] | Mapping[str, int] | None = None,
        port: int = 0,
        security: str = "PLAINTEXT",
        mechanism: str = "PLAIN",
        client_certificate: str | None = None,
        http: bool = False,
        process: bool = False,
    ) -> None:
        properties = properties_of(config, DEFAULTS, OURS, "LocalBroker")
        if not is_number(port) or not 0 <= port <= PORT_MAX:
            raise LocalBrokerError(f"port: a number from 0 (any free port) to {PORT_MAX}, not {port!r}")
        self._topics = _partition_counts(topics)
        directory = None if data_dir is None else Path(fspath(data_dir)).absolute()
        if process and security != "PLAINTEXT":
            raise LocalBrokerError("security: a broker in a process of its own gets its listeners by `config`")
        self._secured = secured = secured_listeners(security, mechanism, client_certificate, properties, "LocalBroker")
        self._host: Host = ChildHost(directory, properties) if process else ThreadHost(directory, properties, secured)
        if http:
            self._add_page()
        self._port = port
        self._started = False
        self._runs = False
        self._closed = False

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for clients; it stays the same when the broker is killed and restarted."""
        self._check_started()
        return f"{HOST}:{self._port}"

    @property
    def page_url(self) -> str:
        """Where its page is; the same over restarts. LocalBrokerError unless it was made with `http=True`."""
        page = self._host.page if isinstance(self._host, ThreadHost) else None
        if page is None:
            raise LocalBrokerError("page_url: the broker was made without `http=True`")
        return page.url

    @property
    def clock(self) -> "BrokerClock":
        """The time of the broker; it outlives restarts. LocalBrokerError with `process`, which has real time."""
        if not isinstance(self._host, ThreadHost):
            raise LocalBrokerError("clock: a broker in a process of its own has the time of the operating system")
        return self._host.clock

    @property
    def groups(self) -> "Groups":
        """The consumer groups by their ids. LocalBrokerError with `process`."""
        from barnabas.testing.looking.groups import Groups

        return Groups(self._live("groups"))

    @property
    def producers(self) -> "Producers":
        """The producers that the broker knows. LocalBrokerError with `process`."""
        from barnabas.testing.looking.producers import Producers

        return Producers(self._live("producers"), self._host.control_port(self._port))

    @property
    def disk(self) -> "LiveDisk":
        """The disk, whether a broker runs or not. LocalBrokerError unless the data are in memory."""
        if not isinstance(self._host, ThreadHost):
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
        if not isinstance(self._host, ThreadHost):
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

    def records(self, topic: str) -> "list[StoredRecord]":
        """What is in the topic, by partition and offset, with what became of transactions."""
        from barnabas.testing.looking.records import records_of

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

    def _add_page(self) -> None:
        from barnabas.testing.running.page import BrokerPage

        if not isinstance(self._host, ThreadHost):
            raise LocalBrokerError("http: a broker in a process of its own has `config` for it: barnabas.http.listener")
        self._host.page = BrokerPage()

    def _create_first_topics(self) -> None:
        try:
            error = self._secured.add_user(self._host.control_port(self._port))
            if error:
                raise LocalBrokerError(f"user {self._secured.user!r} cannot be added: {error.name}")
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

    @property
    def _has_begun(self) -> bool:
        return self._runs

    def _interceptors(self) -> "Sequence[Interceptor]":
        self._check_started()
        return [self._host.interceptor()]

    def _check_started(self) -> None:
        if not self._started or self._closed:
            raise LocalBrokerError(self._why_not())

    def _memory(self, what: str) -> "ThreadHost":
        self._check_started()
        if not isinstance(self._host, ThreadHost) or not self._host.is_in_memory:
            raise LocalBrokerError(f"{what}: the data are in a directory, and not in memory")
        return self._host

    def _live(self, what: str) -> "Live":
        if not isinstance(self._host, ThreadHost):
            raise LocalBrokerError(f"{what}: a broker in a process of its own is reached by its clients only")
        from barnabas.testing.looking.live import Live

        self._check_running()
        return Live(self._host.loop, self._host.parts)

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
    # A text is refused, because each of its letters would be a topic.
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
