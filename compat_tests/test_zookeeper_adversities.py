"""The metadata store in ZooKeeper when the connection is cut, answers are lost, ZooKeeper restarts, sessions expire."""

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
import trio

from barnabas.controller.admin.create_partitions import CreatedPartitions, NewPartitions, create_partitions
from barnabas.controller.admin.create_topics import CreatedTopic, TopicPlan, create_topic, mark_for_deletion
from barnabas.controller.admin.entity_configs import change_entity, read_entity
from barnabas.controller.admin.registration import register_broker
from barnabas.controller.store import paths
from barnabas.controller.store.store import (
    Create,
    Created,
    NodeExists,
    SessionExpired,
    StoreUnavailable,
    with_ancestors,
)
from barnabas.controller.store.zkstore import ZooKeeperConfig, ZooKeeperStore, open_zookeeper_store
from barnabas.world.world import in_worker_thread
from compat_tests.kafka import ZooKeeperProcess, free_port
from compat_tests.zookeeper_proxy import ZooKeeperProxy, proxy_to
from compat_tests.zookeeper_sessions import ZooKeeperStores, opened

TICK_MS = 500
SESSION_MS = 10_000  # the longest of that tick: a machine that is busy for seconds ends no session by itself
SHORT_SESSION_MS = 1000  # the shortest
PATIENCE_SECONDS = 20


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"), tick_ms=TICK_MS).start()
    yield server
    server.kill()


class Scene:
    """A store that reaches ZooKeeper through a proxy, and another that reaches it directly."""

    def __init__(self, proxy: ZooKeeperProxy, store: ZooKeeperStore, witness: ZooKeeperStore) -> None:
        self.proxy, self.store, self.witness = proxy, store, witness
        self.expiries = 0
        store.on_expired(self._expired)

    def _expired(self) -> None:
        self.expiries += 1


