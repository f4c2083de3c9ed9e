"""How the leader of a group divides partitions."""

from barnabas.client.membership import range_assignment
from barnabas.wire.topics import TopicPartition


def parts(topic, *indexes):
    return [TopicPartition(topic, index) for index in indexes]


def test_neighbouring_partitions_go_to_one_member_and_the_first_ones_get_one_more():
    found = range_assignment({"m2": ["t"], "m1": ["t"], "m3": ["t"]}, {"t": 7})
    assert found == {"m1": parts("t", 0, 1, 2), "m2": parts("t", 3, 4), "m3": parts("t", 5, 6)}


def test_a_topic_goes_to_those_that_want_it_alone():
    found = range_assignment({"a": ["x", "y"], "b": ["y", "unknown"]}, {"x": 2, "y": 1})
    assert found == {"a": parts("x", 0, 1) + parts("y", 0), "b": []}
