"""Fetch of consumers and followers: of one partition without a session, and of what has changed in a session.

A partition is planned as in every Fetch (`fetching/plan.py`). A response with records that are in memory, or in the
page cache, is filled in here, after a wait as well. Everything else goes on with `Planned` in `handlers/fetch.py`:
errors, diverging logs, several partitions, what is to be read from the disk.
"""

import struct

import trio

from barnabas.broker.call import Broker, Call
from barnabas.broker.fetching.in_session import Planned, update, wanted_of
from barnabas.broker.fetching.plan import FetchPlan, Row, records_bytes
from barnabas.broker.now.waiting import WaitingFetch
from barnabas.replication.fetch_sessions import FetchSession, Topic, Wanted
from barnabas.storage.disk import FileSlice
from barnabas.wire import messages as m
from barnabas.wire.apis import response_header_version
from barnabas.wire.errors import ErrorCode
from barnabas.wire.frame import LENGTH_BYTES, response_prefix
from barnabas.wire.sentinels import FETCH_TOPIC_ID_VERSION, FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION_ID
from barnabas.wire.templates import TEMPLATE_BYTES_MAX, count_prefix, parts_around
from barnabas.world.waiting import Pieces

FETCH = 1  # API key
VERSION_MIN = 7  # from here on a response has a session id, and rows have a log start offset
FLEXIBLE_VERSION = 12
PARTITIONS_MAX = 20  # of a session: each takes 10 µs to plan, if it has changed

_CORRELATION_AT = 4  # behind the API's key and version
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
# What changes in a response beside its length, its correlation id and its records: high watermark, last stable offset,
# log start offset. The marks are bytes that no name of a topic has.
_OFFSETS = struct.Struct(">qqq")
_OFFSET_MARKS = (-0x0102030405060708, -0x1112131415161718, -0x2122232425262728)
_CORRELATION_MARK = b"\xb1\xb2\xb3\xb4"
_EPOCH_MARK = 0x71929394
_RECORDS_MARK = b"\xa1\xa2\xa3\xa4\xa5"


class FetchShape:
    """What the requests of one client have in common that differ in the epoch of their session and in a fetch offset.

    Without a session there is no such epoch, and in a session whose partitions have not moved no offset.
    """

    __slots__ = (
        *("_common", "_layout", "_nothing", "_partition", "_response", "_response_is_of", "_topic"),
        *("body_at", "call", "request", "shown_bytes", "tally", "version"),
    )
    api_key = FETCH

    def __init__(
        self, call: Call, request: m.FetchRequest, layout: struct.Struct, frame: memoryview, body_at: int
    ) -> None:
        self.version = call.version
        self.tally = call.tally  # a follower's Fetch has another one than a consumer's
        self.request = request  # the first one, as `call`: for what the later ones have in common with it
        self.call = call
        self.body_at = body_at
        self.shown_bytes = layout.size
        self._layout = layout
        self._common = layout.unpack(frame)[::2]
        self._partition = request.topics[0].partitions[0] if request.topics else None
        self._topic = _topic_of(request, call.version)
        empty = _marked(m.FetchResponse(session_id=request.session_id), call.version)
        self._nothing = [b"", empty[len(_CORRELATION_MARK) :]]
        self._response: list[bytes] | None = None
        self._response_is_of: tuple[Topic, int] | None = None  # the topic and partition that `_response` is about

    def answer(self, broker: Broker, frame: memoryview, _began: float) -> "Pieces | Planned | WaitingFetch | None":
        """As `Shapes.answer`."""
        layout = self._layout
        if len(frame) != layout.size:
            return None
        self.call.audited = None  # the call serves many requests, and each of them logs a refusal once
        values = layout.unpack(frame)
        if values[::2] != self._common:
            return None
        if self.request.session_id == NO_SESSION_ID:
            _, correlation_id, _, offset, _ = values
            session = None
            due = [self._wanted(offset)]
        else:
            _, correlation_id, _, epoch, *rest = values
            session = self._continued(broker, epoch, *rest[1::2])
            if session is None:
                return None
            due = session.take_due()

        waiting = WaitingFetch(self, FetchPlan(broker, self.call, self.request), session, correlation_id)
        return waiting.begin(due)

    def _wanted(self, offset: int) -> Wanted:
        assert self._partition is not None
        self._partition.fetch_offset = offset
        return wanted_of(self._topic, self._partition)

    def _continued(self, broker: Broker, epoch: int, offset: int | None = None) -> FetchSession | None:
        """The session, with this partition's new offset; None, before any change, if the handler has to look at it."""
        sessions = broker.fetch_sessions
        request = self.request
        session = sessions.get(request.session_id)
        if session is None or session.partition_count > PARTITIONS_MAX:
            return None
        # A partition that is new in the session may have no room there.
        if self._partition is not None and session.find(self._topic, self._partition.partition) is None:
            return None
        uses_topic_ids = self.version >= FETCH_TOPIC_ID_VERSION
        now = trio.current_time()
        if isinstance(
            sessions.continue_session(request.session_id, epoch, now, uses_topic_ids=uses_topic_ids), ErrorCode
        ):
            return None
        session.ask_from(request.rack_id)
        if offset is not None:
            update(session, self._wanted(offset))
        return session

    def nothing(self, correlation_id: bytes) -> bytes:
        """The response without rows."""
        return _joined(self._nothing, correlation_id)

    def parts_for(self, wanted: Wanted, row: Row) -> list[bytes] | None:
        """The bytes around what changes in a response with this row; None if the row has an error, or is not simple."""
        if row.records is None or row.error_code or row.aborted_transactions:
            return None
        if self._response_is_of != (wanted.topic, row.partition_index):
            self._response = self._parts_of(wanted.topic, row)
            self._response_is_of = wanted.topic, row.partition_index
        return self._response

    def filled(self, parts: list[bytes], correlation_id: bytes, row: Row) -> Pieces:
        """The response with this row."""
        records = row.records
        offsets = _OFFSETS.pack(row.high_watermark, row.last_stable_offset, row.log_start_offset)
        length = count_prefix(records_bytes(row), is_flexible=self.version >= FLEXIBLE_VERSION)
        if isinstance(records, (bytes, bytearray, memoryview)):
            return [_joined(parts, correlation_id, offsets, length + records)]
        assert isinstance(records, FileSlice)
        return _joined_around(records, parts, correlation_id, offsets, length)

    def _parts_of(self, topic: Topic, row: Row) -> list[bytes] | None:
        """The bytes of a response around what changes, if its row is of this partition."""
        marked = Row(
            partition_index=row.partition_index, aborted_transactions=row.aborted_transactions, records=_RECORDS_MARK
        )
        marked.high_watermark, marked.last_stable_offset, marked.log_start_offset = _OFFSET_MARKS
        of_topic = m.FetchResponse.FetchableTopicResponse(partitions=[marked])
        if isinstance(topic, bytes):
            of_topic.topic_id = topic
        else:
            of_topic.topic = topic
        response = m.FetchResponse(session_id=self.request.session_id, responses=[of_topic])
        records = count_prefix(len(_RECORDS_MARK), is_flexible=self.version >= FLEXIBLE_VERSION) + _RECORDS_MARK
        marks = [_CORRELATION_MARK, _OFFSETS.pack(*_OFFSET_MARKS), records]
        return parts_around(_marked(response, self.version), marks)


