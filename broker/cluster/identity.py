"""Settles the cluster id and the broker id, from the store, the configuration and the log directories.

The cluster id is in the store; the first broker of a cluster makes it. The broker id comes from `meta.properties` of
the directories, from `broker.id`, or is generated (reference A.2). A directory of another cluster or another broker is
refused: serving it would mix the records of two clusters or brokers.
"""

import random
from typing import Protocol

from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.store import Create, MetadataStore, NodeExists, StoreError, with_ancestors
from barnabas.replication.logs.directory import StoredIdentity

CLUSTER_ID_BYTES = 16


class IdentityConflict(Exception):
    """Store, configuration and log directories disagree about the ids; an operator must decide."""


class IdentityConfig(Protocol):
    """The properties that this file reads."""

    broker_id: int
    broker_id_generation_enable: bool
    reserved_broker_max_id: int


async def settle_identity(
    store: MetadataStore, config: IdentityConfig, rng: random.Random, stored: StoredIdentity | None
) -> StoredIdentity:
    """Decide the ids; creates the persistent nodes and the cluster id in the store if they are missing.

    IdentityConflict when `stored` (from the log directories; None when they are new) names another cluster or broker,
    or when there is no broker id and none may be generated. StoreError.
    """
    # The cluster id is created without a look at the store, because brokers may start at the same time: the id of the
    # winner is read below.
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
    # Each write raises the node's version, so no two brokers get the same id, and the offset keeps
    # generated ids apart from configured ones, as in Kafka.
    written = await store.set(paths.BROKER_SEQUENCE, b"")
    return config.reserved_broker_max_id + written.version
