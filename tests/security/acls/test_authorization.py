"""The ACLs in the store: what several brokers write and follow, and what happens to odd nodes and lost sessions."""

import random
from functools import partial

import pytest
import trio

from barnabas.controller.store import paths
from barnabas.controller.store.following import EXPIRY_MS
from barnabas.controller.store.sqlitestore import open_sqlite_database
from barnabas.controller.store.store import BadVersion, NodeExists, NoNode
from barnabas.security.acls.acls import AccessControlEntry, AclBinding, AclFilter, ResourcePattern, encode_entries
from barnabas.security.acls.authorization import UNREADABLE, Authorization
from barnabas.security.acls.authorizer import Authorizer
from barnabas.wire.errors import ErrorCode
from barnabas.world.world import run_inline
from tests.broker.steps import StepMeter

TOPIC, PREFIX = ResourcePattern("Topic", "orders"), ResourcePattern("Topic", "ord", "Prefixed")
READ = AccessControlEntry("User:a", "*", "Read", "Allow")
WRITE = READ._replace(operation="Write")
EVERYTHING = AclFilter("Any", None, "Any", None, None, "Any", "Any")
START_MS = 1_700_000_000_000


def now_ms():
    return START_MS + round(trio.current_time() * 1000)


class House:
    """Brokers that share an embedded store, each in its own session."""

    def __init__(self, database, nursery):
        self.database, self.nursery = database, nursery

    async def broker(self, seed=0, wrap=lambda store: store):
        store = wrap(self.database.session())
        authorization = Authorization(store, Authorizer(), now_ms=now_ms, rng=random.Random(seed))
        authorization.store = store
        await self.nursery.start(authorization.run)
        return authorization


@pytest.fixture
async def house(nursery):
    database = await open_sqlite_database(":memory:", run_inline, now_ms)
    yield House(database, nursery)
    nursery.cancel_scope.cancel()
    with trio.CancelScope(shield=True):
        await database.close()


def known(authorization):
    acls = authorization.authorizer.acls
    return {AclBinding(pattern, entry) for pattern in acls.patterns() for entry in acls.entries(pattern)}


async def test_what_one_broker_creates_another_knows_and_a_third_finds_at_its_start(house, autojump_clock):
    one, two = await house.broker(), await house.broker()
    outcome = await one.create([AclBinding(TOPIC, READ), AclBinding(TOPIC, WRITE), AclBinding(PREFIX, READ)])
    assert outcome == {TOPIC: ErrorCode.NONE, PREFIX: ErrorCode.NONE}
    assert len(known(one)) == 3
    await trio.sleep(1)
    assert known(two) == known(one) == known(await house.broker())
    data, _ = await one.store.get("/kafka-acl/Topic/orders")
    assert data == encode_entries([READ, WRITE])


async def test_the_last_acl_of_a_pattern_takes_its_node_with_it(house, autojump_clock):
    one, two = await house.broker(), await house.broker()
    await one.create([AclBinding(TOPIC, READ), AclBinding(TOPIC, WRITE)])
    await trio.sleep(1)
    found = await two.delete([EVERYTHING._replace(operation="Read"), EVERYTHING])
    assert [[each.binding.entry for each in row] for row in found] == [[READ], [WRITE]]
    with pytest.raises(NoNode):
        await two.store.get(TOPIC.node)
    await trio.sleep(1)
    assert known(one) == known(two) == set()


async def test_a_filter_of_one_pattern_finds_what_this_broker_has_not_heard_of(house, autojump_clock):
    one, two = await house.broker(), await house.broker()
    await one.create([AclBinding(TOPIC, READ)])
    two.authorizer.replace(TOPIC, frozenset())
    wanted = AclFilter("Topic", "orders", "Literal", None, None, "Any", "Any")
    assert [[each.binding for each in row] for row in await two.delete([wanted])] == [[AclBinding(TOPIC, READ)]]


