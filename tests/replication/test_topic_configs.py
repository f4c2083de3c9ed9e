"""A topic's configuration as a broker finds it when the controller gives it a replica."""

import pytest
import trio

from barnabas.config.live import BrokerConfig
from barnabas.controller.admin.entity_configs import change_entity
from barnabas.controller.store import paths
from barnabas.controller.store.store import NoNode, with_ancestors
from barnabas.replication.topic_configs import TopicConfigs
from tests.broker.clusters import cluster, create_topic, until
from tests.broker.harness import open_memory_database


class Behind:
    """Puts the server of a session behind the others: it knows no configuration of a topic until it has to write."""

    def __init__(self, store):
        self._get, self._multi = store.get, store.multi
        self._store, store.get, store.multi = store, self.get, self.multi

    async def get(self, path, watch=None):
        if path.startswith(paths.config_entities("topics")):
            raise NoNode(path)
        return await self._get(path, watch)

    async def multi(self, ops):
        self._store.get = self._get
        return await self._multi(ops)


async def test_a_topic_is_configured_as_it_was_created_on_a_broker_whose_store_lags(nursery, autojump_clock):
    async with cluster(nursery, 2) as (one, two):
        Behind(two.broker.store)
        await create_topic(await one.connect(), "t", [2, 1], min_insync_replicas="2", cleanup_policy="compact")
        await until(lambda: two.broker.topic_configs.get("t").min_insync_replicas == 2, seconds=5)
        assert (
            two.broker.replicas.get("t", 0).log.config.cleanup_policy
            == one.broker.topic_configs.get("t").cleanup_policy
        )


class Held:
    """Holds the answer to the read of one node until it is released."""

    def __init__(self, store, path):
        self.asked, self.released = trio.Event(), trio.Event()
        self._get, self._path, store.get = store.get, path, self.get

    async def get(self, path, watch=None):
        if path == self._path:
            self.asked.set()
            await self.released.wait()
        return await self._get(path, watch)


@pytest.mark.parametrize("changed_at", ["before the read of another topic ends", "again, while it is read again"])
async def test_a_change_while_many_topics_are_read_is_not_undone(nursery, autojump_clock, changed_at):
    store = (await open_memory_database()).session()
    for path in with_ancestors(paths.PERSISTENT_PARENTS):
        await store.create(path)
    configs, held = TopicConfigs(BrokerConfig(), store), Held(store, paths.config_entity("topics", "slow"))
    await change_entity(store, "topics/t", lambda _: {"retention.ms": "1"})
    loaded = []

    async def load():
        loaded.append(await configs.load({"t": None, "slow": None}))

    nursery.start_soon(load)
    await held.asked.wait()
    await trio.sleep(1)  # t is read meanwhile
    await change_entity(store, "topics/t", lambda _: {"retention.ms": "-1"})
    await configs.reload("t")
    held.released.set()
    if changed_at.startswith("again"):
        await change_entity(store, "topics/t", lambda _: {"retention.ms": "7"})
        await configs.reload("t")
    await until(lambda: loaded, seconds=5)
    assert loaded[0]["t"].retention_ms == (7 if changed_at.startswith("again") else -1)
