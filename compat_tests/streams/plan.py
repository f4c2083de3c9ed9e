"""Kills drawn by a seed (pure): of whom, when, and how long the victim stays down.

A plan says roles, not numbers: which broker has a role is found out when the kill is due. Each of `ROLES` is killed
before any is killed twice by chance. The kills of brokers share the time among them, and each comes at a random moment
of its share, so with the usual numbers at most two brokers are down at once. The same holds for instances.
"""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

ROLES = ("transaction coordinator", "group coordinator", "controller")
ANY_BROKER, INSTANCE = "any broker", "instance"
FIRST_KILL_S, LAST_KILL_S = 3.0, 5.0  # after the beginning of the run, and before its end
DOWN_S = {  # a broker comes back before the others notice (its session lasts 6 s), or afterwards
    "broker": (0.5, 9.0),
    INSTANCE: (0.5, 15.0),  # a member is missed after 10 s
}


class Kill(NamedTuple):
    """SIGKILL of whom has this role, `at_s` after the beginning; restarted after `down_s`."""

    at_s: float
    role: str
    down_s: float


def draw_plan(seed: int, seconds: float, brokers: int, instances: int) -> list[Kill]:
    """So many kills of each kind, in the order of time."""
    rng = random.Random(seed)
    roles = [*ROLES, *rng.choices([*ROLES, ANY_BROKER], k=max(brokers - len(ROLES), 0))]
    rng.shuffle(roles)
    of_brokers = _spread(rng, seconds, roles[:brokers], "broker")
    return sorted([*of_brokers, *_spread(rng, seconds, [INSTANCE] * instances, INSTANCE)])


def _spread(rng: random.Random, seconds: float, roles: Sequence[str], kind: str) -> Iterator[Kill]:
    share_s = (seconds - FIRST_KILL_S - LAST_KILL_S) / max(len(roles), 1)
    for number, role in enumerate(roles):
        at_s = FIRST_KILL_S + (number + rng.random()) * share_s
        yield Kill(round(at_s, 2), role, round(rng.uniform(*DOWN_S[kind]), 2))
