"""Fetches of replicas and from replicas: KIP-392, and those who say they are brokers."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, fetch, list_offsets, produce_one
from compat_tests.differential.asking_clusters import end_of_epoch
from compat_tests.differential.scenario import cluster_scenario


def _filled(side, of, replicas, **configs):
    topic = side.create_placed(of, [replicas], **configs)
    with side.at(replicas[0]) as leader:
        for number in range(3):
            leader.ask(produce_one(topic, batch(b"%d" % number, at=PAST_MS + number)), 9)
    return topic


@cluster_scenario
def reads_from_followers(side):
    """A consumer in the rack of a follower is sent there, when the follower has what is asked for."""
    topic = _filled(side, "one", [1, 2])
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
def a_session_names_the_follower_of_the_rack(side):
    """A replica to read from is news, although the partition has no other; and it is named again and again."""
    for version in (11, 12, 13, 15, 17):
        topic = _filled(side, f"{version}", [1, 2])
        side.wait(lambda topic=topic: _high_watermark(side, 2, topic) == 3)
        name = topic if version < 13 else side.topic_id(topic)
        with side.at(1) as client:
            start = [(name, [(0, 3)])]
            own = client.ask(fetch(start, session=(0, 0), wait_ms=0), version).session_id
            yield f"v{version} a session", own > 0
            steps = [
                ("nothing new", [], ""),
                ("a rack without a replica", [], "rack-3"),
                ("the rack of the leader", [], "rack-1"),
                ("the rack of the follower", [], "rack-2"),
                ("the same", [], "rack-2"),
                ("from the beginning", [(name, [(0, 0)])], "rack-2"),
                ("beyond the follower", [(name, [(0, 4)])], "rack-2"),
                ("at the end again", start, "rack-2"),
                ("no rack", [], ""),
            ]
            for epoch, (case, asked, rack) in enumerate(steps, 1):
                request = fetch(asked, session=(own, epoch), wait_ms=0, rack=rack)
                yield f"v{version} {case}", client.ask(request, version)


def _high_watermark(side, broker, topic):
    answer = side.ask_at(broker, fetch([(topic, [(0, 0)])], wait_ms=0), 11)
    return answer.responses[0].partitions[0].high_watermark


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
    topic = _filled(side, "one", [1, 2])
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
