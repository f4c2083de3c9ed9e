"""How clients behave under each fault: python -m compat_tests.faults [NAME...] [--fault NAME] [--runs 3] [--record]

Without names all clients run that have a program (`clients/access.py`). `--record` keeps the result, and writes the
table of docs/faults.md from all that is kept. Status 1: runs of one cell differ, or a record was lost in silence.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

from compat_tests.clients.client import WORK, ClientBroken, Session, client_names, folder_of, load_client
from compat_tests.faults.changes import CHANGES
from compat_tests.faults.faults import FAULTS
from compat_tests.faults.matrix import cell, cluster_cell
from compat_tests.faults.page import KEPT, write_tables


def main() -> int:
    options = parsed(sys.argv[1:])
    bad = 0
    for name in options.names or [name for name in client_names() if load_client(name).secured is not None]:
        try:
            outcomes, differing = run_one(name, options.fault or [*FAULTS, *CHANGES], options.runs)
        except ClientBroken as broken:
            print(f"{name}: {broken}", flush=True)
            bad += 1
            continue
        bad += differing
        if options.record:
            keep(name, outcomes)
    if options.record:
        write_tables()
    return 1 if bad else 0


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a client; without one all of them")
    parser.add_argument("--fault", action="append", choices=[*FAULTS, *CHANGES], help="this one; may be repeated")
    parser.add_argument("--runs", type=int, default=1, help="of each cell")
    parser.add_argument("--record", action="store_true", help="keep the result, and write the table")
    return parser.parse_args(words)


def run_one(name: str, faults: list[str], runs: int) -> tuple[dict[str, dict[str, str]], int]:
    """Version of the client -> fault -> outcome; and how many cells differ between runs, or lose in silence."""
    client = load_client(name)
    missing = [tool for tool in client.tools if shutil.which(tool) is None]
    if missing or client.secured is None:
        raise ClientBroken(f"{', '.join(missing) or 'its program'} not found")
    session = Session(folder_of(name), WORK / f"{name}-faults", "")
    outcomes: dict[str, dict[str, str]] = {}
    bad = 0
    for version, command in client.secured(session).items():
        label = f"{name} {version}".strip()
        for fault in faults:
            run = cell if fault in FAULTS else cluster_cell
            cells = [run(session, [str(word) for word in command], fault) for _ in range(runs)]
            seen = sorted({each.outcome for each in cells})
            missed = "" if all(each.fired for each in cells) else " (not asked)"
            outcomes.setdefault(label, {})[fault] = " / ".join(seen) + missed
            bad += len(seen) > 1 or any("silence" in outcome for outcome in seen)
            print(f"{label}: {fault}: {outcomes[label][fault]} {[each.seconds for each in cells]} s", flush=True)
    return outcomes, bad


def keep(name: str, outcomes: dict[str, dict[str, str]]) -> None:
    path = Path(KEPT)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for label, cells in outcomes.items():
        kept.setdefault(label, {}).update(cells)
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
