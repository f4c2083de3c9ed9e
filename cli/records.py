"""`barnabas produce` and `barnabas consume`: lines to records, and records to lines (edge)."""

import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.cli.record_lines import Line
    from barnabas.client.cluster import Cluster
    from barnabas.client.offsets import Found
    from barnabas.client.reading import Taken
    from barnabas.wire.topics import TopicPartition

LINE_BYTES_MAX = 64 << 20
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


class BadLine(Exception):
    """A line of the input cannot be made a record; the text has its number."""


@click.command()
@click.argument("topic")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("-k", "--key", help="The key of each record.")
@click.option("-K", "--key-separator", help="What separates the key from the value in a line.")
@click.option("-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of each record.")
@click.option("-p", "--partition", type=click.IntRange(0), help="The partition of each record.")
@click.option("--json", "is_json", is_flag=True, help="A line is a JSON object, as `consume --json` prints it.")
@click.option("--tombstone", is_flag=True, help="Write one record without a value, which deletes --key.")
@click.option("--acks", type=click.Choice(["all", "1"]), default="all", help="Who has to have it [all].")
@click.option("--codec", type=click.Choice(CODECS), default="none", help="How batches are compressed [none].")
@for_a_cluster
def produce(
    target: Target,
    topic: str,
    file: IO[bytes],
    key: str | None,
    key_separator: str | None,
    headers: Sequence[str],
    partition: int | None,
    is_json: bool,
    tombstone: bool,
    acks: str,
    codec: str,
) -> None:
    """Write each line of FILE, or of standard input, to TOPIC as a record."""
    from barnabas.cli.record_lines import Line

    if tombstone and key is None:
        raise click.UsageError("--tombstone deletes a key: say which with --key")
    if tombstone:
        lines: Iterator[Line] = iter([Line(key.encode() if key is not None else None, None)])
    else:
        lines = _lines(file, key, key_separator, is_json=is_json)
    fixed = [_header(text) for text in headers]

    async def write(cluster: "Cluster") -> int:
        from barnabas.client.writing import ALL, Writer
        from barnabas.wire.compression import Codec

        # The topic is looked up first, so that a misspelled name is said before anything is read.
        count = len((await cluster.topics([topic]))[topic].partitions)
        if partition is not None and partition >= count:
            raise BadLine(f"topic {topic!r} has the partitions 0 to {count - 1}, and no partition {partition}")
        writer = Writer(cluster, topic, count, acks=ALL if acks == "all" else 1, codec=Codec[codec.upper()])
        for line in lines:
            at_ms = time.time_ns() // 1_000_000 if line.timestamp_ms is None else line.timestamp_ms
            where = line.partition if partition is None else partition
            await writer.add(line.key, line.value, [*fixed, *line.headers], at_ms, where)
        await writer.flush()
        return writer.written

    try:
        written = run_with(target, write)
    except BadLine as error:
        click.echo(f"barnabas: {error}", err=True)
        sys.exit(STATUS_FAILED)
    click.echo(f"{written} records written to {topic}", err=True)


def _lines(file: IO[bytes], key: str | None, separator: str | None, *, is_json: bool) -> "Iterator[Line]":
    """The records of a file. BadLine names the line."""
    from barnabas.cli.record_lines import Line, from_json

    # What the command line says holds for each record, also for those of JSON that have a key.
    fixed = None if key is None else key.encode()
    # A line is read whole, so memory is bounded by the longest line and by the batches that are not full.
    number = 0
    while line := file.readline(LINE_BYTES_MAX):
        number += 1
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
            yield found if fixed is None else found._replace(key=fixed)
        elif separator is not None:
            first, found_it, rest = text.partition(separator.encode())
            if not found_it:
                raise BadLine(f"line {number} has no key separator {separator!r}")
            yield Line(first, rest)
        else:
            yield Line(fixed, text)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is no NAME=VALUE", param_hint="--header")
    return name, value.encode()


class Wanted(NamedTuple):
    """What of a topic is read: from where, until where, how many, and whether to wait for more."""

    begin: str
    until: str | None
    count_max: int | None
    follows: bool
    partitions: Sequence[int]
    filters: Mapping[str, str]
    committed: bool


