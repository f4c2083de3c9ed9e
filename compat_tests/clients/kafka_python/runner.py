"""kafka-python: its own integration tests, from its source distribution, and scenarios of ours."""

import pathlib
import sys
import tarfile

from compat_tests.clients.client import Client, Outcome, Session, fetched_once
from compat_tests.clients.pytest_suite import installed_version, run_pytest, run_scenarios, secured_program

VERSION = installed_version("kafka-python")

# A module that the distribution leaves out. Its tests start no service when they are pointed at a broker that runs.
SERVICE = '''
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    """Never made."""
'''


def run(session: Session) -> list[Outcome]:
    sources = fetch_sources(session)
    shipped = run_pytest(
        session,
        "test/integration",
        "--override-ini=addopts=",  # asks for plugins that nothing here needs
        "--override-ini=log_level=WARNING",
        cwd=sources,
        KAFKA_URI=f"kafka://{session.first}",
        KAFKA_VERSION="3.9",
        KAFKA_ROOT=str(sources),  # has to be a folder, and is not looked into
    )
    return shipped + run_scenarios(session)


def fetch_sources(session: Session) -> pathlib.Path:
    name = f"kafka_python-{VERSION}"

    def fetch() -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        session.prepare(*command, "--dest", session.work, f"kafka-python=={VERSION}")
        with tarfile.open(session.work / f"{name}.tar.gz") as archive:
            archive.extractall(session.work, filter="data")
        (session.work / name / "test" / "__init__.py").touch()  # or Python's own package `test` is found
        (session.work / name / "test" / "service.py").write_text(SERVICE)

    fetched_once(session.work / "fetched", name, fetch)
    return session.work / name


CLIENT = Client(
    name="kafka-python",
    version=VERSION,
    language="Python",
    covers="its own integration tests; our scenarios: codecs, headers, timestamps, partitioners, idempotence,"
    " transactions, seeking, pausing, patterns, groups with every assignor and static members, every admin call",
    run=run,
    secured=secured_program,
    settings={"broker.id": "0", "num.partitions": "4", "group.min.session.timeout.ms": "1000"},
)
