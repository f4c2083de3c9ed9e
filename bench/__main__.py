"""Run measurements and print their tables: `python -m bench [--quick] [--pairs N] [NAME …]`, everything without names.

`kafka` stands for all comparisons of one broker with Apache Kafka, `cluster` for those of three, `growth` for many
connections, partitions and groups, `transactions` for transactions on one broker and on three, `tls` for TLS and
logins. A run of all of one kind, not quick, writes its page in `docs/`.
"""

import argparse
import os
import shutil
import sys
from pathlib import Path

from bench.measurements import MEASUREMENTS

COMPARISONS = {
    "kafka": ("java-10B", "java-100B", "java-1kB", "java-10kB", "latency", "confluent", "kafka-python", "start"),
    "cluster": (
        *("cluster-10B", "cluster-100B", "cluster-1kB", "cluster-10kB"),
        *("cluster-1kB-10-partitions", "cluster-1kB-4-producers"),
        *("cluster-latency", "cluster-partitions"),
    ),
    "transactions": (
        *(
            f"{place}-{case}"
            for place in ("transactions", "transactions-cluster")
            for case in ("100B", "1kB", "one-by-one", "at-once")
        ),
        "transactions-mocked",
    ),
    "tls": ("tls-1kB", "tls-10kB", "tls-requests", "tls-logins", "tls-idle"),
    "growth": ("connections", "one-by-one", "groups", "lookups", "keys", "many-partitions", "cold"),
}
KNOWN = [*COMPARISONS, *(name for names in COMPARISONS.values() for name in names), *MEASUREMENTS]
QUICK_PAIRS, QUICK_SHRINK = 1, 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Barnabas on this machine.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KNOWN))
    parser.add_argument("--quick", action="store_true", help="one short pair each: does everything run?")
    parser.add_argument("--pairs", type=int, default=5, help="how many pairs of each comparison (5)")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="only: is this one slower than that one?")
    options = parser.parse_args()
    if options.before is not None:
        from bench import before

        return 1 if before.compare(options.before, options.pairs) else 0
    names = options.names or [*MEASUREMENTS, *COMPARISONS]
    unknown = [name for name in names if name not in KNOWN]
    if unknown:
        parser.error(f"no measurement {unknown[0]!r}; there are: {', '.join(KNOWN)}")
    load = os.getloadavg()[0]
    failed = 0
    for kind, members in COMPARISONS.items():
        wanted = [name for name in members if name in names or kind in names]
        if wanted:
            failed += compare(kind, wanted, options, load)
    for name in MEASUREMENTS:
        if name in names:
            print(f"\n## {MEASUREMENTS[name].__doc__.splitlines()[0]}\n", flush=True)
            MEASUREMENTS[name]()
    return 1 if failed else 0


def compare(kind: str, wanted: list[str], options: argparse.Namespace, load: float) -> int:
    """Run comparisons, write the page if they are all of their kind and not quick; how many runs failed."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        print(f"Apache Kafka needs {' and '.join(missing)} on the path: nothing is compared", file=sys.stderr)
        return 1 if options.names else 0
    from bench import against_kafka, cluster, growth, pairs, report, run, tls, transactions

    # What a run is made by, its cases, and what its lines are called on a page of several runs.
    parts, page = {
        "kafka": ([(against_kafka.BrokerRun, against_kafka.CASES, "")], report.BROKER_PAGE),
        "cluster": ([(cluster.ClusterRun, cluster.CASES, "")], report.CLUSTER_PAGE),
        "transactions": (
            [
                (against_kafka.BrokerRun, transactions.BROKER_CASES, ", one broker"),
                (cluster.ClusterRun, transactions.CLUSTER_CASES, ", three brokers"),
            ],
            report.TRANSACTIONS_PAGE,
        ),
        "tls": ([(tls.TlsRun, tls.CASES, "")], report.TLS_PAGE),
        "growth": ([(against_kafka.BrokerRun, growth.CASES, "")], report.GROWTH_PAGE),
    }[kind]
    count, shrink = (QUICK_PAIRS, QUICK_SHRINK) if options.quick else (options.pairs, 1)
    print(f"\n## {page.title}\n", flush=True)
    book = pairs.Book()
    for make, cases, place in parts:
        names = [name for name in wanted if name in cases]
        if names:
            book.add_all(run.compare(make, cases, names, pairs=count, shrink=shrink), place)
    if not options.quick and wanted == list(COMPARISONS[kind]):
        report.write_report(page, book, count, load)
        print(f"\nwritten: docs/{page.name}.md", flush=True)
    return len(book.failures)


if __name__ == "__main__":
    sys.exit(main())