async def test_what_exists_already_is_neither_written_nor_announced(house, autojump_clock):
    one = await house.broker()
    await one.create([AclBinding(TOPIC, READ)])
    before = await one.store.exists(TOPIC.node), await one.store.children(paths.ACL_CHANGES)
    assert await one.create([AclBinding(TOPIC, READ)]) == {TOPIC: ErrorCode.NONE}
    await one.delete([EVERYTHING._replace(principal="User:z")])
    assert (await one.store.exists(TOPIC.node), await one.store.children(paths.ACL_CHANGES)) == before


async def test_announcements_lie_where_java_brokers_look(house, autojump_clock):
    one = await house.broker()
    await one.create([AclBinding(TOPIC, READ), AclBinding(PREFIX, READ)])
    (literal,), (extended,) = [
        await one.store.children(folder) for folder in (paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES)
    ]
    assert literal == extended == "acl_changes_0000000000"
    assert (await one.store.get(f"{paths.ACL_CHANGES}/{literal}"))[0] == b"TOPIC:orders"


async def test_what_a_java_broker_writes_is_followed(house, autojump_clock):
    one = await house.broker()
    await one.store.create(TOPIC.node, encode_entries([READ]))
    await one.store.create(paths.ACL_CHANGE_PREFIX, b"TOPIC:orders", sequential=True)
    await trio.sleep(1)
    assert known(one) == {AclBinding(TOPIC, READ)}
    await one.store.delete(TOPIC.node)
    await one.store.create(paths.ACL_CHANGE_PREFIX, b"CASTLE:orders", sequential=True)  # of a newer one
    await one.store.create(paths.ACL_CHANGE_PREFIX, b"TOPIC:orders", sequential=True)
    await trio.sleep(1)
    assert known(one) == set()


