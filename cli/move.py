"""`barnabas move`: partitions of any Kafka cluster to other brokers, with a throttle and the bytes that are left."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.changing import dry_run, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show
from barnabas.progress import time_left_text
from barnabas.status import STATUS_FAILED

if TYPE_CHECKING:
    from barnabas.cli.move_plan import Move, Replicas
    from barnabas.cli.repeating import RepeatingCluster
    from barnabas.client.cluster import Cluster
    from barnabas.client.moving import Moving
    from barnabas.wire import messages as m
    from barnabas.wire.topics import TopicPartition

PLAN_COLUMNS = ["topic", "partition", "before", "after"]
STATUS_COLUMNS = ["topic", "partition", "replicas", "adding", "removing", "bytes", "bytes_left"]
VERIFY_COLUMNS = ["topic", "partition", "replicas", "wanted", "state"]
LOOK_SECONDS = 1.0
# What is throttled as a sender, and as a receiver.
THROTTLED_REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
THROTTLED_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


class Wanted(NamedTuple):
    """What is to be moved: these partitions of these topics, or of all, to brokers or away from some."""

    topics: Sequence[str]
    partitions: Sequence[int]
    to: Sequence[int]
    away_from: Sequence[int]


def _brokers(_context: click.Context, _parameter: click.Parameter, value: str | None) -> list[int]:
    texts = [] if value is None else value.split(",")
    if not all(text.strip().isdigit() for text in texts):
        raise click.BadParameter(f"{value!r} is no list of brokers, such as 1,2,3")
    found = [int(text) for text in texts]
    if len(set(found)) < len(found):
        raise click.BadParameter(f"{value!r} names a broker twice")
    return found


@click.command()
@click.argument("topics", metavar="[TOPIC...]", nargs=-1)
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only these partitions.")
@click.option("--to", metavar="1,2,3", callback=_brokers, help="The brokers that have the replicas then.")
@click.option("--away-from", metavar="3", callback=_brokers, help="Brokers that have no replica of them then.")
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES", help="Copy at most so many bytes a second.")
@click.option("--wait", "waits", is_flag=True, help="End when everything is moved; then the throttle is off.")
@click.option("--verify", is_flag=True, help="Whether it is moved; takes throttles off when nothing moves any more.")
@click.option("--cancel", is_flag=True, help="Take back the moves that go on.")
@dry_run
@yes
@as_json
@for_a_cluster
def move(
    target: Target,
    topics: Sequence[str],
    partitions: Sequence[int],
    to: Sequence[int],
    away_from: Sequence[int],
    throttle: int | None,
    waits: bool,
    verify: bool,
    cancel: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Move partitions to other brokers. Without --to and --away-from it lists the moves that go on.

    --to gives each partition exactly these replicas; the preferred leaders of a topic go round among them, and with
    --partition the first one is preferred. --away-from replaces the replicas on some brokers, of these topics or of
    all, with ones on the brokers that have the fewest.
    """
    _check(topics, partitions, to, away_from, verify=verify, cancel=cancel)
    wanted = Wanted(topics, partitions, to, away_from)
    if cancel:
        _cancel(target, wanted, dry_run=dry_run, yes=yes, as_json=as_json)
    elif verify:
        _verify(target, wanted, waits=waits, as_json=as_json)
    elif to or away_from:
        _move(target, wanted, throttle, waits=waits, dry_run=dry_run, yes=yes, as_json=as_json)
    else:
        rows = run_with(target, lambda cluster: _progress(cluster, wanted))
        show(rows, STATUS_COLUMNS, as_json=as_json)


def _check(
    topics: Sequence[str],
    partitions: Sequence[int],
    to: Sequence[int],
    away_from: Sequence[int],
    *,
    verify: bool,
    cancel: bool,
) -> None:
    if to and away_from:
        raise click.UsageError("--to and --away-from exclude each other")
    if to and not topics:
        raise click.UsageError("--to is for topics: name them")
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition is for one topic")
    if cancel and (verify or to or away_from):
        raise click.UsageError("--cancel takes back what goes on: leave the other options out")


