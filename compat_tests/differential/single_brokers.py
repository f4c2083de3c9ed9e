"""One broker with the settings that scenarios expect: Apache Kafka, Barnabas as a process, or Barnabas in memory."""

import pathlib
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.config.live import BrokerConfig
from barnabas.testing.running.machine import MemoryMachine
from barnabas.testing.running.thread import BrokerThread, forget
from compat_tests.brokers import BrokerProcess
from compat_tests.differential.side import Side
from compat_tests.kafka import SINGLE_BROKER, KafkaProcess, free_port

# The same for all. Short sessions make group scenarios short; few internal partitions are soon there.
SETTINGS = {
    **{name.replace(".", "_"): value for name, value in SINGLE_BROKER.items()},
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 500,
    "group_min_session_timeout_ms": 1000,
}

LOG_DIRS = ("data", "data-2")


def kafka_in(directory: pathlib.Path) -> KafkaProcess:
    """Apache Kafka, not yet started."""
    return KafkaProcess(directory, **SETTINGS, log_dirs=_log_dirs(directory))


def barnabas_in(directory: pathlib.Path) -> BrokerProcess:
    """Barnabas as a process, not yet started."""
    broker = BrokerProcess(directory, **SETTINGS, log_dirs=_log_dirs(directory))
    broker.port = free_port()  # so that it is configured with a port, as Kafka is
    return broker


def make_ready(name: str, port: int, directory: pathlib.Path) -> None:
    """Let a started broker create the topic of groups, so that answers are the same whichever scenarios run."""
    Side(name, port, directory, "ready").await_coordinator()


class InMemory:
    """Barnabas on a thread of this process, with its disk and its store in memory."""

    def __init__(self, port: int, directory: pathlib.Path) -> None:
        self.port = port
        self.directory = directory

    def side(self, scenario: str) -> Side:
        return Side("barnabas", self.port, self.directory, scenario)


@contextmanager
def in_memory() -> Iterator[InMemory]:
    """A running broker; its data go with it."""
    machine = MemoryMachine()
    directory = pathlib.Path(machine.log_directory)
    port = free_port()
    settings = {name.replace("_", "."): str(value) for name, value in SETTINGS.items()}
    place = {"listeners": f"PLAINTEXT://127.0.0.1:{port}", "log.dirs": _log_dirs(directory)}
    life = BrokerThread(BrokerConfig({**settings, **place}), machine)
    life.start()
    try:
        make_ready("barnabas", port, directory)
        yield InMemory(port, directory)
    finally:
        life.stop()
        forget(machine)


def _log_dirs(directory: pathlib.Path) -> str:
    return ",".join(str(directory / folder) for folder in LOG_DIRS)
