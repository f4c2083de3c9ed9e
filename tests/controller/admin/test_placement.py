"""Where replicas go. The expected placements were printed by Apache Kafka 3.9.1's own `AdminUtils`."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.controller.admin.placement import (
    MixedRacks,
    NoPartitions,
    RackAwareness,
    TooFewBrokers,
    place_replicas,
    start_of_new_partitions,
)


def place(brokers, count, factor, **options):
    return place_replicas(brokers, count, factor, random.Random(0), **options)


def without_racks(*broker_ids):
    return dict.fromkeys(broker_ids)


def test_followers_shift_when_the_leaders_have_gone_round():
    assert list(place(without_racks(0, 1, 2, 3, 4), 10, 3, start=0).values()) == [
        [0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 0], [4, 0, 1],
        [0, 2, 3], [1, 3, 4], [2, 4, 0], [3, 0, 1], [4, 1, 2],
    ]  # fmt: skip


def test_further_partitions_continue_the_pattern():
    placed = place(without_racks(1, 2, 3, 4), 5, 3, start=1, first_partition=6)
    assert placed == {6: [4, 2, 3], 7: [1, 3, 4], 8: [2, 1, 3], 9: [3, 2, 4], 10: [4, 3, 1]}


def test_one_broker_holds_everything():
    assert place(without_racks(7), 3, 1, start=0) == {0: [7], 1: [7], 2: [7]}


def test_replicas_are_spread_over_racks():
    racks = dict(enumerate("bacabc"))
    assert list(place(racks, 12, 3, start=0).values()) == [
        [1, 0, 2], [0, 2, 3], [2, 3, 4], [3, 4, 5], [4, 5, 1], [5, 1, 0],
        [1, 4, 5], [0, 5, 1], [2, 1, 0], [3, 0, 2], [4, 2, 3], [5, 3, 4],
    ]  # fmt: skip


def test_a_rack_is_used_twice_when_there_are_too_few():
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    assert list(place(racks, 8, 3, start=1).values()) == [
        [4, 1, 2], [2, 4, 3], [3, 4, 2], [1, 4, 2], [4, 3, 1], [2, 4, 3], [3, 4, 2], [1, 4, 2],
    ]  # fmt: skip
    assert place(racks, 3, 2, start=3, first_partition=5) == {5: [1, 4], 6: [4, 2], 7: [2, 4]}


def test_racks_that_only_some_brokers_have_are_an_error_or_ignored():
    brokers = {1: "a", 2: None, 3: "b"}
    with pytest.raises(MixedRacks):
        place(brokers, 1, 1)
    assert place(brokers, 3, 1, start=0, rack_awareness=RackAwareness.SAFE) == {0: [1], 1: [2], 2: [3]}


def test_racks_may_be_disregarded():
    racks = {1: "a", 2: "a", 3: "b"}
    assert place(racks, 1, 2, start=0, rack_awareness=RackAwareness.DISABLED) == {0: [1, 2]}
    assert place(racks, 1, 2, start=0) == {0: [1, 3]}


@pytest.mark.parametrize(
    ("count", "factor", "error", "message"),
    [
        (0, 1, NoPartitions, "Number of partitions must be larger than 0."),
        (1, 0, TooFewBrokers, "Replication factor must be larger than 0."),
        (1, 3, TooFewBrokers, "Replication factor: 3 larger than available brokers: 2."),
        (0, 9, NoPartitions, "Number of partitions must be larger than 0."),
    ],
)
def test_what_cannot_be_placed_is_refused_in_kafkas_words(count, factor, error, message):
    with pytest.raises(error, match=message):
        place(without_racks(1, 2), count, factor)


@pytest.mark.parametrize(("first_replica", "start"), [(0, 0), (3, 1), (4, 2), (9, 0)])
def test_growth_starts_at_the_first_replica_of_the_first_partition(first_replica, start):
    assert start_of_new_partitions(without_racks(5, 1, 3), [first_replica, 1]) == start


@given(
    racks=st.lists(st.sampled_from("abc"), min_size=1, max_size=9),
    count=st.integers(1, 40),
    factor=st.integers(1, 9),
    seed=st.integers(0, 1000),
    aware=st.booleans(),
)
def test_replicas_are_distinct_and_leaders_even(racks, count, factor, seed, aware):
    brokers = {number * 10: rack if aware else None for number, rack in enumerate(racks)}
    factor = min(factor, len(brokers))
    placed = place_replicas(brokers, count, factor, random.Random(seed))
    assert list(placed) == list(range(count))
    assert all(len(set(replicas)) == factor and set(replicas) <= set(brokers) for replicas in placed.values())
    led = Counter(replicas[0] for replicas in placed.values())
    assert max(led.values()) - min(led.get(broker, 0) for broker in brokers) <= 1
    if aware:
        used = min(factor, len(set(racks)))
        assert all(len({brokers[replica] for replica in replicas}) == used for replicas in placed.values())
