"""How clients behave under each fault: python -m compat_tests.faults [NAME...] [--fault NAME] [--runs 3] [--record]

Without names all clients run that have a program (`clients/access.py`). `--record` keeps the result, and writes the
table of docs/faults.md from all that is kept. `--kafka` provokes on Apache Kafka what can be provoked there, and
compares it with what is kept. Status 1: a cell differs from it, or between runs, or a record was lost in silence.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from compat_tests.clients.client import WORK, ClientBroken, Session, client_names, folder_of, load_client
from compat_tests.faults.changes import CHANGES
from compat_tests.faults.faults import FAULTS
from compat_tests.faults.matrix import Cell, cell, cell_text, cluster_cell, is_stable, outcomes_of
from compat_tests.faults.page import KEPT, write_tables

CLUSTER_SIZE = 3

# Runs the program of a client under a fault: its session, its command, the name of the fault.
Run = Callable[[Session, Sequence[str], str], Cell]
Outcomes = dict[str, dict[str, str]]  # version of a client -> fault -> outcome


def main() -> int:
    options = parsed(sys.argv[1:])
    faults = options.fault or [*FAULTS, *CHANGES]
    bad = 0
    with ExitStack() as stack:
        runs = on_kafka(stack, faults) if options.kafka else on_barnabas(faults)
        for name in options.names or [name for name in client_names() if load_client(name).secured is not None]:
            try:
                outcomes = run_one(name, runs, options.runs)
            except ClientBroken as broken:
                print(f"{name}: {broken}", flush=True)
                bad += 1
                continue
            bad += differing(outcomes, is_compared=options.kafka)
            if options.record:
                keep(outcomes)
    if options.record:
        write_tables()
    return 1 if bad else 0


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a client; without one all of them")
    parser.add_argument("--fault", action="append", choices=[*FAULTS, *CHANGES], help="this one; may be repeated")
    parser.add_argument("--runs", type=int, default=1, help="of each cell")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--record", action="store_true", help="keep the result, and write the table")
    how.add_argument("--kafka", action="store_true", help="on Apache Kafka; compare with what is kept")
    return parser.parse_args(words)


def on_barnabas(faults: Sequence[str]) -> dict[str, Run]:
    """How each fault is run: with fresh brokers."""
    return {fault: cell if fault in FAULTS else cluster_cell for fault in faults}


def on_kafka(stack: ExitStack, faults: Sequence[str]) -> dict[str, Run]:
    """How each of those is run that can be provoked there: on one broker, and on three, which are started once."""
    from compat_tests.faults.provoked import HARMS, PROVOKED, ProxiedKafka, kafka_cell

    runs: dict[str, Run] = {}
    for names, size in ((HARMS, 1), (PROVOKED, CLUSTER_SIZE)):
        wanted = [fault for fault in faults if fault in names]
        if wanted:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-kafka-")))
            kafka = stack.enter_context(ProxiedKafka(directory, size))
            runs |= dict.fromkeys(wanted, lambda *asked, kafka=kafka: kafka_cell(kafka, *asked))
    return runs


def run_one(name: str, runs: dict[str, Run], times: int) -> Outcomes:
    """All cells of a client."""
    client = load_client(name)
    missing = [tool for tool in client.tools if shutil.which(tool) is None]
    if missing or client.secured is None:
        raise ClientBroken(f"{', '.join(missing) or 'its program'} not found")
    session = Session(folder_of(name), WORK / f"{name}-faults", "")
    outcomes: Outcomes = {}
    for version, command in client.secured(session).items():
        label = f"{name} {version}".strip()
        outcomes[label] = {}
        for fault, run in runs.items():
            cells = [run(session, [str(word) for word in command], fault) for _ in range(times)]
            outcomes[label][fault] = cell_text(label, fault, cells)
            seconds = [each.seconds for each in cells]
            print(f"{label}: {fault}: {outcomes[label][fault]} {seconds} s", flush=True)
    return outcomes


def differing(outcomes: Outcomes, *, is_compared: bool) -> int:
    """How many cells differ between runs, or from what is kept if that is compared, or lose a record in silence."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    bad = 0
    for label, cells in outcomes.items():
        for fault, text in cells.items():
            expected = kept[label][fault] if is_compared else text
            is_as_kept = outcomes_of(text) <= outcomes_of(expected)
            if not is_stable(label, fault, text) or "silence" in text or not is_as_kept:
                print(f"{label}: {fault}: {text}; kept: {expected}", flush=True)
                bad += 1
    return bad


def keep(outcomes: Outcomes) -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    for label, cells in outcomes.items():
        kept.setdefault(label, {}).update(cells)
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