def _move(
    target: Target, wanted: Wanted, throttle: int | None, *, waits: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    moves = run_with(target, lambda cluster: _planned(cluster, wanted))
    rows = [_plan_row(each) for each in moves]
    if not dry_run and not yes and moves:
        show(rows, PLAN_COLUMNS, as_json=False)
        must_confirm(f"move these {len(moves)} partitions")

    async def begin(cluster: "RepeatingCluster") -> bool:
        if throttle is not None:
            await _throttle(cluster, moves, throttle)
        failed = await _ask_for(cluster, {each.partition: each.after for each in moves})
        if waits:
            await _await(cluster, wanted)
            if throttle is not None:
                await _take_throttles_off(cluster, wanted.topics)
        return failed

    failed = run_with(target, begin) if moves and not dry_run else False
    show(rows, PLAN_COLUMNS, as_json=as_json)
    if throttle is not None and not waits and not dry_run:
        click.echo("barnabas: the throttle stays until `barnabas move --verify` finds everything moved", err=True)
    if failed:
        sys.exit(STATUS_FAILED)


def _plan_row(move: "Move") -> Row:
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "before": list(move.before),
        "after": list(move.after),
    }


async def _planned(cluster: "Cluster", wanted: Wanted) -> "list[Move]":
    from barnabas.cli.move_plan import move_away, move_to
    from barnabas.client.errors import ClientError

    everything, racks = await _replicas(cluster)
    current = await _chosen(cluster, everything, wanted)
    unknown = sorted(set(wanted.to) - racks.keys())
    if unknown:
        raise ClientError(f"broker {unknown[0]} is not up; those that are: {', '.join(map(str, sorted(racks)))}")
    if wanted.to:
        return move_to(current, wanted.to, rotates=not wanted.partitions)
    try:
        return move_away(everything, wanted.away_from, racks, current)
    except ValueError as error:
        raise ClientError(str(error)) from None


async def _replicas(cluster: "Cluster") -> "tuple[dict[TopicPartition, Replicas], dict[int, str | None]]":
    """The replicas of every partition, those that it will have if it is being moved; the racks of the brokers."""
    from barnabas.client.moving import moving_partitions
    from barnabas.wire.topics import TopicPartition

    described = await cluster.describe()
    moving = await moving_partitions(cluster)
    found = {}
    for topic in sorted(described.topics, key=lambda topic: topic.name or ""):
        for row in sorted(topic.partitions, key=lambda row: row.partition_index):
            key = TopicPartition(topic.name or "", row.partition_index)
            removing = moving[key].removing if key in moving else ()
            found[key] = tuple(broker for broker in row.replica_nodes if broker not in removing)
    return found, {row.node_id: row.rack for row in described.brokers}


async def _chosen(
    cluster: "Cluster", everything: "Mapping[TopicPartition, Replicas]", wanted: Wanted
) -> "dict[TopicPartition, Replicas]":
    """Those partitions that the command names."""
    from barnabas.client.errors import ClientError
    from barnabas.wire.topics import TopicPartition

    # An unknown name is an error, with the nearest one that there is.
    if wanted.topics:
        await cluster.topics(wanted.topics, leader_seconds=0)
    for partition in wanted.partitions:
        key = TopicPartition(wanted.topics[0], partition)
        if key not in everything:
            raise ClientError(f"there is no partition {key}")
    return {
        key: replicas
        for key, replicas in everything.items()
        if (not wanted.topics or key.topic in wanted.topics)
        and (not wanted.partitions or key.partition in wanted.partitions)
    }


async def _ask_for(cluster: "RepeatingCluster", replicas: "Mapping[TopicPartition, Sequence[int] | None]") -> bool:
    """Begin these moves, or take them back; says which were refused, and whether any was."""
    from barnabas.client.moving import move_replicas
    from barnabas.wire.errors import ErrorCode, error_name

    outcomes = await move_replicas(cluster, replicas)
    # The first request, whose answer was lost, has taken back what does not go on any more.
    done = (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS) if cluster.is_repeated else (ErrorCode.NONE,)
    failed = False
    for key, outcome in outcomes.items():
        if outcome.code not in done:
            failed = True
            click.echo(f"barnabas: partition {key}: {error_name(outcome.code)}: {outcome.message or ''}", err=True)
    return failed


