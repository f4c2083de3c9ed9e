"""One of a broker's two log directories is lost: its responses, and its roles in that directory."""

from compat_tests.differential.asking import PAST_MS, batch, fetch, list_offsets, produce_one
from compat_tests.differential.asking_clusters import log_dirs, place, role
from compat_tests.differential.clusters import LOG_DIRS
from compat_tests.differential.scenario import cluster_scenario

LOSER = 3


def _placed(side, of, replicas, directory):
    """A topic of three records; the replica of the loser lies in this directory."""
    side.ask_at(LOSER, place(directory, {side.name(of): [0]}), 2)
    topic = side.create_placed(of, [replicas])
    with side.at(replicas[0]) as leader:
        for number in range(3):
            leader.ask(produce_one(topic, batch(b"%d" % number, at=PAST_MS)), 9)
    return topic


def _asked(side, topic):
    """What clients hear of this topic: requests of all kinds, each with its version."""
    return {
        "produce": (9, produce_one(topic, batch(at=PAST_MS))),
        "fetch": (12, fetch([(topic, [(0, 0)])], wait_ms=0)),
        "fetch by id": (13, fetch([(side.topic_id(topic), [(0, 0)])], wait_ms=0)),
        "end": (7, list_offsets({topic: [(0, -1)]})),
        "debugging": (7, list_offsets({topic: [(0, -1)]}, replica=-2)),
    }


@cluster_scenario(disturbs=True)
def a_log_directory_is_lost(side):
    """The leader of all three topics loses the directory of two; the roles that it had are given to it once more."""
    lost, kept = (side.cluster.directory_of(LOSER) / folder for folder in reversed(LOG_DIRS))
    topics = {
        "copied": _placed(side, "copied", [LOSER, 1], lost),
        "alone": _placed(side, "alone", [LOSER], lost),
        "kept": _placed(side, "kept", [LOSER, 1], kept),
    }
    ids = {name: side.topic_id(topic) for name, topic in topics.items()}
    side.await_isr(topics["copied"], (1, LOSER), leader=LOSER)
    lost.rename(lost.with_name("gone"))
    try:
        side.wait(lambda: any(row.error_code for row in side.ask_at(LOSER, log_dirs(None), 4).results), 60)
        side.await_isr(topics["copied"], [1], leader=1)
        side.wait(lambda: side.topic_seen_by(1, topics["alone"]).partitions[0].leader_id == -1)
        for name, topic in topics.items():
            for broker in (LOSER, 1):
                for case, (version, request) in _asked(side, topic).items():
                    yield f"lost: {case} of {name} at {broker}", side.ask_at(broker, request, version)
                yield f"lost: {name} as {broker} sees it", side.topic_seen_by(broker, topic)
        replicas = {"copied": [LOSER, 1], "alone": [LOSER], "kept": [LOSER, 1]}
        for name, topic in topics.items():
            for leader_epoch in (0, 1, 9):
                for is_new in (True, False):
                    if name != "kept" or leader_epoch == 0:
                        request = role(topic, ids[name], replicas[name], leader_epoch=leader_epoch, is_new=is_new)
                        case = f"role of {name}, epoch {leader_epoch}{', new' if is_new else ''}"
                        yield case, side.tell(LOSER, request)
        yield "where what lies", side.ask_at(LOSER, log_dirs({name: [0] for name in topics.values()}), 4)
    finally:
        side.cluster.stop(LOSER)
        lost.with_name("gone").rename(lost)
        side.cluster.restart(LOSER)
    for name, isr in {"copied": (1, LOSER), "alone": [LOSER], "kept": (1, LOSER)}.items():
        side.await_isr(topics[name], isr)
    for name, topic in topics.items():
        leader = side.topic_seen_by(1, topic).partitions[0].leader_id
        for case, (version, request) in _asked(side, topic).items():
            yield f"back: {case} of {name}", side.ask_at(leader, request, version)
        yield f"back: {name}", side.topic_seen_by(leader, topic)
