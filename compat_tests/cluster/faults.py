"""Faults drawn by a seed (pure): their kinds, victims, times and durations.

A plan says roles, not numbers: who is the leader is found out when the fault strikes. Faults may overlap, as they do in
life; each ends by itself (`striking.py` does both).
"""

import random
from typing import NamedTuple

ROLES = ("leader", "follower", "controller", "coordinator")
FIRST_FAULT_S = 3.0
PAUSE_S = (3.0, 8.0)  # from the beginning of one fault to that of the next


class Fault(NamedTuple):
    """One fault: from `at_s` after the beginning of the run, for `duration_s` where that is not its own affair."""

    at_s: float
    kind: str
    target: str
    duration_s: float

    @property
    def name(self) -> str:
        return f"{self.kind} {self.target}" if self.target else self.kind


class Kind(NamedTuple):
    """How a kind of fault is drawn: how often beside the others, on whom, and for how long."""

    weight: int
    targets: tuple[str, ...]
    duration_s: tuple[float, float]


KINDS = {
    "kill": Kind(6, ROLES, (0.5, 9.0)),
    "terminate": Kind(4, ROLES, (0.5, 5.0)),
    "pause": Kind(
        5, ROLES, (0.3, 12.0)
    ),  # beyond 6 s the session expires, beyond 10 s the replica falls out of its ISR
    "kill-all": Kind(1, ("brokers",), (0.5, 3.0)),
    "kill-some": Kind(2, ("brokers",), (0.5, 6.0)),
    "pause-all": Kind(1, ("brokers",), (0.5, 8.0)),
    "restart-zookeeper": Kind(2, ("",), (0.3, 8.0)),
    "cut-brokers": Kind(3, ("leader follower", "any any"), (1.0, 12.0)),
    "cut-brokers-one-way": Kind(3, ("leader follower", "follower leader", "any any"), (1.0, 12.0)),
    "cut-zookeeper": Kind(3, ROLES, (1.0, 10.0)),
    "cut-zookeeper-one-way": Kind(2, ROLES, (1.0, 10.0)),
    "cut-clients": Kind(2, ("leader", "coordinator"), (1.0, 8.0)),
    "cut-clients-one-way": Kind(2, ("leader", "coordinator"), (1.0, 8.0)),
    "isolate": Kind(2, ROLES, (1.0, 12.0)),
    "rolling-restart": Kind(1, ("brokers",), (0.0, 0.0)),
}


def draw_plan(seed: int, seconds: float) -> list[Fault]:
    """The faults of a run: none begins in its last two seconds."""
    rng = random.Random(seed)
    kinds = list(KINDS)
    weights = [KINDS[kind].weight for kind in kinds]
    plan, at_s = [], FIRST_FAULT_S
    while at_s < seconds - 2:
        (name,) = rng.choices(kinds, weights)
        kind = KINDS[name]
        target, duration_s = rng.choice(kind.targets), rng.uniform(*kind.duration_s)
        plan.append(Fault(round(at_s, 2), name, target, round(min(duration_s, max(seconds - at_s, 0.5)), 2)))
        at_s += rng.uniform(*PAUSE_S)
    return plan
