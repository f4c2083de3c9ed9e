"""The ends of partitions, as ListOffsets of their leaders says them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import trio

from barnabas.console.asking import Asking
from barnabas.wire import messages as m
from barnabas.wire.errors import PeerLost
from barnabas.wire.sentinels import CONSUMER, EARLIEST, LATEST
from barnabas.wire.topics import TopicPartition

PARTITIONS_MAX = 2000  # of one page: more would be slow, and too many to read


class Ends(NamedTuple):
    """The offsets between which a consumer reads; None: the leader has not said."""

    log_start_offset: int | None
    high_watermark: int | None


UNKNOWN = Ends(None, None)


async def ends_of(asking: Asking, keys: Iterable[TopicPartition]) -> dict[TopicPartition, Ends]:
    """The ends of these partitions, which the caller may describe. One that no leader knows is `UNKNOWN`."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for key in keys:
        leader = asking.broker.metadata.leader_of(*key)

        # This is the rule of ListOffsets. The leader would check the rights of this broker, not of the caller.
        if leader is not None and asking.sees(key.topic):
            by_leader.setdefault(leader, []).append(key)

    found: dict[TopicPartition, Ends] = {}

    async def ask(leader: int, asked: Sequence[TopicPartition]) -> None:
        try:
            starts = await offsets_at(asking, leader, dict.fromkeys(asked, EARLIEST))
            ends = await offsets_at(asking, leader, dict.fromkeys(asked, LATEST))
        # The leader may have just died. The page shows that these ends are not known.
        except PeerLost:
            return
        for key in asked:
            found[key] = Ends(starts.get(key), ends.get(key))

    async with trio.open_nursery() as nursery:
        for leader, asked in by_leader.items():
            nursery.start_soon(ask, leader, asked)
    return found


async def offsets_at(
    asking: Asking, leader: int, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The first offset at or after each timestamp; -1 if there is none. What the leader refuses is missing. PeerLost.

    The caller may describe the topics.
    """
    # Each partition of a request has one timestamp, so the two ends are two requests.
    request = m.ListOffsetsRequest
    asked: dict[str, list[m.ListOffsetsRequest.ListOffsetsPartition]] = {}
    for key, timestamp in timestamps.items():
        row = request.ListOffsetsPartition(partition_index=key.partition, timestamp=timestamp)
        asked.setdefault(key.topic, []).append(row)

    # A consumer's view: the end is the high watermark, not the log end offset.
    topics = [request.ListOffsetsTopic(name=name, partitions=rows) for name, rows in asked.items()]
    response = await asking.ask_at(leader, request(replica_id=CONSUMER, topics=topics), m.ListOffsetsResponse)
    return {
        TopicPartition(topic.name, row.partition_index): row.offset
        for topic in response.topics
        for row in topic.partitions
        if not row.error_code
    }
