"""DescribeCluster and UpdateFeatures; the answers are those of a running Kafka 3.9.1."""

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine

Update = m.UpdateFeaturesRequest.FeatureUpdateKey

NOT_SUPPORTED = "Could not apply finalized feature update because the provided feature is not supported."
NOT_THERE = "Can not delete non-existing finalized feature."


@pytest.fixture
async def machine(nursery):
    two_listeners = {
        "listeners": "PLAINTEXT://127.0.0.1:9092,IN://127.0.0.1:9093",
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,IN:PLAINTEXT",
    }
    return await Machine(nursery, broker_rack="r1", **two_listeners).start()


async def described(machine, version=1, listener="PLAINTEXT", **fields):
    client = await machine.connect(listener)
    return await client.ask(m.DescribeClusterRequest(**fields), version)


@pytest.mark.parametrize("version", [0, 1])
async def test_the_cluster_is_described(autojump_clock, machine, version):
    answer = await described(machine, version)
    (broker,) = answer.brokers
    assert (answer.error_code, answer.error_message, answer.controller_id) == (0, None, machine.serving.broker_id)
    assert (broker.broker_id, broker.host, broker.port, broker.rack) == (answer.controller_id, "127.0.0.1", 9092, "r1")
    assert len(answer.cluster_id) == 22
    assert answer.cluster_authorized_operations == -(1 << 31)


async def test_addresses_are_those_of_the_asked_listener(autojump_clock, machine):
    (broker,) = (await described(machine, listener="IN")).brokers
    assert broker.port == 9093


@pytest.mark.parametrize("version", [0, 1])
async def test_what_the_caller_may_do_with_the_cluster_is_reported_if_asked(autojump_clock, machine, version):
    answer = await described(machine, version, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint_type", "code", "message"),
    [
        (2, 114, "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"),
        (3, 115, "Unsupported endpoint type 3"),
        (0, 115, "Unsupported endpoint type 0"),
    ],
)
async def test_other_endpoints_than_brokers_are_not_described(autojump_clock, machine, endpoint_type, code, message):
    answer = await described(machine, endpoint_type=endpoint_type)
    assert (answer.error_code, answer.error_message, answer.brokers, answer.cluster_id) == (code, message, [], "")


async def features(machine, *updates, version=1, **fields):
    client = await machine.connect()
    answer = await client.ask(m.UpdateFeaturesRequest(feature_updates=list(updates), **fields), version)
    assert (answer.error_code, answer.error_message) == (0, None)
    return [(row.feature, row.error_code, row.error_message) for row in answer.results]


REFUSED = [
    (1, {"max_version_level": 1}, NOT_SUPPORTED),
    (1, {"max_version_level": 5, "upgrade_type": 2}, NOT_SUPPORTED),
    (1, {"upgrade_type": 2}, NOT_THERE),
    (1, {"upgrade_type": 3}, NOT_THERE),
    (1, {"upgrade_type": 0}, "Received unknown upgrade type."),
    (1, {"upgrade_type": 9}, "Received unknown upgrade type."),
    (1, {"feature": "", "max_version_level": 1}, "Feature name can not be empty."),
    (0, {"max_version_level": 1}, NOT_SUPPORTED),
    (0, {"allow_downgrade": True}, NOT_THERE),
    (0, {"max_version_level": -1}, "Can not provide versionLevel: -1 less than 1 without setting the SAFE downgradeType"
                                   " in the request."),
]  # fmt: skip


@pytest.mark.parametrize(("version", "update", "message"), REFUSED)
async def test_no_feature_can_be_changed(autojump_clock, machine, version, update, message):
    asked = Update(**{"feature": "x", **update})
    assert await features(machine, asked, version=version) == [(asked.feature, ErrorCode.INVALID_REQUEST, message)]


async def test_of_a_feature_that_is_named_twice_the_first_counts(autojump_clock, machine):
    x, y, again = (Update(feature=name, max_version_level=level) for name, level in [("x", 5), ("y", 1), ("x", 0)])
    assert await features(machine, x, y, again) == [("x", 42, NOT_SUPPORTED), ("y", 42, NOT_SUPPORTED)]


async def test_nothing_to_change_is_no_error(autojump_clock, machine):
    assert await features(machine, validate_only=True) == []
