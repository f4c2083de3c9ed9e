"""`barnabas produce`: lines to records (edge)."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import IO, TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.cli.record_lines import Line
    from barnabas.client.cluster import Cluster
    from barnabas.client.writing import Writer
    from barnabas.wire import messages as m

LINE_BYTES_MAX = 64 << 20
HELD_BYTES_MAX = 16 << 20  # of all topics together, before they are sent
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class BadLine(Exception):
    """A line of the input cannot be made a record; the text has its number."""


@click.command()
@click.argument("topic", required=False)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-k", "--key", help="The key of each record.")
@click.option("-K", "--key-separator", help="What separates the key from the value in a line.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of each record.")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition of each record.")
@click.option("--json", "is_json", is_flag=True, help="A line is a JSON object, as `consume --json` prints it.")
@click.option("--tombstone", is_flag=True, help="Write one record without a value, which deletes --key.")
@click.option(
    "--to-header",
    metavar="NAME",
    help="To the topic that this header of a record names; a record without it goes to TOPIC. Lines are JSON.",
)
@click.option("--acks", type=click.Choice(["all", "1"]), default="all", help="Who has to have it [all].")
@click.option("--codec", type=click.Choice(CODECS), default="none", help="How batches are compressed [none].")
@for_a_cluster
def produce(
    target: Target,
    topic: str | None,
    file: IO[bytes],
    key: str | None,
    key_separator: str | None,
    headers: Sequence[str],
    partition: int | None,
    is_json: bool,
    tombstone: bool,
    to_header: str | None,
    acks: str,
    codec: str,
) -> None:
    """Write lines of FILE or standard input to TOPIC as records."""
    if tombstone and key is None:
        raise click.UsageError("--tombstone deletes a key: say which with --key")
    if topic is None and to_header is None:
        raise click.UsageError("to which topic? Name it, or say with --to-header which header names it")
    if to_header is not None and (partition is not None or tombstone):
        raise click.UsageError("--to-header is for records of several topics: leave --partition and --tombstone out")

    fixed = Fixed(key, key_separator, [_header(text) for text in headers], partition, to_header)
    is_json = is_json or to_header is not None
    lines = _tombstone(fixed) if tombstone else _lines(_raw_lines(file), fixed, is_json=is_json)

    async def write(cluster: "Cluster") -> Mapping[str, int]:
        from barnabas.client.writing import ALL, Writer
        from barnabas.wire.compression import Codec

        def writer_of(name: str, partition_count: int) -> Writer:
            return Writer(cluster, name, partition_count, acks=ALL if acks == "all" else 1, codec=Codec[codec.upper()])

        topics = Topics(cluster, writer_of)
        # A misspelled name is said before anything is read.
        if topic is not None:
            await topics.writer(topic)
        try:
            for number, line in lines:
                await _add(topics, topic, fixed, number, line)
        # What stands before a bad line is written, so that a repetition can begin with this line.
        except BadLine as error:
            written = await topics.flush()
            raise BadLine(f"{error}; the {sum(written.values())} records before it are written") from None
        return await topics.flush()

    try:
        written = run_with(target, write)
    except BadLine as error:
        click.echo(f"barnabas: {error}", err=True)
        sys.exit(STATUS_FAILED)
    for name, count in written.items():
        click.echo(f"{count} records written to {name}", err=True)


class Fixed(NamedTuple):
    """What the command line says of all records."""

    key: str | None
    key_separator: str | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None
    to_header: str | None


class Topics:
    """The topics that are written to, each with its writer, and what they have in memory together."""

    def __init__(self, cluster: "Cluster", writer_of: "Callable[[str, int], Writer]") -> None:
        self.partition_counts: dict[str, int] = {}
        self._cluster = cluster
        self._writer_of = writer_of
        self._writers: dict[str, Writer] = {}
        self._held_bytes = 0

    async def writer(self, name: str) -> "Writer":
        """The writer of a topic. ClientError if there is none; Unreachable."""
        if name not in self._writers:
            topic = await self._topic(name)
            self.partition_counts[name] = len(topic.partitions)
            self._writers[name] = self._writer_of(name, len(topic.partitions))
        return self._writers[name]

    async def _topic(self, name: str) -> "m.MetadataResponse.MetadataResponseTopic":
        from barnabas.client.errors import ClientError, Refused
        from barnabas.wire.errors import ErrorCode

        try:
            return (await self._cluster.topics([name]))[name]
        except Refused as refused:
            if refused.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            raise ClientError(f"{refused}; to create it: `barnabas topics create {name}`") from None

    async def hold(self, size_bytes: int) -> None:
        """Count what a writer has taken: many topics with a little each are sent before they are too much."""
        self._held_bytes += size_bytes
        if self._held_bytes >= HELD_BYTES_MAX:
            await self.flush()

    async def flush(self) -> Mapping[str, int]:
        """Send everything; topic -> how many records are written."""
        self._held_bytes = 0
        for writer in self._writers.values():
            await writer.flush()
        return {name: writer.written for name, writer in self._writers.items()}


async def _add(topics: Topics, topic: str | None, fixed: Fixed, number: int, line: "Line") -> None:
    """Give one record to the writer of its topic."""
    from barnabas.client.errors import ClientError, Unreachable

    where = line.partition if fixed.partition is None else fixed.partition
    if fixed.to_header is not None:
        named = dict(line.headers).get(fixed.to_header)
        # The record had this partition in the other topic.
        where = None
        topic = topic if named is None else _topic_name(number, named)
        if topic is None:
            raise BadLine(f"line {number}: the record has no header {fixed.to_header!r}, and no TOPIC is given")
    assert topic is not None
    try:
        writer = await topics.writer(topic)
    # This line is not to blame.
    except Unreachable:
        raise
    except ClientError as error:
        raise BadLine(f"line {number}: {error}") from None
    count = topics.partition_counts[topic]
    if where is not None and not 0 <= where < count:
        about = f"line {number}: " if fixed.partition is None else ""
        raise BadLine(f"{about}topic {topic!r} has the partitions 0 to {count - 1}, and no partition {where}")
    at_ms = time.time_ns() // 1_000_000 if line.timestamp_ms is None else line.timestamp_ms
    await writer.add(line.key, line.value, [*fixed.headers, *line.headers], at_ms, where)
    await topics.hold(len(line.key or b"") + len(line.value or b""))


def _topic_name(number: int, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadLine(f"line {number}: the header names no topic: {data!r}") from None


def _tombstone(fixed: Fixed) -> "Iterator[tuple[int, Line]]":
    from barnabas.cli.record_lines import Line

    assert fixed.key is not None
    yield 1, Line(fixed.key.encode(), None)


def _raw_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, with their ends; of one that is no pipe a person sees how much of it is read."""
    from barnabas.progress import progress

    about = os.fstat(file.fileno())
    is_regular = stat.S_ISREG(about.st_mode)
    # A pipe has no length, and the command at its other end may draw a line of its own.
    with progress("produce", about.st_size, "B") if is_regular else nullcontext(_ignore) as advance:
        while line := file.readline(LINE_BYTES_MAX):
            advance(len(line))
            yield line


