"""Fetchers begin and end with the broker."""

from types import SimpleNamespace

import trio

from barnabas.replication.fetcher_pool import FetcherPool
from barnabas.wire.topics import TopicPartition


async def test_a_role_that_comes_while_the_broker_stops_is_taken_and_nothing_is_fetched():
    key = TopicPartition("t", 0)
    log = SimpleNamespace(epochs=SimpleNamespace(latest_epoch=0))
    partition = SimpleNamespace(topic_partition=key, leader_id=2, leader_epoch=0, topic_id=bytes(16), log=log)
    fetchers = FetcherPool(SimpleNamespace(fetch_version=12, fetcher_count=1), SimpleNamespace(brokers={2}))
    async with trio.open_nursery() as nursery:
        await nursery.start(fetchers.run)
        nursery.cancel_scope.cancel()
    fetchers.follow(partition)  # of a LeaderAndIsr request that was at work when the fetchers ended
    assert len(fetchers) == 0
    await fetchers.leave([key])
