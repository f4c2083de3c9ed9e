"""Produce with acks=1 or acks=all, of one batch that belongs to no transaction.

The append is that of every Produce (`replication/appending.py`). What it finds is a value: a success is answered here,
or waits for its acknowledgement as a `PendingProduce`; everything else goes on with `BegunRows` in
`handlers/produce.py`.
"""

import struct

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.handlers.produce import acknowledge
from barnabas.broker.now.pending import PendingProduce
from barnabas.replication.appending import BegunRows, Rules, begin
from barnabas.storage.log import Appended
from barnabas.wire import messages as m
from barnabas.wire.apis import response_header_version
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frame import response_prefix
from barnabas.wire.record_batch import (
    BATCH_MAGIC,
    BATCH_OVERHEAD_BYTES,
    LENGTH_OVERHEAD_BYTES,
    TRANSACTIONAL,
    read_kind,
)
from barnabas.wire.records import SMALL_BYTES_MAX
from barnabas.wire.sentinels import ACKS_ALL
from barnabas.wire.templates import TEMPLATE_BYTES_MAX, count_prefix, parts_around
from barnabas.wire.topics import INTERNAL_TOPICS
from barnabas.world.waiting import PendingResponse, Pieces

PRODUCE = 0  # API key
VERSION_MIN = 5  # from here on a row of the response has a log start offset
FLEXIBLE_VERSION = 9
ACKS = (ACKS_ALL, 1)
NO_TAGS = b"\0\0\0"  # of the partition, of the topic and of the request

CORRELATION_AT = 4  # behind the API's key and version
_INT32 = struct.Struct(">i")
INT32_BYTES = 4
VARINT_BYTES_MAX = 3  # of a length, in a frame of up to two megabytes

# What changes in a response: its correlation id, and of its row the index, error code, base offset, append time and log
# start offset. The marks are bytes that no name of a topic has.
ROW = struct.Struct(">ihqqq")
ROW_MARKS = (-0x01020304, -0x0506, -0x0708090A0B0C0D0E, -0x1112131415161718, -0x2122232425262728)
_CORRELATION_MARK = -0x31323334

Row = m.ProduceResponse.PartitionProduceResponse


class ProduceShape:
    """What the requests of one producer for one topic have in common: all that comes before the partition's index."""

    __slots__ = (
        *("_common", "_end", "_layout", "_parts", "_rules", "_start", "_timeout_seconds", "_topic"),
        *("body_at", "call", "shown_bytes", "tally", "version"),
    )
    api_key = PRODUCE
    request = None

    def __init__(
        self, rules: Rules, call: Call, request: m.ProduceRequest, head: bytes, body_at: int, parts: list[bytes]
    ) -> None:
        """`head`: the bytes of a frame before the partition's index; `parts`: of a response, around what changes."""
        self.version = call.version
        self.tally = call.tally
        self.call = call  # of the first request, for what the later ones have in common with it
        self.body_at = body_at
        self._rules = rules
        self._topic = request.topic_data[0].name
        self._timeout_seconds = request.timeout_ms / 1000
        self._start = head[:CORRELATION_AT]
        self._common = head[CORRELATION_AT + INT32_BYTES :]
        self._layout = struct.Struct(f">{CORRELATION_AT}s4s{len(self._common)}si")
        self.shown_bytes = self._layout.size + INT32_BYTES + BATCH_OVERHEAD_BYTES  # a length has at most INT32_BYTES
        self._end = _end_of(call.version)
        self._parts = parts

    def answer(self, broker: Broker, frame: memoryview, began: float) -> Pieces | PendingResponse | BegunRows | None:
        """As `Shapes.answer`; `BegunRows` if the batch is refused, or needs more than one step."""
        layout = self._layout
        if len(frame) < layout.size + BATCH_OVERHEAD_BYTES:
            return None
        start, correlation_id, common, index = layout.unpack_from(frame)
        if start != self._start or common != self._common:
            return None
        call = self.call
        may_write = call.authorizer is None or call.authorize("Write", "Topic", self._topic, is_filter=True)
        records = self._records_of(frame) if may_write else None  # otherwise the handler refuses it, and logs that
        if records is None:
            return None
        partition = broker.replicas.get(self._topic, index)
        if isinstance(partition, ErrorCode):
            return None

        begun = begin(self._rules, partition, records, broker.world.now_ms())
        appended = begun.appended
        if not isinstance(appended, Appended):
            return {index: begun}
        outcome = partition.outcome(appended.last_offset + 1, begun.leading_since, self._rules.acks)
        before, between, after = self._parts
        row = ROW.pack(index, 0, appended.base_offset, appended.append_time_ms, appended.log_start_offset)
        response = b"".join((before, correlation_id, between, row, after))
        if outcome is ErrorCode.NONE:
            if self.tally is not None:
                self.tally.successes += 1
            return [response]
        return PendingProduce(self, broker, partition, appended, outcome, response, len(frame), began)

    def _records_of(self, frame: memoryview) -> memoryview | None:
        """The records of a frame that begins as this shape does; None unless they are one batch without a transaction,
        and fill the frame."""
        position = self._layout.size
        if self._end:
            size_bytes, position = read_varint(frame, position)
            size_bytes -= 1
        else:
            (size_bytes,) = _INT32.unpack_from(frame, position)
            position += INT32_BYTES
        end = len(frame) - len(self._end)
        if size_bytes != end - position or size_bytes < BATCH_OVERHEAD_BYTES or frame[end:] != self._end:
            return None
        records = frame[position:end]
        return records if is_usual_batch(records) else None

    def make(self, broker: Broker, appended: Appended, outcome: ErrorCode | None, first: bytes) -> Pieces:
        """The response with any other outcome than NONE; `first`: the response that it takes the place of."""
        row_at = len(self._parts[0]) + INT32_BYTES + len(self._parts[1])
        row = Row(
            index=_INT32.unpack_from(first, row_at)[0],
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=appended.log_start_offset,
        )
        response = _response_of(self._topic, [row])
        acknowledge(broker, self.call, response, [(self._topic, row, None)], [outcome], [])
        if self.tally is not None:
            self.tally.errors[row.error_code] += 1
        (correlation_id,) = _INT32.unpack_from(first, len(self._parts[0]))
        return [_framed(response, self.version, correlation_id)]

    def deadline(self) -> float:
        """When a request that begins to wait now is answered at the latest (trio's clock)."""
        return trio.current_time() + self._timeout_seconds

    @property
    def acks(self) -> int:
        """-1 or 1."""
        return self._rules.acks


