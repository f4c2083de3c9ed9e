"""Creates topics (CreateTopics, auto-creation, internal topics), adds partitions, and marks topics for deletion.

Any broker may create a topic by writing it to the store; the controller watches the store, and elects leaders
(reference A.4). `Topics` combines the pure plan of `controller/admin/create_topics.py` with this broker's live brokers
and configuration. Its `await_...` methods wait until the controller's result is in the metadata cache.
"""

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.config.live import topic_warnings
from barnabas.controller.admin.create_partitions import CreatedPartitions, NewPartitions, create_partitions
from barnabas.controller.admin.create_topics import (
    CreatedTopic,
    NewTopic,
    TopicDefaults,
    TopicPlan,
    TopicRefused,
    create_topic,
    mark_for_deletion,
    plan_topic,
    refuse_existing,
)
from barnabas.controller.admin.placement import RackAwareness
from barnabas.controller.store.metadata_versions import metadata_version_of
from barnabas.controller.store.store import SessionExpired, StoreUnavailable
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import GROUP_TOPIC, INTERNAL_TOPICS, TopicPartition
from barnabas.world.resting import resting

if TYPE_CHECKING:
    from barnabas.config.live import BrokerConfig
    from barnabas.controller.store.store import MetadataStore
    from barnabas.world.metadata import ClusterMetadata
    from barnabas.world.world import World

logger = logging.getLogger(__name__)


