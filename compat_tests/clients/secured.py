"""A client over TLS and SASL: at a broker with a listener of every protocol, each of its mechanisms, good and refused.

A cell is a protocol with a mechanism. In each, the program of the client (`access.py`) writes records and reads them
through a group; then it is given a wrong password, or a token that names no user, and a certificate of a wrong
authority, and must report an error.
"""

import itertools
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from compat_tests.clients.access import Access, Task, settings_file
from compat_tests.clients.client import FAILED, PASSED, ROOT, Client, ClientBroken, Outcome, Session
from compat_tests.secured import (
    ADMIN,
    ADMIN_PASSWORD,
    MECHANISMS,
    PASSWORD,
    USER,
    Certificates,
    SecuredBroker,
    access_of,
    create_scram_user,
    jaas,
    unsecured_token,
)

RECORDS = 10_000
PROGRAM_SECONDS = 150
ALL = "all"
LISTENERS = {
    "BROKERS": "PLAINTEXT",
    "SSL": "SSL",
    "MTLS": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
SCRAM_MECHANISMS = [name for name in MECHANISMS if name.startswith("SCRAM")]


class Cell(NamedTuple):
    """A listener, and the mechanism of SASL where it has one."""

    listener: str
    mechanism: str = ""

    def __str__(self) -> str:
        return f"{self.listener} {self.mechanism}".strip()


CELLS = [
    Cell("SSL"),
    Cell("MTLS"),
    *(Cell(listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in MECHANISMS),
]


class Attempt(NamedTuple):
    """What a program is given, and how it should go."""

    name: str
    access: Access
    mode: str = "refused"


def chosen(which: str) -> list[Cell]:
    """The cells of a listener, or a single one; `all` for every cell."""
    cells = [cell for cell in CELLS if which in (ALL, cell.listener, str(cell))]
    if not cells:
        raise ClientBroken(f"no listener {which!r}; there are {', '.join(map(str, CELLS))}")
    return cells


def run(client: Client, session: Session, cells: Sequence[Cell], records: int = RECORDS) -> list[Outcome]:
    """Every attempt of these cells, with every version of the client."""
    if client.secured is None:
        raise ClientBroken("has no program for TLS and SASL")
    commands = client.secured(session)
    with tempfile.TemporaryDirectory(prefix=f"secured-{client.name}-") as name:
        folder = Path(name)
        certificates = Certificates(folder / "certificates")
        with secured_broker(folder, certificates) as broker:
            outcomes = []
            for number, (version, cell) in enumerate(itertools.product(commands, cells)):
                for attempt in attempts(broker, certificates, cell):
                    task = Task(attempt.mode, f"topic-{number}", f"group-{number}", records)
                    command = [*commands[version], str(settings_file(folder, attempt.access, task))]
                    failure = failure_of(session, command, attempt.mode, records)
                    test = f"{version} {cell}: {attempt.name}".lstrip()
                    session.log(f"{test}: {failure or 'passed'}")
                    outcomes.append(Outcome(test, FAILED if failure else PASSED))
            (session.work / "broker.log").write_text(broker.log_text())
    return outcomes


@contextmanager
def secured_broker(
    folder: Path, certificates: Certificates, log_level: str = "info", **more: str | int
) -> Iterator[SecuredBroker]:
    """A broker with the user and with every mechanism; `more` are properties, with _ for the dots."""
    properties = {
        **certificates.pem_stores(),
        "listener.name.mtls.ssl.client.auth": "required",
        **jaas("SASL_PLAINTEXT"),
        **jaas("SASL_SSL"),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    broker = SecuredBroker(folder / "broker", LISTENERS, properties)
    broker.log_level = log_level
    with broker:
        for mechanism in SCRAM_MECHANISMS:
            for user, password in ((USER, PASSWORD), (ADMIN, ADMIN_PASSWORD)):
                create_scram_user(broker.ports["BROKERS"], mechanism, user, password)
        yield broker


def attempts(broker: SecuredBroker, certificates: Certificates, cell: Cell) -> Iterator[Attempt]:
    protocol = LISTENERS[cell.listener]
    access = access_of(f"localhost:{broker.ports[cell.listener]}", protocol, cell.mechanism)
    if access.has_tls:
        access = access._replace(authority=certificates.trusted)
    without_certificate = access
    if cell.listener == "MTLS":
        access = access._replace(certificate=certificates.client_certificate, key=certificates.client_key)
    yield Attempt("writes and reads", access, "once")
    if cell.mechanism:
        wrong = access._replace(password="wrong-password-9", token=unsecured_token(USER, claim="azp"))
        yield Attempt("wrong password", wrong)
    if access.has_tls:
        yield Attempt("wrong authority", access._replace(authority=certificates.other_trusted))
    if access != without_certificate:
        yield Attempt("no certificate", without_certificate)


def failure_of(session: Session, command: Sequence[str], mode: str, records: int) -> str:
    """What went otherwise than it should; empty if nothing did."""
    ran = session.execute(*command, cwd=ROOT, timeout=PROGRAM_SECONDS)
    if ran.status:
        return f"the program ended with {ran.status}"
    done = json.loads(ran.output.splitlines()[-1])
    if mode == "once":
        return "" if done == {"read": records} else f"not every record was read: {done}"
    return "" if done.get("refused") else f"no error was reported: {done}"
