"""docs/compatibility.md, from the result files that are kept in the clients' folders."""

from dataclasses import replace

from compat_tests.clients.client import HERE, ROOT
from compat_tests.clients.secured import CELLS, RECORDS, Cell
from compat_tests.clients.verdict import Result, Setup

PAGE = ROOT / "docs" / "compatibility.md"
HEAD = """\
# Compatibility

Test results of third-party clients, against one broker with its embedded store, and against three brokers on a
ZooKeeper with three replicas of every topic. This page is written by `python -m compat_tests.clients --report` from the
`result.json` and `result-cluster.json` files in `compat_tests/clients/`; `make compat CLIENT=NAME` runs one client
again, with `ARGS="--brokers 3"` on three brokers.

The numbers are tests that passed / failed / are listed / were skipped. *Listed* are failures that the client's
allow-list expects; the client's name links to its `FINDINGS.md` with the reasons. *Skipped* are tests that the client's
own suite leaves out, because a setting or an API is missing.

| client | version | language | one broker | three brokers | what it covers | run on |
|-|-|-|-:|-:|-|-|
"""

COLUMNS = [str(cell).replace("MTLS", "mTLS") for cell in CELLS]
SECURED_HEAD = f"""
## TLS and SASL

Each client at a broker with a listener of every protocol, and every mechanism that is served. *Yes*: the client writes
{RECORDS:,} records and reads them through a group (rskafka, which has no groups: from the partition); a wrong password,
or a token that names no user, is refused, and the client reports an error; so is a broker's certificate of an authority
that the client does not trust, and at the listener of mTLS a client without a certificate.
`make compat CLIENT=NAME SECURITY=all` runs one client, `SECURITY="SASL_SSL PLAIN"` one column of it.

| client | version | {" | ".join(COLUMNS)} | run on |
|-|-|{"-|" * len(CELLS)}-|
"""
SUITES_HEAD = """
## Their own tests of TLS, logins and ACLs

Those of a client's own tests that ask for TLS, SASL or an authorizer, at three brokers that have a listener of every
protocol, every mechanism, and ACLs, and that log in to each other. `make compat CLIENT=NAME SECURITY=suite` runs them.

| client | version | passed / failed / listed / skipped | what it covers | run on |
|-|-|-:|-|-|
"""


def results(setup: Setup) -> dict[str, Result]:
    """The results that are kept, by name of client."""
    found = (Result.read(path) for path in HERE.glob(f"*/{setup.result_name}"))
    return {result.client: result for result in sorted(found, key=lambda result: result.client)}


def page() -> str:
    """The whole page."""
    of_one, of_several, secured, suites = (results(setup) for setup in Setup)
    rows = [_row(result, of_several.get(name)) for name, result in of_one.items()]
    more = {
        name: replace(result, listed=[test for test in result.listed if test not in of_one[name].listed])
        for name, result in of_several.items()
    }
    return "".join(
        [
            HEAD,
            *rows,
            _listed("Tests that are listed as not passing", of_one),
            _listed("Tests that are listed for three brokers only", more),
            SECURED_HEAD,
            *(_secured_row(result) for result in secured.values()),
            _listed("Attempts over TLS and SASL that are listed as not passing", secured),
            SUITES_HEAD,
            *(_suite_row(result) for result in suites.values()),
            _listed("Own tests of TLS, logins and ACLs that are listed as not passing", suites),
        ]
    )


def _row(result: Result, in_cluster: Result | None) -> str:
    cells = [*_client(result), result.language, _counts(result)]
    cells += [_counts(in_cluster) if in_cluster else "", result.covers, (in_cluster or result).date]
    return _table_row(*cells)


def _secured_row(result: Result) -> str:
    return _table_row(*_client(result), *(_secured_cell(result, cell) for cell in CELLS), result.date)


def _suite_row(result: Result) -> str:
    return _table_row(*_client(result), _counts(result), result.covers, result.date)


def _client(result: Result) -> list[str]:
    findings = f"../compat_tests/clients/{result.client.replace('-', '_')}/FINDINGS.md"
    return [f"[{result.client}]({findings})", result.version]


def _table_row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _secured_cell(result: Result, cell: Cell) -> str:
    failed = sum(f"{cell}: " in attempt for attempt in [*result.failed, *result.listed, *result.skipped])
    return f"{failed} failed" if failed else "yes"


def _counts(result: Result) -> str:
    return f"{result.passed} / {len(result.failed)} / {len(result.listed)} / {len(result.skipped)}"


def _listed(heading: str, found: dict[str, Result]) -> str:
    lines = [
        f"- {name}: {', '.join(f'`{test}`' for test in result.listed)}" for name, result in found.items()
        if result.listed
    ]  # fmt: skip
    return f"\n## {heading}\n\n" + "\n".join(lines) + "\n" if lines else ""
