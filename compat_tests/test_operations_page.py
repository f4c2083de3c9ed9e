"""docs/operations.md does what it says: logs, health, backup and restore of one broker, as the page has them.

What needs an administrator is replaced: `sudo`, and `systemctl` by a broker that the test starts and stops with the
options of the page's unit.
"""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from compat_tests.clients.client import ROOT
from compat_tests.raw import RawClient, create_topic, produce_request
from compat_tests.test_process import Running, serving

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def block(language: str, about: str) -> str:
    """The page's block in this language that has this text."""
    (found,) = [each for each in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if about in each]
    return found


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], int]:
    """Runs a command of the page, as this user, below a folder of the test's own; its status."""

    def run_below(command: str) -> int:
        command = command.replace("sudo -u barnabas /opt/barnabas/bin/barnabas", f"{sys.executable} -m barnabas")
        command = re.sub(r"/var/(lib|backups)/barnabas", lambda found: f"{tmp_path}/{found[1]}", command)
        return subprocess.run(
            ["sh", "-c", command.replace("sudo ", "")], cwd=ROOT, check=False, timeout=60, capture_output=True
        ).returncode

    (tmp_path / "lib").mkdir()
    return run_below


def options(folder: Path) -> list[str]:
    """Of the unit, with the data where `run` has them."""
    words = shlex.split(next(line for line in block("ini", "ExecStart").splitlines() if line.startswith("ExecStart=")))
    assert words[1:3] == ["serve", "/etc/barnabas/server.properties"]
    return ["--data-dir", str(folder / "lib" / "data"), *words[3:]]


def append(broker: Running) -> int:
    """The offset of one more record."""
    with RawClient(broker.port) as client:
        batch = bytes(build_batch([(None, b"to the castle")], timestamp_ms=1000).data)
        (answered,) = client.ask(produce_request("letters", batch), 9, m.ProduceResponse).responses
        assert answered.partition_responses[0].error_code == ErrorCode.NONE
        return answered.partition_responses[0].base_offset


def test_every_log_line_is_an_object_with_the_fields_of_the_page(tmp_path: Path) -> None:
    with serving(tmp_path, *options(tmp_path)) as broker:
        assert broker.stop() == 0
    lines = broker.said().splitlines()
    assert lines
    fields = json.loads(block("json", "time")).keys()
    assert all(json.loads(line).keys() == fields for line in lines)


def test_the_health_check_tells_a_broker_that_answers_from_one_that_does_not(
    tmp_path: Path, run: Callable[[str], int]
) -> None:
    check = block("sh", "healthcheck.py")
    with serving(tmp_path, *options(tmp_path)) as broker:
        check = check.replace("9092", str(broker.port))
        assert run(check) == 0
        broker.stop()
        assert run(check) == 1


def test_a_backup_brings_back_what_was_there(tmp_path: Path, run: Callable[[str], int]) -> None:
    stop, *back_up, start = block("sh", "cp --archive /var/lib").splitlines()
    again_stop, *restore, again_start = block("sh", "cp --archive /var/backups").splitlines()
    assert {stop, again_stop} == {"sudo systemctl stop barnabas"}
    assert {start, again_start} == {"sudo systemctl start barnabas"}
    with serving(tmp_path, *options(tmp_path)) as broker:
        create_topic(broker.port, "letters")
        assert append(broker) == 0
        broker.stop()
    assert [run(command) for command in back_up] == [0]
    with serving(tmp_path, *options(tmp_path)) as broker:
        assert append(broker) == 1
        broker.stop()
    assert [run(command) for command in restore] == [0] * len(restore)
    assert not list((tmp_path / "lib" / "data").glob("barnabas.boot"))
    with serving(tmp_path, *options(tmp_path)) as broker:
        assert append(broker) == 1  # the record that was written after the backup is gone
