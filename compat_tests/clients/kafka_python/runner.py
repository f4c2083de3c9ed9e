"""kafka-python: its own integration tests, from its source distribution, and scenarios of ours."""

import json
import pathlib
import shutil
import sys
import tarfile

from compat_tests.clients.client import (
    ROOT,
    Client,
    Outcome,
    SecuredBrokers,
    SecuredSuite,
    Session,
    fetched_once,
)
from compat_tests.clients.pytest_suite import installed_version, run_pytest, run_scenarios, secured_program

VERSION = installed_version("kafka-python")

SECURED_TESTS = (
    "test/integration/test_ssl_integration.py",
    "test/integration/test_sasl_integration.py",
    "test/integration/test_admin_integration.py::test_create_describe_delete_acls",
)

# A module that the distribution leaves out. Its tests start no service when they are pointed at a broker that runs.
SERVICE = '''
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass

    def stop(self):
        pass

    def dump_logs(self):
        pass


class SpawnedService:
    """Never made."""
'''


def run(session: Session) -> list[Outcome]:
    return run_shipped(session, "test/integration", KAFKA_URI=f"kafka://{session.first}") + run_scenarios(session)


def run_shipped(session: Session, *tests: str, **environment: str) -> list[Outcome]:
    """Some of the tests in its distribution."""
    sources = fetch_sources(session)
    return run_pytest(
        session,
        *tests,
        "--override-ini=addopts=",  # asks for plugins that nothing here needs
        "--override-ini=log_level=WARNING",
        cwd=sources,
        KAFKA_VERSION="3.9",
        KAFKA_ROOT=str(sources),  # has to be a folder, and is not looked into
        **environment,
    )


def run_secured(session: Session, brokers: SecuredBrokers) -> list[Outcome]:
    """Those that `run` has to leave out."""
    shutil.copy(brokers.authority, session.work / "ca-cert")  # the name that they look for
    settings = session.work / "secured.json"
    settings.write_text(
        json.dumps(
            {
                "ports": {listener: ports[0] for listener, ports in brokers.ports.items()},
                "ssl_dir": str(session.work),
                "username": brokers.username,
                "password": brokers.password,
            }
        )
    )
    plugin = "-pcompat_tests.clients.kafka_python.secured_fixtures"
    return run_shipped(session, *SECURED_TESTS, plugin, PYTHONPATH=str(ROOT), KAFKA_PYTHON_SECURED=str(settings))


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
    secured_suite=SecuredSuite(
        covers="TLS; logins with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512 of an admin client, a producer, a consumer and"
        " a bare client; ACLs that are created, described and deleted",
        run=run_secured,
    ),
    settings={"broker.id": "0", "num.partitions": "4", "group.min.session.timeout.ms": "1000"},
)
