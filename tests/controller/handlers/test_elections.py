"""Elections on demand: preferred and unclean ones, through the API and in the store, and the controller's own."""

import pytest
import trio

from barnabas.controller.decide.leaders import Balance
from barnabas.controller.decide.reassignments import NO_SUCH_PARTITION, PartitionRefused
from barnabas.controller.events import ElectionAsked
from barnabas.controller.handlers.elections import BEING_DELETED, NOT_NEEDED
from barnabas.controller.image.state import BrokerLeaving, replay
from barnabas.controller.store import paths
from barnabas.controller.store.paths import RECOVERING, PartitionList
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def elect(cluster, *topic_partitions, unclean=False):
    return await cluster.ask(ElectionAsked(topic_partitions, unclean=unclean))


def not_available(topic_partition):
    strategy = "PreferredReplicaPartitionLeaderElectionStrategy"
    message = f"Failed to elect leader for partition {topic_partition} under strategy {strategy}"
    return PartitionRefused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message)


def not_eligible(topic_partition):
    strategy = "OfflinePartitionLeaderElectionStrategy(true)"
    message = f"Failed to elect leader for partition {topic_partition} under strategy {strategy}"
    return PartitionRefused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)


@pytest.fixture
async def failed_over(cluster):
    """t-0 prefers broker 2, which was away, is back and in sync again; broker 3 leads. t-1 is as it should be."""
    cluster.config.auto_leader_rebalance_enable = False
    await cluster.start(1, 2, 3)
    await cluster.create("t", [[2, 3], [1, 3]])
    await cluster.kill(2)
    await cluster.restart(2)
    await cluster.change_isr("t", 0, 3, 2)
    return cluster


async def test_the_preferred_replica_leads_again(failed_over):
    assert await elect(failed_over, T0, T1) == {T0: 2, T1: NOT_NEEDED}
    state = await failed_over.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (3, 2), 2)
    assert failed_over.brokers[2].leads("t")
    assert failed_over.brokers[3].roles[T0].leader == 2
    assert failed_over.brokers[1].metadata[T0].leader == 2
    assert await elect(failed_over, T0) == {T0: NOT_NEEDED}


async def test_a_preferred_replica_that_is_not_in_sync_does_not_lead(failed_over):
    await failed_over.change_isr("t", 0, 3)
    assert await elect(failed_over, T0) == {T0: not_available(T0)}
    assert (await failed_over.state("t")).leader == 3


async def test_a_dead_preferred_replica_does_not_lead(failed_over):
    await failed_over.kill(2)
    assert await elect(failed_over, T0) == {T0: not_available(T0)}


async def test_a_preferred_replica_that_is_about_to_stop_does_not_lead(failed_over):
    replay(failed_over.image, BrokerLeaving(2))
    assert await elect(failed_over, T0) == {T0: not_available(T0)}


async def test_what_does_not_exist_has_no_elections(failed_over):
    gone = TopicPartition("t", 9)
    nope = TopicPartition("nope", 0)
    assert await elect(failed_over, gone, nope) == {gone: NO_SUCH_PARTITION, nope: NO_SUCH_PARTITION}


async def test_what_is_being_deleted_has_no_elections(failed_over):
    failed_over.brokers[2].failed_disk[T0] = None
    await failed_over.delete("t")
    assert await elect(failed_over, T0) == {T0: BEING_DELETED}


async def test_an_unclean_election_lets_anybody_lead_who_lives(cluster):
    await cluster.start(1, 2, 3)
    await cluster.create("t", [[3, 2]])
    await cluster.kill(2)
    await cluster.restart(2)
    await cluster.kill(3)
    assert (await cluster.state("t")).leader == NO_LEADER
    assert await elect(cluster, T0) == {T0: not_available(T0)}
    assert await elect(cluster, T0, unclean=True) == {T0: 2}
    state = await cluster.state("t")
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), RECOVERING)
    assert cluster.brokers[2].leads("t")
    assert await elect(cluster, T0, unclean=True) == {T0: NOT_NEEDED}


async def test_an_unclean_election_needs_someone_alive(cluster):
    await cluster.start(1, 2)
    await cluster.create("t", [[2]])
    await cluster.kill(2)
    assert await elect(cluster, T0, unclean=True) == {T0: not_eligible(T0)}


async def test_a_partition_that_never_had_a_leader_waits_for_one(cluster):
    await cluster.start(1)
    await cluster.create("t", [[9]])
    assert await elect(cluster, T0) == {T0: not_available(T0)}
    assert await elect(cluster, T0, unclean=True) == {T0: not_eligible(T0)}


async def test_a_state_that_was_written_meanwhile_is_decided_on_again(failed_over):
    path = paths.partition_state("t", 0)
    failed_over.before_write(failed_over.controller, path, lambda: failed_over.write_state("t", isr=(3,)))
    assert await elect(failed_over, T0) == {T0: not_available(T0)}
    assert (await failed_over.state("t")).leader == 3


async def test_no_controller_no_election(cluster):
    await cluster.start(1, 2)
    follower = next(each for each in cluster.brokers.values() if not each.candidate.is_active)
    assert await follower.candidate.ask(ElectionAsked([T0], unclean=False)) == ErrorCode.NOT_CONTROLLER


