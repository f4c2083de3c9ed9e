"""Clients above their quotas: what the response says, and that the connection waits. Time is virtual."""

import json
import math

import pytest
import trio

from barnabas.controller.admin.entity_configs import change_entity
from barnabas.controller.store.store import Delete, SetData
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.net import ConnectionLost
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request, new_topics, produce_request

KB_100, KB_90 = b"x" * 100_000, b"x" * 90_000
USER, CLIENT = [("user", "ANONYMOUS")], [("client-id", "test")]


async def set_quota(client, named, name, rate):
    data = m.AlterClientQuotasRequest
    entity = [data.EntityData(entity_type=kind, entity_name=each) for kind, each in named]
    op = data.OpData(key=name, value=rate or 0.0, remove=rate is None)
    (row,) = (await client.ask(data(entries=[data.EntryData(entity=entity, ops=[op])]))).entries
    assert row.error_code == 0
    await trio.sleep(1)


async def started(nursery, *quotas):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    for quota in quotas:
        await set_quota(client, *quota)
    return machine, client


async def timed(client, request, version=None):
    """The answer, and how long a further request of the same connection takes."""
    answer = await client.ask(request, version)
    began = trio.current_time()
    await client.ask(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    return answer, trio.current_time() - began


# 300 kB at 10,000 bytes a second: above the ten seconds that a fresh client has.
@pytest.mark.parametrize("named", [USER, CLIENT, USER + CLIENT, [("user", None)], [("client-id", None)]])
async def test_a_producer_is_throttled_after_its_response(nursery, autojump_clock, named):
    _, client = await started(nursery, (named, "producer_byte_rate", 10_000.0))
    answer, waited = await timed(client, produce_request("t", KB_100 * 3))
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 19_900 < answer.throttle_time_ms < 20_200
    assert waited == pytest.approx(answer.throttle_time_ms / 1000, abs=0.2)


async def test_a_producer_within_its_quota_is_not_throttled(nursery, autojump_clock):
    _, client = await started(nursery, (USER, "producer_byte_rate", 10_000.0))
    answer, waited = await timed(client, produce_request("t", b"x" * 90_000))
    assert (answer.throttle_time_ms, round(waited)) == (0, 0)


async def test_a_producer_without_acknowledgements_is_throttled_too(nursery, autojump_clock):
    _, client = await started(nursery, (USER, "producer_byte_rate", 10_000.0))
    await client.send(produce_request("t", KB_100 * 3, acks=0))
    began = trio.current_time()
    # The connection answers nothing to acks=0, so the next answer is that of ApiVersions.
    await client.ask(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    assert trio.current_time() - began == pytest.approx(20, abs=0.5)


async def test_a_consumer_above_its_quota_gets_nothing_until_later(nursery, autojump_clock):
    _, client = await started(nursery)
    for _ in range(4):
        await client.produce("t", KB_90)
    await set_quota(client, CLIENT, "consumer_byte_rate", 10_000.0)
    first, _ = await timed(client, fetch_request([("t", 0, 0)], partition_max_bytes=95_000), 12)
    assert first.throttle_time_ms == 0
    assert first.responses[0].partitions[0].records
    # The window is full now.
    second, waited = await timed(client, fetch_request([("t", 0, 1)], partition_max_bytes=95_000), 12)
    assert second.throttle_time_ms > 5000
    assert second.responses == []
    assert waited == pytest.approx(second.throttle_time_ms / 1000, abs=0.2)
    # Kafka, too, throttles again until the first response leaves the window.
    third, _ = await timed(client, fetch_request([("t", 0, 1)], partition_max_bytes=95_000), 12)
    assert third.responses == []
    fourth, _ = await timed(client, fetch_request([("t", 0, 1)], partition_max_bytes=95_000), 12)
    assert fourth.responses[0].partitions[0].records


async def test_a_session_keeps_what_was_not_sent(nursery, autojump_clock):
    _, client = await started(nursery)
    for _ in range(4):
        await client.produce("t", KB_90)
    await set_quota(client, CLIENT, "consumer_byte_rate", 10_000.0)
    opened = await client.ask(fetch_request([("t", 0, 0)], partition_max_bytes=95_000, session=(0, 0)), 12)
    assert opened.session_id
    assert opened.responses
    number = opened.session_id
    throttled = await client.ask(fetch_request([("t", 0, 1)], partition_max_bytes=95_000, session=(number, 1)), 12)
    assert (throttled.session_id, throttled.responses) == (number, [])
    assert throttled.throttle_time_ms > 0
    await trio.sleep(20)
    answer = await client.ask(fetch_request([], session=(number, 2)), 12)
    assert answer.responses[0].partitions[0].records


@pytest.mark.parametrize("named", [USER, CLIENT, USER + CLIENT, [("user", None)], [("client-id", None)]])
async def test_a_client_that_takes_too_much_processor_time_is_throttled_for_a_second(nursery, autojump_clock, named):
    # Any request takes more: it is throttled for one sample of the window, and no longer.
    _, client = await started(nursery, (named, "request_percentage", 0.000_001))
    answer, waited = await timed(client, m.ListGroupsRequest())
    assert answer.throttle_time_ms == 1000
    assert waited == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("version", [2, 3, 9, 12])
async def test_a_cached_response_says_the_throttle_time_as_well(nursery, autojump_clock, version):
    machine, client = await started(nursery, (CLIENT, "request_percentage", 0.000_001))
    answer, waited = await timed(client, m.MetadataRequest(topics=None), version)
    assert answer.throttle_time_ms == (1000 if version >= 3 else 0)
    assert [topic.name for topic in answer.topics] == ["t"]
    assert waited == pytest.approx(1, abs=0.2)
    other = await machine.connect()
    other.in_flight.client_id = "other"
    assert (await other.ask(m.MetadataRequest(topics=None), version)).throttle_time_ms == 0


async def test_records_are_throttled_for_processor_time_too(nursery, autojump_clock):
    _, client = await started(nursery, (CLIENT, "request_percentage", 0.000_001))
    produced, waited = await timed(client, produce_request("t", b"x"))
    assert (produced.throttle_time_ms, produced.responses[0].partition_responses[0].error_code) == (1000, 0)
    assert waited == pytest.approx(1, abs=0.2)
    fetched, waited = await timed(client, fetch_request([("t", 0, 0)]), 12)
    assert (fetched.throttle_time_ms, fetched.responses) == (1000, [])
    assert waited == pytest.approx(1, abs=0.2)


async def test_a_client_with_processor_time_left_is_not_throttled(nursery, autojump_clock):
    _, client = await started(nursery, (CLIENT, "request_percentage", 1000.0))
    answer, waited = await timed(client, m.ListGroupsRequest())
    assert (answer.throttle_time_ms, round(waited)) == (0, 0)


async def test_followers_and_markers_are_exempt_from_quotas_of_processor_time(nursery, autojump_clock):
    _, client = await started(nursery, (USER, "request_percentage", 0.000_001))
    began = trio.current_time()
    answer = await client.ask(fetch_request([("t", 0, 0)], replica_id=2, max_wait_ms=0), 12)
    assert answer.throttle_time_ms == 0
    await client.ask(m.WriteTxnMarkersRequest(markers=[]))
    await client.ask(m.WriteTxnMarkersRequest(markers=[]))
    assert trio.current_time() - began < 0.5


async def test_a_client_that_is_no_broker_is_not_exempt(nursery, autojump_clock):
    machine = await Machine(nursery, authorizer_class_name="kafka.security.authorizer.AclAuthorizer").start()
    await change_entity(machine.session(), "clients/test", lambda _: {"request_percentage": "0.000001"})
    client = await machine.connect()
    await trio.sleep(1)
    answer, waited = await timed(client, m.ControlledShutdownRequest(broker_id=7))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert waited == pytest.approx(1, abs=0.2)


# Kafka takes any double for these two.
@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf, 5e-324])
async def test_an_odd_quota_of_processor_time_shuts_no_client_out(nursery, autojump_clock, rate):
    _, client = await started(nursery, ([("user", None)], "request_percentage", rate))
    assert (await client.ask(m.ListGroupsRequest())).error_code == 0
    await set_quota(client, [("user", None)], "request_percentage", None)
    answer, waited = await timed(client, m.ListGroupsRequest())
    assert (answer.throttle_time_ms, round(waited)) == (0, 0)


