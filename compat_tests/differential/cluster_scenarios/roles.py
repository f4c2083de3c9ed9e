"""Requests of controllers and leaders, sent by a client with their epochs."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import NO_ID, PAST_MS, batch, fetch, list_offsets, produce_one
from compat_tests.differential.asking_clusters import alter_partition, end_of_epoch, role, stop_replica
from compat_tests.differential.scenario import cluster_scenario

EARLIER_ID, OTHER_ID = b"\x21" * 16, b"\x22" * 16
BY_ID = (13, 15, 17)  # versions of Fetch


@cluster_scenario
def a_log_of_an_earlier_topic_of_that_name(side):
    """Broker 3 leads a partition of another id than the cluster's topic has: what is asked by id is not in it."""
    topic = side.create_placed("one", [[1, 2]])
    topic_id = side.topic_id(topic)
    names = {EARLIER_ID: "the earlier id", topic_id: "the topic's id", OTHER_ID: "an unknown id", NO_ID: "no id"}
    first = role(topic, EARLIER_ID, [3], leader_epoch=7, is_new=True)
    yield "led by 3", side.tell(3, first)
    with side.at(3) as client:
        yield "produced", client.ask(produce_one(topic, batch(b"e", at=PAST_MS), acks=1), 9)
        yield "by name", client.ask(fetch([(topic, [(0, 0)])]), 12)
        yield "offsets", client.ask(list_offsets({topic: [(0, -1)]}), 7)
        yield "end of epoch", client.ask(end_of_epoch(topic, 7), 4)
        by_name = client.ask(fetch([(topic, [(0, 0)])], session=(0, 0)), 12).session_id
        for version in BY_ID:
            for asked, name in names.items():
                request = fetch([(asked, [(0, 0)])], wait_ms=0)
                yield f"v{version} by {name}", client.ask(request, version)
                request.replica_id, request.replica_state = 2, m.FetchRequest.ReplicaState(replica_id=2)
                yield f"v{version} by {name}, from a follower", client.ask(request, version)
            opened = client.ask(fetch([(topic_id, [(0, 0)])], session=(0, 0)), version)
            yield f"v{version} in a session", opened
            for epoch in (1, 2):
                request = fetch([], session=(opened.session_id, epoch))
                yield f"v{version} in a session, {epoch}", client.ask(request, version)
        yield "a session by name goes on", client.ask(fetch([(topic, [(0, 1)])], session=(by_name, 1)), 12)
    for leader_epoch in (6, 7, 8):
        for asked in (OTHER_ID, EARLIER_ID, NO_ID):
            for is_new in (True, False):
                request = role(topic, asked, [3], leader_epoch=leader_epoch, partition_epoch=1, is_new=is_new)
                case = f"epoch {leader_epoch}, {names[asked]}{', new' if is_new else ''}"
                yield case, side.tell(3, request)
    yield "for others", side.tell(3, role(topic, EARLIER_ID, [1, 2], leader_epoch=9, partition_epoch=2))
    yield "the records are there", side.ask_at(3, fetch([(topic, [(0, 0)])]), 12)
    yield "the topic's id", side.tell(3, role(topic, topic_id, [3], leader_epoch=10, partition_epoch=3))
    yield "stopped", side.tell(3, stop_replica(topic))
    yield "stopped again", side.tell(3, stop_replica(topic))
    yield "by name, stopped", side.ask_at(3, fetch([(topic, [(0, 0)])]), 12)
    yield "by id, stopped", side.ask_at(3, fetch([(topic_id, [(0, 0)])]), 13)


@cluster_scenario
def in_sync_replicas_in_every_version(side):
    """AlterPartition by name and by id, from those who lead and those who do not, about epochs right and wrong."""
    for version in range(4):
        topic = side.create_placed(f"{version}", [[1, 2]])
        side.await_isr(topic, (1, 2))
        topic_id, epochs = side.topic_id(topic), {broker: side.broker_epoch(broker) for broker in (1, 2)}

        def alter(name=topic, of=topic_id, broker=1, broker_epoch=None, epochs=epochs, **changed):
            epoch = epochs[broker] if broker_epoch is None else broker_epoch
            return alter_partition(name, of, broker, epoch, {1: epochs[1], 2: epochs[2]}, **changed)

        cases = {
            "as they are": alter(),
            "unknown topic": alter(side.name("unknown"), OTHER_ID),
            "no topic": alter("", NO_ID),
            "unknown partition": alter(partition=9),
            "from an earlier life": alter(broker_epoch=epochs[1] - 1),
            "earlier partition epoch": alter(partition_epoch=-1),
            "later partition epoch": alter(partition_epoch=5),
            "earlier leader epoch": alter(leader_epoch=-1),
            "later leader epoch": alter(leader_epoch=3),
            "recovering": alter(recovering=True),
            "with one who has restarted since": alter(epochs=epochs | {2: epochs[2] - 1}),
            "nothing": m.AlterPartitionRequest(broker_id=1, broker_epoch=epochs[1]),
            "as they are, again": alter(),
            "from the follower": alter(broker=2),  # the last one: Kafka's controller makes it the leader
        }
        for name, request in cases.items():
            yield f"v{version} {name}", side.ask(request, version)
