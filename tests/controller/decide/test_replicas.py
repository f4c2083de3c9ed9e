"""What the controller decides, as steps: records, store operations, and what is sent."""

import pytest

from barnabas.controller.decide import replicas
from barnabas.controller.decide.leaders import (
    LeaderRules,
    decide_leaders,
    partitions_without_leader,
    topics_without_clean_leader,
)
from barnabas.controller.decide.replicas import (
    BrokerDifferences,
    compare_brokers,
    decide_deletion_answers,
    decide_replicas_lost,
    decide_replicas_of_new_partitions,
    decide_replicas_online,
    decide_resumed_deletions,
)
from barnabas.controller.decide.slices import SUBJECTS_A_SLICE
from barnabas.controller.decide.steps import Decision, Step, TellLeaderAndIsr, TellMetadata, TellStop
from barnabas.controller.image.state import (
    Assignment,
    AssignmentsChanged,
    BrokerJoined,
    BrokerLeft,
    DeletionBegun,
    DeletionHalted,
    DeletionMarked,
    DeletionResumed,
    DirectoryReported,
    Leadership,
    LeadershipChanged,
    PartitionAppeared,
    ReplicaMoved,
    TopicAppeared,
    TopicDeleted,
    replay,
    replay_all,
)
from barnabas.controller.image.transitions import PartitionStatus, ReplicaMove, ReplicaStatus
from barnabas.controller.store.paths import RECOVERED, RECOVERING, PartitionState
from barnabas.controller.store.store import ANY_VERSION, Check, Create, Delete, SetData
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
RULES = LeaderRules(controller_epoch=3)
STATE_PATH = "/brokers/topics/orders/partitions/0/state"


def new_state(decision):
    """The state and partition epoch of the only partition that a decision changes."""
    (step,) = decision.steps
    assert isinstance(step.record, LeadershipChanged)
    return step.record.leadership


def carry_out(image, decision):
    """What the shell does when the store refuses nothing."""
    replay_all(image, [step.record for step in decision.steps])
    return decision


def moves(decision, broker_id):
    return [
        step.record.move.value
        for step in decision.steps
        if isinstance(step.record, ReplicaMoved) and step.record.broker_id == broker_id
    ]


def sent(decision):
    return [tell for step in decision.steps for tell in step.tells]


# Brokers


def test_brokers_are_compared_by_epoch(make):
    known = {1: make.broker(1, epoch=10), 2: make.broker(2, epoch=20), 3: make.broker(3, epoch=30)}
    found = {1: make.broker(1, epoch=10), 2: make.broker(2, epoch=21), 4: make.broker(4, epoch=40)}
    assert compare_brokers(known, found) == BrokerDifferences(joined=(found[4],), bounced=(found[2],), left=(3,))


def test_a_registration_older_than_the_known_one_means_nothing(make):
    known = {1: make.broker(1, epoch=10)}
    assert compare_brokers(known, {1: make.broker(1, epoch=9)}) == BrokerDifferences((), (), ())


def test_a_broker_that_joins_gets_all_its_roles(make):
    image = make.image(1, 2, orders=[[1, 2], [2]])
    decision = decide_replicas_online(image, image.replicas_on({2: None}))
    assert moves(decision, 2) == ["start", "start"]
    assert sent(decision) == [TellLeaderAndIsr(ORDERS, (2,)), TellLeaderAndIsr(TopicPartition("orders", 1), (2,))]


def test_a_replica_on_a_failed_disk_is_not_started(make):
    image = make.image(1, 2, orders=[[1, 2]])
    replay(image, DirectoryReported(ORDERS, 2, works=False))
    assert decide_replicas_online(image, image.replicas_on({2: None})) == Decision()


def test_a_lost_replica_is_stopped_and_announced(make):
    image = make.image(1, 2, orders=[[1, 2]])
    decision = decide_replicas_lost(image, [(ORDERS, 2)])
    assert decision.steps == [
        Step(ReplicaMoved(ORDERS, 2, ReplicaMove.STOP), (), (TellStop(ORDERS, 2, False), TellMetadata((ORDERS,))))
    ]


def test_replicas_of_a_new_partition_start_where_their_brokers_live(make):
    image = make.image(1, 2)
    replay_all(image, [TopicAppeared("orders", bytes(16)), PartitionAppeared(ORDERS, (3, 1))])
    decision = decide_replicas_of_new_partitions(image, [ORDERS])
    assert (moves(decision, 1), moves(decision, 3)) == (["start"], ["stop"])


# Leaders


def new_partition(make, broker_ids, replicas):
    image = make.image(*broker_ids)
    replay_all(image, [TopicAppeared("orders", bytes(16)), PartitionAppeared(ORDERS, replicas)])
    return image


