"""What a broker counts: requests, bytes, errors, throttles, connections, changes of the ISR."""

import pytest

from barnabas.broker.tally import SOFTWARE_MAX, Tally
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import build_batch
from barnabas.world.tally import quantile
from tests.broker.clusters import cluster, create_topic, leader_of, until
from tests.broker.harness import Machine, with_topic
from tests.broker.requests import fetch_request

PRODUCE, FETCH = 0, 1
MICROSECONDS = 1_000_000


async def test_a_produce_is_counted_for_its_topic_and_its_api(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    batch = build_batch([(None, b"one"), (None, b"two")], timestamp_ms=1)
    await client.produce("t", bytearray(batch.data))
    topic = machine.broker.replicas.tallies["t"]
    assert (topic.messages_in, topic.bytes_in) == (2, len(batch.data))
    assert (topic.produce_requests, topic.failed_produce_requests) == (1, 0)
    produced = machine.broker.tally.apis[PRODUCE]
    assert produced.count == 1
    assert produced.errors == {ErrorCode.NONE: 1}
    assert produced.sizes.total > len(batch.data)


async def test_a_refused_batch_is_a_failed_one_only_if_kafka_calls_it_so(nursery, autojump_clock):
    machine, client = await with_topic(nursery, **{"max.message.bytes": "200"})
    topic = machine.broker.replicas.tallies["t"]
    large = build_batch([(None, bytes(300))], timestamp_ms=1)
    assert (await client.produce("t", bytearray(large.data))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert (topic.produce_requests, topic.failed_produce_requests) == (1, 0)
    assert topic.bytes_rejected == len(large.data)

    wrong = build_batch([(None, b"v")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=5)
    await client.produce("t", bytearray(wrong.data))
    early = build_batch([(None, b"v")], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=9)
    assert (await client.produce("t", bytearray(early.data))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (topic.produce_requests, topic.failed_produce_requests) == (3, 1)

    damaged = bytearray(build_batch([(None, b"v")], timestamp_ms=1).data)
    damaged[-1] ^= 1
    assert (await client.produce("t", damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (topic.produce_requests, topic.failed_produce_requests, topic.invalid_crc_records) == (4, 1, 1)
    errors = machine.broker.tally.apis[PRODUCE].errors
    assert errors[ErrorCode.MESSAGE_TOO_LARGE] == errors[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER] == 1


async def test_records_without_a_key_for_a_compacted_topic_are_counted(nursery, autojump_clock):
    machine, client = await with_topic(nursery, **{"cleanup.policy": "compact"})
    batch = build_batch([(None, b"a"), (b"key", b"b"), (None, b"c")], timestamp_ms=1)
    assert (await client.produce("t", bytearray(batch.data))).error_code == ErrorCode.INVALID_RECORD
    assert machine.broker.replicas.tallies["t"].no_key_records == 2


async def test_the_wait_of_a_long_poll_is_remote_time(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.ask(fetch_request([("t", 0, 0)], min_bytes=1, max_wait_ms=3_000), 12)
    tally = machine.broker.tally.apis[FETCH]
    assert (tally.count, tally.direct.count, tally.waiting.remote.count) == (1, 0, 1)
    assert tally.waiting.remote.total == pytest.approx(3.0, abs=0.01)
    assert quantile(tally.waiting.remote.counts, 0.5) == pytest.approx(3 * MICROSECONDS, rel=0.25)
    assert tally.waiting.local.total == 0, "in virtual time work takes none"

    await client.ask(fetch_request([("t", 0, 0)], min_bytes=1, max_wait_ms=0), 12)
    assert (tally.count, tally.direct.count, tally.waiting.remote.count) == (2, 1, 1)


async def test_what_consumers_and_followers_fetch_is_counted_apart(nursery, autojump_clock):
    async with cluster(nursery, 2) as machines:
        await create_topic(await machines[0].connect(), "t", [1, 2])
        one = await leader_of(machines, "t", 0)
        two = next(machine for machine in machines if machine is not one)
        client = await one.connect()
        batch = bytearray(build_batch([(None, b"v")] * 5, timestamp_ms=1).data)
        assert (await client.produce("t", batch)).error_code == 0
        await client.fetch("t")
        leader, follower = (machine.broker.replicas.tallies["t"] for machine in (one, two))
        assert (leader.bytes_in, leader.bytes_out, leader.replication_bytes_out) == (len(batch),) * 3
        assert (follower.bytes_in, follower.bytes_out, follower.replication_bytes_in) == (0, 0, len(batch))
        assert one.broker.tally.apis[FETCH].count == 1
        assert one.broker.tally.follower_fetches.count > 0
        acknowledged = one.broker.tally.apis[PRODUCE]
        assert acknowledged.count == 1, "one that waits for the follower is counted once"


async def test_changes_of_the_isr_are_counted_and_a_leader_that_dies_is_replaced(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        await create_topic(await machines[0].connect(), "t", [3, 2])
        await leader_of(machines, "t", 0)
        await machines[1].crash()
        partition = machines[2].broker.replicas.get("t", 0)
        await until(lambda: partition.in_sync_replicas == [3])
        await machines[1].start()
        await until(lambda: sorted(partition.in_sync_replicas) == [2, 3])
        assert partition.tally.isr_expands == 1

        controller = next(machine for machine in machines if machine.broker.candidate.is_active)
        before = controller.broker.candidate.tally.leader_elections
        await machines[2].crash()
        await until(lambda: controller.broker.metadata.leader_of("t", 0) == 2)
        assert controller.broker.candidate.tally.leader_elections > before
        assert controller.broker.candidate.tally.unclean_elections == 0
        assert controller.broker.tally.broker_changes.count > 0


async def test_an_unclean_election_is_counted(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        await create_topic(await machines[0].connect(), "t", [3, 2], **{"unclean.leader.election.enable": "true"})
        await leader_of(machines, "t", 0)
        one, two, three = machines
        await two.crash()
        await until(lambda: three.broker.replicas.get("t", 0).in_sync_replicas == [3])
        await three.crash()
        await until(lambda: one.broker.metadata.leader_of("t", 0) is None)
        await two.start()
        await until(lambda: one.broker.metadata.leader_of("t", 0) == 2)
        assert one.broker.candidate.tally.unclean_elections == 1


async def test_the_counts_of_a_deleted_topic_stay_in_the_sum(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", bytearray(build_batch([(None, b"v")], timestamp_ms=1).data))
    replicas = machine.broker.replicas
    await client.delete_topic("t")
    await until(lambda: len(replicas) == 0)
    replicas.forget_tallies()
    assert replicas.tallies == {}
    assert replicas.past_tally.messages_in == 1


async def test_connections_are_counted_and_their_software_is_known(nursery, autojump_clock):
    machine = await Machine(nursery, max_connections_per_ip="2").start()
    client = await machine.connect()
    await client.ask(m.ApiVersionsRequest(client_software_name="castle-go", client_software_version="1.2"), 3)
    counted = machine.broker.tally.listeners["PLAINTEXT"]
    assert (counted.accepted, counted.closed, counted.refused) == (1, 0, 0)
    assert [each.software for each in machine.broker.tally.connections] == [("castle-go", "1.2")]

    other = await machine.connect()
    await other.ask(m.ApiVersionsRequest(), 0)
    refused = await machine.connect()
    assert await refused.is_closed()
    assert (counted.accepted, counted.refused) == (2, 1)

    other.stream.close()
    await until(lambda: counted.closed == 1)


def test_software_is_distinguished_only_up_to_a_limit():
    tally = Tally()
    known = tally.software("a", "1")
    assert tally.software("a", "1") is known
    for number in range(SOFTWARE_MAX):
        tally.software("b", str(number))
    assert tally.software("c", "1") is None
    assert tally.software("a", "1") is known


async def test_a_throttled_client_is_counted_with_its_time(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    asked = m.AlterClientQuotasRequest
    entry = asked.EntryData(
        entity=[asked.EntityData(entity_type="client-id", entity_name=None)],
        ops=[asked.OpData(key="producer_byte_rate", value=100.0)],
    )
    assert (await client.ask(asked(entries=[entry]))).entries[0].error_code == ErrorCode.NONE
    await until(lambda: machine.broker.quotas.is_active)
    batch = bytearray(build_batch([(None, bytes(2000))], timestamp_ms=1).data)
    for _ in range(3):
        await client.produce("t", batch)
    await client.ask(m.ApiVersionsRequest(), 0)
    throttled = machine.broker.tally.apis[PRODUCE].throttle
    assert throttled.count > 0
    assert throttled.total > 0
