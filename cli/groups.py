"""`barnabas groups`: list, show, reset and delete consumer groups of any Kafka cluster."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.changing import FAILED, dry_run, each_of, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show, warn
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
    found = run_with(target, lambda cluster: _looked_up(cluster, group))
    for row in found.rows:
        if row["beyond_end"]:
            name = f"{row['topic']}-{row['partition']}"
            warn(f"partition {name}: {row['committed']} is committed, which is beyond its end, {row['end']}")
    shown = [row for row in _summed(found, by) if _number(row["lag"]) > at_least]
    columns = {
        "partition": ["topic", "partition", "committed", "end", "lag", "member", "host"],
        "topic": ["topic", "partitions", "lag"],
        "member": ["member", "partitions", "lag"],
        "group": ["group", "state", "partitions", "lag"],
    }
    show([{"group": group, "state": found.state, **row} for row in shown], columns[by], as_json=as_json)


def _lag_of(text: str | None) -> int:
    if text is None:
        return -1
    # The shell would take a `>` without quotes for a redirection, so a bare number is accepted as
    # well.
    digits = text.strip().removeprefix(">").strip()
    if not digits.isascii() or not digits.isdigit():
        raise click.BadParameter(f"{text!r} is no '>1000'", param_hint="--lag")
    return int(digits)


class Found(NamedTuple):
    """What is known of a group: a row for each partition, and its members, of which some may have no partition."""

    state: str
    rows: Sequence[Row]
    members: Sequence[str]


async def _looked_up(cluster: "Cluster", group: str) -> Found:
    from barnabas.client.admin import describe_group
    from barnabas.client.offsets import committed_offsets, list_offsets
    from barnabas.wire.sentinels import EARLIEST, LATEST

    # The three answers are of three moments, as in Kafka's own tool: the group may go on meanwhile.
    described = await describe_group(cluster, group)
    owners = dict(_owners(described))
    committed = await committed_offsets(cluster, group)
    # A partition may have an offset and no member, or a member that has committed nothing yet.
    keys = sorted({*committed, *owners})
    # A partition without a leader has no broker that knows its offsets. Its row is shown without them.
    led = await _existing(cluster, keys, led=True)
    ends = await list_offsets(cluster, dict.fromkeys(led, LATEST))
    # Of a partition of which nothing is committed everything is left.
    starts = await list_offsets(cluster, {key: EARLIEST for key in led if key not in committed})
    # A group that was never there and one that was deleted look the same.
    if described.group_state == "Dead" and not keys:
        raise await _no_group(cluster, group)
    read = {**{key: found.offset for key, found in starts.items()}, **committed}
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "committed": committed.get(key),
            "end": ends[key].offset if key in ends else None,
            # The committed offset is read before the end offset, but an unclean election may have cut the log.
            "lag": max(ends[key].offset - read[key], 0) if key in ends else None,
            "beyond_end": key in ends and read[key] > ends[key].offset,
            **_owner(owners.get(key)),
        }
        for key in keys
    ]
    return Found(described.group_state, rows, [member.member_id for member in described.members])


async def _existing(
    cluster: "Cluster", keys: "Sequence[TopicPartition]", *, led: bool = False
) -> "list[TopicPartition]":
    """Those of the partitions that there still are: offsets outlive their topics. `led`: and that have a leader."""
    known = {
        topic.name: {row.partition_index for row in topic.partitions if row.leader_id >= 0 or not led}
        for topic in (await cluster.describe()).topics
    }
    return [key for key in keys if key.partition in known.get(key.topic, ())]


def _owner(owner: "m.DescribeGroupsResponse.DescribedGroupMember | None") -> Row:
    return {
        "member": None if owner is None else owner.member_id,
        "client": None if owner is None else owner.client_id,
        # Kafka puts a slash before the address, as Java's `InetAddress` prints it.
        "host": None if owner is None else owner.client_host.removeprefix("/"),
    }


def _owners(
    group: "m.DescribeGroupsResponse.DescribedGroup",
) -> "Iterator[tuple[TopicPartition, m.DescribeGroupsResponse.DescribedGroupMember]]":
    from barnabas.wire.topics import TopicPartition

    if group.protocol_type != CONSUMERS:
        return
    for member in group.members:
        for topic in _assigned(member.member_assignment):
            for index in topic.partitions:
                yield TopicPartition(topic.topic, index), member


def _assigned(data: bytes) -> "Sequence[m.ConsumerProtocolAssignment.TopicPartition]":
    """The partitions of a member; none if it waits for them yet, or its leader has sent something else."""
    from barnabas.wire import messages as m
    from barnabas.wire.errors import ProtocolViolation
    from barnabas.wire.versioned_records import MalformedRecord, version_of

    if not data:
        return ()
    try:
        # A later version only has further fields behind these.
        version = min(version_of(data), m.ConsumerProtocolAssignment.MAX_VERSION)
        return m.decode(m.ConsumerProtocolAssignment, version, data, VERSION_BYTES).assigned_partitions
    except (MalformedRecord, ProtocolViolation):
        return ()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _summed(found: Found, by: str) -> list[Row]:
    """The rows themselves, or one for each topic or member, or one for all."""
    # The sums have other columns than the rows, so this case has nothing to sum.
    if by == "partition":
        return list(found.rows)
    if by == "group":
        return [_sum(found.rows)]
    sums: dict[object, list[Row]] = {}
    for row in found.rows:
        sums.setdefault(row[by], []).append(row)
    # Members that have no partition are of interest, too: there are too many of them.
    for member in found.members if by == "member" else ():
        sums.setdefault(member, [])
    return [{by: name, **_sum(rows)} for name, rows in sums.items()]


def _sum(rows: Sequence[Row]) -> Row:
    return {"partitions": len(rows), "lag": sum(_number(row["lag"]) for row in rows)}


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
        warn(str(refused))
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
        from barnabas.client.errors import ClientError
        from barnabas.wire.errors import ErrorCode

        # With `--dry-run` a name that does not exist is an error, too.
        states = {each.group_id: each.state for each in await list_groups(cluster)}
        if name not in states:
            raise await _no_group(cluster, name)
        if dry_run:
            # Before Kafka 2.6 it is not known here.
            if states[name] not in ("", *INACTIVE_STATES):
                raise ClientError(f"group {name!r} is {states[name]}: stop its members first")
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
