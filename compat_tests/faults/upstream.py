"""The cells of one broker on Apache Kafka 3.9.1 through the proxy of `barnabas lab --upstream`.

The faults are those of `faults.py`, set on the proxy. Kafka is started once, so each cell has a topic and a group of
its own, and the names in a fault are replaced by theirs.
"""

import pathlib
from collections.abc import Callable, Sequence

from barnabas.testing.asking import find_coordinator
from barnabas.testing.faults.faults import Fault, Faults
from barnabas.testing.lab.upstream import UpstreamProxy
from compat_tests.clients.client import Session
from compat_tests.faults.faults import FAULTS, GROUP, TOPIC
from compat_tests.faults.matrix import Cell, judged, write_and_read
from compat_tests.faults.provoked import GROUP_KEY, ProxiedKafka
from compat_tests.raw import eventually


class Renamed:
    """The faults of a proxy, with other names in place of those in the table."""

    def __init__(self, faults: Faults, names: dict[str, str]) -> None:
        self._faults = faults
        self._names = names

    def __getattr__(self, kind: str) -> Callable[..., Fault]:
        make: Callable[..., Fault] = getattr(self._faults, kind)

        def renamed(*arguments: object, **matchers: object) -> Fault:
            return make(*arguments, **{name: self._names.get(value, value) for name, value in matchers.items()})

        return renamed


class UpstreamKafka:
    """One broker of Apache Kafka."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._kafka = ProxiedKafka(directory, 1)

    def __enter__(self) -> "UpstreamKafka":
        self._kafka.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._kafka.close()

    @property
    def bootstrap(self) -> str:
        (process,) = self._kafka.brokers.values()
        return process.bootstrap

    def fresh_topic(self) -> str:
        return self._kafka.fresh_topic()

    def await_coordinator(self, group: str) -> None:
        (process,) = self._kafka.brokers.values()
        eventually(lambda: find_coordinator(process.port, group, GROUP_KEY)[1], lambda code: not code)


def upstream_cell(kafka: UpstreamKafka, session: Session, command: Sequence[str], fault_name: str) -> Cell:
    """One fault on a fresh proxy, one program."""
    topic = kafka.fresh_topic()
    group = f"{GROUP}-of-{topic}"
    kafka.await_coordinator(group)
    with UpstreamProxy(kafka.bootstrap) as proxy:
        fault = FAULTS[fault_name].arm(Renamed(proxy.faults, {TOPIC: topic, GROUP: group}))
        ended = write_and_read(session, command, proxy.bootstrap_servers, topic, group)
        fired = fault.fired
    return judged(ended, fired, kafka.bootstrap, topic)
