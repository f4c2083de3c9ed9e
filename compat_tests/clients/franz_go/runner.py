"""The tests of franz-go's package kgo: produce, consume, groups with every balancer, and much that needs no broker."""

import json
import os
import pathlib
import re

from compat_tests.clients.client import Client, Outcome, Programs, Session, folder_of
from compat_tests.clients.parsing import go_outcomes

MODULE = "github.com/twmb/franz-go"
GO_MOD = folder_of("franz-go") / "go.mod"
VERSION = re.search(rf"\b{re.escape(MODULE)} v(\S+)", GO_MOD.read_text())[1]
RECORDS = os.environ.get("KGO_TEST_RECORDS", "20000")  # without it the suite takes 500000


def run(session: Session) -> list[Outcome]:
    downloaded = json.loads(session.prepare("go", "mod", "download", "-json", MODULE, cwd=session.folder))
    sources = session.copy(pathlib.Path(downloaded["Dir"]), f"franz-go-{VERSION}") / "pkg" / "kgo"
    environment = {
        "KGO_SEEDS": session.bootstrap,
        "KGO_TEST_RF": str(session.brokers),
        "KGO_TEST_RECORDS": RECORDS,
        "KGO_LOG_LEVEL": "none",
    }
    chosen = ["-run", session.only] if session.only else []
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
    tools=("go",),
)
