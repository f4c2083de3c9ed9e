"""Topics that this broker creates: those that CreateTopics names, those that are merely asked for, internal ones.

With ZooKeeper's data model any broker may create a topic by writing it to the store; the controller notices and does
the rest (reference A.4). This file joins the pure plan (`controller/admin/create_topics.py`) with what this broker
knows: live brokers, configuration, and the metadata cache in which a new topic must appear.
"""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from barnabas.broker.config.live import topic_warnings
from barnabas.broker.replication.waiting import resting
from barnabas.controller.admin.create_partitions import Grown, Growth, grow_topic
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
from barnabas.controller.store.metadata_versions import level_of
from barnabas.controller.store.store import SessionExpired, StoreUnavailable
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.config.live import BrokerConfig
    from barnabas.broker.metadata import ClusterMetadata
    from barnabas.broker.world import World
    from barnabas.controller.store.store import MetadataStore

logger = logging.getLogger(__name__)

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})


class Topics:
    """Plans and creates topics."""

    def __init__(
        self, store: "MetadataStore", config: "BrokerConfig", metadata: "ClusterMetadata", world: "World"
    ) -> None:
        self._store = store
        self._config = config
        self._metadata = metadata
        self._rng = world.rng

    def plan(self, new: NewTopic, rack_awareness: RackAwareness = RackAwareness.ENFORCED) -> TopicPlan | TopicRefused:
        """Check a topic against everything but the names that are taken."""
        return plan_topic(
            new,
            brokers=self._racks(),
            defaults=TopicDefaults(self._config.num_partitions, self._config.default_replication_factor),
            check_configs=self._config.validate_topic_configs,
            rng=self._rng,
            rack_awareness=rack_awareness,
        )

    async def create(self, new: NewTopic, *, validate_only: bool = False) -> CreatedTopic | TopicPlan | TopicRefused:
        """Create a topic, or with `validate_only` say whether it could be."""
        if new.name in self._metadata.topics:
            return TopicRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{new.name}' already exists.")
        plan = self.plan(new)
        if isinstance(plan, TopicRefused):
            return plan
        if validate_only:
            return await refuse_existing(self._store, plan.name) or plan
        for warning in topic_warnings(plan.configs):
            logger.warning("topic %s: %s", plan.name, warning)
        return await self._write(plan)

    async def grow(self, growth: Growth, *, validate_only: bool = False) -> Grown | TopicRefused:
        """Add partitions to a topic, or with `validate_only` say whether they could be."""
        try:
            return await grow_topic(self._store, growth, self._racks(), self._rng, validate_only=validate_only)
        except (StoreUnavailable, SessionExpired) as error:
            logger.warning("topic %s cannot grow: %s", growth.name, error, extra={"peer": "metadata store"})
            return TopicRefused(ErrorCode.REQUEST_TIMED_OUT, None)

    async def mark_for_deletion(self, name: str) -> TopicRefused | None:
        """Mark a topic for deletion; None when it is marked now, or was already."""
        try:
            return await mark_for_deletion(self._store, name)
        except (StoreUnavailable, SessionExpired) as error:
            logger.warning("topic %s cannot be deleted: %s", name, error, extra={"peer": "metadata store"})
            return TopicRefused(ErrorCode.REQUEST_TIMED_OUT, None)

    async def auto_create(self, name: str) -> ErrorCode:
        """Create a topic that was asked for; the error for the client, which retries until it has leaders."""
        new = _internal_topic(name, self._config) if name in INTERNAL_TOPICS else NewTopic(name)
        awareness = RackAwareness.SAFE if name in INTERNAL_TOPICS else RackAwareness.ENFORCED
        plan = self.plan(new, awareness)
        if isinstance(plan, TopicRefused):
            return plan.code
        created = await self._write(plan)
        if isinstance(created, TopicRefused) and created.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            return created.code
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def ensure_internal(self, name: str) -> None:
        """Create an internal topic unless it is there; the metadata shows whether that worked."""
        if name not in self._metadata.topics:
            code = await self.auto_create(name)
            if code == ErrorCode.INVALID_REPLICATION_FACTOR:
                logger.warning(
                    "topic %s cannot be created: it needs %d replicas, and %d brokers live",
                    name,
                    _internal_topic(name, self._config).replication_factor,
                    len(self._racks()),
                    extra={"peer": name},
                )

    async def _write(self, plan: TopicPlan) -> CreatedTopic | TopicRefused:
        """Create a planned topic; a store that cannot be used (its disk is full, say) refuses this one topic."""
        try:
            level = level_of(self._config.inter_broker_protocol_version)
            return await create_topic(self._store, plan, self._rng, with_id=level.topics_have_ids)
        except (StoreUnavailable, SessionExpired) as error:
            logger.warning("topic %s cannot be created: %s", plan.name, error, extra={"peer": "metadata store"})
            return TopicRefused(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

    async def await_leaders(self, partition_counts: Mapping[str, int], deadline: float) -> set[str]:
        """Wait until every partition of these topics has a leader; the topics that have not at `deadline`."""
        missing = set(partition_counts)
        with trio.move_on_at(deadline), resting():
            while missing := {name for name in missing if not self._has_leaders(name, partition_counts[name])}:
                await self._metadata.changed()
        return missing

    async def await_gone(self, names: set[str], deadline: float) -> set[str]:
        """Wait until these topics are gone from the metadata cache; those that are not at `deadline`."""
        left = names
        with trio.move_on_at(deadline), resting():
            while left := {name for name in left if name in self._metadata.topics}:
                await self._metadata.changed()
        return left

    async def await_leader_ids(self, leader_ids: Mapping[TopicPartition, int], deadline: float) -> set[TopicPartition]:
        """Wait until these brokers lead these partitions; the partitions of which that is not known at `deadline`."""
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
