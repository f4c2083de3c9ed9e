"""README.md does what it says: its commands run as written in a fresh clone, with git, make and Python alone.

So do those of docs/cluster.md for three brokers, and those of docs/security.md for one with TLS, logins and ACLs.

A block of `sh` is what is typed into one terminal; a line that runs `serve` keeps its terminal until the section ends.
Only ports are replaced, so that a broker that runs on this machine is not in the way: in the pages, in the clone's
examples, and by the variables `ARGS`, for `make serve`, and `BARNABAS_BOOTSTRAP`. The clone has what was committed.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.clients.client import ROOT
from compat_tests.kafka import ZooKeeperProcess, free_port
from compat_tests.tools import require_tool

PORTS = ["9092", "9093", "9094", "2181"]  # of the page
SERVE = re.compile(r"(make|barnabas) serve\b")
READY = " ready: broker "
# Beside git, make and Python: what POSIX has. No compiler, no Java.
POSIX = ["sh", "cat", "chmod", "dirname", "env", "find", "grep", "head", "ls", "mkdir", "rm", "sed", "touch", "uname"]
STEP_SECONDS = 1500  # of which most goes into downloads, and into Spark on a busy machine
END_SECONDS = 60
SECONDS_BETWEEN_LOOKS = 0.1


class Clone:
    """A clone of the repository, and the page as it stands there, with other ports."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "barnabas"
        self.programs = folder / "bin"
        self.programs.mkdir()
        for name in ["git", "make", *POSIX]:
            self.allow(name, shutil.which(name))
        self.allow("python3", getattr(sys, "_base_executable", sys.executable))
        self._environment = {
            name: text for name, text in os.environ.items() if name == "HOME" or name.startswith("PIP_")
        } | {"PATH": str(self.programs)}
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.root)], check=True, timeout=STEP_SECONDS)
        self._ports = {port: str(free_port()) for port in PORTS}
        for path in [*(self.root / "examples").rglob("*.py"), *(self.root / "examples").rglob("*.properties")]:
            path.write_text(self.with_ports(path.read_text(encoding="utf-8")), encoding="utf-8")

    def allow(self, name: str, path: str | None) -> None:
        """Put a program on the path."""
        assert path is not None, f"{name} not found on the path"
        (self.programs / name).symlink_to(path)

    def with_ports(self, text: str) -> str:
        """The text with free ports in the place of those of the page."""
        return re.sub(rf":({'|'.join(PORTS)})\b", lambda found: f":{self._ports[found[1]]}", text)

    def port(self, port_of_the_page: str) -> int:
        """The port that stands for one of the page."""
        return int(self._ports[port_of_the_page])

    def blocks(self, title: str, language: str, page: str = "README.md") -> list[str]:
        """The blocks of a section in this language."""
        text = self.with_ports((self.root / page).read_text(encoding="utf-8"))
        section = text.split(f"\n## {title}\n")[1].split("\n## ")[0]
        return re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)

    def terminals(self, title: str, page: str = "README.md") -> list[str]:
        """What is typed into each terminal of a section."""
        found = []
        for block in self.blocks(title, "sh", page):
            typed = [""]
            for line in block.replace("\\\n", "").splitlines():
                typed[-1] += f"{line}\n"
                typed += [""] * bool(SERVE.match(line))
            found += filter(None, typed)
        return found

    def run(self, typed: str, *, activated: bool = True, **variables: str) -> str:
        """What a terminal prints, once all that was typed has ended well."""
        with self.background(typed, activated=activated, **variables) as (running, log):
            status = running.wait(STEP_SECONDS)
            assert status == 0, f"{typed}\n{log.read_text()[-4000:]}"
            return log.read_text()

    @contextlib.contextmanager
    def serving(self, typed: str, *, activated: bool = True, **variables: str) -> Iterator[str]:
        """Type what ends with `serve`, and wait for the ready line."""
        with self.background(typed, activated=activated, **variables) as (running, log):
            deadline = time.monotonic() + STEP_SECONDS
            while READY not in log.read_text():
                assert running.poll() is None, f"{typed}\n{log.read_text()[-4000:]}"
                assert time.monotonic() < deadline, f"{typed}\n{log.read_text()[-4000:]}"
                time.sleep(SECONDS_BETWEEN_LOOKS)
            yield log.read_text()

    @contextlib.contextmanager
    def background(
        self, typed: str, *, activated: bool, **variables: str
    ) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """A terminal, closed at the end of the block."""
        log = self.root.parent / f"terminal-{time.monotonic_ns()}.log"
        script = f". .venv/bin/activate\n{typed}" if activated else typed
        with log.open("wb") as output:
            running = subprocess.Popen(
                ["sh", "-eu", "-c", script],
                cwd=self.root,
                env=self._environment | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield running, log
        finally:
            end(running)


def end(running: subprocess.Popen[bytes]) -> None:
    """End the processes of a terminal in an orderly way, and wait for all of them."""
    deadline = time.monotonic() + END_SECONDS
    sent = int(signal.SIGTERM)
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(running.pid, sent)
            sent = 0  # from now on only asks whether there are any
            running.poll()
            time.sleep(SECONDS_BETWEEN_LOOKS)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone(tmp_path_factory.mktemp("clone"))


@pytest.fixture(scope="module")
def broker(clone: Clone) -> Iterator[Clone]:
    """The clone while its `make serve` runs, which the page types first."""
    serve, _ = clone.terminals("Three commands")
    with clone.serving(serve, activated=False, ARGS=f"--listen 127.0.0.1:{clone.port('9092')}"):
        yield clone


@pytest.fixture(scope="module")
def first_steps(broker: Clone) -> str:
    (typed,) = broker.terminals("A stock client")
    return broker.run(typed)


def test_make_serve_sets_everything_up_and_runs_a_broker(broker: Clone) -> None:
    assert "barnabas 0." in broker.run("barnabas version")


def test_a_topic_is_made_and_a_record_written_and_read_in_three_commands(broker: Clone) -> None:
    _, commands = broker.terminals("Three commands")
    said = broker.run(commands, activated=False, BARNABAS_BOOTSTRAP=f"127.0.0.1:{broker.port('9092')}")
    *_, record = said.splitlines()
    assert json.loads(record).items() >= {"topic": "messages", "value": "to the castle"}.items()


def test_make_test_sets_everything_up_and_runs_tests(broker: Clone) -> None:
    (test,) = broker.terminals("Development")
    assert " passed" in broker.run(test, activated=False, ARGS="-q tests/test_tidy.py -k imports")


def test_the_first_steps_print_ten_letters(first_steps: str) -> None:
    assert first_steps.count("to the castle, no. ") == 10


def test_the_first_steps_in_a_few_lines_read_a_record(broker: Clone, first_steps: str) -> None:
    (program,) = broker.blocks("A stock client", "python")
    (broker.root / "few_lines.py").write_text(program)
    with broker.background("python -u few_lines.py", activated=True) as (running, log):
        deadline = time.monotonic() + STEP_SECONDS
        while b"to the castle" not in log.read_bytes():
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(SECONDS_BETWEEN_LOOKS)


def test_a_project_of_its_own_gets_the_fixtures(clone: Clone) -> None:
    install, run_tests = clone.terminals("Ten lines of a test")
    clone.run(install, activated=False)
    tests = clone.blocks("Ten lines of a test", "python")
    (clone.root.parent / "my-project" / "test_letters.py").write_text("\n\n".join(tests))
    assert "1 passed" in clone.run(run_tests, activated=False)


def test_three_brokers_form_a_cluster(broker: Clone, tmp_path: Path) -> None:
    require_tool("java")
    zookeeper = ZooKeeperProcess(tmp_path)
    zookeeper.port = broker.port("2181")
    install, *brokers = broker.terminals("Three brokers", "docs/cluster.md")
    assert len(brokers) == 3
    broker.run(install)
    elsewhere = {str(broker.port("9092")): str(free_port())}  # `make serve` has the first one's port
    zookeeper.start()
    try:
        with contextlib.ExitStack() as running:
            for typed in brokers:
                moved = re.sub("|".join(elsewhere), lambda found: elsewhere[found[0]], typed)
                ready = running.enter_context(broker.serving(moved))
                assert re.search(r"broker [123] at PLAINTEXT://127.0.0.1:\d+, ", ready)
    finally:
        zookeeper.stop()


def test_a_broker_with_tls_logins_and_acls(broker: Clone, first_steps: str) -> None:
    require_tool("openssl")
    broker.allow("openssl", shutil.which("openssl"))
    serve, client = broker.terminals("TLS, logins and ACLs in five commands", "docs/security.md")
    with broker.serving(serve):
        said = broker.run(client)
    assert "User:alice may WRITE TOPIC letters" in said
    assert said.endswith("to the castle\n")
