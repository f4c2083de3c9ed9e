"""The records of a topic: a page of them, the tail, a download, one value as it is.

`GET /v1/topics/{topic}/records` begins at one of

    newest=50                  the last ones of each partition, and of them the newest
    time=1700000000000         the first at or after this time, in ms
    offset=17                  with partition=0
    from=0:17,1:4              an offset for each partition: the `next` of an earlier answer

and has `partition`, `count` (at most RECORDS_MAX) and `wait_ms`, the time to wait for new records: the tail.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from heapq import merge
from typing import NamedTuple

from barnabas.broker.life import Life
from barnabas.console.asking import Asking, asking_for, check
from barnabas.console.decoding import (
    Found,
    Shown,
    Slice,
    has_transactions,
    lines_of,
    records_in,
    shown_record,
)
from barnabas.console.exchange import JSON, Answer, BadRequest, HttpRequest, Send, whole_number
from barnabas.console.fetching import Fetched, Limits, aborted_in, fetch
from barnabas.console.offsets import PARTITIONS_MAX, UNKNOWN, ends_of, offsets_at
from barnabas.wire.errors import ErrorCode, PeerLost, error_name
from barnabas.wire.topics import TopicPartition
from barnabas.world.net import ConnectionLost

logger = logging.getLogger(__name__)

RECORDS_MAX = 500
COUNT_DEFAULT = 100
FETCH_BYTES = 1 << 20
PAGE_BYTES = 8 << 20  # fetched for one page
FEWER = 8  # times fewer records of each partition are read, if the newest ones do not fit
WAIT_MS_MAX = 2000
NO_ANSWER = "its leader does not answer"
INT64_MAX = (1 << 63) - 1
LINES = "application/x-ndjson"
BINARY = "application/octet-stream"


class Place(NamedTuple):
    """Where records are read."""

    topic: str
    positions: dict[int, int]  # partition -> offset
    silent: Sequence[int] = ()  # partitions whose leader does not say where they end


class Page(NamedTuple):
    """What was read."""

    found: list[tuple[int, Found]]  # with their partitions
    positions: dict[int, int]  # where reading goes on
    high_watermarks: dict[int, int]
    problems: dict[int, str]
    is_cut: bool = False  # by PAGE_BYTES: there are records behind it that were asked for


async def records(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/topics/{topic}/records`: at most RECORDS_MAX records, and where the next ones are."""
    asking = asking_for(life, request)
    count = number(request, "count", 1, RECORDS_MAX, COUNT_DEFAULT)
    wait_ms = number(request, "wait_ms", 0, WAIT_MS_MAX, 0)
    topic = request.params["topic"]
    if not asking.may("Read", "Topic", topic) and asking.sees(topic):
        check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {topic!r}")

    # The newest records are those of now, so there is no wait: if many came during it, only the last of them would be
    # shown, and the tail, which begins behind them, would miss the others.
    newest = "newest" in request.query
    if newest:
        wait_ms = 0
        count = number(request, "newest", 1, RECORDS_MAX, COUNT_DEFAULT)
    place = await place_of(asking, request, count)
    page = await read_page(asking, place, count, wait_ms, newest=newest)

    # PAGE_BYTES of long records may end before the newest ones. Then fewer records of each partition are read.
    each = count
    while newest and page.is_cut and each > 1:
        each = max(1, each // FEWER)
        page = await read_page(asking, await place_of(asking, request, each), count, wait_ms, newest=newest)

    # Half a thousand records make megabytes of JSON: too much for one step of the event loop.
    body = await asking.broker.world.in_request_thread(_page_json, page)
    return Answer(200, JSON, body)


def _page_json(page: Page) -> bytes:
    rows: list[Shown] = [shown_record(partition, found) for partition, found in page.found]
    return json.dumps(
        {
            "records": rows,
            "next": ",".join(f"{partition}:{offset}" for partition, offset in sorted(page.positions.items())),
            "high_watermarks": page.high_watermarks,
            "problems": page.problems,
        },
        ensure_ascii=False,
    ).encode("utf-8", "replace")


async def place_of(asking: Asking, request: HttpRequest, count: int) -> Place:
    """Where a request asks to begin. BadRequest says what is wrong with it."""
    topic = request.params["topic"]
    known = asking.topic(topic).partitions
    query = request.query
    if "from" in query:
        return Place(topic, _parsed_positions(topic, query["from"], known))

    # Otherwise the leaders are asked for the ends of all partitions first, and each position lies between the ends.
    asked = asked_partitions(asking, request)
    if len(asked) > PARTITIONS_MAX:
        raise BadRequest(f"topic {topic!r} has {len(asked)} partitions: choose one of them")
    if "offset" in query and len(asked) > 1:
        raise BadRequest("an offset needs a partition")

    keys = [TopicPartition(topic, index) for index in asked]
    ends = await ends_of(asking, keys)
    positions = {}
    silent = []
    for key in keys:
        start, end = ends.get(key, UNKNOWN)

        # Without a leader there is nothing to read.
        if start is None or end is None:
            silent.append(key.partition)
            continue
        positions[key.partition] = start
        if "newest" in query:
            positions[key.partition] = max(start, end - count)
        elif "offset" in query:
            positions[key.partition] = min(max(start, number(request, "offset", 0, INT64_MAX, 0)), end)
    if "time" in query:
        positions |= await _positions_at(asking, keys, number(request, "time", 0, INT64_MAX, 0), ends)
    return Place(topic, positions, silent)


def asked_partitions(asking: Asking, request: HttpRequest) -> list[int]:
    """The partition that a request names, or all of the topic. BadRequest."""
    topic = request.params["topic"]
    if request.query.get("partition", "all") == "all":
        return list(asking.topic(topic).partitions)
    index = number(request, "partition", 0, 1 << 31, 0)
    asking.partition(topic, index)
    return [index]


async def _positions_at(
    asking: Asking, keys: list[TopicPartition], timestamp: int, ends: Mapping[TopicPartition, object]
) -> dict[int, int]:
    positions = {}
    for key in keys:
        leader = asking.broker.metadata.leader_of(*key)
        known = ends.get(key, UNKNOWN)
        if leader is None or not isinstance(known, tuple) or known[1] is None:
            continue
        try:
            found = (await offsets_at(asking, leader, {key: timestamp})).get(key, -1)
        except PeerLost:
            continue
        # If no record is so late, reading begins at the end: the next record will be late enough.
        positions[key.partition] = known[1] if found < 0 else found
    return positions


def _parsed_positions(topic: str, text: str, known: Mapping[int, object]) -> dict[int, int]:
    positions = {}
    for part in text.split(",") if text else ():
        before, _, behind = part.partition(":")
        partition, offset = whole_number(before), whole_number(behind)
        if partition is None or offset is None or offset > INT64_MAX:
            raise BadRequest(f"from={text!r:.100}: expected partition:offset, separated by commas")
        if partition not in known:
            raise BadRequest(f"topic {topic!r} has no partition {partition}", status=404)
        positions[partition] = offset
    return positions


def number(request: HttpRequest, name: str, smallest: int, largest: int, default: int) -> int:
    """A number of the query. BadRequest if it is none, or out of range."""
    text = request.query.get(name)
    if text is None:
        return default
    value = whole_number(text)
    if value is None or not smallest <= value <= largest:
        raise BadRequest(f"{name}={text!r:.40}: expected a number from {smallest} to {largest}")
    return value


async def read_page(asking: Asking, place: Place, count: int, wait_ms: int, *, newest: bool = False) -> Page:
    """Up to `count` records behind these positions, in the order of their timestamps."""
    page = Page([], dict(place.positions), {}, dict.fromkeys(place.silent, NO_ANSWER))

    # Each round fetches from the partitions that have more. The fetched bytes are bounded, whatever the records are.
    open_positions = dict(place.positions)
    fetched_bytes = 0
    while open_positions and fetched_bytes < PAGE_BYTES:
        keys = {TopicPartition(place.topic, index): offset for index, offset in open_positions.items()}
        answered = await fetch(asking, keys, Limits(FETCH_BYTES, 0 if page.found else wait_ms))
        open_positions = {}
        for key, offset in keys.items():
            fetched = answered.get(key)
            if fetched is None:
                page.problems[key.partition] = NO_ANSWER
                continue
            fetched_bytes += len(fetched.records)
            if await _take(asking, key, offset, fetched, page, count):
                open_positions[key.partition] = page.positions[key.partition]
        # The tail (`wait_ms`) returns what is there, and the page asks again.
        if wait_ms or (not newest and len(page.found) >= count):
            break

    in_order = _in_order(page.found)
    if newest:
        return page._replace(found=in_order[-count:], is_cut=bool(open_positions))
    # What is beyond the page is left to the next one.
    for partition, found in reversed(in_order[count:]):
        page.positions[partition] = found.record.offset
    return page._replace(found=in_order[:count])


def _in_order(found: list[tuple[int, Found]]) -> list[tuple[int, Found]]:
    """By timestamp, but each partition in the order of its offsets: its timestamps may go back."""
    partitions: dict[int, list[tuple[int, Found]]] = {}
    for each in found:
        partitions.setdefault(each[0], []).append(each)
    # `merge` compares only the first ones that are left, so it keeps the order of each of its inputs.
    return list(merge(*partitions.values(), key=lambda each: each[1].record.timestamp))


async def _take(asking: Asking, key: TopicPartition, offset: int, fetched: Fetched, page: Page, count: int) -> bool:
    """Add the records of one partition. Whether there are more."""
    if fetched.error_code:
        page.problems[key.partition] = error_name(fetched.error_code)
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            page.positions[key.partition] = await _nearest(asking, key, offset, count)
        return False

    page.high_watermarks[key.partition] = fetched.high_watermark
    if not fetched.records:
        return False

    # The aborted transactions are asked for only if a batch belongs to a transaction: most topics have none.
    in_thread = asking.broker.world.in_request_thread
    aborted: Sequence[tuple[int, int]] = ()
    if await in_thread(has_transactions, fetched.records):
        aborted = await aborted_in(asking, key, offset, len(fetched.records))
    wanted = Slice(fetched.records, offset, fetched.high_watermark, fetched.last_stable_offset, aborted)
    found, next_offset, problem = await in_thread(records_in, wanted, count)

    # The position stays in front of a damaged batch, so the records behind it are not lost.
    page.found.extend((key.partition, each) for each in found)
    page.positions[key.partition] = next_offset
    if problem is not None:
        page.problems[key.partition] = problem
        return False
    return next_offset < fetched.high_watermark and next_offset > offset and len(found) < count


async def _nearest(asking: Asking, key: TopicPartition, offset: int, count: int) -> int:
    """Where reading goes on if this offset is out of range: at the first record, or `count` records before the end."""
    start, end = (await ends_of(asking, [key])).get(key, UNKNOWN)
    if start is None or end is None:
        return offset
    # If the offset is above the end, the log has lost its end, or the topic was deleted and created again: the tail
    # then begins as at the first time.
    return start if offset < start else max(start, end - count)


# -- downloads


async def download(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/topics/{topic}/download`: a record a line, from where `records` would begin up to the end of now.

    With `count` at most so many. 503 if a partition has no leader that answers. If one fails later, the answer is cut
    off: the client sees that it is not whole.
    """
    asking = asking_for(life, request)
    topic = request.params["topic"]
    if not asking.may("Read", "Topic", topic) and asking.sees(topic):
        check(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"topic {topic!r}")
    newest = number(request, "newest", 1, RECORDS_MAX, COUNT_DEFAULT)
    left = number(request, "count", 1, INT64_MAX, INT64_MAX)
    place = await place_of(asking, request, newest)
    ends = await ends_of(asking, [TopicPartition(topic, index) for index in place.positions])
    asked = place.positions.keys() if "from" in request.query else asked_partitions(asking, request)
    for partition in asked:
        if ends.get(TopicPartition(topic, partition), UNKNOWN).high_watermark is None:
            raise BadRequest(f"partition {partition} of topic {topic!r} has no leader that answers", status=503)

    async def write(send: Send) -> None:
        # Records are sent up to the ends of now: the download of a topic that is always written to would never end.
        count = left
        for partition in sorted(place.positions):
            key = TopicPartition(topic, partition)
            try:
                count -= await _write_lines(asking, send, key, place, ends[key].high_watermark or 0, count)
            # It is too late for another status. The answer is cut off, so that the client does not take it for all.
            except BadRequest as error:
                logger.warning("the download of %s ends early: %s", key, error)
                raise ConnectionLost(str(error)) from error
            if count <= 0:
                return

    # The name has only characters that a topic may have, which need no quoting.
    return Answer(200, LINES, write, [("content-disposition", f'attachment; filename="{topic}.jsonl"')])


async def _write_lines(
    asking: Asking, send: Send, key: TopicPartition, place: Place, end_offset: int, count_max: int
) -> int:
    """Send the records of one partition; how many there were. BadRequest if they cannot be read to the end."""
    written = 0
    offset = place.positions[key.partition]
    in_thread = asking.broker.world.in_request_thread
    while offset < end_offset and written < count_max:
        fetched = (await fetch(asking, {key: offset}, Limits(FETCH_BYTES))).get(key)
        if fetched is None:
            raise BadRequest(f"offset {offset}: {NO_ANSWER}")
        # Retention has deleted records since: the download goes on with those that are left.
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and offset < fetched.log_start_offset:
            offset = fetched.log_start_offset
            continue
        check(fetched.error_code, f"offset {offset}")

        # Compaction may have left nothing up to the end.
        if not fetched.records and fetched.high_watermark >= end_offset:
            break
        aborted: Sequence[tuple[int, int]] = ()
        if await in_thread(has_transactions, fetched.records):
            aborted = await aborted_in(asking, key, offset, len(fetched.records))
        wanted = Slice(fetched.records, offset, end_offset, fetched.last_stable_offset, aborted)
        found, next_offset, problem = await in_thread(records_in, wanted, min(count_max - written, RECORDS_MAX))
        await send(await in_thread(_joined, key, found))
        if next_offset == offset:
            raise BadRequest(f"offset {offset}: {problem or 'there is no record any more'}")
        written += len(found)
        offset = next_offset
    return written


def _joined(key: TopicPartition, found: list[Found]) -> bytes:
    return b"".join(lines_of(key.topic, key.partition, found))


async def part_of_record(life: Life, request: HttpRequest) -> Answer:
    """`GET /v1/topics/{topic}/records/{partition}/{offset}/{part}`: the bytes of a key or a value, all of them."""
    asking = asking_for(life, request)
    given = request._replace(query=dict(request.params))
    key = TopicPartition(request.params["topic"], number(given, "partition", 0, 1 << 31, 0))
    offset = number(given, "offset", 0, INT64_MAX, 0)
    part = request.params["part"]
    if part not in ("key", "value"):
        raise BadRequest(f"a record has a key and a value, no {part!r:.40}", status=404)
    asking.partition(*key)

    # With a limit of one byte, Fetch returns the batch that has the record, and no other.
    fetched = (await fetch(asking, {key: offset}, Limits(1))).get(key)
    if fetched is None:
        raise BadRequest(f"the leader of {key} does not answer", status=503)
    check(fetched.error_code, f"{key}, offset {offset}")
    wanted = Slice(fetched.records, offset, fetched.high_watermark, fetched.last_stable_offset, ())
    found, _, _ = await asking.broker.world.in_request_thread(records_in, wanted, 1)
    if not found or found[0].record.offset != offset:
        raise BadRequest(f"{key} has no record at offset {offset}", status=404)
    data = found[0].record.key if part == "key" else found[0].record.value
    if data is None:
        raise BadRequest(f"the {part} of {key}, offset {offset}, is null", status=404)

    # The bytes may be anything, so they are sent as an attachment, of a type that no browser shows.
    name = f"{key}-{offset}.{part}"
    return Answer(200, BINARY, bytes(data), [("content-disposition", f'attachment; filename="{name}"')])
