"""What the active controller answers on a single broker: elections, reassignments, AlterPartition, ControlledShutdown.

Answers are those of a running Kafka 3.9.1 with one broker. What needs more brokers is in tests/controller.
"""

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.harness import Machine

ALTERED_MESSAGE = ""


@pytest.fixture
async def machine(nursery):
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t", 2)
    return machine


# ElectLeaders


async def elect(machine, *asked, version=2, election_type=0, everything=False, **fields):
    named = [m.ElectLeadersRequest.TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in asked]
    request = m.ElectLeadersRequest(topic_partitions=None if everything else named, **fields)
    if version > 0:
        request.election_type = election_type
    answer = await (await machine.connect()).ask(request, version)
    rows = {
        (topic.topic, row.partition_id): (row.error_code, row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }
    return answer.error_code, rows


OTHER = 99


@pytest.fixture
async def company(machine):
    """Another broker, which hears nothing; it prefers to lead u-0, and died once, so that this one leads."""
    client, me = await machine.connect(), machine.serving.broker_id
    session = await machine.join(OTHER)
    row = m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[OTHER, me])
    asked = m.CreateTopicsRequest.CreatableTopic(name="u", num_partitions=-1, replication_factor=-1, assignments=[row])
    (created,) = (await client.ask(m.CreateTopicsRequest(topics=[asked]))).topics
    assert created.error_code == 0
    await session.close()
    await trio.sleep(1)
    await machine.join(OTHER)
    assert await leader(client, "u") == me
    return machine


async def leader(client, topic):
    return (await client.metadata(topic))[topic].partitions[0].leader_id


async def test_an_election_is_answered_when_its_outcome_is_known_here(autojump_clock, company):
    row = await alter(company, 3, topic="u", isr=[company.serving.broker_id, OTHER], leader_epoch=1, partition_epoch=1)
    assert row.error_code == 0
    assert await elect(company, ("u", [0]), everything=True) == (0, {("u", 0): (0, None)})
    assert await leader(await company.connect(), "u") == OTHER


async def test_an_election_that_cannot_be_is_reported_in_kafkas_words(autojump_clock, company):
    strategy = "PreferredReplicaPartitionLeaderElectionStrategy"
    refused = (80, f"Failed to elect leader for partition u-0 under strategy {strategy}")
    assert await elect(company, ("u", [0])) == await elect(company, everything=True) == (0, {("u", 0): refused})


async def test_what_is_on_its_way_is_listed_and_keeps_its_topic_from_growing(autojump_clock, company):
    me = company.serving.broker_id
    assert await move(company, ("t", 0, [OTHER, me])) == {("t", 0): (0, None)}
    client = await company.connect()
    (topic,) = (await client.ask(m.ListPartitionReassignmentsRequest(topics=None))).topics
    (row,) = topic.partitions
    assert (topic.name, row.partition_index) == ("t", 0)
    assert (row.replicas, row.adding_replicas, row.removing_replicas) == ([OTHER, me], [OTHER], [])
    growing = m.CreatePartitionsRequest(topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=5)])
    (grown,) = (await client.ask(growing)).results
    assert grown.error_code == ErrorCode.REASSIGNMENT_IN_PROGRESS


async def test_what_a_stopping_broker_still_leads_is_reported(autojump_clock, company):
    request = m.ControlledShutdownRequest(broker_id=company.serving.broker_id)
    answer = await (await company.connect()).ask(request)
    assert [(row.topic_name, row.partition_index) for row in answer.remaining_partitions] == [("u", 0)]


# Reassignments


async def move(machine, *asked):
    """move(machine, ("t", 0, [1])): code and message by partition."""
    topics = {}
    for name, index, replicas in asked:
        row = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
        topics.setdefault(name, []).append(row)
    request = m.AlterPartitionReassignmentsRequest(
        topics=[
            m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=rows)
            for name, rows in topics.items()
        ]
    )
    answer = await (await machine.connect()).ask(request)
    assert (answer.error_code, answer.error_message) == (0, ALTERED_MESSAGE)
    return {
        (topic.name, row.partition_index): (row.error_code, row.error_message)
        for topic in answer.responses
        for row in topic.partitions
    }


async def test_moving_to_where_the_partition_is_is_done_at_once(autojump_clock, machine):
    me = machine.serving.broker_id
    assert await move(machine, ("t", 0, [me])) == {("t", 0): (0, None)}
    client = await machine.connect()
    assert (await client.produce("t", b"v")).error_code == 0
    partition = (await client.metadata("t"))["t"].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.replica_nodes) == (me, 1, [me])


# AlterPartition


async def alter(machine, version, *, topic="t", isr=None, broker_epoch=None, **fields):
    client = await machine.connect()
    me, name = machine.serving.broker_id, topic
    topic_id = (await client.metadata(name))[name].topic_id
    members = [me] if isr is None else isr
    if version < 3:
        fields["new_isr"] = members
    else:
        fields["new_isr_with_epochs"] = [m.AlterPartitionRequest.BrokerState(broker_id=each) for each in members]
    topic = {"topic_id": topic_id} if version >= 2 else {"topic_name": name}
    topic["partitions"] = [m.AlterPartitionRequest.PartitionData(partition_index=0, **fields)]
    request = m.AlterPartitionRequest(
        broker_id=me,
        broker_epoch=await machine.broker_epoch() if broker_epoch is None else broker_epoch,
        topics=[m.AlterPartitionRequest.TopicData(**topic)],
    )
    answer = await client.ask(request, version)
    if answer.error_code:
        return answer.error_code
    assert (answer.topics[0].topic_id == topic_id) if version >= 2 else (answer.topics[0].topic_name == name)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(4))
