"""What every metadata store promises (controller/store/store.py), whichever it is.

Each test runs over the embedded store, and over one whose watches come late and in any order: a test waits until a
watch has fired, and never concludes anything from when it fired. What is expected here of versions, zxids, counters and
refusals is what a running ZooKeeper 3.8.4 answers: `compat_tests/test_zookeeper_store.py` runs all of this over one.
"""

import random
from functools import partial

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.controller.store.sqlitestore import open_sqlite_database
from barnabas.controller.store.store import (
    DATA_MAX_BYTES,
    BadVersion,
    Check,
    Create,
    Created,
    DataTooLarge,
    Delete,
    EphemeralParent,
    MetadataStore,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SetData,
    with_ancestors,
)
from tests.controller.store.store_model import OPS, compare_with_model
from tests.testing.simulation.stores import SimulatedStores

LATE_STEPS_MAX = 20


async def inline(function, *args):
    """Runs "in a thread" as the simulator does: here, but not at once."""
    await trio.lowlevel.checkpoint()
    return function(*args)


class LateWatches(MetadataStore):
    """A session whose watches fire after a delay of their own."""

    def __init__(self, store, nursery, rng):
        self.store, self._nursery, self._rng = store, nursery, rng
        self.batch, self.on_expired, self.renew, self.close = store.batch, store.on_expired, store.renew, store.close

    @property
    def session_id(self):
        return self.store.session_id

    async def get(self, path, watch=None):
        return await self.store.get(path, self._late(watch))

    async def exists(self, path, watch=None):
        return await self.store.exists(path, self._late(watch))

    async def children(self, path, watch=None):
        return await self.store.children(path, self._late(watch))

    def _late(self, watch):
        async def fire_later():
            for _ in range(self._rng.randrange(LATE_STEPS_MAX)):
                await trio.lowlevel.checkpoint()
            watch()

        return watch and partial(self._nursery.start_soon, fire_later)


class SqliteStores:
    """Sessions of one embedded store."""

    def __init__(self, database, late):
        self._database, self._late = database, late

    async def open(self):
        return self._late(self._database.session())

    async def expire(self, store):
        await getattr(store, "store", store).expire()

    async def settle(self):
        """Wait until every watch that will fire has fired."""
        for _ in range(LATE_STEPS_MAX + 1):
            await trio.lowlevel.checkpoint()


@pytest.fixture(params=["memory", "file", "late watches", "simulated"])
async def stores(request, tmp_path, nursery):
    """Opens sessions of one store, and expires them."""
    if request.param == "simulated":
        yield SimulatedStores(nursery)
        return
    path = str(tmp_path / "store.db") if request.param == "file" else ":memory:"
    rng = random.Random(7)
    database = await open_sqlite_database(path, inline, lambda: 1_700_000_000_000)
    is_late = request.param == "late watches"
    yield SqliteStores(database, lambda store: LateWatches(store, nursery, rng) if is_late else store)
    await database.close()


@pytest.fixture
async def store(stores):
    return await stores.open()


class Alarm:
    """A watch that can be waited for."""

    def __init__(self):
        self.count = 0
        self._fired = trio.Event()

    def __call__(self):
        self.count += 1
        self._fired.set()

    async def fires(self):
        with trio.fail_after(10):
            await self._fired.wait()


@pytest.fixture
def alarm():
    return Alarm()


@pytest.mark.parametrize("data", [None, b"", b"\0\xff", b"text"])
async def test_data_are_read_back_and_null_is_not_empty(store, data):
    await store.create("/a", data)
    assert (await store.get("/a"))[0] == data
    await store.set("/a", b"other")
    await store.set("/a", data)
    assert (await store.get("/a"))[0] == data


async def test_a_new_node_is_persistent_and_has_version_0(store):
    created = await store.create("/a", b"1")
    _, stat = await store.get("/a")
    assert created == Created("/a", stat)
    assert (stat.version, stat.owner, stat.mzxid) == (0, 0, stat.czxid)
    assert stat == await store.exists("/a")


async def test_a_write_counts_the_version_and_changes_nothing_else_of_a_nodes_birth(store):
    before = (await store.create("/a")).stat
    written = await store.set("/a", b"2")
    assert (written.version, written.czxid, written.ctime_ms) == (1, before.czxid, before.ctime_ms)
    assert written.mzxid > before.mzxid
    assert await store.get("/a") == (b"2", written)