def fetch_shape_of(
    _broker: Broker, call: Call, request: m.FetchRequest, frame: memoryview, body_at: int
) -> FetchShape | None:
    """The shape of a request that was handled; None if not all of its kind can be answered here."""
    is_sessionless = request.session_id == NO_SESSION_ID and request.session_epoch == FINAL_EPOCH
    if call.version < VERSION_MIN or not (is_sessionless or request.session_epoch > INITIAL_EPOCH):
        return None
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    if len(request.topics) != len(partitions) or len(partitions) > 1 or request.forgotten_topics_data:
        return None
    if (is_sessionless and not partitions) or len(frame) > TEMPLATE_BYTES_MAX:
        return None

    # The codec writes a request with unknown tags, or with a varint that could be shorter, in other bytes than the
    # frame has: the positions below would be wrong.
    if bytes(frame[body_at:]) != m.encode(request, call.version):
        return None
    marks = []
    before = request.session_epoch
    if not is_sessionless:
        request.session_epoch = _EPOCH_MARK
        marks.append(_INT32.pack(_EPOCH_MARK))
    for partition in partitions:
        partition.fetch_offset = _OFFSET_MARKS[0]
        marks.append(_INT64.pack(_OFFSET_MARKS[0]))
    parts = parts_around(m.encode(request, call.version), marks)
    request.session_epoch = before
    if parts is None:
        return None
    places = "".join(
        f"{'i' if len(mark) == _INT32.size else 'q'}{len(part)}s" for mark, part in zip(marks, parts[1:], strict=True)
    )
    layout = struct.Struct(f">{_CORRELATION_AT}s4s{body_at - _CORRELATION_AT - 4 + len(parts[0])}s{places}")
    return FetchShape(call, request, layout, frame, body_at)


def _topic_of(request: m.FetchRequest, version: int) -> Topic:
    if not request.topics:
        return ""
    return request.topics[0].topic_id if version >= FETCH_TOPIC_ID_VERSION else request.topics[0].topic


def _marked(response: m.FetchResponse, version: int) -> bytes:
    """The frame of a response without its length, with a mark as its correlation id."""
    body = m.encode(response, version)
    prefix = response_prefix(len(body), 0, response_header_version(FETCH, version))
    return _CORRELATION_MARK + prefix[LENGTH_BYTES + len(_CORRELATION_MARK) :] + body


def _joined_around(records: FileSlice, parts: list[bytes], *between: bytes) -> Pieces:
    """The same with records that are sent from their file, before the last part."""
    *before, after = parts
    head = _joined([*before, b""], *between, more_bytes=records.size_bytes + len(after))
    return [head, records, after] if after else [head, records]


def _joined(parts: list[bytes], *between: bytes, more_bytes: int = 0) -> bytes:
    """A frame: its length, and these bytes between the parts, of which the first one is empty.

    `more_bytes` follow.
    """
    pieces = [b""] * (2 * len(parts))
    pieces[::2] = parts
    pieces[1:-1:2] = between
    pieces[0] = _INT32.pack(sum(map(len, pieces)) + more_bytes)
    return b"".join(pieces)
