"""Which replicas go where (pure): to brokers that a person names, or away from brokers.

A plan has the replicas of each partition before and after it, the preferred leader first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from barnabas.wire.topics import TopicPartition

Replicas = tuple[int, ...]
ALL_REPLICAS = "*"


class Move(NamedTuple):
    """One partition."""

    partition: TopicPartition
    before: Replicas
    after: Replicas

    @property
    def adding(self) -> Replicas:
        """The brokers that copy the partition."""
        return tuple(each for each in self.after if each not in self.before)


def move_to(current: Mapping[TopicPartition, Replicas], brokers: Sequence[int], *, rotates: bool) -> list[Move]:
    """Give each partition exactly these replicas. `rotates`: the preferred leaders go round among the brokers."""
    moves = []
    for key, before in current.items():
        first = key.partition % len(brokers) if rotates else 0
        moves.append(Move(key, before, (*brokers[first:], *brokers[:first])))
    return [move for move in moves if move.before != move.after]


def move_away(
    current: Mapping[TopicPartition, Replicas],
    leaving: Iterable[int],
    racks: Mapping[int, str | None],
    chosen: Iterable[TopicPartition],
) -> list[Move]:
    """Replace the replicas of the chosen partitions on brokers that leave. ValueError if no broker is left for one.

    `racks` has every broker that is up. Of those that have no replica of the partition yet, a broker of another rack
    than its other replicas comes first, then the one with the fewest replicas.
    """
    gone = set(leaving)
    load = Counter(broker for replicas in current.values() for broker in replicas)
    moves = []
    for key in chosen:
        after = list(current[key])
        for position, broker in enumerate(current[key]):
            if broker not in gone:
                continue
            free = [each for each in racks if each not in gone and each not in after]
            if not free:
                raise ValueError(f"partition {key}: every broker that stays has a replica already")
            others = {racks.get(each) for each in after if each not in gone} - {None}
            ranked = sorted((racks[each] in others, load[each], each) for each in free)
            after[position] = ranked[0][-1]
            load[after[position]] += 1
        if tuple(after) != current[key]:
            moves.append(Move(key, current[key], tuple(after)))
    return moves


def throttled_replicas(moves: Iterable[Move]) -> dict[str, tuple[list[str], list[str]]]:
    """Topic -> the replicas that send and those that receive, each as `partition:broker`."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for move in moves:
        senders, receivers = found.setdefault(move.partition.topic, ([], []))
        senders += [f"{move.partition.partition}:{broker}" for broker in move.before]
        receivers += [f"{move.partition.partition}:{broker}" for broker in move.adding]
    return found


def merged(value: str | None, more: Iterable[str]) -> str:
    """A list of throttled replicas with more in it; `*` has all of them."""
    before = [each for each in (value or "").split(",") if each]
    return ALL_REPLICAS if ALL_REPLICAS in before else ",".join(dict.fromkeys([*before, *more]))
