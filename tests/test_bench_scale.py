"""The controller's measurement in a small cluster: what must hold exactly, whatever the size."""

import pytest

from bench.scale_controller import REPLICATION_FACTOR, Scale, run_phases

SCALE = Scale(brokers=6, partitions=330)


@pytest.fixture(scope="module")
def phases():
    return run_phases(SCALE)


def phase(phases, name, which=0):
    return [each for each in phases if each.name == name][which]


def partitions_sent(phase, api):
    return phase.sent[api].partitions


def test_a_dead_broker_costs_one_write_and_two_roles_for_each_of_its_replicas(phases):
    killed = phase(phases, "a broker is killed")
    affected = killed.held
    assert killed.writes == len(affected)
    # The roles go to the two replicas that are left, the metadata to all brokers that are left.
    assert set(killed.named["LeaderAndIsr"]) == set(killed.named["UpdateMetadata"]) == set(affected)
    assert partitions_sent(killed, "LeaderAndIsr") == (REPLICATION_FACTOR - 1) * len(affected)
    assert partitions_sent(killed, "UpdateMetadata") == (SCALE.brokers - 1) * len(affected)
    assert "StopReplica" not in killed.sent


def test_a_broker_that_returns_gets_its_roles_and_all_metadata_without_a_write(phases):
    returned, held = phase(phases, "it returns"), phase(phases, "a broker is killed").held
    assert returned.writes == 0
    assert set(returned.named["LeaderAndIsr"]) == set(held)
    assert partitions_sent(returned, "LeaderAndIsr") == len(held)
    # All partitions to it, and those of its roles to every broker.
    assert partitions_sent(returned, "UpdateMetadata") == SCALE.partitions + SCALE.brokers * len(held)


def test_rejoining_an_isr_is_one_write_a_partition_and_metadata_for_all(phases):
    rejoined, held = phase(phases, "its replicas rejoin the ISRs"), phase(phases, "a broker is killed").held
    assert rejoined.writes == len(held)
    assert set(rejoined.sent) == {"UpdateMetadata"}
    assert partitions_sent(rejoined, "UpdateMetadata") == SCALE.brokers * len(held)


def test_a_clean_stop_writes_each_partition_once_and_its_end_writes_nothing(phases):
    asked, gone = phase(phases, "a broker asks to stop"), phase(phases, "it is gone")
    assert asked.writes == len(asked.held)
    assert set(asked.named["LeaderAndIsr"]) == set(asked.held)
    assert gone.writes == 0
    assert set(gone.sent) == {"UpdateMetadata"}


def test_a_new_controller_reads_each_partition_once_and_sends_each_replica_its_role(phases):
    resigned = phase(phases, "the controller resigns")
    topics = -(-SCALE.partitions // 100)
    # A node for each partition and topic; the rest is a few nodes for each broker and each kind.
    assert 0 <= resigned.reads - SCALE.partitions - topics <= 2 * SCALE.brokers + 20
    assert resigned.writes == 1  # its election
    assert partitions_sent(resigned, "LeaderAndIsr") == REPLICATION_FACTOR * SCALE.partitions
    assert partitions_sent(resigned, "UpdateMetadata") == SCALE.brokers * SCALE.partitions


def test_no_request_names_more_partitions_than_a_receiver_handles_in_a_step(phases):
    for each in phases:
        for sent in each.sent.values():
            assert sent.most_partitions <= 300, (each.name, sent)
