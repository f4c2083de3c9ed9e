"""`barnabas check`, `bench`, `cheat` and `completion`, from outside; and the line that says how far a command is."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import termios
import time

import pytest

from barnabas.cli.cheat_sheet import SHEETS
from barnabas.cli.check import FAILED, OK, WARNING, reached
from barnabas.cli.commands import commands
from barnabas.client.errors import Unreachable
from barnabas.testing import LocalBroker, LocalCluster


def barnabas(*arguments, bootstrap="127.0.0.1:1", status=0, **options):
    ended = subprocess.run(
        [sys.executable, "-m", "barnabas", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "BARNABAS_BOOTSTRAP": bootstrap},
        **options,
    )
    assert ended.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended


@pytest.fixture(scope="module")
def broker():
    with LocalBroker() as started:
        yield started


def rows(ended):
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_healthy_broker_passes_each_check_and_keeps_no_topic(broker):
    found = rows(barnabas("check", "--write", "--json", bootstrap=broker.bootstrap_servers))
    assert [(row["check"].split()[0], row["result"]) for row in found] == [
        (name, OK) for name in ("bootstrap", "broker", "controller", "leaders", "replicas", "write")
    ]
    assert barnabas("topics", "ls", "--json", bootstrap=broker.bootstrap_servers).stdout == ""


class Away:
    """A cluster none of whose brokers can be reached from here."""

    async def ask_broker(self, broker_id, request):
        raise Unreachable(f"broker {broker_id} refuses the connection")


async def test_an_advertised_address_that_cannot_be_reached_is_named():
    found = await reached(Away(), 3, "castle.example:9092")
    assert (found.check, found.result) == ("broker 3", FAILED)
    assert found.detail.startswith("broker 3 refuses the connection. It advertises castle.example:9092")
    assert "advertised.listeners" in found.detail


def test_a_replica_that_is_away_is_a_warning_with_a_status_of_its_own():
    with LocalCluster(2) as cluster:
        cluster.create_topic("letters", replicas=2)
        leader = cluster.leader("letters")
        (other,) = set(cluster.brokers) - {leader}
        cluster.kill(other)
        cluster.wait_for(isr={("letters", 0): {leader}})
        port = cluster.brokers[leader].port

        # The leader hears a moment later that the broker is no member of the cluster any more.
        deadline = time.monotonic() + 20
        while len(rows(barnabas("brokers", "ls", "--json", bootstrap=f"127.0.0.1:{port}"))) > 1:
            assert time.monotonic() < deadline
        ended = barnabas("check", "--json", bootstrap=f"127.0.0.1:{port}", status=3)
    (warned,) = (row for row in rows(ended) if row["result"] == WARNING)
    assert "letters-0" in warned["detail"]


def test_a_cluster_that_is_away_ends_the_check_with_a_message():
    ended = barnabas("check", "--timeout", "1", status=1)
    assert ended.stderr.startswith("barnabas: ")
    assert "127.0.0.1:1" in ended.stderr


def test_bench_measures_both_ways_and_leaves_nothing_behind(broker):
    ended = barnabas("bench", "--records", "3000", "--size", "50", "--json", bootstrap=broker.bootstrap_servers)
    written, read = rows(ended)
    assert (written["phase"], read["phase"]) == ("produce", "consume")
    assert written["records"] == read["records"] == 3000
    assert written["records_per_s"] > 0 < written["p50_ms"] <= written["p99_ms"] <= written["max_ms"]
    assert barnabas("topics", "ls", "--json", bootstrap=broker.bootstrap_servers).stdout == ""


def test_bench_keeps_to_a_rate(broker):
    began = time.monotonic()
    ended = barnabas("bench", "--records", "500", "--rate", "250", "--json", bootstrap=broker.bootstrap_servers)
    assert time.monotonic() - began >= 2
    assert rows(ended)[0]["records_per_s"] <= 260


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1"])
def test_a_rate_of_bench_that_is_none_is_refused(rate):
    ended = barnabas("bench", "--rate", rate, "--timeout", "1", status=2)
    assert "is no rate above 0" in ended.stderr


@pytest.mark.parametrize("tool", SHEETS)
def test_each_command_of_the_cheat_sheet_can_be_parsed(tool):
    printed = barnabas("cheat", tool).stdout
    for theirs, ours in SHEETS[tool]:
        assert f"  {theirs}\n    {ours}\n" in printed
        words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", ours)][1:]
        parsed = commands
        while hasattr(parsed, "get_command"):
            name = words.pop(0)
            found = parsed.get_command(None, name)
            assert found is not None, f"{ours}: no command {name}"
            parsed = found
        # Arguments that are missing or unknown raise an error.
        parsed.make_context(parsed.name, [word.replace("F", ".") if word == "F" else word for word in words])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_is_a_script_that_it_can_read(shell, tmp_path):
    script = barnabas("completion", shell).stdout
    assert "_BARNABAS_COMPLETE" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(script)
    subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)


def test_completion_knows_the_commands():
    environment = {**os.environ, "_BARNABAS_COMPLETE": "bash_complete", "COMP_WORDS": "barnabas che", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['barnabas']; from barnabas.cli.commands import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert ended.stdout.split() == ["plain,cheat", "plain,check"]


SLOW = """
import time
from barnabas.progress import progress
with progress("work", 3, " steps") as advance:
    for step in range(3):
        time.sleep(0.6)
        advance(1)
"""


def test_a_line_says_how_far_a_command_is_where_a_person_sees_it():
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    # What was drawn can be read while one end is open.
    subprocess.run([sys.executable, "-c", SLOW], check=True, stderr=theirs)
    drawn = os.read(ours, 65536).decode()
    os.close(theirs)
    os.close(ours)
    assert "work" in drawn
    assert "3.00" in drawn


def test_nothing_is_drawn_and_tqdm_is_not_imported_without_a_terminal():
    code = SLOW.replace("0.6", "0") + "import sys; print('tqdm' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("False\n", "")