async def test_a_node_that_cannot_be_read_denies_everything_and_is_not_overwritten(house, autojump_clock):
    store = (await house.broker()).store
    await store.create(TOPIC.node, b"{")
    one = await house.broker()
    assert one.authorizer.acls.entries(TOPIC) == UNREADABLE
    assert await one.create([AclBinding(TOPIC, READ)]) == {TOPIC: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert (await store.get(TOPIC.node))[0] == b"{"


async def test_a_name_that_no_node_can_have_fails_alone(house, autojump_clock):
    one, odd = await house.broker(), ResourcePattern("Group", "..")
    outcome = await one.create([AclBinding(odd, READ), AclBinding(TOPIC, READ)])
    assert outcome == {odd: ErrorCode.UNKNOWN_SERVER_ERROR, TOPIC: ErrorCode.NONE}
    assert known(one) == {AclBinding(TOPIC, READ)}


async def test_announcements_are_removed_after_a_quarter_of_an_hour(house, autojump_clock):
    one = await house.broker()
    await one.create([AclBinding(TOPIC, READ)])
    await trio.sleep(EXPIRY_MS / 1000 + 1)
    await one.create([AclBinding(TOPIC, WRITE)])
    await trio.sleep(1)
    assert await one.store.children(paths.ACL_CHANGES) == ["acl_changes_0000000001"]


async def test_a_new_session_reads_everything_again(house, autojump_clock):
    one, two = await house.broker(), await house.broker()
    await one.create([AclBinding(TOPIC, READ)])
    await trio.sleep(1)
    await two.store.expire()
    # Changes whose announcements are gone when the session begins again.
    await one.create([AclBinding(TOPIC, WRITE), AclBinding(PREFIX, READ)])
    await one.delete([EVERYTHING._replace(operation="Read", pattern_type="Literal")])
    for folder in (paths.ACL_CHANGES, paths.EXTENDED_ACL_CHANGES):
        for name in await one.store.children(folder):
            await one.store.delete(f"{folder}/{name}")
    await two.store.renew()
    await trio.sleep(5)
    assert known(two) == {AclBinding(TOPIC, WRITE), AclBinding(PREFIX, READ)}
    # And its watches are set again.
    await one.create([AclBinding(PREFIX, WRITE)])
    await trio.sleep(1)
    assert known(two) == known(one)


class Contended:
    """A store in which another broker is quicker, some times."""

    def __init__(self, store, times):
        self._store, self.times = store, times

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def multi(self, ops):
        if self.times:
            self.times -= 1
            raise (BadVersion, NodeExists, NoNode)[self.times % 3](ops[0].path)
        return await self._store.multi(ops)


@pytest.mark.parametrize(("times", "code"), [(9, ErrorCode.NONE), (10, ErrorCode.UNKNOWN_SERVER_ERROR)])
async def test_a_write_is_tried_ten_times(house, autojump_clock, times, code):
    one = await house.broker(wrap=partial(Contended, times=times))
    assert await one.create([AclBinding(TOPIC, READ)]) == {TOPIC: code}
    assert known(one) == ({AclBinding(TOPIC, READ)} if code is ErrorCode.NONE else set())


async def test_brokers_that_change_acls_at_the_same_time_lose_nothing_and_agree(house, autojump_clock):
    brokers = [await house.broker(seed) for seed in range(3)]
    patterns = [TOPIC, PREFIX, ResourcePattern("Group", "*")]
    created = set()

    async def work(number):
        rng = random.Random(number)
        for step in range(40):
            mine = [
                AclBinding(rng.choice(patterns), READ._replace(principal=f"User:{number}-{step}-{each}"))
                for each in range(2)
            ]
            assert set((await brokers[number].create(mine)).values()) == {ErrorCode.NONE}
            # Each deletes some of its own.
            gone = AclFilter("Any", None, "Any", mine[0].entry.principal, None, "Any", "Any")
            assert [len(row) for row in await brokers[number].delete([gone])] == [1]
            created.add(mine[1])
            await trio.sleep(rng.random() / 10)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(work, number)
    await trio.sleep(2)
    for each in [*brokers, await house.broker()]:
        assert known(each) == created


async def test_many_filters_are_compared_with_a_pattern_in_short_steps(house, autojump_clock):
    one = await house.broker()
    await one.create([AclBinding(TOPIC, READ)])
    filters = [AclFilter("Topic", f"none-{number}", "Any", None, None, "Any", "Any") for number in range(10_000)]
    with StepMeter() as meter:
        found = await one.delete(filters)
    assert not any(found)
    meter.check()


async def test_many_filters_of_one_pattern_are_compared_with_its_acls_in_short_steps(house, autojump_clock):
    one = await house.broker()
    entries = [AccessControlEntry(f"User:{number}", "*", "Read", "Allow") for number in range(30)]
    await one.create([AclBinding(TOPIC, entry) for entry in entries])
    users = [f"User:{number}" for number in reversed(range(3000))]
    filters = [AclFilter("Topic", TOPIC.name, "Literal", user, None, "Any", "Any") for user in users]
    with StepMeter() as meter:
        found = await one.delete(filters)
    assert [[each.binding.entry for each in row] for row in reversed(found[-31:])] == [*([e] for e in entries), []]
    meter.check()


async def test_filters_that_name_different_patterns_are_not_compared_with_each_other(house, autojump_clock):
    one = await house.broker()
    compared = 0

    class Counted(AclFilter):
        def fits_pattern(self, pattern):
            nonlocal compared
            compared += 1
            return super().fits_pattern(pattern)

    await one.delete([Counted("Topic", f"t{number}", "Literal", None, None, "Any", "Any") for number in range(100)])
    assert compared <= 100


async def test_many_acls_of_one_request_are_sorted_in_short_steps(house, autojump_clock):
    one = await house.broker()
    with StepMeter() as meter:
        await one.create([AclBinding(TOPIC, READ)] * 10_000)
    meter.check()
