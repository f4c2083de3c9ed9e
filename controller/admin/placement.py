"""Which brokers get the replicas of new partitions (pure; reference B.14; KIP-36 for racks).

Theory of operation
-------------------
The brokers form a ring. The first replica (the preferred leader) goes round the ring, one broker for each partition, so
leaderships are spread evenly. The other replicas follow at a distance, the shift.

With racks the ring alternates between them (r1, r2, r3, r1, ...), which spreads leaders over racks. Followers are taken
along the ring.

The formulas are Kafka's, exactly: partitions that a Java broker adds to a topic continue the pattern that was begun
here, and the reverse. A new topic starts at a random broker; further partitions continue from where partition 0 is
(`start_of_new_partitions`).
"""

import random
from collections.abc import Mapping, Sequence
from enum import Enum


class RackAwareness(Enum):
    """What to do with the brokers' racks."""

    ENFORCED = "enforced"  # use them; a mixture of brokers with and without rack is an error
    SAFE = "safe"  # use them only if all brokers have one
    DISABLED = "disabled"


class CannotPlace(ValueError):
    """The replicas cannot be placed; the text is Kafka's own."""


class TooFewBrokers(CannotPlace):
    """The replication factor is not positive, or exceeds the live brokers."""


class NoPartitions(CannotPlace):
    """The number of partitions is not positive."""


class MixedRacks(CannotPlace):
    """Some brokers have a rack and some have not."""


def place_replicas(
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    rng: random.Random,
    *,
    rack_awareness: RackAwareness = RackAwareness.ENFORCED,
    start: int | None = None,
    first_partition: int = 0,
) -> dict[int, list[int]]:
    """Replicas of `partition_count` partitions from `first_partition` on; `brokers` maps live broker ids to racks.

    `start` is the position of partition 0 in the ring, None for a random one. CannotPlace.
    """
    if partition_count <= 0:
        raise NoPartitions("Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise TooFewBrokers("Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise TooFewBrokers(f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.")
    racks = _usable_racks(brokers, rack_awareness)
    ring = _rack_ring(racks) if racks else sorted(brokers)

    # Both are random for a new topic: otherwise the first brokers would lead most topics with few partitions.
    shift = rng.randrange(len(ring)) if start is None else start
    start = rng.randrange(len(ring)) if start is None else start
    placed: dict[int, list[int]] = {}
    for partition in range(first_partition, first_partition + partition_count):
        # The shift grows after each round, so that partitions with the same leader do not have the
        # same followers: when a broker dies, its load spreads over many.
        if partition > 0 and partition % len(ring) == 0:
            shift += 1
        first = (partition + start) % len(ring)
        if racks:
            placed[partition] = _one_per_rack(ring, racks, first, shift, replication_factor)
        else:
            others = (_follower(first, shift, index, len(ring)) for index in range(replication_factor - 1))
            placed[partition] = [ring[first], *(ring[position] for position in others)]

    return placed


def start_of_new_partitions(brokers: Mapping[int, str | None], first_replicas: Sequence[int]) -> int:
    """The `start` with which further partitions continue a topic whose partition 0 has these replicas.

    The position, in order of ids, of the first broker whose id is not below the first replica's; 0 if there is none.
    """
    # This position is not the one in the ring if there are racks, but Kafka takes it, too. The
    # first replica's broker may be dead, so its id need not be found.
    ids = sorted(brokers)
    return next((position for position, broker in enumerate(ids) if broker >= first_replicas[0]), 0)


def _usable_racks(brokers: Mapping[int, str | None], awareness: RackAwareness) -> dict[int, str]:
    """Broker id -> rack; empty if racks are not used."""
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if awareness is RackAwareness.DISABLED or not racks:
        return {}
    # A broker without a rack fits into no ring of racks.
    if len(racks) < len(brokers):
        if awareness is RackAwareness.ENFORCED:
            raise MixedRacks("Not all brokers have rack information for replica rack aware assignment.")
        return {}
    return racks


def _rack_ring(racks: Mapping[int, str]) -> list[int]:
    """Brokers, alternating between racks in order of name; within a rack in order of id."""
    waiting = {
        rack: sorted(broker for broker in racks if racks[broker] == rack) for rack in sorted(set(racks.values()))
    }
    longest = max(len(brokers) for brokers in waiting.values())
    return [brokers[turn] for turn in range(longest) for brokers in waiting.values() if turn < len(brokers)]


def _follower(first: int, shift: int, index: int, size: int) -> int:
    """The position of follower `index` of a partition whose first replica is at `first`."""
    # The shift is modulo size - 1, from the position after `first`: a follower is never the first
    # replica itself.
    return (first + 1 + (shift + index) % (size - 1)) % size


def _one_per_rack(
    ring: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> list[int]:
    """Replicas along the ring, two in a rack only if every rack has one."""
    rack_count = len(set(racks.values()))
    replicas = [ring[first]]
    used_racks = {racks[ring[first]]: None}
    step = 0
    # The loop ends, because `step` visits every broker, and there are at least
    # `replication_factor` of them.
    while len(replicas) < replication_factor:
        broker = ring[_follower(first, shift * rack_count, step, len(ring))]
        step += 1
        if broker not in replicas and (racks[broker] not in used_racks or len(used_racks) == rack_count):
            replicas.append(broker)
            used_racks[racks[broker]] = None
    return replicas
