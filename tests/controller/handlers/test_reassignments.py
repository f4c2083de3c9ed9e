"""Partitions move to other brokers: asked through the API or in the store, cancelled, overridden, over fail-overs.

What the nodes hold, and codes and messages, are those of a running Kafka 3.9.1 with three brokers.
"""

import pytest

from barnabas.controller.decide.reassignments import (
    NO_SUCH_PARTITION,
    NOTHING_TO_CANCEL,
    PartitionRefused,
    decide_assignments,
    is_complete,
    plan_move,
)
from barnabas.controller.events import ElectionAsked, OngoingReassignmentsAsked, ReassignmentsAsked
from barnabas.controller.image.state import (
    Assignment,
    Leadership,
    LeadershipChanged,
    PartitionAppeared,
    TopicAppeared,
    replay,
)
from barnabas.controller.image.transitions import ReplicaStatus
from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionState, Reassignment, TopicAssignment
from barnabas.controller.store.store import SetData
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


# What may be asked


def plan(make, target, *, replicas=(1, 2), isr=None, live=(1, 2, 3), **options):
    image = make.image(*live)
    replay(image, TopicAppeared("t", b"t" * 16))
    replay(image, PartitionAppeared(T0, replicas))
    replay(image, LeadershipChanged(T0, Leadership(PartitionState(replicas[0], 0, 1, isr or replicas), 0)))
    return plan_move(image, T0, target, **options)


def test_a_partition_is_on_both_sets_of_replicas_while_it_moves(make):
    assert plan(make, [3, 2]) == Assignment((3, 2, 1), adding=(3,), removing=(1,))


def test_an_override_counts_from_where_the_partition_was():
    moving = Assignment((3, 2, 1), (3,), (1,))
    assert moving.moved_to((2, 1, 3)) == Assignment((2, 1, 3), adding=(3,))
    assert moving.moved_to((2,)) == Assignment((2, 1), removing=(1,))
    assert moving.moved_to(moving.origin) == Assignment((2, 1))