@pytest.fixture
async def scene(zookeeper: ZooKeeperProcess, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    session_ms = getattr(request, "param", SESSION_MS)
    async with proxy_to(zookeeper.port) as proxy:
        stores = ZooKeeperStores(proxy.bootstrap, session_timeout_ms=session_ms, max_in_flight_requests=10)
        chroot = stores.config.connect.partition("/")[2]
        direct = ZooKeeperConfig(f"{zookeeper.bootstrap}/{chroot}", SESSION_MS)
        try:
            store = await stores.open()
            async with opened(direct) as witness:
                yield Scene(proxy, store, witness)
        finally:
            proxy.open()
            with trio.CancelScope(shield=True):
                await stores.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(PATIENCE_SECONDS):
        while not await condition():
            await trio.sleep(0.02)


async def test_a_connection_that_is_cut_is_no_expiry(scene: Scene) -> None:
    session_id = scene.store.session_id
    await scene.store.create("/e", ephemeral=True)
    for _ in range(3):
        await scene.proxy.cut()
        found = await scene.store.exists("/e")
        assert found is not None
        assert found.owner == session_id == scene.store.session_id
    assert scene.expiries == 0


async def test_a_write_whose_answer_is_lost_is_asked_again(scene: Scene) -> None:
    await scene.store.create("/a")
    scene.proxy.answers_until_loss = 0
    assert (await scene.store.set("/a", b"1")).version == 2  # it was carried out twice
    scene.proxy.answers_until_loss = 0
    with pytest.raises(NodeExists):  # by itself
        await scene.store.create("/b", b"1")
    assert (await scene.witness.get("/b"))[0] == b"1"
    assert scene.proxy.losses == 2


async def test_a_pipeline_that_is_cut_is_carried_out_in_its_order(scene: Scene) -> None:
    scene.proxy.answers_until_loss = 30
    outcomes = await scene.store.batch([Create(f"/{number:03}") for number in range(100)])
    assert {type(outcome) for outcome in outcomes} == {Created, NodeExists}
    births = {name: await scene.witness.exists(f"/{name}") for name in await scene.witness.children("/")}
    assert sorted(births) == sorted(births, key=lambda name: births[name].czxid)
    assert len(births) == 100


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_is_cut_and_when_the_last_write_is_the_last(scene: Scene, seed: int) -> None:
    rng = random.Random(seed)
    await scene.store.create("/a", b"")
    async with trio.open_nursery() as nursery:
        for number in range(300):
            nursery.start_soon(scene.store.set, "/a", b"%d" % number)
            await trio.lowlevel.checkpoint()  # so that they begin in this order
            if rng.random() < 0.03:
                scene.proxy.answers_until_loss = rng.randrange(3)
            if rng.random() < 0.1:
                await trio.sleep(rng.random() / 50)
            if rng.random() < 0.03:
                await scene.proxy.cut()
    assert (await scene.witness.get("/a"))[0] == b"299"
    assert scene.expiries == 0


async def test_a_change_while_the_connection_was_away_fires_the_watch(scene: Scene) -> None:
    await scene.store.create("/a", b"old")
    fired = trio.Event()
    await scene.store.get("/a", fired.set)
    await scene.proxy.shut()
    await scene.witness.set("/a", b"new")
    scene.proxy.open()
    with trio.fail_after(PATIENCE_SECONDS):
        await fired.wait()
        assert (await scene.store.get("/a"))[0] == b"new"


async def test_a_watch_that_is_set_while_the_connection_is_away_is_armed_when_it_is_back(scene: Scene) -> None:
    await scene.store.create("/a", b"old")
    await scene.proxy.shut()
    fired = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(scene.store.get, "/a", fired.set)
        await trio.lowlevel.checkpoint()
        scene.proxy.open()
    await scene.witness.set("/a", b"new")
    with trio.fail_after(PATIENCE_SECONDS):
        await fired.wait()


@pytest.mark.parametrize("scene", [SHORT_SESSION_MS], indirect=True)
async def test_a_session_expires_behind_our_back_and_is_known_to_be_over_when_we_are_back(scene: Scene) -> None:
    old_id = scene.store.session_id
    await scene.store.create("/e", ephemeral=True)

    async def is_gone() -> bool:
        return await scene.witness.exists("/e") is None

    await scene.proxy.shut()
    refused: list[Exception] = []

    async def ask() -> None:
        try:
            await scene.store.set("/e", b"")
        except SessionExpired as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await until(is_gone)
        assert scene.expiries == 0  # who cannot ask does not know
        scene.proxy.open()
    assert len(refused) == scene.expiries == 1
    with pytest.raises(SessionExpired):
        await scene.store.exists("/e")
    await scene.store.renew()
    assert (await scene.store.create("/e", ephemeral=True)).stat.owner == scene.store.session_id != old_id


async def test_zookeeper_restarts_under_a_session(tmp_path: Path) -> None:
    with closing(ZooKeeperProcess(tmp_path, tick_ms=1000).start()) as zookeeper:
        async with opened(ZooKeeperConfig(zookeeper.bootstrap, 20_000)) as store:
            expired, fired = trio.Event(), trio.Event()
            store.on_expired(expired.set)
            created = await store.create("/e", b"kept", ephemeral=True)
            await store.get("/e", fired.set)
            zookeeper.kill()
            with trio.fail_after(PATIENCE_SECONDS):
                await fired.wait()
            zookeeper.start()
            with trio.fail_after(PATIENCE_SECONDS):
                assert await store.get("/e") == (b"kept", created.stat)
                assert (await store.set("/e", b"new")).version == 1
            assert not expired.is_set()


async def test_a_store_is_opened_before_zookeeper_runs(tmp_path: Path) -> None:
    with closing(ZooKeeperProcess(tmp_path)) as zookeeper:
        zookeeper.port = free_port()
        config = ZooKeeperConfig(f"{zookeeper.bootstrap}/chroot", 6000, connection_timeout_ms=500)
        with pytest.raises(StoreUnavailable, match="no session within 500 ms"):
            await open_zookeeper_store(config, in_worker_thread, make_chroot=True)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_worker_thread, zookeeper.start)
            patient = config._replace(connection_timeout_ms=30_000)
            async with opened(patient, make_chroot=True) as store:
                assert await store.children("/") == []


async def test_a_server_that_takes_a_connection_and_says_nothing_is_tried_again(zookeeper: ZooKeeperProcess) -> None:
    """ZooKeeper treats connections like this while it is starting."""
    async with proxy_to(zookeeper.port) as proxy:
        proxy.silences = 1
        config = ZooKeeperConfig(proxy.bootstrap, 3000, connection_timeout_ms=3000)
        async with opened(config) as store:
            assert "zookeeper" in await store.children("/")
            assert proxy.silences == 0


