"""The five commands of docs/security.md run as written: one broker with TLS, SCRAM and ACLs, from an empty folder."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing.running.child import BrokerChild
from compat_tests.clients.client import ROOT
from compat_tests.kafka import free_port

PORT = "9093"  # as the page and the examples have it
ENVIRONMENT = {"ADMIN_PASSWORD": "admin-secret-1883", "ALICE_PASSWORD": "alice-secret-1924"}
SECTION = re.compile(r"^## TLS, logins and ACLs in five commands\n(.*?)^## ", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Commands(BrokerChild):
    """The broker that the page's third command starts."""

    def __init__(self, folder: Path, command: str) -> None:
        super().__init__(folder / "secured-data", {}, folder / "stderr.log")
        self.words = command.split()

    def program(self) -> list[str]:
        return [sys.executable, "-m", *self.words[:1]]

    def arguments(self) -> list[str]:
        return self.words[2:]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the examples, for a free port, and the program on the path."""
    examples = tmp_path / "examples" / "secured"
    examples.mkdir(parents=True)
    port = str(free_port())
    for path in (ROOT / "examples" / "secured").iterdir():
        (examples / path.name).write_text(path.read_text().replace(PORT, port))
    program = tmp_path / "bin" / "barnabas"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv(
        "PATH", os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return tmp_path


def run(command: str, folder: Path) -> str:
    ran = subprocess.run(
        ["sh", "-eu", "-c", command], cwd=folder, capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_one_broker_with_tls_logins_and_acls_in_five_commands(folder: Path) -> None:
    section = SECTION.search((ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    assert section is not None
    terminals = [block.replace("\\\n", "").splitlines() for block in BLOCK.findall(section[1])]
    (_, certificate, users, serve), (_, allow, letters) = terminals
    run(certificate, folder)
    run(users, folder)
    broker = Commands(folder, serve)
    try:
        broker.start()
        refused = subprocess.run(
            ["sh", "-c", letters], cwd=folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert refused.returncode != 0  # alice may do nothing yet
        assert "User:alice may WRITE TOPIC letters" in run(allow, folder)
        assert run(letters, folder) == "to the castle\n"
    finally:
        broker.kill()
    log = broker.log_path.read_text()
    assert not any(secret in log for secret in ENVIRONMENT.values())
