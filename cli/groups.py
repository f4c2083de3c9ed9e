"""`barnabas groups`: list, show, reset and delete consumer groups of any Kafka cluster."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.changing import FAILED, dry_run, each_of, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.cli.repeating import RepeatingCluster
    from barnabas.client.cluster import Cluster
    from barnabas.client.errors import ClientError
    from barnabas.wire import messages as m
    from barnabas.wire.topics import TopicPartition

CONSUMERS = "consumer"  # the protocol type of groups that assign partitions
VERSION_BYTES = 2  # of an assignment, before its fields
INACTIVE_STATES = ("Empty", "Dead")


@click.group()
def groups() -> None:
    """Consumer groups of a cluster."""


@groups.command("ls")
@as_json
@for_a_cluster
def list_all(target: Target, as_json: bool) -> None:
    """List the groups."""

    async def look(cluster: "Cluster") -> list[Row]:
        from barnabas.client.admin import list_groups

        return [
            {"group": each.group_id, "state": each.state, "protocol_type": each.protocol_type}
            for each in await list_groups(cluster)
        ]

    show(run_with(target, look), ["group", "state", "protocol_type"], as_json=as_json)


@groups.command("show")
@click.argument("group")
@click.option("--by", type=click.Choice(["partition", "topic", "member", "group"]), default="partition")
@click.option("--lag", "lag_filter", metavar="'>N'", help="Only rows that lag more than this behind.")
@as_json
@for_a_cluster
def show_group(target: Target, group: str, by: str, lag_filter: str | None, as_json: bool) -> None:
    """Show what GROUP has read of each partition, how far it is behind, and who reads it."""
    at_least = _lag_of(lag_filter)
    # The lag filter is read before, so that a wrong one is reported without a request.
    state, rows = run_with(target, lambda cluster: _lags(cluster, group))
    shown = [row for row in _summed(rows, by) if _number(row["lag"]) > at_least]
    columns = {
        "partition": ["topic", "partition", "committed", "end", "lag", "member", "host"],
        "topic": ["topic", "partitions", "lag"],
        "member": ["member", "partitions", "lag"],
        "group": ["group", "state", "partitions", "lag"],
    }
    show([{"group": group, "state": state, **row} for row in shown], columns[by], as_json=as_json)


def _lag_of(text: str | None) -> int:
    if text is None:
        return -1
    # The shell would take a `>` without quotes for a redirection, so a bare number is accepted as
    # well.
    digits = text.strip().removeprefix(">").strip()
    if not digits.isascii() or not digits.isdigit():
        raise click.BadParameter(f"{text!r} is no '>1000'", param_hint="--lag")
    return int(digits)


async def _lags(cluster: "Cluster", group: str) -> tuple[str, list[Row]]:
    from barnabas.client.admin import describe_group
    from barnabas.client.offsets import committed_offsets, list_offsets
    from barnabas.wire.sentinels import LATEST

    # The three answers are of three moments, as in Kafka's own tool: the group may go on meanwhile.
    described = await describe_group(cluster, group)
    owners = dict(_owners(described))
    committed = await committed_offsets(cluster, group)
    # A partition may have an offset and no member, or a member that has committed nothing yet.
    keys = sorted({*committed, *owners})
    existing = await _existing(cluster, keys)
    ends = await list_offsets(cluster, dict.fromkeys(existing, LATEST))
    # A group that was never there and one that was deleted look the same.
    if described.group_state == "Dead" and not keys:
        raise await _no_group(cluster, group)
    return described.group_state, [
        _row(key, committed, ends[key].offset if key in ends else None, owners) for key in keys
    ]


async def _existing(cluster: "Cluster", keys: "Sequence[TopicPartition]") -> "list[TopicPartition]":
    """Those of the partitions that there still are: offsets outlive their topics."""
    known = {
        topic.name: {row.partition_index for row in topic.partitions} for topic in (await cluster.describe()).topics
    }
    return [key for key in keys if key.partition in known.get(key.topic, ())]


def _row(
    key: "TopicPartition",
    committed: "Mapping[TopicPartition, int]",
    end: int | None,
    owners: "Mapping[TopicPartition, m.DescribeGroupsResponse.DescribedGroupMember]",
) -> Row:
    offset = committed.get(key)
    owner = owners.get(key)
    return {
        "topic": key.topic,
        "partition": key.partition,
        "committed": offset,
        "end": end,
        # The committed offset is read before the end offset, but an unclean election may cut the
        # log in between.
        "lag": None if end is None or offset is None else max(end - offset, 0),
        "member": None if owner is None else owner.member_id,
        "client": None if owner is None else owner.client_id,
        # Kafka puts a slash before the address, as Java's `InetAddress` prints it.
        "host": None if owner is None else owner.client_host.removeprefix("/"),
    }


def _owners(
    group: "m.DescribeGroupsResponse.DescribedGroup",
) -> "Iterator[tuple[TopicPartition, m.DescribeGroupsResponse.DescribedGroupMember]]":
    from barnabas.wire import messages as m
    from barnabas.wire.topics import TopicPartition
    from barnabas.wire.versioned_records import version_of

    if group.protocol_type != CONSUMERS:
        return
    for member in group.members:
        # A member that waits for its assignment has none yet.
        if not member.member_assignment:
            continue
        data = member.member_assignment
        assignment = m.decode(m.ConsumerProtocolAssignment, version_of(data), data, VERSION_BYTES)
        for topic in assignment.assigned_partitions:
            for index in topic.partitions:
                yield TopicPartition(topic.topic, index), member


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _summed(rows: Sequence[Row], by: str) -> list[Row]:
    """The rows themselves, or one for each topic or member, or one for all."""
    # The sums have other columns than the rows, so this case has nothing to sum.
    if by == "partition":
        return list(rows)
    sums: dict[object, list[Row]] = {}
    for row in rows:
        sums.setdefault(None if by == "group" else row[by], []).append(row)
    return [
        {by: name, "partitions": len(each), "lag": sum(_number(row["lag"]) for row in each)}
        if by != "group"
        else {"partitions": len(each), "lag": sum(_number(row["lag"]) for row in each)}
        for name, each in sums.items()
    ]


@groups.command("reset")
@click.argument("group")
@click.option("--to", "place", required=True, help="earliest, latest, 17, -20, -2h, 2026-11-22T10:00.")
@click.option("--topic", "topics", multiple=True, help="Only these topics [those with committed offsets].")
@dry_run
@yes
@as_json
@for_a_cluster
def reset(
    target: Target, group: str, place: str, topics: Sequence[str], dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Set the committed offsets of GROUP, which must have no members."""

    # The plan is a connection of its own, because a person may take minutes to answer the question.
    async def plan(cluster: "Cluster") -> list[Row]:
        return [
            {
                "topic": key.topic,
                "partition": key.partition,
                "committed": before,
                "new": after,
                "result": "would be set",
            }
            for key, before, after in await _planned(cluster, group, place, topics)
        ]

    rows = run_with(target, plan)
    columns = ["topic", "partition", "committed", "new"]
    if not dry_run:
        if not yes:
            must_confirm(f"set these offsets of group {group!r}", rows, columns)
        rows = run_with(target, lambda cluster: _reset(cluster, group, rows))
    show(rows, [*columns, "result"], as_json=as_json)
    if any(row["result"] == FAILED for row in rows):
        sys.exit(STATUS_FAILED)


