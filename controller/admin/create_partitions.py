"""Adding partitions to a topic: for CreatePartitions (KIP-195; reference A.4, B.14).

As with creation there are two halves. `plan_growth` is pure: from the topic's node to the replicas of the partitions to
add. `grow_topic` reads the node, plans, and writes it back; the controller, which watches it, gives the new partitions
their leaders. The write is conditional on the version that was read, for the controller writes the same node when it
moves partitions; Kafka writes whatever it finds and only refuses while it sees a partition being moved.

Codes, messages and the order of the checks are those of Apache Kafka 3.9.1 in ZooKeeper mode, as asked of a running
one. It sets no limit to the number of partitions (and runs out of memory); ours is that of a new topic.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.controller.admin.create_topics import PARTITIONS_MAX, TopicRefused, bad_assignment
from barnabas.controller.admin.placement import MixedRacks, TooFewBrokers, place_replicas, start_for_growth
from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import TopicAssignment
from barnabas.controller.store.store import BadVersion, DataTooLarge, MetadataStore, NoNode, SetData
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import why_invalid_topic_name


class Growth(NamedTuple):
    """How a topic shall grow: to `partition_count` partitions, the new ones on these brokers, or placed by us."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


class Grown(NamedTuple):
    """A topic that grew, or could; all its partitions together."""

    partition_count: int


def plan_growth(
    growth: Growth, existing: TopicAssignment, brokers: Mapping[int, str | None], rng: random.Random
) -> dict[int, list[int]] | TopicRefused:
    """The replicas of the partitions to add; `brokers` maps live broker ids to their racks."""
    name, old_count = growth.name, len(existing.partitions)
    if existing.adding or existing.removing:
        message = f"A partition reassignment is in progress for the topic '{name}'."
        return TopicRefused(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
    if not old_count:
        return no_such_topic(name)
    added = growth.partition_count - old_count
    if added < 0:
        message = (
            f"Topic currently has {old_count} partitions, which is higher than the requested {growth.partition_count}."
        )
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, message)
    if added == 0:
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {old_count} partitions.")
    if growth.partition_count > PARTITIONS_MAX:
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be at most {PARTITIONS_MAX}.")
    first_replicas = existing.partitions.get(0)
    if not first_replicas:
        return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)  # the node was changed by hand; Kafka's code
    if growth.assignments is None:
        return _place(growth, old_count, first_replicas, brokers, rng)
    refused = _check_assignments(growth.assignments, added, old_count, len(first_replicas), brokers)
    return refused or {index: list(each) for index, each in enumerate(growth.assignments, old_count)}


def no_such_topic(name: str) -> TopicRefused:
    """What is said of a topic that does not exist."""
    return TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _place(
    growth: Growth,
    old_count: int,
    first_replicas: Sequence[int],
    brokers: Mapping[int, str | None],
    rng: random.Random,
) -> dict[int, list[int]] | TopicRefused:
    """Continue the pattern that the topic's first partition began."""
    try:
        return place_replicas(
            brokers,
            growth.partition_count - old_count,
            len(first_replicas),
            rng,
            start=start_for_growth(brokers, first_replicas),
            first_partition=old_count,
        )
    except TooFewBrokers as error:
        return TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, str(error))
    except MixedRacks:
        return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)  # Kafka has no code for it and hides the text


def _check_assignments(
    assignments: Sequence[Sequence[int]], added: int, old_count: int, factor: int, brokers: Mapping[int, str | None]
) -> TopicRefused | None:
    """Why these replicas cannot be those of `added` partitions from `old_count` on, each with `factor` of them."""
    named = dict.fromkeys(broker_id for replicas in assignments for broker_id in replicas)
    unknown = [broker_id for broker_id in named if broker_id not in brokers]
    if unknown:
        return bad_assignment(f"Unknown broker(s) in replica assignment: {_listed(unknown)}.")
    if len(assignments) != added:
        return bad_assignment(
            f"Increasing the number of partitions by {added} but {len(assignments)} assignments provided."
        )
    for partition, replicas in enumerate(assignments, old_count):
        if not replicas:
            return bad_assignment(f"Cannot have replication factor of 0 for partition id {partition}.")
        if len(set(replicas)) != len(replicas):
            return bad_assignment(
                "Duplicate brokers not allowed in replica assignment:"
                f" {_listed(replicas)} for partition id {partition}."
            )
    others = {index: len(each) for index, each in enumerate(assignments, old_count) if len(each) != factor}
    if others:
        return bad_assignment(
            f"Inconsistent replication factor between partitions, partition 0 has {factor}"
            f" while partitions [{_listed(others)}] have replication factors [{_listed(others.values())}],"
            " respectively."
        )
    return None


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


async def grow_topic(
    store: MetadataStore,
    growth: Growth,
    brokers: Mapping[int, str | None],
    rng: random.Random,
    *,
    validate_only: bool = False,
) -> Grown | TopicRefused:
    """Add partitions to a topic, or with `validate_only` say whether they could be."""
    if why_invalid_topic_name(growth.name) is not None:
        return no_such_topic(growth.name)  # no node can have this name
    path, written = paths.topic(growth.name), None
    while True:
        try:
            if await store.exists(paths.delete_topic(growth.name)) is not None:
                return TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
            data, stat = await store.get(path)
        except NoNode:
            return no_such_topic(growth.name)
        existing = parse(TopicAssignment.decode, data, path)
        if existing is None:
            return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)  # as Kafka says
        if written is not None and existing == written:
            return Grown(growth.partition_count)  # the answer to an earlier attempt was lost
        planned = plan_growth(growth, existing, brokers, rng)
        if isinstance(planned, TopicRefused):
            return planned
        if validate_only:
            return Grown(growth.partition_count)
        written = TopicAssignment({**existing.partitions, **planned}, existing.topic_id)
        try:
            await store.multi([SetData(path, written.encode(), stat.version)])
        except NoNode:
            return no_such_topic(growth.name)
        except BadVersion:
            continue
        except DataTooLarge as error:
            return TopicRefused(ErrorCode.INVALID_REQUEST, f"The topic does not fit in the metadata store: {error}")
        return Grown(growth.partition_count)
