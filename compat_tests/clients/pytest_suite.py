"""Clients in Python, and suites that pytest runs: our own scenarios in a client's folder, or tests that it ships."""

import importlib.metadata
import pathlib
import sys

import pytest

from compat_tests.clients.client import ROOT, Outcome, Programs, Session
from compat_tests.clients.parsing import junit_outcomes

PACKAGE = "compat_tests.clients"
BOOTSTRAP = "COMPAT_BOOTSTRAP"  # the broker that a runner has started or was given


def test_name(item: pytest.Item) -> str:
    """As it is called in results and allow-lists: module.test[parameters]."""
    return f"{pathlib.Path(item.path).stem}.{item.name}"


test_name.__test__ = False  # pytest: this is no test


def installed_version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


def secured_program(session: Session) -> Programs:
    """The client's `secured_client.py`, which is started as it is."""
    return {"": [sys.executable, "-m", f"{PACKAGE}.{session.folder.name}.secured_client"]}


def run_scenarios(session: Session) -> list[Outcome]:
    """Our own scenarios: test_*.py in the client's folder."""
    return run_pytest(session, session.folder, cwd=ROOT, **{BOOTSTRAP: session.bootstrap})


def run_pytest(
    session: Session, *tests: pathlib.Path | str, cwd: pathlib.Path, timeout: float = 900, **environment: str
) -> list[Outcome]:
    """Run pytest in a process of its own."""
    report = session.work / "junit.xml"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *map(str, tests)]
    if session.only:
        command += ["-k", session.only]
    session.execute(*command, cwd=cwd, timeout=timeout, **environment)
    return junit_outcomes(report)