@pytest.mark.parametrize("rate", [math.nan, math.inf])
async def test_a_quota_of_mutations_that_is_not_finite_refuses_nothing(nursery, autojump_clock, rate):
    _, client = await started(nursery, (USER, "controller_mutation_rate", rate))
    for name in "abcd":
        row, throttled_ms = await create(client, name)
        assert (row.error_code, throttled_ms) == (0, 0)


async def test_others_are_not_delayed(nursery, autojump_clock):
    machine, client = await started(nursery, (CLIENT, "producer_byte_rate", 10_000.0))
    other = await machine.connect()
    other.in_flight.client_id = "other"
    await client.send(produce_request("t", KB_100 * 3))
    assert (await other.ask(produce_request("t", KB_100 * 3))).throttle_time_ms == 0
    assert (await client.receive()).throttle_time_ms > 0


async def test_a_quota_that_is_removed_binds_no_longer(nursery, autojump_clock):
    machine, client = await started(nursery, (CLIENT, "producer_byte_rate", 10_000.0))
    assert machine.broker.quotas.is_active
    await set_quota(client, CLIENT, "producer_byte_rate", None)
    assert (await client.ask(produce_request("t", KB_100 * 3))).throttle_time_ms == 0
    assert not machine.broker.quotas.is_active


async def test_quotas_are_known_after_a_restart(nursery, autojump_clock):
    machine, _ = await started(nursery, (USER + CLIENT, "producer_byte_rate", 10_000.0))
    await machine.stop()
    await trio.sleep(16 * 60)  # the notifications expire
    await machine.start()
    client = await machine.connect()
    assert (await client.ask(produce_request("t", KB_100 * 3))).throttle_time_ms > 0


