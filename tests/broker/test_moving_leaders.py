"""Leaders that die, stop and move in a cluster of three, and what producers, consumers and groups keep."""

from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import EARLIEST, LATEST, READ_COMMITTED
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from tests.broker.clock import START_MS
from tests.broker.clusters import cluster, create_topic, leader_of, until
from tests.broker.harness import Machine
from tests.broker.requests import epoch_request, fetch_request, idempotent, list_offsets_request
from tests.broker.transactional import T0, THREE, decided
from tests.broker.writers import Writer
from tests.broker.writers import committed as committed_values

LAG = {"replica_lag_time_max_ms": "10000", "replica_fetch_wait_max_ms": "500", "min_insync_replicas": "2"}
GROUPS = {"offsets_topic_replication_factor": "3", "offsets_topic_num_partitions": "1"}


def isr_of(machine, topic, partition=0) -> list[int]:
    return sorted(machine.broker.metadata.partition(topic, partition).in_sync_replicas)


async def full_isr(machines, topic) -> None:
    await until(lambda: all(isr_of(each, topic) == [1, 2, 3] for each in machines), 60)


async def produced(client, *values) -> list[int]:
    """Offsets of these, one after the other with acks=all."""
    offsets = []
    for value in values:
        row = await client.produce("t", value)
        assert row.error_code == 0, row
        offsets.append(row.base_offset)
    return offsets


# -- partitions


async def test_what_was_acknowledged_outlives_its_leader(nursery, autojump_clock):
    async with cluster(nursery, 3, **LAG) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2, 3, 1])
        assert await produced(await two.connect(), b"a", b"b") == [0, 1]
        await two.crash()
        leader = await leader_of([one, three], "t")
        client = await leader.connect()
        assert await produced(client, b"c") == [2]
        assert await client.read_values("t") == [b"a", b"b", b"c"]
        await two.start()
        await full_isr(machines, "t")
        logs = {each.broker.replicas.get("t", 0).log.log_end_offset for each in machines}
        assert logs == {3}


async def test_a_stop_of_the_leader_loses_nothing_and_no_one_waits_long(nursery, autojump_clock):
    async with cluster(nursery, 3, **LAG) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2, 3, 1])
        await produced(await two.connect(), b"a")
        began = trio.current_time()
        two.ask_to_stop()
        leader = await leader_of([one, three], "t")
        assert trio.current_time() < began + 0.5
        client = await leader.connect()
        assert await produced(client, b"b") == [1]
        assert await client.read_values("t") == [b"a", b"b"]
        await two.ended()


async def test_a_follower_that_dies_leaves_the_isr_and_comes_back(nursery, autojump_clock):
    async with cluster(nursery, 3, **LAG) as machines:
        one, _, three = machines
        await create_topic(await one.connect(), "t", [1, 2, 3])
        client = await one.connect()
        await produced(client, b"a")
        await three.crash()
        await produced(client, b"b")
        await until(lambda: isr_of(one, "t") == [1, 2], 60)
        await three.start()
        await full_isr(machines, "t")


async def test_with_too_few_in_sync_acks_all_is_refused_and_acks_1_is_not_committed(nursery, autojump_clock):
    async with cluster(nursery, 3, **LAG) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [1, 2, 3])
        client = await one.connect()
        await produced(client, b"a")
        for machine in (two, three):
            await machine.crash()
        await until(lambda: isr_of(one, "t") == [1], 60)
        assert (await client.produce("t", b"b")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await client.produce("t", b"c", acks=1)).base_offset == 1
        assert (await client.fetch("t", 1, max_wait_ms=0)).high_watermark == 1
        await two.start()
        await until(lambda: isr_of(one, "t") == [1, 2], 60)
        assert await client.read_values("t") == [b"a", b"c"]