@click.command()
@click.argument("topic")
@click.option(
    "--from", "begin", default="earliest", help="earliest, latest, 17, -20, -2h, 2026-11-22T10:00 [earliest]."
)
@click.option("--until", help="Where to end, in the same words.")
@click.option("-n", "--count", type=click.IntRange(0), help="End after so many records.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Wait for further records at the end.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these partitions.")
@click.option("--where", "filters", multiple=True, metavar="header.NAME=VALUE|key=VALUE", help="Only such records.")
@click.option("--committed", is_flag=True, help="Leave out records of transactions that are open or aborted.")
@click.option("--json", "is_json", is_flag=True, help="One JSON object a record.")
@click.option("-o", "--output", "style", default="%v\\n", help=r"%t %p %o %T %k %v %h, \n, \t [%v\n].")
@for_a_cluster
def consume(
    target: Target,
    topic: str,
    begin: str,
    until: str | None,
    count: int | None,
    follows: bool,
    partitions: Sequence[int],
    filters: Sequence[str],
    committed: bool,
    is_json: bool,
    style: str,
) -> None:
    """Print the records of TOPIC, up to its present end."""
    from barnabas.cli.record_lines import to_json, to_text

    wanted = Wanted(begin, until, count, follows, partitions, _filters(filters), committed)
    output = sys.stdout.buffer

    async def read(cluster: "Cluster") -> None:
        left = wanted.count_max
        async for taken in _rounds(cluster, topic, wanted):
            for record in taken.records:
                if left == 0:
                    return
                if not _matches(record.key, record.headers, wanted.filters):
                    continue
                about = (topic, taken.partition.partition, record.offset, record.timestamp)
                content = (record.key, record.value, record.headers)
                output.write(
                    to_json(*about, *content).encode() + b"\n" if is_json else to_text(style, *about, *content)
                )
                left = None if left is None else left - 1
            # What a pipe's reader waits for must not stay in a buffer.
            output.flush()

    run_with(target, read)


def _filters(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not (name == "key" or name.startswith("header.")):
            raise click.BadParameter(f"{text!r} is neither header.NAME=VALUE nor key=VALUE", param_hint="--where")
        found[name] = value
    return found


def _matches(key: bytes | None, headers: Sequence[tuple[str, bytes | None]], filters: Mapping[str, str]) -> bool:
    return all(
        key == value.encode() if name == "key" else (name.removeprefix("header."), value.encode()) in headers
        for name, value in filters.items()
    )


async def _rounds(cluster: "Cluster", topic: str, wanted: Wanted) -> "AsyncIterator[Taken]":
    """What is read, round by round, up to the ends that are known at the start, or without an end."""
    from barnabas.client.reading import Reader

    # The ends are those of now: a command that follows a busy topic to its end would never reach it.
    keys = await _keys(cluster, topic, wanted.partitions)
    ends = (
        None if wanted.follows and wanted.until is None else await offsets_at(cluster, keys, wanted.until or "latest")
    )
    positions = await offsets_at(cluster, keys, wanted.begin)
    if ends is not None:
        positions = {key: offset for key, offset in positions.items() if offset < ends[key]}

    reader = Reader(cluster, positions, committed=wanted.committed)
    while reader.positions:
        for taken in await reader.round():
            if ends is None:
                yield taken
                continue
            end = ends[taken.partition]
            # Behind the end no record of this partition is wanted, so its leader is not asked again.
            if taken.next_offset >= end:
                del reader.positions[taken.partition]
            yield taken._replace(records=[record for record in taken.records if record.offset < end])


async def _keys(cluster: "Cluster", topic: str, partitions: Sequence[int]) -> "list[TopicPartition]":
    from barnabas.client.errors import ClientError
    from barnabas.client.offsets import partitions_of

    all_keys = partitions_of((await cluster.topics([topic]))[topic])
    missing = sorted(set(partitions) - {key.partition for key in all_keys})
    if missing:
        raise ClientError(f"topic {topic!r} has the partitions 0 to {len(all_keys) - 1}, and no partition {missing[0]}")
    return [key for key in all_keys if not partitions or key.partition in partitions]


async def offsets_at(cluster: "Cluster", keys: "Sequence[TopicPartition]", text: str) -> "dict[TopicPartition, int]":
    """The offset of this place in each partition, within the partition's present bounds."""
    from barnabas.cli.when import BeforeEnd, Offset, parse_place
    from barnabas.client.errors import ClientError
    from barnabas.client.offsets import list_offsets
    from barnabas.wire.sentinels import EARLIEST, LATEST

    try:
        place = parse_place(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise ClientError(str(error)) from None

    # An offset that the log does not hold any more, or not yet, would be refused.
    starts = await list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST))
    if isinstance(place, Offset):
        return {key: min(max(place.offset, starts[key].offset), ends[key].offset) for key in keys}
    if isinstance(place, BeforeEnd):
        return {key: max(ends[key].offset - place.records, starts[key].offset) for key in keys}
    found: dict[TopicPartition, Found] = await list_offsets(cluster, dict.fromkeys(keys, place.timestamp_ms))
    return {key: found[key].offset if found[key].offset >= 0 else ends[key].offset for key in keys}
