"""Responses of the other brokers while a broker hangs, is dead, or has just been restarted."""

from barnabas.wire import messages as m
from compat_tests.differential.asking import PAST_MS, batch, fetch, list_offsets, metadata, new_topic, produce_one
from compat_tests.differential.asking_clusters import (
    create,
    delete,
    delete_records,
    describe_producers,
    elect,
    end_of_epoch,
    filled,
    log_dirs,
    more_partitions,
    reassign,
    reassignments,
)
from compat_tests.differential.clusters import BROKERS
from compat_tests.differential.scenario import cluster_scenario

IN_TIME_MS = 20_000
TOO_SHORT_MS = 300
UNKNOWN_TOPIC = 3


@cluster_scenario(disturbs=True)
def a_follower_hangs(side):
    """For less than anybody would give it up for: what waits for it runs out of time, the rest goes on."""
    topic = filled(side, "one", [1, 3])
    side.cluster.pause(3)
    try:
        with side.at(1) as leader:
            for version in (3, 8, 11):
                for timeout_ms in (TOO_SHORT_MS, 0, -5):
                    request = produce_one(topic, batch(b"late", at=PAST_MS), timeout_ms=timeout_ms)
                    yield f"produce v{version}, timeout {timeout_ms}", leader.ask(request, version)
            yield "produce, acks 1", leader.ask(produce_one(topic, batch(b"one", at=PAST_MS), acks=1), 11)
            for version in range(3):
                for timeout_ms in (TOO_SHORT_MS, 0):
                    request = delete_records(topic, 1, timeout_ms=timeout_ms)
                    yield f"delete records v{version}, timeout {timeout_ms}", leader.ask(request, version)
            for version in (4, 11, 12):
                yield f"fetch v{version}", leader.ask(fetch([(topic, [(0, 3)])], wait_ms=0), version)
            for name, time in {"end": -1, "start": -2, "greatest": -3}.items():
                yield f"list offsets {name}", leader.ask(list_offsets({topic: [(0, time)]}), 7)
    finally:
        side.cluster.resume(3)
    side.wait(lambda: _high_watermark(side, 1, topic) == 13)
    yield "then", side.ask_at(1, fetch([(topic, [(0, 3)])], wait_ms=0), 11)


def _high_watermark(side, broker, topic):
    return side.ask_at(broker, fetch([(topic, [(0, 3)])], wait_ms=0), 11).responses[0].partitions[0].high_watermark


@cluster_scenario(disturbs=True)
def a_broker_is_dead(side):
    """Broker 3, and broker 2 missed what was written last; topics are named after their replicas."""
    topics = {
        "led": filled(side, "led", [3, 1, 2]),
        "followed": filled(side, "followed", [1, 3]),
        "narrow": filled(side, "narrow", [1, 3], min_insync_replicas="2"),
        "alone": filled(side, "alone", [3]),
        "behind": filled(side, "behind", [3, 2]),
        "gone": filled(side, "gone", [1, 3]),
    }
    side.cluster.stop(2)
    side.await_isr(topics["behind"], [3], leader=3)
    yield "produced without 2", side.ask_at(3, produce_one(topics["behind"], batch(b"missed", at=PAST_MS)), 9)
    side.cluster.pause(3)
    with side.at(1) as leader:
        leader.send(produce_one(topics["narrow"], batch(b"x", at=PAST_MS), timeout_ms=IN_TIME_MS), 9)
        side.cluster.kill(3)
        yield "not enough replicas after append", leader.receive(IN_TIME_MS / 1000)
    side.cluster.restart(2)
    side.await_isr(topics["led"], [1, 2], leader=1)
    yield from _seen(side, topics)
    yield from _asked_of_partitions(side, topics)
    yield from _asked_of_the_controller(side, topics)
    yield from _deleted(side, topics["gone"])
    side.cluster.restart(3)
    for name, isr in {"led": BROKERS, "followed": (1, 3), "narrow": (1, 3), "behind": (2, 3), "alone": (3,)}.items():
        side.await_isr(topics[name], isr)
    side.wait(lambda: all(not row.topics for row in side.ask_at(3, log_dirs({topics["gone"]: [0]}), 4).results), 40)
    del topics["gone"]  # Metadata would create it again
    yield from _seen(side, topics, after="back: ")
    for name in ("behind", "followed"):
        leader = side.topic_seen_by(1, topics[name]).partitions[0].leader_id
        yield f"back: {name} holds", side.ask_at(leader, fetch([(topics[name], [(0, 0)])], wait_ms=0), 11)
    yield "back: elected", side.ask(elect({topics["led"]: [0], topics["behind"]: [0]}), 2)