async def test_consumers_of_a_cut_off_epoch_are_fenced(nursery, autojump_clock):
    async with cluster(nursery, 3, **LAG) as machines:
        one, two, three = machines
        await create_topic(await one.connect(), "t", [2, 3, 1])
        await produced(await two.connect(), b"a")
        epoch = one.broker.metadata.partition("t", 0).leader_epoch
        await two.crash()
        leader = await leader_of([one, three], "t")
        client = await leader.connect()
        assert (await client.fetch("t", leader_epoch=epoch)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await client.fetch("t", leader_epoch=epoch + 9)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def with_later_epoch(replica_id: int) -> m.OffsetForLeaderEpochRequest:
    request = epoch_request(("t", 0, 1))
    request.replica_id = replica_id
    return request


@pytest.mark.parametrize(
    ("request_", "version", "lost"),
    [
        (with_later_epoch(-2), 2, ErrorCode.NONE),  # and the end offset -1
        (with_later_epoch(-1), 4, ErrorCode.NONE),
        (fetch_request([("t", 0, 5)]), 12, ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_a_leader_of_the_past_does_not_say_that_a_position_is_lost(
    nursery, autojump_clock, request_, version, lost
):
    async with cluster(nursery, 3) as machines:
        await create_topic(await machines[0].connect(), "t", [2, 3, 1])  # the controller is another
        old = await leader_of(machines, "t")
        consumer = await old.connect()

        async def asked() -> int:
            answer = await consumer.ask(request_, version)
            (topic,) = answer.responses if isinstance(answer, m.FetchResponse) else answer.topics
            return topic.partitions[0].error_code

        # The position is of a topic of this name that was deleted, say.
        assert await asked() == lost
        async with left_behind(old, machines):
            assert await asked() == ErrorCode.NOT_LEADER_OR_FOLLOWER


def deaf(machine: Machine) -> AbstractContextManager[object]:
    """A broker whose partitions get no roles."""
    replicas = machine.broker.replicas
    return replicas.turns.of([each.topic_partition for each in replicas])


@asynccontextmanager
async def left_behind(old: Machine, machines: list[Machine]) -> AsyncIterator[Machine]:
    """The successor of a leader that does not hear of it."""
    with deaf(old):
        await old.broker.store.expire()
        yield await leader_of([each for each in machines if each is not old], "t")


async def test_a_leader_of_the_past_does_not_end_an_idempotent_producer(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        await create_topic(await machines[0].connect(), "t", [2, 3, 1])  # the controller is another
        old = await leader_of(machines, "t")
        client = await old.connect()
        assert (await client.produce("t", idempotent(0))).error_code == 0
        assert (await client.produce("t", idempotent(2))).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        async with left_behind(old, machines) as successor:
            assert (await (await successor.connect()).produce("t", idempotent(1))).base_offset == 1
            assert (await client.produce("t", idempotent(2))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_leader_of_the_past_does_not_tell_an_old_end_to_read_committed(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        await create_topic(await machines[0].connect(), "t", [2, 3, 1])
        old = await leader_of(machines, "t")
        client = await old.connect()
        await produced(client, b"a")

        async def end(timestamp: int) -> tuple[int, int]:
            row = await client.list_offset("t", timestamp, isolation_level=READ_COMMITTED)
            return row.error_code, row.offset

        began = trio.current_time()
        assert await end(LATEST) == (0, 1)
        assert trio.current_time() < began + 0.1
        async with left_behind(old, machines) as successor:
            await produced(await successor.connect(), b"b")
            assert await end(LATEST) == await end(START_MS + 10**6) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            assert await end(EARLIEST) == (0, 0)
            assert (await client.list_offset("t", LATEST)).offset == 1  # as with Kafka: what the leader knows


async def test_hundreds_of_ends_are_confirmed_at_once(nursery, autojump_clock):
    async with cluster(nursery, 3) as machines:
        await create_topic(await machines[0].connect(), "t", *[[2, 3, 1]] * 300)
        old = await leader_of(machines, "t")
        client = await old.connect()
        await until(lambda: old.broker.metadata.partition("t", 299) is not None)
        assert (await client.produce("t", b"a", 299)).error_code == 0  # the followers follow
        began = trio.current_time()
        request = list_offsets_request([("t", number, LATEST) for number in range(300)], isolation_level=1)
        (topic,) = (await client.ask(request, 9)).topics
        assert [(row.error_code, row.offset) for row in topic.partitions] == [(0, 0)] * 299 + [(0, 1)]
        assert trio.current_time() < began + 0.5


# -- groups


def commit_request(offset: int, group="g") -> m.OffsetCommitRequest:
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[row])
    return m.OffsetCommitRequest(group_id=group, topics=[topic])


async def commit(client, offset: int) -> int:
    answer = await client.ask(commit_request(offset), 8)
    return answer.topics[0].partitions[0].error_code


async def committed(client) -> tuple[int, int]:
    """(error, offset)"""
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = await client.ask(m.OffsetFetchRequest(group_id="g", topics=[topic]), 7)
    if answer.error_code:
        return answer.error_code, -1
    return 0, answer.topics[0].partitions[0].committed_offset


async def with_group(machines):
    """The group topic is there, everybody in sync; its leader."""
    client = await machines[0].connect()
    await create_topic(client, "t", [1])
    await client.ask(m.FindCoordinatorRequest(key="g"), 3)
    await until(lambda: all(GROUP_TOPIC in each.broker.metadata.topics for each in machines))
    await full_isr(machines, GROUP_TOPIC)
    return await leader_of(machines, GROUP_TOPIC)


@pytest.mark.parametrize("ends", ["dies", "stops"])
async def test_no_committed_offset_is_lost_when_the_coordinator_goes(nursery, autojump_clock, ends):
    async with cluster(nursery, 3, **GROUPS) as machines:
        coordinator = await with_group(machines)
        client = await coordinator.connect()
        for offset in (1, 2, 3):
            assert await commit(client, offset) == 0
        if ends == "dies":
            await coordinator.crash()
        else:
            await coordinator.stop()
        left = [each for each in machines if each is not coordinator]
        other = await leader_of(left, GROUP_TOPIC)
        client = await other.connect()
        with trio.fail_after(10):
            while (await committed(client))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await trio.sleep(0.1)
        assert await committed(client) == (0, 3)
        assert await commit(client, 4) == 0
        await coordinator.start()
        await full_isr(machines, GROUP_TOPIC)
        assert await committed(await coordinator.connect()) == (ErrorCode.NOT_COORDINATOR, -1)
        assert await committed(client) == (0, 4)


async def test_a_coordinator_that_has_not_heard_of_its_successor_does_not_answer_for_it(nursery, autojump_clock):
    async with cluster(nursery, 3, **GROUPS) as machines:
        coordinator = await with_group(machines)
        old = await coordinator.connect()
        assert await commit(old, 3) == 0
        # As after a pause of its process: the session is over, another broker leads, and no role has arrived yet.
        with deaf(coordinator):
            await coordinator.broker.store.expire()
            left = [each for each in machines if each is not coordinator]
            new = await (await leader_of(left, GROUP_TOPIC)).connect()
            with trio.fail_after(10):
                while await commit(new, 7) != 0:
                    await trio.sleep(0.1)
            assert await committed(old) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1)
        assert await committed(new) == (0, 7)


async def test_to_read_offsets_takes_two_fetches_of_the_followers_and_not_their_wait(nursery, autojump_clock):
    async with cluster(nursery, 3, **GROUPS, replica_fetch_wait_max_ms="10000") as machines:
        client = await (await with_group(machines)).connect()
        assert await commit(client, 3) == 0
        await trio.sleep(2)  # the followers wait for records
        began = trio.current_time()
        assert await committed(client) == (0, 3)
        assert trio.current_time() - began < 0.1


async def test_a_coordinator_that_became_a_follower_knows_its_groups_no_more(nursery, autojump_clock):
    async with cluster(nursery, 3, **GROUPS) as machines:
        coordinator = await with_group(machines)
        client = await coordinator.connect()
        assert await commit(client, 5) == 0
        broker_id = coordinator.serving.broker_id
        await coordinator.stop()
        await coordinator.start()
        await full_isr(machines, GROUP_TOPIC)
        new = await leader_of(machines, GROUP_TOPIC)
        assert new is not coordinator
        assert await commit(await new.connect(), 6) == 0
        elect = m.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[m.ElectLeadersRequest.TopicPartitions(topic=GROUP_TOPIC, partitions=[0])],
            timeout_ms=10_000,
        )
        controller = next(each for each in machines if each.broker.candidate.is_active)
        answer = await (await controller.connect()).ask(elect)
        assert answer.error_code == 0
        back = await leader_of([coordinator], GROUP_TOPIC)
        assert back.serving.broker_id == broker_id
        assert await committed(await new.connect()) == (ErrorCode.NOT_COORDINATOR, -1)
        client = await back.connect()
        with trio.fail_after(10):
            while (await committed(client))[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                await trio.sleep(0.1)
        assert await committed(client) == (0, 6)
        assert list(new.broker.groups.runtime) == []


async def test_groups_go_on_when_their_topic_was_deleted_and_made_again(nursery, autojump_clock):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    while await commit(client, 1):
        await client.ask(m.FindCoordinatorRequest(key="g"), 3)
    for _ in range(2):  # each time the leader epoch rises
        await machine.stop()
        await machine.start()
    client = await machine.connect()
    while await committed(client) != (0, 1):
        await trio.sleep(0.1)
    await client.delete_topic(GROUP_TOPIC)
    while (await client.ask(m.FindCoordinatorRequest(key="g"), 3)).error_code:
        await trio.sleep(0.1)
    assert await commit(client, 2) == 0
    assert await committed(client) == (0, 2)


# -- transactions


@pytest.mark.parametrize("commit", [True, False])
async def test_a_coordinator_that_has_not_heard_of_its_successor_ends_no_transaction(nursery, autojump_clock, commit):
    async with cluster(nursery, 3, **THREE) as machines:
        writer = Writer(machines, "id")
        await writer.init()
        old = await writer.coordinator()
        left = [each for each in machines if each is not old]
        await create_topic(await machines[0].connect(), "t", [each.serving.broker_id for each in left])
        await writer.transaction({T0: b"one"}, commit=commit)
        await writer.completed()
        with deaf(old):
            await old.broker.store.expire()
            await leader_of(left, TRANSACTION_TOPIC)
            writer.machines = left
            assert await writer.add(T0) is ErrorCode.NONE
            assert await writer.write("t", b"two") is ErrorCode.NONE
            # It knows the end of the transaction before, of the same producer and epoch, with the same result.
            answer = await (await old.connect()).ask(writer.ending(commit=commit))
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await writer.end(commit=commit) is ErrorCode.NONE
        writer.machines = machines
        await decided(machines)
        assert await committed_values(machines, "t") == ([b"one", b"two"] if commit else [])
