"""Places in a topic as offsets of its partitions (edge)."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.cluster import Cluster
    from barnabas.client.offsets import Found
    from barnabas.wire.topics import TopicPartition


async def partitions_named(cluster: "Cluster", topic: str, partitions: Sequence[int]) -> "list[TopicPartition]":
    """These partitions of a topic; none named: all. ClientError for one that there is not."""
    from barnabas.client.cluster import NEW_LEADER_SECONDS
    from barnabas.client.errors import ClientError
    from barnabas.client.offsets import partitions_of

    # Whether these have leaders is seen when their offsets are looked up.
    found = await cluster.topics([topic], leader_seconds=NEW_LEADER_SECONDS)
    all_keys = partitions_of(found[topic])
    missing = sorted(set(partitions) - {key.partition for key in all_keys})
    if missing:
        raise ClientError(f"topic {topic!r} has the partitions 0 to {len(all_keys) - 1}, and no partition {missing[0]}")
    return [key for key in all_keys if not partitions or key.partition in partitions]


async def offsets_at(
    cluster: "Cluster", keys: "Sequence[TopicPartition]", text: str, *, committed: bool = False
) -> "dict[TopicPartition, int]":
    """The offset of this place in each partition, within the partition's present bounds.

    `committed`: a partition ends where the first open transaction begins.
    """
    from barnabas.cli.when import BeforeEnd, Offset, parse_place
    from barnabas.client.errors import ClientError
    from barnabas.client.offsets import list_offsets
    from barnabas.wire.sentinels import EARLIEST, LATEST

    try:
        place = parse_place(text, time.time_ns() // 1_000_000)
    except ValueError as error:
        raise ClientError(str(error)) from None

    # An offset that the log does not hold any more, or not yet, would be refused.
    starts = await list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(keys, LATEST), isolation_level=1 if committed else 0)
    if isinstance(place, Offset):
        return {key: min(max(place.offset, starts[key].offset), ends[key].offset) for key in keys}
    if isinstance(place, BeforeEnd):
        return {key: max(ends[key].offset - place.records, starts[key].offset) for key in keys}
    found: dict[TopicPartition, Found] = await list_offsets(cluster, dict.fromkeys(keys, place.timestamp_ms))
    return {key: found[key].offset if found[key].offset >= 0 else ends[key].offset for key in keys}
