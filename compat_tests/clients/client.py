"""What a client's runner says about itself, and what it is given to run with.

A client is a folder beside this file. Its `runner.py` holds one `CLIENT`, whose `run` starts the tests of that client
against `Session.bootstrap` and returns an `Outcome` for each of them. It neither starts a broker nor judges: `__main__`
does the first, `verdict` the second. What is fetched from a registry goes to `Session.work`, which git ignores.
"""

import contextlib
import importlib
import os
import pathlib
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
WORK = pathlib.Path(os.environ.get("COMPAT_WORK", ROOT / ".compat"))

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


class Outcome(NamedTuple):
    """What became of one test."""

    test: str
    status: str


class Ran(NamedTuple):
    """What a program printed, and how it ended; -9 when its time was up."""

    output: str
    status: int


class ClientBroken(Exception):
    """The client's tests could not be fetched, built or run at all."""


class Session:
    """One run of one client: where the broker is, where there is room, and how programs are run."""

    def __init__(
        self, folder: pathlib.Path, work: pathlib.Path, bootstrap: str, only: str | None = None, brokers: int = 1
    ) -> None:
        self.folder = folder
        self.work = work
        self.bootstrap = bootstrap  # of several brokers with commas between
        self.only = only
        self.brokers = brokers  # and as many replicas of every topic
        work.mkdir(parents=True, exist_ok=True)
        self.log_path = work / "output.log"
        self.log_path.write_text("")

    @property
    def first(self) -> str:
        """One of the brokers, for a test program that takes only one address."""
        return self.bootstrap.split(",")[0]

    def log(self, line: str) -> None:
        """Add a line of ours to the log."""
        with self.log_path.open("a") as log:
            log.write(f"\n{line}\n")

    def execute(
        self, *command: str | pathlib.Path, cwd: pathlib.Path | None = None, timeout: float = 600, **environment: str
    ) -> Ran:
        """Run to the end, or until the time is up; standard output is returned, both streams go to the log."""
        words = [str(word) for word in command]
        output = self.work / "stdout.log"
        with self.log_path.open("a") as log, output.open("w") as stdout:
            log.write(f"\n$ {' '.join(words)}\n")
            log.flush()
            process = subprocess.Popen(
                words,
                cwd=cwd or self.work,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=log,
                start_new_session=True,
            )
            status = _wait(process, timeout)
        printed = output.read_text(errors="replace")
        with self.log_path.open("a") as log:
            log.write(f"{printed}\n[ended with {status}]\n")
        return Ran(printed, status)

    def prepare(self, *command: str | pathlib.Path, cwd: pathlib.Path | None = None, **environment: str) -> str:
        """Run a step without which nothing else can run."""
        ran = self.execute(*command, cwd=cwd, timeout=1800, **environment)
        if ran.status:
            tail = self.log_path.read_text(errors="replace")[-3000:]
            raise ClientBroken(f"{' '.join(map(str, command))} ended with {ran.status}:\n{tail}")
        return ran.output

    def copy(self, source: pathlib.Path, name: str) -> pathlib.Path:
        """A copy of fetched sources that may be written to; made once, its name tells the version."""
        target = self.work / name
        if not target.exists():
            half = self.work / f"{name}.half"
            shutil.rmtree(half, ignore_errors=True)
            shutil.copytree(source, half)
            for path in [half, *half.rglob("*")]:
                path.chmod(path.stat().st_mode | 0o200)  # a module cache is read-only
            half.rename(target)
        return target


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int:
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return -signal.SIGKILL
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started as well, also after a good end
        process.wait()


class SecuredBrokers(NamedTuple):
    """Brokers on this machine, and what a client needs to connect to them."""

    ports: Mapping[str, Sequence[int]]  # by listener
    authority: str  # PEM files: of the authority that signed the brokers' certificates,
    certificate: str  # a client's certificate,
    key: str  # and its key
    username: str
    password: str

    def at(self, listener: str) -> str:
        return ",".join(f"localhost:{port}" for port in self.ports[listener])


@dataclass(frozen=True)
class SecuredSuite:
    """Those of a client's own tests that ask for TLS, logins or ACLs."""

    covers: str
    run: Callable[[Session, SecuredBrokers], list[Outcome]]


Programs = Mapping[str, Sequence[str]]  # the commands that start them, by version of the client


@dataclass(frozen=True)
class Client:
    """One client, as the table in docs/compatibility.md shows it."""

    name: str
    version: str
    language: str
    covers: str
    run: Callable[[Session], list[Outcome]]
    tools: tuple[str, ...] = ()  # programs that must be on the path
    settings: Mapping[str, str] = field(default_factory=dict)  # what its tests want from the broker
    secured: Callable[[Session], Programs] | None = None  # builds the program of `access.py`
    secured_suite: SecuredSuite | None = None


def client_names() -> list[str]:
    """Every client that has a runner, as the command line names it."""
    return sorted(path.parent.name.replace("_", "-") for path in HERE.glob("*/runner.py"))


def folder_of(name: str) -> pathlib.Path:
    return HERE / name.replace("-", "_")


def load_client(name: str) -> Client:
    """The client of this name."""
    client: Client = importlib.import_module(f"compat_tests.clients.{name.replace('-', '_')}.runner").CLIENT
    assert client.name == name, f"{folder_of(name)} holds {client.name}"
    return client


def fetched_once(stamp: pathlib.Path, wanted: str, fetch: Callable[[], None]) -> None:
    """Fetch unless the stamp says that exactly this was fetched before; the stamp is written last."""
    if stamp.exists() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    fetch()
    stamp.write_text(wanted)