REFUSED = {
    "no replicas": ([], "Empty replica list specified in partition reassignment."),
    "one twice": ([1, 1], "Duplicate replica ids in partition reassignment replica list: ArrayBuffer(1, 1)"),
    "an impossible id": ([1, -2], "Invalid broker id in replica list: ArrayBuffer(1, -2)"),
    "the dead": (
        [1, 9, 8],
        "Replica assignment has brokers that are not alive."
        " Replica list: ArrayBuffer(9, 8), live broker list: Set(1, 2, 3)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_in_kafkas_words(make, case):
    target, message = REFUSED[case]
    assert plan(make, target) == PartitionRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def test_a_dead_replica_that_is_there_already_may_stay(make):
    assert plan(make, [9, 3], replicas=(9, 1)) == Assignment((9, 3, 1), (3,), (1,))


def test_the_stores_way_waits_for_brokers_that_are_not_there(make):
    assert plan(make, [9], to_dead_brokers=True) == Assignment((9, 1, 2), (9,), (1, 2))


def test_what_does_not_move_cannot_be_cancelled(make):
    assert plan(make, None) == NOTHING_TO_CANCEL


def test_unknown_partitions_do_not_move(make):
    image = make.image(1, t=[[1]])
    assert plan_move(image, T1, [1]) == NO_SUCH_PARTITION
    assert plan_move(image, T1, None) == NOTHING_TO_CANCEL
    assert plan_move(image, T1, [7]).code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_only_copy_of_the_records_is_not_given_up(make):
    image = make.image(1, 2, 3)
    replay(image, TopicAppeared("t", b"t" * 16))
    replay(image, PartitionAppeared(T0, (3, 1, 2), adding=(3,), removing=(1, 2)))
    replay(image, LeadershipChanged(T0, Leadership(PartitionState(3, 4, 1, (3,)), 0)))
    assert plan_move(image, T0, None).code == plan_move(image, T0, [2]).code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert plan_move(image, T0, [2, 3]) == Assignment((2, 3, 1), (3,), (1,))


def test_a_move_ends_when_a_target_can_lead(make):
    image = make.image(1, 2, t=[[2, 1]])
    assert is_complete(image, T0)
    image.shutting_down |= {1: None, 2: None}
    assert not is_complete(image, T0)


def test_assignments_change_their_topics_node_and_nothing_else_in_it():
    found = TopicAssignment({0: [1], 1: [1, 2], 2: [9]}, b"i" * 16, adding={1: [2]}, removing={2: [9]})
    step = decide_assignments("t", found, 4, {0: Assignment((2, 1), (2,), (1,)), 1: Assignment((2,))})
    (op,) = step.ops
    assert isinstance(op, SetData)
    assert (op.path, op.version) == (paths.topic("t"), 4)
    assert TopicAssignment.decode(op.data, "") == TopicAssignment(
        {0: [2, 1], 1: [2], 2: [9]}, b"i" * 16, adding={0: [2]}, removing={0: [1], 2: [9]}
    )


def test_an_assignment_for_which_the_node_has_no_room_is_refused():
    found = TopicAssignment({index: [1] * 20 for index in range(50_000)})
    assert isinstance(decide_assignments("t", found, 0, {0: Assignment((1,))}), PartitionRefused)


# Scenarios


@pytest.fixture
async def moving(cluster):
    """Four brokers; t-0 and t-1 on 1 and 2, t-2 on 2 and 1; broker 4 gets no requests."""
    await cluster.start(1, 2, 3, 4)
    await cluster.create("t", [[1, 2], [1, 2], [2, 1]])
    return cluster


async def move(cluster, **targets):
    """t0=[3, 2] moves partition 0 of t; None cancels."""
    named = {TopicPartition(name[:-1], int(name[-1])): target for name, target in targets.items()}
    return await cluster.ask(ReassignmentsAsked(named))


async def listed(cluster, *asked):
    return await cluster.ask(OngoingReassignmentsAsked(asked or None))


async def test_while_it_moves_everybody_keeps_a_replica_and_the_new_ones_copy(moving):
    for broker in moving.brokers.values():
        broker.requests.clear()
    assert await move(moving, t0=[3, 2]) == {T0: None}
    assert await moving.assignment("t") == ({0: [3, 2, 1], 1: [1, 2], 2: [2, 1]}, {0: [3]}, {0: [1]})
    state = await moving.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), 1)
    for broker_id in 1, 2, 3:
        role = moving.brokers[broker_id].roles[T0]
        assert (role.replicas, role.adding_replicas, role.removing_replicas) == ((3, 2, 1), (3,), (1,))
        assert role.is_new == (broker_id == 3)
    assert moving.brokers[4].metadata[T0].replicas == (3, 2, 1)
    assert await listed(moving) == {T0: Assignment((3, 2, 1), (3,), (1,))}
    assert await listed(moving, T1) == {}


async def test_when_the_new_replicas_are_in_sync_the_old_ones_go(moving):
    await move(moving, t0=[3, 2])
    answer = await moving.change_isr("t", 0, 1, 2, 3)
    assert (answer.state.leader, answer.state.isr, answer.state.leader_epoch) == (1, (1, 2, 3), 1)
    assert await moving.assignment("t") == ({0: [3, 2], 1: [1, 2], 2: [2, 1]}, {}, {})
    state = await moving.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (3, (2, 3), 2)
    assert T0 not in moving.brokers[1].logs
    assert moving.brokers[3].leads("t")
    role = moving.brokers[2].roles[T0]
    assert (role.leader, role.replicas, role.adding_replicas, role.removing_replicas) == (3, (3, 2), (), ())
    assert moving.brokers[4].metadata[T0].replicas == (3, 2)
    assert moving.image.partition(T0).replica_statuses == {2: ReplicaStatus.ONLINE, 3: ReplicaStatus.ONLINE}
    assert await listed(moving) == {}


