"""The pytest plugin, as pytest finds it in an environment where the package is installed."""

import importlib.util
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def run_pytest(installed, tmp_path):
    """Run a test file in a process of its own, with the installed wheel and no configuration; what it printed."""

    def run(source: str, *arguments: str, status: int = 0) -> str:
        (tmp_path / "test_it.py").write_text(source)
        environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1", "PYTEST_ADDOPTS": ""}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", *arguments, "test_it.py"]
        ran = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=120, check=False
        )
        assert ran.returncode == status, ran.stdout + ran.stderr
        return ran.stdout

    return run


def test_the_test_of_ten_lines_in_the_readme_passes_as_it_is_written(run_pytest):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "def test_" in block)
    assert len([line for line in example.splitlines() if line]) <= 10
    assert "1 passed" in run_pytest(example, "--durations=0")


# File -> the packages that it needs.
EXAMPLES = {
    "test_orders.py": (),
    "test_outbox.py": (),
    "test_exactly_once.py": (),
    "test_django.py": ("django",),
    "test_fastapi.py": ("aiokafka", "fastapi", "httpx2"),
    "test_faststream.py": ("aiokafka", "faststream"),
}
# Run by compat_tests/test_example_files.py, each in an environment of its own.
ELSEWHERE = ("test_airflow.py", "test_quix.py")
# What stands around those blocks of the page that are no whole test file: the fixture that is defined again, and the
# broker beside a program.
AROUND = """
import pytest
from barnabas.testing import LocalBroker
from confluent_kafka import Producer

def run_my_program(servers):
    producer = Producer({"bootstrap.servers": servers})
    producer.produce("orders", b"first")
    assert producer.flush(10) == 0

FIXTURE
def test_the_settings_of_the_fixture_hold(barnabas_broker):
    run_my_program(barnabas_broker.bootstrap_servers)
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    assert len(producer.list_topics("orders", 10).topics["orders"].partitions) == 3

def test_a_broker_beside_a_program():
PROGRAM
"""


def test_the_examples_in_the_page_about_testing_pass_as_they_are_written(run_pytest):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    examples = [block for block in blocks if "def test_" in block]
    assert f"{len(examples)} passed" in run_pytest("\n\n".join(examples))

    fixture, program = (block for block in blocks if "def test_" not in block)
    source = AROUND.replace("FIXTURE", fixture).replace("PROGRAM", textwrap.indent(program, "    "))
    assert "2 passed" in run_pytest(source)


def test_every_file_that_the_page_about_testing_names_is_run():
    named = re.findall(r"\]\(\.\./examples/(test_\w+\.py)\)", (ROOT / "docs" / "testing.md").read_text())
    assert sorted(named) == sorted([*EXAMPLES, *ELSEWHERE])


@pytest.mark.parametrize(
    ("name", "needed"),
    EXAMPLES.items(),
)
def test_the_examples_pass(run_pytest, name, needed):
    missing = [package for package in needed if importlib.util.find_spec(package) is None]
    if missing:
        give_up = pytest.fail if "CI" in os.environ else pytest.skip
        give_up(f"not installed: {', '.join(missing)} (`make examples`)")
    assert " passed" in run_pytest((ROOT / "examples" / name).read_text())


def test_a_broker_that_keeps_its_data_has_a_new_topic_in_every_run(run_pytest):
    source = """
import pytest
from barnabas.testing import LocalBroker

@pytest.fixture(scope="session")
def barnabas_broker():
    with LocalBroker(data_dir="kept") as broker:
        yield broker

def test_a_letter(barnabas_topic):
    pass
"""
    for _ in range(2):
        assert "1 passed" in run_pytest(source)


def test_each_test_has_a_topic_of_its_own_and_all_share_the_broker(run_pytest):
    source = """
import pytest
seen = {}

@pytest.mark.parametrize("name", ["a", "a b/c", "ü" * 300])
def test_topics(barnabas_broker, barnabas_topic, name):
    seen[barnabas_topic] = barnabas_broker.bootstrap_servers

def test_after_them():
    assert len(seen) == 3
    assert len(set(seen.values())) == 1
"""
    assert "4 passed" in run_pytest(source)


@pytest.mark.thorough
def test_workers_of_xdist_each_have_a_broker(run_pytest, tmp_path):
    source = """
import os, pytest

@pytest.mark.parametrize("number", range(8))
def test_broker(barnabas_broker, barnabas_topic, number):
    barnabas_broker.create_topic(f"same-name-in-each-worker-{number}")
    with open(f"{os.environ['PYTEST_XDIST_WORKER']}.txt", "a") as file:
        print(barnabas_broker.bootstrap_servers, file=file)
"""
    run_pytest(source, "-n", "2")
    brokers = [set(file.read_text().split()) for file in tmp_path.glob("gw?.txt")]
    assert [len(each) for each in brokers] == [1, 1]
    assert len(set.union(*brokers)) == 2


