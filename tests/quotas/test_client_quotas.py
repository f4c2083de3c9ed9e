"""Client quotas: what is refused, how they are stored, which a filter finds; as asked of a running Kafka 3.9."""

import math

import pytest

from barnabas.quotas.client_quotas import (
    Entity,
    QuotaRefused,
    RateChange,
    change_rates,
    parse_entity,
    parse_filter,
)
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine

INVALID = ErrorCode.INVALID_REQUEST
EXACT, DEFAULT, ANY = 0, 1, 2
ALICE = (("user", "alice"),)
APP_OF_ALICE = (("user", "alice"), ("client-id", "app"))
# -- entities and rates


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ([("user", "alice")], "users/alice"),
        ([("user", None)], "users/<default>"),
        ([("user", "<default>")], "users/%3Cdefault%3E"),
        ([("user", "Jožef ~")], "users/Jo%C5%BEef%20%7E"),
        ([("client-id", "app 1/x*")], "clients/app%201%2Fx%2A"),
        ([("client-id", "app"), ("user", "alice")], "users/alice/clients/app"),
        ([("user", None), ("client-id", None)], "users/<default>/clients/<default>"),
        ([("ip", "10.0.0.1")], "ips/10.0.0.1"),
        ([("user", "x"), ("user", "y")], "users/y"),
    ],
)
def test_an_entity_lies_where_kafka_has_it(named, path):
    assert parse_entity(named).path == path


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ([], "Invalid empty client quota entity"),
        ([("usr", "x"), ("user", "")], "Unhandled client quota entity type: usr"),
        ([("user", "")], "Empty user not supported"),
        ([("user", "x"), ("client-id", "")], "Empty client-id not supported"),
        (
            [("ip", "1.1.1.1"), ("user", "x")],
            "Invalid quota entity combination, IP entity should not be used with user/client ID entity.",
        ),
    ],
)
def test_an_entity_that_cannot_be_is_refused(named, message):
    with pytest.raises(QuotaRefused) as refused:
        parse_entity(named)
    assert (refused.value.code, refused.value.message) == (INVALID, message)


@pytest.mark.parametrize(
    ("name", "rate", "text"),
    [
        ("producer_byte_rate", 1000.0, "1000"),
        ("producer_byte_rate", 1.9999999, "2"),
        ("consumer_byte_rate", 1.0000001, "1"),
        ("producer_byte_rate", 1e18, "1000000000000000000"),
        ("producer_byte_rate", 2.0**63, "9223372036854775807"),
        ("producer_byte_rate", math.nan, "0"),
        ("request_percentage", 200.0, "200.0"),
        ("request_percentage", -1.0, "-1.0"),
        ("request_percentage", 0.0001, "1.0E-4"),
        ("controller_mutation_rate", 1e7, "1.0E7"),
        ("controller_mutation_rate", math.inf, "Infinity"),
    ],
)
def test_a_rate_is_written_as_java_writes_it(name, rate, text):
    assert change_rates({}, Entity(user="u"), [RateChange(name, rate)]) == {name: text}