async def test_creating_a_node_twice_is_refused(store):
    await store.create("/a", b"first")
    with pytest.raises(NodeExists) as refused:
        await store.create("/a", b"second")
    assert refused.value.path == "/a"
    assert (await store.get("/a"))[0] == b"first"


async def test_a_node_without_parent_is_refused(store):
    with pytest.raises(NoNode, match="/a/b"):
        await store.create("/a/b")
    assert await store.exists("/a") is None


async def test_what_does_not_exist_cannot_be_read_written_or_deleted(store):
    for attempt in (store.get("/a"), store.children("/a"), store.set("/a", b""), store.delete("/a")):
        with pytest.raises(NoNode) as refused:
            await attempt
        assert refused.value.path == "/a"
    assert await store.exists("/a") is None


async def test_a_write_with_another_version_is_refused(store):
    await store.create("/a", b"0")
    await store.set("/a", b"1", 0)
    with pytest.raises(BadVersion):
        await store.set("/a", b"2", 0)
    with pytest.raises(BadVersion):
        await store.delete("/a", 0)
    data, stat = await store.get("/a")
    assert (data, stat.version) == (b"1", 1)


async def test_a_node_with_children_is_not_deleted(store):
    await store.create("/a")
    await store.create("/a/b")
    with pytest.raises(NotEmpty):
        await store.delete("/a")
    with pytest.raises(BadVersion):  # the version is looked at first
        await store.delete("/a", 5)
    await store.delete("/a/b", 0)
    await store.delete("/a", 0)
    assert await store.exists("/a") is None


async def test_a_node_created_again_starts_over_with_a_later_birth(store):
    first = (await store.create("/a")).stat
    await store.set("/a", b"1")
    await store.delete("/a")
    again = (await store.create("/a")).stat
    assert again.version == 0
    assert again.czxid > first.czxid


async def test_children_are_names_sorted_and_only_the_direct_ones(store):
    for path in ("/p", "/p/b", "/p/a", "/p/a/deep", "/pa", "/p/ä", "/p/B", "/p/<default>"):
        await store.create(path)
    assert await store.children("/p") == ["<default>", "B", "a", "b", "ä"]
    assert await store.children("/p/b") == []
    assert {"p", "pa"} <= set(await store.children("/"))


async def test_the_root_can_be_read_and_written_but_neither_created_nor_deleted(store):
    before = await store.exists("/")
    assert (await store.set("/", b"root")).version == before.version + 1
    for op in (Create("/"), Delete("/")):
        with pytest.raises(ValueError, match="root"):
            await store.batch([op])


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a\0", "/\x1f", "/\x7f", "/\ue000", "/😀"]
)
async def test_a_path_that_zookeeper_refuses_is_a_value_error(store, path):
    for attempt in (store.get(path), store.exists(path), store.children(path), store.create(path), store.delete(path)):
        with pytest.raises(ValueError, match="path"):
            await attempt


