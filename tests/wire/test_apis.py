"""The table of APIs: header versions, what is advertised, versions between brokers, agreement with the schemas."""

from importlib import import_module
from pathlib import Path

import pytest

from barnabas.wire import messages as m
from barnabas.wire.apis import (
    APIS,
    inter_broker_versions,
    metadata_version_is_at_least,
    request_class,
    request_header_version,
    response_class,
    response_header_version,
    served_apis,
)

# What a running Apache Kafka 3.9.1 in ZooKeeper mode answers to ApiVersions: key -> lowest and highest version.
KAFKA_LISTS = {
    **{0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 4: (0, 7), 5: (0, 4), 6: (0, 8), 7: (0, 3), 8: (0, 9), 9: (0, 9)},
    **{10: (0, 6), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 15: (0, 5), 16: (0, 5), 17: (0, 1), 18: (0, 4)},
    **{19: (0, 7), 20: (0, 6), 21: (0, 2), 22: (0, 5), 23: (0, 4), 24: (0, 5), 25: (0, 4), 26: (0, 4), 27: (0, 1)},
    **{28: (0, 4), 29: (0, 3), 30: (0, 3), 31: (0, 3), 32: (0, 4), 33: (0, 2), 34: (0, 2), 35: (0, 4), 36: (0, 2)},
    **{37: (0, 3), 38: (0, 3), 39: (0, 2), 40: (0, 2), 41: (0, 3), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 0)},
    **{46: (0, 0), 47: (0, 0), 48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 56: (0, 3), 57: (0, 1), 58: (0, 0)},
    **{60: (0, 1), 61: (0, 0), 65: (0, 0), 66: (0, 1), 67: (0, 0), 68: (0, 0), 69: (0, 0)},
}
NEVER_LISTED = {58, 68, 69}  # Kafka lists them and does not serve them (reference wire.md, section 1)
TRANSACTIONS = {24, 25, 26, 27, 28}
SERVED = [api for api in APIS.values() if api.served]


def test_the_table_is_keyed_by_its_own_keys_in_ascending_order() -> None:
    assert [api.key for api in APIS.values()] == list(APIS)
    assert list(APIS) == sorted(APIS)


def test_the_table_has_the_apis_of_a_zookeeper_mode_broker_and_no_kraft_ones() -> None:
    assert set(range(52)) | {56, 57, 58, 60, 61, 65, 66, 67, 68, 69} == set(APIS)


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_a_served_api_has_schemas_of_the_same_key_versions_and_flexibility(api) -> None:
    for message in (request_class(api), response_class(api)):
        assert api.key == message.API_KEY
        assert (api.min_version, api.max_version) == (message.MIN_VERSION, message.MAX_VERSION)
        assert api.flexible_from == message.FLEXIBLE_FROM


def test_every_file_of_schemas_is_read():
    files = {path.stem for path in Path(m.__file__).with_name("schemas").glob("*.py")} - {"__init__"}
    assert files == set(m.FAMILIES), "the family of an API is the file of its schema: add the API's row to wire/apis.py"


def test_every_schema_with_a_key_belongs_to_an_api_of_its_name_and_family() -> None:
    keyed = [schema for schema in m.schemas().values() if schema.key is not None]
    for schema in keyed:
        api = APIS[schema.key]
        assert schema.name in (api.name + "Request", api.name + "Response")
        assert schema in import_module(f"barnabas.wire.schemas.{api.family}").SCHEMAS


def test_request_and_response_classes_are_those_of_the_messages_module() -> None:
    assert request_class(APIS[1]) is m.FetchRequest
    assert response_class(APIS[1]) is m.FetchResponse


def test_the_table_is_that_of_a_running_kafka() -> None:
    assert {key: (api.min_version, api.max_version) for key, api in APIS.items()} == KAFKA_LISTS


def test_what_kafka_lists_is_advertised_but_for_what_is_left_out_on_purpose() -> None:
    advertised = {api.key: (api.min_version, api.max_version) for api in served_apis()}
    left_out = NEVER_LISTED | TRANSACTIONS
    assert advertised == {key: versions for key, versions in KAFKA_LISTS.items() if key not in left_out}
    assert [api.key for api in SERVED] == list(advertised), "and exactly what is served"


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
