"""Clients that stay longer than their sessions: how often each connection logs in again (KIP-368), and what fails.

All clients run at once, each with a user of its own, against one broker with `connections.max.reauth.ms`. A client
that did not log in again in time would lose its connection, and the broker would log that the session has ended.
"""

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from compat_tests.clients.access import SECONDS_MAX, Task, settings_file
from compat_tests.clients.client import ROOT, WORK, Client, ClientBroken, Session, folder_of
from compat_tests.clients.secured import secured_broker
from compat_tests.raw import create_topic
from compat_tests.secured import PASSWORD, Certificates, SecuredBroker, access_of, create_scram_user

MECHANISM = "SCRAM-SHA-256"
REAUTH_MS = 10_000
AGAIN = re.compile(r"has logged in again as User:(\S+): login (\d+) of its connection")
FAILED = re.compile(r"failed authentication with .*")


class Stay(NamedTuple):
    """What one client did."""

    client: str
    written: int
    read: int
    errors: list[str]  # that it saw
    logins_again: list[int]  # by connection, most first


def stay(clients: Sequence[Client], seconds: float, reauth_ms: int = REAUTH_MS) -> list[Stay]:
    """Run them for so long. ClientBroken if one cannot be built."""
    programs = [program for client in clients for program in programs_of(client)]
    with tempfile.TemporaryDirectory(prefix="sessions-") as name:
        folder = Path(name)
        certificates = Certificates(folder / "certificates")
        with (
            secured_broker(folder, certificates, "debug", connections_max_reauth_ms=reauth_ms) as broker,
            ExitStack() as ends,
        ):
            running = {}
            for label, command in programs:
                create_scram_user(broker.ports["BROKERS"], MECHANISM, label, PASSWORD)
                create_topic(broker.ports["BROKERS"], f"topic-{label}")  # some readers look for a new one seldom
                access = access_of(f"localhost:{broker.ports['SASL_SSL']}", "SASL_SSL", MECHANISM, label)
                task = Task("steady", f"topic-{label}", f"group-{label}", seconds=seconds)
                file = settings_file(folder, access._replace(authority=certificates.trusted), task)
                running[label] = started([*command, str(file)], folder / f"{label}.err")
                ends.callback(running[label].kill)
            stays = [stay_of(label, process, broker, seconds, folder) for label, process in running.items()]
            (WORK / "sessions.log").write_text(broker.log_text())
            # The broker does not say whose connection it was: the client did not log in.
            failed = FAILED.findall(broker.log_text())
    return [*stays, Stay("broker", 0, 0, failed, [])]


def started(command: Sequence[str], errors: Path) -> "subprocess.Popen[str]":
    with errors.open("w") as stderr:
        return subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, text=True
        )


def programs_of(client: Client) -> Iterator[tuple[str, Sequence[str]]]:
    """What each version of it is called here, and how its program is started."""
    if client.secured is None:
        raise ClientBroken(f"{client.name} has no program for TLS and SASL")
    session = Session(folder_of(client.name), WORK / client.name, "")
    for version, command in client.secured(session).items():
        yield f"{client.name}-{version}".rstrip("-"), command


def stay_of(label: str, process: "subprocess.Popen[str]", broker: SecuredBroker, seconds: float, folder: Path) -> Stay:
    printed, _ = process.communicate(timeout=seconds + 3 * SECONDS_MAX)
    done = {"written": 0, "read": 0, "errors": []}
    if process.returncode:
        done["errors"] = [f"ended with {process.returncode}: {(folder / f'{label}.err').read_text()[-2000:]}"]
    else:
        done = json.loads(printed.splitlines()[-1])
    # How many connections have reached each number of logins.
    reached = Counter(int(number) - 1 for user, number in AGAIN.findall(broker.log_text()) if user == label)
    ended_at = {number: count - reached[number + 1] for number, count in reached.items()}
    counts = [number for number, count in ended_at.items() for _ in range(count)]
    return Stay(label, done["written"], done["read"], done["errors"], sorted(counts, reverse=True))


def table(stays: Sequence[Stay]) -> str:
    rows = [f"{s.client} | {s.written} | {s.read} | {len(s.errors)} | {s.logins_again}" for s in stays]
    head = "client | written | read | errors | logins again, by connection"
    return "\n".join([head, "-|-:|-:|-:|-", *rows, *(f"{s.client}: {error}" for s in stays for error in s.errors[:20])])