def _seen(side, topics, after=""):
    for version in range(13):
        requests = {f"{after}{name}": metadata(topic, create=False) for name, topic in topics.items()}
        yield from side.everywhere(version, requests)
    yield from side.everywhere(1, {f"{after}cluster": m.DescribeClusterRequest()})
    groups = [side.name(str(number)) for number in range(6)]
    yield from side.everywhere(4, {f"{after}coordinators": m.FindCoordinatorRequest(coordinator_keys=groups)})


def _asked_of_partitions(side, topics):
    for version in (3, 5, 8, 9, 11):
        for name in ("narrow", "alone", "behind", "followed"):
            for acks in (-1, 1):
                request = produce_one(topics[name], batch(b"new", at=PAST_MS), acks=acks)
                yield f"produce to {name} v{version} acks {acks}", side.ask_at(1, request, version)
    for name in ("alone", "behind", "led"):
        topic = topics[name]
        for broker in (1, 2):
            with side.at(broker) as client:
                cases = {
                    "list offsets": (list_offsets({topic: [(0, -1)]}), 7),
                    "end of epoch": (end_of_epoch(topic), 4),
                    "delete records": (delete_records(topic, 1), 2),
                    "producers": (describe_producers(topic, 0), 0),
                    "fetch": (fetch([(topic, [(0, 0)])], wait_ms=0), 10),
                    "directories": (log_dirs({topic: [0]}), 4),
                }
                for case, (request, version) in cases.items():
                    if case != "directories" or name == "alone":
                        yield f"{case} of {name} at {broker}", client.ask(request, version)
    yield "delete records without the follower", side.ask_at(1, delete_records(topics["followed"], 2), 2)


def _asked_of_the_controller(side, topics):
    led, followed, alone, behind = (topics[name] for name in ("led", "followed", "alone", "behind"))
    near = side.create_placed("near", [[1, 2]])
    cases = {
        "preferred leader is dead": (elect({led: [0], alone: [0], behind: [0], followed: [0]}), 2),
        "unclean, none lives": (elect({alone: [0]}, unclean=True), 2),
        "unclean, not needed": (elect({led: [0]}, unclean=True), 2),
        "three replicas": (create(new_topic(side.name("three"), 1, 3)), 7),
        "default replicas": (create(new_topic(side.name("default"), 1, -1)), 7),
        "placed on the dead": (create(new_topic(side.name("on-dead"), -1, -1, assigned=[(0, [1, 3])])), 7),
        "placed on the dead alone": (
            create(new_topic(side.name("on-dead-alone"), -1, -1, assigned=[(0, [3])]), timeout_ms=TOO_SHORT_MS),
            7,
        ),
        "more on the dead": (more_partitions(followed, 2, [[3, 1]]), 3),
        "more by the controller": (more_partitions(led, 2), 3),
        "to the dead": (reassign({near: {0: [1, 3]}}), 0),
        "to the dead alone": (reassign({near: {0: [3]}}), 0),
        "away from the dead, without a leader": (reassign({alone: {0: [1]}}), 0),
        "on its way": (reassignments({alone: [0], led: [0]}), 0),
        "more while on its way": (more_partitions(alone, 2, [[1]]), 3),
        "elsewhere instead": (reassign({alone: {0: [2]}}), 0),
        "on its way elsewhere": (reassignments({alone: [0], led: [0]}), 0),
        "cancelled": (reassign({alone: {0: None}}), 0),
        "cancelled again": (reassign({alone: {0: None}}), 0),
        "none on its way": (reassignments({alone: [0], led: [0]}), 0),
        "shut down the dead": (m.ControlledShutdownRequest(broker_id=3, broker_epoch=-1), 3),
        "unclean": (elect({behind: [0]}, unclean=True), 2),
    }
    for name, (request, version) in cases.items():
        yield name, side.ask(request, version)
    side.await_isr(behind, [2], leader=2)
    yield "unclean, then", side.topic_seen_by(1, behind)
    yield "unclean, read", side.ask_at(2, fetch([(behind, [(0, 0)])], wait_ms=0), 10)
    yield "after cancelling", side.topic_seen_by(1, alone)


