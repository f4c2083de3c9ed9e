"""Requests of connections that their clients have closed: a client asks again on another one, and goes on there."""

import trio

from barnabas.replication.partition import Role
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import GROUP_TOPIC, TRANSACTION_TOPIC
from tests.broker.clusters import until
from tests.broker.transactional import T0, T1, decided, one_broker
from tests.broker.writers import Writer, committed

PORT = 9092


def give_up(writer, client) -> None:
    """The writer goes on with connections that are made later."""
    client.close()
    writer._clients.clear()


async def test_late_offsets_of_an_aborted_transaction_are_not_committed_with_the_next(nursery, autojump_clock):
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    assert await writer.send_offsets("g", {T0: 1, T1: 1}) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert await writer.add_offsets("g") is ErrorCode.NONE
    client = await machine.connect()
    machine.net.stall_connections(PORT)
    await client.send(writer.committing("g", {T1: 5}))
    give_up(writer, client)
    assert await writer.end(commit=False) is ErrorCode.NONE
    await writer.completed()
    assert await writer.add_offsets("g") is ErrorCode.NONE
    machine.net.go_on_reading(PORT)
    await trio.sleep(1)
    # The transaction that is open now is about T0 only.
    assert await writer.commit_offsets("g", {T0: 2}) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    await decided(machines)
    assert [await writer.committed_offset("g", each) for each in (T0, T1)] == [2, 1]


async def test_offsets_that_are_encoded_in_a_thread_are_overtaken_too(nursery, autojump_clock):
    (machine,) = machines = await one_broker(nursery)
    await (await machine.connect()).create_topic("many", 150)
    writer = Writer(machines, "id")
    await writer.init()
    keys = [("many", index) for index in range(150)]
    assert await writer.add_offsets("g") is ErrorCode.NONE
    # The transaction is open in the group's partition, so the next request needs no verification.
    assert await writer.commit_offsets("g", {keys[0]: 1}) is ErrorCode.NONE
    client = await machine.connect()
    machine.thread_seconds = 5
    await client.send(writer.committing("g", dict.fromkeys(keys, 5)))
    await trio.sleep(0.1)
    machine.thread_seconds = 0.001
    give_up(writer, client)
    assert await writer.end(commit=False) is ErrorCode.NONE
    await writer.completed()
    assert await writer.add_offsets("g") is ErrorCode.NONE
    assert await writer.commit_offsets("g", {keys[0]: 2}) is ErrorCode.NONE
    await trio.sleep(10)
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    await decided(machines)
    assert [await writer.committed_offset("g", each) for each in keys[:2]] == [2, -1]


async def test_a_late_init_does_not_fence_the_client_that_has_asked_again(nursery, autojump_clock):
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    client = await machine.connect()
    machine.net.stall_connections(PORT)
    await client.send(m.InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000))
    give_up(writer, client)
    assert await writer.init() is ErrorCode.NONE
    assert await writer.add(T0) is ErrorCode.NONE
    machine.net.go_on_reading(PORT)
    await trio.sleep(1)
    assert await writer.end(commit=True) is ErrorCode.NONE


async def coordinates_again(machine, topic=TRANSACTION_TOPIC, name="id") -> None:
    """The coordinator of "id" loses its shard, and gets it back; or that of another name, with another topic."""
    coordinator = machine.broker.transactions if topic == TRANSACTION_TOPIC else machine.broker.groups
    index = coordinator.placement.partition_of(name)
    partition = machine.broker.replicas.get(topic, index)
    coordinator.runtime.on_resigned(index, partition.leader_epoch)
    coordinator.runtime.on_elected(partition)
    await until(lambda: not isinstance(coordinator.runtime.find(index), ErrorCode))


