"""What a test module leaves running beside the modules after it: the settings in `conftest.py` at the root."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

LEAVES_A_BROKER = """
from barnabas.testing import LocalBroker

def test_a_broker():
    LocalBroker().start()
"""
CLOSES_IT = """
from barnabas.testing import LocalBroker

def test_a_broker():
    with LocalBroker() as broker:
        broker.restart()
"""
HAS_ONE_FOR_THE_RUN = """
def test_a_broker(barnabas_broker):
    barnabas_broker.restart()

def test_that_broker(barnabas_broker):
    assert barnabas_broker.bootstrap_servers
"""
LOOKS_FOR_ZOOKEEPER = """
from kazoo.client import KazooClient

def test_a_session():
    KazooClient("127.0.0.1:1").start_async()
"""


IMPATIENT = """
import conftest

conftest.END_SECONDS = 0.2
"""


def outcome(directory: Path, *modules: str) -> str:
    """What a run of these modules says, in this order."""
    for number, text in enumerate(modules):
        (directory / f"test_{number}.py").write_text(text)
    (directory / "impatient.py").write_text(IMPATIENT)
    arguments = ["-q", "-p", "conftest", "-p", "impatient", "--rootdir", str(directory), str(directory)]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)
    return ended.stdout + ended.stderr


def test_a_module_that_leaves_a_broker_or_a_session_behind_fails(tmp_path):
    said = outcome(tmp_path, LEAVES_A_BROKER, LOOKS_FOR_ZOOKEEPER, CLOSES_IT)
    assert "3 passed, 2 errors" in said
    assert "AssertionError: threads of brokers are left behind" in said


def test_brokers_that_are_closed_or_for_the_whole_run_are_no_fault(tmp_path):
    assert "5 passed" in outcome(tmp_path, CLOSES_IT, HAS_ONE_FOR_THE_RUN, HAS_ONE_FOR_THE_RUN)
