"""kafka-transactions against both brokers after the same history, and kafka-dump-log on what both stored.

What the tools print is compared word by word; only times and producer ids differ by chance.
"""

import pathlib
import re
from collections.abc import Iterator

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.differential.asking import produce_one
from compat_tests.differential.asking_transactions import Writer, producers_of, records_of
from compat_tests.differential.side import Side
from compat_tests.kafka import SINGLE_BROKER, KafkaProcess, run_java_tool
from compat_tests.log_dump import complaints, dump

COMMAND = "org.apache.kafka.tools.TransactionsCommand"
KINDS = ("kafka", "barnabas")
WARM = "tools-warm-"
SETTINGS = {
    **{name.replace(".", "_"): value for name, value in SINGLE_BROKER.items()},
    "offsets_topic_num_partitions": 2,
    "transaction_state_log_num_partitions": 2,
    "transaction_partition_verification_enable": "false",  # so that a transaction can hang
}
LONG_MS = 900_000  # for a transaction that is still open at the end
NEVER_GIVEN = 5_000_000  # the producer id of the transaction that hangs
BY_CHANCE = {"LastTimestamp", "CurrentTransactionStartTimeMs", "TransactionDurationMs", "Duration(min)"}
MILLISECONDS = re.compile(r"\b1[6-9]\d{11}\b")


class Lived:
    """A broker after a history of transactions."""

    def __init__(self, kind: str, process: KafkaProcess | BrokerProcess, data: pathlib.Path) -> None:
        self.process = process
        self.data = data
        self.side = Side(kind, process.port, data, "tools")
        self.producers = {str(NEVER_GIVEN): "unknown"}
        self.topic, self.hanging = self.side.create_topic("one", 2), self.side.create_topic("hanging")
        self.side.await_coordinator()
        for of, step in {"empty": None, "committed": True, "aborted": False, "open": None}.items():
            with Writer(self.side, of, LONG_MS) as writer:
                self.producers[str(writer.producer)] = of
                if step is not None:
                    writer.add_offsets("tools-group")
                    writer.commit_offsets("tools-group", (self.topic, [(0, 7)]))
                    writer.transaction(self.topic, b"a", b"b", commit=step)
                if of == "open":
                    writer.add(self.topic, partitions=(0, 1))
                    writer.add_offsets("tools-group")
                    writer.write(self.topic, b"c")
                    writer.commit_offsets("tools-group", (self.topic, [(1, 9)]))
        self.hang(0)

    def hang(self, sequence: int) -> None:
        """Begin a transaction that no coordinator knows."""
        request = produce_one(self.hanging, records_of(NEVER_GIVEN, 3, sequence, b"h"), transactional_id="unknown")
        answer = self.side.ask(request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    def tool(self, *words: str, version: str = "3.9") -> list[dict[str, str]]:
        """The rows of the table that kafka-transactions prints, in any order."""
        ran = run_java_tool(COMMAND, "--bootstrap-server", self.process.bootstrap, *words, version=version)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        lines = [line.split() for line in ran.stdout.splitlines()]
        rows = [dict(zip(lines[0], line, strict=False)) for line in lines[1:]] if lines else []
        return sorted((self._plain(row) for row in rows), key=repr)

    def _plain(self, row: dict[str, str]) -> dict[str, str]:
        row = {name: "CHANCE" if name in BY_CHANCE and value != "None" else value for name, value in row.items()}
        if "ProducerId" in row:
            row["ProducerId"] = self.producers.get(row["ProducerId"], row["ProducerId"])
        if "TopicPartitions" in row:
            row["TopicPartitions"] = ",".join(sorted(row["TopicPartitions"].split(",")))
        return row

    def dumped(self, topic: str, option: str) -> list[str]:
        """What kafka-dump-log says of the records of an internal topic."""
        lines = dump(option, files=sorted(self.data.glob(f"{topic}-*/*.log")))
        assert complaints(lines) == []
        return [self._plain_line(line) for line in lines if line.startswith("|")]

    def _plain_line(self, line: str) -> str:
        line = MILLISECONDS.sub("NOW", line)
        return re.sub(r"(producerId[:=]|\"producerId\":)(\d+)", lambda found: self._named(*found.groups()), line)

    def _named(self, field: str, producer: str) -> str:
        return f"{field}{self.producers.get(producer, producer)}"


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Lived]]:
    kafka_directory, own_directory = tmp_path_factory.mktemp("kafka"), tmp_path_factory.mktemp("barnabas")
    barnabas = BrokerProcess(own_directory, **SETTINGS)
    with KafkaProcess(kafka_directory, **SETTINGS) as kafka, barnabas:
        yield {
            "kafka": Lived("kafka", kafka, kafka.data_dir),
            "barnabas": Lived("barnabas", barnabas, barnabas.data_dir),
        }


