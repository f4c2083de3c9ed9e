"""The command line (edge): `barnabas serve | apis | config | log | store | version`.

Start-up must be fast, so the top of this file imports only click and the version, and each command imports what it
needs. Other packages add commands with entry points of the group `barnabas.commands`.

Exit status: 2 for an error in the configuration, 1 for a failure outside the program (a port in use, a full disk), each
with one message and no traceback.
"""

import functools
import gc
import json
import os
import stat
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from barnabas import __version__
from barnabas.form import FORM
from barnabas.status import STATUS_FAILED, STATUS_MISUSED

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from barnabas.broker.life import Life
    from barnabas.broker.process.run import Beside
    from barnabas.broker.process.store_transfer import Place
    from barnabas.config.live import BrokerConfig
    from barnabas.config.parse import Setting
    from barnabas.console.console import OpenConsole
    from barnabas.world.world import World

COMMANDS_GROUP = "barnabas.commands"
# A broker that is just tried has no login for its page, so the page is bound to the loopback
# address.
PAGE_ADDRESS = "127.0.0.1:9644"
# The commands for a cluster, each in the file of this name: most starts of this program are for another one.
OF_CLUSTERS = {
    "acls": "acls",
    "bench": "bench",
    "brokers": "brokers",
    "check": "check",
    "consume": "consume",
    "elect": "elect",
    "groups": "groups",
    "move": "move",
    "produce": "produce",
    "quotas": "quotas",
    "topics": "topics",
}
# Those that need no cluster, and are not of this file.
OF_THE_PROGRAM = {"cheat": "cheat", "completion": "completion", "image": "image"}


