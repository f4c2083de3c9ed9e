"""Outcomes against the allow-list, and the file that keeps the result.

`allowed.txt` in the client's folder names the tests that are known not to pass, one a line; its FINDINGS.md says why.
A failure that is not listed fails the run. A listed test that passes fails it too, so that the list stays true; a line
that begins with `sometimes ` may do either, and says in FINDINGS.md what it depends on. `allowed-cluster.txt` names
the tests that do not pass with several brokers, besides; `allowed-secured.txt` those of TLS and SASL, and
`allowed-secured-suite.txt` the client's own tests of these.
"""

import datetime
import enum
import json
import pathlib
from dataclasses import asdict, dataclass

import barnabas
from compat_tests.clients.client import FAILED, PASSED, SKIPPED, Client, Outcome

SOMETIMES = "sometimes "


@dataclass(frozen=True)
class Allowed:
    """The tests that need not pass."""

    never: frozenset[str]
    sometimes: frozenset[str]

    def __contains__(self, test: str) -> bool:
        return test in self.never or test in self.sometimes


class Setup(enum.Enum):
    """What the tests ran against: the file that keeps the result, and those with the allow-list."""

    ONE_BROKER = ("result.json", ("allowed.txt",))
    CLUSTER = ("result-cluster.json", ("allowed.txt", "allowed-cluster.txt"))
    SECURED = ("result-secured.json", ("allowed-secured.txt",))
    SECURED_SUITE = ("result-secured-suite.json", ("allowed-secured-suite.txt",))

    def __init__(self, result_name: str, allowed_names: tuple[str, ...]) -> None:
        self.result_name = result_name
        self.allowed_names = allowed_names


def read_allowed(folder: pathlib.Path, setup: Setup = Setup.ONE_BROKER) -> Allowed:
    """The allow-list of a client; empty lines and those with a # at the start are for the reader."""
    paths = [folder / name for name in setup.allowed_names]
    lines = [line.strip() for path in paths if path.exists() for line in path.read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    return Allowed(
        frozenset(line for line in lines if not line.startswith(SOMETIMES)),
        frozenset(line.removeprefix(SOMETIMES) for line in lines if line.startswith(SOMETIMES)),
    )


@dataclass(frozen=True)
class Result:
    """What is kept of a run."""

    client: str
    version: str
    language: str
    covers: str
    barnabas: str
    date: str
    passed: int
    failed: list[str]  # and not on the allow-list
    listed: list[str]  # failed as the allow-list says
    skipped: list[str]  # by the client's own tests

    def write(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def read(cls, path: pathlib.Path) -> "Result":
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class Verdict:
    """A result, and what is wrong with it."""

    result: Result
    complaints: list[str]


def judge(client: Client, outcomes: list[Outcome], allowed: Allowed, complete: bool) -> Verdict:
    """Compare with the allow-list; of a run that was not complete nothing is said about tests that did not run."""
    by_status = {
        status: sorted(test for test, became in outcomes if became == status) for status in (PASSED, FAILED, SKIPPED)
    }
    failed = [test for test in by_status[FAILED] if test not in allowed]
    complaints = [f"failed: {test}" for test in failed]
    complaints += [f"passes, and is on the allow-list: {test}" for test in by_status[PASSED] if test in allowed.never]
    if complete:
        ran = {outcome.test for outcome in outcomes}
        unknown = (allowed.never | allowed.sometimes) - ran
        complaints += [f"is on the allow-list and did not run: {test}" for test in sorted(unknown)]
    if not by_status[PASSED]:
        complaints.append("no test passed")
    result = Result(
        client=client.name,
        version=client.version,
        language=client.language,
        covers=client.covers,
        barnabas=barnabas.__version__,
        date=datetime.date.today().isoformat(),
        passed=len(by_status[PASSED]),
        failed=failed,
        listed=[test for test in by_status[FAILED] if test in allowed],
        skipped=by_status[SKIPPED],
    )
    return Verdict(result, complaints)
