"""Topics that were deleted while this broker could not learn of it.

A controller announces the deletion of a topic once, with UpdateMetadata. A broker without a session misses it, and so
does one to which the request was still on its way when the controller died; the next controller does not know the topic
any more. (Brokers with a replica are waited for and asked again, so only the metadata cache is concerned.) Such a topic
would stay in this broker's metadata cache as long as it runs: offered to clients, and in the way of a new topic of that
name.

So after each registration, and under each controller, a broker asks the store which of the topics that it knows still
exist. A server of ZooKeeper may be behind the others, and would not know of a topic that has just been created,
so it must catch up first.
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
    """The ids of those of these topics that exist now; None where a topic has none or its node cannot be read.

    Raises StoreError.
    """
    await catch_up(store)
    existing = set(await store.children(paths.TOPICS))
    found = await read_topics(store, [name for name in topics if name in existing], None)
    return {name: found[name].assignment.topic_id if name in found else None for name in topics if name in existing}


async def existing_topic_ids(store: MetadataStore, topics: Collection[str]) -> dict[str, bytes | None]:
    """The same; none of them when the store does not say."""
    try:
        return await read_topic_ids(store, topics)
    except StoreError as error:
        logger.warning("not asked which ids the topics %s have: %s", ", ".join(topics), error)
        return {}


async def forget_deleted_topics(store: MetadataStore, metadata: ClusterMetadata, replicas: Replicas) -> None:
    """Look after each registration and each change of the controller, until cancelled."""
    looked = None
    while True:
        life = replicas.controller_epoch, replicas.broker_epoch
        if life == looked or not metadata.topics:
            await metadata.changed()
            continue
        heard_of = dict(metadata.topics)
        try:
            await catch_up(store)
            existing = set(await store.children(paths.TOPICS))
        except StoreError as error:
            logger.debug("not asked which topics are left: %s", error)
            await trio.sleep(RETRY_SECONDS)
            continue
        looked = life
        vanished = [info for name, info in heard_of.items() if name not in existing]
        for info in vanished:
            logger.info("topic %s was deleted in the meantime", info.name)
        replicas.forget_topics(vanished)
