"""`barnabas lab`: brokers in one process, with their faults, time and links over HTTP, until Ctrl-C (edge).

The command is found by its entry point. Nothing but click is imported before it runs.
"""

import signal
import sys
import threading
from typing import NoReturn

import click

STATUS_FAILED = 1
CONTROL_ADDRESS = "127.0.0.1:9645"


@click.command()
@click.option("--brokers", type=click.IntRange(1, 100), default=3, show_default=True, help="How many brokers.")
@click.option("--data-dir", metavar="DIR", help="Keep the data in this directory; without it they are in memory.")
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    default=CONTROL_ADDRESS,
    show_default=True,
    help="Where faults are set, on a loopback address; port 0 picks a free one.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME[:PARTITIONS]", help="Create a topic.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Set a property of all brokers.")
def lab(
    brokers: int, data_dir: str | None, address: str, topics: tuple[str, ...], assignments: tuple[str, ...]
) -> None:
    """Run brokers that misbehave when they are asked to, over HTTP, until Ctrl-C."""
    from barnabas.testing.cluster.cluster import LocalCluster
    from barnabas.testing.errors import LocalBrokerError
    from barnabas.testing.lab.control import Laboratory

    # Before the brokers start: Ctrl-C ends a start that takes long, too.
    ended = _signals()
    try:
        cluster = LocalCluster(
            brokers, data_dir=data_dir, config=_properties(assignments), topics=_topics(topics, min(brokers, 3))
        )
        with cluster, Laboratory(cluster, address) as laboratory:
            click.echo(f"bootstrap {cluster.bootstrap_servers}")
            click.echo(f"control {laboratory.url}v1/")
            ended.wait()
    except (LocalBrokerError, OSError) as error:
        _fail(str(error))


def _signals() -> threading.Event:
    """Set by SIGINT and SIGTERM; the second one ends the process at once."""
    ended = threading.Event()

    def end(number: int, frame: object) -> None:
        if ended.is_set():
            sys.exit(128 + number)
        ended.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return ended


def _topics(given: tuple[str, ...], replicas: int) -> dict[str, tuple[int, int]]:
    sizes = {}
    for text in given:
        name, _, partitions = text.partition(":")
        if partitions and not partitions.isdecimal():
            _fail(f"--topic {text}: a name, or a name with a number of partitions, such as orders:6")
        sizes[name] = (int(partitions or 1), replicas)
    return sizes


def _properties(assignments: tuple[str, ...]) -> dict[str, str]:
    for text in assignments:
        if "=" not in text:
            _fail(f"--set {text}: a property and its value, such as num.partitions=3")
    return dict(tuple(text.split("=", 1)) for text in assignments)  # type: ignore[misc]  # two parts each


def _fail(message: str) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"barnabas: {line}", err=True)
    sys.exit(STATUS_FAILED)
