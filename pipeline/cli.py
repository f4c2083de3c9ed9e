"""The command line (edge): `barnabas pipeline archive | restore | audit | segments`.

The group `pipeline` is listed in `cli/commands.py`. It imports nothing but click: a command imports its dependencies
when it runs, so that `--help` is fast and works without Spark. `--json` prints JSON lines on standard
output; progress goes to standard error.
"""

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from barnabas.status import STATUS_FAILED, STATUS_MISUSED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.pipeline.manifest import Batch
    from barnabas.pipeline.plan import OffsetRange, Partition, Selection
    from barnabas.pipeline.restoring import Restored
    from barnabas.pipeline.verifying import Compared

# The first line of an error of Spark's says what happened.
ERROR_CHARACTERS_MAX = 1200  # Spark's errors hold stacks and plans

# Sub-commands that live beside what they run.
ELSEWHERE = {
    "audit": ("barnabas.pipeline.audit_cli", "audit_command"),
    "segments": ("barnabas.pipeline.audit_cli", "segments_command"),
}

Command = TypeVar("Command", bound=Callable[..., object])


class Jobs(click.Group):
    """The commands of this file, and those that are defined elsewhere."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *ELSEWHERE})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, attribute = ELSEWHERE[cmd_name]
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{module}.{attribute} is no command"
        return command


@click.group(cls=Jobs, context_settings={"help_option_names": ["-h", "--help"]})
def pipeline() -> None:
    """Jobs on Apache Spark: archive topics, restore them, audit logs."""


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
    """A session for one command. Without PySpark or Java the process ends with status 2 and prints what to install."""
    from barnabas.pipeline.session import MissingSpark, open_session

    # The session opens before the archive is read, so that a missing Java is reported first.
    try:
        spark = open_session(name, jars=jars or None, master=master, driver_memory=driver_memory)
    except MissingSpark as error:
        fail(str(error), STATUS_MISUSED)
    try:
        yield spark
    finally:
        spark.stop()


bootstrap_servers = click.option(
    "--bootstrap-server", "bootstrap_servers", metavar="HOST:PORT,…", required=True, help="Where the cluster is."
)
kafka_options = click.option(
    "--kafka-option", "kafka_options", multiple=True, metavar="KEY=VALUE", help="Of Spark's Kafka source; kafka.… too."
)
client_options = click.option(
    "--client-option", "client_options", multiple=True, metavar="KEY=VALUE", help="Of librdkafka, beside Spark."
)


@pipeline.command("archive")
@click.argument("path", type=click.Path(file_okay=False, path_type=Path))
@bootstrap_servers
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; may be given more than once.")
@click.option("--pattern", metavar="REGEX", help="Topics by name, those to come included.")
@click.option("--every", "every_seconds", type=float, metavar="SECONDS", help="Go on, with a batch so often.")
@click.option("--starting", type=click.Choice(["earliest", "latest"]), default="earliest", show_default=True)
@click.option("--read-uncommitted", is_flag=True, help="Also records of transactions that are open or were aborted.")
@click.option("--batch-records", type=click.IntRange(1), default=500_000, show_default=True)
@click.option("--from-manifest", is_flag=True, help="The checkpoint is lost: go on after the manifest's last offsets.")
@kafka_options
@client_options
@spark_options
@as_json
def archive_command(  # noqa: PLR0913, PLR0917  # one for each option
    path: Path,
    bootstrap_servers: str,
    topics: tuple[str, ...],
    pattern: str | None,
    every_seconds: float | None,
    starting: str,
    read_uncommitted: bool,
    batch_records: int,
    from_manifest: bool,
    kafka_options: tuple[str, ...],
    client_options: tuple[str, ...],
    master: str,
    jars: tuple[str, ...],
    driver_memory: str,
    as_json: bool,
) -> None:
    """Add the records of topics to the archive in PATH: Parquet files and a manifest, each record exactly once.

    Run it again to add new records, or to continue a run that was killed. --every keeps it running until SIGTERM or
    SIGINT.
    """
    from barnabas.pipeline.archiving import Archived, Source, archive
    from barnabas.pipeline.progress import in_words, shown

    isolation = "read_uncommitted" if read_uncommitted else "read_committed"
    options = pairs(kafka_options)
    client = pairs(client_options)
    source = Source(bootstrap_servers, topics, pattern, starting, isolation, batch_records, options)
    with spark_session("archive", master, jars, driver_memory) as spark, explained(), shown("archive", as_json) as bar:
        # The handlers are set after the session is open, because Spark installs its own ones when
        # it starts.
        stop = stop_on_signals()
        teller = BatchTeller(bar.tell, as_json)
        done: Archived = archive(
            spark,
            path,
            source,
            every_seconds=every_seconds,
            from_manifest=from_manifest,
            client=client,
            on_batch=teller,
            stop=stop,
        )

    if as_json:
        print_line({"event": "archived", **asdict(done)})
    else:
        click.echo(f"{path}: {done.batches} batches, {in_words(done.records, done.bytes, done.seconds)}")


class BatchTeller:
    """Reports each batch that was added: a JSON line, or progress."""

    def __init__(self, tell: Callable[[int, int | None, str], None], as_json: bool) -> None:
        self._tell = tell
        self._as_json = as_json
        self._records = 0
        self._bytes = 0

    def __call__(self, batch: "Batch") -> None:
        from barnabas.pipeline.progress import in_units

        self._records += batch.records
        self._bytes += batch.bytes
        if self._as_json:
            print_line({"event": "batch", **batch.to_json()})
        # The total is not known: topics grow while they are archived.
        self._tell(self._records, None, f"{in_units(self._bytes)}, batch {batch.number}")


@pipeline.command("restore")
@click.argument("path", type=click.Path(exists=True, file_okay=False, path_type=Path))
@bootstrap_servers
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic of the archive; without it, all.")
@click.option("--prefix", default="", help="Goes before each topic's name.")
@click.option("--rename", "renamed", multiple=True, metavar="TOPIC=NAME", help="Another name for one topic.")
@click.option("--offsets", multiple=True, metavar="TOPIC:PARTITION:FROM:TO", help="Of this partition only these.")
@click.option("--since", metavar="TIME", help="Records from this time on (ISO 8601; UTC unless it says otherwise).")
@click.option("--until", metavar="TIME", help="Records before this time.")
@click.option("--append", is_flag=True, help="Also behind what a topic holds already.")
@click.option(
    "--keep-retention", is_flag=True, help="Created topics get the archive's retention, and may lose records."
)
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="lz4", show_default=True
)
@click.option("--state", type=click.Path(file_okay=False, path_type=Path), help="Where the plan is kept.")
@click.option("--verify", "verified", is_flag=True, help="Read everything back and compare every record.")
@kafka_options
@client_options
@spark_options
@as_json
def restore_command(  # noqa: PLR0913, PLR0917  # one for each option
    path: Path,
    bootstrap_servers: str,
    topics: tuple[str, ...],
    prefix: str,
    renamed: tuple[str, ...],
    offsets: tuple[str, ...],
    since: str | None,
    until: str | None,
    append: bool,
    keep_retention: bool,
    compression: str,
    state: Path | None,
    verified: bool,
    kafka_options: tuple[str, ...],
    client_options: tuple[str, ...],
    master: str,
    jars: tuple[str, ...],
    driver_memory: str,
    as_json: bool,
) -> None:
    """Write the archive in PATH into topics: same partition, order, key, value, headers and timestamp.

    Missing topics are created with their archived settings, but with unlimited retention, because old records would be
    deleted at once. The same command continues an interrupted restore, and writes no record twice. The exit status is 1
    if --verify finds a difference.
    """
    from barnabas.pipeline.plan import Selection
    from barnabas.pipeline.progress import shown, tasks_shown
    from barnabas.pipeline.restoring import Target, restore

    span = (milliseconds(since), milliseconds(until))
    selection = Selection(topics or None, pairs(renamed), prefix, offset_ranges(offsets), *span)
    target = Target(bootstrap_servers, pairs(client_options), compression, keep_retention, append)
    compared = None
    with spark_session("restore", master, jars, driver_memory) as spark, explained():
        with shown("restore", as_json) as bar:
            progress = lambda there, total: bar.tell(there, total, "written")  # noqa: E731
            done = restore(spark, path, target, selection, state=state, on_progress=progress)
        # The comparison runs in the same session, because the start of another one takes seconds.
        if verified:
            with tasks_shown(spark, "verify", as_json):
                compared = compare(spark, path, done, selection, bootstrap_servers, pairs(kafka_options))

    print_restored(done, compared, as_json)
    # Everything is printed before the exit status says that there is a difference.
    if compared is not None and any(one.missing or one.additional or one.different for one in compared):
        sys.exit(STATUS_FAILED)


def compare(
    spark: "SparkSession",
    path: Path,
    done: "Restored",
    selection: "Selection",
    bootstrap_servers: str,
    options: dict[str, str],
) -> "list[Compared]":
    from barnabas.pipeline.manifest import Archive
    from barnabas.pipeline.verifying import verify

    return verify(spark, Archive(path), done.plan, selection, bootstrap_servers, options)


def print_restored(done: "Restored", compared: "Sequence[Compared] | None", as_json: bool) -> None:
    """What a restore did, and what a comparison found."""
    from barnabas.pipeline.progress import in_words

    summary = {"records": done.plan.records, "skipped": done.skipped, "written": done.written, "seconds": done.seconds}
    if as_json:
        for plan in done.plan.partitions:
            print_line({"event": "partition", **asdict(plan)})
        for found in compared or ():
            print_line({"event": "compared", **asdict(found)})
        print_line({"event": "restored", "created": done.created, **summary})
        return

    if done.created:
        click.echo(f"created, with retention as asked for: {', '.join(done.created)}")
    there = f"; {done.skipped:,} were there already" if done.skipped else ""
    click.echo(f"restored {in_words(done.written, None, done.seconds)}{there}")
    for found in compared or ():
        click.echo(
            f"{found.target}-{found.partition}: {found.identical:,} identical, {found.missing:,} missing, "
            f"{found.additional:,} additional, {found.different:,} different"
        )


def pairs(assignments: Sequence[str]) -> dict[str, str]:
    """KEY=VALUE, more than once."""
    for text in assignments:
        if "=" not in text:
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    # The value may have further equals signs, as a JAAS configuration does.
    return dict(text.split("=", 1) for text in assignments)


def offset_ranges(texts: Sequence[str]) -> "dict[Partition, OffsetRange]":
    """TOPIC:PARTITION:FROM:TO, more than once."""
    from barnabas.pipeline.plan import parse_offsets

    try:
        ranges = list(map(parse_offsets, texts))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    found = dict(ranges)
    if len(found) < len(ranges):  # all but the last range would be left out
        raise click.BadParameter("a partition has one range of --offsets")
    return found


def milliseconds(text: str | None) -> int | None:
    """A time, as records have it."""
    if text is None:
        return None
    try:
        said = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not a time of ISO 8601: {error}") from error
    # Without a zone the text would mean the zone of this machine, and one command would select
    # other records elsewhere.
    return round((said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp() * 1000)


def stop_on_signals() -> threading.Event:
    """An event that SIGTERM and SIGINT set, instead of what Spark does at SIGINT."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # The archive ends after the batch that runs, so that its checkpoint and its manifest agree.
        signal.signal(number, lambda *_: stop.set())
    return stop


@contextmanager
def explained(status: int = STATUS_FAILED) -> Iterator[None]:
    """End the process with one message, and no traceback, for the expected errors of a job."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from barnabas.pipeline.manifest import ArchiveError
    from barnabas.pipeline.plan import RestoreError
    from barnabas.pipeline.topics import ClusterError

    try:
        yield
    except (ArchiveError, RestoreError, ClusterError, OSError) as error:
        fail(str(error), status)
    except (PySparkException, Py4JError) as error:
        # A bug of this package is no expected error, and keeps its traceback.
        fail(f"Spark: {str(error)[:ERROR_CHARACTERS_MAX]}", status)


def fail(message: str, status: int) -> NoReturn:
    """End the process with one message."""
    for line in message.splitlines():
        click.echo(f"barnabas: {line}", err=True)
    sys.exit(status)


def print_line(value: object) -> None:
    """One JSON line, at once: a program may be waiting for it."""
    click.echo(json.dumps(value))
    sys.stdout.flush()