async def test_data_up_to_the_limit_are_taken_and_larger_ones_refused(store):
    await store.create("/a", bytes(DATA_MAX_BYTES))
    assert len((await store.get("/a"))[0]) == DATA_MAX_BYTES
    with pytest.raises(DataTooLarge, match="/a"):
        await store.set("/a", bytes(DATA_MAX_BYTES + 1))
    with pytest.raises(DataTooLarge, match="/a"):  # a multi is one packet
        await store.multi([SetData("/a", bytes(DATA_MAX_BYTES // 2))] * 3)
    assert (await store.exists("/a")).version == 0


async def test_a_sequential_nodes_suffix_counts_the_children_ever_created(store):
    await store.create("/p")
    await store.create("/p/other")
    first = await store.create("/p/n_", b"1", sequential=True)
    await store.delete(first.path)
    await store.delete("/p/other")
    second = await store.create("/p/n_", b"2", sequential=True)
    third = await store.create("/p/", sequential=True)
    assert [first.path, second.path, third.path] == ["/p/n_0000000001", "/p/n_0000000002", "/p/0000000003"]
    assert (await store.get(second.path))[0] == b"2"


async def test_each_parent_counts_for_itself(store):
    await store.create("/p")
    await store.create("/q")
    await store.create("/p/n", sequential=True)
    assert (await store.create("/q/n", sequential=True)).path == "/q/n0000000000"


async def test_a_refused_multi_uses_no_number(store):
    await store.create("/p")
    number = Create("/p/n", sequential=True)
    created = await store.multi([number, number])
    with pytest.raises(BadVersion):
        await store.multi([number, Check("/p", 9)])
    created += await store.multi([number])
    assert [each.path for each in created] == ["/p/n0000000000", "/p/n0000000001", "/p/n0000000002"]


async def test_an_ephemeral_node_belongs_to_its_session_and_has_no_children(store):
    created = await store.create("/e", ephemeral=True)
    assert created.stat.owner == store.session_id != 0
    with pytest.raises(EphemeralParent, match="/e/child"):
        await store.create("/e/child")


@pytest.mark.parametrize("end", ["close", "expire"])
async def test_ephemeral_nodes_vanish_with_their_session_and_no_others(stores, store, end):
    other = await stores.open()
    await other.create("/other", ephemeral=True)
    await store.multi([Create("/p"), Create("/p/e", ephemeral=True), Create("/p/s", ephemeral=True, sequential=True)])
    await (store.close() if end == "close" else stores.expire(store))
    assert await other.children("/p") == []
    assert (await other.exists("/other")).owner == other.session_id != store.session_id


async def test_a_session_that_is_over_is_refused_everything(stores, store):
    await stores.expire(store)
    for attempt in (store.get("/"), store.exists("/"), store.children("/"), store.create("/a"), store.multi([])):
        with pytest.raises(SessionExpired):
            await attempt
    assert await (await stores.open()).exists("/a") is None


async def test_a_renewed_session_has_a_new_id_and_none_of_the_old_ephemerals(stores, store):
    expired = Alarm()
    store.on_expired(expired)
    await store.create("/e", ephemeral=True)
    old_id = store.session_id
    await stores.expire(store)
    await expired.fires()
    await store.renew()
    assert store.session_id != old_id
    assert (await store.create("/e", ephemeral=True)).stat.owner == store.session_id


async def test_every_expiry_is_reported(stores, store):
    expired = Alarm()
    store.on_expired(expired)
    for count in (1, 2):
        await stores.expire(store)
        await expired.fires()
        await store.renew()
        assert expired.count == count


async def test_renewing_a_living_session_changes_nothing(store):
    await store.create("/e", ephemeral=True)
    before = store.session_id
    await store.renew()
    assert store.session_id == before == (await store.exists("/e")).owner


async def test_closing_twice_is_allowed_and_is_no_expiry(store):
    expired = Alarm()
    store.on_expired(expired)
    await store.close()
    await store.close()
    with pytest.raises(SessionExpired):
        await store.exists("/")
    assert expired.count == 0


async def test_every_write_transaction_has_a_later_zxid_in_every_session(stores, store):
    other = await stores.open()
    zxids = [(await store.create("/a")).stat.mzxid, (await other.set("/a", b"")).mzxid]
    zxids += [(await store.set("/a", b"")).mzxid, (await other.create("/b")).stat.czxid]
    assert zxids == sorted(set(zxids))


async def test_all_operations_of_a_multi_have_one_zxid(store):
    await store.create("/epoch")
    _, written = await store.multi([Create("/node", ephemeral=True), SetData("/epoch", b"1")])
    assert written.mzxid == (await store.exists("/node")).czxid
    _, filled = await store.multi([Create("/broker"), SetData("/broker", b"1")])
    assert filled.czxid == filled.mzxid == (await store.exists("/broker")).czxid


async def test_a_multi_is_one_transaction_and_its_operations_see_each_other(store):
    created, stat = await store.multi([Create("/e", ephemeral=True), SetData("/e", b"data", 0)])
    assert (created.stat.version, stat.version) == (0, 1)
    assert stat.czxid == stat.mzxid == created.stat.czxid
    assert await store.get("/e") == (b"data", stat)


async def test_a_refused_multi_writes_nothing_and_raises_the_first_refusal(store):
    await store.create("/a", b"0")
    with pytest.raises(BadVersion, match="/a"):
        await store.multi([Create("/b"), SetData("/a", b"1", 0), Delete("/a", 0), Delete("/missing")])
    assert await store.exists("/b") is None
    assert (await store.get("/a"))[0] == b"0"


async def test_a_check_fences_a_multi(store):
    fence = (await store.create("/epoch", b"1")).stat.version
    assert await store.multi([Check("/epoch", fence), Create("/a")])
    await store.set("/epoch", b"2")
    with pytest.raises(BadVersion, match="/epoch"):
        await store.multi([Check("/epoch", fence), Create("/b")])
    with pytest.raises(NoNode, match="/gone"):
        await store.multi([Check("/gone", -1), Create("/b")])
    assert await store.exists("/b") is None


async def test_the_results_of_a_multi_are_in_order(store):
    created, checked, stat, deleted = await store.multi(
        [Create("/a"), Check("/a", -1), SetData("/a", b"", 0), Delete("/a", 1)]
    )
    assert (created.path, checked, stat.version, deleted) == ("/a", None, 1, None)
    assert await store.multi([]) == []


async def test_each_item_of_a_batch_has_its_own_outcome(store):
    outcomes = await store.batch(
        [
            Create("/a"),
            Create("/a"),
            [Create("/b"), Delete("/missing")],
            [Create("/b"), SetData("/b", b"1")],
            SetData("/a", b"1", 0),
            Delete("/a", 0),
            Check("/a", 1),
        ]
    )
    kinds = [type(each) if not isinstance(each, list) else [type(one) for one in each] for each in outcomes]
    stat_type = type(outcomes[4])
    assert kinds == [Created, NodeExists, NoNode, [Created, stat_type], stat_type, BadVersion, type(None)]
    assert (outcomes[2].path, outcomes[4].version) == ("/missing", 1)
    assert (await store.get("/b"))[0] == b"1"


async def test_a_write_after_a_large_batch_comes_after_all_of_it(store):
    await store.create("/p")
    items = [[Check("/p", 0), Create(f"/p/{number:03}")] for number in range(300)]
    written, later = [], []

    async def write():
        written.extend(await store.batch(items))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        # Both tasks run after the first one, in any order; after the second one the batch has begun.
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        later.append(await store.create("/p/later"))
    paths = [created.path for _, created in written]
    assert paths == [f"/p/{number:03}" for number in range(300)]
    assert later[0].stat.czxid > max(created.stat.czxid for _, created in written)


async def test_an_empty_batch_does_nothing(store):
    assert await store.batch([]) == []


async def test_parents_made_in_one_batch_may_exist(store):
    await store.create("/brokers")
    paths = with_ancestors(["/brokers/ids", "/config/topics", "/brokers/topics"])
    assert paths == ["/brokers", "/brokers/ids", "/config", "/config/topics", "/brokers/topics"]
    outcomes = await store.batch([Create(path) for path in paths])
    assert [isinstance(each, NodeExists) for each in outcomes] == [True, False, False, False, False]


async def test_calls_of_several_tasks_are_carried_out_in_the_order_in_which_they_were_made(store):
    await store.create("/p")
    order = [f"{number:02}" for number in random.Random(1).sample(range(20), 20)]
    created = {}

    async def create(name):
        created[name] = (await store.create(f"/p/{name}")).stat.czxid

    async with trio.open_nursery() as nursery:
        for name in order:
            nursery.start_soon(create, name)
            await trio.lowlevel.checkpoint()  # tasks started in one step would run in any order
    assert sorted(created, key=created.get) == order


async def test_a_cancelled_call_leaves_the_session_usable(store):
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.create("/a")
    assert scope.cancelled_caught
    assert (await store.create("/b")).path == "/b"


@pytest.mark.parametrize("change", [SetData("/a", b""), Delete("/a"), [Check("/a", 0), SetData("/a", None, 0)]])
@pytest.mark.parametrize("reader", ["get", "exists"])
async def test_a_data_watch_fires_when_the_node_is_set_or_deleted(stores, store, alarm, reader, change):
    await store.create("/a")
    await getattr(store, reader)("/a", alarm)
    await (await stores.open()).batch([change])
    await alarm.fires()


async def test_exists_watches_what_does_not_exist_yet(stores, store, alarm):
    assert await store.exists("/a", alarm) is None
    await (await stores.open()).create("/a", ephemeral=True)
    await alarm.fires()


async def test_reading_what_does_not_exist_watches_nothing(stores, store, alarm):
    for read in (store.get, store.children):
        with pytest.raises(NoNode):
            await read("/a", alarm)
    await store.multi([Create("/a"), SetData("/a", b""), Create("/a/b"), Delete("/a/b"), Delete("/a")])
    await stores.settle()
    assert alarm.count == 0


@pytest.mark.parametrize("change", [Create("/p/new"), Delete("/p/old"), [Delete("/p/old"), Delete("/p")]])
async def test_a_child_watch_fires_when_a_child_comes_or_goes_or_the_node_does(stores, store, alarm, change):
    await store.multi([Create("/p"), Create("/p/old")])
    await store.children("/p", alarm)
    await (await stores.open()).batch([change])
    await alarm.fires()


async def test_a_child_watch_fires_when_a_node_without_children_is_deleted(stores, store, alarm):
    await store.create("/p")
    await store.children("/p", alarm)
    await (await stores.open()).delete("/p")
    await alarm.fires()


async def test_a_watch_reports_nothing_else(stores, store):
    await store.multi([Create("/p"), Create("/p/c"), Create("/q")])
    data, child = Alarm(), Alarm()
    await store.get("/p", data)
    await store.children("/p", child)
    await store.multi([Create("/p/c2"), Delete("/p/c2"), Create("/p/c/deep"), SetData("/q", b"")])
    await child.fires()  # of /p/c2
    await store.children("/p", again := Alarm())
    await store.multi([SetData("/p/c", b""), Create("/p/c/deep2")])
    await stores.settle()
    assert (data.count, again.count) == (0, 0)


async def test_a_watch_fires_once(stores, store, alarm):
    await store.create("/a")
    await store.get("/a", alarm)
    for _ in range(3):
        await store.set("/a", b"")
    await alarm.fires()
    await stores.settle()
    assert alarm.count == 1


async def test_every_watch_on_a_node_fires(stores, store):
    alarms = [Alarm(), Alarm(), Alarm()]
    await store.get("/", alarms[0])
    await store.exists("/", alarms[1])
    await (await stores.open()).get("/", alarms[2])
    await store.set("/", b"")
    for each in alarms:
        await each.fires()


async def test_a_refused_write_fires_no_watch(stores, store, alarm):
    await store.create("/a")
    await store.exists("/a", alarm)
    await store.exists("/b", alarm)
    await store.batch([[SetData("/a", b""), Create("/b"), Check("/a", 7)], SetData("/a", b"", 7), Create("/a")])
    await stores.settle()
    assert alarm.count == 0


@pytest.mark.parametrize("end", ["close", "expire"])
async def test_the_end_of_a_session_fires_the_watches_of_others_on_its_nodes(stores, store, end):
    other, node, children = await stores.open(), Alarm(), Alarm()
    await store.multi([Create("/p"), Create("/p/e", ephemeral=True)])
    await other.exists("/p/e", node)
    await other.children("/p", children)
    await (store.close() if end == "close" else stores.expire(store))
    await node.fires()
    await children.fires()


async def test_the_watches_of_an_expired_session_are_gone(stores, store, alarm):
    await store.exists("/a", alarm)
    await stores.expire(store)
    await store.renew()
    await stores.settle()
    fired_at_the_end = alarm.count  # of a connection that was lost, and the session with it
    await store.create("/a")
    await stores.settle()
    assert alarm.count == fired_at_the_end


async def test_reading_again_at_each_watch_ends_with_the_last_write(stores, store):
    await store.create("/a", b"0")
    seen = []

    async def follow():
        while not seen or seen[-1] != b"9":
            changed = Alarm()
            seen.append((await store.get("/a", changed))[0])
            if seen[-1] != b"9":
                await changed.fires()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        writer = await stores.open()
        for number in range(1, 10):
            await writer.set("/a", b"%d" % number)
            await trio.lowlevel.checkpoint()
    assert seen == sorted(seen)


@settings(max_examples=100, deadline=None)
@given(st.lists(OPS | st.lists(OPS, min_size=1, max_size=4), max_size=25))
def test_any_writes_leave_what_a_dictionary_would_hold(items):
    async def compare():
        database = await open_sqlite_database(":memory:", inline, lambda: 0)
        await compare_with_model(database.session(), items)
        await database.close()

    trio.run(compare)
