"""Fetches by replicas and from replicas: KIP-392, and clients that send a broker id."""

import json

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, fetch, list_offsets
from compat_tests.differential.asking_clusters import end_of_epoch, filled, reassign, reassignments
from compat_tests.differential.scenario import cluster_scenario


@cluster_scenario
def reads_from_followers(side):
    """A consumer in the rack of a follower is sent there, when the follower has what is asked for."""
    topic = filled(side, "one", [1, 2])
    side.wait(lambda: _high_watermark(side, 2, topic) == 3)
    topic_id = side.topic_id(topic)
    for version in (11, 12, 13, 15, 17):
        name = topic if version < 13 else topic_id
        for rack in ("", "rack-1", "rack-2", "rack-3", "nowhere"):
            for offset in (0, 3, 4):
                request = fetch([(name, [(0, offset)])], wait_ms=0, rack=rack)
                yield f"leader v{version} {rack!r} at {offset}", side.ask_at(1, request, version)
        for offset in (0, 2, 3, 4):
            for epoch in (-1, 0, 1):
                request = fetch([(name, [(0, offset, epoch)])], wait_ms=0, rack="rack-2")
                yield f"follower v{version} at {offset} epoch {epoch}", side.ask_at(2, request, version)
    for version in range(10):
        request = list_offsets({topic: [(0, -2)]}, replica=-2)
        yield f"follower lists v{version}", side.ask_at(2, request, version)


@cluster_scenario
def sessions_of_consumers_that_should_read_from_a_follower(side):
    """Every response has the preferred read replica, although nothing else is new, until the consumer reads there."""
    two, quiet = filled(side, "one", [1, 2]), filled(side, "quiet", [1, 3])
    side.wait(lambda: _high_watermark(side, 2, two) == 3)
    ids = side.topic_id(two), side.topic_id(quiet)
    for version in (11, 12, 13, 15, 17):
        one, other = (two, quiet) if version < 13 else ids
        for offset in (0, 3):
            case = f"v{version} from {offset}"
            with side.at(1) as client:

                def ask(topics, session, client=client, version=version, **options):
                    options = {"wait_ms": 50, "rack": "rack-2"} | options
                    return client.ask(fetch(topics, session=session, **options), version)

                opened = ask([(one, [(0, offset)]), (other, [(0, 3)])], (0, 0))
                yield f"{case}: opened", opened
                own = opened.session_id
                yield f"{case}: nothing is new", ask([], (own, 1))
                yield f"{case}: nothing is new, again", ask([], (own, 2))
                yield f"{case}: asked for again", ask([(one, [(0, offset)])], (own, 3))
                yield f"{case}: another rack", ask([], (own, 4), rack="rack-1")
                yield f"{case}: the rack again", ask([(one, [(0, offset)])], (own, 5))
                yield f"{case}: gone there", ask([], (own, 6), forgotten=[(one, [0])])
                yield f"{case}: back again", ask([(one, [(0, offset)])], (own, 7))
                yield f"{case}: where no follower is", ask([(one, [(0, offset)])], (own, 8), rack="nowhere")


@cluster_scenario
def a_follower_comes_while_a_consumer_of_its_rack_reads(side):
    """A consumer reads a topic without writers; then a replica in its rack joins the ISR."""
    topic = filled(side, "one", [1])
    topic_id = side.topic_id(topic)
    sessions = {}
    for version in (12, 13):
        for offset in (0, 3):
            name = topic if version < 13 else topic_id
            request = fetch([(name, [(0, offset)])], session=(0, 0), rack="rack-2", wait_ms=0)
            opened = side.ask_at(1, request, version)
            yield f"v{version} from {offset}: alone", opened
            sessions[version, offset] = opened.session_id
    yield "a replica is added", side.ask(reassign({topic: {0: [1, 2]}}), 0)
    _await_reassigned(side, topic, leader=1)
    side.wait(lambda: _preferred_read_replica(side, 1, topic, "rack-2") == 2)
    for (version, offset), session in sessions.items():
        for epoch in (1, 2):
            request = fetch([], session=(session, epoch), rack="rack-2", wait_ms=0)
            yield f"v{version} from {offset}: epoch {epoch}", side.ask_at(1, request, version)


def _await_reassigned(side, topic, leader):
    """Until the reassignment of partition 0 is over, and its leader has the last leader epoch."""
    # With a new leader epoch the leader forgets how far its followers are, and prefers none of them until they fetch.
    side.wait(lambda: not side.ask(reassignments({topic: [0]}), 0).topics)
    last = json.loads(side.node(f"/brokers/topics/{topic}/partitions/0/state").data)["leader_epoch"]
    # The controller sends a broker LeaderAndIsr first, and UpdateMetadata when that is answered.
    side.wait(lambda: side.topic_seen_by(leader, topic).partitions[0].leader_epoch == last)


def _high_watermark(side, broker, topic):
    return _fetched(side, broker, topic).high_watermark


def _preferred_read_replica(side, broker, topic, rack):
    return _fetched(side, broker, topic, rack=rack).preferred_read_replica


def _fetched(side, broker, topic, **options):
    answer = side.ask_at(broker, fetch([(topic, [(0, 0)])], wait_ms=0, **options), 11)
    return answer.responses[0].partitions[0]


def _as_replica(replica, topic, *start, epoch=-1):
    request = fetch([(topic, [start])], wait_ms=0)
    request.replica_id = replica
    request.replica_state = m.FetchRequest.ReplicaState(replica_id=replica, replica_epoch=epoch)
    return request


def _fetches_of_replicas(version, name):
    """Broker 3 has no replica, broker 9 does not exist, broker 2 is at the end and stays there."""
    cases = {
        f"replica {replica} at {offset}": _as_replica(replica, name, 0, offset)
        for replica, offset in ((2, 3), (3, 0), (3, 3), (3, 4), (9, 0), (9, 3), (9, 4))
    }
    if version >= 9:
        for replica in (2, 3):
            for epoch in (0, 1):
                cases[f"replica {replica}, leader epoch {epoch}"] = _as_replica(replica, name, 0, 3, epoch)
    if version >= 12:
        for fetched in (0, 1, 5):
            for offset in (0, 3, 5):
                case = f"stranger, fetched epoch {fetched} at {offset}"
                cases[case] = _as_replica(9, name, 0, offset, 0, fetched)
    if version >= 15:
        cases["follower of an earlier life"] = _as_replica(2, name, 0, 3, epoch=1)
    return cases


@cluster_scenario
def those_who_say_they_are_replicas(side):
    topic = filled(side, "one", [1, 2])
    topic_id = side.topic_id(topic)
    for version in (*range(9), 11, 12, 13, 14, 15, 17):
        name = topic if version < 13 else topic_id
        with side.at(1) as client:
            yield from client.ask_all(version, _fetches_of_replicas(version, name))
        with side.at(2) as client:
            cases = {f"follower asked by {replica}": _as_replica(replica, name, 0, 0) for replica in (1, 3)}
            yield from client.ask_all(version, cases)
    with side.at(1) as client:
        for version in range(5):
            cases = {
                f"end of epoch, replica {replica}": end_of_epoch(topic, 0, 0, replica) for replica in (-2, -1, 2, 3, 9)
            }
            yield from client.ask_all(version, cases)
        for version in range(10):
            cases = {
                f"list offsets, replica {replica}, {name}": list_offsets({topic: [(0, time)]}, replica=replica)
                for replica in (2, 3, 9)
                for name, time in {"end": -1, "start": -2, "a time": PAST_MS + 1}.items()
            }
            yield from client.ask_all(version, cases)
