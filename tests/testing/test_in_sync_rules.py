"""I19: when a high watermark may pass a batch, and when acks=all may be answered."""

import pytest

from barnabas.controller.store.paths import PartitionState
from barnabas.testing.simulation.in_sync_rules import Election, InSyncRules
from tests.testing.truths import batch, truth_of

EPOCH = 3


@pytest.fixture
def broken():
    return []


@pytest.fixture
def rules(broken):
    return InSyncRules(lambda rule, text: broken.append(rule))


def held_by(*brokers):
    """A partition with one batch that these brokers have."""
    truth = truth_of(batch(0, epoch=EPOCH))
    truth.holders[0, EPOCH] = set(brokers)
    return truth


def states(*isrs, epoch=EPOCH):
    """What the metadata store had, one after the other."""
    return [Election(PartitionState(isr[0], epoch, 0, isr, 0), 0.0, frozenset()) for isr in isrs]


def test_a_high_watermark_waits_for_every_member_of_the_last_state_of_its_epoch(rules, broken):
    truth = held_by(1, 2)
    rules.committed(truth, batch(0, epoch=EPOCH), EPOCH, states((1, 2, 3), (1, 2)))
    assert broken == []
    rules.committed(truth, batch(0, epoch=EPOCH), EPOCH, states((1, 2), (1, 2, 3)))
    assert broken == ["I19"]


def test_members_under_another_leader_do_not_count(rules, broken):
    rules.committed(held_by(1), batch(0, epoch=EPOCH), EPOCH, states((1,)) + states((2, 3), epoch=EPOCH + 1))
    assert broken == []


def test_the_states_of_the_next_topic_of_that_name_do_not_count(rules, broken):
    truth = held_by(1)
    truth.is_deleted = True
    rules.committed(truth, batch(0, epoch=EPOCH), EPOCH, states((1, 2)))
    assert broken == []


def test_acks_all_is_answered_when_so_many_have_it_as_the_topic_wants(rules, broken):
    rules.replicas_min = {"t": 2}
    rules.acked(held_by(1, 3), batch(0, epoch=EPOCH))
    assert broken == []
    rules.acked(held_by(1), batch(0, epoch=EPOCH))
    assert broken == ["I19"]


def test_acks_all_is_answered_by_fewer_where_a_reassignment_has_left_fewer(rules, broken):
    rules.replicas_min = {"t": 2}
    truth = held_by(1)
    truth.replica_counts |= {EPOCH - 1: 1, EPOCH: 3}
    rules.acked(truth, batch(0, epoch=EPOCH))
    assert broken == ["I19"], "that an earlier leader had one replica does not count"
    truth.replica_counts[EPOCH + 1] = 1
    rules.acked(truth, batch(0, epoch=EPOCH))
    assert broken == ["I19"]
