"""CreateTopics and DeleteTopics in all versions."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import NO_ID, new_topic
from compat_tests.differential.scenario import scenario

UNKNOWN_ID = b"\x12" * 16
TIMEOUT_MS = 15_000


def _create(*topics, timeout_ms=TIMEOUT_MS, validate_only=False):
    return m.CreateTopicsRequest(topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only)


@scenario
def create_topics(side):
    for version in range(8):

        def new(of, *rest, version=version, **fields):
            return new_topic(side.name(f"{version}-{of}"), *rest, **fields)

        cases = {
            "one": _create(new("one", 2)),
            "the same again": _create(new("one", 2)),
            "defaults": _create(new("defaults", -1, -1)),
            "default replicas": _create(new("default-replicas", 2, -1)),
            "default partitions": _create(new("default-partitions", -1, 1)),
            "no partitions": _create(new("none", 0, 1)),
            "-2 partitions": _create(new("none", -2, 1)),
            "no replicas": _create(new("none", 1, 0)),
            "two replicas": _create(new("none", 1, 2)),
            "-2 replicas": _create(new("none", 1, -2)),
            "no partitions and replicas": _create(new("none", 0, 0)),
            "bad names": _create(*map(new_topic, ("..", ".", "", "a/b", "x" * 250, "ü", "a b"))),
            "a name twice": _create(new("twice"), new("twice"), new("once")),
            "a dotted name": _create(new("a.b")),
            "a colliding name": _create(new("a_b")),
            "internal, there": _create(new_topic("__consumer_offsets")),
            "nothing": _create(),
            "good and bad": _create(new("good"), new("one"), new_topic(".."), new("none", 0)),
            "timeout 0": _create(new("timeout-0"), timeout_ms=0),
            "timeout -1": _create(new("timeout-minus"), timeout_ms=-1),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def create_topics_by_assignment(side):
    assignments = {
        "two": [(0, [1]), (1, [1])],
        "gap": [(0, [1]), (2, [1])],
        "from 1": [(1, [1])],
        "negative": [(-1, [1]), (0, [1])],
        "broker twice": [(0, [1, 1])],
        "partition twice": [(0, [1]), (0, [1])],
        "uneven": [(0, [1]), (1, [1, 2])],
    }
    for version in range(8):
        cases = {
            name: _create(new_topic(side.name(f"{version}-{index}"), -1, -1, assigned=assigned))
            for index, (name, assigned) in enumerate(assignments.items())
        }
        two = assignments["two"]
        cases |= {
            "with partitions": _create(new_topic(side.name(f"{version}-n"), 2, -1, assigned=two)),
            "with replicas": _create(new_topic(side.name(f"{version}-r"), -1, 1, assigned=two)),
            "bad name": _create(new_topic("..", -1, -1, assigned=two)),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def create_topics_on_brokers_that_are_not_there(side):
    """They are created, and have no leader within the time."""
    for version in (0, 4, 7):
        for index, brokers in enumerate(([7], [-1], [])):
            topic = new_topic(side.name(f"{version}-{index}"), -1, -1, assigned=[(0, brokers)])
            yield f"v{version} brokers {brokers}", side.ask(_create(topic, timeout_ms=300), version)
            side.give_up_topic(topic.name)


@scenario
def create_topics_only_to_validate(side):
    there = side.create_topic("there")
    dotted = side.create_topic("dotted.name")
    colliding = dotted.replace(".", "_")
    for version in range(1, 8):

        def new(of, *rest, version=version, **fields):
            return new_topic(side.name(f"{version}-{of}"), *rest, **fields)

        cases = {
            "good": _create(new("good", 2, configs=[("retention.ms", "5")]), validate_only=True),
            "there": _create(new_topic(there), validate_only=True),
            "no partitions": _create(new("none", 0), validate_only=True),
            "defaults": _create(new("defaults", -1, -1), validate_only=True),
            "a name twice": _create(new("twice"), new("twice"), validate_only=True),
            "timeout 0": _create(new("zero"), timeout_ms=0, validate_only=True),
            "assigned": _create(new("assigned", -1, -1, assigned=[(0, [1]), (1, [1])]), validate_only=True),
            "bad config": _create(new("config", configs=[("retention.ms", "x")]), validate_only=True),
            "unknown config": _create(new("config", configs=[("no.such", "1")]), validate_only=True),
            "null config": _create(new("config", configs=[("retention.ms", None)]), validate_only=True),
            "no replicas": _create(new("none", 1, 0), validate_only=True),
            "two replicas": _create(new("none", 1, 2), validate_only=True),
            "counts and assigned": _create(new("none", assigned=[(0, [1])]), validate_only=True),
            "bad names": _create(*map(new_topic, ("..", "a/b", "x" * 250)), validate_only=True),
            "a colliding name": _create(new_topic(colliding), new("beside"), validate_only=True),
            "good, in earnest": _create(new("good", 2)),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def create_topics_with_configs(side):
    configs = {
        "two": [("retention.ms", "1234"), ("cleanup.policy", "compact,delete")],
        "unknown": [("nope", "1")],
        "not a number": [("retention.ms", "abc")],
        "out of range": [("segment.bytes", "1")],
        "not a choice": [("compression.type", "rar")],
        "null": [("retention.ms", None)],
        "twice": [("retention.ms", "1000"), ("retention.ms", "2000")],
        "no name": [("", "1000")],
        "broker's name": [("log.retention.ms", "1000")],
    }
    for version in range(8):
        cases = {
            name: _create(new_topic(side.name(f"{version}-{index}"), configs=pairs))
            for index, (name, pairs) in enumerate(configs.items())
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


def _delete(*topics, timeout_ms=TIMEOUT_MS):
    """Topics as names, for versions to 5, or as (name, id)."""
    State = m.DeleteTopicsRequest.DeleteTopicState
    states = [State(name=topic, topic_id=NO_ID) for topic in topics if isinstance(topic, str)]
    states += [State(name=topic[0], topic_id=topic[1]) for topic in topics if not isinstance(topic, str)]
    names = [topic for topic in topics if isinstance(topic, str)]
    return m.DeleteTopicsRequest(topics=states, topic_names=names, timeout_ms=timeout_ms)


@scenario
def delete_topics(side):
    unknown = side.name("unknown")
    for version in range(7):
        topics = [side.create_topic(f"{version}-{index}") for index in range(5)]
        cases = {
            "one": _delete(topics[0]),
            "again": _delete(topics[0]),
            "unknown": _delete(unknown),
            "bad names": _delete("..", "", "a/b"),
            "a name twice": _delete(topics[1], topics[1]),
            "an unknown name twice": _delete(unknown, unknown),
            "known and unknown": _delete(topics[2], unknown),
            "nothing": _delete(),
            "timeout 0": _delete(topics[3], timeout_ms=0),
            "timeout -1": _delete(topics[4], timeout_ms=-1),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)


@scenario
def delete_topics_by_id(side):
    names = [side.create_topic(str(index)) for index in range(11)]
    ids = [side.topic_id(name) for name in names]
    cases = {
        "id": _delete((None, ids[1])),
        "id and name": _delete((names[2], ids[2])),
        "id and another name": _delete((names[2], ids[3])),
        "neither": _delete((None, NO_ID)),
        "unknown": _delete((None, UNKNOWN_ID)),
        "twice": _delete((None, ids[9]), (None, ids[9])),
        "by id and by name": _delete((names[10], NO_ID), (None, ids[10])),
        "unknown twice": _delete((None, UNKNOWN_ID), (None, UNKNOWN_ID)),
        "mixed": _delete((names[4], NO_ID), (None, ids[5]), (None, UNKNOWN_ID), ("..", NO_ID)),
        "timeout 0": _delete((None, ids[6]), timeout_ms=0),
        "contradiction and a good one": _delete((names[7], ids[7]), (names[8], NO_ID)),
        "still there": _delete((names[7], NO_ID)),
        "deleted with it": _delete((names[8], NO_ID)),
    }
    with side.connect() as client:
        yield from client.ask_all(6, cases)