async def test_only_part_of_the_target_in_sync_is_not_enough(moving):
    await move(moving, t0=[3, 4])
    await moving.change_isr("t", 0, 1, 2, 3)
    assert await listed(moving) == {T0: Assignment((3, 4, 1, 2), (3, 4), (1, 2))}
    await moving.change_isr("t", 0, 1, 2, 3, 4)
    assert (await moving.state("t")).isr == (3, 4)
    assert moving.brokers[1].logs.keys() == moving.brokers[2].logs.keys() == {T1, TopicPartition("t", 2)}


async def test_dropping_a_replica_is_done_at_once(moving):
    assert await move(moving, t0=[2]) == {T0: None}
    state = await moving.state("t")
    assert (state.leader, state.isr) == (2, (2,))
    assert T0 not in moving.brokers[1].logs
    assert (await moving.assignment("t"))[0][0] == [2]


async def test_another_order_is_another_preference(moving):
    await move(moving, t0=[2, 1])
    assert await moving.assignment("t") == ({0: [2, 1], 1: [1, 2], 2: [2, 1]}, {}, {})
    assert (await moving.state("t")).leader == 1
    assert moving.brokers[2].roles[T0].replicas == (2, 1)


async def test_a_cancelled_move_leaves_no_trace(moving):
    await move(moving, t0=[3, 4])
    await moving.change_isr("t", 0, 1, 2, 3)
    assert await move(moving, t0=None, t1=None) == {T0: None, T1: NOTHING_TO_CANCEL}
    assert await moving.assignment("t") == ({0: [1, 2], 1: [1, 2], 2: [2, 1]}, {}, {})
    state = await moving.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), 2)
    assert T0 not in moving.brokers[3].logs
    assert T0 not in moving.brokers[4].logs
    assert await listed(moving) == {}


async def test_a_move_that_is_overridden_gives_up_what_only_the_old_target_wanted(moving):
    await move(moving, t0=[3])
    await move(moving, t0=[4, 1])
    assert T0 not in moving.brokers[3].logs
    assert await listed(moving) == {T0: Assignment((4, 1, 2), (4,), (2,))}
    assert T0 in moving.brokers[4].logs


async def test_a_replica_that_comes_back_makes_its_log_again(moving):
    await move(moving, t0=[3, 1])
    await move(moving, t0=None)
    await move(moving, t0=[3, 1])
    assert T0 in moving.brokers[3].logs
    assert moving.brokers[3].roles[T0].is_new


async def test_an_added_replica_that_is_in_sync_is_not_called_new_again(moving):
    await move(moving, t0=[3, 4])
    await moving.change_isr("t", 0, 1, 2, 3)
    await moving.kill(4)
    await moving.restart(4)  # everybody hears of a new leader epoch
    role = moving.brokers[3].roles[T0]
    assert (role.isr, role.leader_epoch, role.is_new) == ((1, 2, 3), 2, False)


async def test_partitions_of_a_topic_move_with_one_write(moving):
    store, sets = moving.controller.store, []
    write = store.batch

    async def noted(items):
        sets.extend(op.path for item in items for op in item if isinstance(op, SetData))
        return await write(items)

    store.batch = noted
    assert set((await move(moving, t0=[3], t1=[3], t2=[3])).values()) == {None}
    assert sets.count(paths.topic("t")) == 1
    assert len(await listed(moving)) == 3


async def test_refusals_stand_beside_what_moves(moving):
    outcomes = await move(moving, t0=[3], t1=[9], x0=[1], t9=None)
    assert outcomes.pop(T0) is None
    assert [outcome.code for outcome in outcomes.values()] == [39, 3, 85]


async def test_a_topic_that_grows_meanwhile_keeps_its_new_partitions(moving):
    (partitions, *_), topic_id = await moving.assignment("t"), moving.image.topics["t"].topic_id
    grown = TopicAssignment({**partitions, 3: [1, 2]}, topic_id).encode()
    moving.before_write(moving.controller, paths.topic("t"), lambda: moving.store.set(paths.topic("t"), grown))
    assert await move(moving, t0=[3, 2]) == {T0: None}
    assert await moving.assignment("t") == ({0: [3, 2, 1], 1: [1, 2], 2: [2, 1], 3: [1, 2]}, {0: [3]}, {0: [1]})
    assert (await moving.state("t", 3)).leader == 1


