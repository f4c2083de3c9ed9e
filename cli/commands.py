"""The command line (edge): the group `barnabas`, and where each of its commands is.

Start-up must be fast, so the top of this file imports only click and the version. `barnabas --help` prints the table
`COMMANDS`, and the file of a command is imported when the command is called. Other packages add commands with entry
points of the group `barnabas.commands`.

Exit status: 2 for an error in the configuration, 1 for a failure outside the program (a port in use, a full disk), each
with one message and no traceback.
"""

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas import __version__
from barnabas.cli.failing import discard_output, fail
from barnabas.form import FORM
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from click.shell_completion import CompletionItem

COMMANDS_GROUP = "barnabas.commands"


class Listed(NamedTuple):
    """A command: the module that has it, under the command's name, and the first sentence of its help."""

    module: str
    summary: str


# A summary fits into one line of a terminal of 80 columns. A test compares it with the command.
COMMANDS: dict[str, Listed] = {
    "acls": Listed("barnabas.cli.acls", "ACLs: who may do what."),
    "apis": Listed("barnabas.cli.facts", "List the APIs that are served, and their versions."),
    "bench": Listed("barnabas.cli.bench", "Measure how many records a second a cluster takes and returns."),
    "brokers": Listed("barnabas.cli.brokers", "Brokers of a cluster."),
    "cheat": Listed("barnabas.cli.cheat", "Show our commands beside Kafka's scripts, kcat, rpk and kcl."),
    "check": Listed("barnabas.cli.check", "Say what keeps a cluster from being used from here."),
    "completion": Listed("barnabas.cli.completion", "Print the completion for SHELL."),
    "config": Listed("barnabas.cli.facts", "Show every property, its value, and where that comes from."),
    "consume": Listed("barnabas.cli.consume", "Print the records of TOPIC, up to its present end."),
    "elect": Listed("barnabas.cli.elect", "Elect preferred leaders: the first replica of each partition."),
    "groups": Listed("barnabas.cli.groups", "Consumer groups of a cluster."),
    "lab": Listed("barnabas.testing.lab.cli", "Run brokers that misbehave when they are asked to, over HTTP."),
    "log": Listed("barnabas.cli.log", "Look into partition logs on disk."),
    "monitor": Listed("barnabas.testing.lab.cli", "Print each request of clients, and what it was answered."),
    "move": Listed("barnabas.cli.move", "Move partitions to other brokers."),
    "pipeline": Listed("barnabas.pipeline.cli", "Jobs on Apache Spark: archive topics, restore them, audit logs."),
    "produce": Listed("barnabas.cli.produce", "Write lines of FILE or standard input to TOPIC as records."),
    "quotas": Listed("barnabas.cli.quotas", "Quotas of clients."),
    "serve": Listed("barnabas.cli.serve", "Run a broker until SIGTERM or SIGINT."),
    "store": Listed("barnabas.cli.store", "Copy a cluster's metadata between stores, and prepare a store."),
    "topics": Listed("barnabas.cli.topics", "Topics of a cluster."),
    "version": Listed("barnabas.cli.facts", "Print the version, and the form: pure Python, or compiled."),
}
# Those that programs call, not persons.
HIDDEN = {"image": "barnabas.cli.image"}


class Commands(click.Group):
    """The commands of the tables above, and those that installed packages add."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # Entry points are read only for unknown names and for help: that takes longer than the rest of the start.
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        module = COMMANDS[cmd_name].module if cmd_name in COMMANDS else HIDDEN.get(cmd_name)
        if module is not None:
            command: click.Command = getattr(import_module(module), cmd_name)
            return command
        return next((load_command(point) for point in _added() if point.name == cmd_name), None)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *COMMANDS, *HIDDEN, *(point.name for point in _added())})

    # Help and completion show summaries only, so no command of the table is imported for them.

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self._outline().format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        outline = self._outline()
        return outline.shell_complete(click.Context(outline, ctx.parent, ctx.info_name), incomplete)

    def _outline(self) -> click.Group:
        listed = [click.Command(name, short_help=row.summary) for name, row in COMMANDS.items()]
        return click.Group(params=self.params, commands=[*listed, *(load_command(point) for point in _added())])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            nearest = get_close_matches(args[0], self.list_commands(ctx), n=1)
            about = f" The nearest is {nearest[0]!r}." if nearest else ""
            raise click.UsageError(f"{error.message}{about}", ctx) from None


def _added() -> "Iterable[EntryPoint]":
    """The commands of other packages."""
    if not any(_may_add_commands(folder) for folder in sys.path):
        return ()
    # This import, and what it reads, takes as long as the rest of `barnabas --help`.
    from importlib.metadata import entry_points

    return entry_points(group=COMMANDS_GROUP)


def _may_add_commands(folder: str) -> bool:
    """Whether a package that is installed in this entry of `sys.path` names our group among its entry points."""
    if os.path.isfile(folder):
        return True  # an archive, which only `importlib.metadata` reads
    for name in os.listdir(folder or ".") if os.path.isdir(folder or ".") else ():
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:
                if COMMANDS_GROUP.encode() in file.read():
                    return True
        except OSError:
            continue  # most packages have no such file
    return False


def load_command(point: "EntryPoint") -> click.Command:
    """The command of another package. If it cannot be loaded, a command that says so, and fails."""
    try:
        command: click.Command = point.load()
    # The package is not ours, and any exception of its import would end `barnabas --help`.
    except Exception as error:
        why = f"cannot be loaded: {type(error).__name__}: {error}"
        takes_all = {"ignore_unknown_options": True, "allow_extra_args": True}
        return click.Command(
            # The command takes any arguments, so that the reason is shown whatever options the real
            # command has.
            point.name,
            callback=lambda: fail(f"the command {point.name} {why}", STATUS_FAILED),
            context_settings=takes_all,
            add_help_option=False,
            short_help=f"({why})",
        )
    return command


def main() -> None:
    """The console script."""
    if sys.platform == "win32":
        fail("Barnabas runs on Linux and macOS; Windows is not supported", STATUS_FAILED)
    try:
        commands(prog_name="barnabas")
    # Standard output may go to a disk that is full.
    except OSError as error:
        discard_output()
        where = f"{error.filename}: " if error.filename else ""
        fail(f"{where}{error.strerror or error}", STATUS_FAILED)


def print_help_as_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """What --help-json does: one line for each command."""
    if not value or context.resilient_parsing:
        return
    import json

    from barnabas.cli.describing import described

    for row in described(context.command, context):
        click.echo(json.dumps(row, ensure_ascii=False))
    context.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message=f"barnabas %(version)s ({FORM})")
@click.option(
    "--help-json",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=print_help_as_json,
    help="Describe every command in JSON, one object a line.",
)
def commands() -> None:
    """A message broker that speaks Apache Kafka's protocol."""