def produce_shape_of(
    broker: Broker, call: Call, request: m.ProduceRequest, frame: memoryview, body_at: int
) -> ProduceShape | None:
    """The shape of a request that was handled; None if not all of its kind can be answered here."""
    topic = request.topic_data[0].name
    records = request.topic_data[0].partition_data[0].records
    if records is None or topic in INTERNAL_TOPICS or len(records) > SMALL_BYTES_MAX:
        return None
    if len(frame) - len(records) > TEMPLATE_BYTES_MAX:
        return None

    # The codec writes a request with unknown tags, or with a varint that could be shorter, in other bytes than the
    # frame has: the positions below would be wrong.
    if bytes(frame[body_at:]) != m.encode(request, call.version):
        return None
    end = _end_of(call.version)
    length = count_prefix(len(records), is_flexible=bool(end))
    index_at = len(frame) - len(end) - len(records) - len(length) - INT32_BYTES

    row = Row()
    row.index, row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset = ROW_MARKS
    parts = parts_around(
        response_bytes(topic, [row], call.version, _CORRELATION_MARK),
        [_INT32.pack(_CORRELATION_MARK), ROW.pack(*ROW_MARKS)],
    )
    # No batch here belongs to a transaction, so there is nothing to verify.
    rules = Rules(call.version, request.acks, broker.replicas.refused_batches, is_verifying=False)
    return None if parts is None else ProduceShape(rules, call, request, bytes(frame[:index_at]), body_at, parts)


def is_usual_batch(records: memoryview) -> bool:
    """Whether these bytes are one batch that belongs to no transaction."""
    batch_length, magic, attributes = read_kind(records)
    is_one = magic == BATCH_MAGIC and batch_length == len(records) - LENGTH_OVERHEAD_BYTES
    return is_one and not attributes & TRANSACTIONAL


def _end_of(version: int) -> bytes:
    return NO_TAGS if version >= FLEXIBLE_VERSION else b""


def response_bytes(topic: str, rows: list[Row], version: int, correlation_id: int) -> bytes:
    """The frame of a response."""
    return _framed(_response_of(topic, rows), version, correlation_id)


def _response_of(topic: str, rows: list[Row]) -> m.ProduceResponse:
    answered = m.ProduceResponse.TopicProduceResponse(name=topic, partition_responses=rows)
    return m.ProduceResponse(responses=[answered])


def _framed(response: m.ProduceResponse, version: int, correlation_id: int) -> bytes:
    body = m.encode(response, version)
    return response_prefix(len(body), correlation_id, response_header_version(PRODUCE, version)) + body


def read_varint(frame: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint and the position behind it; -1 if it has more than VARINT_BYTES_MAX bytes.

    IndexError if the frame ends first.
    """
    value = frame[position]
    position += 1
    if value < 0x80:
        return value, position
    byte = frame[position]
    position += 1
    value += (byte << 7) - 0x80
    if byte < 0x80:
        return value, position
    byte = frame[position]
    value += (byte << 14) - (0x80 << 7)
    return (value if byte < 0x80 else -1), position + 1