def _cancel(target: Target, wanted: Wanted, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    moving = run_with(target, lambda cluster: _moving(cluster, wanted))
    rows: list[Row] = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "before": list(each.replicas),
            "after": [broker for broker in each.replicas if broker not in each.adding],
        }
        for key, each in moving.items()
    ]
    if not moving:
        click.echo("barnabas: nothing is being moved", err=True)
        return
    if not dry_run and not yes:
        show(rows, PLAN_COLUMNS, as_json=False)
        must_confirm(f"take back the moves of these {len(moving)} partitions")
    failed = False
    if not dry_run:
        failed = run_with(target, lambda cluster: _ask_for(cluster, dict.fromkeys(moving)))
    show(rows, PLAN_COLUMNS, as_json=as_json)
    if failed:
        sys.exit(STATUS_FAILED)


async def _moving(cluster: "Cluster", wanted: Wanted) -> "dict[TopicPartition, Moving]":
    from barnabas.client.moving import moving_partitions

    moving = await moving_partitions(cluster)
    return {
        key: moving[key]
        for key in sorted(moving)
        if (not wanted.topics or key.topic in wanted.topics)
        and (not wanted.partitions or key.partition in wanted.partitions)
    }


def _verify(target: Target, wanted: Wanted, *, waits: bool, as_json: bool) -> None:
    async def look(cluster: "Cluster") -> list[Row]:
        if waits:
            await _await(cluster, wanted)
        moving = await _moving(cluster, wanted)
        rows = [_verified(each, moving) for each in await _unfinished(cluster, wanted, moving)]
        # The throttles of moves that go on stay, also those of other topics: they share the brokers' rates.
        if not rows and not await _moving(cluster, Wanted((), (), (), ())):
            await _take_throttles_off(cluster, wanted.topics)
        return rows

    rows = run_with(target, look)
    show(rows, VERIFY_COLUMNS, as_json=as_json)
    if rows:
        sys.exit(STATUS_FAILED)
    click.echo("barnabas: everything is moved", err=True)


async def _unfinished(
    cluster: "Cluster", wanted: Wanted, moving: "Mapping[TopicPartition, Moving]"
) -> "list[tuple[TopicPartition, Sequence[int], Sequence[int]]]":
    """The partitions that are not where they are wanted: with the replicas that they have, and shall have."""
    left: dict[TopicPartition, tuple[Sequence[int], Sequence[int]]] = {
        key: (each.replicas, [broker for broker in each.replicas if broker not in each.removing])
        for key, each in moving.items()
    }
    if wanted.to or wanted.away_from:
        for move in await _planned(cluster, wanted):
            left.setdefault(move.partition, (move.before, move.after))
    return [(key, *left[key]) for key in sorted(left)]


def _verified(
    unfinished: "tuple[TopicPartition, Sequence[int], Sequence[int]]", moving: "Mapping[TopicPartition, Moving]"
) -> Row:
    key, replicas, after = unfinished
    return {
        "topic": key.topic,
        "partition": key.partition,
        "replicas": list(replicas),
        "wanted": list(after),
        "state": "moving" if key in moving else "elsewhere",
    }


async def _await(cluster: "Cluster", wanted: Wanted) -> None:
    """Return when nothing of this is being moved any more; a person at a terminal sees how much is left."""
    import trio

    is_seen = sys.stderr.isatty()
    began = trio.current_time()
    first_left: int | None = None
    while rows := await _progress(cluster, wanted):
        if is_seen:
            left = sum(each for row in rows if isinstance(each := row["bytes_left"], int))
            first_left = left if first_left is None else first_left
            time_left = time_left_text(first_left - left, left, trio.current_time() - began)
            click.echo(f"\r\x1b[K{len(rows)} partitions, {left:,} bytes left{time_left}", err=True, nl=False)
        await trio.sleep(LOOK_SECONDS)
    if is_seen:
        click.echo("\r\x1b[K", err=True, nl=False)


