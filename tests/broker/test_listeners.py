"""Brokers with several listeners: the addresses in responses, and the listener between brokers.

The error codes are those of a running Apache Kafka 3.9.1, two brokers of which one lacks a listener.
"""

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.clusters import cluster, create_topic, leader_of
from tests.broker.harness import Machine
from tests.broker.requests import fetch_request

MAP = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT", "inter_broker_listener_name": "A"}
A1, B1, A2, C1, C2 = 9101, 9201, 9102, 9301, 9302


def a_and_b(broker_id):
    """Listener A on both brokers, B on the first only."""
    only_first = f",B://127.0.0.1:{B1}" if broker_id == 1 else ""
    return {"listeners": f"A://127.0.0.1:{A1 if broker_id == 1 else A2}{only_first}"}


def metadata_of(topic):
    return m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name=topic)])


def addresses(brokers):
    return {broker.node_id: broker.port for broker in brokers}


async def test_a_client_gets_the_addresses_of_its_own_listener(autojump_clock, nursery):
    async with cluster(nursery, 2, of_each=a_and_b, **MAP) as (one, _):
        seen = {}
        for listener in "AB":
            client = await one.connect(listener)
            seen[listener] = addresses((await client.ask(metadata_of("t"))).brokers)
            described = (await client.ask(m.DescribeClusterRequest())).brokers
            assert {each.broker_id: each.port for each in described} == seen[listener]
        assert seen == {"A": {1: A1, 2: A2}, "B": {1: B1}}


@pytest.mark.parametrize(
    ("version", "error", "replicas"),
    [
        (0, ErrorCode.LEADER_NOT_AVAILABLE, []),
        (1, ErrorCode.LEADER_NOT_AVAILABLE, [2]),
        (5, ErrorCode.LEADER_NOT_AVAILABLE, [2]),
        (6, ErrorCode.LISTENER_NOT_FOUND, [2]),
        (12, ErrorCode.LISTENER_NOT_FOUND, [2]),
    ],
)
async def test_a_leader_without_the_clients_listener_is_none(autojump_clock, nursery, version, error, replicas):
    async with cluster(nursery, 2, of_each=a_and_b, **MAP) as machines:
        client = await machines[0].connect("B")
        await create_topic(client, "t", [1], [2])
        await leader_of(machines, "t", 1)
        mine, other = (await client.ask(metadata_of("t"), version)).topics[0].partitions
        assert (mine.error_code, mine.leader_id, list(mine.replica_nodes)) == (0, 1, [1])
        assert (other.error_code, other.leader_id, list(other.replica_nodes)) == (error, -1, replicas)
        assert list(other.isr_nodes) == replicas


async def test_the_first_version_of_metadata_leaves_out_replicas_that_cannot_be_reached(autojump_clock, nursery):
    async with cluster(nursery, 2, of_each=a_and_b, **MAP) as machines:
        client = await machines[0].connect("B")
        await create_topic(client, "t", [1, 2])
        await leader_of(machines, "t")
        (row,) = (await client.ask(metadata_of("t"), 0)).topics[0].partitions
        assert (row.error_code, row.leader_id, list(row.replica_nodes)) == (ErrorCode.REPLICA_NOT_AVAILABLE, 1, [1])


async def test_a_coordinator_without_the_clients_listener_is_not_available(autojump_clock, nursery):
    async with cluster(nursery, 2, of_each=a_and_b, offsets_topic_num_partitions="8", **MAP) as (one, _):
        codes = {}
        for listener in "AB":
            client = await one.connect(listener)
            for group in "abcdefgh":
                (row,) = (await client.ask(m.FindCoordinatorRequest(coordinator_keys=[group]))).coordinators
                codes[listener, group] = row.error_code, row.node_id, row.port
        for group in "abcdefgh":
            error, leader, _ = codes["A", group]
            assert error == 0
            unreachable = ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1
            assert codes["B", group] == ((0, 1, B1) if leader == 1 else unreachable)
        assert len({leader for _, leader, _ in codes.values()}) == 3  # both, and none


async def test_a_fetch_names_the_leader_with_its_address_where_there_is_one(autojump_clock, nursery):
    async with cluster(nursery, 2, of_each=a_and_b, **MAP) as machines:
        client = await machines[0].connect("B")
        topic_id = await create_topic(client, "t", [2])
        await leader_of(machines, "t")
        nodes = {}
        for listener in "AB":
            answer = await (await machines[0].connect(listener)).ask(fetch_request([(topic_id, 0, 0)]))
            (row,) = answer.responses[0].partitions
            assert (row.error_code, row.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
            nodes[listener] = addresses(answer.node_endpoints)
        assert nodes == {"A": {2: A2}, "B": {}}


# -- among brokers


@pytest.mark.parametrize(
    ("properties", "used", "unused"), [({}, "A", "C"), ({"control_plane_listener_name": "C"}, "C", "A")]
)
async def test_the_controller_asks_brokers_at_the_listener_for_it(autojump_clock, nursery, properties, used, unused):
    def a_and_c(broker_id):
        return {"listeners": f"A://127.0.0.1:{A1 + broker_id - 1},C://127.0.0.1:{C1 + broker_id - 1}"}

    async with cluster(nursery, 2, of_each=a_and_c, **MAP, **properties) as (_, two):
        client = await two.connect("A")
        before = list(two.net.connected)
        await client.ask(m.InitProducerIdRequest(transactional_id=None))
        assert {"A": A1, "C": C1}[used] in two.net.connected
        assert {"A": A2, "C": C2}[used] in before
        assert {"A": A1, "C": C1}[unused] not in two.net.connected
        assert before.count({"A": A2, "C": C2}[unused]) == (1 if unused == "A" else 0)  # this test's own


async def test_a_port_or_host_that_is_not_advertised_is_what_was_bound(autojump_clock, nursery):
    machine = await Machine(
        nursery,
        listeners="A://127.0.0.1:0,B://127.0.0.1:0",
        advertised_listeners="A://a.example:0,B://b.example:7",
        **MAP,
    ).start()
    a, b = machine.serving.advertised
    assert (a.host, b.host, b.port) == ("a.example", "b.example", 7)
    assert a.port in machine.net.listeners


async def test_two_brokers_cannot_advertise_one_address(autojump_clock, nursery):
    async with cluster(nursery, 2, of_each=a_and_b, **MAP) as (one, _):
        third = Machine(
            nursery,
            net=one.net,
            database=one._database,
            broker_id="3",
            listeners="A://127.0.0.1:9999",
            advertised_listeners=f"A://127.0.0.1:{A2}",
            **MAP,
        )
        with pytest.raises(Exception, match="broker 2 is registered at"):
            await third.start()


@pytest.mark.parametrize("wildcard", ["", "0.0.0.0", "[::]"])
async def test_a_wildcard_listens_at_every_address(autojump_clock, nursery, wildcard):
    addresses = {"listeners": f"PLAINTEXT://{wildcard}:9092", "advertised_listeners": "PLAINTEXT://localhost:9092"}
    machine = await Machine(nursery, **addresses).start()
    assert machine.net.listeners[9092].host == ""
