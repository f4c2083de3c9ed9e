"""The example that writes in every codec and reads back through a group of two, with three stock clients."""

import pathlib
import subprocess
import sys

import pytest

from compat_tests.brokers import BrokerProcess

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"
RECORDS = 5_000  # for each codec: the example itself defaults to 100,000


@pytest.mark.parametrize("client", ["kafka-python", "confluent-kafka", "aiokafka"])
def test_every_record_comes_back_identical_and_in_order(shared_broker: BrokerProcess, client: str) -> None:
    options = ["--client", client, "--bootstrap-server", shared_broker.bootstrap, "--records", str(RECORDS)]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "roundtrip.py"), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"all {RECORDS * 5} records came back identical" in done.stdout


def test_the_first_steps_of_the_readme_print_ten_letters(shared_broker: BrokerProcess) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "first_steps.py"), "--bootstrap-server", shared_broker.bootstrap],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("to the castle, no. ") >= 10
