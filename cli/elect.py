"""`barnabas elect`: elections of leaders in any Kafka cluster."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.changing import dry_run, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show, warn
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.wire.topics import TopicPartition

COLUMNS = ["topic", "partition", "before", "leader", "result"]
# Also ELECTION_NOT_NEEDED: another election came first, and the aim is reached.
DONE = (0, 84)


@click.command()
@click.argument("topics", metavar="[TOPIC...]", nargs=-1)
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these partitions.")
@click.option("--all", "every", is_flag=True, help="All partitions of the cluster.")
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect a replica that is out of sync where no other is up: acknowledged records may be lost.",
)
@dry_run
@yes
@as_json
@for_a_cluster
def elect(
    target: Target,
    topics: Sequence[str],
    partitions: Sequence[int],
    every: bool,
    unclean: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Elect preferred leaders: the first replica of each partition."""
    if bool(topics) == every:
        raise click.UsageError("of which topics? Name them, or say --all")
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition is for one topic")

    rows = run_with(target, lambda cluster: _planned(cluster, topics, partitions, unclean=unclean))
    if not dry_run and rows:
        if unclean and not yes:
            must_confirm("elect leaders that may lack acknowledged records of these partitions", rows, COLUMNS)
        rows = run_with(target, lambda cluster: _elect(cluster, rows, unclean=unclean))
    show(rows, COLUMNS, as_json=as_json)
    if any(row["failed"] for row in rows):
        sys.exit(STATUS_FAILED)


async def _planned(cluster: "Cluster", topics: Sequence[str], partitions: Sequence[int], *, unclean: bool) -> list[Row]:
    """The partitions for which there is something to elect."""
    from barnabas.client.errors import ClientError

    named = (await cluster.topics(topics, leader_seconds=0)).values()
    found = named if topics else (await cluster.describe()).topics
    rows: list[Row] = []
    for topic in sorted(found, key=lambda topic: topic.name or ""):
        indexes = {row.partition_index for row in topic.partitions}
        missing = sorted(set(partitions) - indexes)
        if missing:
            raise ClientError(
                f"topic {topic.name!r} has the partitions 0 to {len(indexes) - 1}, and no partition {missing[0]}"
            )
        for row in sorted(topic.partitions, key=lambda row: row.partition_index):
            is_asked = not partitions or row.partition_index in partitions
            needs_it = row.leader_id < 0 if unclean else row.leader_id != row.replica_nodes[0]
            if is_asked and needs_it:
                rows.append(
                    {
                        "topic": topic.name,
                        "partition": row.partition_index,
                        "before": row.leader_id if row.leader_id >= 0 else None,
                        "leader": None if unclean else row.replica_nodes[0],
                        "result": "would be elected",
                        "failed": False,
                    }
                )
    return rows


async def _elect(cluster: "Cluster", rows: Sequence[Row], *, unclean: bool) -> list[Row]:
    from barnabas.client.moving import PREFERRED, UNCLEAN, elect_leaders
    from barnabas.wire.errors import error_name
    from barnabas.wire.topics import TopicPartition

    keys = [TopicPartition(str(row["topic"]), int(str(row["partition"]))) for row in rows]
    outcomes = await elect_leaders(cluster, keys, UNCLEAN if unclean else PREFERRED)
    # The controller answers before each broker has heard of the new leaders.
    done = [key for key in keys if outcomes[key].code in DONE]
    retry = cluster.retry()
    while True:
        leaders = await _leaders(cluster, keys)
        if all(_is_as_elected(leaders[key], row) for key, row in zip(keys, rows, strict=True) if key in done):
            break
        if not await retry.pause():
            break

    shown: list[Row] = []
    for row, key in zip(rows, keys, strict=True):
        outcome = outcomes[key]
        is_done = key in done
        said = "elected" if is_done else error_name(outcome.code)
        shown.append({**row, "leader": leaders[key], "result": said, "failed": not is_done})
        if not is_done:
            warn(f"partition {key}: {said}: {outcome.message or ''}".removesuffix(": "))
    return shown


def _is_as_elected(leader: int | None, planned: Row) -> bool:
    return leader is not None and planned["leader"] in (None, leader)


async def _leaders(cluster: "Cluster", keys: "Sequence[TopicPartition]") -> "dict[TopicPartition, int | None]":
    from barnabas.wire.topics import TopicPartition

    found = await cluster.topics(list(dict.fromkeys(key.topic for key in keys)), leader_seconds=0)
    return {
        TopicPartition(name, row.partition_index): row.leader_id if row.leader_id >= 0 else None
        for name, topic in found.items()
        for row in topic.partitions
    }