async def test_a_malformed_quota_is_ignored_alone(nursery, autojump_clock):
    machine, client = await started(nursery)
    texts = {"producer_byte_rate": "10000", "consumer_byte_rate": "much", "SCRAM-SHA-256": "salt=", "other": "x"}
    await change_entity(machine.session(), "users/ANONYMOUS", lambda _: texts)
    await trio.sleep(1)
    assert (await client.ask(produce_request("t", KB_100 * 3))).throttle_time_ms > 0


async def test_a_throttled_connection_does_not_delay_the_stop(nursery, autojump_clock):
    machine, client = await started(nursery, (CLIENT, "producer_byte_rate", 1.0))
    assert (await client.ask(produce_request("t", KB_100))).throttle_time_ms > 60_000
    began = trio.current_time()
    await machine.stop()
    assert trio.current_time() - began < 5


# -- connection_creation_rate


async def accepted(machine, address):
    """Whether a new connection of this address is served."""
    client = await machine.connect(address=address)
    try:
        await client.ask(m.ApiVersionsRequest(client_software_name="a", client_software_version="1"))
    except ConnectionLost:
        return False
    finally:
        client.close()
    return True


@pytest.mark.parametrize("named", ["10.0.0.9", None])
async def test_an_address_that_connects_too_often_is_closed_after_a_while(nursery, autojump_clock, named):
    machine, client = await started(nursery, ([("ip", named)], "connection_creation_rate", 1.0))
    assert [await accepted(machine, "10.0.0.9") for _ in range(10)] == [True] * 10
    began = trio.current_time()
    assert not await accepted(machine, "10.0.0.9")
    assert 0.5 < trio.current_time() - began <= 1.1
    assert await accepted(machine, "10.0.0.8")
    await trio.sleep(12)
    assert await accepted(machine, "10.0.0.9")
    await set_quota(client, [("ip", named)], "connection_creation_rate", None)
    assert all([await accepted(machine, "10.0.0.9") for _ in range(30)])


# -- controller_mutation_rate: 11 partitions at once, then one each second


async def create(client, name, version=None, **fields):
    answer = await client.ask(new_topics(name, 4, **fields), version)
    return answer.topics[0], answer.throttle_time_ms


async def test_topics_are_refused_while_tokens_are_missing(nursery, autojump_clock):
    _, client = await started(nursery, (USER, "controller_mutation_rate", 1.0))
    for name in "abc":
        row, throttled_ms = await create(client, name)
        assert (row.error_code, throttled_ms) == (0, 0)
    row, throttled_ms = await create(client, "d")
    assert (row.error_code, row.error_message) == (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None)
    assert 0 < throttled_ms <= 1000
    assert (await create(client, "d"))[0].error_code == 0


async def test_older_versions_are_only_throttled(nursery, autojump_clock):
    _, client = await started(nursery, (USER, "controller_mutation_rate", 1.0))
    for name in "abc":
        await create(client, name, 5)
    row, throttled_ms = await create(client, "d", 5)
    assert row.error_code == 0
    assert throttled_ms > 3900


