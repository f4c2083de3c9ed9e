"""Produce with acks=1 or acks=all, of one batch for each of several partitions of a topic, none of a transaction.

As `produce.py`, for what a producer sends whose topic has several partitions. If one batch is not appended in this
step, or has to wait for its acknowledgement, the handler goes on with all rows that were begun.
"""

import struct

from barnabas.broker.call import Broker, Call
from barnabas.broker.now.produce import (
    CORRELATION_AT,
    FLEXIBLE_VERSION,
    INT32_BYTES,
    PRODUCE,
    ROW,
    ROW_MARKS,
    Row,
    is_usual_batch,
    read_varint,
    response_bytes,
)
from barnabas.replication.appending import BegunRows, Rules, begin
from barnabas.replication.partition import Partition
from barnabas.storage.log import Appended
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import BATCH_OVERHEAD_BYTES
from barnabas.wire.records import SMALL_BYTES_MAX
from barnabas.wire.templates import TEMPLATE_BYTES_MAX, count_prefix, parts_around
from barnabas.wire.topics import INTERNAL_TOPICS
from barnabas.world.pacing import pace_of_run
from barnabas.world.waiting import Pieces

ROWS_MAX = 16  # more are seldom done in one step
NO_TAGS = b"\0"

_INT32 = struct.Struct(">i")
_CORRELATION_MARK = -0x31323334
_OTHER_ROW_MARKS = tuple(mark - 1 for mark in ROW_MARKS)

Asked = tuple[int, memoryview, Partition]  # index, records, partition


class ProduceRowsShape:
    """What the requests of one producer for one topic have in common: all that comes before the count of partitions."""

    __slots__ = (
        *("_after", "_between", "_common", "_layout", "_rules", "_start", "_tail", "_topic"),
        *("body_at", "call", "tally", "version"),
    )
    api_key = PRODUCE
    request = None
    shown_bytes = 0  # its records lie between other fields

    def __init__(
        self, rules: Rules, call: Call, topic: str, head: bytes, body_at: int, parts: tuple[bytes, bytes, bytes]
    ) -> None:
        """`head`: the bytes of a frame before the count; `parts`: of a response, before the count, behind each row, and
        at the end."""
        self.version = call.version
        self.tally = call.tally
        self.call = call  # of the first request, for what the later ones have in common with it
        self.body_at = body_at
        self._rules = rules
        self._topic = topic
        self._start = head[:CORRELATION_AT]
        self._common = head[CORRELATION_AT + INT32_BYTES :]
        self._layout = struct.Struct(f">{CORRELATION_AT}s4s{len(self._common)}s")
        self._between, self._tail, self._after = parts

    def answer(self, broker: Broker, frame: memoryview, _began: float) -> Pieces | BegunRows | None:
        """As `ProduceShape.answer`."""
        layout = self._layout
        if not layout.size < len(frame) <= SMALL_BYTES_MAX:
            return None
        start, correlation_id, common = layout.unpack_from(frame)
        if start != self._start or common != self._common:
            return None

        # Without the right to write, the handler refuses the request, and logs that.
        call = self.call
        if call.authorizer is not None and not call.authorize("Write", "Topic", self._topic, is_filter=True):
            return None
        asked = self._asked(broker, frame)
        return None if asked is None else self._append(broker, correlation_id, asked)

    def _append(self, broker: Broker, correlation_id: bytes, asked: list[Asked]) -> Pieces | BegunRows:
        rules = self._rules
        now_ms = broker.world.now_ms()
        begun: BegunRows = {}
        rows: list[bytes] = []
        are_done = True
        pace = pace_of_run()
        for index, records, partition in asked:
            # A batch usually takes 20 µs, and a compressed one of many records a hundred times as long. The handler
            # goes on with the batches that are left.
            if begun and pace.is_over():
                return begun
            row = begun[index] = begin(rules, partition, records, now_ms)
            appended = row.appended
            if not isinstance(appended, Appended):
                return begun
            outcome = partition.outcome(appended.last_offset + 1, row.leading_since, rules.acks)
            are_done = are_done and outcome is ErrorCode.NONE
            offsets = (appended.base_offset, appended.append_time_ms, appended.log_start_offset)
            rows.append(ROW.pack(index, 0, *offsets) + self._tail)

        # The handler waits for the acknowledgements.
        if not are_done:
            return begun
        if self.tally is not None:
            self.tally.successes += len(rows)
        count = count_prefix(len(rows), is_flexible=self.version >= FLEXIBLE_VERSION)
        response = b"".join((correlation_id, self._between, count, *rows, self._after))
        return [_INT32.pack(len(response)) + response]

    def _asked(self, broker: Broker, frame: memoryview) -> list[Asked] | None:
        """The partitions and their records, of a frame that begins as this shape does; None unless each is here, and
        gets one batch without a transaction, and they fill the frame."""
        is_flexible = self.version >= FLEXIBLE_VERSION
        position = self._layout.size
        try:
            count, position = _read_count(frame, position, is_flexible=is_flexible)
            if not 1 < count <= ROWS_MAX:
                return None
            asked: dict[int, Asked] = {}
            for _ in range(count):
                (index,) = _INT32.unpack_from(frame, position)
                size_bytes, position = _read_count(frame, position + INT32_BYTES, is_flexible=is_flexible)
                end = position + size_bytes
                if size_bytes < BATCH_OVERHEAD_BYTES or end > len(frame):
                    return None
                records = frame[position:end]
                position = end
                if is_flexible:
                    if frame[position] != 0:
                        return None
                    position += 1
                partition = broker.replicas.get(self._topic, index)
                if index in asked or isinstance(partition, ErrorCode) or not is_usual_batch(records):
                    return None
                asked[index] = index, records, partition
        # The frame is shorter than its counts and lengths say.
        except (struct.error, IndexError):
            return None
        return list(asked.values()) if bytes(frame[position:]) == (2 * NO_TAGS if is_flexible else b"") else None


