"""The command line: `barnabas pipeline archive | restore | audit | segments`.

The group `pipeline` is found by its entry point (`barnabas.commands`). It imports nothing but click: what a command
needs is imported when it runs, so that asking for help costs no Spark, and works without it. `--json` prints lines for
machines on standard output; progress for people goes to standard error.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATUS_FAILED = 1
STATUS_MISCONFIGURED = 2

# Sub-commands that live beside what they run.
ELSEWHERE = {
    "audit": ("barnabas.pipeline.audit_cli", "audit_command"),
    "segments": ("barnabas.pipeline.audit_cli", "segments_command"),
}

Command = TypeVar("Command", bound=Callable[..., object])


class Jobs(click.Group):
    """The commands of this file, and those that are defined elsewhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *(name for name in ELSEWHERE if self.get_command(ctx, name))})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, attribute = ELSEWHERE[cmd_name]
        if find_spec(module) is None:
            return None
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}.{attribute} is no command"
        return command


@click.group(cls=Jobs, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Jobs on Apache Spark: archive topics, restore them, read log directories, audit a cluster."""


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON lines for machines.")


def spark_options(command: Command) -> Command:
    """The options of every command that runs Spark; they arrive as `master`, `jars` and `driver_memory`."""
    for option in (
        click.option("--driver-memory", default="1g", show_default=True, help="The memory of a Spark on this machine."),
        click.option(
            "--jars",
            multiple=True,
            metavar="PATH",
            help="The Kafka connector: jars, or a directory of them; else BARNABAS_SPARK_JARS, else Maven Central.",
        ),
        click.option("--master", default="local[2]", show_default=True, help="Spark's master."),
    ):
        command = option(command)
    return command


@contextmanager
def spark_session(name: str, master: str, jars: tuple[str, ...], driver_memory: str) -> "Iterator[SparkSession]":
    """A session for one command. Without PySpark or Java the process ends with status 2 and says what to install."""
    from barnabas.pipeline.session import MissingSpark, open_session

    try:
        spark = open_session(name, jars=jars or None, master=master, driver_memory=driver_memory)
    except MissingSpark as error:
        fail(str(error), STATUS_MISCONFIGURED)
    try:
        yield spark
    finally:
        spark.stop()


def fail(message: str, status: int) -> NoReturn:
    """End the process with one message."""
    for line in message.splitlines():
        click.echo(f"barnabas: {line}", err=True)
    sys.exit(status)


def print_line(value: object) -> None:
    """One JSON line, at once: whoever reads it may be waiting for it."""
    click.echo(json.dumps(value))
    sys.stdout.flush()
