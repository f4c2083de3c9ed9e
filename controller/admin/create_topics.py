"""Creating topics, and marking them for deletion: for CreateTopics, DeleteTopics and auto-creation (reference A.4).

In a cluster with ZooKeeper any broker may create a topic: it writes the topic's configuration and its replicas, and the
controller, which watches the topics, does the rest. A topic is deleted by a marker node; the controller does the rest.

Creation is in two halves. `plan_topic` is pure: it checks the request, fills in defaults, places the replicas, and
calls the passed function to check the topic's properties. `create_topic` reads from the store whether the name is free,
and writes; `refuse_existing` only reads, for `validate_only`.

Codes and messages are those of Apache Kafka 3.9.1 in ZooKeeper mode, as observed on a running broker. The order of the
checks is Kafka's too, with two exceptions: Kafka first looks the topic up in the metadata cache (here the caller does),
and it reads the store before it checks a manual assignment and the properties.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from barnabas.controller.admin.placement import MixedRacks, NoPartitions, RackAwareness, TooFewBrokers, place_replicas
from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ConfigEntity, TopicAssignment
from barnabas.controller.store.store import Create, DataTooLarge, MetadataStore, NodeExists, NoNode, Op, SetData
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, names_collide, topic_id_text, why_invalid_topic_name

BY_DEFAULT = -1  # in a request: the broker's configuration applies
PARTITIONS_MAX = 50_000  # a topic's replicas are the data of one node, and a node holds at most a megabyte

CheckConfigs = Callable[[Mapping[str, str]], Sequence[str]]  # properties -> what is wrong, with Kafka's messages


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A requested topic: counts, or a manual assignment (partition -> brokers) and no counts."""

    name: str
    partition_count: int = BY_DEFAULT
    replication_factor: int = BY_DEFAULT
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


class TopicDefaults(NamedTuple):
    """The values for BY_DEFAULT: `num.partitions` and `default.replication.factor`."""

    partition_count: int
    replication_factor: int


class TopicPlan(NamedTuple):
    """A topic that may be created, unless its name is taken."""

    name: str
    assignment: Mapping[int, Sequence[int]]
    configs: Mapping[str, str]

    @property
    def replication_factor(self) -> int:
        return len(self.assignment[0])


class CreatedTopic(NamedTuple):
    """A topic that was written to the store; the controller handles it next."""

    plan: TopicPlan
    topic_id: bytes | None  # None below metadata version 2.8-IV0


class TopicRefused(NamedTuple):
    """The error of a refused creation or deletion."""

    code: ErrorCode
    message: str | None


def plan_topic(
    new: NewTopic,
    *,
    brokers: Mapping[int, str | None],
    defaults: TopicDefaults,
    check_configs: CheckConfigs,
    rng: random.Random,
    rack_awareness: RackAwareness = RackAwareness.ENFORCED,
) -> TopicPlan | TopicRefused:
    """Check everything that needs no store; `brokers` maps live broker ids to their racks."""
    nulls = [name for name, value in new.configs.items() if value is None]
    if nulls:
        return TopicRefused(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")

    # As in Kafka, replicas are placed before the name is checked: of several errors the client
    # gets the one that Kafka answers.
    placed = _place(new, brokers, defaults, rng, rack_awareness)
    if isinstance(placed, TopicRefused):
        return placed
    why = why_invalid_topic_name(new.name)
    if why is not None:
        return TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")
    refused = _check_assignment(placed)
    if refused is not None:
        return refused
    configs = {name: value for name, value in new.configs.items() if value is not None}
    problems = check_configs(configs)
    if problems:
        return TopicRefused(ErrorCode.INVALID_CONFIG, problems[0])
    return TopicPlan(new.name, placed, configs)


def _place(
    new: NewTopic,
    brokers: Mapping[int, str | None],
    defaults: TopicDefaults,
    rng: random.Random,
    rack_awareness: RackAwareness,
) -> dict[int, list[int]] | TopicRefused:
    counted = new.partition_count != BY_DEFAULT or new.replication_factor != BY_DEFAULT
    if new.assignment and counted:
        return TopicRefused(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. "
            "Both cannot be used at the same time.",
        )

    if new.assignment:
        return {partition: list(replicas) for partition, replicas in sorted(new.assignment.items())}
    count = defaults.partition_count if new.partition_count == BY_DEFAULT else new.partition_count
    factor = defaults.replication_factor if new.replication_factor == BY_DEFAULT else new.replication_factor

    # The count is checked before the replicas are placed, because placing them takes memory for
    # every requested partition.
    if count > PARTITIONS_MAX:
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, f"Number of partitions must be at most {PARTITIONS_MAX}.")
    try:
        return place_replicas(brokers, count, factor, rng, rack_awareness=rack_awareness)
    except NoPartitions as error:
        return TopicRefused(ErrorCode.INVALID_PARTITIONS, str(error))
    except TooFewBrokers as error:
        return TopicRefused(ErrorCode.INVALID_REPLICATION_FACTOR, str(error))
    except MixedRacks:
        # Kafka has no error code for mixed racks, and does not send the text.
        return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _check_assignment(assignment: Mapping[int, Sequence[int]]) -> TopicRefused | None:
    if len({len(replicas) for replicas in assignment.values()}) != 1:
        return bad_assignment("All partitions should have the same number of replicas")
    # A partition without replicas could never have a leader, so it is refused, as in KRaft mode;
    # Kafka in ZooKeeper mode accepts it. Replicas on brokers that do not exist are accepted, as
    # there.
    if not all(assignment.values()):
        return bad_assignment("The manual partition assignment includes an empty replica list.")
    if any(len(replicas) != len(set(replicas)) for replicas in assignment.values()):
        listed = ", ".join(
            f"{partition} -> ArrayBuffer({', '.join(map(str, replicas))})" for partition, replicas in assignment.items()
        )
        return bad_assignment(f"Duplicate replica assignment found: HashMap({listed})")
    # This is stricter than Kafka, which compares only the number and the sum of the indexes.
    if sorted(assignment) != list(range(len(assignment))):
        return bad_assignment("partitions should be a consecutive 0-based integer sequence")
    return None