def _ignore(_amount: int) -> None:
    """What is done is not shown."""


def _lines(raw_lines: Iterator[bytes], command: Fixed, *, is_json: bool) -> "Iterator[tuple[int, Line]]":
    """The records of these lines, with the numbers of the lines. BadLine names the line."""
    from barnabas.cli.record_lines import Line, from_json

    # What the command line says holds for each record, also for those of JSON that have a key.
    fixed = None if command.key is None else command.key.encode()
    # A line is read whole, so memory is bounded by the longest line and by the batches that are not full.
    for number, line in enumerate(raw_lines, 1):
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            raise BadLine(f"line {number} has more than {LINE_BYTES_MAX} bytes")
        text = line.removesuffix(b"\n")
        if is_json:
            # An editor may leave an empty line at the end of a file.
            if not text.strip():
                continue
            try:
                found = from_json(text.decode())
            except ValueError as error:
                raise BadLine(f"line {number}: {error}") from None
            yield number, found if fixed is None else found._replace(key=fixed)
        elif command.key_separator is not None:
            first, found_it, rest = text.partition(command.key_separator.encode())
            if not found_it:
                raise BadLine(f"line {number} has no key separator {command.key_separator!r}")
            yield number, Line(first, rest)
        else:
            yield number, Line(fixed, text)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is no NAME=VALUE", param_hint="--header")
    return name, value.encode()
