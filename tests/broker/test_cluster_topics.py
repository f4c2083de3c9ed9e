"""Topics of three whole brokers: who may change them, and what a broker does that was away while they changed."""

import pytest
import trio

from barnabas.controller.store import paths
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from tests.broker.clusters import all_know_each_other, cluster, create_topic, leader_of, until
from tests.broker.requests import new_topics

LETTERS = TopicPartition("letters", 0)


async def move(client, topic, *replicas):
    request = m.AlterPartitionReassignmentsRequest
    row = request.ReassignablePartition(partition_index=0, replicas=list(replicas))
    topics = [request.ReassignableTopic(name=topic, partitions=[row])]
    (moved,) = (await client.ask(request(timeout_ms=1000, topics=topics))).responses
    assert moved.partitions[0].error_code == 0


async def exists(machine, path):
    session = machine._database.session()
    found = await session.exists(path)
    await session.close()
    return found is not None


async def until_deleted(machine, topic):
    """The mark of a deletion is the last that goes."""
    while await exists(machine, paths.delete_topic(topic)):
        await trio.sleep(0.1)
    assert not await exists(machine, paths.topic(topic))


async def without_session(machine):
    """End the session of a broker; the event that lets it begin another one."""
    store, may_return = machine.broker.store, trio.Event()
    renew = store.renew

    async def renew_later():
        await may_return.wait()
        await renew()

    store.renew = renew_later
    await store.expire()
    return may_return


async def test_only_the_controller_creates_grows_and_deletes_topics(autojump_clock, nursery):
    async with cluster(nursery, 2) as (_, two):
        client = await two.connect()
        (created,) = (await client.ask(new_topics("t"))).topics
        grown = m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2, assignments=None)
        (grown,) = (await client.ask(m.CreatePartitionsRequest(topics=[grown], timeout_ms=1000))).results
        (deleted,) = (await client.ask(m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 3)).responses
        assert {each.error_code for each in (created, grown, deleted)} == {ErrorCode.NOT_CONTROLLER}
        assert (created.error_message, grown.error_message) == ("", None)


async def test_any_broker_creates_a_topic_that_is_asked_for(autojump_clock, nursery):
    async with cluster(nursery, 3, default_replication_factor="3") as machines:
        client = await machines[2].connect()
        row = (await client.metadata("letters", create=True))["letters"]
        assert row.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        await leader_of(machines, "letters")
        row = (await client.metadata("letters"))["letters"]
        assert (row.error_code, sorted(row.partitions[0].isr_nodes)) == (0, [1, 2, 3])


async def test_replicas_are_spread_over_racks(autojump_clock, nursery):
    racks = {1: "east", 2: "east", 3: "west", 4: "west"}
    async with cluster(nursery, 4, of_each=lambda broker_id: {"broker_rack": racks[broker_id]}) as machines:
        client = await machines[0].connect()
        request = new_topics("letters", 8)
        request.topics[0].replication_factor = 2
        assert (await client.ask(request)).topics[0].error_code == 0
        row = (await client.metadata("letters"))["letters"]
        assert {tuple(sorted(racks[each] for each in part.replica_nodes)) for part in row.partitions} == {
            ("east", "west")
        }