async def test_what_is_not_created_costs_nothing(nursery, autojump_clock):
    _, client = await started(nursery, (USER, "controller_mutation_rate", 1.0))
    for _ in range(10):
        assert (await create(client, "t"))[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    for name in "abc":
        assert (await create(client, name))[0].error_code == 0


async def test_a_topic_created_on_first_use_takes_tokens_and_is_not_refused(nursery, autojump_clock):
    _, client = await started(nursery, (USER, "controller_mutation_rate", 1.0))
    for number in range(20):  # eleven tokens are there
        (row,) = (await client.ask(m.MetadataRequest(topics=[named(f"first-{number}")]))).topics
        assert row.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (await create(client, "asked-for"))[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def test_an_internal_topic_created_on_first_use_takes_as_many_tokens_as_partitions(nursery, autojump_clock):
    machine = await Machine(nursery, offsets_topic_num_partitions="50").start()
    client = await machine.connect()
    await set_quota(client, USER, "controller_mutation_rate", 1.0)
    await client.ask(m.MetadataRequest(topics=[named("__consumer_offsets")]))
    assert (await create(client, "d"))[1] > 30_000  # eleven tokens, and 50 partitions


def named(name):
    return m.MetadataRequest.MetadataRequestTopic(name=name)


async def test_deletion_and_growth_take_tokens_as_well(nursery, autojump_clock):
    _, client = await started(nursery)
    for name in "ab":
        await client.create_topic(name, 12)
    await set_quota(client, USER, "controller_mutation_rate", 1.0)
    state = m.DeleteTopicsRequest.DeleteTopicState
    asked = m.DeleteTopicsRequest(topics=[state(name="a"), state(name="b")], timeout_ms=10_000)
    answer = await client.ask(asked)
    assert [row.error_code for row in answer.responses] == [0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < answer.throttle_time_ms <= 1000
    more = m.CreatePartitionsRequest.CreatePartitionsTopic(name="b", count=32, assignments=None)
    request = m.CreatePartitionsRequest(topics=[more], timeout_ms=10_000)
    assert (await client.ask(request)).results[0].error_code == 0
    more.count = 33
    grown = await client.ask(request)
    assert (grown.results[0].error_code, grown.results[0].error_message) == (89, None)
    assert grown.throttle_time_ms > 10_000


async def test_topics_that_a_coordinator_needs_take_tokens(nursery, autojump_clock):
    machine = await Machine(nursery, offsets_topic_num_partitions="50").start()
    client = await machine.connect()
    await set_quota(client, USER, "controller_mutation_rate", 1.0)
    await client.ask(m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    row, throttled_ms = await create(client, "d")
    assert row.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert throttled_ms > 30_000  # eleven tokens, and 50 partitions


async def test_the_time_of_a_client_that_only_says_that_it_is_a_follower_counts(nursery, autojump_clock):
    machine = await Machine(nursery, authorizer_class_name="kafka.security.authorizer.AclAuthorizer").start()
    await change_entity(machine.session(), "clients/test", lambda _: {"request_percentage": "0.000001"})
    client = await machine.connect()
    await trio.sleep(1)
    answer, waited = await timed(client, fetch_request([("t", 0, 0)], replica_id=7, max_wait_ms=0), 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert waited == pytest.approx(1, abs=0.2)


async def test_the_time_of_a_fetch_in_a_session_that_does_not_exist_counts(nursery, autojump_clock):
    _, client = await started(nursery, (CLIENT, "request_percentage", 0.000_001))
    answer, waited = await timed(client, fetch_request([("t", 0, 0)], session=(4711, 1), max_wait_ms=0), 12)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert waited == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize("named", [USER, CLIENT, USER + CLIENT])
async def test_a_quota_that_was_removed_while_the_broker_had_no_session_does_not_stay(nursery, autojump_clock, named):
    """Others remove the notifications of changes after 15 minutes."""
    machine, client = await started(nursery, (named, "producer_byte_rate", 10_000.0))
    folders = {"user": "users", "client-id": "clients"}
    path = "/".join(f"{folders[kind]}/{name}" for kind, name in named)
    await machine.broker.store.batch([Delete(f"/config/{path}")])
    await machine.broker.store.expire()
    await trio.sleep(30)
    answer = await client.ask(produce_request("t", KB_100 * 3))
    assert (answer.responses[0].partition_responses[0].error_code, answer.throttle_time_ms) == (0, 0)


async def test_a_change_of_a_topic_while_the_broker_had_no_session_is_noticed(nursery, autojump_clock):
    machine, _ = await started(nursery)
    store = machine.broker.store
    path = "/config/topics/t"
    data = json.dumps({"version": 1, "config": {"max.message.bytes": "100"}}).encode()
    await store.batch([SetData(path, data)])
    await store.expire()
    await trio.sleep(30)
    assert (await (await machine.connect()).produce("t", KB_100)).error_code == ErrorCode.MESSAGE_TOO_LARGE