async def _reset(cluster: "Cluster", group: str, rows: Sequence[Row]) -> list[Row]:
    """Commit the new offsets: the rows, each with what became of it."""
    from barnabas.client.errors import Refused
    from barnabas.client.offsets import commit_offsets, committed_offsets
    from barnabas.wire.topics import TopicPartition

    wanted = [(TopicPartition(str(row["topic"]), _number(row["partition"])), _number(row["new"])) for row in rows]
    try:
        await commit_offsets(cluster, group, dict(wanted))
    # One partition is named in the error. Of the others some may be set.
    except Refused as refused:
        click.echo(f"barnabas: {refused}", err=True)
        committed = await committed_offsets(cluster, group)
        results = ["set" if committed.get(key) == offset else FAILED for key, offset in wanted]
    else:
        results = ["set"] * len(rows)
    return [{**row, "result": result} for row, result in zip(rows, results, strict=True)]


async def _planned(
    cluster: "Cluster", group: str, place: str, topics: Sequence[str]
) -> "list[tuple[TopicPartition, int | None, int]]":
    from barnabas.cli.places import offsets_at
    from barnabas.client.admin import describe_group
    from barnabas.client.errors import ClientError
    from barnabas.client.offsets import committed_offsets, partitions_of

    described = await describe_group(cluster, group)
    # The coordinator would refuse it as well, with an error that names a generation. This says what to do.
    if described.group_state not in INACTIVE_STATES:
        count = len(described.members)
        raise ClientError(f"group {group!r} is {described.group_state}, with {count} members: stop them first")
    committed = await committed_offsets(cluster, group)
    if topics:
        found = await cluster.topics(topics)
        keys = [key for topic in topics for key in partitions_of(found[topic])]
    else:
        # Offsets of deleted topics cannot be looked up, and are left as they are.
        keys = await _existing(cluster, sorted(committed))
    if not keys:
        raise ClientError(f"group {group!r} has no committed offsets: say with --topic what it shall read")
    new = await offsets_at(cluster, keys, place)
    return [(key, committed.get(key), new[key]) for key in keys]


@groups.command("delete")
@click.argument("names", metavar="GROUP...", nargs=-1, required=True)
@yes
@dry_run
@as_json
@for_a_cluster
def delete(target: Target, names: Sequence[str], yes: bool, dry_run: bool, as_json: bool) -> None:
    """Delete groups without members, with their committed offsets."""
    if not dry_run and not yes:
        must_confirm(f"delete the groups {', '.join(names)}")

    async def delete_one(cluster: "RepeatingCluster", name: str) -> str:
        from barnabas.cli.repeating import done_before
        from barnabas.client.admin import delete_groups, list_groups
        from barnabas.wire.errors import ErrorCode

        # With `--dry-run` a name that does not exist is an error, too.
        if name not in [each.group_id for each in await list_groups(cluster)]:
            raise await _no_group(cluster, name)
        if dry_run:
            return "would be deleted"
        with done_before(cluster, ErrorCode.GROUP_ID_NOT_FOUND):
            await delete_groups(cluster, [name])
        return "deleted"

    each_of(target, "group", names, delete_one, as_json=as_json)


async def _no_group(cluster: "Cluster", name: str) -> "ClientError":
    """What to say of a group that there is not."""
    from barnabas.client.admin import list_groups
    from barnabas.client.errors import ClientError, nearest_of

    known = [each.group_id for each in await list_groups(cluster)]
    return ClientError(f"there is no group {name!r}{nearest_of(name, known)}")
