"""A broker's registration: one per id and per address, and never two in one life."""

import pytest

from barnabas.controller.admin.registration import CannotRegister, register_broker
from barnabas.controller.store.paths import BrokerRegistration, Endpoint


def at(host, port):
    return BrokerRegistration((Endpoint("PLAINTEXT", host, port),), {"PLAINTEXT": "PLAINTEXT"}, 0)


HERE = at("h", 1)


@pytest.fixture
def store(cluster):
    return cluster.store


@pytest.fixture
def other(cluster):
    return cluster.database.session()


async def test_the_broker_epoch_is_the_czxid_of_an_ephemeral_node(store):
    epoch = await register_broker(store, 1, HERE)
    data, stat = await store.get("/brokers/ids/1")
    assert (stat.czxid, stat.owner, stat.version) == (epoch, store.session_id, 1)
    assert BrokerRegistration.decode(data, "") == HERE


async def test_a_registration_of_this_session_is_kept(store):
    epoch = await register_broker(store, 1, HERE)
    assert await register_broker(store, 1, HERE) == epoch


async def test_a_broker_id_of_another_session_is_in_use(store, other):
    await register_broker(store, 1, HERE)
    with pytest.raises(CannotRegister, match="broker id 1 is in use"):
        await register_broker(other, 1, at("h", 2))


async def test_a_registration_of_the_expired_session_is_replaced(store, other):
    old = await register_broker(store, 1, HERE)
    assert await register_broker(other, 1, HERE, previous_session_id=store.session_id) > old
    assert (await store.exists("/brokers/ids/1")).owner == other.session_id


async def test_an_address_of_another_broker_is_in_use(store, other):
    await register_broker(store, 1, HERE)
    with pytest.raises(CannotRegister, match="broker 1 is registered at h:1 already"):
        await register_broker(other, 2, HERE)


async def test_a_registration_that_cannot_be_read_is_in_no_ones_way(store, other):
    await other.create("/brokers/ids/7", b"what is this", ephemeral=True)
    assert await register_broker(store, 1, HERE) > 0
    with pytest.raises(CannotRegister, match="broker id 7 is in use"):
        await register_broker(store, 7, at("h", 2))


async def test_a_broker_that_ended_leaves_id_and_address_free(store, other):
    old = await register_broker(other, 1, HERE)
    await other.close()
    assert await register_broker(store, 1, HERE) > old
