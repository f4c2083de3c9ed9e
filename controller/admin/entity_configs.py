"""The configuration of topics, brokers, users, client ids and addresses in the store (reference A.6).

An entity is named by its path below /config: `topics/orders`, `brokers/1`, `brokers/<default>`, `users/U/clients/C`,
with names as in the path. A change writes the node and, in the same multi, a sequential node below /config/changes that
names it; every broker watches that folder and reads the entity again.
"""

from collections.abc import Awaitable, Callable, Mapping

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
# Nodes of these types are removed with their last property; a topic or broker keeps its node.
REMOVED_WHEN_EMPTY = frozenset({USERS, CLIENTS, ADDRESSES})

Change = Callable[[Mapping[str, str]], Mapping[str, str]]
SlowChange = Callable[[Mapping[str, str]], Awaitable[Mapping[str, str]]]


def node_of(entity: str) -> str:
    """The path of an entity's node, or of a folder of entities."""
    return f"{paths.CONFIG}/{entity}"


async def read_entity(store: MetadataStore, entity: str) -> dict[str, str]:
    """The properties of an entity; none if it has no node, or a malformed one."""
    return (await _read(store, node_of(entity)))[0]


async def list_entities(store: MetadataStore, folder: str) -> list[str]:
    """The names in a folder of entities, as in the path; none if there is no such folder."""
    try:
        return await store.children(node_of(folder))
    except NoNode:
        return []


async def change_entity(store: MetadataStore, entity: str, change: Change, *, owner: str | None = None) -> int:
    """Write `change(current texts)` and a notification; returns the notification's number.

    `owner` is the path of the node that the entity configures; NoNode if it does not exist. Exceptions of `change` are
    passed on.
    """

    async def changed(texts: Mapping[str, str]) -> Mapping[str, str]:
        return change(texts)

    return await rewrite_entity(store, entity, changed, owner=owner)


async def rewrite_entity(store: MetadataStore, entity: str, change: SlowChange, *, owner: str | None = None) -> int:
    """As `change_entity`, for a change that waits: for work in threads, say."""
    path = node_of(entity)
    notify = Create(paths.CONFIG_CHANGE_PREFIX, ConfigChange(entity).encode(), sequential=True)
    # A change reads the node, and is repeated if another broker wrote it in between: the other's properties must not be
    # lost.
    while True:
        # The check of the owner is in the same multi, because a configuration left behind would
        # apply to a later topic of the same name.
        owned: list[Op] = [] if owner is None else [Check(owner, (await store.get(owner))[1].version)]
        texts, version = await _read(store, path)
        changed = await change(texts)
        try:
            *_, notified = await store.multi([*owned, *(await _write(store, entity, changed, version)), notify])
        except (BadVersion, NodeExists, NotEmpty, NoNode) as error:
            # The folder of notifications is missing: to repeat would not help.
            if error.path == notify.path:
                raise
            continue
        assert isinstance(notified, Created), notified
        return paths.sequence_number(notified.path)


async def _write(store: MetadataStore, entity: str, texts: Mapping[str, str], version: int | None) -> list[Op]:
    path = node_of(entity)
    # A user without properties of its own keeps its node while it has client ids below it.
    if not texts and entity.partition("/")[0] in REMOVED_WHEN_EMPTY and not await list_entities(store, entity):
        return [] if version is None else [Delete(path, version), *(await _emptied_parents(store, entity))]
    data = ConfigEntity(texts).encode()
    if version is None:
        return [*(await _missing_parents(store, path)), Create(path, data)]
    return [SetData(path, data, version)]


async def _missing_parents(store: MetadataStore, path: str) -> list[Op]:
    parents = with_ancestors([path])[:-1]
    return [Create(parent) for parent in parents if await store.exists(parent) is None]


async def _emptied_parents(store: MetadataStore, entity: str) -> list[Op]:
    """The removals that follow the last client id of a user: its folder, and the user if it has no properties."""
    folder, _, _ = entity.rpartition("/")
    user, _, name = folder.rpartition("/")
    if not user or name != CLIENTS or len(await list_entities(store, folder)) > 1:
        return []
    # If another broker adds a client id, or sets a property of the user, after these reads, the multi is refused
    # (NotEmpty, BadVersion), and everything is read again.
    texts, version = await _read(store, node_of(user))
    return [Delete(node_of(folder)), *([Delete(node_of(user), version)] if version is not None and not texts else [])]


async def _read(store: MetadataStore, path: str) -> tuple[dict[str, str], int | None]:
    """The properties, and the version of the node; None if there is no node."""
    try:
        data, stat = await store.get(path)
    except NoNode:
        return {}, None
    found = parse(ConfigEntity.decode, data, path)
    return {} if found is None else dict(found.config), stat.version
