"""Measures how far brokers, a controller and a cluster scale: `python -m bench.scale cluster|…`.

Not part of `make bench`: a run takes minutes and gigabytes.
"""

import argparse
import pathlib
import sys

from bench import scale_cluster, scale_controller, scale_store


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="Measure what many partitions cost.")
    kinds = parser.add_subparsers(dest="kind", required=True)
    cluster = kinds.add_parser("cluster", help="three real brokers with many partitions")
    cluster.add_argument("contender", choices=("barnabas", "kafka"))
    cluster.add_argument("--partitions", type=int, default=10_000)
    cluster.add_argument("--directory", type=pathlib.Path, help="where data lie; a folder for temporary files")
    controller = kinds.add_parser("controller", help="the controller, in virtual time")
    controller.add_argument("--brokers", type=int, default=30)
    controller.add_argument("--partitions", type=int, default=100_000)
    store = kinds.add_parser("store", help="reads and writes in ZooKeeper")
    store.add_argument("--partitions", type=int, default=20_000)
    options = parser.parse_args()
    if options.kind == "store":
        scale_store.measure(options.partitions, None)
        return 0
    if options.kind == "controller":
        scale_controller.print_table(scale_controller.Scale(options.brokers, options.partitions))
        return 0
    scale_cluster.measure(options.contender, options.partitions, options.directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