def produce_rows_shape_of(
    broker: Broker, call: Call, request: m.ProduceRequest, frame: memoryview, body_at: int
) -> ProduceRowsShape | None:
    """The shape of a request that was handled; None if not all of its kind can be answered here."""
    (topic,) = request.topic_data
    if topic.name in INTERNAL_TOPICS or len(frame) > SMALL_BYTES_MAX:
        return None
    if not 1 < len(topic.partition_data) <= ROWS_MAX:
        return None
    if any(row.records is None for row in topic.partition_data):
        return None

    # The codec writes a request with unknown tags, or with a varint that could be shorter, in other bytes than the
    # frame has: the positions below would be wrong.
    if bytes(frame[body_at:]) != m.encode(request, call.version):
        return None
    is_flexible = call.version >= FLEXIBLE_VERSION
    tags = NO_TAGS if is_flexible else b""
    head_bytes = len(frame) - len(count_prefix(len(topic.partition_data), is_flexible=is_flexible)) - 2 * len(tags)
    for asked in topic.partition_data:
        size_bytes = 0 if asked.records is None else len(asked.records)
        head_bytes -= INT32_BYTES + len(count_prefix(size_bytes, is_flexible=is_flexible)) + size_bytes + len(tags)

    if head_bytes > TEMPLATE_BYTES_MAX:
        return None
    first, second = Row(), Row()
    for row, marks in ((first, ROW_MARKS), (second, _OTHER_ROW_MARKS)):
        row.index, row.error_code, row.base_offset, row.log_append_time_ms, row.log_start_offset = marks
    parts = parts_around(
        response_bytes(topic.name, [first, second], call.version, _CORRELATION_MARK),
        [_INT32.pack(_CORRELATION_MARK), ROW.pack(*ROW_MARKS), ROW.pack(*_OTHER_ROW_MARKS)],
    )
    if parts is None:
        return None
    _, between, tail, after = parts
    rules = Rules(call.version, request.acks, broker.replicas.refused_batches, is_verifying=False)
    shown = between.removesuffix(count_prefix(2, is_flexible=is_flexible)), tail, after.removeprefix(tail)
    return ProduceRowsShape(rules, call, topic.name, bytes(frame[:head_bytes]), body_at, shown)


def _read_count(frame: memoryview, position: int, *, is_flexible: bool) -> tuple[int, int]:
    """A count, or a length, and the position behind it."""
    if is_flexible:
        count, position = read_varint(frame, position)
        return count - 1, position
    return _INT32.unpack_from(frame, position)[0], position + INT32_BYTES
