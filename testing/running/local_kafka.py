"""What `LocalBroker` and `LocalCluster` have in common: a `with` block around brokers, and what is between clients
and them."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from barnabas.testing.faults.faults import Faults
    from barnabas.testing.faults.interceptor import Interceptor
    from barnabas.testing.faults.requests import RequestLog
    from barnabas.testing.running.secured import Secured


class LocalKafka(ABC):
    """One broker or several. `start` and `close` are the ends of a `with` block."""

    _secured: "Secured"

    @abstractmethod
    def start(self) -> Self:
        """Start and wait until clients are served (`with` does this)."""

    @abstractmethod
    def close(self) -> None:
        """End everything, and drop data that are not in `data_dir` (the end of `with` does this)."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """`host:port` of each broker, for clients; the same over all lives of the brokers."""

    def client_config(self, client: str) -> dict[str, object]:
        """The settings with which a client reaches the brokers: confluent-kafka, kafka-python, aiokafka or java."""
        return self._secured.client_config(client, self.bootstrap_servers)

    @property
    @abstractmethod
    def _has_begun(self) -> bool:
        """Whether a `with` block finds it started."""

    @abstractmethod
    def _interceptors(self) -> "Sequence[Interceptor]":
        """What is between clients and each broker; all have the same faults and the same log.

        LocalBrokerError before the start, after the end, and where nothing can be between them.
        """

    @property
    def faults(self) -> "Faults":
        """What the brokers do wrong to clients; faults stay when a broker is restarted."""
        interceptors = self._interceptors()
        for each in interceptors:
            each.want_pictures()
        return interceptors[0].faults

    @property
    def requests(self) -> "RequestLog":
        """The requests of clients to all brokers, from the first use of this on."""
        log = self._interceptors()[0].log
        log.is_on = True
        return log

    def __enter__(self) -> Self:
        try:
            return self if self._has_begun else self.start()
        except BaseException:
            self.close()  # there is no `with` block that would
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def secured_listeners(
    security: str, mechanism: str, client_certificate: str | None, properties: Collection[str], owner: str
) -> "Secured":
    """What the arguments of `owner` ask for. LocalBrokerError for those that do not fit, and for a property of it."""
    from barnabas.testing.running.secured import Secured

    secured = Secured(security, mechanism, client_certificate)
    try:
        secured.refuse(properties, owner)
    except BaseException:
        secured.close()
        raise
    return secured