async def test_a_late_end_at_a_coordinator_that_was_none_meanwhile_is_not_executed(nursery, autojump_clock):
    """With its ids it lost the order of connections. Meanwhile the client has gone on at another broker."""
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    old = await machine.connect()
    await writer.transaction({T0: b"a"})
    await writer.completed()
    await writer.add(T0)
    await writer.write("t", b"half of the next transaction")
    await coordinates_again(machine)
    # It does not differ from a request of now, but in that its client does not read the answer.
    assert (await old.ask(writer.ending(commit=True))).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await writer.described()).transaction_state == "Ongoing"
    assert await writer.end(commit=False) is ErrorCode.NONE
    await decided(machines)
    assert machine.broker.replicas.get("t", 0).log.producers.open_transactions == {}


async def test_late_ends_of_two_connections_are_no_proof_of_each_other(nursery, autojump_clock):
    """The client has repeated its request before it found the other coordinator: both are on their way."""
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    late = [await machine.connect(), await machine.connect()]
    await writer.transaction({T0: b"a"})
    await writer.completed()
    await writer.add(T0)
    await writer.write("t", b"half of the next transaction")
    await coordinates_again(machine)
    codes = [(await client.ask(writer.ending(commit=True))).error_code for client in late]
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert (await writer.described()).transaction_state == "Ongoing"


async def test_a_client_of_a_coordinator_that_is_one_again_goes_on(nursery, autojump_clock):
    """It repeats its request on the same connection."""
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    await writer.add(T0)
    await writer.write("t", b"a")
    await coordinates_again(machine)
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    await writer.transaction({T0: b"b"})
    await decided(machines)


async def test_late_offsets_at_a_coordinator_that_was_none_meanwhile_are_not_stored(nursery, autojump_clock):
    """The next transaction would be about partitions that its producer has not read."""
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    assert await writer.send_offsets("g", {T0: 1, T1: 1}) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert await writer.add_offsets("g") is ErrorCode.NONE
    old, late = await machine.connect(), writer.committing("g", {T1: 5})
    writer._clients.clear()
    assert await writer.end(commit=False) is ErrorCode.NONE
    await writer.completed()
    await coordinates_again(machine, GROUP_TOPIC, "g")
    assert await writer.add_offsets("g") is ErrorCode.NONE
    (topic,) = (await old.ask(late)).topics
    assert topic.partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await writer.commit_offsets("g", {T0: 2}) is ErrorCode.NONE
    assert await writer.end(commit=True) is ErrorCode.NONE
    await writer.completed()
    assert [await writer.committed_offset("g", each) for each in (T0, T1)] == [2, 1]


def leads_again(machine, topic="t") -> None:
    """Another broker leads the partition, and then this one again."""
    partition = machine.broker.replicas.get(topic, 0)
    for leader in (2, machine.serving.broker_id):
        epoch = partition.leader_epoch + 1
        in_sync = [machine.serving.broker_id]
        role = Role(leader, epoch, epoch, partition.controller_epoch, in_sync, in_sync, 0, is_new=False)
        partition.become(partition.log, role)


async def test_a_late_marker_at_a_leader_that_was_none_meanwhile_is_not_written(nursery, autojump_clock):
    """The leader in between got the repetition, and the coordinator has nothing else for this one."""
    (machine,) = machines = await one_broker(nursery)
    writer = Writer(machines, "id")
    await writer.init()
    old = await machine.connect()
    old.in_flight.client_id = "broker-7-txn-marker-sender"
    await writer.transaction({T0: b"a"})
    await decided(machines)
    leads_again(machine)
    await writer.add(T0)
    await writer.write("t", b"half of the next transaction")
    late = m.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        transaction_result=True,
        topics=[m.WriteTxnMarkersRequest.WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
        coordinator_epoch=0,
    )
    (result,) = (await old.ask(m.WriteTxnMarkersRequest(markers=[late]))).markers
    assert await committed(machines, "t") == [b"a"]
    # A coordinator that reads this sends its markers again.
    assert result.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (result,) = (await old.ask(m.WriteTxnMarkersRequest(markers=[late]))).markers
    assert result.topics[0].partitions[0].error_code == ErrorCode.NONE
