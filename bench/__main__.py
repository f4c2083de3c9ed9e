"""Run measurements and print their tables: `python -m bench [--quick] [--pairs N] [NAME …]`, everything without names.

`kafka` stands for all comparisons with Apache Kafka. A run of all of them, not quick, writes `docs/performance.md`.
"""

import argparse
import os
import shutil
import sys

from bench.measurements import MEASUREMENTS

COMPARISONS = ("java-10B", "java-100B", "java-1kB", "java-10kB", "latency", "confluent", "kafka-python", "start")
QUICK_PAIRS, QUICK_SHRINK = 1, 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Barnabas on this machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(["kafka", *COMPARISONS, *MEASUREMENTS]))
    parser.add_argument("--quick", action="store_true", help="one short pair each: does everything run?")
    parser.add_argument("--pairs", type=int, default=5, help="how many pairs of each comparison (5)")
    options = parser.parse_args()
    names = options.names or [*MEASUREMENTS, "kafka"]
    unknown = [name for name in names if name not in {"kafka", *COMPARISONS, *MEASUREMENTS}]
    if unknown:
        parser.error(f"no measurement {unknown[0]!r}; there are: kafka, {', '.join([*COMPARISONS, *MEASUREMENTS])}")
    load = os.getloadavg()[0]
    failed = 0
    comparisons = [name for name in COMPARISONS if name in names or "kafka" in names]
    if comparisons:
        failed += compare(comparisons, options, load)
    for name in MEASUREMENTS:
        if name in names:
            print(f"\n## {MEASUREMENTS[name].__doc__.splitlines()[0]}\n", flush=True)
            MEASUREMENTS[name]()
    return 1 if failed else 0


def compare(comparisons: list[str], options: argparse.Namespace, load: float) -> int:
    """Run comparisons, write the page if they are all and not quick; how many runs failed."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        print(f"Apache Kafka needs {' and '.join(missing)} on the path: nothing is compared", file=sys.stderr)
        return 1 if options.names else 0
    from bench import against_kafka, report

    pairs, shrink = (QUICK_PAIRS, QUICK_SHRINK) if options.quick else (options.pairs, 1)
    print("\n## Barnabas beside Apache Kafka\n", flush=True)
    book = against_kafka.compare(comparisons, pairs=pairs, shrink=shrink)
    if not options.quick and comparisons == list(COMPARISONS):
        report.write_report(book, pairs, load)
        print("\nwritten: docs/performance.md", flush=True)
    return len(book.failures)


if __name__ == "__main__":
    sys.exit(main())
