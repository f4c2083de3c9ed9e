"""The table of APIs: agreement with Kafka and with the schemas, header versions, versions between brokers."""

from importlib import import_module
from pathlib import Path

import pytest

from barnabas.wire import messages as m
from barnabas.wire.apis import (
    APIS,
    inter_broker_versions,
    metadata_version_is_at_least,
    request_header_version,
    response_header_version,
)
from tests.wire.kafka_apis import KAFKA_APIS, KAFKA_NAMES, KRAFT_ONLY, LEFT_OUT, REFERENCE

SERVED = [api for api in APIS.values() if api.served]


def test_the_table_is_keyed_by_its_own_keys_in_ascending_order() -> None:
    assert [api.key for api in APIS.values()] == list(APIS)
    assert list(APIS) == sorted(APIS)


def test_every_api_of_kafka_has_its_row() -> None:
    rows = {key: (api.min_version, api.max_version, api.flexible_from) for key, api in APIS.items()}
    of_kafka = {key: rows.get(key) for key in KAFKA_APIS}
    assert of_kafka == KAFKA_APIS, f"the versions in APIS of wire/apis.py are those of {REFERENCE}, section 1"
    assert {key: APIS[key].name for key in KAFKA_NAMES} == KAFKA_NAMES


def test_no_api_of_kraft_has_a_row() -> None:
    assert KRAFT_ONLY & APIS.keys() == set()


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_a_served_api_has_schemas_of_the_same_key_versions_and_flexibility(api) -> None:
    for suffix in ("Request", "Response"):
        name = api.name + suffix
        assert name in m.schemas(), f"add the fields of {name} to wire/schemas/{api.family}.py"
    for message in (m.request_class(api), m.response_class(api)):
        assert api.key == message.API_KEY
        assert (api.min_version, api.max_version) == (message.MIN_VERSION, message.MAX_VERSION)
        assert api.flexible_from == message.FLEXIBLE_FROM


def test_every_file_of_schemas_is_read():
    files = {path.stem for path in Path(m.__file__).with_name("schemas").glob("*.py")} - {"__init__"}
    assert files == set(m.FAMILIES), "the family of an API is the file of its schema: add the API's row to wire/apis.py"


def test_every_schema_with_a_key_belongs_to_an_api_of_its_name_and_family() -> None:
    keyed = [schema for schema in m.schemas().values() if schema.key is not None]
    for schema in keyed:
        assert schema.key in APIS, f"{schema.name} has the key {schema.key}: add its row to APIS in wire/apis.py"
        api = APIS[schema.key]
        assert schema.name in (api.name + "Request", api.name + "Response")
        assert schema in import_module(f"barnabas.wire.schemas.{api.family}").SCHEMAS
        assert api.served, f"{schema.name} is there: the row of {api.name} in APIS of wire/apis.py gets served=True"


def test_request_and_response_classes_are_those_of_the_messages_module() -> None:
    assert m.request_class(APIS[1]) is m.FetchRequest
    assert m.response_class(APIS[1]) is m.FetchResponse


def test_what_kafka_serves_is_served() -> None:
    assert APIS.keys() - {api.key for api in SERVED} == LEFT_OUT


def test_produce_is_advertised_from_version_0_for_old_librdkafka_probes_exactly_that() -> None:
    assert (APIS[0].min_version, APIS[0].max_version) == (0, 11)


@pytest.mark.parametrize(
    ("key", "version", "request_header", "response_header"),
    [
        (0, 8, 1, 0),
        (0, 9, 2, 1),
        (18, 2, 1, 0),
        (18, 3, 2, 0),  # ApiVersions answers with header v0 for ever
        (18, 4, 2, 0),
        (7, 0, 0, 0),  # ControlledShutdown v0 has no client id
        (7, 1, 1, 0),
        (7, 3, 2, 1),
        (17, 1, 1, 0),  # never flexible
        (67, 0, 2, 1),
    ],
)
def test_header_versions_follow_flexibility(key, version, request_header, response_header) -> None:
    assert request_header_version(key, version) == request_header
    assert response_header_version(key, version) == response_header


def test_two_39_brokers_speak_the_versions_that_kafka_39_sends() -> None:
    assert dict(inter_broker_versions("3.9-IV0")) == {
        **{4: 7, 5: 4, 6: 8, 7: 3, 1: 17, 2: 9, 23: 4, 27: 1},
        **{24: 5, 56: 3, 67: 0},
    }


@pytest.mark.parametrize(
    ("level", "key", "version"),
    [
        ("3.9", 1, 17),  # a release alone means its newest level
        ("3.8", 1, 16),
        ("3.7-IV3", 1, 15),
        ("3.4.1", 4, 7),
        ("3.2-IV0", 4, 6),
        ("2.8-IV1", 6, 7),
        ("2.8-IV0", 6, 6),
        ("2.7-IV2", 56, 1),
        ("2.0", 5, 0),
    ],
)
def test_an_older_level_means_older_versions(level: str, key: int, version: int) -> None:
    assert inter_broker_versions(level)[key] == version


@pytest.mark.parametrize(
    ("level", "since", "reached"),
    [("2.7-IV2", "2.7-IV2", True), ("2.7-IV1", "2.7-IV2", False), ("2.7", "2.7-IV2", True), ("3.0", "2.8-IV0", True)],
)
def test_a_level_has_what_came_before_it(level: str, since: str, reached: bool) -> None:
    assert metadata_version_is_at_least(level, since) is reached


def test_below_its_first_level_an_api_is_not_used_at_all() -> None:
    assert 56 not in inter_broker_versions("2.7-IV1")
    assert 67 not in inter_broker_versions("2.8")


@pytest.mark.parametrize("level", ["", "3", "three.nine", "3.9-IVx", "0.10.2", "1.1-IV0"])
def test_a_level_that_cannot_be_read_or_is_too_old_is_refused_by_name(level: str) -> None:
    with pytest.raises(ValueError, match=r"inter\.broker\.protocol\.version"):
        inter_broker_versions(level)


def test_no_version_between_brokers_exceeds_what_the_table_serves() -> None:
    for level in ("2.0", "2.4", "2.8", "3.4", "3.9"):
        for key, version in inter_broker_versions(level).items():
            assert APIS[key].min_version <= version <= APIS[key].max_version
