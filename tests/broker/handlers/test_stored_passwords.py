"""Passwords that AlterConfigs sets: encoded in the store, in effect after a start, and described nowhere."""

import os

import pytest

from barnabas.config.alter import Operation
from barnabas.config.parse import ConfigError
from barnabas.controller.admin.entity_configs import change_entity, read_entity
from barnabas.security.encoder import Encoding, decode, encode
from barnabas.wire.errors import ErrorCode
from tests.broker.handlers.altering import BROKER, alter, describe, replacing
from tests.broker.harness import Machine

SECRET = "burgel"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{MODULE} required username="admin" password="sortini" user_admin="sortini";'
NAME = "listener.name.later.plain.sasl.jaas.config"
ENCODER = {"password_encoder_secret": SECRET, "password_encoder_iterations": "1024"}
QUICK = Encoding(iterations=1024)


async def started(nursery, **properties) -> Machine:
    return await Machine(nursery, broker_id="1", **properties).start()


async def stored_in(machine: Machine) -> dict[str, str]:
    store = machine._database.session()
    texts = await read_entity(store, "brokers/1")
    await store.close()
    return texts


async def store_in(machine: Machine, texts) -> None:
    store = machine._database.session()
    await change_entity(store, "brokers/1", lambda _: texts)
    await store.close()


@pytest.mark.parametrize("name", [NAME, "sasl.jaas.config", "plain.sasl.jaas.config", "foo.ssl.key.password"])
async def test_without_a_secret_a_password_is_refused_but_may_be_checked(nursery, autojump_clock, name):
    machine = await started(nursery)
    client = await machine.connect()
    message = (
        "Invalid config value for resource ConfigResource(type=BROKER, name='1'): "
        "Password encoder secret not configured"
    )
    assert await alter(client, (BROKER, "1", {name: JAAS})) == [(ErrorCode.INVALID_CONFIG, message)]
    (row,) = (await client.ask(replacing(BROKER, "1", {name: JAAS}))).responses
    assert (row.error_code, row.error_message) == (ErrorCode.INVALID_CONFIG, message)
    assert await alter(client, (BROKER, "1", {name: JAAS}), validate_only=True) == [(0, None)]
    assert await stored_in(machine) == {}


async def test_a_password_of_all_brokers_is_refused(nursery, autojump_clock):
    client = await (await started(nursery, **ENCODER)).connect()
    ((code, message),) = await alter(client, (BROKER, "", {NAME: JAAS}))
    assert (code, "broker id must be specified" in message) == (ErrorCode.INVALID_REQUEST, True)
    assert await alter(client, (BROKER, "", {"foo.ssl.key.password": "a"})) == [
        (
            ErrorCode.INVALID_CONFIG,
            "Invalid config value for resource ConfigResource(type=BROKER, name=''): "
            "Password config can be defined only at broker level",
        )
    ]


async def test_a_password_is_stored_encoded_and_not_described(nursery, autojump_clock, caplog):
    caplog.set_level("DEBUG")
    machine = await started(nursery, **ENCODER)
    client = await machine.connect()
    assert await alter(client, (BROKER, "1", {NAME: JAAS, "log.cleaner.threads": "1"})) == [(0, None)]
    stored = await stored_in(machine)
    assert decode(stored[NAME], SECRET) == JAAS
    assert stored["log.cleaner.threads"] == "1"
    (row,) = (await describe(client, BROKER, "1", NAME, include_synonyms=True)).configs
    assert (row.value, row.is_sensitive, row.config_type, row.config_source, row.read_only) == (None, True, 9, 2, True)
    assert [(each.name, each.value, each.source) for each in row.synonyms] == [(NAME, None, 2)]
    assert machine.broker.config.layers()[0][1][NAME] == JAAS
    assert "sortini" not in caplog.text
    # The text of a password that stays is not written again.
    assert await alter(client, (BROKER, "1", {"log.cleaner.threads": "2"})) == [(0, None)]
    assert await stored_in(machine) == stored | {"log.cleaner.threads": "2"}
    assert await alter(client, (BROKER, "1", {NAME: None})) == [(0, None)]
    assert await stored_in(machine) == {"log.cleaner.threads": "2"}