def alike(lived: dict[str, Lived], *words: str, version: str) -> list[dict[str, str]]:
    """What the tool prints about either; it is the same, and not nothing."""
    printed = {kind: lived[kind].tool(*words, version=version) for kind in KINDS}
    assert printed["barnabas"] == printed["kafka"]
    return printed["kafka"]


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_transactions_are_listed_and_described(lived, version):
    rows = alike(lived, "list", version=version)
    # Others have only found out that each partition of the topic has its coordinator.
    states = {
        row["TransactionalId"]: row["TransactionState"] for row in rows if not row["TransactionalId"].startswith(WARM)
    }
    assert states == {
        "tools-empty": "Empty",
        "tools-committed": "CompleteCommit",
        "tools-aborted": "CompleteAbort",
        "tools-open": "Ongoing",
    }
    described = {}
    for name in states:
        (described[name],) = alike(lived, "describe", "--transactional-id", name, version=version)
    row = described["tools-open"]
    assert row["TransactionState"] == "Ongoing"
    assert len(row["TopicPartitions"].split(",")) == 3


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_producers_of_partitions_are_described(lived, version):
    topic, hanging = lived["kafka"].topic, lived["kafka"].hanging
    for name, partition in ((topic, 0), (topic, 1), (hanging, 0)):
        where = "--topic", name, "--partition", str(partition)
        alike(lived, "describe-producers", *where, version=version)
        alike(lived, "describe-producers", *where, "--broker-id", "1", version=version)


def test_stored_states_and_offsets_are_decoded(lived):
    for topic, option in (
        ("__transaction_state", "--transaction-log-decoder"),
        ("__consumer_offsets", "--offsets-decoder"),
    ):
        dumped = {kind: lived[kind].dumped(topic, option) for kind in KINDS}
        assert dumped["barnabas"] == dumped["kafka"]
        assert dumped["kafka"]


# These change what the tests above look at.


@pytest.mark.parametrize("version", ["3.9", "4.1"])
def test_a_hanging_transaction_is_found_and_aborted(lived, version):
    topic = lived["kafka"].hanging
    for kind in KINDS:
        (state,) = producers_of(lived[kind].side, topic).topics[0].partitions[0].active_producers
        if state.current_txn_start_offset < 0:  # the other version has aborted it
            lived[kind].hang(state.last_sequence + 1)
    finding = "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0"
    (row,) = [row for row in alike(lived, *finding, version=version) if row["Topic"] == topic]
    assert row["ProducerId"] == "unknown"
    (found,) = alike(lived, "describe-producers", "--topic", topic, "--partition", "0", version=version)
    where = "--topic", topic, "--partition", "0", "--start-offset", found["CurrentTransactionStartOffset"]
    assert alike(lived, "abort", *where, version=version) == []
    assert [row for row in alike(lived, *finding, version=version) if row["Topic"] == topic] == []
    for kind in KINDS:
        (state,) = producers_of(lived[kind].side, topic).topics[0].partitions[0].active_producers
        assert state.current_txn_start_offset == -1
