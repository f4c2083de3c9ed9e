"""One broker of a `LocalCluster` (edge): its machine and ports, which outlive it, and at most one life at a time."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

from barnabas.config.live import BrokerConfig
from barnabas.config.parse import ConfigError
from barnabas.testing.arguments import HOST
from barnabas.testing.cluster.network import ClusterNet, Links
from barnabas.testing.errors import LocalBrokerError
from barnabas.testing.faults.interceptor import Interceptor
from barnabas.testing.looking.groups import Groups
from barnabas.testing.looking.live import SECONDS, Live
from barnabas.testing.looking.producers import Producers
from barnabas.testing.running.clock import BrokerClock
from barnabas.testing.running.disk import LiveDisk, lose_records
from barnabas.testing.running.life import BrokerLife
from barnabas.testing.running.loop import Loop
from barnabas.testing.running.machine import Machine
from barnabas.testing.running.page import BrokerPage
from barnabas.testing.running.secured import CONTROL, Secured
from barnabas.testing.running.thread import END_SECONDS, START_SECONDS
from barnabas.world.net import SocketBuffers

if TYPE_CHECKING:
    from barnabas.broker.call import Broker

FOR_BROKERS = "BROKERS"

Value = TypeVar("Value")


class ClusterBroker:
    """A broker of the cluster, over all its lives."""

    def __init__(
        self,
        broker_id: int,
        properties: Mapping[str, str],
        machine: Machine,
        links: Links,
        secured: Secured,
        clock: BrokerClock,
        interceptor: Interceptor,
        loop: Loop,
    ) -> None:
        self.id = broker_id
        self._live = Live(loop, lambda: self.parts)
        self.groups = Groups(self._live)
        self._loop = loop
        self.clock = clock
        self.interceptor = interceptor
        self._properties = properties
        self._machine = machine
        self._links = links
        self._secured = secured
        self._ports = {secured.protocol: 0, FOR_BROKERS: 0}
        if not secured.is_plaintext:
            self._ports[CONTROL] = 0
        self._life: BrokerLife | None = None
        self.page: BrokerPage | None = None  # set before the first start, if there is to be one

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for clients that begin at this broker; the same in all its lives."""
        return f"{HOST}:{self._port_of(self._secured.protocol)}"

    @property
    def port(self) -> int:
        """Where it listens for requests of this package. LocalBrokerError before its first start."""
        return self._port_of(self._secured.protocol if self._secured.is_plaintext else CONTROL)

    def _port_of(self, listener: str) -> int:
        port = self._ports[listener]
        if port == 0:
            raise LocalBrokerError(f"broker {self.id} was not started: use `with`")
        return port

    @property
    def page_url(self) -> str:
        """Where its page is, in all its lives. LocalBrokerError unless the cluster was made with `http=True`."""
        if self.page is None:
            raise LocalBrokerError("page_url: the cluster was made without `http=True`")
        return self.page.url

    @property
    def is_running(self) -> bool:
        """Whether it was started and neither stopped nor killed; a frozen broker runs."""
        return self._life is not None and not self._life.ended.done()

    @property
    def producers(self) -> Producers:
        """The producers that it knows, and the transactional ids that it coordinates."""
        return Producers(self._live, self.port)

    @property
    def disk(self) -> LiveDisk:
        """Its disk. LocalBrokerError with `data_dir`."""
        return LiveDisk(self._loop, lambda: self._machine.disk)

    def wait_for_records(self, topic: str, count: int, *, seconds: float = SECONDS) -> None:
        """Wait until consumers can read so many records of a topic here."""
        self._live.wait_for_records(topic, count, seconds)

    @property
    def is_frozen(self) -> bool:
        """Whether `freeze` holds it."""
        return self._links.is_frozen(self.id)

    @property
    def life(self) -> BrokerLife:
        """The life that runs; LocalBrokerError when there is none."""
        if self._life is None:
            raise LocalBrokerError(f"broker {self.id} does not run")
        return self._life

    @property
    def parts(self) -> "Broker":
        """The live parts of the running broker, for use on its loop."""
        built = self.life.broker
        if built is None:
            raise LocalBrokerError(f"broker {self.id} is not ready")
        return built

    # -- for the cluster

    def begin(self) -> BrokerLife:
        """A new life, which the caller runs on the loop. LocalBrokerError for properties that contradict each other."""
        try:
            config = BrokerConfig(
                {
                    **self._properties,
                    "broker.id": str(self.id),
                    **self._secured.listeners(self._ports, FOR_BROKERS),
                    "log.dirs": self._machine.log_directory,
                }
            )
        except ConfigError as error:
            raise LocalBrokerError(str(error)) from error
        buffers = SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes)
        net = ClusterNet(self.id, self._links, buffers, [name != FOR_BROKERS for name in self._ports])
        self._life = BrokerLife(config, self._machine, self.interceptor, net, self.page)
        return self._life

    def lose(self, topic: str, partition: int, records: int) -> int:
        """Remove the end of a log while it does not run; as `lose_records`."""
        return lose_records(self._machine.disk, self._machine.log_directory, topic, partition, records)

    def await_ready(self) -> None:
        """Wait until it serves; LocalBrokerError says what made that impossible."""
        try:
            serving = _result(self.life.ready, START_SECONDS, f"broker {self.id} does not serve")
        except BaseException:
            self._life = None
            raise
        for endpoint in serving.advertised:
            self._ports[endpoint.listener] = endpoint.port

    def await_end(self) -> None:
        """Wait for the end of its life. LocalBrokerError says what had ended it, if that was neither stop nor kill."""
        life = self.life
        self._life = None
        _result(life.ended, END_SECONDS, f"broker {self.id} has not ended")


def _result(future: "Future[Value]", seconds: float, what: str) -> Value:
    try:
        return future.result(seconds)
    except TimeoutError:
        raise LocalBrokerError(f"{what} after {seconds:g} s") from None