async def test_a_list_operation_on_a_password_shows_nothing(nursery, autojump_clock):
    client = await (await started(nursery, **ENCODER)).connect()
    ((code, message),) = await alter(client, (BROKER, "1", {NAME: (Operation.APPEND, JAAS)}))
    assert code != 0
    assert "sortini" not in (message or "")


async def test_what_cannot_be_decoded_stays_until_it_is_replaced(nursery, autojump_clock, caplog):
    machine = await started(nursery, **ENCODER)
    client = await machine.connect()
    other = encode(JAAS, "another", QUICK, os.urandom)
    await store_in(machine, {NAME: other})
    assert await alter(client, (BROKER, "1", {"log.cleaner.threads": "1"})) == [(0, None)]
    assert await stored_in(machine) == {NAME: other, "log.cleaner.threads": "1"}
    assert f"{NAME} in the store (brokers/1) is ignored: Password could not be decoded" in caplog.text
    assert await alter(client, (BROKER, "1", {NAME: None})) == [(0, None)]
    assert await stored_in(machine) == {"log.cleaner.threads": "1"}


async def test_a_start_with_the_old_secret_encodes_passwords_again(nursery, autojump_clock):
    machine = await started(nursery, **ENCODER)
    client = await machine.connect()
    assert await alter(client, (BROKER, "1", {NAME: JAAS, "foo.ssl.key.password": "klamm"})) == [(0, None)]
    await machine.stop()
    await machine.start(password_encoder_secret="new", password_encoder_old_secret=SECRET)
    stored = await stored_in(machine)
    assert [decode(stored[name], "new") for name in (NAME, "foo.ssl.key.password")] == [JAAS, "klamm"]
    assert machine.broker.config.layers()[0][1][NAME] == JAAS
    await machine.stop()
    await machine.start()  # the old secret is still set
    assert await stored_in(machine) == stored


async def test_an_encoder_that_is_not_served_ends_the_start(nursery, autojump_clock):
    with pytest.raises(ConfigError, match=r"password.encoder.cipher.algorithm: DES is not served"):
        await started(nursery, **ENCODER, password_encoder_cipher_algorithm="DES")


# -- a listener whose login is in the store


SECURED = {
    "listeners": "PLAINTEXT://127.0.0.1:9092,LATER://127.0.0.1:9093",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,LATER:SASL_PLAINTEXT",
    "sasl_enabled_mechanisms": "PLAIN",
}


async def test_a_listener_starts_with_the_login_that_is_in_the_store(nursery, autojump_clock):
    machine = await started(nursery, **ENCODER)
    client = await machine.connect()
    assert await alter(client, (BROKER, "1", {NAME: JAAS})) == [(0, None)]
    await machine.stop()
    client = await (await machine.start(**SECURED)).connect()
    login = machine.broker.secured.get("LATER").security.logins["PLAIN"]
    assert login.options["user_admin"] == "sortini"
    # What the listener has does not hinder later changes; a change of it waits for a start.
    assert await alter(client, (BROKER, "1", {"log.cleaner.threads": "1"})) == [(0, None)]
    message = f"Configs cannot be updated dynamically for existing listener: {NAME}"
    for text in (JAAS.replace("sortini", "klamm"), None):
        assert await alter(client, (BROKER, "1", {NAME: text})) == [(ErrorCode.INVALID_REQUEST, message)]
    assert decode((await stored_in(machine))[NAME], SECRET) == JAAS


async def test_a_listener_without_its_login_says_why_it_does_not_start(nursery, autojump_clock, caplog):
    machine = await started(nursery, **ENCODER)
    client = await machine.connect()
    assert await alter(client, (BROKER, "1", {NAME: JAAS})) == [(0, None)]
    await machine.stop()
    with pytest.raises(ConfigError, match=NAME):
        await machine.start(**SECURED, password_encoder_secret="wrong")
    assert f"{NAME} in the store (brokers/1) is ignored: Password could not be decoded" in caplog.text
