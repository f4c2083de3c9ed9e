"""KIP-392: which follower a consumer is sent to."""

import pytest

from barnabas.broker.fetching.preferred_replica import choose_replica
from barnabas.replication.isr import Follower
from barnabas.world.metadata import BrokerInfo

RACKS = {1: "r1", 2: "r2", 3: "r2", 4: None}
BROKERS = {each: BrokerInfo(each, {}, rack) for each, rack in RACKS.items()}
LEADER = 1


def follower(broker_id: int, start: int = 0, end: int = 10, caught_up_ms: float = 5) -> Follower:
    return Follower(broker_id, log_start_offset=start, log_end_offset=end, last_caught_up_ms=caught_up_ms)


def chosen(*followers: Follower, rack="r2", offset=5, in_sync=(1, 2, 3, 4), brokers=BROKERS) -> int | None:
    return choose_replica(rack, offset, RACKS[LEADER], in_sync, followers, brokers)


def test_a_consumer_goes_to_the_follower_in_its_rack():
    assert chosen(follower(2), follower(4)) == 2


@pytest.mark.parametrize("rack", ["", "r1", "r9"])
def test_it_stays_with_the_leader_when_that_is_as_near_as_anybody(rack):
    assert chosen(follower(2), follower(4), rack=rack) is None


@pytest.mark.parametrize("far", [{"end": 4}, {"start": 6}])
def test_a_follower_without_the_offset_is_no_choice(far):
    assert chosen(follower(2, **far)) is None


def test_a_follower_that_is_not_in_sync_is_no_choice():
    assert chosen(follower(2), in_sync=(1, 3)) is None


def test_a_follower_that_is_not_alive_is_no_choice():
    assert chosen(follower(2), brokers={1: BROKERS[1]}) is None


def test_the_replica_with_the_most_records_caught_up_last_is_taken():
    assert chosen(follower(2, end=11), follower(3)) == 2
    assert chosen(follower(2, caught_up_ms=6), follower(3)) == 2
    assert chosen(follower(2), follower(3)) == 3
