"""A broker is about to stop: what it leads goes to others in sync, as in a running Kafka 3.9.1 with three brokers."""

import pytest

from barnabas.controller.events import ControlledShutdownAsked
from barnabas.controller.store import paths
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition

D0, D1, D2, D3 = (TopicPartition("d", index) for index in range(4))


@pytest.fixture
async def holding(cluster):
    """Broker 3 leads d-0, follows in d-1, leads d-2 alone in sync, has nothing of d-3, and the only replica of u-0."""
    await cluster.start(1, 2, 3)
    await cluster.create("d", [[3, 1], [1, 3], [3, 2], [2, 1]])
    await cluster.create("u", [[3]])
    await cluster.change_isr("d", 2, 3)
    return cluster


async def stop(cluster, broker_id=3, epoch=None):
    epoch = cluster.brokers[broker_id].epoch if epoch is None else epoch
    return await cluster.ask(ControlledShutdownAsked(broker_id, epoch))


async def states(cluster):
    found = [await cluster.state("d", index) for index in range(4)]
    return [(state.leader, state.isr, state.leader_epoch) for state in found]


async def test_leadership_goes_to_others_in_sync_and_what_is_left_is_reported(holding):
    assert await stop(holding) == [D2]
    assert await states(holding) == [(1, (1,), 1), (1, (1,), 1), (3, (3,), 0), (2, (2, 1), 0)]
    assert holding.brokers[1].leads("d", 0)
    assert holding.brokers[3].roles[D0].leader == 1
    assert holding.brokers[2].metadata[D0].offline_replicas == [3]


async def test_it_stops_following_and_keeps_its_logs(holding):
    await stop(holding)
    (request,) = holding.brokers[3].sent(m.StopReplicaRequest)
    assert [(state.partition_index, state.delete_partition) for state in request.topic_states[0].partition_states] == [
        (1, False)
    ]
    assert D1 in holding.brokers[3].logs


async def test_asking_again_answers_again(holding):
    await stop(holding)
    before = await states(holding)
    assert await stop(holding) == [D2]
    assert await states(holding) == before


async def test_when_another_is_in_sync_the_rest_follows(holding):
    await stop(holding)
    await holding.change_isr("d", 2, 3, 2, broker_id=3)
    assert await stop(holding) == []
    assert (await holding.state("d", 2)).leader == 2


async def test_while_it_stops_it_is_elected_for_nothing(holding):
    await stop(holding)
    await holding.create("n", [[3, 1]])
    state = await holding.state("n")
    assert (state.leader, state.isr) == (1, (1,))


async def test_while_it_stops_it_keeps_what_no_other_can_lead(holding):
    """Another broker's death concerns the same partition, and changes nothing about its leader."""
    await stop(holding)
    await holding.kill(2)
    assert (await holding.state("d", 2)).leader == 3
    assert (await holding.state("u")).leader == 3


async def test_when_it_is_gone_its_partitions_wait_for_it(holding):
    await stop(holding)
    await holding.kill(3)
    assert (await holding.state("d", 2)).leader == NO_LEADER
    assert (await states(holding))[:2] == [(1, (1,), 1), (1, (1,), 1)]


async def test_when_it_returns_it_may_be_elected_again(holding):
    await stop(holding)
    await holding.kill(3)
    await holding.restart(3)
    await holding.create("n", [[3, 1]])
    assert (await holding.state("n")).leader == (await holding.state("d", 2)).leader == 3


async def test_a_later_controller_does_not_know_that_it_stops(holding):
    await stop(holding)
    await holding.kill(holding.controller.broker_id)
    await holding.create("n", [[3, 2]])
    assert (await holding.state("n")).leader == 3


async def test_two_brokers_that_stop_leave_leadership_to_the_third(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("d", [[1, 2, 3]] * 4)
    assert await stop(cluster, 1) == []
    assert await stop(cluster, 2) == []
    assert await states(cluster) == [(3, (3,), 2)] * 4
    assert await stop(cluster, 3) == [D0, D1, D2, D3]


async def test_a_single_broker_has_nothing_to_hand_over(cluster):
    await cluster.start(1)
    await cluster.create("d", [[1]] * 4)
    assert await stop(cluster, 1) == []
    assert await states(cluster) == [(1, (1,), 0)] * 4


async def test_topics_that_are_being_deleted_do_not_matter(holding):
    holding.brokers[3].failed_disk[D0] = None
    await holding.delete("d")
    assert await stop(holding) == []


async def test_a_request_of_an_earlier_life_is_stale(holding):
    assert await stop(holding, epoch=holding.brokers[3].epoch - 1) == ErrorCode.STALE_BROKER_EPOCH
    assert (await states(holding))[0] == (3, (3, 1), 0)


async def test_the_epoch_may_be_missing(holding):
    assert await stop(holding, epoch=-1) == [D2]


async def test_a_broker_that_is_not_registered_cannot_stop(holding):
    assert await holding.ask(ControlledShutdownAsked(9, -1)) == ErrorCode.BROKER_NOT_AVAILABLE
    assert await holding.ask(ControlledShutdownAsked(9, 5)) == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_state_that_was_written_meanwhile_is_decided_on_again(holding):
    path = paths.partition_state("d", 0)
    holding.before_write(holding.controller, path, lambda: holding.write_state("d", isr=(3,)))
    assert await stop(holding) == [D0, D2]
    assert (await holding.state("d", 0)).isr == (3,)