async def _progress(cluster: "Cluster", wanted: Wanted) -> list[Row]:
    """The moves that go on, with the bytes that have to be copied and those that are left."""
    moving = await _moving(cluster, wanted)
    if not moving:
        return []
    sizes = await _sizes(cluster, moving)
    rows: list[Row] = []
    for key, each in moving.items():
        # The largest of the old replicas is complete, or nearly so.
        size = max((sizes.get((key, broker), 0) for broker in each.replicas if broker not in each.adding), default=0)
        copied = [min(sizes.get((key, broker), 0), size) for broker in each.adding]
        rows.append(
            {
                "topic": key.topic,
                "partition": key.partition,
                "replicas": list(each.replicas),
                "adding": list(each.adding),
                "removing": list(each.removing),
                "bytes": size * len(each.adding),
                "bytes_left": size * len(each.adding) - sum(copied),
            }
        )
    return rows


async def _sizes(
    cluster: "Cluster", moving: "Mapping[TopicPartition, Moving]"
) -> "dict[tuple[TopicPartition, int], int]":
    """The size of each replica on each broker that is up, in bytes."""
    from barnabas.client.admin import log_dirs
    from barnabas.client.errors import Unreachable
    from barnabas.wire.topics import TopicPartition

    found = {}
    for broker in sorted({broker for each in moving.values() for broker in each.replicas}):
        keys = [key for key, each in moving.items() if broker in each.replicas]
        # A broker that is down copies nothing, and the others' progress is still of interest.
        try:
            dirs: Iterable[m.DescribeLogDirsResponse.DescribeLogDirsResult] = await log_dirs(cluster, broker, keys)
        except Unreachable:
            continue
        for directory in dirs:
            for topic in directory.topics:
                for row in topic.partitions:
                    found[TopicPartition(topic.name, row.partition_index), broker] = row.partition_size
    return found


async def _throttle(cluster: "Cluster", moves: "Sequence[Move]", bytes_a_second: int) -> None:
    """Limit what these moves copy, as Kafka's tool does: the replicas by their topics, the rates by the brokers."""
    from barnabas.cli.move_plan import merged, throttled_replicas
    from barnabas.client.admin import set_broker_configs, set_topic_configs, topic_configs

    for topic, replicas in throttled_replicas(moves).items():
        (rows,) = (await topic_configs(cluster, [topic])).values()
        values = {row.name: row.value for row in rows}
        names = zip(THROTTLED_REPLICAS, replicas, strict=True)
        await set_topic_configs(cluster, topic, {name: merged(values.get(name), more) for name, more in names})
    for broker in sorted({broker for each in moves for broker in (*each.before, *each.after)}):
        await set_broker_configs(cluster, broker, dict.fromkeys(THROTTLED_RATES, str(bytes_a_second)))


async def _take_throttles_off(cluster: "Cluster", topics: Sequence[str]) -> None:
    from barnabas.cli.brokers import DYNAMIC_SOURCE
    from barnabas.cli.topics import DYNAMIC_TOPIC_CONFIG
    from barnabas.client.admin import broker_configs, set_broker_configs, set_topic_configs, topic_configs

    names = topics or [topic.name for topic in (await cluster.describe()).topics if topic.name]
    for name, rows in (await topic_configs(cluster, names)).items():
        found = [
            row.name
            for row in rows
            if row.name in THROTTLED_REPLICAS and row.config_source == DYNAMIC_TOPIC_CONFIG and row.value != "*"
        ]
        if found:
            await set_topic_configs(cluster, name, dict.fromkeys(found))
    for broker in (await cluster.brokers()).brokers:
        properties = await broker_configs(cluster, broker.node_id)
        rates = [row.name for row in properties if row.name in THROTTLED_RATES and row.config_source == DYNAMIC_SOURCE]
        if rates:
            await set_broker_configs(cluster, broker.node_id, dict.fromkeys(rates))
