"""Run many histories of a log directory that crashes, or one (edge).

    python -m barnabas.testing.crashes --histories 15000       all from seed 1 on, in two processes
    python -m barnabas.testing.crashes --seed 17               one; prints the broken guarantee, if any

Ends with status 1 if a guarantee was broken; each such seed is printed.
"""

import argparse
import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial

from barnabas.testing.crashes.bugs import BUGS
from barnabas.testing.crashes.history import run_history
from barnabas.testing.crashes.reports import report_of
from barnabas.testing.simulation.bugs import planted

SEEDS_A_TASK = 50


def main() -> int:
    """What the command line says."""
    description = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m barnabas.testing.crashes", description=description)
    parser.add_argument("--histories", type=int, default=1000, metavar="N", help="run so many")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="begin with this seed instead of 1")
    parser.add_argument("--seed", type=int, help="run this one, and let its failure out")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--bug", action="append", default=[], choices=BUGS, help="plant this bug")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        with planted(arguments.bug, BUGS):
            print(dict(run_history(arguments.seed)))
        return 0

    seeds = range(arguments.first, arguments.first + arguments.histories)
    return _run_many(seeds, arguments.processes, arguments.bug)


def _run_many(seeds: range, processes: int, bugs: Sequence[str]) -> int:
    counts: Counter[str] = Counter()
    failures = 0
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for number, report in enumerate(pool.imap_unordered(partial(report_of, bugs=bugs), seeds, SEEDS_A_TASK), 1):
            counts += report.counts
            if report.failure is not None:
                failures += 1
                print(f"seed {report.seed}: {report.failure}", flush=True)
            if number % 1000 == 0:
                print(f"{number} of {len(seeds)} histories", flush=True)
    print(", ".join(f"{name} {count}" for name, count in sorted(counts.items())))
    print(f"{len(seeds)} histories, {failures} with a broken promise")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