async def test_the_isr_that_is_there_may_be_asked_for(autojump_clock, machine, version):
    row = await alter(machine, version)
    me = machine.serving.broker_id
    assert (row.error_code, row.leader_id, row.leader_epoch, row.isr, row.partition_epoch) == (0, me, 0, [me], 0)


@pytest.mark.parametrize("version", range(4))
async def test_an_isr_that_is_none_is_refused(autojump_clock, machine, version):
    row = await alter(machine, version, isr=[])
    assert (row.error_code, row.leader_id, row.leader_epoch, row.isr, row.partition_epoch) == (42, 0, 0, [], 0)


async def test_the_dead_are_ineligible_which_older_leaders_do_not_know(autojump_clock, machine):
    client, me = await machine.connect(), machine.serving.broker_id
    row = m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[me, 99])
    asked = m.CreateTopicsRequest.CreatableTopic(name="u", num_partitions=-1, replication_factor=-1, assignments=[row])
    (created,) = (await client.ask(m.CreateTopicsRequest(topics=[asked]))).topics
    assert created.error_code == 0
    codes = [(await alter(machine, version, topic="u", isr=[me, 99])).error_code for version in range(4)]
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED] * 2 + [ErrorCode.INELIGIBLE_REPLICA] * 2


# ControlledShutdown


async def shut_down(machine, version, broker_id, broker_epoch=-1):
    request = m.ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
    answer = await (await machine.connect()).ask(request, version)
    return answer.error_code, list(answer.remaining_partitions)


@pytest.mark.parametrize("version", range(4))
async def test_a_single_broker_leaves_nothing_that_another_could_lead(autojump_clock, machine, version):
    assert await shut_down(machine, version, machine.serving.broker_id) == (0, [])
    assert (await (await machine.connect()).produce("t", b"v")).error_code == 0


async def test_the_epoch_of_an_unknown_broker_is_an_error_without_a_name(autojump_clock, machine):
    assert await shut_down(machine, 3, 99, 5) == (ErrorCode.UNKNOWN_SERVER_ERROR, [])


async def test_an_old_broker_epoch_is_stale(autojump_clock, machine):
    epoch = await machine.broker_epoch()
    assert await shut_down(machine, 3, machine.serving.broker_id, epoch - 1) == (ErrorCode.STALE_BROKER_EPOCH, [])
    assert await shut_down(machine, 3, machine.serving.broker_id, epoch) == (0, [])


async def test_a_stopping_broker_hands_over_before_it_stops_to_serve(autojump_clock, company):
    """No other replica can lead its partition, as it is alone in the ISR: it tries three times, every five seconds."""
    client, began = await company.connect(), trio.current_time()
    company.ask_to_stop()
    await trio.sleep(9)
    assert (await client.produce("u", b"v")).error_code == 0
    await company.ended()
    assert 10 <= trio.current_time() - began < 12


# Who is not the controller


@pytest.fixture
async def deposed(nursery):
    """Another broker becomes the controller and sends nothing."""
    machine = await Machine(nursery).start()
    client = await machine.connect()
    await client.create_topic("t")
    await machine.depose()
    await trio.sleep(0.1)
    return machine


async def test_only_the_controller_answers(autojump_clock, deposed):
    client = await deposed.connect()
    refused, message = ErrorCode.NOT_CONTROLLER, "This is not the correct controller for this cluster."
    for request in (
        m.AlterPartitionReassignmentsRequest(),
        m.ListPartitionReassignmentsRequest(),
        m.UpdateFeaturesRequest(),
    ):
        answer = await client.ask(request)
        assert (answer.error_code, answer.error_message) == (refused, message)
    assert (await client.ask(m.AlterPartitionRequest())).error_code == refused
    assert (await client.ask(m.ControlledShutdownRequest())).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="u", mechanism=1)
    (row,) = (await client.ask(m.AlterUserScramCredentialsRequest(deletions=[deletion]))).results
    assert (row.error_code, row.error_message) == (refused, None)  # without a text, as Kafka 3.9.1 says it
    assert await elect(deposed, ("t", [0])) == (0, {("t", 0): (refused, None)})
    assert (await elect(deposed, everything=True))[1] == {("t", 0): (refused, None)}
    grown = m.CreatePartitionsRequest(topics=[m.CreatePartitionsRequest.CreatePartitionsTopic(name="t", count=2)])
    (row,) = (await client.ask(grown)).results
    assert (row.error_code, row.error_message) == (refused, None)
    created = m.CreateTopicsRequest(topics=[m.CreateTopicsRequest.CreatableTopic(name="u")])
    (row,) = (await client.ask(created)).topics
    assert (row.error_code, row.error_message) == (refused, "")
