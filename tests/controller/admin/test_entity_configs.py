"""Configuration of entities: one write with its notification, repeated if another broker wrote first."""

import pytest

from barnabas.controller.admin.entity_configs import change_entity, list_entities, read_entity
from barnabas.controller.store import paths
from barnabas.controller.store.paths import ConfigChange, ConfigEntity
from barnabas.controller.store.store import DataTooLarge, NoNode


async def notified(store):
    nodes = [f"{paths.CONFIG_CHANGES}/{name}" for name in await store.children(paths.CONFIG_CHANGES)]
    return [ConfigChange.decode((await store.get(node))[0], node).entity_path for node in nodes]


async def put(store, entity, **texts):
    return await change_entity(store, entity, lambda _: texts)


async def test_a_change_is_written_and_notified(cluster):
    store = cluster.store
    assert await change_entity(store, "topics/t", lambda texts: {**texts, "a": "1"}) == 0
    assert await change_entity(store, "topics/t", lambda texts: {**texts, "b": "2"}) == 1
    assert await read_entity(store, "topics/t") == {"a": "1", "b": "2"}
    assert await notified(store) == ["topics/t", "topics/t"]


async def test_the_folders_of_a_users_client_are_made(cluster):
    store = cluster.store
    await put(store, "users/u/clients/c", a="1")
    assert await read_entity(store, "users/u") == {}
    assert (await store.get("/config/users/u"))[0] is None
    assert await list_entities(store, "users/u/clients") == ["c"]
    await put(store, "users/u", b="2")
    assert await read_entity(store, "users/u") == {"b": "2"}


async def test_nothing_is_written_for_a_topic_that_is_gone(cluster):
    store = cluster.store
    with pytest.raises(NoNode):
        await change_entity(store, "topics/t", lambda _: {"a": "1"}, owner="/brokers/topics/t")
    assert await store.exists("/config/topics/t") is None
    assert await notified(store) == []


async def test_what_is_not_there_is_empty(cluster):
    assert await read_entity(cluster.store, "topics/nope") == {}
    assert await list_entities(cluster.store, "users/nope/clients") == []


@pytest.mark.parametrize("entity", ["users/u", "clients/c", "ips/10.0.0.1"])
async def test_nothing_is_left_of_a_user_client_or_address_without_properties(cluster, entity):
    store = cluster.store
    await put(store, entity, a="1")
    await put(store, entity)
    assert await store.exists(f"/config/{entity}") is None
    assert await put(store, entity) == 2, "that is notified as well"


async def test_a_user_whose_clients_are_configured_keeps_an_empty_node(cluster):
    store = cluster.store
    await put(store, "users/u/clients/c", a="1")
    await put(store, "users/u", a="1")
    await put(store, "users/u")
    assert (await store.get("/config/users/u"))[0] == b'{"version":1,"config":{}}'


async def test_the_last_client_takes_its_folder_along_and_a_user_without_properties(cluster):
    store = cluster.store
    for user in ("bare", "kept"):
        await put(store, f"users/{user}/clients/c", a="1")
        await put(store, f"users/{user}/clients/d", a="1")
    await put(store, "users/kept", a="1")
    for client in ("c", "d"):
        await put(store, f"users/bare/clients/{client}")
        await put(store, f"users/kept/clients/{client}")
    assert await list_entities(store, "users") == ["kept"]
    assert await store.children("/config/users/kept") == []


@pytest.mark.parametrize("entity", ["topics/t", "brokers/1"])
async def test_a_topic_or_broker_without_properties_keeps_its_node(cluster, entity):
    await put(cluster.store, entity)
    assert await cluster.store.exists(f"/config/{entity}") is not None


async def test_a_change_is_made_again_when_another_was_quicker(cluster):
    store, made_of = cluster.store, []
    await put(store, "topics/t", a="1")

    def change(texts):
        made_of.append(dict(texts))
        return {**texts, "b": "2"}

    await change_entity(Interrupted(store, cluster.database.session()), "topics/t", change)
    assert made_of == [{"a": "1"}, {"a": "9"}]
    assert await read_entity(store, "topics/t") == {"a": "9", "b": "2"}
    assert await notified(store) == ["topics/t", "topics/t"], "the first attempt has written no notification"


async def test_a_refused_change_writes_nothing(cluster):
    store = cluster.store
    with pytest.raises(DataTooLarge):
        await put(store, "topics/t", a="x" * 1_100_000)
    assert await notified(store) == []
    assert await list_entities(store, "topics") == []


async def test_a_node_that_cannot_be_read_configures_nothing_and_is_named(cluster, caplog):
    await cluster.store.create("/config/users/u", b"nonsense")
    assert await read_entity(cluster.store, "users/u") == {}
    assert "ignoring a node that cannot be read" in caplog.text


class Interrupted:
    """A store in which another session writes between the first read and the write."""

    def __init__(self, store, other) -> None:
        self._store = store
        self._other = other
        self._is_first = True

    async def get(self, path):
        found = await self._store.get(path)
        if self._is_first:
            self._is_first = False
            await self._other.set(path, ConfigEntity({"a": "9"}).encode())
        return found

    async def multi(self, ops):
        return await self._store.multi(ops)
