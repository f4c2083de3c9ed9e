"""Where replicas are: placed by hand or by racks, reassigned, elected, moved between directories."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, new_topic, produce_one
from compat_tests.differential.asking_clusters import (
    create,
    elect,
    log_dirs,
    more_partitions,
    place,
    reassign,
    reassignments,
)
from compat_tests.differential.clusters import BROKERS, CONTROLLER
from compat_tests.differential.scenario import cluster_scenario


@cluster_scenario
def topics_are_placed_by_hand(side):
    placings = {
        "three": {0: [3, 1, 2]},
        "different leaders": {0: [1, 2], 1: [2, 3], 2: [3, 1]},
        "one each": {0: [1], 1: [2]},
        "unknown broker": {0: [1, 7]},
        "negative broker": {0: [1, -1]},
        "broker twice": {0: [1, 2, 1]},
        "different sizes": {0: [1, 2], 1: [3]},
        "empty": {0: []},
        "empty and not": {0: [1], 1: []},
        "gap": {0: [1, 2], 2: [2, 3]},
        "from 1": {1: [1, 2]},
        "out of order": {1: [1, 2], 0: [2, 3]},
    }
    for version in (0, 1, 4, 5, 7):
        for name, placed in placings.items():
            topic = new_topic(side.name(f"{version}-{name.replace(' ', '-')}"), -1, -1, assigned=placed.items())
            answer = side.ask(create(topic, timeout_ms=1000), version)
            yield f"v{version} {name}", answer
            if answer.topics[0].error_code == 0 and version == 7 and name != "empty":
                side.await_leaders(topic.name)
                yield f"v{version} {name}, seen", side.topic_seen_by(2, topic.name)


@cluster_scenario
def topics_are_placed_by_the_controller(side):
    """Which broker is first is drawn by chance; that every one has as many is not."""
    for name, partitions, replicas in (("default", 3, -1), ("three", 6, 3), ("two", 3, 2), ("one", 3, 1)):
        topic = new_topic(side.name(name), partitions, replicas)
        answer = side.ask(create(topic), 7)
        yield name, answer
        side.await_leaders(topic.name)
        rows = side.topic_seen_by(1, topic.name).partitions
        leaders = [row.leader_id for row in rows]
        held = [broker for row in rows for broker in row.replica_nodes]
        yield f"{name}, led and held", [(leaders.count(broker), held.count(broker)) for broker in BROKERS]
        yield f"{name}, unequal", all(len(set(row.replica_nodes)) == len(row.replica_nodes) for row in rows)
    for version in (0, 4, 5, 7):
        for name, (partitions, replicas) in {"four": (1, 4), "none": (1, 0), "-2": (1, -2), "many": (1, 1000)}.items():
            request = create(new_topic(side.name(f"{version}-{name}"), partitions, replicas))
            yield f"v{version} {name}", side.ask(request, version)


@cluster_scenario
def partitions_are_added_on_brokers(side):
    for version in range(4):
        topic = side.create_placed(str(version), [[1, 2]])
        cases = {
            "unknown broker": more_partitions(topic, 2, [[1, 7]]),
            "one broker": more_partitions(topic, 2, [[1]]),
            "three brokers": more_partitions(topic, 2, [[1, 2, 3]]),
            "twice the same": more_partitions(topic, 2, [[1, 1]]),
            "empty": more_partitions(topic, 2, [[]]),
            "different sizes": more_partitions(topic, 3, [[1, 2], [3]]),
            "too many": more_partitions(topic, 2, [[1, 2], [2, 3]]),
            "two": more_partitions(topic, 3, [[2, 3], [3, 1]]),
        }
        with side.connect() as client:
            yield from client.ask_all(version, cases)
        side.wait(lambda topic=topic: len(side.topic_seen_by(2, topic).partitions) == 3)
        side.await_leaders(topic)
        yield f"v{version} seen", side.topic_seen_by(2, topic)


@cluster_scenario
def replicas_are_reassigned(side):
    topic, unknown = side.create_placed("one", [[1, 2], [2, 3], [3, 1]]), side.name("unknown")
    refused = {
        "unknown broker": reassign({topic: {0: [1, 7]}}),
        "negative broker": reassign({topic: {0: [-1]}}),
        "one broker twice": reassign({topic: {0: [3, 3]}}),
        "none": reassign({topic: {0: []}}),
        "unknown partition": reassign({topic: {9: [1], 0: [1, 9]}}),
        "unknown topic": reassign({unknown: {0: [1]}}),
        "cancel of nothing": reassign({topic: {0: None, 1: None}}),
        "none under way": reassignments({topic: [0, 1, 2, 9], unknown: [0]}),
    }
    moves = {
        "another one": {0: [1, 3]},
        "one more": {1: [2, 3, 1]},
        "one less": {2: [3]},
        "away from the leader": {0: [2, 3]},
        "another order": {1: [1, 2, 3]},
        "as it is": {1: [1, 2, 3]},
        "two at once": {0: [1, 2], 2: [1, 3]},
    }
    with side.at(CONTROLLER) as client:
        yield from client.ask_all(0, refused)
        for name, move in moves.items():
            yield name, client.ask(reassign({topic: move}), 0)
            side.wait(lambda: not client.ask(reassignments({topic: [0, 1, 2]}), 0).topics, 40)
            for partition, to in move.items():
                side.await_isr(topic, to, partition)
                side.wait(lambda p=partition, to=to: _replicas(side, topic, p) == to)
            yield f"{name}, then", side.topic_seen_by(2, topic)


def _replicas(side, topic, partition):
    """The replicas as the broker sees them that is asked for the answer."""
    rows = {row.partition_index: row for row in side.topic_seen_by(2, topic).partitions}
    return list(rows[partition].replica_nodes)


@cluster_scenario
def preferred_leaders_are_elected(side):
    topic = side.create_placed("one", [[1, 2, 3], [2, 3, 1]])
    for version in range(3):
        first = 2 + version % 2
        order = [first, *(broker for broker in BROKERS if broker != first)]
        yield f"v{version} turned round", side.ask(reassign({topic: {0: order}}), 0)
        side.wait(lambda order=order: _replicas(side, topic, 0) == order)
        yield f"v{version} elected", side.ask(elect({topic: [0, 1]}), version)
        side.await_isr(topic, BROKERS, leader=first)
        yield f"v{version} seen", side.topic_seen_by(2, topic)
        yield f"v{version} again", side.ask(elect({topic: [0]}), version)
        if version:
            yield f"v{version} unclean, not needed", side.ask(elect({topic: [0]}, unclean=True), version)


@cluster_scenario
def replicas_move_between_directories(side):
    """Each broker gets the request with its own directories; the others' replicas stay where they are."""
    topic = side.name("one")
    for broker in BROKERS:
        own = side.cluster.directory_of(broker)
        answer = side.ask_at(broker, place(own / "data", {topic: [0]}), 2)
        yield f"for later on {broker}", answer
    side.create_placed("one", [[1, 2, 3]])
    yield "produced", side.ask_at(1, produce_one(topic, batch(b"v", at=PAST_MS)), 9)
    for version in range(3):
        other = side.cluster.directory_of(2) / ("data-2" if version % 2 == 0 else "data")
        moved = side.ask_at(2, place(other, {topic: [0]}), version)
        yield f"v{version} moved", moved
        if moved.results[0].partitions[0].error_code == 0:
            side.wait(lambda other=other: _place_of(side, topic) == str(other))
        yield f"v{version} of another broker", side.ask_at(3, place(other, {topic: [0]}), version)
    for version in range(1, 5):
        yield from side.everywhere(version, {"described": log_dirs({topic: [0]})})


def _place_of(side, topic):
    """Where broker 2 has its only log of the partition."""
    found = side.ask_at(2, log_dirs({topic: [0]}), 4).results
    rows = [(row.log_dir, p.is_future_key) for row in found for of in row.topics for p in of.partitions]
    return rows[0][0] if len(rows) == 1 and not rows[0][1] else None


@cluster_scenario
def configs_of_other_brokers(side):
    Resource = m.DescribeConfigsRequest.DescribeConfigsResource
    for version in range(5):
        for asked in BROKERS:
            resource = Resource(resource_type=4, resource_name=str(asked), configuration_keys=["broker.id"])
            request = m.DescribeConfigsRequest(resources=[resource])
            yield from side.everywhere(version, {f"of {asked}": request})
