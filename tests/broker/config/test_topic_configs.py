"""A topic's configuration as a broker finds it when the controller gives it a replica."""

from barnabas.controller.store import paths
from barnabas.controller.store.store import NoNode
from tests.broker.clusters import cluster, create_topic, until


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