async def test_a_broker_that_missed_a_deletion_deletes_its_log_when_it_returns(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, _, three = machines
        client = await one.connect()
        await create_topic(client, "letters", [1, 2, 3])
        await leader_of(machines, "letters")
        await client.produce("letters", b"old", acks=-1)
        await three.crash()
        await until(lambda: 3 not in one.broker.metadata.brokers)
        await client.ask(m.DeleteTopicsRequest(topic_names=["letters"], timeout_ms=1000), 3)
        await until(lambda: "letters" not in one.broker.metadata.topics)
        assert await exists(one, paths.topic("letters"))
        await three.start()
        await all_know_each_other(machines)
        await until_deleted(one, "letters")
        assert three.broker.replicas.logs.get(LETTERS) is None
        await create_topic(await one.connect(), "letters", [3, 1, 2])
        assert await leader_of(machines, "letters") is three
        assert await (await three.connect()).read_values("letters") == []


async def test_the_log_of_a_deleted_topic_gives_way_when_its_broker_returns(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, two, three = machines
        client = await one.connect()
        await create_topic(client, "letters", [1, 2, 3])
        await leader_of(machines, "letters")
        await client.produce("letters", b"old", acks=-1)
        await three.crash()
        await until(lambda: 3 not in one.broker.metadata.brokers)
        await move(client, "letters", 1, 2)
        await client.ask(m.DeleteTopicsRequest(topic_names=["letters"], timeout_ms=30_000), 3)
        await until_deleted(one, "letters")
        await create_topic(client, "letters", [1, 2, 3])
        await (await one.connect()).produce("letters", b"new", acks=-1)
        await three.start()
        await all_know_each_other(machines)
        await until(lambda: sorted(one.broker.metadata.partition("letters", 0).in_sync_replicas) == [1, 2, 3])
        (stray,) = [name for name in three.disk.list("/data") if name.endswith("-stray")]
        assert b"old" in three.disk.peek(f"/data/{stray}/00000000000000000000.log")
        await one.crash()
        assert await leader_of([two, three], "letters") is two
        await two.crash()
        assert await leader_of([three], "letters") is three
        assert await (await three.connect()).read_values("letters") == [b"new"]


async def test_a_leader_without_session_whose_partition_was_given_away_leads_no_more(autojump_clock, nursery):
    async with cluster(nursery, 3) as machines:
        one, _, three = machines
        client = await one.connect()
        await create_topic(client, "letters", [3, 1])
        assert await leader_of(machines, "letters") is three
        await (await three.connect()).produce("letters", b"old", acks=-1)
        may_return = await without_session(three)
        await until(lambda: 3 not in one.broker.metadata.brokers)
        await move(client, "letters", 1, 2)
        await until(lambda: one.broker.metadata.partition("letters", 0).replicas == [1, 2])
        assert three.broker.replicas.get("letters", 0).is_leader
        may_return.set()
        await until(lambda: 3 in one.broker.metadata.brokers)
        await until(lambda: three.broker.metadata.partition("letters", 0).replicas == [1, 2])
        assert three.broker.replicas.get("letters", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await (await three.connect()).produce("letters", b"lost")).error_code == 6
        assert three.disk.exists("/data/letters-0"), "no request deleted it"


@pytest.mark.parametrize("is_made_again", [False, True])
async def test_a_leader_without_session_whose_topic_was_deleted_leads_no_more(autojump_clock, nursery, is_made_again):
    """The partition was given to other brokers first, so the deletion did not wait for this one."""
    async with cluster(nursery, 3) as machines:
        one, _, three = machines
        client = await one.connect()
        await create_topic(client, "letters", [3, 1])
        await create_topic(client, "others", [1, 2])
        assert await leader_of(machines, "letters") is three
        may_return = await without_session(three)
        await until(lambda: 3 not in one.broker.metadata.brokers)
        await move(client, "letters", 1, 2)
        await until(lambda: one.broker.metadata.partition("letters", 0).replicas == [1, 2])
        await client.delete_topic("letters")
        await until_deleted(one, "letters")
        if is_made_again:
            await create_topic(client, "letters", [1, 2])
        assert three.broker.replicas.get("letters", 0).is_leader
        may_return.set()
        await all_know_each_other(machines)
        await trio.sleep(5)
        assert isinstance(three.broker.replicas.get("letters", 0), ErrorCode)
        assert (await (await three.connect()).produce("letters", b"lost")).error_code in (3, 6)


async def test_of_three_brokers_one_loses_a_disk_and_leads_what_is_on_the_other(autojump_clock, nursery):
    async with cluster(nursery, 3, log_dirs="/a,/b") as machines:
        one, two, three = machines
        client = await one.connect()
        await create_topic(client, "letters", [2, 3, 1], [2, 3, 1])
        assert await leader_of(machines, "letters", 1) is two
        (lost,) = [index for index in range(2) if two.disk.exists(f"/b/letters-{index}")]
        two.disk.fail_next("write", "EIO", path_part="/b/")
        await (await two.connect()).produce("letters", b"lost", lost)
        assert await leader_of([one, three], "letters", lost) is three
        assert await leader_of(machines, "letters", 1 - lost) is two
        assert (await (await three.connect()).produce("letters", b"kept", lost)).error_code == 0
        row = (await client.metadata("letters"))["letters"]
        offline = {part.partition_index: part.offline_replicas for part in row.partitions}
        assert offline == {lost: [2], 1 - lost: []}


async def test_a_topic_is_seen_with_all_its_partitions_or_not_at_all(nursery, autojump_clock):
    """A producer that saw a part of them would choose other partitions for its keys than later."""
    async with cluster(nursery, 2) as machines:
        admin, other = [await machine.connect() for machine in machines]
        seen: dict[int, None] = {}

        async def watch():
            while True:
                seen[len((await other.metadata("t"))["t"].partitions)] = None
                await trio.sleep(0.001)

        async with trio.open_nursery() as watching:
            watching.start_soon(watch)
            await trio.sleep(0.1)
            created = await admin.ask(new_topics("t", 700, timeout_ms=60_000))
            assert created.topics[0].error_code == ErrorCode.NONE
            await until(lambda: 700 in seen)
            deleted = m.DeleteTopicsRequest.DeleteTopicState(name="t")
            await admin.ask(m.DeleteTopicsRequest(topics=[deleted], timeout_ms=60_000))
            await trio.sleep(1)
            watching.cancel_scope.cancel()
        assert list(seen) == [0, 700]
