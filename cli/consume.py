"""`barnabas consume`: records to lines."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.reading import Output, Wanted, rounds

if TYPE_CHECKING:
    from barnabas.cli.record_lines import Form
    from barnabas.client.cluster import Cluster
    from barnabas.client.reading import Taken


@click.command()
@click.argument("topic")
@click.option(
    "--from", "begin", default="earliest", help="earliest, latest, 17, -20, -2h, 2026-11-22T10:00 [earliest]."
)
@click.option("--until", help="Where to end, in the same words.")
@click.option("-n", "--count", type=click.IntRange(0), help="End after so many records.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Wait for further records at the end.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these partitions.")
@click.option(
    "-g", "--group", help="As a member of this group: go on where it is, commit what is printed; --from if it is new."
)
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
    group: str | None,
    filters: Sequence[str],
    committed: bool,
    is_json: bool,
    style: str,
) -> None:
    """Print the records of TOPIC, up to its present end."""
    if group is not None and partitions:
        raise click.UsageError("a member of a group gets its partitions from the group: leave --partition out")
    if follows and until is not None:
        raise click.UsageError("--follow goes on at the end, and --until ends there: leave one of them out")
    if is_json and click.get_current_context().get_parameter_source("style") != ParameterSource.DEFAULT:
        raise click.UsageError("--json is a form of its own: leave --output out")
    wanted = Wanted(begin, until, count, follows, partitions, _filters(filters), committed)
    output = Output(topic, wanted, _form(None if is_json else style))

    async def read(cluster: "Cluster") -> None:
        if group is not None:
            from barnabas.cli.consume_group import read_as_member

            await read_as_member(cluster, group, topic, wanted, output)
            return
        # When enough is printed the line that shows how far it is goes away at once.
        async with aclosing(_rounds(cluster, topic, wanted)) as reading:
            async for each in reading:
                output.write(output.lines(each))
                if output.is_full:
                    return

    run_with(target, read)


def _form(style: str | None) -> "Form":
    """How a record is printed: in this style, or as JSON without one."""
    from barnabas.cli.record_lines import text_form, to_json

    if style is not None:
        return text_form(style)
    return lambda *record: to_json(*record).encode() + b"\n"


def _filters(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not (name == "key" or name.startswith("header.")):
            raise click.BadParameter(f"{text!r} is neither header.NAME=VALUE nor key=VALUE", param_hint="--where")
        found[name] = value
    return found


async def _rounds(cluster: "Cluster", topic: str, wanted: Wanted) -> "AsyncGenerator[list[Taken], None]":
    """What is read, round by round, up to the ends that are known at the start, or without an end."""
    from barnabas.cli.places import offsets_at, partitions_named

    # The ends are those of now: a command that follows a busy topic to its end would never reach it.
    keys = await partitions_named(cluster, topic, wanted.partitions)
    ends = None if wanted.end is None else await offsets_at(cluster, keys, wanted.end, committed=wanted.committed)
    positions = await offsets_at(cluster, keys, wanted.begin)
    growing = None if wanted.partitions else topic
    async with aclosing(rounds(cluster, positions, ends, committed=wanted.committed, topic=growing)) as reading:
        async for taken in reading:
            yield taken