async def test_a_topic_that_is_gone_meanwhile_does_not_move(moving):
    async def remove():
        for path in sorted([*await moving.tree(paths.topic("t")), paths.topic("t")], key=len, reverse=True):
            await moving.store.delete(path)

    moving.before_write(moving.controller, paths.topic("t"), remove)
    assert await move(moving, t0=[3, 2]) == {T0: NO_SUCH_PARTITION}


async def test_a_topic_that_is_being_deleted_does_not_move(moving):
    moving.brokers[2].failed_disk[T0] = None
    await moving.delete("t")
    assert await move(moving, t0=[3]) == {T0: NO_SUCH_PARTITION}


async def test_a_topic_is_deleted_while_its_partitions_move(moving):
    await move(moving, t0=[3, 4])
    await moving.delete("t")
    assert not await moving.exists(paths.topic("t"))
    assert all(T0 not in broker.logs for broker in moving.brokers.values())
    assert await listed(moving) == {}


async def test_a_partition_that_never_had_a_leader_gets_one_where_it_moves(cluster):
    await cluster.start(1)
    await cluster.create("t", [[9]])
    await move(cluster, t0=[1])
    assert (await cluster.state("t")).leader == 1
    assert await listed(cluster) == {}
    assert (await cluster.assignment("t"))[0] == {0: [1]}


async def test_a_partition_without_a_leader_waits_for_its_records(moving):
    """Its only replica is dead: the new one has nothing to copy until that is back."""
    await moving.create("u", [[4]])
    await moving.kill(4)
    assert await move(moving, u0=[1]) == {TopicPartition("u", 0): None}
    state = await moving.state("u")
    assert (state.leader, state.isr) == (NO_LEADER, (4,))
    assert await moving.assignment("u") == ({0: [1, 4]}, {0: [1]}, {0: [4]})
    await moving.restart(4)
    await moving.change_isr("u", 0, 4, 1)
    assert (await moving.state("u")).isr == (1,)


async def test_a_move_to_a_dead_broker_goes_on_when_it_joins(moving):
    await moving.kill(4)
    await moving.create("u", [[4, 1]])
    await move(moving, u0=[4, 2])
    await moving.restart(4)
    role = moving.brokers[4].roles[TopicPartition("u", 0)]
    assert (role.replicas, role.leader) == ((4, 2, 1), 1)


async def test_a_new_controller_goes_on_with_what_moves(moving):
    await move(moving, t0=[3, 4])
    await moving.kill(moving.controller.broker_id)
    assert await listed(moving) == {T0: Assignment((3, 4, 1, 2), (3, 4), (1, 2))}
    await moving.change_isr("t", 0, 2, 3, 4)
    assert (await moving.assignment("t"))[0][0] == [3, 4]
    assert (await moving.state("t")).isr == (3, 4)


async def test_a_new_controller_completes_what_the_old_one_left_before_its_last_write(moving):
    """The state has no old replica in sync any more, but the topic's node still says that the partition moves."""
    await move(moving, t0=[3, 4])
    await moving.write_state("t", isr=(3, 4), leader=3)
    await moving.kill(moving.controller.broker_id)
    assert await moving.assignment("t") == ({0: [3, 4], 1: [1, 2], 2: [2, 1]}, {}, {})
    assert T0 not in moving.brokers[2].logs


async def test_a_state_that_was_written_meanwhile_is_decided_on_again(moving):
    moving.before_write(
        moving.controller, paths.partition_state("t", 0), lambda: moving.write_state("t", isr=(2,), leader=2)
    )
    await move(moving, t0=[3, 2])
    state = await moving.state("t")
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 1)
    assert moving.brokers[3].roles[T0].leader == 2


