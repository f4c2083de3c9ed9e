"""Removes topics from the metadata cache that were deleted while this broker could not get the UpdateMetadata.

The controller announces a deletion once. A broker without a session misses it, and so does a broker whose request was
being sent when the controller died: the next controller does not have the topic any more. Such a topic would stay in
the metadata cache until the broker stops: clients would see it, and a new topic could not have its name. Only the cache
needs this: StopReplica is repeated until every broker with a replica has answered.

So `forget_deleted_topics` reads from the store which topics of the cache still exist, after each registration and each
change of the controller.
"""

import logging
from collections.abc import Collection

import trio

from barnabas.broker.metadata import ClusterMetadata
from barnabas.broker.replication.replicas import Replicas
from barnabas.controller.image.loading import catch_up, read_topics
from barnabas.controller.store import paths
from barnabas.controller.store.store import MetadataStore, StoreError

RETRY_SECONDS = 1.0

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


async def forget_deleted_topics(store: MetadataStore, metadata: ClusterMetadata, replicas: Replicas) -> None:
    """Check the cache after each registration and each change of the controller; until cancelled."""
    checked = None
    while True:
        epochs = replicas.controller_epoch, replicas.broker_epoch
        # Each UpdateMetadata wakes this; most of them change neither epoch.
        if epochs == checked or not metadata.topics:
            await metadata.changed()
            continue
        # Copied before the store is read: a topic that the cache gets meanwhile may be missing in the older answer.
        cached = dict(metadata.topics)
        try:
            await catch_up(store)
            existing = set(await store.children(paths.TOPICS))
        except StoreError as error:
            logger.debug("the topics in the store cannot be read: %s", error)
            await trio.sleep(RETRY_SECONDS)
            continue
        # The epochs from before the read: a change during it leads to another check.
        checked = epochs
        deleted = [info for name, info in cached.items() if name not in existing]
        for info in deleted:
            logger.info("topic %s was deleted in the meantime", info.name)
        replicas.forget_topics(deleted)
