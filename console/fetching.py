"""Reads records of partitions, as a consumer would: a Fetch of each leader, answered to the caller."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import trio

from barnabas.console.asking import Asking, check
from barnabas.console.unread import FIRST_BATCH_BYTES, first_time
from barnabas.storage.disk import FileSlice
from barnabas.wire import messages as m
from barnabas.wire.compression import CorruptRecords
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.wire.sentinels import FETCH_BY_NAME_VERSION, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.wire.topics import TopicPartition
from barnabas.world.pacing import complete


class Fetched(NamedTuple):
    """What a leader has of one partition, from an offset on."""

    records: bytes  # whole batches; the first may begin below the offset
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]]  # (producer id, first offset) of transactions; only with READ_COMMITTED
    error_code: int


class Limits(NamedTuple):
    """Of one Fetch."""

    bytes_max: int
    wait_ms: int = 0
    isolation_level: int = READ_UNCOMMITTED


async def fetch(
    asking: Asking, positions: Mapping[TopicPartition, int], limits: Limits
) -> dict[TopicPartition, Fetched]:
    """The records behind each position. Partitions without a leader that answers are missing.

    BadRequest if the caller may not read a topic.
    """
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for key, offset in positions.items():
        # The handler of Fetch checks this right, too, but at another broker it checks that of this broker.
        if not asking.may("Read", "Topic", key.topic):
            check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {key.topic!r}")
        leader = asking.broker.metadata.leader_of(*key)
        if leader is not None:
            by_leader.setdefault(leader, {})[key] = offset
    found: dict[TopicPartition, Fetched] = {}

    async def ask(leader: int, asked: Mapping[TopicPartition, int]) -> None:
        try:
            found.update(await _fetch_at(asking, leader, asked, limits))
        # Its partitions are missing in the answer, which says so.
        except PeerLost:
            return

    async with trio.open_nursery() as nursery:
        for leader, asked in by_leader.items():
            nursery.start_soon(ask, leader, asked)
    return found


async def _fetch_at(
    asking: Asking, leader: int, positions: Mapping[TopicPartition, int], limits: Limits
) -> dict[TopicPartition, Fetched]:
    # Each partition gets a fair share. The first batch of a response may be larger than its limit, as for a consumer.
    each_max = max(limits.bytes_max // len(positions), FIRST_BATCH_BYTES)
    rows: dict[str, list[m.FetchRequest.FetchPartition]] = {}
    for key, offset in positions.items():
        wanted = m.FetchRequest.FetchPartition(
            partition=key.partition, fetch_offset=offset, partition_max_bytes=each_max
        )
        rows.setdefault(key.topic, []).append(wanted)
    request = m.FetchRequest(
        max_wait_ms=limits.wait_ms,
        min_bytes=1 if limits.wait_ms else 0,
        max_bytes=limits.bytes_max,
        isolation_level=limits.isolation_level,
        topics=[m.FetchRequest.FetchTopic(topic=name, partitions=asked) for name, asked in rows.items()],
    )
    response = await asking.ask_at(leader, request, m.FetchResponse, FETCH_BY_NAME_VERSION)

    # This broker's own answer refers to its files, another one's has the bytes.
    found = {}
    for topic in response.responses:
        for row in topic.partitions:
            found[TopicPartition(topic.topic, row.partition_index)] = Fetched(
                records=await _bytes_of(asking, row.records),
                high_watermark=row.high_watermark,
                last_stable_offset=row.last_stable_offset,
                log_start_offset=row.log_start_offset,
                aborted=[(each.producer_id, each.first_offset) for each in row.aborted_transactions or ()],
                error_code=row.error_code,
            )
    return found


async def _bytes_of(asking: Asking, records: m.Records | None) -> bytes:
    if records is None:
        return b""
    if isinstance(records, bytes | bytearray | memoryview):
        return bytes(records)
    assert isinstance(records, FileSlice), "the other form of a read"

    # No connection sends this slice, so it is read here, and its file is let go.
    try:
        return await asking.broker.world.in_thread(records.read)
    finally:
        records.release()


async def aborted_in(asking: Asking, key: TopicPartition, offset: int, bytes_max: int) -> Sequence[tuple[int, int]]:
    """The aborted transactions of what `fetch` returns for this position and limit."""
    found = await fetch(asking, {key: offset}, Limits(bytes_max, isolation_level=READ_COMMITTED))
    return found[key].aborted if key in found else ()


async def first_timestamps(asking: Asking, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamp in ms of the first record at or after each position, where it can be read."""
    found = {}
    for key, offset in positions.items():
        # Partitions are asked one after the other: in one Fetch only the first batch may be larger than the limit.
        fetched = (await fetch(asking, {key: offset}, Limits(FIRST_BATCH_BYTES))).get(key)
        if fetched is None or not fetched.records:
            continue
        try:
            steps = first_time(memoryview(fetched.records), offset)
            timestamp = await complete(steps, asking.broker.world.in_request_thread)
        # The page of these records shows the error; here the lag in seconds is missing.
        except CorruptRecords:
            continue
        if isinstance(timestamp, int):
            found[key] = timestamp
    return found