# The store's way


async def ask_the_store(cluster, *topic_partitions):
    await cluster.store.create(paths.PREFERRED_REPLICA_ELECTION, PartitionList(topic_partitions).encode())
    await cluster.settle()


async def test_preferred_elections_may_be_asked_for_in_the_store(failed_over):
    await ask_the_store(failed_over, T0, T1, TopicPartition("nope", 0))
    assert (await failed_over.state("t")).leader == 2
    assert not await failed_over.exists(paths.PREFERRED_REPLICA_ELECTION)


async def test_they_may_be_asked_for_again(failed_over):
    for _ in range(2):
        await ask_the_store(failed_over, T0)
        assert (await failed_over.state("t")).leader == 2
        await failed_over.kill(2)
        await failed_over.restart(2)
        await failed_over.change_isr("t", 0, 3, 2)


async def test_a_new_controller_holds_the_elections_that_were_asked_for(failed_over):
    old = failed_over.controller
    old.scope.cancel()
    await failed_over.store.create(paths.PREFERRED_REPLICA_ELECTION, PartitionList((T0,)).encode())
    await failed_over.kill(old.broker_id)
    assert (await failed_over.state("t")).leader == 2


async def test_what_cannot_be_read_is_left_alone(failed_over, caplog):
    await failed_over.store.create(paths.PREFERRED_REPLICA_ELECTION, b"{")
    await failed_over.settle()
    assert await failed_over.exists(paths.PREFERRED_REPLICA_ELECTION)
    assert paths.PREFERRED_REPLICA_ELECTION in caplog.text


# The controller's own


@pytest.fixture
async def imbalanced(cluster):
    """One of broker 2's two partitions is led by broker 1, which leads all of its own."""
    await cluster.start(1, 2)
    await cluster.create("t", [[2, 1], [2, 1], [1, 2]])
    await cluster.write_state("t", leader=1)
    await cluster.kill(cluster.controller.broker_id)
    (left,) = [each for each in (1, 2) if not cluster.brokers[each].is_deaf]
    await cluster.restart(3 - left)
    for index in range(3):
        await cluster.change_isr("t", index, left, 3 - left)
    return cluster


async def leaders(cluster):
    return [(await cluster.state("t", index)).leader for index in range(3)]


async def test_leadership_returns_to_the_preferred_replicas_by_itself(autojump_clock, imbalanced):
    before = await leaders(imbalanced)
    assert before != [2, 2, 1]
    await trio.sleep(300)
    assert await leaders(imbalanced) == [2, 2, 1]


async def test_how_often_is_configured(autojump_clock, cluster):
    cluster.config.leader_imbalance_check_interval_seconds = 20
    await cluster.start(1, 2)
    await trio.sleep(6)
    await cluster.create("t", [[2, 1]])
    await cluster.kill(2)
    await cluster.restart(2)
    await cluster.change_isr("t", 0, 1, 2)
    await trio.sleep(18)
    assert (await cluster.state("t")).leader == 1
    await trio.sleep(2)
    assert (await cluster.state("t")).leader == 2


async def test_it_does_not_where_that_is_disabled(autojump_clock, imbalanced):
    imbalanced.config.auto_leader_rebalance_enable = False
    before = await leaders(imbalanced)
    await trio.sleep(10_000)
    assert await leaders(imbalanced) == before


def imbalanced_partitions(image, percentage):
    balance = Balance(image)
    for topic_partition, partition in image.partitions():
        balance.count(topic_partition, partition)
    return balance.to_restore(percentage)


def led_by_others(image, topic, count):
    """The first partitions of the topic, which prefer broker 1, are led by broker 2."""
    for index in range(count):
        partition = image.topics[topic].partitions[index]
        state = partition.leadership.state._replace(leader=2)
        partition.leadership = partition.leadership._replace(state=state)
    return image


@pytest.mark.parametrize(
    ("foreign", "percentage", "found"), [(1, 10, 0), (2, 10, 2), (1, 9, 1), (0, 0, 0), (10, 99, 10)]
)
def test_a_broker_may_lack_some_of_its_leadership(make, foreign, percentage, found):
    image = led_by_others(make.image(1, 2, t=[[1, 2]] * 10), "t", foreign)
    assert len(imbalanced_partitions(image, percentage)) == found


def test_each_brokers_share_is_its_own(make):
    image = led_by_others(make.image(1, 2, t=[[1, 2]], u=[[2, 1]] * 100), "t", 1)
    assert imbalanced_partitions(image, 10) == [T0]


def test_while_partitions_move_leadership_stays(make):
    image = led_by_others(make.image(1, 2, t=[[1, 2]]), "t", 1)
    image.moving[TopicPartition("u", 0)] = None
    assert imbalanced_partitions(image, 10) == []


def test_leadership_does_not_return_to_the_dead(make):
    image = led_by_others(make.image(1, 2, t=[[1, 2]]), "t", 1)
    del image.brokers[1]
    assert imbalanced_partitions(image, 10) == []