@pytest.mark.parametrize(
    ("entity", "name", "rate", "message"),
    [
        (Entity(user="u"), "nope", 1.0, "Invalid configuration key nope"),
        (Entity(user="u"), "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        (Entity(ip="i"), "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        (Entity(client_id="c"), "SCRAM-SHA-256", 1.0, "Invalid configuration key SCRAM-SHA-256"),
        (Entity(user="u"), "producer_byte_rate", 0.5, "Configuration producer_byte_rate must be a LONG value"),
        (Entity(user="u"), "producer_byte_rate", -1.0, "Configuration producer_byte_rate must be a LONG value"),
        (Entity(user="u"), "producer_byte_rate", 1e20, "Configuration producer_byte_rate must be a LONG value"),
        (Entity(user="u"), "consumer_byte_rate", math.inf, "Configuration consumer_byte_rate must be a LONG value"),
        (Entity(ip="i"), "connection_creation_rate", 3e9, "Configuration connection_creation_rate must be a INT value"),
    ],
)
def test_a_rate_that_cannot_be_is_refused(entity, name, rate, message):
    with pytest.raises(QuotaRefused) as refused:
        change_rates({}, entity, [RateChange(name, rate)])
    assert (refused.value.code, refused.value.message) == (INVALID, message)


def test_rates_are_changed_in_order_and_anything_can_be_removed():
    changes = [RateChange("producer_byte_rate", 5.0), RateChange("producer_byte_rate", None), RateChange("nope", None)]
    assert change_rates({"request_percentage": "1.0"}, Entity(user="u"), changes) == {"request_percentage": "1.0"}


def test_a_users_credentials_stay_untouched():
    before = {"SCRAM-SHA-256": "salt=..."}
    after = change_rates(before, Entity(user="u"), [RateChange("producer_byte_rate", 5.0)])
    assert after == {**before, "producer_byte_rate": "5"}


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("user", 3, None)], ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ([("user", EXACT, None)], ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ([("zz", 5, None), ("", EXACT, "x")], ErrorCode.UNKNOWN_SERVER_ERROR, None),
        ([("", ANY, None)], INVALID, "Unexpected empty filter component entity type"),
        ([("zz", ANY, None)], ErrorCode.UNSUPPORTED_VERSION, "Custom entity type 'zz' not supported"),
        ([("user", EXACT, "a"), ("user", ANY, None)], INVALID, "Duplicate user filter component entity type"),
        (
            [("client-id", EXACT, "a"), ("client-id", ANY, None)],
            INVALID,
            "Duplicate client filter component entity type",
        ),
        (
            [("ip", ANY, None), ("user", ANY, None)],
            INVALID,
            "Invalid entity filter component combination, IP filter component should not be used with user or "
            "clientId filter component.",
        ),
    ],
)
def test_a_filter_that_cannot_be_is_refused(components, code, message):
    with pytest.raises(QuotaRefused) as refused:
        parse_filter(components, strict=False)
    assert (refused.value.code, refused.value.message) == (code, message)


# -- a whole broker


def altering(*entries) -> m.AlterClientQuotasRequest:
    """Entries as (entity, {rate's name: rate, or None to remove})."""
    request = m.AlterClientQuotasRequest
    return request(
        entries=[
            request.EntryData(
                entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[request.OpData(key=key, value=rate or 0.0, remove=rate is None) for key, rate in rates.items()],
            )
            for entity, rates in entries
        ],
    )


async def alter(client, *entries):
    answer = await client.ask(altering(*entries))
    assert {row.error_code for row in answer.entries} == {0}


async def describe(client, version=1):
    """Entity -> rates, of all."""
    answer = await client.ask(m.DescribeClientQuotasRequest(components=[]), version)
    assert (answer.error_code, answer.error_message) == (0, "")
    return {
        tuple((each.entity_type, each.entity_name) for each in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


async def test_quotas_are_described_as_they_were_set_and_after_a_restart(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await alter(client, (ALICE, {"producer_byte_rate": 5.0, "request_percentage": 12.5}))
    await alter(client, (ALICE, {"producer_byte_rate": None}), (APP_OF_ALICE, {"consumer_byte_rate": 7.0}))
    expected = {ALICE: {"request_percentage": 12.5}, APP_OF_ALICE: {"consumer_byte_rate": 7.0}}
    assert await describe(client) == expected
    await machine.stop()
    client = await (await machine.start()).connect()
    assert await describe(client, version=0) == expected


async def test_a_user_with_credentials_alone_is_not_described(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    store = machine._database.session()
    await store.create("/config/users/bob", b'{"version":1,"config":{"SCRAM-SHA-256":"salt=x"}}')
    assert await describe(await machine.connect()) == {}
    await store.close()
