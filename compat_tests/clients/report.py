"""docs/compatibility.md, from the result files that are kept in the clients' folders."""

from compat_tests.clients.client import HERE, ROOT
from compat_tests.clients.verdict import Result

PAGE = ROOT / "docs" / "compatibility.md"
HEAD = """\
# Compatibility

Which clients of other people's making were run against a broker of one node with its embedded store, and how they
fared. This page is written by `python -m compat_tests.clients --report` from the `result.json` files in
`compat_tests/clients/`; `make compat CLIENT=NAME` runs one client again. *Passed* and *failed* count tests; *listed*
are failures that the client's allow-list expects, each with its reason in the `FINDINGS.md` that the name links to;
*skipped* are tests that the client's own suite leaves out, for want of a setting or of an API that is not offered.

| client | version | language | passed | failed | listed | skipped | what it covers | run on |
|-|-|-|-:|-:|-:|-:|-|-|
"""


def results() -> list[Result]:
    """The results that are kept, by name of client."""
    return sorted((Result.read(path) for path in HERE.glob("*/result.json")), key=lambda result: result.client)


def page() -> str:
    """The whole page."""
    return HEAD + "".join(_row(result) for result in results()) + _listed()


def _row(result: Result) -> str:
    findings = f"../compat_tests/clients/{result.client.replace('-', '_')}/FINDINGS.md"
    numbers = [result.passed, len(result.failed), len(result.listed), len(result.skipped)]
    cells = [f"[{result.client}]({findings})", result.version, result.language, *map(str, numbers), result.covers]
    return f"| {' | '.join([*cells, result.date])} |\n"


def _listed() -> str:
    lines = [f"- {result.client}: {', '.join(f'`{test}`' for test in result.listed)}" for result in results()
             if result.listed]  # fmt: skip
    return "\n## Tests that are listed as not passing\n\n" + "\n".join(lines) + "\n" if lines else ""
