"""The Java clients of Kafka 3.9 and of Kafka 4: scenarios of ours, and the command-line tools of both."""

import re
from collections.abc import Iterable

from compat_tests.clients.client import FAILED, PASSED, ROOT, Client, Outcome, Programs, Session
from compat_tests.clients.pytest_suite import run_pytest
from compat_tests.kafka import POMS, java_command

SCENARIOS = "Scenarios.java"
TOOL_TESTS = ROOT / "compat_tests" / "test_java_tools.py"
CLUSTER_TOOL_TESTS = ROOT / "compat_tests" / "cluster" / "test_tools.py"  # which starts three of its own
VERSIONS = {name: re.search(r"<version>(\d+\.\d+\.\d+)</version>", pom.read_text())[1] for name, pom in POMS.items()}


def run(session: Session) -> list[Outcome]:
    tools = TOOL_TESTS if session.brokers == 1 else CLUSTER_TOOL_TESTS
    return run_scenarios(session) + run_pytest(session, tools, cwd=ROOT)


def secured(session: Session) -> Programs:
    return {VERSIONS[name]: java_command(str(session.folder / "Secured.java"), version=name) for name in POMS}


def run_scenarios(session: Session, versions: Iterable[str] = POMS) -> list[Outcome]:
    """Our scenarios with the clients of each version. What a program does not live to tell of has failed."""
    outcomes = []
    for name in versions:
        version = VERSIONS[name]
        command = java_command(str(session.folder / SCENARIOS), session.bootstrap, session.only or "", version=name)
        printed = session.execute(*command, timeout=240).output
        found = re.findall(r"^(plan|ok|not ok) ([^:\n]+)", printed, re.MULTILINE)
        statuses = {test: PASSED if word == "ok" else FAILED for word, test in found}  # the last word counts
        outcomes += [Outcome(f"{version} {test}", status) for test, status in statuses.items()]
    return outcomes


CLIENT = Client(
    name="java",
    version=", ".join(VERSIONS.values()),
    language="Java",
    covers="our scenarios with both versions: codecs, idempotence, transactions, seeking, pausing, groups with every"
    " assignor, static members, every admin call; and Kafka's command-line tools of both",
    run=run,
    secured=secured,
    tools=("java", "mvn"),
)
