"""docs/transactions.md does what it says: its Python and its commands run as written, beside one broker.

The broker does not verify, so that a transaction can hang. The one that is made here begins where the page says.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.clients.client import ROOT
from compat_tests.differential.asking import list_offsets, now_ms
from compat_tests.differential.asking_transactions import READ_COMMITTED, Writer, await_transactions
from compat_tests.differential.side import Side
from compat_tests.exchanged_transactions import committed, produced
from compat_tests.kafka import java_command
from compat_tests.pipeline.walkthrough import ADDRESS_OF_PAGE, BLOCK, run_shell

PAGE = ROOT / "docs" / "transactions.md"
TOPIC, START_OFFSET = "debits", 42  # as the page has them
FOUND_AFTER_MS = 15 * 60_000  # what `find-hanging` takes for hanging, if nothing else is said
SCRIPT = """#!/bin/sh
exec {command} "$@"
"""


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    broker = BrokerProcess(tmp_path_factory.mktemp("page"), transaction_partition_verification_enable="false")
    with broker:
        yield Side("barnabas", broker.port, broker.data_dir, "page")


@pytest.fixture
def blocks(side: Side) -> dict[str, str]:
    """The page's program and its commands, as they stand, but for the broker's address."""
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [language for language, _ in found] == ["python", "sh"]
    return {language: text.replace(ADDRESS_OF_PAGE, f"127.0.0.1:{side.port}") for language, text in found}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's command is on the path."""
    command = " ".join(f"'{word}'" for word in java_command("org.apache.kafka.tools.TransactionsCommand"))
    script = tmp_path / "kafka-transactions.sh"
    script.write_text(SCRIPT.format(command=command))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


def let_one_hang(side: Side) -> Writer:
    """A message of a producer arrives after its transaction has ended, and opens another one at START_OFFSET."""
    await_transactions(side)
    writer = Writer(side, "late")
    writer.init()
    values = [b"%d" % number for number in range(START_OFFSET - end_of(side) - 1)]  # and a marker
    writer.transaction(TOPIC, *values)
    late = writer.records(len(values), b"late", at=now_ms() - FOUND_AFTER_MS - 60_000)
    assert produced(writer.produce(TOPIC, late)) == 0
    assert writer.is_in("CompleteCommit")
    return writer


def end_of(side: Side, isolation: int = 0) -> int:
    answer = side.ask(list_offsets({TOPIC: [(0, -1)]}, isolation=isolation), 7)
    return int(answer.topics[0].partitions[0].offset)


def test_a_hanging_transaction_is_found_and_ended_by_the_commands_of_the_page(side, blocks, tools):
    subprocess.run([sys.executable, "-c", blocks["python"]], check=True, timeout=60)
    assert committed(side, "debits") == [(None, b"alice 10")]
    assert committed(side, "credits") == [(None, b"bob 10")]
    writer = let_one_hang(side)
    assert end_of(side, READ_COMMITTED) == START_OFFSET
    find, describe, abort = blocks["sh"].splitlines()
    found = run_shell(find).splitlines()[1:]
    assert [line.split()[:3] for line in found] == [[TOPIC, "0", str(writer.producer)]]
    _, *described = run_shell(describe).splitlines()
    assert [str(writer.producer), str(START_OFFSET)] in [[line.split()[0], line.split()[-1]] for line in described]
    assert run_shell(abort) == ""
    assert run_shell(find).splitlines()[1:] == []
    assert end_of(side, READ_COMMITTED) == end_of(side) == START_OFFSET + 2
    assert len(committed(side, TOPIC)) == START_OFFSET - 2
    writer.init()
    writer.transaction(TOPIC, b"next")
    assert committed(side, TOPIC)[-1] == (None, b"next")
    writer.close()
