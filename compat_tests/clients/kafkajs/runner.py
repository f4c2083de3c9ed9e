"""kafkajs: its package ships no tests, so these are scenarios of ours, run by node's own test runner."""

import json
import shutil

from compat_tests.clients.client import Client, Outcome, Programs, Session, fetched_once, folder_of
from compat_tests.clients.parsing import junit_outcomes

FOLDER = folder_of("kafkajs")
VERSION = json.loads((FOLDER / "package.json").read_text())["dependencies"]["kafkajs"]
SCENARIOS = "scenarios.test.mjs"
SECURED = "secured.mjs"


def install(session: Session, program: str) -> None:
    """The client, in the folder of the session, with a program of ours."""
    for name in ("package.json", "package-lock.json", program):
        shutil.copy(session.folder / name, session.work)
    lock = (session.folder / "package-lock.json").read_text()
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    fetched_once(session.work / "installed", lock, lambda: session.prepare(*command) and None)


def secured(session: Session) -> Programs:
    install(session, SECURED)
    return {"": ["node", str(session.work / SECURED)]}


def run(session: Session) -> list[Outcome]:
    install(session, SCENARIOS)
    report = session.work / "junit.xml"
    report.unlink(missing_ok=True)
    reporters = ["--test-reporter=junit", f"--test-reporter-destination={report}"]
    reporters += ["--test-reporter=spec", "--test-reporter-destination=stdout"]
    chosen = [f"--test-name-pattern={session.only}"] if session.only else []
    command = ["node", "--test", *reporters, *chosen, SCENARIOS]
    session.execute(*command, timeout=300, COMPAT_BOOTSTRAP=session.bootstrap)
    return [Outcome(test, status) for test, status in junit_outcomes(report) if test != SCENARIOS]


CLIENT = Client(
    name="kafkajs",
    version=VERSION,
    language="JavaScript",
    covers="our scenarios: producer with none, gzip and snappy, idempotence, transactions; consumer with groups,"
    " seek, pause, batches, commits; every call of the admin client",
    run=run,
    secured=secured,
    tools=("node", "npm"),
)
