"""What a type checker, and so an editor, says about the names in a test that uses the faults."""

import re
import subprocess
import sys

import pytest

TEST = """
from barnabas.testing import LocalBroker

with LocalBroker() as broker:
    broker.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="t", times=2)
    broker.faults.fail("Produse", "NOT_LEADER_OR_FOLLOWER")
    broker.faults.fail("Produce", "NOT_A_LEADER")
    broker.faults.drop("Produce", "afterwards")
    broker.faults.delay("Fetch", 1.0, topics="t")
    broker.faults.as_kafka("2.9")
    broker.requests("Produce")
    broker.requests("Heartbeats")
"""


@pytest.mark.thorough
def test_a_type_checker_refuses_names_that_there_are_not(tmp_path):
    """Each line that has a wrong name is reported, and those that have none are not."""
    (tmp_path / "test_faults.py").write_text(TEST)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "test_faults.py"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    reported = {int(line) for line in re.findall(r"test_faults\.py:(\d+): error", checked.stdout)}
    assert reported == {6, 7, 8, 9, 10, 12}, checked.stdout
