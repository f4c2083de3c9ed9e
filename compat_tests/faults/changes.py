"""What really happens to a cluster of three brokers while a client's program runs.

Each change waits for one request of the client, which is held back meanwhile: it happens in the middle of the work.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

from barnabas.testing import LocalCluster
from barnabas.testing.faults.faults import Fault
from compat_tests.faults.faults import GROUP, TOPIC

BEGIN_SECONDS = 30.0  # until the client sends the request
AWAY_SECONDS = 5.0


class Change(NamedTuple):
    """One change."""

    what: str  # for a reader of the table
    api: str  # of the request that is held back
    after: bool  # it is done before it is held back
    happen: Callable[[LocalCluster, Fault], None]  # ends with the request going on


def _kill_leader(failover: str) -> Callable[[LocalCluster, Fault], None]:
    def happen(cluster: LocalCluster, held: Fault) -> None:
        cluster.kill(cluster.leader(TOPIC), failover=failover)
        held.remove()

    return happen


def _move_leader(cluster: LocalCluster, held: Fault) -> None:
    leader = cluster.leader(TOPIC)
    cluster.move_leader(TOPIC, to=min(cluster.isr(TOPIC) - {leader}))
    held.remove()


def _freeze_leader(cluster: LocalCluster, held: Fault) -> None:
    leader = cluster.leader(TOPIC)
    cluster.freeze(leader)
    held.remove()
    time.sleep(AWAY_SECONDS)
    cluster.thaw(leader)


def _cut_leader(cluster: LocalCluster, held: Fault) -> None:
    leader = cluster.leader(TOPIC)
    for other in cluster.brokers.keys() - {leader}:
        cluster.cut(leader, other)
    held.remove()
    time.sleep(AWAY_SECONDS)
    cluster.heal()


def _kill_coordinator(cluster: LocalCluster, held: Fault) -> None:
    cluster.kill(cluster.coordinator(GROUP), failover="now")
    held.remove()


CHANGES: dict[str, Change] = {
    "leader killed": Change(
        "it dies after all replicas have a batch, before it acknowledges it; another one leads at once",
        "Produce",
        after=True,
        happen=_kill_leader("now"),
    ),
    "leader killed, unnoticed": Change(
        "the same, and another one leads when its session has expired",
        "Produce",
        after=True,
        happen=_kill_leader("session"),
    ),
    "leader handed over": Change("before it has a batch", "Produce", after=False, happen=_move_leader),
    "leader frozen": Change("for five seconds, before it has a batch", "Produce", after=False, happen=_freeze_leader),
    "leader cut off": Change(
        "from the other brokers for five seconds, before it has a batch", "Produce", after=False, happen=_cut_leader
    ),
    "coordinator killed": Change("while the first member joins", "JoinGroup", after=False, happen=_kill_coordinator),
}
