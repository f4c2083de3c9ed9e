"""Which store a command is for: in ZooKeeper, or in a data directory."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from barnabas.cli.failing import fail
from barnabas.cli.settings import gather_settings
from barnabas.status import STATUS_MISUSED

if TYPE_CHECKING:
    from barnabas.broker.process.store_transfer import Place


def names_a_store(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name a store, of which one is given; the command gets the place that it names."""

    @click.option("--data-dir", metavar="DIR", help="The store that is embedded in this data directory.")
    @click.option("--zookeeper", metavar="HOST:PORT[/CHROOT]", help="The store in ZooKeeper.")
    @click.option(
        "--config",
        "properties_file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="The store of the broker with these properties, with its TLS and its login at ZooKeeper.",
    )
    @functools.wraps(command)
    def run(
        *arguments: object, data_dir: str | None, zookeeper: str | None, properties_file: str | None, **options: object
    ) -> None:
        command(*arguments, place=store_place(data_dir, zookeeper, properties_file), **options)

    return run


def store_place(data_dir: str | None, zookeeper: str | None, properties_file: str | None) -> "Place":
    """Where the store is. UsageError unless exactly one of the three is given."""
    # No place is a default: an import into the wrong store could not be taken back.
    if sum(name is not None for name in (data_dir, zookeeper, properties_file)) != 1:
        raise click.UsageError("Which store? Give one of --data-dir, --zookeeper and --config.")
    import logging

    from barnabas.broker.process.store_transfer import Place, place_of_broker
    from barnabas.storage.osdisk import OsDisk

    # Without a handler, Python would print warnings about each attempt beside the one message at the end.
    for name in ("barnabas", "kazoo"):
        logging.getLogger(name).addHandler(logging.NullHandler())
    if properties_file is None:
        return Place(OsDisk(), data_dir, zookeeper)
    import trio

    from barnabas.config.live import BrokerConfig
    from barnabas.config.parse import ConfigError

    try:
        config = BrokerConfig(gather_settings(properties_file, None, None, ()))
        return trio.run(place_of_broker, OsDisk(), config)
    except ConfigError as error:
        fail(str(error), STATUS_MISUSED)
