"""Who this broker is: its cluster's id and its own, agreed between the store, the configuration and the directories.

The cluster id is in the store; the first broker of a cluster makes it. The broker id is configured, or was given out
earlier and stands in `meta.properties`, or is generated: Kafka takes the version of `/brokers/seqid` after writing it
and adds `reserved.broker.max.id`, so that generated ids never meet configured ones (reference A.2). A directory that
belongs to another cluster or another broker is refused: serving it would mix two histories.
"""

import random
from typing import Protocol

from barnabas.broker.logs.directory import StoredIdentity
from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.store import Create, MetadataStore, NodeExists, StoreError, with_ancestors

CLUSTER_ID_BYTES = 16


class IdentityConflict(Exception):
    """Store, configuration and log directories disagree about who this is; a person must decide."""


class IdentityConfig(Protocol):
    """The properties that this file reads."""

    broker_id: int
    broker_id_generation_enable: bool
    reserved_broker_max_id: int


async def settle_identity(
    store: MetadataStore, config: IdentityConfig, rng: random.Random, stored: StoredIdentity | None
) -> StoredIdentity:
    """Make the persistent parents and the cluster id where they are missing, and decide the ids.

    IdentityConflict when `stored` (from the log directories; None when they are new) names another cluster or broker.
    """
    proposed = paths.ClusterId(paths.new_cluster_id(rng.randbytes(CLUSTER_ID_BYTES)))
    parents = [Create(path) for path in with_ancestors(paths.PERSISTENT_PARENTS)]
    for outcome in await store.batch([*parents, Create(paths.CLUSTER_ID, proposed.encode())]):
        if isinstance(outcome, StoreError) and not isinstance(outcome, NodeExists):
            raise outcome
    found = parse(paths.ClusterId.decode, (await store.get(paths.CLUSTER_ID))[0], paths.CLUSTER_ID)
    if found is None:
        raise IdentityConflict(f"{paths.CLUSTER_ID} in the metadata store does not say which cluster this is")
    cluster_id = found.id
    if stored is not None and stored.cluster_id != cluster_id:
        raise IdentityConflict(
            f"the log directories belong to cluster {stored.cluster_id} (meta.properties),"
            f" but the metadata store is that of cluster {cluster_id}"
        )
    return StoredIdentity(await _broker_id(store, config, stored), cluster_id)


async def _broker_id(store: MetadataStore, config: IdentityConfig, stored: StoredIdentity | None) -> int:
    if stored is not None:
        if config.broker_id not in (-1, stored.broker_id):
            raise IdentityConflict(
                f"broker.id is {config.broker_id}, but the log directories belong to broker {stored.broker_id}"
                " (meta.properties)"
            )
        return stored.broker_id
    if config.broker_id >= 0:
        return config.broker_id
    if not config.broker_id_generation_enable:
        raise IdentityConflict("broker.id is not set, and broker.id.generation.enable is false")
    written = await store.set(paths.BROKER_SEQUENCE, b"")
    return config.reserved_broker_max_id + written.version
