"""What AlterConfigs may change of listeners with logins, so that every broker starts again."""

import pytest

from barnabas.controller.admin.entity_configs import change_entity
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.altering import BROKER, alter
from tests.broker.harness import Machine

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROPERTIES = {
    "broker.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,LOGIN://127.0.0.1:9094",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "LOGIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": f'{MODULE} required username="a" password="b" user_a="b";',
}


async def started(nursery) -> Machine:
    machine = Machine(nursery)
    machine.properties |= PROPERTIES
    return await machine.start()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "FOO"])
async def test_brokers_do_not_get_a_mechanism_that_their_listener_lacks(nursery, autojump_clock, mechanism):
    machine = await started(nursery)
    client = await machine.connect()
    ((code, message),) = await alter(client, (BROKER, "1", {"sasl.mechanism.inter.broker.protocol": mechanism}))
    assert code == ErrorCode.INVALID_REQUEST
    assert "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms" in message
    await machine.stop()
    await machine.start()


@pytest.mark.parametrize(
    ("name", "text"),
    [("plain.connections.max.reauth.ms", "x"), ("plain.sasl.server.callback.handler.class", "x.Y")],
)
async def test_all_brokers_start_again_whatever_is_set_for_all_of_them(nursery, autojump_clock, name, text):
    machine = await started(nursery)
    ((code, message),) = await alter(await machine.connect(), (BROKER, "", {name: text}))
    assert (code, "broker id must be specified" in message) == (ErrorCode.INVALID_REQUEST, True)
    # As Kafka's tool, or a broker that does not check it, writes it.
    store = machine._database.session()
    await change_entity(store, "brokers/<default>", lambda _: {name: text})
    await store.close()
    await machine.stop()
    await machine.start()
