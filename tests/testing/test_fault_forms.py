"""Each API in each version carries the error of a fault in its own form, as an independent codec reads it."""

import pytest

from barnabas.testing.faults.kafka_releases import RELEASES, newest_versions
from barnabas.testing.faults.names import ApiName, ErrorName, Release
from barnabas.testing.faults.rows import LAYOUTS
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, served_apis
from barnabas.wire.errors import ErrorCode
from tests.testing.faulty import stage
from tests.testing.filled import filled_request
from tests.wire.kio_process import answers_of_kio, interpreter

__all__ = ["stage"]

CODES = [
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
]
PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
# Without a place for an error in these versions.
NO_ERROR = {(35, 0), (35, 1), (35, 2)}


def pairs():
    return [(api.key, version) for api in served_apis() for version in range(api.min_version, api.max_version + 1)]


def asked(api_key, version):
    """A request that names something."""
    request = filled_request(api_key, version)
    if api_key == PRODUCE:
        request.acks = -1
    return request


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
async def test_kio_reads_the_error_in_each_api_and_version(stage, code):
    interpreter()  # without it the test is skipped before it does anything
    questions = []
    for api_key, version in pairs():
        fault = stage.faults.fail(api_key, code, times=1, brokers=True)
        response = await stage.client.ask(asked(api_key, version), version)
        assert fault.fired == 1, (APIS[api_key].name, version)
        # A token that was not issued has no times, and kio reads each time as a date.
        for field in response.FIELDS:
            if field.endswith("timestamp_ms"):
                setattr(response, field, 0)
        name = type(response).SCHEMA.name
        questions.append({"message": name, "version": version, "hex": m.encode(response, version).hex()})
    for (api_key, version), answer in zip(pairs(), answers_of_kio(questions), strict=True):
        assert "error" not in answer, (APIS[api_key].name, version, answer)
        errors = set(errors_in(answer["value"]))
        if (api_key, version) not in NO_ERROR:
            assert errors - {0} == {code}, (APIS[api_key].name, version)


def errors_in(value):
    """The error codes in a message in the form of the oracle's answers."""
    for item in value if isinstance(value, list) else ():
        if isinstance(item, list) and len(item) == 2 and str(item[0]).endswith("error_code"):
            yield item[1]
        else:
            yield from errors_in(item)


def test_the_names_that_an_editor_completes_are_those_of_the_tables():
    assert list(ApiName.__args__) == [api.name for api in served_apis()]
    assert list(ErrorName.__args__) == [code.name for code in ErrorCode if code is not ErrorCode.NONE]
    assert Release.__args__ == RELEASES


def test_layouts_are_of_served_apis_and_name_fields_that_exist():
    assert len(LAYOUTS) >= 14
    for api_key, layouts in LAYOUTS.items():
        api = APIS[api_key]
        assert api.served
        for layout in layouts:
            for version in range(layout.first_version, min(layout.last_version, api.max_version) + 1):
                for message, levels in (
                    (m.request_class(api), layout.request),
                    (m.response_class(api), layout.response),
                ):
                    fields = message.SCHEMA.fields
                    for level in levels:
                        (field,) = [each for each in fields if each.name == level.field and each.exists_in(version)]
                        fields = message.SCHEMA.fields_of(field) if field.is_struct else ()
                        for name in (level.key, level.id_key):
                            assert name is None or name in [each.name for each in fields], (api.name, level)


def test_an_older_kafka_has_the_versions_that_a_client_library_knows_of_it():
    known = pytest.importorskip("kafka.protocol.broker_version_data").BROKER_API_VERSIONS
    for release in RELEASES:
        theirs = known[tuple(map(int, release.split(".")))]
        ours = newest_versions(release)
        assert {key: (0, version) for key, version in ours.items()} == {
            key: theirs[key] for key in theirs if key in APIS and APIS[key].served
        }


def test_the_newest_of_these_kafkas_has_the_versions_that_are_served():
    assert newest_versions("3.9") == {api.key: api.max_version for api in served_apis()}
