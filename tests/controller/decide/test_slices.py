"""How long work is cut: partitions of a topic that clients should see at once stay together."""

from barnabas.controller.decide.slices import PARTITIONS_SEEN_TOGETHER, in_whole_topics
from barnabas.wire.topics import TopicPartition


def partitions(*topics: tuple[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, index) for name, count in topics for index in range(count)]


def sizes(topics, size):
    parts = list(in_whole_topics(partitions(*topics), size))
    assert [each for part in parts for each in part] == partitions(*topics)
    return [len(part) for part in parts]


def test_small_topics_share_a_list():
    assert sizes([("a", 100), ("b", 150), ("c", 100), ("d", 200)], 300) == [250, 300]


def test_a_topic_that_is_larger_than_a_list_has_one_of_its_own():
    assert sizes([("a", 10), ("b", 700), ("c", 10)], 300) == [10, 700, 10]


def test_only_a_very_large_topic_is_cut():
    assert sizes([("a", 2 * PARTITIONS_SEEN_TOGETHER + 1), ("b", 5)], 300) == [1000, 1000, 6]


def test_of_nothing_there_is_no_list():
    assert sizes([], 300) == []
