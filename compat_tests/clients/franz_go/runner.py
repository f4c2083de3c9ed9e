"""The tests of franz-go's package kgo: produce, consume, groups with every balancer, and much that needs no broker."""

import json
import os
import pathlib
import re

from compat_tests.clients.client import Client, Outcome, Programs, SecuredBrokers, SecuredSuite, Session, folder_of
from compat_tests.clients.parsing import go_outcomes

MODULE = "github.com/twmb/franz-go"
GO_MOD = folder_of("franz-go") / "go.mod"
VERSION = re.search(rf"\b{re.escape(MODULE)} v(\S+)", GO_MOD.read_text())[1]
DIALS_ITSELF = "^TestIssue769$"  # its client has a dialer of its own, which franz-go refuses beside TLS
RECORDS = os.environ.get("KGO_TEST_RECORDS", "20000")  # without it the suite takes 500000


def run(session: Session) -> list[Outcome]:
    return run_tests(session, session.bootstrap)


def run_secured(session: Session, brokers: SecuredBrokers) -> list[Outcome]:
    """All of them over TLS with a client's certificate, and those that log in."""
    return run_tests(
        session,
        brokers.at("MTLS"),
        KGO_TEST_TLS=f"ca:{brokers.authority},cert:{brokers.certificate},key:{brokers.key}",
        KGO_TEST_SCRAM=f"{brokers.username}:{brokers.password}:512",
        KGO_TEST_SCRAM_SEEDS=brokers.at("SASL_PLAINTEXT"),
        leave_out=DIALS_ITSELF,
    )


def run_tests(session: Session, bootstrap: str, leave_out: str = "", **more: str) -> list[Outcome]:
    downloaded = json.loads(session.prepare("go", "mod", "download", "-json", MODULE, cwd=session.folder))
    sources = session.copy(pathlib.Path(downloaded["Dir"]), f"franz-go-{VERSION}") / "pkg" / "kgo"
    environment = {
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": str(session.brokers),
        "KGO_TEST_RECORDS": RECORDS,
        "KGO_LOG_LEVEL": "none",
        **more,
    }
    chosen = ["-run", session.only] if session.only else []
    if leave_out:
        chosen += ["-skip", leave_out]
    command = ["go", "test", "-json", "-count=1", "-timeout=30m", *chosen]
    return go_outcomes(session.execute(*command, cwd=sources, timeout=2000, **environment).output)


def secured(session: Session) -> Programs:
    program = session.work / "secured"
    session.prepare("go", "build", "-o", program, ".", cwd=session.folder)
    return {"": [str(program)]}


CLIENT = Client(
    name="franz-go",
    version=VERSION,
    language="Go",
    covers=f"all tests of pkg/kgo with {RECORDS} records: produce and consume chains through groups of every balancer,"
    " static members, regular expressions, adding and removing partitions, transactions",
    run=run,
    secured=secured,
    secured_suite=SecuredSuite(
        covers="all tests of pkg/kgo over TLS with a client's certificate; logins with SCRAM, good and refused",
        run=run_secured,
    ),
    tools=("go",),
)
