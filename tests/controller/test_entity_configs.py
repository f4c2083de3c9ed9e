"""Configuration of entities: one write with its notice, made again when somebody was faster."""

from contextlib import asynccontextmanager

import pytest
import trio

from barnabas.controller import paths
from barnabas.controller.entity_configs import change_entity_config, read_entity_config
from barnabas.controller.paths import ConfigChange, ConfigEntity
from barnabas.controller.sqlitestore import IN_MEMORY, open_sqlite_store
from barnabas.controller.store import Create, NoNode, with_ancestors

ANNE = paths.config_entity("users", "anne")


async def inline(function, *args):
    await trio.lowlevel.checkpoint()
    return function(*args)


async def empty_store():
    return await open_sqlite_store(IN_MEMORY, inline, lambda: 0)


@asynccontextmanager
async def store_with_parents():
    store = await empty_store()
    await store.batch([Create(path) for path in with_ancestors(paths.PERSISTENT_PARENTS)])
    yield store
    await store.close()


async def notices(store):
    names = await store.children(paths.CONFIG_CHANGES)
    read = [(await store.get(f"{paths.CONFIG_CHANGES}/{name}"))[0] for name in names]
    return [ConfigChange.decode(data, "").entity_path for data in read]


async def test_a_change_writes_the_node_and_tells_every_broker():
    async with store_with_parents() as store:
        await change_entity_config(store, "users", "anne", lambda config: {**config, "a": "1"})
        await change_entity_config(store, "users", "anne", lambda config: {**config, "b": "2"})
        assert await read_entity_config(store, "users", "anne") == {"a": "1", "b": "2"}
        assert await notices(store) == ["users/anne", "users/anne"]


async def test_a_user_without_properties_has_no_node():
    async with store_with_parents() as store:
        await change_entity_config(store, "users", "anne", lambda _: {"a": "1"})
        await change_entity_config(store, "users", "anne", lambda _: {})
        assert await store.exists(ANNE) is None
        await change_entity_config(store, "users", "anne", lambda _: {})
        assert await read_entity_config(store, "users", "anne") == {}


async def test_a_user_whose_clients_are_configured_keeps_an_empty_node():
    async with store_with_parents() as store:
        await store.batch([Create(path) for path in with_ancestors([paths.user_client_config("anne", "c")])])
        await change_entity_config(store, "users", "anne", lambda _: {"a": "1"})
        await change_entity_config(store, "users", "anne", lambda _: {})
        assert (await store.get(ANNE))[0] == b'{"version":1,"config":{}}'


async def test_a_topic_without_properties_keeps_its_node():
    async with store_with_parents() as store:
        await change_entity_config(store, "topics", "t", lambda _: {})
        assert await store.exists(paths.config_entity("topics", "t")) is not None


async def test_a_change_is_made_again_when_somebody_was_faster():
    made_of = []

    async with store_with_parents() as store:

        class Rival:
            """The same store; somebody writes between its first read and its first write."""

            async def get(self, path):
                read = await store.get(path)
                if not made_of:
                    await store.set(path, ConfigEntity({"theirs": "1"}).encode())
                return read

            children, multi = store.children, store.multi

        def change(config):
            made_of.append(dict(config))
            return {**config, "ours": "1"}

        await store.create(ANNE, ConfigEntity({}).encode())
        await change_entity_config(Rival(), "users", "anne", change)
        assert made_of == [{}, {"theirs": "1"}]
        assert await read_entity_config(store, "users", "anne") == {"theirs": "1", "ours": "1"}
        assert await notices(store) == ["users/anne"], "the first attempt has told nobody"


async def test_a_node_that_cannot_be_read_configures_nothing():
    async with store_with_parents() as store:
        await store.create(ANNE, b"nonsense")
        assert await read_entity_config(store, "users", "anne") == {}


async def test_a_missing_parent_is_not_waited_for():
    store = await empty_store()
    with pytest.raises(NoNode):
        await change_entity_config(store, "users", "anne", lambda _: {"a": "1"})
    await store.close()