def test_the_first_live_replica_leads_a_new_partition(make):
    decision = decide_leaders(new_partition(make, [1, 2], (3, 2, 1)), [ORDERS], RULES)
    state = PartitionState(leader=2, leader_epoch=0, controller_epoch=3, isr=(2, 1))
    assert decision.prepare == [(Create(STATE_PATH.rsplit("/", 2)[0]),), (Create(STATE_PATH.rsplit("/", 1)[0]),)]
    assert decision.steps == [
        Step(
            LeadershipChanged(ORDERS, Leadership(state, 0)),
            (Create(STATE_PATH, state.encode()),),
            (TellLeaderAndIsr(ORDERS, (2, 1), is_new=True),),
        )
    ]


def test_a_new_partition_without_a_live_replica_stays_new(make):
    image = new_partition(make, [1], (3,))
    assert decide_leaders(image, [ORDERS], RULES) == Decision()
    assert partitions_without_leader(image) == [ORDERS]


def test_parents_are_created_once_for_all_partitions_of_a_topic(make):
    image = new_partition(make, [1], (1,))
    second = TopicPartition("orders", 1)
    replay(image, PartitionAppeared(second, (1,)))
    decision = decide_leaders(image, [ORDERS, second], RULES)
    assert [op.path.rpartition("/")[2] for (op,) in decision.prepare] == ["partitions", "0", "1"]


def test_a_dead_leader_is_replaced_in_one_conditional_write(make):
    image = make.image(1, 2, 3, orders=[[1, 2, 3]])
    replay(image, BrokerLeft(1))
    decision = decide_leaders(image, [ORDERS], RULES)
    state = PartitionState(leader=2, leader_epoch=6, controller_epoch=3, isr=(2, 3))
    assert decision.steps == [
        Step(
            LeadershipChanged(ORDERS, Leadership(state, 8)),
            (SetData(STATE_PATH, state.encode(), version=7),),
            (TellLeaderAndIsr(ORDERS, (2, 3)),),
        )
    ]


def test_a_dead_follower_leaves_the_isr_and_the_leader_epoch_rises(make):
    image = make.image(1, 2, 3, orders=[[1, 2, 3]])
    replay(image, BrokerLeft(3))
    state, _ = new_state(decide_leaders(image, [ORDERS], RULES))
    assert (state.leader, state.isr, state.leader_epoch) == (1, (1, 2), 6)


def test_the_last_member_of_an_isr_stays_in_it_when_it_dies(make):
    image = make.image(1, 2, orders=[[1]])
    replay(image, BrokerLeft(1))
    state, _ = new_state(decide_leaders(image, [ORDERS], RULES))
    assert (state.leader, state.isr, state.leader_epoch) == (NO_LEADER, (1,), 6)


def test_an_isr_that_dies_at_once_stays_whole(make):
    image = make.image(1, 2, 3, orders=[[1, 2]])
    replay_all(image, [BrokerLeft(1), BrokerLeft(2)])
    state, _ = new_state(decide_leaders(image, [ORDERS], RULES))
    assert (state.leader, state.isr) == (NO_LEADER, (1, 2))


def test_deciding_again_changes_nothing(make):
    image = make.image(1, 2, 3, orders=[[1, 2, 3], [2, 3], [3]])
    every = [partition for partition, _ in image.partitions()]
    replay_all(image, [BrokerLeft(1), BrokerLeft(3)])
    assert len(carry_out(image, decide_leaders(image, every, RULES)).steps) == 3
    assert decide_leaders(image, every, RULES) == Decision()


def test_a_member_of_the_isr_that_returns_leads_again(make):
    image = make.image(1, 2, orders=[[1]])
    replay(image, BrokerLeft(1))
    carry_out(image, decide_leaders(image, [ORDERS], RULES))
    replay(image, BrokerJoined(make.broker(1, epoch=500)))
    state, epoch = new_state(decide_leaders(image, [ORDERS], RULES))
    assert (state.leader, state.leader_epoch, state.isr, epoch) == (1, 7, (1,), 9)


@pytest.fixture
def out_of_sync(make):
    """Only broker 2 lives, and it is not in the ISR."""
    image = make.image(1, 2, orders=[[1, 2]])
    state = PartitionState(1, 6, 1, (1,))
    replay_all(image, [LeadershipChanged(ORDERS, Leadership(state, 8)), BrokerLeft(1)])
    return image


def test_a_replica_out_of_sync_does_not_lead(out_of_sync):
    state, _ = new_state(decide_leaders(out_of_sync, [ORDERS], RULES))
    assert (state.leader, state.isr) == (NO_LEADER, (1,))