def bad_assignment(message: str) -> TopicRefused:
    """INVALID_REPLICA_ASSIGNMENT with this message."""
    return TopicRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


# The store -------------------------------------------------------------------------------------------------------


async def refuse_existing(store: MetadataStore, name: str) -> TopicRefused | None:
    """The error if the name is taken: the topic exists, is being deleted, or would share another topic's metrics."""
    # No node can have this name, and the store would not accept the path.
    if why_invalid_topic_name(name) is not None:
        return None
    # The marker is looked at first: the topic's node still exists while it is being deleted.
    if await store.exists(paths.delete_topic(name)) is not None:
        return _exists(f"Topic '{name}' is marked for deletion.")
    if await store.exists(paths.topic(name)) is not None:
        return _exists(f"Topic '{name}' already exists.")
    # Metrics write "." as "_". Only names with one of them can collide, so the list of topics is
    # not read for other names.
    if "." in name or "_" in name:
        colliding = [other for other in await store.children(paths.TOPICS) if names_collide(name, other)]
        # The topic was created between the two reads.
        if name in colliding:
            return _exists(f"Topic '{name}' already exists.")
        if colliding:
            message = f"Topic '{name}' collides with existing topics: {', '.join(colliding)}"
            return TopicRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    return None


async def create_topic(
    store: MetadataStore, plan: TopicPlan, rng: random.Random, *, with_id: bool = True
) -> CreatedTopic | TopicRefused:
    """Write the topic's configuration and the topic, both or neither."""
    # All attempts use the same id: it shows whether a topic that exists was written by an earlier
    # attempt.
    topic_id = new_topic_id(rng) if with_id else None
    config_path = paths.config_entity("topics", plan.name)
    config = ConfigEntity(plan.configs).encode()
    topic = Create(paths.topic(plan.name), TopicAssignment(plan.assignment, topic_id).encode())
    while True:
        refused = await refuse_existing(store, plan.name)
        if refused is not None:
            return refused

        # The properties of a former topic may be left over. They are replaced, or they would apply to this one.
        left_over = await store.exists(config_path) is not None
        configured: Op = SetData(config_path, config) if left_over else Create(config_path, config)
        try:
            await store.multi([configured, topic])
        except NodeExists:
            # If the topic exists, an earlier attempt of ours wrote it, and its answer was lost; or
            # another broker wrote it, which the next round finds. If it is the properties that
            # exist, they were created since the look-up: the next round replaces them.
            if topic_id is not None and await _is_ours(store, plan.name, topic_id):
                return CreatedTopic(plan, topic_id)
        except NoNode as error:
            # The left-over properties were removed meanwhile: the next round creates them.
            if error.path != config_path:
                raise
        except DataTooLarge as error:
            return TopicRefused(ErrorCode.INVALID_REQUEST, f"The topic does not fit in the metadata store: {error}")
        else:
            return CreatedTopic(plan, topic_id)


async def mark_for_deletion(store: MetadataStore, name: str) -> TopicRefused | None:
    """Mark a topic for deletion; None if it is marked now, or was before."""
    if why_invalid_topic_name(name) is not None or await store.exists(paths.topic(name)) is None:
        return TopicRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    # The topic may be gone since it was looked up. Then the controller removes the marker (`read_deletion_marks`).
    try:
        await store.create(paths.delete_topic(name))
    except NodeExists:
        return None
    return None


def new_topic_id(rng: random.Random) -> bytes:
    """A random (version 4) UUID that is not zero and whose text does not begin like a command-line option."""
    while True:
        drawn = bytearray(rng.randbytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40
        drawn[8] = drawn[8] & 0x3F | 0x80
        topic_id = bytes(drawn)
        if topic_id != ZERO_TOPIC_ID and not topic_id_text(topic_id).startswith("-"):
            return topic_id


async def _is_ours(store: MetadataStore, name: str, topic_id: bytes) -> bool:
    try:
        data, _ = await store.get(paths.topic(name))
    except NoNode:
        return False
    found = parse(TopicAssignment.decode, data, paths.topic(name))
    return found is not None and found.topic_id == topic_id


def _exists(message: str) -> TopicRefused:
    return TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, message)
