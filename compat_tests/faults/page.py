"""Writes the table of docs/faults.md from the outcomes that are kept."""

import json
from pathlib import Path

from compat_tests.clients.client import ROOT
from compat_tests.faults.faults import FAULTS

KEPT = ROOT / "compat_tests" / "faults" / "outcomes.json"
PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- the table -->", "<!-- the end of the table -->"


def write_table() -> None:
    """Replace what stands between the two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", encoding="utf-8")


def table() -> str:
    """One row for each fault, one column for each client."""
    kept = json.loads(Path(KEPT).read_text(encoding="utf-8"))
    clients = sorted(kept)
    lines = [f"| fault | {' | '.join(clients)} |", "|-|" + "-|" * len(clients)]
    lines += [f"| {name} | " + " | ".join(kept[client].get(name, "") for client in clients) + " |" for name in FAULTS]
    return "\n".join(lines)