def test_a_replica_out_of_sync_leads_where_that_is_allowed_and_is_recovering(out_of_sync):
    state, _ = new_state(decide_leaders(out_of_sync, [ORDERS], LeaderRules(3, {"orders": None})))
    assert (state.leader, state.isr, state.leader_recovery_state) == (2, (2,), RECOVERING)


def test_brokers_that_know_no_recovery_state_are_not_given_one(out_of_sync):
    rules = LeaderRules(3, {"orders": None}, marks_recovery=False)
    state, _ = new_state(decide_leaders(out_of_sync, [ORDERS], rules))
    assert (state.leader, state.leader_recovery_state) == (2, RECOVERED)


def test_a_clean_election_keeps_the_recovery_state(make):
    image = make.image(1, 2, orders=[[1, 2]])
    recovering = PartitionState(1, 6, 1, (1, 2), RECOVERING)
    replay_all(image, [LeadershipChanged(ORDERS, Leadership(recovering, 8)), BrokerLeft(1)])
    state, _ = new_state(decide_leaders(image, [ORDERS], RULES))
    assert (state.leader, state.leader_recovery_state) == (2, RECOVERING)


def test_configs_matter_only_where_no_clean_leader_is_left(make, out_of_sync):
    assert topics_without_clean_leader(out_of_sync, [ORDERS]) == {"orders": None}
    assert topics_without_clean_leader(make.image(1, orders=[[1]]), [ORDERS]) == {}
    replay(out_of_sync, BrokerLeft(2))
    assert topics_without_clean_leader(out_of_sync, [ORDERS]) == {}


def test_a_failed_disk_costs_the_leadership_like_a_dead_broker(make):
    image = make.image(1, 2, orders=[[1, 2]])
    replay(image, DirectoryReported(ORDERS, 1, works=False))
    (step,) = decide_leaders(image, [ORDERS], RULES).steps
    assert step.record.leadership.state.leader == 2
    assert step.tells == (TellLeaderAndIsr(ORDERS, (2,)),)


def test_a_topic_that_is_deleted_has_no_elections(make):
    image = make.image(1, 2, orders=[[1, 2]])
    replay_all(image, [DeletionMarked("orders"), BrokerLeft(1)])
    assert decide_leaders(image, [ORDERS], RULES) == Decision()
    assert topics_without_clean_leader(image, [ORDERS]) == {}


# Deletion


@pytest.fixture
def marked(make):
    """A topic on two brokers that is marked for deletion."""
    image = make.image(1, 2, orders=[[1, 2]])
    replay(image, DeletionMarked("orders"))
    return image


def confirm(image, *broker_ids):
    for broker_id in broker_ids:
        carry_out(image, decide_deletion_answers(image, broker_id, [ORDERS], []))


def decide_deletions(image):
    """The whole decision."""
    decision = Decision()
    for part in replicas.decide_deletions(image):
        decision.extend(part)
    return decision


def test_the_deletion_of_a_large_topic_is_decided_in_parts(make):
    image = make.image(1, 2, orders=[[1, 2]] * 1000)
    replay(image, DeletionMarked("orders"))
    parts = list(replicas.decide_deletions(image))
    assert max(len(part.steps) for part in parts) <= 4 * SUBJECTS_A_SLICE
    begun = [step.record for part in parts for step in part.steps if isinstance(step.record, DeletionBegun)]
    assert sum(len(record.partitions) for record in begun) == 1000
    assert max(len(record.partitions) for record in begun) <= SUBJECTS_A_SLICE
    assert len(sent(decide_deletions(image))) == len(begun) + 2000


def test_deletion_announces_that_the_topic_is_gone_before_replicas_are_deleted(marked):
    decision = decide_deletions(marked)
    assert decision.steps[0] == Step(DeletionBegun("orders", (ORDERS,)), (), (TellMetadata((ORDERS,)),))
    assert sent(decision)[1:] == [TellStop(ORDERS, 1, True), TellStop(ORDERS, 2, True)]
    assert moves(decision, 1) == moves(decision, 2) == ["stop", "begin deletion"]


def test_deletion_waits_for_every_answer(marked):
    carry_out(marked, decide_deletions(marked))
    confirm(marked, 1)
    assert decide_deletions(marked) == Decision()


