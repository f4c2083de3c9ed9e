"""The scenes of the tour, in the order in which they build on each other (shell)."""

from barnabas.testing.tour.client_scenes import IDEMPOTENCE, REBALANCE
from barnabas.testing.tour.compaction_scene import COMPACTION
from barnabas.testing.tour.leader_scenes import TRUNCATION, UNCLEAN_ELECTION
from barnabas.testing.tour.replication_scenes import ACKS, MIN_IN_SYNC, TWO_FETCHES
from barnabas.testing.tour.scene import Scene

SCENES: dict[str, Scene] = {
    each.name: each
    for each in (
        TWO_FETCHES,
        ACKS,
        MIN_IN_SYNC,
        TRUNCATION,
        UNCLEAN_ELECTION,
        IDEMPOTENCE,
        REBALANCE,
        COMPACTION,
    )
}
