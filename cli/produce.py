"""`barnabas produce`: lines to records."""

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import click

from barnabas.cli.cluster import Target, for_a_cluster, run_with

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


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

    is_json = is_json or to_header is not None
    if key_separator is not None and (key is not None or is_json or tombstone):
        raise click.UsageError("--key-separator says where the key is in a line: leave --key, --json and the like out")
    if tombstone and is_json:
        raise click.UsageError("--tombstone writes one record, and no lines are read: leave --json out")

    fixed_headers = [_header(text) for text in headers]

    async def write(cluster: "Cluster") -> None:
        from barnabas.cli.writing import Given, write_lines
        from barnabas.client.writing import ALL

        given = Given(
            topic,
            None if key is None else key.encode(),
            None if key_separator is None else key_separator.encode(),
            fixed_headers,
            partition,
            to_header,
            is_json=is_json,
            is_tombstone=tombstone,
            acks=ALL if acks == "all" else 1,
            codec=codec,
        )
        await write_lines(cluster, given, file)

    run_with(target, write)


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r} is no NAME=VALUE", param_hint="--header")
    return name, value.encode()
