"""The examples end: with one line when a client, a codec or the broker is missing, or when the broker dies.

`python -S` imports nothing that is installed, as the Python of a user who has not installed anything yet; a folder
with links to single packages stands for one who has installed only these.
"""

import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compat_tests.brokers import BrokerProcess
from compat_tests.clients.client import ROOT
from compat_tests.kafka import free_port
from compat_tests.secured import Certificates

EXAMPLES = ROOT / "examples"
SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
PROGRAMS = ["first_steps.py", "roundtrip.py", "secured/allow.py", "secured/letters.py"]
CLIENTS = ["kafka-python", "confluent-kafka", "aiokafka"]
TESTS = ["test_orders.py", "test_exactly_once.py"]
HOW_TO_INSTALL = "`make examples`, then .venv/bin/python"
END_SECONDS = 60


def run(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=END_SECONDS,
    )


@pytest.fixture
def only(tmp_path: Path) -> Callable[..., str]:
    """Makes a folder that has only these installed packages."""

    def link(*names: str) -> str:
        folder = tmp_path / "only"
        folder.mkdir()
        for name in names:
            (found,) = {SITE_PACKAGES / name, SITE_PACKAGES / f"{name}.py"} & set(SITE_PACKAGES.iterdir())
            (folder / found.name).symlink_to(found)
        return str(folder)

    return link


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_example_without_its_client_ends_with_one_line(program: str, tmp_path: Path) -> None:
    ran = run(tmp_path, "-S", str(EXAMPLES / program))
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert HOW_TO_INSTALL in line


@pytest.mark.parametrize(("client", "packages"), [("kafka-python", ["kafka"]), ("aiokafka", ["aiokafka"])])
def test_the_roundtrip_without_codecs_ends_with_one_line(
    client: str, packages: list[str], only: Callable[..., str], tmp_path: Path
) -> None:
    ran = run(tmp_path, "-S", str(EXAMPLES / "roundtrip.py"), "--client", client, PYTHONPATH=only(*packages))
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("not installed: ")
    assert client not in line
    assert HOW_TO_INSTALL in line


def test_an_example_without_a_broker_ends_with_one_line(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "broker.crt").symlink_to(certificates.trusted)
    nowhere = f"127.0.0.1:{free_port()}"
    passwords = {"ADMIN_PASSWORD": "castle", "ALICE_PASSWORD": "village"}

    def run_it(program: str) -> subprocess.CompletedProcess[str]:
        return run(tmp_path, str(EXAMPLES / program), "--bootstrap-server", nowhere, **passwords)

    # Their clients wait for some seconds, so they run at the same time.
    with ThreadPoolExecutor() as pool:
        for program, ran in zip(PROGRAMS, pool.map(run_it, PROGRAMS), strict=True):
            said = [line for line in ran.stderr.splitlines() if not line.startswith("%")]  # librdkafka's log
            assert (program, ran.returncode, len(said)) == (program, 1, 1), ran.stderr
            assert nowhere in said[0], program


@pytest.mark.parametrize("program", ["secured/allow.py", "secured/letters.py"])
def test_an_example_without_password_and_certificate_ends_with_one_line(program: str, tmp_path: Path) -> None:
    ran = run(tmp_path, str(EXAMPLES / program))
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert "_PASSWORD in the environment, and broker.crt in this folder" in line


@pytest.mark.parametrize("file", TESTS)
def test_the_tests_without_a_client_end_with_one_line(file: str, only: Callable[..., str], tmp_path: Path) -> None:
    for name in (file, "conftest.py"):
        (tmp_path / name).symlink_to(EXAMPLES / name)
    pytest_alone = only("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
    ran = run(tmp_path, "-S", "-m", "pytest", file, PYTHONPATH=pytest_alone, PYTEST_ADDOPTS="")
    assert ran.returncode == 4
    assert "not installed: confluent-kafka path/to/barnabas" in ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr


def test_tests_that_need_a_further_package_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").symlink_to(EXAMPLES / "conftest.py")
    (tmp_path / "test_web.py").write_text("from absent_web.server import App\n\ndef test_it():\n    App()\n")
    (tmp_path / "test_plain.py").write_text("import json\n\ndef test_it():\n    assert json.loads('1')\n")
    ran = run(tmp_path, "-m", "pytest", "-ra", PYTEST_ADDOPTS="")
    assert ran.returncode == 0, ran.stdout
    assert "not installed: absent_web" in ran.stdout
    assert "1 passed, 1 skipped" in ran.stdout


def test_the_roundtrip_ends_although_the_broker_died(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    brokers = [start_broker() for _ in CLIENTS]
    # They wait for up to 16 s, so they run at the same time, each with a broker of its own.
    with ThreadPoolExecutor() as pool:
        for client, broker, ended in zip(CLIENTS, brokers, pool.map(end_of, CLIENTS, brokers), strict=True):
            status, said = ended
            assert status == 1, client
            assert broker.bootstrap in said, client  # in the words of the client, or of the script after 6 s


def end_of(client: str, broker: BrokerProcess) -> tuple[int, str]:
    """The status of the round trip, and what it says, when the broker is killed after the first codec."""
    options = ["--client", client, "--bootstrap-server", broker.bootstrap, "--records", "20000", "--timeout", "6"]
    command = [sys.executable, str(EXAMPLES / "roundtrip.py"), *options]
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as running,
    ):
        assert running.stdout is not None
        first = running.stdout.readline()
        broker.kill()
        status = running.wait(END_SECONDS)
        log.seek(0)
        said = log.read()
    assert first.startswith("none: 20000 records"), said
    return status, said
