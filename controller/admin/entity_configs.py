"""The configuration of topics, brokers, users, client ids and addresses in the store (reference A.6).

An entity is named by its path below /config: `topics/orders`, `brokers/1`, `brokers/<default>`, `users/U/clients/C`,
names as they stand in the path. A change writes the node and, in the same multi, a sequential node below
/config/changes that names it; every broker watches that folder and reads the entity again. A change is made from what
the node says now, and made again when another broker wrote in between.

A topic or broker keeps its node. A user, client id or address of which nothing is set any more loses it, and a user the
empty folder of its client ids; where it has no configuration of its own either, nothing is left of it.
"""

from collections.abc import Callable, Mapping

from barnabas.controller.image.loading import parse
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ConfigChange, ConfigEntity
from barnabas.controller.store.store import (
    BadVersion,
    Check,
    Create,
    Created,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SetData,
    with_ancestors,
)

TOPICS = "topics"
BROKERS = "brokers"
USERS = "users"
CLIENTS = "clients"
ADDRESSES = "ips"
VANISHING = frozenset({USERS, CLIENTS, ADDRESSES})

Change = Callable[[Mapping[str, str]], Mapping[str, str]]


def node_of(entity: str) -> str:
    """The node of an entity, or of a folder of them."""
    return f"{paths.CONFIG}/{entity}"


async def read_entity(store: MetadataStore, entity: str) -> dict[str, str]:
    """What is set for an entity: nothing when it has no node, or one that cannot be read."""
    return (await _read(store, node_of(entity)))[0]


async def list_entities(store: MetadataStore, folder: str) -> list[str]:
    """The names in a folder of entities, as they stand in the path; none when there is no such folder."""
    try:
        return await store.children(node_of(folder))
    except NoNode:
        return []


async def change_entity(store: MetadataStore, entity: str, change: Change, *, owner: str | None = None) -> int:
    """Write what `change` makes of what is set now; the number of the notification. What `change` raises is raised.

    `owner` is the node of what the entity configures: NoNode when there is none, for a configuration that outlives its
    topic would be that of the next one of this name.
    """
    path = node_of(entity)
    notify = Create(paths.CONFIG_CHANGE_PREFIX, ConfigChange(entity).encode(), sequential=True)
    while True:
        owned: list[Op] = [] if owner is None else [Check(owner, (await store.get(owner))[1].version)]
        texts, version = await _read(store, path)
        changed = change(texts)
        try:
            *_, notified = await store.multi([*owned, *(await _write(store, entity, changed, version)), notify])
        except (BadVersion, NodeExists, NotEmpty, NoNode) as error:
            if error.path == notify.path:
                raise
            continue  # another broker was quicker: look again
        assert isinstance(notified, Created), notified
        return paths.sequence_number(notified.path)


async def _write(store: MetadataStore, entity: str, texts: Mapping[str, str], version: int | None) -> list[Op]:
    path = node_of(entity)
    if not texts and entity.partition("/")[0] in VANISHING and not await list_entities(store, entity):
        return [] if version is None else [Delete(path, version), *(await _emptied_parents(store, entity))]
    data = ConfigEntity(texts).encode()
    if version is None:
        return [*(await _missing_parents(store, path)), Create(path, data)]
    return [SetData(path, data, version)]


async def _missing_parents(store: MetadataStore, path: str) -> list[Op]:
    parents = with_ancestors([path])[:-1]
    return [Create(parent) for parent in parents if await store.exists(parent) is None]


async def _emptied_parents(store: MetadataStore, entity: str) -> list[Op]:
    """What goes with the last client id of a user."""
    folder, _, _ = entity.rpartition("/")
    user, _, name = folder.rpartition("/")
    if not user or name != CLIENTS or len(await list_entities(store, folder)) > 1:
        return []
    texts, version = await _read(store, node_of(user))
    return [Delete(node_of(folder)), *([Delete(node_of(user), version)] if version is not None and not texts else [])]


async def _read(store: MetadataStore, path: str) -> tuple[dict[str, str], int | None]:
    """What is set, and the version of the node; None when there is no node."""
    try:
        data, stat = await store.get(path)
    except NoNode:
        return {}, None
    found = parse(ConfigEntity.decode, data, path)
    return {} if found is None else dict(found.config), stat.version
