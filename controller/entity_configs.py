"""Configuration of users, clients, topics and brokers in the store: reading it, and changing it (reference A.6).

A change is one write: the entity's node, and a sequential node that makes every broker read it again. It is made of
what was read, and written only if nobody wrote in between; otherwise it is made again.
"""

from collections.abc import Callable, Mapping

from barnabas.controller import paths
from barnabas.controller.paths import ConfigChange, ConfigEntity
from barnabas.controller.store import (
    BadVersion,
    Create,
    Delete,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    Op,
    SetData,
)

USERS = "users"
VANISHING = frozenset({USERS, "clients", "ips"})  # without properties and children, the node of such an entity goes

Change = Callable[[Mapping[str, str]], Mapping[str, str]]


async def read_entity_config(store: MetadataStore, entity_type: str, name: str) -> Mapping[str, str]:
    """An entity's properties; none when it has no node. `name` is as it stands in the path."""
    config, _ = await _read(store, paths.config_entity(entity_type, name))
    return config


async def change_entity_config(store: MetadataStore, entity_type: str, name: str, change: Change) -> None:
    """Replace an entity's properties by what `change` makes of them."""
    path = paths.config_entity(entity_type, name)
    notice = Create(paths.CONFIG_CHANGE_PREFIX, ConfigChange(f"{entity_type}/{name}").encode(), sequential=True)
    while True:
        config, version = await _read(store, path)
        changed = change(config)
        try:
            has_children = version is not None and bool(await store.children(path))
            vanishes = not changed and not has_children and entity_type in VANISHING
            await store.multi([*_write(path, changed, version, vanishes=vanishes), notice])
        except (BadVersion, NodeExists, NotEmpty):
            continue
        except NoNode:
            if version is None:
                raise  # it is the parent that is missing
            continue
        return


def _write(path: str, config: Mapping[str, str], version: int | None, *, vanishes: bool) -> list[Op]:
    data = ConfigEntity(config).encode()
    if version is None:
        return [] if vanishes else [Create(path, data)]
    return [Delete(path, version)] if vanishes else [SetData(path, data, version)]


async def _read(store: MetadataStore, path: str) -> tuple[Mapping[str, str], int | None]:
    """Properties and the node's version, which is None when there is no node."""
    try:
        data, stat = await store.get(path)
    except NoNode:
        return {}, None
    try:
        return ConfigEntity.decode(data, path).config, stat.version
    except ValueError:  # as Kafka: what cannot be read configures nothing
        return {}, stat.version
