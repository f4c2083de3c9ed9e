"""`barnabas move`: partitions of any Kafka cluster to other brokers, with a throttle and the bytes that are left."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.changing import FAILED, dry_run, must_confirm, yes
from barnabas.cli.cluster import Target, for_a_cluster, run_with
from barnabas.cli.output import Row, as_json, show, warn
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
AWAY_SECONDS_MAX = 120.0  # so long `--wait` tolerates that no controller answers
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
    if not all(text.strip().isascii() and text.strip().isdigit() for text in texts):
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
    wanted = Wanted(topics, partitions, to, away_from)
    _check(wanted, verify=verify, cancel=cancel)
    given = {"--throttle": throttle is not None, "--wait": waits, "--dry-run": dry_run, "--yes": yes}
    _check_mode([option for option, is_given in given.items() if is_given], wanted, verify=verify, cancel=cancel)
    if cancel:
        _cancel(target, wanted, dry_run=dry_run, yes=yes, as_json=as_json)
    elif verify:
        _verify(target, wanted, waits=waits, dry_run=dry_run, as_json=as_json)
    elif to or away_from:
        _move(target, wanted, throttle, waits=waits, dry_run=dry_run, yes=yes, as_json=as_json)
    else:
        show(run_with(target, lambda cluster: _listed(cluster, wanted)), STATUS_COLUMNS, as_json=as_json)


async def _listed(cluster: "Cluster", wanted: Wanted) -> list[Row]:
    await _must_exist(cluster, wanted)
    return await _progress(cluster, wanted)


def _check(wanted: Wanted, *, verify: bool, cancel: bool) -> None:
    if wanted.to and wanted.away_from:
        raise click.UsageError("--to and --away-from exclude each other")
    if wanted.to and not wanted.topics:
        raise click.UsageError("--to is for topics: name them")
    if wanted.partitions and len(wanted.topics) != 1:
        raise click.UsageError("--partition is for one topic")
    if cancel and (verify or wanted.to or wanted.away_from):
        raise click.UsageError("--cancel takes back what goes on: leave the other options out")


def _check_mode(given: Sequence[str], wanted: Wanted, *, verify: bool, cancel: bool) -> None:
    """Refuse an option that has no effect: what it is given for would not be done, and nothing would say so."""
    if cancel:
        mode, allowed = "--cancel", ["--dry-run", "--yes"]
    elif verify:
        mode, allowed = "--verify", ["--wait", "--dry-run", "--yes"]
    elif wanted.to or wanted.away_from:
        return
    else:
        mode, allowed = "the list of what is being moved", []
    for option in given:
        if option not in allowed:
            raise click.UsageError(f"{option} has no effect on {mode}: say --to or --away-from to move something")


def _move(
    target: Target, wanted: Wanted, throttle: int | None, *, waits: bool, dry_run: bool, yes: bool, as_json: bool
) -> None:
    moves = run_with(target, lambda cluster: _planned(cluster, wanted))
    rows = [_plan_row(each) for each in moves]
    if not dry_run and not yes and moves:
        must_confirm(f"move these {len(moves)} partitions", rows, PLAN_COLUMNS)
    is_throttled = False

    async def begin(cluster: "RepeatingCluster") -> "set[TopicPartition]":
        nonlocal is_throttled
        if throttle is not None:
            is_throttled = True
            await _throttle(cluster, moves, throttle)
        refused = await _ask_for(cluster, {each.partition: each.after for each in moves})
        if waits:
            await _await(cluster, wanted)
            if throttle is not None:
                await _take_throttles_off(cluster, wanted.topics)
                is_throttled = False
        return refused

    refused: set[TopicPartition] = set()
    try:
        if moves and not dry_run:
            refused = run_with(target, begin)
    # Also if the command fails or is interrupted while it waits.
    finally:
        if is_throttled:
            warn("the throttle stays until `barnabas move --verify` finds everything moved")
    done = "would be moved" if dry_run else "moved" if waits else "moving"
    _end_with(rows, refused, done, as_json=as_json)


def _end_with(rows: Sequence[Row], refused: "set[TopicPartition]", done: str, *, as_json: bool) -> None:
    """Print the rows, each with what became of it; the program ends with status 1 if any one was refused."""
    names = {(key.topic, key.partition) for key in refused}
    shown = [{**row, "result": FAILED if (row["topic"], row["partition"]) in names else done} for row in rows]
    show(shown, [*PLAN_COLUMNS, "result"], as_json=as_json)
    if refused:
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
    await _must_exist(cluster, wanted)
    return {key: replicas for key, replicas in everything.items() if _is_named(key, wanted)}


async def _must_exist(cluster: "Cluster", wanted: Wanted) -> None:
    """ClientError for the first name that is unknown, with the nearest one that there is."""
    from barnabas.client.errors import ClientError
    from barnabas.wire.topics import TopicPartition

    if not wanted.topics:
        return
    found = await cluster.topics(wanted.topics, leader_seconds=0)
    there = {TopicPartition(name, row.partition_index) for name, topic in found.items() for row in topic.partitions}
    for partition in wanted.partitions:
        key = TopicPartition(wanted.topics[0], partition)
        if key not in there:
            raise ClientError(f"there is no partition {key}")


def _is_named(key: "TopicPartition", wanted: Wanted) -> bool:
    return (not wanted.topics or key.topic in wanted.topics) and (
        not wanted.partitions or key.partition in wanted.partitions
    )


async def _ask_for(
    cluster: "RepeatingCluster", replicas: "Mapping[TopicPartition, Sequence[int] | None]"
) -> "set[TopicPartition]":
    """Begin these moves, or take them back; the partitions of which that was refused, which is said."""
    from barnabas.client.moving import move_replicas
    from barnabas.wire.errors import ErrorCode, error_name

    outcomes = await move_replicas(cluster, replicas)
    # The first request, whose answer was lost, has taken back what does not go on any more.
    done = (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS) if cluster.is_repeated else (ErrorCode.NONE,)
    refused = {key for key, outcome in outcomes.items() if outcome.code not in done}
    for key, outcome in outcomes.items():
        if key in refused:
            warn(f"partition {key}: {error_name(outcome.code)}: {outcome.message or ''}")
    return refused


def _cancel(target: Target, wanted: Wanted, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    async def look(cluster: "Cluster") -> "dict[TopicPartition, Moving]":
        await _must_exist(cluster, wanted)
        return await _moving(cluster, wanted)

    moving = run_with(target, look)
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
        warn("nothing is being moved")
        return
    if not dry_run and not yes:
        must_confirm(f"take back the moves of these {len(moving)} partitions", rows, PLAN_COLUMNS)
    refused: set[TopicPartition] = set()
    if not dry_run:
        refused = run_with(target, lambda cluster: _ask_for(cluster, dict.fromkeys(moving)))
    _end_with(rows, refused, "would be taken back" if dry_run else "taken back", as_json=as_json)


async def _moving(cluster: "Cluster", wanted: Wanted) -> "dict[TopicPartition, Moving]":
    from barnabas.client.moving import moving_partitions

    moving = await moving_partitions(cluster)
    return {key: moving[key] for key in sorted(moving) if _is_named(key, wanted)}


def _verify(target: Target, wanted: Wanted, *, waits: bool, dry_run: bool, as_json: bool) -> None:
    async def look(cluster: "Cluster") -> list[Row]:
        await _must_exist(cluster, wanted)
        if waits:
            await _await(cluster, wanted)
        moving = await _moving(cluster, wanted)
        rows = [_verified(each, moving) for each in await _unfinished(cluster, wanted, moving)]
        # The throttles of moves that go on stay, also those of other topics: they share the brokers' rates.
        if not rows and not dry_run and not await _moving(cluster, Wanted((), (), (), ())):
            await _take_throttles_off(cluster, wanted.topics)
        return rows

    rows = run_with(target, look)
    show(rows, VERIFY_COLUMNS, as_json=as_json)
    if rows:
        sys.exit(STATUS_FAILED)
    warn("everything is moved")


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
    while rows := await _patiently(cluster, wanted):
        if is_seen:
            left = sum(each for row in rows if isinstance(each := row["bytes_left"], int))
            first_left = left if first_left is None else first_left
            time_left = time_left_text(first_left - left, left, trio.current_time() - began)
            click.echo(f"\r\x1b[K{len(rows)} partitions, {left:,} bytes left{time_left}", err=True, nl=False)
        await trio.sleep(LOOK_SECONDS)
    if is_seen:
        click.echo("\r\x1b[K", err=True, nl=False)


async def _patiently(cluster: "Cluster", wanted: Wanted) -> list[Row]:
    """As `_progress`; what fails for a while is asked for again: brokers go on to move what they are moving."""
    from barnabas.client.errors import Refused, Unreachable

    retry = cluster.retry(AWAY_SECONDS_MAX)
    while True:
        try:
            return await _progress(cluster, wanted)
        except (Refused, Unreachable) as error:
            if (isinstance(error, Refused) and not error.is_retriable) or not await retry.pause():
                raise
        # The broker that was the controller may have died, and another one is it by now.
        with suppress(Unreachable):
            await cluster.brokers()


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