def test_the_mark_goes_last_and_with_the_topic(marked):
    carry_out(marked, decide_deletions(marked))
    confirm(marked, 1, 2)
    decision = decide_deletions(marked)
    mark = Check("/admin/delete_topics/orders", ANY_VERSION)
    assert decision.prepare == [
        (mark, Delete("/brokers/topics/orders/partitions/0/state")),
        (mark, Delete("/brokers/topics/orders/partitions/0")),
        (mark, Delete("/brokers/topics/orders/partitions")),
        (mark, Delete("/config/topics/orders")),
    ]
    assert decision.steps == [
        Step(TopicDeleted("orders"), (Delete("/brokers/topics/orders"), Delete("/admin/delete_topics/orders")))
    ]


def test_a_dead_broker_halts_the_deletion_after_the_others_were_notified(marked):
    replay(marked, BrokerLeft(2))
    decision = carry_out(marked, decide_deletions(marked))
    assert moves(decision, 1) == ["stop", "begin deletion"]
    assert moves(decision, 2) == ["stop", "refuse deletion"]
    confirm(marked, 1)
    assert decide_deletions(marked) == Decision()


def test_a_halted_deletion_goes_on_when_the_broker_returns(make, marked):
    replay(marked, BrokerLeft(2))
    carry_out(marked, decide_deletions(marked))
    confirm(marked, 1)
    replay(marked, BrokerJoined(make.broker(2, epoch=500)))
    assert moves(carry_out(marked, decide_replicas_online(marked, marked.replicas_on({2: None}))), 2) == ["start"]
    assert carry_out(marked, decide_resumed_deletions(marked, {2: None})).steps == [Step(DeletionResumed("orders"))]
    assert sent(carry_out(marked, decide_deletions(marked))) == [TellStop(ORDERS, 2, True)]
    confirm(marked, 2)
    assert decide_deletions(marked).steps[0].record == TopicDeleted("orders")


def test_a_broker_that_returns_with_a_topic_to_delete_gets_no_role(make, marked):
    assert sent(decide_replicas_online(marked, marked.replicas_on({2: None}))) == []


def test_a_broker_that_dies_while_it_deletes_halts_the_deletion(marked):
    carry_out(marked, decide_deletions(marked))
    replay(marked, BrokerLeft(2))
    decision = carry_out(marked, decide_replicas_lost(marked, [(ORDERS, 2)]))
    assert moves(decision, 2) == ["refuse deletion"]
    assert marked.deletions["orders"].halted


def test_a_broker_that_dies_after_it_deleted_halts_nothing(marked):
    carry_out(marked, decide_deletions(marked))
    confirm(marked, 2)
    replay(marked, BrokerLeft(2))
    assert decide_replicas_lost(marked, [(ORDERS, 2)]) == Decision()
    confirm(marked, 1)
    assert decide_deletions(marked).steps[0].record == TopicDeleted("orders")


def test_a_refused_deletion_halts_until_a_broker_joins(marked):
    carry_out(marked, decide_deletions(marked))
    decision = carry_out(marked, decide_deletion_answers(marked, 2, [], [ORDERS]))
    assert decision.steps[-1].record == DeletionHalted("orders")
    confirm(marked, 1)
    assert decide_deletions(marked) == Decision()
    carry_out(marked, decide_resumed_deletions(marked, {2: None}))
    assert sent(decide_deletions(marked)) == [TellStop(ORDERS, 2, True)]


def test_answers_about_what_is_not_being_deleted_mean_nothing(make, marked):
    assert decide_deletion_answers(marked, 1, [ORDERS, TopicPartition("gone", 0)], []) == Decision()
    assert decide_deletion_answers(make.image(1, orders=[[1]]), 1, [], [ORDERS]) == Decision()


def test_only_deletions_with_a_replica_on_the_broker_resume(marked):
    assert decide_resumed_deletions(marked, {3: None}) == Decision()


def test_a_deletion_resumes_for_a_replica_that_is_not_assigned_any_more(marked):
    replay(marked, AssignmentsChanged("orders", {0: Assignment((1,))}))
    replay(marked, BrokerLeft(2))
    assert carry_out(marked, decide_deletions(marked)).steps[-1].record == DeletionHalted("orders")
    assert decide_resumed_deletions(marked, {2: None}) == Decision([Step(DeletionResumed("orders"))])


def test_a_topic_without_replicas_is_deleted_at_once(make):
    image = make.image(1)
    replay_all(image, [TopicAppeared("empty", bytes(16)), DeletionMarked("empty")])
    assert decide_deletions(image).steps[0].record == TopicDeleted("empty")


def test_deletion_ends_with_partitions_and_replicas_that_do_not_exist(marked):
    carry_out(marked, decide_deletions(marked))
    partition = marked.partition(ORDERS)
    assert partition.status is PartitionStatus.NON_EXISTENT
    assert partition.replica_statuses == {1: ReplicaStatus.DELETION_STARTED, 2: ReplicaStatus.DELETION_STARTED}