class Topics:
    """Plans, creates, grows and deletes topics."""

    def __init__(
        self, store: "MetadataStore", config: "BrokerConfig", metadata: "ClusterMetadata", world: "World"
    ) -> None:
        self._store = store
        self._config = config
        self._metadata = metadata
        self._rng = world.rng

    def plan(self, new: NewTopic, rack_awareness: RackAwareness = RackAwareness.ENFORCED) -> TopicPlan | TopicRefused:
        """Check a topic and place its replicas. Existing topics are not looked at."""
        return plan_topic(
            new,
            brokers=self._racks(),
            defaults=TopicDefaults(self._config.num_partitions, self._config.default_replication_factor),
            check_configs=self._config.validate_topic_configs,
            rng=self._rng,
            rack_awareness=rack_awareness,
        )

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> CreatedTopic | TopicPlan | TopicRefused:
        """Create a topic; with `validate_only`, only check it and return the plan."""
        # This is a shortcut that spares the plan; the write to the store is what decides.
        if new.name in self._metadata.topics:
            return TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
        plan = self.plan(new)
        if isinstance(plan, TopicRefused):
            return plan
        # The plan does not look at existing topics, and the metadata cache may lack the newest ones.
        if validate_only:
            return await refuse_existing(self._store, plan.name) or plan
        for warning in topic_warnings(plan.configs):
            logger.warning("topic %s: %s", plan.name, warning)
        return await self._write(plan)

    async def create_partitions(
        self, new: NewPartitions, *, validate_only: bool = False
    ) -> CreatedPartitions | TopicRefused:
        """Add partitions to a topic; with `validate_only`, only check that."""
        try:
            return await create_partitions(self._store, new, self._racks(), self._rng, validate_only=validate_only)
        except (StoreUnavailable, SessionExpired) as error:
            logger.warning("topic %s cannot get more partitions: %s", new.name, error, extra={"peer": "metadata store"})
            return TopicRefused(ErrorCode.REQUEST_TIMED_OUT, None)

    async def mark_for_deletion(self, name: str) -> TopicRefused | None:
        """Mark a topic for deletion, which the controller does; None when it is marked now, or was before."""
        try:
            return await mark_for_deletion(self._store, name)
        except (StoreUnavailable, SessionExpired) as error:
            logger.warning("topic %s cannot be deleted: %s", name, error, extra={"peer": "metadata store"})
            return TopicRefused(ErrorCode.REQUEST_TIMED_OUT, None)

    async def auto_create(self, name: str, take: Callable[[int], object] | None = None) -> ErrorCode:
        """Create a topic that a client named; returns the error code for the client.

        LEADER_NOT_AVAILABLE after success: the client retries until the topic has leaders. `take` records the number of
        partitions against the client's quota, right before they are created.
        """
        new = _internal_topic(name, self._config) if name in INTERNAL_TOPICS else NewTopic(name)
        # An internal topic must be creatable also while only some brokers have a rack, as in Kafka.
        awareness = RackAwareness.SAFE if name in INTERNAL_TOPICS else RackAwareness.ENFORCED
        plan = self.plan(new, awareness)
        if isinstance(plan, TopicRefused):
            return plan.code
        if take is not None:
            take(len(plan.assignment))
        created = await self._write(plan)
        # Another broker may have created it at the same time; the client retries in that case, too.
        if isinstance(created, TopicRefused) and created.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            return created.code
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def ensure_internal(self, name: str, take: Callable[[int], object] | None = None) -> None:
        """Create an internal topic unless it exists. No result: the caller sees the topic in the metadata cache."""
        if name not in self._metadata.topics:
            code = await self.auto_create(name, take)
            # Clients only see COORDINATOR_NOT_AVAILABLE; the operator needs the cause.
            if code == ErrorCode.INVALID_REPLICATION_FACTOR:
                logger.warning(
                    "topic %s cannot be created: it needs %d replicas, and %d brokers live",
                    name,
                    _internal_topic(name, self._config).replication_factor,
                    len(self._racks()),
                    extra={"peer": name},
                )

    async def _write(self, plan: TopicPlan) -> CreatedTopic | TopicRefused:
        """Write a planned topic to the store. An unusable store (a full disk, for example) refuses this topic only."""
        try:
            # Metadata versions before 2.8 have no topic ids (KIP-516).
            version = metadata_version_of(self._config.inter_broker_protocol_version)
            return await create_topic(self._store, plan, self._rng, with_id=version.topics_have_ids)
        except (StoreUnavailable, SessionExpired) as error:
            logger.warning("topic %s cannot be created: %s", plan.name, error, extra={"peer": "metadata store"})
            return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

    async def await_leaders(self, partition_counts: Mapping[str, int], deadline: float) -> set[str]:
        """Wait until all partitions of these topics have leaders; returns the topics without them at `deadline`."""
        missing = set(partition_counts)
        # The topics are written, so the request may be given up here when its client is gone (`resting`).
        with trio.move_on_at(deadline), resting():
            while missing := {name for name in missing if not self._has_leaders(name, partition_counts[name])}:
                await self._metadata.changed()
        return missing

    async def await_gone(self, names: set[str], deadline: float) -> set[str]:
        """Wait until these topics are gone from the metadata cache; returns those that are not at `deadline`."""
        left = names
        with trio.move_on_at(deadline), resting():
            while left := {name for name in left if name in self._metadata.topics}:
                await self._metadata.changed()
        return left

    async def await_leader_ids(self, leader_ids: Mapping[TopicPartition, int], deadline: float) -> set[TopicPartition]:
        """Wait until the metadata cache has these leaders; returns the partitions with another one at `deadline`."""
        missing = set(leader_ids)
        with trio.move_on_at(deadline), resting():
            while missing := {each for each in missing if self._metadata.leader_of(*each) != leader_ids[each]}:
                await self._metadata.changed()
        return missing

    def _has_leaders(self, name: str, partition_count: int) -> bool:
        return all(self._metadata.leader_of(name, index) is not None for index in range(partition_count))

    def _racks(self) -> dict[int, str | None]:
        return {broker.broker_id: broker.rack for broker in self._metadata.brokers.values()}


def _internal_topic(name: str, config: "BrokerConfig") -> NewTopic:
    """Kafka's settings for its two internal topics (reference E.1)."""
    if name == GROUP_TOPIC:
        # The value is "producer" and not a codec: the coordinator compresses as
        # offsets.topic.compression.codec says.
        return NewTopic(
            name,
            partition_count=config.offsets_topic_num_partitions,
            replication_factor=config.offsets_topic_replication_factor,
            configs={
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )

    return NewTopic(
        name,
        partition_count=config.transaction_state_log_num_partitions,
        replication_factor=config.transaction_state_log_replication_factor,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        },
    )