class Commands(click.Group):
    """The commands of this file, and those that installed packages add."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        # Entry points are read only for unknown names and for help: that takes longer than the rest of the start.
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        file = OF_CLUSTERS.get(cmd_name) or OF_THE_PROGRAM.get(cmd_name)
        if file is not None:
            module = import_module(f"barnabas.cli.{file}")
            command: click.Command = getattr(module, cmd_name)
            return command
        return next((load_command(point) for point in self._installed() if point.name == cmd_name), None)

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

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(
            {*super().list_commands(ctx), *OF_CLUSTERS, *OF_THE_PROGRAM, *(point.name for point in self._installed())}
        )

    def _installed(self) -> "EntryPoints":
        from importlib.metadata import entry_points  # slow: reads the metadata of every installed package

        return entry_points(group=COMMANDS_GROUP)


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
    commands(prog_name="barnabas")


def fail(message: str, status: int) -> NoReturn:
    """Exit with one error message."""
    for line in message.splitlines():
        click.echo(f"barnabas: {line}", err=True)
    sys.exit(status)


def print_help_as_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """What --help-json does: one line for each command."""
    if not value or context.resilient_parsing:
        return
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


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines.")
# Several commands share these options, so that each name means the same everywhere.
properties_file = click.argument(
    "properties_file", metavar="[server.properties]", required=False, type=click.Path(exists=True, dir_okay=False)
)
assignments = click.option(
    "--set", "assignments", metavar="KEY=VALUE", multiple=True, help="Set a property; overrides the file."
)


@commands.command()
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
        failure = run_broker(config, print_line, beside(config, page_address))

    # When the reader of standard error has stopped reading, the interpreter's flush at exit would wait for it.
    if output.is_stuck:
        os._exit(STATUS_FAILED if failure else 0)
    if failure is not None:
        fail(failure.message, STATUS_MISUSED if failure.misconfigured else STATUS_FAILED)


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


def gather_settings(
    properties_file: str | None, data_dir: str | None, listen: str | None, assignments: Iterable[str]
) -> "list[Setting]":
    """All settings, in ascending order of precedence: the file, the named options, `--set`. Raises ConfigError."""
    from barnabas.config.parse import ConfigError, Setting, parse_assignment, parse_properties

    # Later settings of one name win, so the order of these steps is the precedence.
    settings = []
    if properties_file is not None:
        with open(properties_file, encoding="latin-1") as file:  # as Java reads properties
            settings += parse_properties(file.read(), properties_file)
    if listen is not None:
        settings.append(Setting("listeners", f"PLAINTEXT://{listen}", "--listen"))
    settings += [parse_assignment(text) for text in assignments]
    if data_dir is not None:
        # A broker that starts with an empty directory beside the one that was meant seems to have lost everything.
        for setting in settings:
            if setting.name in ("log.dir", "log.dirs"):
                why = f"{setting.name} and --data-dir both say where the data are: give one of them"
                raise ConfigError([setting.problem(f"{why} (--set log.dirs=DIR overrides a file)")])
        settings.append(Setting("log.dirs", data_dir, "--data-dir"))

    if any(setting.name == "config.providers" for setting in settings):
        # Providers read files and variables. They are resolved here, after all sources were
        # gathered, because `--set` may name one too.
        from barnabas.config.providers import resolve

        settings = resolve(settings, os.environ)

    return settings


@commands.command()
@as_json
def version(as_json: bool) -> None:
    """Print the version, and the form: pure Python, or compiled."""
    import platform

    if as_json:
        print_json({"barnabas": __version__, "form": FORM, "python": platform.python_version()})
    else:
        click.echo(f"barnabas {__version__} ({FORM})")


@commands.command()
@click.option("--all", "every", is_flag=True, help="Also those that are not served.")
@as_json
def apis(every: bool, as_json: bool) -> None:
    """List the APIs that are served, and their versions."""
    from barnabas.wire.apis import APIS

    shown = [api for _, api in sorted(APIS.items()) if every or api.served]
    if as_json:
        print_json([api._asdict() for api in shown])
        return
    rows = [("KEY", "NAME", "VERSIONS", "FLEXIBLE FROM", "SERVED")]
    for api in shown:
        flexible = "" if api.flexible_from is None else str(api.flexible_from)
        versions = f"{api.min_version}-{api.max_version}"
        rows.append((str(api.key), api.name, versions, flexible, "yes" if api.served else "no"))
    print_columns(rows)


@commands.command()
@properties_file
@assignments
@click.option("--topic", is_flag=True, help="The properties of topics, with the defaults that this broker gives them.")
@click.option("--listeners", is_flag=True, help="What each listener and mechanism gets, and by which property.")
@click.option("--docs", is_flag=True, help="Also the description and the allowed values of each property.")
@as_json
def config(
    properties_file: str | None, assignments: Sequence[str], topic: bool, listeners: bool, docs: bool, as_json: bool
) -> None:
    """Show every property, its value, and where the value comes from."""
    from barnabas.config.live import BrokerConfig
    from barnabas.config.parse import ConfigError
    from barnabas.config.report import broker_report, listener_report, topic_report

    try:
        config = BrokerConfig(gather_settings(properties_file, None, None, assignments))
        report = (topic_report if topic else listener_report if listeners else broker_report)(config)
    except ConfigError as error:
        fail(str(error), STATUS_MISUSED)

    if as_json:
        print_json(report)
        return
    for line in config.warnings():
        click.echo(f"barnabas: {line}", err=True)
    for entry in report:
        scope = " ".join(filter(None, (entry.get("listener"), entry.get("mechanism"))))
        name = f"{scope}: {entry['name']}" if scope else entry["name"]
        source = " ".join(filter(None, (entry["source"], entry.get("set_by"))))
        click.echo(f"{name} = {entry['value'] or ''}  ({source}, {entry['effect']})")
        if docs:
            click.echo(f"    {entry['doc']} Allowed: {entry['allowed']}. Changes: {entry['update']}.")


@commands.group()
def log() -> None:
    """Look into partition logs on disk."""


@log.command()
@click.argument("path", metavar="FILE|DIR", type=click.Path(exists=True))
@click.option("--records", is_flag=True, help="Also each record of a log; those of internal topics are decoded.")
@as_json
def dump(path: str, records: bool, as_json: bool) -> None:
    """Print the content of a log, index, snapshot or checkpoint FILE, or of all such files in DIR.

    DIR is a data directory, or the directory of one partition in it. Times are in UTC; with --json, in milliseconds
    since 1970.
    """
    from barnabas.broker.process.dump_lines import dump_lines
    from barnabas.cli.progress import counted
    from barnabas.storage.disk import StorageError
    from barnabas.storage.osdisk import OsDisk

    disk = OsDisk()
    # A file that cannot be read does not keep the others from being printed. Its error comes at the
    # end, where it is seen.
    failures: list[StorageError] = []
    try:
        lines = dump_lines(disk, disk.absolute_path(path), failures, records=records, as_json=as_json)
        for line in counted(lines, "log dump", None, " lines", beside_output=True):
            click.echo(line)
    except StorageError as error:
        failures.append(error)

    if failures:
        fail("\n".join(map(str, failures)), STATUS_FAILED)


@log.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@as_json
def check(directory: str, as_json: bool) -> None:
    """Check the logs of a data DIRECTORY (of a stopped broker); status 1 when something is wrong."""
    from barnabas.cli.progress import progress
    from barnabas.storage.check import check_directory
    from barnabas.storage.disk import StorageError
    from barnabas.storage.osdisk import OsDisk

    disk = OsDisk()
    try:
        with progress("log check", len(disk.list(directory)), " directories") as advance:
            findings = [str(finding) for finding in check_directory(disk, directory, advance)]
    except StorageError as error:
        fail(str(error), STATUS_FAILED)

    if as_json:
        print_json({"directory": directory, "findings": findings})
    else:
        for finding in findings:
            click.echo(finding)
        click.echo(f"{directory}: {f'{len(findings)} findings' if findings else 'nothing wrong'}")

    if findings:
        sys.exit(STATUS_FAILED)


@commands.group()
def store() -> None:
    """Transfer a cluster's metadata from one store into another, and prepare one for a first start.

    A store is ZooKeeper, or embedded in the data directory of a stopped broker.
    """


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


@store.command("export")
@names_a_store
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), default="-")
def export_store(place: "Place", file: str) -> None:
    """Write the content of a store to FILE (or standard output), as JSON.

    It holds the keys of SCRAM users, so only the owner of FILE may read it.
    """
    import trio

    from barnabas.broker.process import store_transfer
    from barnabas.controller.store.store import StoreError

    try:
        text = trio.run(store_transfer.export_store, place)
    except StoreError as error:
        fail(str(error), STATUS_FAILED)

    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        _write_private(file, text)
    except OSError as error:
        fail(f"{file}: {error.strerror}", STATUS_FAILED)


def _write_private(path: str, text: str) -> None:
    """Write a file that only its owner may read, also if it was there. OSError."""
    # The mode of `open` holds only for a new file. An old one is closed to others by `fchmod`,
    # before anything is written.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        # A pipe or a device such as /dev/stdout keeps its mode and has no length.
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.fchmod(descriptor, 0o600)
            os.ftruncate(descriptor, 0)
        file.write(text)


@store.command("import")
@names_a_store
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
@as_json
def import_store(place: "Place", file: TextIO, as_json: bool) -> None:
    """Fill an empty store from FILE (or standard input), which `barnabas store export` wrote."""
    import trio

    from barnabas.broker.process import store_transfer
    from barnabas.controller.store.store import StoreError
    from barnabas.controller.store.transfer import ExportMalformed
    from barnabas.storage.disk import StorageError

    try:
        count = trio.run(store_transfer.import_store, place, file.read())
    except (ExportMalformed, UnicodeDecodeError) as error:
        fail(f"{file.name}: {error}", STATUS_FAILED)
    except (StoreError, StorageError) as error:
        fail(str(error), STATUS_FAILED)

    if as_json:
        print_json({"nodes": count})
    else:
        click.echo(f"{count} nodes written")


@store.group()
def scram() -> None:
    """SCRAM credentials of users in a store.

    Brokers that log in to each other by SCRAM need theirs before the first start.
    """


MECHANISM_NAMES = ("SCRAM-SHA-256", "SCRAM-SHA-512")
scram_mechanisms = click.option(
    "--mechanism", "mechanisms", type=click.Choice(MECHANISM_NAMES), multiple=True, help="Both if it is not given."
)


@scram.command("add")
@names_a_store
@scram_mechanisms
@click.option("--iterations", type=click.IntRange(4096, 16384), default=4096, show_default=True)
@click.option("--password-file", type=click.File("r", encoding="utf-8"), help="Its first line; - is standard input.")
@click.option("--password-env", metavar="NAME", help="The environment variable that has the password.")
@click.argument("user")
@as_json
def add_scram(
    place: "Place",
    mechanisms: Sequence[str],
    iterations: int,
    password_file: TextIO | None,
    password_env: str | None,
    user: str,
    as_json: bool,
) -> None:
    """Set the credentials of a USER. The password is asked for unless a file or a variable has it."""
    require_user(user)
    # The arguments are checked before the imports below, which take most of the time of this
    # command.
    password = scram_password(password_file, password_env)
    import trio

    from barnabas.broker.process import scram_users
    from barnabas.controller.store.store import StoreError
    from barnabas.storage.disk import StorageError

    written = mechanisms or MECHANISM_NAMES
    try:
        trio.run(scram_users.add, place, user, written, iterations, password)
    except (StoreError, StorageError) as error:
        fail(str(error), STATUS_FAILED)

    if as_json:
        print_json({"user": user, "mechanisms": written})
    else:
        click.echo(f"{user}: {', '.join(written)} written")


@scram.command("list")
@names_a_store
@as_json
def list_scram(place: "Place", as_json: bool) -> None:
    """List the credentials of all users, without keys."""
    import trio

    from barnabas.broker.process import scram_users
    from barnabas.controller.store.store import StoreError

    try:
        listed = trio.run(scram_users.list_all, place)
    except StoreError as error:
        fail(str(error), STATUS_FAILED)
    if as_json:
        print_json([each._asdict() for each in listed])
        return
    rows = [(each.user, each.mechanism, str(each.iterations or "malformed")) for each in listed]
    print_columns([("USER", "MECHANISM", "ITERATIONS"), *rows])


@scram.command("remove")
@names_a_store
@scram_mechanisms
@click.argument("user")
@as_json
def remove_scram(place: "Place", mechanisms: Sequence[str], user: str, as_json: bool) -> None:
    """Remove the credentials of a USER."""
    require_user(user)
    import trio

    from barnabas.broker.process import scram_users
    from barnabas.controller.store.store import StoreError

    asked = mechanisms or MECHANISM_NAMES
    try:
        removed = trio.run(scram_users.remove, place, user, asked)
    except StoreError as error:
        fail(str(error), STATUS_FAILED)

    if not removed:
        fail(f"{user} has no credential of {' or '.join(asked)}", STATUS_FAILED)
    if as_json:
        print_json({"user": user, "mechanisms": removed})
    else:
        click.echo(f"{user}: {', '.join(removed)} removed")


def require_user(user: str) -> None:
    """UsageError if this is no name of a user."""
    if not user:
        raise click.UsageError("The name of a user is not empty.")
    require_text(user, "name of the user")


def scram_password(file: TextIO | None, variable: str | None) -> str:
    """The password: never from the arguments, which every user of the machine can list."""
    if file is not None and variable is not None:
        # Neither source wins silently: a script that gives both has probably forgotten one of them.
        raise click.UsageError("Where is the password? Give either --password-file or --password-env.")
    if file is not None:
        try:
            # An editor ends the line with a newline, which is no part of the password. Blanks at
            # its end may be.
            password = file.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            raise click.UsageError(f"{file.name}: the password is not UTF-8.") from None
    elif variable is not None:
        password = os.environ.get(variable, "")
    # Without a terminal the prompt would show what is typed.
    elif not sys.stdin.isatty():
        raise click.UsageError("There is no terminal to ask for the password: give --password-file or --password-env.")
    else:
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)

    if not password:
        raise click.UsageError("The password is empty, or not there.")
    require_text(password, "password")
    return password


def require_text(value: str, name: str) -> None:
    """UsageError for bytes of the command line or of a variable that are not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"The {name} is not UTF-8.") from None


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


def print_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, indent=2))


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of cells in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
