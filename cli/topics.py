"""`barnabas topics`: list, show, create, grow, change and delete topics of any Kafka cluster."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.changing import assigned, dry_run, each_of, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show, warn

if TYPE_CHECKING:
    from barnabas.cli.repeating import RepeatingCluster
    from barnabas.client.cluster import Cluster
    from barnabas.wire import messages as m

PARTITIONS = click.IntRange(1, 2**31 - 1)  # requests have so many bits for them
DYNAMIC_TOPIC_CONFIG = 1  # the source of a property that was set for the topic


@click.group()
def topics() -> None:
    """Topics of a cluster."""


@topics.command("ls")
@click.option("--internal", is_flag=True, help="Also the topics in which the brokers keep their own data.")
@as_json
@for_a_cluster
def list_topics(target: Target, internal: bool, as_json: bool) -> None:
    """List the topics."""
    # One Metadata request names all topics, internal ones included; the option only filters what is
    # shown.
    found = run_with(target, _all_topics)
    rows = [_summary(topic) for topic in found if internal or not topic.is_internal]
    show(rows, ["topic", "partitions", "replicas", "out_of_sync", "leaderless"], as_json=as_json)


async def _all_topics(cluster: "Cluster") -> "list[m.MetadataResponse.MetadataResponseTopic]":
    return sorted((await cluster.describe()).topics, key=lambda topic: topic.name or "")


def _summary(topic: "m.MetadataResponse.MetadataResponseTopic") -> Row:
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        # Partitions of one topic may have different numbers of replicas while they are reassigned.
        "replicas": max((len(row.replica_nodes) for row in topic.partitions), default=0),
        # A replica that is offline is not in the ISR either, so it counts here.
        "out_of_sync": sum(len(row.isr_nodes) < len(row.replica_nodes) for row in topic.partitions),
        "leaderless": sum(row.leader_id < 0 for row in topic.partitions),
        "internal": topic.is_internal,
    }


@topics.command("show")
@click.argument("name", metavar="TOPIC")
@as_json
@for_a_cluster
def show_topic(target: Target, name: str, as_json: bool) -> None:
    """Show the partitions of TOPIC, with their offsets, and the properties that were set for it."""

    async def look(cluster: "Cluster") -> tuple[list[Row], dict[str, str | None]]:
        return await _partitions(cluster, name), await _set_properties(cluster, name)

    partitions, properties = run_with(target, look)
    if as_json:
        show([{"topic": name, "properties": properties, "partitions": partitions}], [], as_json=True)
        return
    show(partitions, ["partition", "leader", "epoch", "replicas", "isr", "start", "end"], as_json=False)
    if properties:
        click.echo()
        show(
            [{"property": key, "value": value} for key, value in properties.items()],
            ["property", "value"],
            as_json=False,
        )


async def _partitions(cluster: "Cluster", name: str) -> list[Row]:
    from barnabas.client.cluster import NEW_LEADER_SECONDS
    from barnabas.client.offsets import list_offsets
    from barnabas.wire.sentinels import EARLIEST, LATEST
    from barnabas.wire.topics import TopicPartition

    topic = (await cluster.topics([name], leader_seconds=NEW_LEADER_SECONDS))[name]
    # A partition without a leader has no broker that knows its offsets. Its row is shown without
    # them.
    led = [TopicPartition(name, row.partition_index) for row in topic.partitions if row.leader_id >= 0]
    starts = await list_offsets(cluster, dict.fromkeys(led, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(led, LATEST))
    return [
        {
            "partition": row.partition_index,
            "leader": row.leader_id if row.leader_id >= 0 else None,
            "epoch": row.leader_epoch,
            "replicas": list(row.replica_nodes),
            "isr": list(row.isr_nodes),
            "start": starts[key].offset if key in starts else None,
            "end": ends[key].offset if key in ends else None,
        }
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        for key in [TopicPartition(name, row.partition_index)]
    ]


async def _set_properties(cluster: "Cluster", name: str) -> dict[str, str | None]:
    from barnabas.client.admin import topic_configs

    (rows,) = (await topic_configs(cluster, [name])).values()
    return {row.name: row.value for row in rows if row.config_source == DYNAMIC_TOPIC_CONFIG}


@topics.command("create")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option("--partitions", type=PARTITIONS, help="Number of partitions [what the brokers give a new topic].")
@click.option(
    "--replicas", type=click.IntRange(1, 2**15 - 1), help="Replicas of each partition [what the brokers give]."
)
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="A property of the topic.")
@click.option("--if-missing", is_flag=True, help="A topic that exists already is no failure.")
@dry_run
@as_json
@for_a_cluster
def create(
    target: Target,
    names: Sequence[str],
    partitions: int | None,
    replicas: int | None,
    assignments: Sequence[str],
    if_missing: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create topics."""
    # A new topic has the default of every property anyway, so `KEY=` changes nothing here.
    configs = {key: value for key, value in assigned(assignments).items() if value is not None}

    async def create_one(cluster: "RepeatingCluster", name: str) -> str:
        from barnabas.client.admin import BROKERS_CHOICE, create_topic
        from barnabas.client.errors import Refused
        from barnabas.wire.errors import ErrorCode

        try:
            await create_topic(
                cluster,
                name,
                partitions=partitions or BROKERS_CHOICE,
                replicas=replicas or BROKERS_CHOICE,
                configs=configs,
                validate_only=dry_run,
            )
        except Refused as refused:
            if refused.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            if cluster.is_repeated and await _is_like(cluster, name, partitions, replicas, configs):
                lost = "the answer to its creation was lost; it is there, and may have been there before"
                warn(f"topic {name!r}: {lost}")
                return "created"
            # The topic may have other partitions or properties than those asked for. As with
            # `CREATE TABLE IF NOT EXISTS`, that is not compared.
            if if_missing:
                return "exists already"
            raise
        return "could be created" if dry_run else "created"

    each_of(target, "topic", names, create_one, as_json=as_json)


