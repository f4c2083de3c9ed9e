"""The guarantees of every metadata store, with a running ZooKeeper: the same tests as for the embedded store."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from compat_tests.kafka import ZooKeeperProcess
from compat_tests.zookeeper_sessions import ZooKeeperStores

pytest.register_assert_rewrite("tests.controller.store.test_store_conformance", "tests.controller.store.store_model")

from tests.controller.store.store_model import OPS, compare_with_model  # noqa: E402
from tests.controller.store.test_store_conformance import *  # noqa: E402, F403  (rewritten; the tests themselves)


@pytest.fixture
async def stores(zookeeper: ZooKeeperProcess) -> AsyncIterator[ZooKeeperStores]:
    """In the place of the suite's own."""
    stores = ZooKeeperStores(zookeeper.bootstrap)
    yield stores
    await stores.close()


@settings(max_examples=30, deadline=None)
@given(items=st.lists(OPS | st.lists(OPS, min_size=1, max_size=4), max_size=25))
def test_any_writes_leave_what_a_dictionary_would_hold(zookeeper: ZooKeeperProcess, items: list[Any]) -> None:
    async def compare() -> None:
        stores = ZooKeeperStores(zookeeper.bootstrap)
        await compare_with_model(await stores.open(), items)
        await stores.close()

    trio.run(compare)
