"""Transactions in every state go from Apache Kafka to Barnabas and back, and from Barnabas to Kafka and back.

One broker leaves a directory, the other one ends what is open there, and the first one goes on with it. All that the
dump tool of Kafka and `barnabas log check` can read is read between the stays.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import run_barnabas
from compat_tests.differential.asking_transactions import await_transactions
from compat_tests.exchange import Directory, without_leaders
from compat_tests.exchanged_transactions import CASES, Case
from compat_tests.kafka import SINGLE_BROKER, ZooKeeperProcess
from compat_tests.log_dump import complaints, dump

SETTINGS = {
    **{name.replace(".", "_"): value for name, value in SINGLE_BROKER.items() if "zookeeper" not in name},
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
    "log_cleaner_backoff_ms": 100,
    "log_initial_task_delay_ms": 100,
}
FORGETFUL = {
    "transactional_id_expiration_ms": 2000,
    "transaction_remove_expired_transaction_cleanup_interval_ms": 200,
}
CLEANUP = "transaction_abort_timed_out_transaction_cleanup_interval_ms"
LATE, SOON = {CLEANUP: 3_600_000}, {CLEANUP: 200}
WAYS = {"from-kafka": ("kafka", "barnabas"), "from-barnabas": ("barnabas", "kafka")}
DECODERS = {"__transaction_state": "--transaction-log-decoder", "__consumer_offsets": "--offsets-decoder"}


class Exchange:
    """A directory on its way, and the cases in it."""

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess, first: str, second: str) -> None:
        self.directory = Directory(folder, zookeeper, **SETTINGS)
        self.cases = {name: case(name) for name, case in CASES.items()}
        self._first, self._second = first, second

    def leave(self) -> None:
        """The stay at the first broker."""
        self._start(self._first, FORGETFUL)
        self.cases["forgotten"].leave()
        self.directory.stop()
        self._start(self._first, LATE)
        for name, case in self.cases.items():
            if name != "forgotten":
                case.leave()
        self.directory.stop()
        for case in self.cases.values():
            case.rest()

    def go_there(self) -> None:
        self.directory.hand_over(self._second, without_leaders)
        self._start(self._second, SOON)

    def end(self, name: str) -> Case:
        """What one case does at the second broker."""
        case = self.cases[name]
        if not case.has_ended:
            case.has_ended = True
            case.end()
        return case

    def go_back(self) -> None:
        for name in self.cases:
            self.end(name)
        self.directory.stop()
        self.findings = run_barnabas("log", "check", str(self.directory.data))
        self.directory.hand_over(self._first)
        self._start(self._first, SOON)

    def files(self, kind: str, *names: str) -> list[Path]:
        """The files of this kind of all partitions of these topics."""
        return [path for name in names for path in self.directory.data.glob(f"{name}-[0-9]*/*.{kind}")]

    def close(self) -> None:
        for case in self.cases.values():
            for writer in case.writers:
                writer.close()
        self.directory.kill()

    def _start(self, kind: str, settings: dict[str, int]) -> None:
        side = self.directory.start(kind, **settings)
        await_transactions(side)
        for case in self.cases.values():
            case.move_to(side)


@pytest.fixture(scope="module", params=WAYS)
def there(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Exchange]:
    """The directory at the second broker."""
    folder = tmp_path_factory.mktemp(request.param)
    exchange = Exchange(folder, zookeeper, *WAYS[request.param])
    try:
        exchange.leave()
        exchange.go_there()
        yield exchange
    finally:
        exchange.close()


@pytest.fixture(scope="module")
def back(there: Exchange) -> Exchange:
    """The directory at the first broker again."""
    there.go_back()
    return there


@pytest.mark.parametrize("name", CASES)
def test_a_transaction_ends_at_the_broker_that_takes_over(there, name):
    there.end(name).check()


@pytest.mark.parametrize("name", CASES)
def test_what_was_ended_is_kept_where_it_came_from(back, name):
    back.cases[name].keep()


def test_a_directory_of_both_is_sound(back):
    assert (back.findings.returncode, back.findings.stderr) == (0, ""), back.findings.stdout
    compacted = [case.topic for case in back.cases.values() if case.compacted]
    plain = [case.topic for case in back.cases.values() if not case.compacted]
    assert complaints(dump("--deep-iteration", files=back.files("log", *compacted)), of_compacted=True) == []
    assert complaints(dump("--deep-iteration", files=back.files("log", *plain))) == []
    for topic, decoder in DECODERS.items():
        assert complaints(dump("--deep-iteration", decoder, files=back.files("log", topic))) == []
    for kind in ("txnindex", "snapshot"):
        assert complaints(dump(files=back.files(kind, *DECODERS, *compacted, *plain))) == []
