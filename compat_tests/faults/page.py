"""Writes the tables of docs/faults.md from the outcomes that are kept."""

import json
from collections.abc import Iterable

from compat_tests.clients.client import ROOT
from compat_tests.faults.changes import CHANGES
from compat_tests.faults.faults import FAULTS
from compat_tests.faults.provoked import HARMS, PROVOKED

KEPT = ROOT / "compat_tests" / "faults" / "outcomes.json"
PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- the tables -->", "<!-- the end of the tables -->"


def write_tables() -> None:
    """Replace what stands between the two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables()}\n{END}{after}", encoding="utf-8")


def tables() -> str:
    """One row for each fault, one column for each client: of one broker, and of three.

    A star marks what is compared with Apache Kafka.
    """
    return f"{_table('one broker', FAULTS)}\n\n{_table('three brokers', CHANGES)}"


def _table(title: str, names: Iterable[str]) -> str:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    clients = sorted(kept)
    lines = [f"| {title} | {' | '.join(clients)} |", "|-|" + "-|" * len(clients)]
    for name in names:
        compared = " *" if name in HARMS or name in PROVOKED else ""
        cells = " | ".join(kept[client].get(name, "") for client in clients)
        lines.append(f"| {name}{compared} | {cells} |")
    return "\n".join(lines)
