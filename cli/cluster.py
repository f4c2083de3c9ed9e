"""What the commands for a cluster share: how it is named, the run on Trio, and the end of a failure (edge).

They speak to any Kafka from 2.8 on. The cluster is named by `-b`, by BARNABAS_BOOTSTRAP, or in a file of client
properties (`--command-config`); otherwise it is 127.0.0.1:9092.
"""

import functools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

import click

from barnabas.cli.failing import discard_output
from barnabas.cli.output import warn
from barnabas.status import STATUS_FAILED, STATUS_INTERRUPTED, STATUS_MISUSED

if TYPE_CHECKING:
    from barnabas.cli.repeating import RepeatingCluster

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_SECONDS_MAX = 2_000_000  # requests have 31 bits for milliseconds

Result = TypeVar("Result")


class Target(NamedTuple):
    """The cluster that a command is for."""

    bootstrap: str | None
    command_config: str | None
    timeout_seconds: float


def for_a_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Options that name a cluster; the command gets them as `target`."""

    @click.option("-b", "--bootstrap", metavar="HOST:PORT", help=f"A broker of the cluster [{DEFAULT_BOOTSTRAP}].")
    @click.option(
        "--command-config",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Properties of a client, as Kafka's tools take them: TLS, a login, bootstrap.servers.",
    )
    @click.option(
        "--timeout",
        "timeout_seconds",
        type=float,
        default=30.0,
        callback=_seconds,
        help="Seconds to wait for an answer [30].",
    )
    @functools.wraps(command)
    def run(
        *arguments: object,
        bootstrap: str | None,
        command_config: str | None,
        timeout_seconds: float,
        **options: object,
    ) -> None:
        _must_be_text(click.get_current_context())
        command(*arguments, target=Target(bootstrap, command_config, timeout_seconds), **options)

    return run


def _seconds(_context: click.Context, _parameter: click.Parameter, seconds: float) -> float:
    # NaN is in no range.
    if not 0 < seconds <= TIMEOUT_SECONDS_MAX:
        raise click.BadParameter(f"{seconds} is no time above 0 and up to {TIMEOUT_SECONDS_MAX} seconds")
    return seconds


def _must_be_text(context: click.Context) -> None:
    """Refuse arguments that are no UTF-8, as texts of the protocol are. Names of files may be any bytes."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and not isinstance(parameter.type, click.Path) and _is_broken(text):
                raise click.BadParameter(f"{text!r} is no UTF-8", context, parameter)


def _is_broken(text: str) -> bool:
    # Python decodes bytes of the command line that are no UTF-8 as surrogates.
    return any("\ud800" <= character <= "\udfff" for character in text)


def run_with(target: Target, work: "Callable[[RepeatingCluster], Awaitable[Result]]") -> Result:
    """The result of `work`, run with the cluster. Failures end the program with one message and no traceback."""
    import trio

    from barnabas.client.errors import ClientError

    try:
        return trio.run(_work, target, work)
    except ClientError as error:
        warn(str(error))
        sys.exit(STATUS_FAILED)
    # A person who ends a command knows why it ended.
    except KeyboardInterrupt:
        sys.exit(STATUS_INTERRUPTED)
    except BrokenPipeError:
        end_quietly()


def end_quietly() -> NoReturn:
    """End as a program does whose reader has left: without a message, by SIGPIPE."""
    discard_output()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGPIPE)
    sys.exit(STATUS_FAILED)  # where the signal is blocked


async def _work(target: Target, work: "Callable[[RepeatingCluster], Awaitable[Result]]") -> Result:
    from barnabas.cli.repeating import RepeatingCluster
    from barnabas.client.settings import access_of, bootstrap_of, security_of
    from barnabas.world.net import OsNet
    from barnabas.world.world import in_worker_thread, real_world

    # What is typed overrides the environment, and the environment a file that several commands share.
    properties = properties_of(target.command_config)
    bootstrap = target.bootstrap or os.environ.get("BARNABAS_BOOTSTRAP") or properties.get("bootstrap.servers")
    net = OsNet()
    access = await access_of(security_of(properties), real_world(net))
    with RepeatingCluster(
        net,
        bootstrap_of(bootstrap or DEFAULT_BOOTSTRAP),
        access,
        timeout_seconds=target.timeout_seconds,
        in_thread=in_worker_thread,
    ) as cluster:
        return await work(cluster)


def properties_of(file_name: str | None) -> Mapping[str, str]:
    """The properties of a file; none without a file. The program ends if it cannot be read as such."""
    if file_name is None:
        return {}
    from barnabas.config.parse import ConfigError, parse_properties

    with open(file_name, encoding="latin-1") as file:  # as Java reads properties
        try:
            return {setting.name: setting.text for setting in parse_properties(file.read(), file_name)}
        except ConfigError as error:
            click.echo(f"barnabas: {error}", err=True)
            sys.exit(STATUS_MISUSED)