async def test_an_isr_that_an_election_finds_in_the_store_completes_the_move(moving):
    """A leader of an old version has written it, and its notification will show no change any more."""
    await move(moving, t0=[2, 3])
    moving.before_write(
        moving.controller, paths.partition_state("t", 0), lambda: moving.write_state("t", isr=(1, 2, 3))
    )
    await moving.ask(ElectionAsked([T0], unclean=False))
    assert await moving.assignment("t") == ({0: [2, 3], 1: [1, 2], 2: [2, 1]}, {}, {})
    assert ((await moving.state("t")).leader, T0 in moving.brokers[1].logs) == (2, False)


async def test_a_replica_that_is_alone_in_sync_by_the_time_is_not_deleted(moving):
    """A leader of an old version has written the state meanwhile. Moved back, the partition serves what it holds."""
    moving.before_write(moving.controller, paths.partition_state("t", 0), lambda: moving.write_state("t", isr=(1,)))
    await move(moving, t0=[2])
    assert (await moving.state("t")).isr == (1,)
    assert T0 in moving.brokers[1].logs
    assert await move(moving, t0=[1, 2]) == {T0: None}
    assert ((await moving.state("t")).leader, T0 in moving.brokers[1].logs) == (1, True)


# The store's way


async def request(cluster, targets):
    await cluster.store.create(paths.REASSIGN_PARTITIONS, Reassignment(targets).encode())
    await cluster.settle()


async def requested(cluster):
    if not await cluster.exists(paths.REASSIGN_PARTITIONS):
        return None
    return Reassignment.decode(await cluster.data(paths.REASSIGN_PARTITIONS)).partitions


async def test_a_move_may_be_asked_for_in_the_store_and_stays_there_until_it_is_done(moving, caplog):
    await request(moving, {T0: [3, 2], TopicPartition("nope", 0): [1]})
    assert await requested(moving) == {T0: [3, 2]}
    assert "nope-0 is not reassigned" in caplog.text
    assert await listed(moving) == {T0: Assignment((3, 2, 1), (3,), (1,))}
    await moving.change_isr("t", 0, 1, 2, 3)
    assert await requested(moving) is None


async def test_the_store_may_be_asked_again(moving):
    for target in [2], [2, 1], [1]:
        await request(moving, {T0: target})
        await moving.change_isr("t", 0, *target)
        assert (await moving.assignment("t"))[0][0] == target
        assert await requested(moving) is None


async def test_one_that_asks_through_the_api_takes_precedence(moving):
    await request(moving, {T0: [3, 2], T1: [3]})
    await move(moving, t0=[4])
    assert await requested(moving) == {T1: [3]}
    assert (await listed(moving))[T0].adding == (4,)


async def test_in_the_store_one_may_ask_for_a_broker_that_is_not_there_and_cancel_it(moving):
    await request(moving, {T0: [9, 2]})
    assert await listed(moving) == {T0: Assignment((9, 2, 1), (9,), (1,))}
    assert await requested(moving) == {T0: [9, 2]}
    assert await move(moving, t0=None) == {T0: None}
    assert await requested(moving) is None


async def test_a_new_controller_finds_what_was_asked_for_in_the_store(moving):
    moving.brokers[moving.controller.broker_id].scope.cancel()
    old = moving.controller
    await moving.store.create(paths.REASSIGN_PARTITIONS, Reassignment({T2_0: [4]}).encode())
    await moving.kill(old.broker_id)
    assert (await listed(moving))[T2_0].adding == (4,)


T2_0 = TopicPartition("t", 2)


@pytest.mark.parametrize("data", [b"{bad", b"", b'{"version":1,"partitions":[{"topic":"t"}]}'])
async def test_what_cannot_be_read_is_left_alone_and_may_be_corrected(moving, caplog, data):
    await moving.store.create(paths.REASSIGN_PARTITIONS, data)
    await moving.settle()
    assert paths.REASSIGN_PARTITIONS in caplog.text
    await moving.store.set(paths.REASSIGN_PARTITIONS, Reassignment({T0: [2]}).encode())
    await moving.settle()
    assert (await moving.assignment("t"))[0][0] == [2]
    assert not await moving.exists(paths.REASSIGN_PARTITIONS)


async def test_an_empty_request_is_removed(moving):
    await request(moving, {})
    assert await requested(moving) is None