def test_nothing_but_pytest_is_imported_until_a_fixture_is_used(run_pytest):
    source = """
import sys

def test_before():
    ours = {name for name in sys.modules if name.split(".")[0] in {"barnabas", "trio", "crc32c", "lz4"}}
    assert ours == {"barnabas", "barnabas.form", "barnabas.testing", "barnabas.testing.plugin"}

def test_with(barnabas_broker):
    assert "trio" in sys.modules
"""
    assert "2 passed" in run_pytest(source, "-p", "no:trio", "-p", "no:anyio")


def test_pytest_leaves_the_modules_of_the_broker_as_they_were_installed(run_pytest):
    """It takes each module of an installed wheel for a part of the plugin, and would compile all of them again."""
    source = """
import sys

from barnabas.testing import LocalBroker

def test_with(barnabas_broker):
    ours = {name: module for name, module in sys.modules.items() if name.startswith("barnabas.")}
    assert {"barnabas.broker.serve", "barnabas.testing.local"} <= ours.keys()
    rewritten = {name for name, module in ours.items() if "Rewriting" in type(module.__loader__).__name__}
    assert rewritten <= {"barnabas.form", "barnabas.testing", "barnabas.testing.plugin"}
"""
    assert "1 passed" in run_pytest(source)


def test_the_plugin_imports_only_pytest(installed):
    imports = "import sys, pytest; before = set(sys.modules); import barnabas.testing.plugin"
    code = f"{imports}; print(*(set(sys.modules) - before))"
    environment = os.environ | {"PYTHONPATH": str(installed), "PYTHONSAFEPATH": "1"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert set(ran.stdout.split()) == {"barnabas", "barnabas.form", "barnabas.testing", "barnabas.testing.plugin"}


def test_the_clock_runs_again_after_a_test_that_stopped_it(run_pytest):
    source = """
def test_first(barnabas_clock):
    barnabas_clock.stop()
    assert barnabas_clock.is_stopped

def test_second(barnabas_clock):
    assert not barnabas_clock.is_stopped
"""
    assert "2 passed" in run_pytest(source)


def test_a_cluster_is_whole_again_after_a_test_that_harmed_it(run_pytest):
    source = """
def test_first(barnabas_cluster):
    barnabas_cluster.create_topic("orders", replicas=3)
    barnabas_cluster.kill(barnabas_cluster.leader("orders"))
    barnabas_cluster.freeze(next(id for id, each in barnabas_cluster.brokers.items() if each.is_running))

def test_second(barnabas_cluster):
    assert all(each.is_running for each in barnabas_cluster.brokers.values())
    assert barnabas_cluster.isr("orders") == {1, 2, 3}
"""
    assert "2 passed" in run_pytest(source)


FAULTY = """
import socket
from barnabas.client.blocking import BlockingConnection
from barnabas.wire import messages as m

def ask(broker):
    host, port = broker.bootstrap_servers.split(":")
    with BlockingConnection(socket.create_connection((host, port), 5), "asker") as connection:
        asked = m.FindCoordinatorRequest(coordinator_keys=["g"])
        return connection.ask(asked, 4, m.FindCoordinatorResponse).coordinators[0].error_code
"""


def test_faults_and_requests_are_those_of_one_test(run_pytest):
    source = (
        FAULTY
        + """
def test_with_faults(barnabas_broker, barnabas_faults, barnabas_requests):
    fault = barnabas_faults.fail("FindCoordinator", "NOT_COORDINATOR")
    assert ask(barnabas_broker) == 16
    assert fault.fired == len(barnabas_requests("FindCoordinator")) == 1

def test_after_it(barnabas_broker, barnabas_faults, barnabas_requests):
    assert list(barnabas_faults) == list(barnabas_requests) == []
    assert ask(barnabas_broker) != 16

def test_without(barnabas_broker):
    assert not barnabas_broker._host.interceptor().is_active
"""
    )
    assert "3 passed" in run_pytest(source)


def test_a_fault_that_never_fired_is_an_error_of_its_test(run_pytest):
    source = (
        FAULTY
        + """
def test_with_faults(barnabas_broker, barnabas_faults):
    barnabas_faults.fail("Heartbeat", "NOT_COORDINATOR")
    ask(barnabas_broker)
"""
    )
    printed = run_pytest(source, status=1)
    assert "fail(Heartbeat, NOT_COORDINATOR) never fired, so the test has not tested it" in printed
    assert "1 x FindCoordinator v4 of 'asker'" in printed


def test_a_failing_test_shows_the_requests_and_the_faults(run_pytest):
    source = (
        FAULTY
        + """
def test_with_faults(barnabas_broker, barnabas_faults):
    barnabas_faults.fail("FindCoordinator", "NOT_COORDINATOR", group="g")
    assert ask(barnabas_broker) == 0

def test_without(barnabas_broker):
    assert ask(barnabas_broker) == -1
"""
    )
    printed = run_pytest(source, status=1)
    assert printed.count("barnabas: the last 40 requests, and the faults that fired") == 1
    assert (
        "FindCoordinator v4 group 'g' -> NOT_COORDINATOR [fail(FindCoordinator, NOT_COORDINATOR, group='g')]" in printed
    )
    assert "<fail(FindCoordinator, NOT_COORDINATOR, group='g'), fired 1>" in printed
