"""Run the scripts against each kind of broker: python -m compat_tests.spark [SCRIPT...] [--site SITE] [--record]

Prints the running times side by side. Status 1: a script failed, or its results are not the same everywhere.
"""

import argparse
import shutil
import signal
import sys

from compat_tests.spark import report
from compat_tests.spark.run import Outcome, last_outcomes, run_site
from compat_tests.spark.sites import SITES


def main() -> int:
    options = parsed(sys.argv[1:])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # end what was started, as after Ctrl-C
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        print(f"{', '.join(missing)} not found on the path")
        return 2
    names = options.site or list(SITES)
    rounds = [in_order(names, number, options) for number in range(options.rounds)]
    kept = report.summary(rounds)
    wrong = [complaint for found in rounds for complaint in report.complaints(found)]
    print(report.table_text(kept))
    print("\n".join(wrong))
    if options.record:
        report.write(kept, rounds[0])
    return 1 if wrong else 0


def in_order(names: list[str], number: int, options: argparse.Namespace) -> dict[str, dict[str, Outcome]]:
    """One round: every other one begins with the last kind of broker."""
    if options.last:
        return {name: last_outcomes(SITES[name]) for name in names}
    taken = {name: run(name, options.scripts) for name in (names if number % 2 == 0 else names[::-1])}
    return {name: taken[name] for name in names}


def run(name: str, scripts: list[str]) -> dict[str, Outcome]:
    """Run what is wanted of a site's scripts, and say how they fared."""
    site = SITES[name]
    outcomes = run_site(site, [script for script in site.scripts if not scripts or script in scripts])
    failed = [script for script, outcome in outcomes.items() if outcome.error]
    print(f"{name}: {len(outcomes) - len(failed)} passed, {len(failed)} failed {' '.join(failed)}", flush=True)
    return outcomes


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m compat_tests.spark", description=__doc__)
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT", help="some of the scripts (all)")
    parser.add_argument("--site", action="append", choices=SITES, help="one of the kinds of broker (all)")
    parser.add_argument("--rounds", type=int, default=1, metavar="N", help="so often, in alternating order (1)")
    parser.add_argument("--last", action="store_true", help="run nothing: compare what was seen last")
    parser.add_argument("--record", action="store_true", help="keep the times, and what is seen with Apache Kafka")
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