async def _is_like(
    cluster: "Cluster", name: str, partitions: int | None, replicas: int | None, configs: Mapping[str, str]
) -> bool:
    """Whether a topic is as this command would have created it."""
    retry = cluster.retry()
    # It may have been created a moment ago, and not every broker has heard of it.
    while (topic := next((each for each in await _all_topics(cluster) if each.name == name), None)) is None:
        if not await retry.pause():
            return False
    return (
        partitions in (None, len(topic.partitions))
        and all(replicas in (None, len(row.replica_nodes)) for row in topic.partitions)
        and (not configs or configs.items() <= (await _set_properties(cluster, name)).items())
    )


@topics.command("grow")
@click.argument("name", metavar="TOPIC")
@click.option("--partitions", type=PARTITIONS, required=True, help="Number of partitions that it has then.")
@dry_run
@as_json
@for_a_cluster
def grow(target: Target, name: str, partitions: int, dry_run: bool, as_json: bool) -> None:
    """Give TOPIC more partitions. Keys belong to other partitions then, but for the records that are there."""

    async def grow_one(cluster: "RepeatingCluster", name: str) -> str:
        from barnabas.client.admin import grow_topic
        from barnabas.client.errors import Refused
        from barnabas.wire.errors import ErrorCode

        # Kafka refuses a number that is not larger than the present one, so this needs no check.
        try:
            await grow_topic(cluster, name, partitions, validate_only=dry_run)
        except Refused as refused:
            is_done = refused.code == ErrorCode.INVALID_PARTITIONS and cluster.is_repeated
            if not is_done or not await _is_like(cluster, name, partitions, None, {}):
                raise
        return f"{'could have' if dry_run else 'has'} {partitions} partitions"

    each_of(target, "topic", [name], grow_one, as_json=as_json)


@topics.command("set")
@click.argument("name", metavar="TOPIC")
@click.argument("assignments", metavar="KEY=VALUE...", nargs=-1, required=True)
@dry_run
@as_json
@for_a_cluster
def set_properties(target: Target, name: str, assignments: Sequence[str], dry_run: bool, as_json: bool) -> None:
    """Set properties of TOPIC. KEY= without a value gives a property its default back."""

    async def set_one(cluster: "Cluster", name: str) -> str:
        from barnabas.client.admin import set_topic_configs

        await set_topic_configs(cluster, name, assigned(assignments), validate_only=dry_run)
        return "could be changed" if dry_run else "changed"

    each_of(target, "topic", [name], set_one, as_json=as_json)


@topics.command("delete")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@yes
@dry_run
@as_json
@for_a_cluster
def delete(target: Target, names: Sequence[str], yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete topics, with all their records."""

    async def delete_one(cluster: "RepeatingCluster", name: str) -> str:
        from barnabas.cli.repeating import done_before
        from barnabas.client.admin import delete_topic
        from barnabas.wire.errors import ErrorCode

        # With `--dry-run` a name that does not exist is an error, too.
        await cluster.topics([name], leader_seconds=0)
        if dry_run:
            return "would be deleted"
        with done_before(cluster, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            await delete_topic(cluster, name)
        return "deleted"

    # The question comes once for all topics, before the first one is deleted.
    if not dry_run and not yes:
        must_confirm(f"delete {', '.join(names)} with all records")
    each_of(target, "topic", names, delete_one, as_json=as_json)
