"""Elections and reassignments on a cluster of one broker."""

from barnabas.wire import messages as m
from compat_tests.differential.scenario import scenario

TIMEOUT_MS = 10_000


def _elect(topics, kind=0, timeout_ms=TIMEOUT_MS):
    """[(topic, [partition])] or None for all"""
    Topic = m.ElectLeadersRequest.TopicPartitions
    rows = None if topics is None else [Topic(topic=name, partitions=indexes) for name, indexes in topics]
    return m.ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=timeout_ms)


@scenario
def leaders_are_elected(side):
    topic, unknown = side.create_topic("one", 2), side.name("unknown")
    for version in range(3):
        cases = {
            "elected already": _elect([(topic, [0, 1])]),
            "unknown topic": _elect([(unknown, [0])]),
            "unknown partition": _elect([(topic, [9, -1])]),
            "bad name": _elect([("..", [0])]),
            "nothing": _elect([]),
            "no partitions": _elect([(topic, [])]),
            "partition twice": _elect([(topic, [0, 0])]),
            "good and bad": _elect([(topic, [0]), (unknown, [0])]),
            "all": _elect(None),
            "timeout 0": _elect([(topic, [0])], timeout_ms=0),
        }
        if version:
            cases |= {
                "unclean": _elect([(topic, [0, 1])], 1),
                "unclean of unknown": _elect([(unknown, [0])], 1),
                "all, unclean": _elect(None, 1),
                **{f"kind {kind}": _elect([(topic, [0])], kind) for kind in (2, 9, -1)},
            }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


def _reassign(topics):
    """[(topic, [(partition, brokers or None to cancel)])]"""
    Topic, Partition = (
        m.AlterPartitionReassignmentsRequest.ReassignableTopic,
        m.AlterPartitionReassignmentsRequest.ReassignablePartition,
    )
    rows = [
        Topic(name=name, partitions=[Partition(partition_index=index, replicas=brokers) for index, brokers in asked])
        for name, asked in topics
    ]
    return m.AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=rows)


def _reassignments(topics):
    Topic = m.ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
    rows = None if topics is None else [Topic(name=name, partition_indexes=indexes) for name, indexes in topics]
    return m.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=rows)


@scenario
def partitions_are_reassigned(side):
    topic, unknown = side.create_topic("one", 2), side.name("unknown")
    cases = {
        "to where they are": _reassign([(topic, [(0, [1]), (1, [1])])]),
        "to an unknown broker": _reassign([(topic, [(0, [7])])]),
        "to a negative broker": _reassign([(topic, [(0, [-1])])]),
        "to one broker twice": _reassign([(topic, [(0, [1, 1])])]),
        "to none": _reassign([(topic, [(0, [])])]),
        "to a known and an unknown one": _reassign([(topic, [(0, [1, 2])])]),
        "cancel what is none": _reassign([(topic, [(0, None)])]),
        "unknown topic": _reassign([(unknown, [(0, [1])])]),
        "unknown partition": _reassign([(topic, [(9, [1])])]),
        "cancel of an unknown topic": _reassign([(unknown, [(0, None)])]),
        "bad name": _reassign([("..", [(0, [1])])]),
        "nothing": _reassign([]),
        "no partitions": _reassign([(topic, [])]),
        "partition twice": _reassign([(topic, [(0, [1]), (0, [1])])]),
        "good and bad": _reassign([(topic, [(0, [1]), (1, [7])]), (unknown, [(0, [1])])]),
        "list all": _reassignments(None),
        "list some": _reassignments([(topic, [0, 1])]),
        "list unknown": _reassignments([(unknown, [0]), (topic, [9])]),
        "list nothing": _reassignments([]),
    }
    with side.connect() as client:
        for name, request in cases.items():
            yield name, client.ask(request, 0)
