"""`barnabas serve`: run a broker (edge)."""

import gc
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from barnabas.cli.failing import fail
from barnabas.cli.settings import assignments, gather_settings, properties_file
from barnabas.progress import time_left_text
from barnabas.status import STATUS_FAILED, STATUS_MISUSED

if TYPE_CHECKING:
    from barnabas.broker.life import Life
    from barnabas.broker.process.run import Beside
    from barnabas.config.live import BrokerConfig
    from barnabas.console.console import OpenConsole
    from barnabas.world.world import World

# A broker that is just tried has no login for its page, so the page is bound to the loopback
# address.
PAGE_ADDRESS = "127.0.0.1:9644"


@click.command()
@properties_file
@click.option("--data-dir", metavar="DIR", help="Where to keep data (log.dirs); barnabas-data by default.")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen (listeners); port 0 picks a free one.")
@assignments
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines as text, or each as a JSON object.",
)
def serve(
    properties_file: str | None,
    data_dir: str | None,
    listen: str | None,
    assignments: Sequence[str],
    log_level: str,
    log_format: str,
) -> None:
    """Run a broker until SIGTERM or SIGINT."""
    # Imported objects are never freed, so collecting garbage during the start is wasted. `run.py` enables the collector
    # when the broker is ready.
    gc.disable()
    from barnabas.config.live import BrokerConfig
    from barnabas.config.parse import ConfigError

    try:
        config = BrokerConfig(gather_settings(properties_file, data_dir, listen, assignments))
    except ConfigError as error:
        fail(str(error), STATUS_MISUSED)

    # A person who just tries a broker gets the page. One who has written a configuration decides.
    is_tried = properties_file is None and config.zookeeper_connect is None
    run_until_stopped(config, click.echo, PAGE_ADDRESS if is_tried else "", log_level, log_format)


def run_until_stopped(
    config: "BrokerConfig", print_line: Callable[[str], None], page_address: str, log_level: str, log_format: str
) -> None:
    """Run a broker until a signal; `print_line` gets its ready line. The program ends if the broker fails."""
    # These imports take a while, and a wrong configuration is reported without them.
    from barnabas.broker.process.log_output import logging_to, standard_error
    from barnabas.broker.process.run import run_broker

    with logging_to(standard_error(), log_level.upper(), log_format) as output:
        # A person sees a line that is rewritten; in a file there is one every ten seconds.
        is_seen = log_format == "text" and sys.stderr.isatty()
        show = partial(show_loading, output.show) if is_seen else None
        failure = run_broker(config, print_line, beside(config, page_address), show)

    # When the reader of standard error has stopped reading, the interpreter's flush at exit would wait for it.
    if output.is_stuck:
        os._exit(STATUS_FAILED if failure else 0)
    if failure is not None:
        fail(failure.message, STATUS_MISUSED if failure.misconfigured else STATUS_FAILED)


def show_loading(show_line: Callable[[str], None], done: int, total: int, seconds: float) -> None:
    """Write how many logs are loaded, and how long it takes still."""
    show_line(f"{done:,} of {total:,} logs are loaded{time_left_text(done, total - done, seconds)}")


def beside(config: "BrokerConfig", default_address: str) -> "Beside | None":
    """What serves HTTP: at the address of the configuration or, without it, at `default_address`; None: nothing."""
    from barnabas.broker.process.run import Beside

    # An empty value in the configuration is an answer, too: nothing listens, although a broker is just tried.
    configured = config.barnabas_http_listener
    is_given = config.origin_of("barnabas.http.listener") is not None
    address = configured if is_given else default_address
    if not address:
        return None

    async def open_it(life: "Life", world: "World") -> "Callable[[], Awaitable[None]]":
        # The import takes as long as forty requests, and clients are served meanwhile.
        open_console = await world.in_thread(_imported_console)
        # It listens when this returns, so that a bad address is an error of the start. The function
        # that it returns serves until the broker ends.
        return await open_console(world.net, address, life, click.echo)

    return Beside(open_it, is_required=is_given)


def _imported_console() -> "OpenConsole":
    # Nothing of HTTP is imported before something listens.
    from barnabas.console.console import open_console

    return open_console
