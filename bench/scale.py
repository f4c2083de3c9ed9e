"""Measures how far brokers, a controller and a cluster scale: `python -m bench.scale KIND` (`docs/scale.md`).

Not part of `make bench`: a run takes minutes and gigabytes.
"""

import argparse
import pathlib
import sys

from bench import scale_cluster, scale_controller, scale_costs, scale_replicated, scale_store, scale_transactions
from bench.scale_controller import Scale


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="Measure how far Barnabas scales.")
    kinds = parser.add_subparsers(dest="kind", required=True)

    cluster = kinds.add_parser("cluster", help="three real brokers with many partitions")
    cluster.add_argument("contender", choices=("barnabas", "kafka"))
    cluster.add_argument("--partitions", type=int, default=10_000)
    cluster.add_argument("--directory", type=pathlib.Path, help="where the data lie; default: that for temporary files")
    cluster.set_defaults(run=lambda o: scale_cluster.measure(o.contender, o.partitions, o.directory))

    controller = kinds.add_parser("controller", help="the controller, in virtual time")
    controller.add_argument("--brokers", type=int, default=30)
    controller.add_argument("--partitions", type=int, default=100_000)
    controller.set_defaults(run=lambda o: scale_controller.print_table(Scale(o.brokers, o.partitions)))

    store = kinds.add_parser("store", help="reads and writes in ZooKeeper")
    store.add_argument("--partitions", type=int, default=20_000)
    store.set_defaults(run=lambda o: scale_store.measure(o.partitions))

    replicated = kinds.add_parser("replicated", help="what a Produce costs the leader and each follower")
    replicated.set_defaults(run=lambda o: scale_replicated.measure())

    costs = kinds.add_parser("costs", help="what one broker pays for connections, partitions, groups, producer ids")
    costs.set_defaults(run=lambda o: scale_costs.print_table())

    scale_transactions.add_command(kinds)

    options = parser.parse_args()
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
