"""The cases, and the strikes that a seed draws for each of them (pure)."""

import itertools
import random
from typing import NamedTuple

TARGETS = ("brokers", "copiers")
SIGNALS = ("SIGKILL", "SIGTERM")
GROUPS = ("id", "metadata", "member")
PARTITIONS = (1, 3)
BROKERS = (1, 2, 3)
ROUNDS = {"brokers": 2, "copiers": 4}  # how often each of them is struck
LAST_SHARE = 0.85  # of the numbers; behind the last strike something is left to copy
DOWN_S = (0.2, 9.0)  # of a struck broker: its session of 6 s is over at the restart, or is not


class Case(NamedTuple):
    """What is struck and how, and how the copiers commit offsets.

    `group` is what a TxnOffsetCommit says of the group: its id; `--use-group-metadata` of a consumer whose partitions
    were assigned by hand; or the same of a member (`--group-mode`), so that the coordinator checks its generation.
    """

    target: str
    signal: str
    group: str
    partitions: int

    @property
    def name(self) -> str:
        return f"{self.target} {self.signal} {self.group} {self.partitions}"


class Strike(NamedTuple):
    """A signal to the victim (a broker's id, a copier's number) when this share of the numbers was read."""

    share: float
    victim: int
    down_s: float


# Apache Kafka's own matrix (transactions_test.py), and members of a group in addition.
CASES = [
    *(Case(*values) for values in itertools.product(TARGETS, SIGNALS, GROUPS[:2], PARTITIONS)),
    *(Case(*values) for values in itertools.product(TARGETS, SIGNALS, GROUPS[2:], PARTITIONS[1:])),
]


def draw_strikes(case: Case, seed: int, rounds: int | None = None) -> list[Strike]:
    """Each victim once a round, in any order, spread over the copying."""
    rng = random.Random(f"{seed} {case.name}")
    victims = BROKERS if case.target == "brokers" else range(case.partitions)
    order = [victim for _ in range(rounds or ROUNDS[case.target]) for victim in rng.sample(victims, len(victims))]
    return [
        Strike(
            share=round(LAST_SHARE * (number + rng.uniform(0.1, 0.9)) / len(order), 4),
            victim=victim,
            down_s=round(rng.uniform(*DOWN_S), 2) if case.target == "brokers" else 0.0,
        )
        for number, victim in enumerate(order)
    ]
