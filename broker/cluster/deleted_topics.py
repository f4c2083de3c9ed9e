"""Removes topics that were deleted while this broker could not get the requests of the controller.

The controller announces a deletion once. A broker without a session misses it, and so does a broker whose request was
being sent when the controller died: the next controller does not have the topic any more. Such a topic would stay in
the metadata cache until the broker stops: clients would see it, and a new topic could not have its name.

StopReplica is repeated until every broker with a replica has answered. But replicas may be given to other brokers first
while their broker has no session, and then the deletion does not wait for it: it would lead the deleted topic.

So `forget_deleted_topics` reads from the store which topics of the cache and of the hosted partitions still exist,
after each registration and each change of the controller.
"""

import logging
from collections.abc import Collection, Container

import trio

from barnabas.controller.image.loading import catch_up, read_topics
from barnabas.controller.store import paths
from barnabas.controller.store.store import MetadataStore, StoreError
from barnabas.replication.replicas import Replicas
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import ClusterMetadata
from barnabas.world.pacing import paced

RETRY_SECONDS = 1.0
STORE_SECONDS = 1.0  # for the question whether partitions exist

logger = logging.getLogger(__name__)


async def read_topic_ids(store: MetadataStore, topics: Collection[str]) -> dict[str, bytes | None]:
    """Topic name -> topic id, for those of `topics` that exist; None if a topic has no id or its node is unreadable.

    Raises StoreError.
    """
    # A ZooKeeper server may be behind the others, and would miss a topic that has just been created.
    await catch_up(store)
    existing = set(await store.children(paths.TOPICS))
    found = await read_topics(store, [name for name in topics if name in existing], None)
    return {name: found[name].assignment.topic_id if name in found else None for name in topics if name in existing}


async def existing_topic_ids(store: MetadataStore, topics: Collection[str]) -> dict[str, bytes | None]:
    """The result of `read_topic_ids`; empty when the store is unavailable."""
    try:
        return await read_topic_ids(store, topics)
    except StoreError as error:
        logger.warning("the ids of the topics %s cannot be read: %s", ", ".join(topics), error)
        return {}


async def deleted_partitions(store: MetadataStore, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    """Those of these that do not exist, or whose topic is being deleted; none while the store is unavailable."""
    topics = {each.topic async for each in paced(partitions)}
    known: dict[str, Container[int] | None] | None = None
    # The caller must not wait long for a store that is away.
    with trio.move_on_after(STORE_SECONDS):
        known = await _partitions_of(store, topics)
    if known is None:
        return set()
    deleted = set()
    async for each in paced(partitions):
        existing = known.get(each.topic, ())
        if existing is not None and each.partition not in existing:
            deleted.add(each)
    return deleted


async def _partitions_of(store: MetadataStore, topics: Collection[str]) -> dict[str, Container[int] | None] | None:
    """The partitions of those topics that exist and are not being deleted, None where a node is unreadable.

    None if the store is unavailable.
    """
    try:
        # A ZooKeeper server may be behind the others, and would miss a topic that has just been created.
        await catch_up(store)
        existing = set(await store.children(paths.TOPICS))
        existing.difference_update(await store.children(paths.DELETE_TOPICS))
        found = await read_topics(store, sorted(existing.intersection(topics)), None)
    except StoreError as error:
        logger.warning("whether %d topics exist cannot be read: %s", len(topics), error)
        return None
    return {
        name: found[name].assignment.partitions if name in found else None for name in existing.intersection(topics)
    }


async def forget_deleted_topics(store: MetadataStore, metadata: ClusterMetadata, replicas: Replicas) -> None:
    """Check the cache after each registration and each change of the controller; until cancelled."""
    checked = None
    while True:
        epochs = replicas.controller_epoch, replicas.broker_epoch

        # Each UpdateMetadata wakes this; most of them change neither epoch.
        if epochs == checked or not metadata.topics:
            await metadata.changed()
            continue

        # The cache is copied before the store is read: a topic that the cache gets meanwhile may be
        # missing in the older answer.
        cached = dict(metadata.topics)
        hosted = {each: each.log async for each in paced(replicas) if each.log is not None}
        try:
            await catch_up(store)
            existing = set(await store.children(paths.TOPICS))
        except StoreError as error:
            logger.debug("the topics in the store cannot be read: %s", error)
            await trio.sleep(RETRY_SECONDS)
            continue

        # The epochs are those from before the read: a change during it leads to another check.
        checked = epochs
        deleted = [info for name, info in cached.items() if name not in existing]
        for info in deleted:
            logger.info("topic %s was deleted in the meantime", info.name)
        gone = {each: log for each, log in hosted.items() if each.topic_partition.topic not in existing}
        await replicas.forget_topics(deleted, gone)