async def test_many_calls_without_a_connection_do_not_stop_the_loop(scene: Scene) -> None:
    await scene.proxy.shut()
    longest = 0.0
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            for _ in range(2000):
                nursery.start_soon(scene.store.exists, "/a")
            for _ in range(50):
                started = time.thread_time()  # this thread's work, whatever else the machine does
                await trio.lowlevel.checkpoint()
                longest = max(longest, time.thread_time() - started)
            scope.cancel()
    assert longest < 1
    scene.proxy.open()
    assert await scene.store.exists("/a") is None


async def test_closing_without_a_connection_takes_no_longer_than_a_moment(scene: Scene) -> None:
    await scene.proxy.shut()
    with trio.fail_after(8):
        await scene.store.close()


@pytest.mark.parametrize("other", ["refuses", "is silent"])
async def test_of_two_servers_one_that_is_dead_does_not_matter(zookeeper: ZooKeeperProcess, other: str) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")  # takes connections, and never answers
    port = listener.socket.getsockname()[1]
    if other == "refuses":
        await listener.aclose()
    config = ZooKeeperConfig(f"127.0.0.1:{port},{zookeeper.bootstrap}", 3000)
    for _ in range(3):  # which server is asked first is drawn by lot
        with trio.fail_after(PATIENCE_SECONDS):
            async with opened(config) as store:
                assert await store.exists("/zookeeper") is not None
    await listener.aclose()


# -- what is written is written once, whichever answer is lost


@asynccontextmanager
async def losing(scene: Scene, nth: int) -> AsyncIterator[None]:
    """Lose the nth answer of what is asked inside."""
    scene.proxy.answers_until_loss = nth
    yield
    scene.proxy.answers_until_loss = None


LOSSES = range(8)


@pytest.fixture
async def cluster(scene: Scene) -> Scene:
    """The parents that a broker makes."""
    await scene.store.batch([Create(path) for path in with_ancestors(paths.PERSISTENT_PARENTS)])
    return scene


@pytest.mark.parametrize("nth", LOSSES)
async def test_a_broker_registers_once(cluster: Scene, nth: int) -> None:
    registration = paths.BrokerRegistration(
        (paths.Endpoint("PLAINTEXT", "h", 1),), {"PLAINTEXT": "PLAINTEXT"}, timestamp_ms=0
    )
    async with losing(cluster, nth):
        epoch = await register_broker(cluster.store, 1, registration)
    found = await cluster.witness.exists("/brokers/ids/1")
    assert found is not None
    assert (found.czxid, found.owner) == (epoch, cluster.store.session_id)


@pytest.mark.parametrize("nth", LOSSES)
async def test_a_topic_is_created_grown_and_deleted_as_requested(cluster: Scene, nth: int) -> None:
    plan = TopicPlan("t", {0: [1]}, {"retention.ms": "7"})
    async with losing(cluster, nth):
        created = await create_topic(cluster.store, plan, random.Random(1))
    assert isinstance(created, CreatedTopic)
    async with losing(cluster, nth):
        outcome = await create_partitions(cluster.store, NewPartitions("t", 3), {1: None}, random.Random(1))
    assert isinstance(outcome, CreatedPartitions)
    data, _ = await cluster.witness.get("/brokers/topics/t")
    assignment = paths.TopicAssignment.decode(data, "t")
    assert (assignment.topic_id, len(assignment.partitions)) == (created.topic_id, 3)
    async with losing(cluster, nth):
        assert await mark_for_deletion(cluster.store, "t") is None


@pytest.mark.parametrize("nth", LOSSES)
async def test_a_configuration_is_changed_as_requested(cluster: Scene, nth: int) -> None:
    def add(texts: Any) -> dict[str, str]:
        return {**texts, "a": "1"}

    for entity in ("topics/t", "users/u"):
        async with losing(cluster, nth):
            await change_entity(cluster.store, entity, add)
        assert await read_entity(cluster.witness, entity) == {"a": "1"}
    async with losing(cluster, nth):
        await change_entity(cluster.store, "users/u", lambda texts: {})
    assert await cluster.witness.exists("/config/users/u") is None
    named = {
        paths.ConfigChange.decode((await cluster.witness.get(f"/config/changes/{name}"))[0], name).entity_path
        for name in await cluster.witness.children("/config/changes")
    }
    assert named == {"topics/t", "users/u"}
