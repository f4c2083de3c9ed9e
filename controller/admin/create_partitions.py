"""Adding partitions to a topic: for CreatePartitions (KIP-195; reference A.4, B.14).

As with creation there are two halves. `plan_new_partitions` is pure: from the topic's node to the replicas of the
partitions to add. `create_partitions` reads the node, plans, and writes it back; the controller, which watches it,
elects the leaders of the new partitions.

Codes, messages and the order of the checks are those of Apache Kafka 3.9.1 in ZooKeeper mode, as observed on a running
broker. Kafka has no limit for the number of partitions (and runs out of memory); ours is that of a new topic.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.controller.admin.create_topics import PARTITIONS_MAX, TopicRefused, bad_assignment
from barnabas.controller.admin.placement import MixedRacks, TooFewBrokers, place_replicas, start_of_new_partitions
from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import TopicAssignment
from barnabas.controller.store.store import BadVersion, DataTooLarge, MetadataStore, NoNode, SetData
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import why_invalid_topic_name


class NewPartitions(NamedTuple):
    """The requested partition count of a topic, with the assignments of the new partitions (None: placed here)."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


class CreatedPartitions(NamedTuple):
    """The result; with `validate_only` nothing was written."""

    partition_count: int  # of all partitions of the topic


def plan_new_partitions(
    new: NewPartitions, existing: TopicAssignment, brokers: Mapping[int, str | None], rng: random.Random
) -> dict[int, list[int]] | TopicRefused:
    """The replicas of the partitions to add, by index; `brokers` maps live broker ids to their racks."""
    name = new.name
    old_count = len(existing.partitions)

    # Kafka refuses this, too. The write in `create_partitions` relies on it: it leaves out the
    # replicas that are being added or removed.
    if existing.adding or existing.removing:
        message = f"A partition reassignment is in progress for the topic '{name}'."
        return TopicRefused(ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
    if not old_count:
        return no_such_topic(name)
    added = new.partition_count - old_count
    if added < 0:
        message = (
            f"Topic currently has {old_count} partitions, which is higher than the requested {new.partition_count}."
        )
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, message)

    if added == 0:
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, f"Topic already has {old_count} partitions.")
    if new.partition_count > PARTITIONS_MAX:
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be at most {PARTITIONS_MAX}.")

    # The replication factor is that of partition 0. If there is none, the node was changed by
    # hand; the code is Kafka's.
    first_replicas = existing.partitions.get(0)
    if not first_replicas:
        return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    if new.assignments is None:
        return _place(new, old_count, first_replicas, brokers, rng)
    refused = _check_assignments(new.assignments, added, old_count, len(first_replicas), brokers)
    return refused or {index: list(each) for index, each in enumerate(new.assignments, old_count)}


def no_such_topic(name: str) -> TopicRefused:
    """The error for a topic that does not exist."""
    return TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _place(
    new: NewPartitions,
    old_count: int,
    first_replicas: Sequence[int],
    brokers: Mapping[int, str | None],
    rng: random.Random,
) -> dict[int, list[int]] | TopicRefused:
    """Place the replicas so that they continue the pattern of the topic's first partition."""
    try:
        return place_replicas(
            brokers,
            new.partition_count - old_count,
            len(first_replicas),
            rng,
            start=start_of_new_partitions(brokers, first_replicas),
            first_partition=old_count,
        )
    except TooFewBrokers as error:
        return TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, str(error))
    except MixedRacks:
        # Kafka has no error code for mixed racks, and does not send the text.
        return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _check_assignments(
    assignments: Sequence[Sequence[int]], added: int, old_count: int, factor: int, brokers: Mapping[int, str | None]
) -> TopicRefused | None:
    """The error of a manual assignment of `added` partitions, each with `factor` replicas; None if it is valid.

    `old_count` is the index of the first one.
    """
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


async def create_partitions(
    store: MetadataStore,
    new: NewPartitions,
    brokers: Mapping[int, str | None],
    rng: random.Random,
    *,
    validate_only: bool = False,
) -> CreatedPartitions | TopicRefused:
    """Add partitions to a topic; with `validate_only` only check the request."""
    # No node can have this name, and the store would not accept the path.
    if why_invalid_topic_name(new.name) is not None:
        return no_such_topic(new.name)
    path = paths.topic(new.name)
    written = None
    while True:
        try:
            # The controller ignores new partitions of a topic that is being deleted, so the client would wait for their
            # leaders until its timeout.
            if await store.exists(paths.delete_topic(new.name)) is not None:
                return TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is queued for deletion.")
            data, stat = await store.get(path)
        except NoNode:
            return no_such_topic(new.name)
        existing = parse(TopicAssignment.decode, data, path)

        # The node is malformed; the code is Kafka's.
        if existing is None:
            return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)

        # An earlier attempt has succeeded and its answer was lost; the store's second attempt met another version.
        if written is not None and existing == written:
            return CreatedPartitions(new.partition_count)
        planned = plan_new_partitions(new, existing, brokers, rng)
        if isinstance(planned, TopicRefused):
            return planned
        if validate_only:
            return CreatedPartitions(new.partition_count)

        # The write is conditional on the version that was read: another broker may add partitions,
        # too, and the controller writes the same node in reassignments. Kafka writes
        # unconditionally, and only refuses while it sees a reassignment.
        written = TopicAssignment({**existing.partitions, **planned}, existing.topic_id)
        try:
            await store.multi([SetData(path, written.encode(), stat.version)])
        except NoNode:
            return no_such_topic(new.name)
        except BadVersion:
            continue
        except DataTooLarge as error:
            return TopicRefused(ErrorCode.INVALID_REQUEST, f"The topic does not fit in the metadata store: {error}")
        return CreatedPartitions(new.partition_count)
