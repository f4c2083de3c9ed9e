"""The end-to-end tests of node-rdkafka, which binds librdkafka to Node.js; its package ships the sources of both."""

import json
import shutil

from confluent_kafka.admin import AdminClient, NewTopic

from compat_tests.clients.client import Client, Outcome, Session, fetched_once, folder_of
from compat_tests.clients.parsing import junit_outcomes

PACKAGE = "node-rdkafka"
FOLDER = folder_of(PACKAGE)
VERSION = json.loads((FOLDER / "package.json").read_text())["dependencies"][PACKAGE]


TOPICS = ["test", "test2", "test3", "test4", "test5", "test6"]  # made beforehand, as its run_docker.sh does


def run(session: Session) -> list[Outcome]:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(session.folder / name, session.work)
    lock = (session.folder / "package-lock.json").read_text()

    def install() -> None:  # builds librdkafka: some minutes
        session.prepare("npm", "ci", "--no-audit", "--no-fund", "--foreground-scripts")

    fetched_once(session.work / "installed", lock, install)
    admin = AdminClient({"bootstrap.servers": session.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in TOPICS]).values():
        made.result(30)
    report = session.work / "junit.xml"
    report.unlink(missing_ok=True)
    mocha = session.work / "node_modules" / ".bin" / "mocha"
    options = ["--exit", "--timeout", "60000"]  # its Makefile allows twice the time
    options += ["--reporter", "xunit", "--reporter-option", f"output={report}"]
    chosen = ["--grep", session.only] if session.only else []
    sources = session.work / "node_modules" / PACKAGE
    tests = sorted(str(path.relative_to(sources)) for path in sources.glob("e2e/*.spec.js"))
    session.execute(mocha, *options, *chosen, *tests, cwd=sources, timeout=300, KAFKA_HOST=session.bootstrap)
    return junit_outcomes(report)


CLIENT = Client(
    name=PACKAGE,
    version=VERSION,
    language="JavaScript, C",
    covers="its own end-to-end tests, over librdkafka 2.12: producer, consumer in both of its modes, groups, headers,"
    " admin, transactions",
    run=run,
    tools=("node", "npm", "gcc", "make", "python3"),
)