def _deleted(side, topic):
    """A topic that cannot go before its dead replica has."""
    yield "deleted", side.ask(delete(topic, timeout_ms=TOO_SHORT_MS), 6)
    cases = {
        "deleted again": (delete(topic, timeout_ms=TOO_SHORT_MS), 5),
        "created again": (create(new_topic(topic, 1, 1)), 7),
        "more of the deleted": (more_partitions(topic, 2), 3),
        "reassign the deleted": (reassign({topic: {0: [1, 2]}}), 0),
        "elect for the deleted": (elect({topic: [0]}), 2),
    }
    for name, (request, version) in cases.items():
        yield name, side.ask(request, version)
    for broker in (1, 2):
        side.wait(lambda broker=broker: side.topic_seen_by(broker, topic).error_code == UNKNOWN_TOPIC)
    for version in range(13):
        yield from side.everywhere(version, {"being deleted": metadata(topic, create=False)})
    for version in (3, 9):
        yield f"produce to the deleted v{version}", side.ask_at(1, produce_one(topic, batch(at=PAST_MS)), version)
    yield "fetch the deleted", side.ask_at(1, fetch([(topic, [(0, 0)])], wait_ms=0), 11)


@cluster_scenario(disturbs=True)
def the_controller_is_dead(side):
    """Another one takes over, which of the two is chance; what it is asked is not."""
    topic = side.create_placed("one", [[1, 2, 3]])
    side.cluster.kill(1)
    try:
        side.await_isr(topic, [2, 3], leader=2)
        yield "seen", side.topic_seen_by(3, topic)
        for broker in (2, 3):
            for version in (0, 3, 7):
                request = m.LeaderAndIsrRequest(controller_id=1, controller_epoch=1, broker_epoch=-1)
                yield f"LeaderAndIsr of the old one to {broker}, v{version}", side.ask_at(broker, request, version)
            for version in (0, 4, 8):
                request = m.UpdateMetadataRequest(controller_id=1, controller_epoch=1, broker_epoch=-1)
                yield f"UpdateMetadata of the old one to {broker}, v{version}", side.ask_at(broker, request, version)
        cases = {
            "created": (create(new_topic(side.name("two"), -1, -1, assigned=[(0, [2, 3])])), 7),
            "created before": (create(new_topic(topic, 1, 1)), 7),
            "elected": (elect({topic: [0]}), 2),
            "more": (more_partitions(topic, 2, [[3, 2, 1]]), 3),
            "reassigned": (reassign({topic: {0: [2, 3]}}), 0),
        }
        for name, (request, version) in cases.items():
            yield name, side.ask(request, version)
        side.await_isr(topic, [2, 3], leader=2)
        side.wait(lambda: not side.ask(reassignments({topic: [0]}), 0).topics)
    finally:
        side.cluster.restart(1)
    side.await_leaders(topic)
    yield "back", side.topic_seen_by(1, topic)
