"""What each kind of fault does with a request that it hits.

A kind is a coroutine function of an `Occasion`, which has the request, its handling, and the rows that match. It
returns the response to send. It calls `fire` at the moment at which the fault shows: a test that waits for the fault
may rely on what was done before it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from barnabas.broker.interception import Caller, Dropped, Handle
from barnabas.broker.server.dispatch import refused
from barnabas.storage.disk import FileSlice
from barnabas.testing.faults.matching import Match
from barnabas.testing.faults.removal import Removal
from barnabas.testing.faults.row_cuts import TopicName, copied, refused_like, refused_rows, with_rows, without_rows
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS
from barnabas.wire.errors import ErrorCode, ProtocolViolation

METADATA = 3
FETCH_SESSION_VERSION = 7
HANG_UP_SECONDS = 1.0  # between two looks whether a client still waits
NO_SESSION_EPOCH = -1
LENGTH_START = 8  # of a batch
LENGTH_END = 12

Response = m.Message | None


@dataclass(slots=True)
class Occasion:
    """A request that a fault hits."""

    call: Caller
    request: m.Message
    match: Match
    handle: Handle
    handle_stale: Handle  # as `handle`, with the metadata of before their last change
    topic_name: TopicName
    removed: Removal
    fire: Callable[[], None]

    @property
    def is_of_all(self) -> bool:
        """Whether the fault is about every row of the request."""
        return self.match.parts is None or self.match.parts.others is None

    async def handle_rows(self) -> Response:
        """The response to a request with the matching rows alone."""
        parts = self.match.parts
        return await self.handle(self.request if parts is None or parts.wanted is None else parts.wanted)

    async def handle_others(self) -> Response:
        """The response to the other rows; None if there are none."""
        parts = self.match.parts
        if parts is None:
            return None
        # A response without topics still has the brokers. In version 0 a request without topics asks for all topics.
        if isinstance(self.request, m.MetadataRequest) and parts.others is None and self.call.version > 0:
            return await self.handle(copied(self.request, topics=[]))
        return None if parts.others is None else await self.handle(_at_once(parts.others))

    def taken_out(self, response: m.Message) -> tuple[m.Message, Response]:
        """A response without the matching rows, and one with these alone."""
        assert self.match.layout is not None
        return without_rows(response, self.match.layout, self.match.wanted, self.topic_name)


Act = Callable[[Occasion], Awaitable[Response]]


def fail(code: ErrorCode, *, after: bool) -> Act:
    """The error in place of the handling, or of its response."""

    async def act(on: Occasion) -> Response:
        if on.match.parts is None:
            if after:
                release_files(await on.handle(on.request))
            on.fire()
            return refused(on.call.api_key, on.request, on.call.version, code)
        # A request for all names no rows, and those of Metadata in version 0 cannot be left out.
        if on.match.parts.asks_for_all or (on.call.api_key == METADATA and on.call.version == 0):
            return await _fail_found(on, code)
        return await _fail_named(on, code, after=after)

    return act


async def _fail_found(on: Occasion, code: ErrorCode) -> Response:
    """The matching rows of the response have the error."""
    response = await on.handle(on.request)
    on.fire()
    if response is None or on.match.layout is None:
        return response
    others, rows = on.taken_out(response)
    if rows is None:
        return response
    release_files(rows)
    return with_rows(others, refused_like(rows, on.match.layout, code), on.match.layout)


async def _fail_named(on: Occasion, code: ErrorCode, *, after: bool) -> Response:
    """The rows that the request names have the error; the others are handled, and all are if it comes after."""
    base: Response
    if after:
        base = await on.handle(on.request)
        if base is not None:
            base, replaced = on.taken_out(base)
            release_files(replaced)
        on.fire()
    else:
        on.fire()
        base = await on.handle_others()
    failed = _failed_rows(on, code)
    if failed is None or base is None:
        return failed
    assert on.match.layout is not None
    return with_rows(base, failed, on.match.layout)


def _failed_rows(on: Occasion, code: ErrorCode) -> Response:
    assert on.match.parts is not None
    assert on.match.parts.wanted is not None
    assert on.match.layout is not None
    if on.match.layout.refused is not None:
        return refused_rows(on.match.parts.wanted, on.call.api_key, on.match.layout, code)
    failed = refused(on.call.api_key, on.match.parts.wanted, on.call.version, code)
    # The refusal of a whole Fetch has the error at its top as well.
    if isinstance(failed, m.FetchResponse):
        failed.error_code = ErrorCode.NONE
    return failed


def drop_before() -> Act:
    """The connection is closed, and nothing is done."""

    async def act(on: Occasion) -> Response:
        on.fire()
        raise Dropped

    return act


def drop_after() -> Act:
    """Everything is done, and the connection is closed in place of the response."""

    async def act(on: Occasion) -> Response:
        release_files(await on.handle(on.request))
        on.fire()
        raise Dropped

    return act


def drop_midway() -> Act:
    """Everything is done, and the connection is closed when half of the response has left."""

    async def act(on: Occasion) -> Response:
        response = await on.handle(on.request)
        on.fire()
        raise Dropped(response)

    return act


def delay(seconds: float, *, after: bool) -> Act:
    """The request waits before it is handled; or its response does."""

    async def act(on: Occasion) -> Response:
        response = await on.handle(on.request) if after else None
        on.fire()
        # A fault that is removed delays nothing any more.
        with trio.move_on_after(seconds):
            await on.removed.wait()
        return response if after else await on.handle(on.request)

    return act


def hang(*, after: bool) -> Act:
    """As `delay`, until the fault is removed or the client hangs up."""

    async def act(on: Occasion) -> Response:
        response = await on.handle(on.request) if after else None
        on.fire()
        is_removed = False
        while not is_removed:
            with trio.move_on_after(HANG_UP_SECONDS):
                await on.removed.wait()
                is_removed = True
            if not is_removed and on.call.has_hung_up():
                release_files(response)
                raise Dropped
        return response if after else await on.handle(on.request)

    return act


def throttle(throttled_ms: int) -> Act:
    """The response says how long the client is throttled, and its next request is not read before."""

    async def act(on: Occasion) -> Response:
        response = await on.handle(on.request)
        on.fire()
        on.call.throttle(throttled_ms)
        if response is not None and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, throttled_ms)
        return response

    return act


def stale() -> Act:
    """The metadata of before their last change."""

    async def act(on: Occasion) -> Response:
        assert isinstance(on.request, m.MetadataRequest)
        on.fire()
        # If a topic is missing in the old metadata, the request must not create it.
        return await on.handle_stale(copied(on.request, allow_auto_topic_creation=False))

    return act


def corrupt() -> Act:
    """One bit of a batch is turned: of what is produced, before it is handled; of what is fetched, after."""

    async def act(on: Occasion) -> Response:
        if isinstance(on.request, m.ProduceRequest):
            on.fire()
            return await on.handle(_with_turned_bit(on, on.request))
        response = await on.handle(on.request)
        if isinstance(response, m.FetchResponse) and _turn_fetched_bit(on, response):
            on.fire()
        return response

    return act


def _with_turned_bit(on: Occasion, request: m.ProduceRequest) -> m.ProduceRequest:
    turned = deep_copy(request)
    for topic in turned.topic_data:
        for data in topic.partition_data:
            if data.records and _is_wanted(on, topic.name, data.index):
                data.records[-1] ^= 1
                return turned
    return turned


def _turn_fetched_bit(on: Occasion, response: m.FetchResponse) -> bool:
    """Whether there was a batch to turn a bit in."""
    for topic in response.responses:
        name = topic.topic or on.topic_name(bytes(topic.topic_id)) or ""
        for row in topic.partitions:
            if not _is_wanted(on, name, row.partition_index) or row.records is None:
                continue
            records = bytearray(row.records.read() if isinstance(row.records, FileSlice) else _bytes_of(row.records))
            # The last byte of the first batch is changed: clients check batch by batch, and the
            # size stays right.
            if len(records) < LENGTH_END:
                continue
            end = LENGTH_END + int.from_bytes(records[LENGTH_START:LENGTH_END], "big")
            records[min(end, len(records)) - 1] ^= 1
            release_files(row.records)
            row.records = bytes(records)
            return True
    return False


def _bytes_of(records: object) -> bytes:
    assert isinstance(records, bytes | bytearray | memoryview)
    return bytes(records)


def _is_wanted(on: Occasion, topic: str, partition: int) -> bool:
    wanted = on.match.wanted
    return wanted.get("topic", topic) == topic and wanted.get("partition", partition) == partition


def duplicate() -> Act:
    """The request is handled, and handled again: the response is that of the second time."""

    async def act(on: Occasion) -> Response:
        assert isinstance(on.request, m.ProduceRequest)
        # The leader writes into the records of the first request, so the second one is a copy.
        parts = on.match.parts
        rows = on.request if parts is None or parts.wanted is None else parts.wanted
        assert isinstance(rows, m.ProduceRequest)
        again = deep_copy(rows)
        first = await on.handle(on.request)
        second = await on.handle(again)
        on.fire()
        if on.is_of_all or first is None or second is None:
            return second
        assert on.match.layout is not None
        return with_rows(on.taken_out(first)[0], second, on.match.layout)

    return act


def answer_with(message: m.Message) -> Act:
    """This response; nothing is done."""

    async def act(on: Occasion) -> Response:
        on.fire()
        return copied(message)

    return act


def answer_by(function: Callable[[Caller, m.Message, Response], Response]) -> Act:
    """The response that a function makes from the request and the response to it."""

    async def act(on: Occasion) -> Response:
        response = await on.handle(on.request)
        made = function(on.call, on.request, response)
        expected = m.response_class(APIS[on.call.api_key])
        if made is not None and not isinstance(made, expected):
            raise TypeError(f"the function returned {type(made).__name__}, not {expected.__name__} or None")
        on.fire()
        return made

    return act


def as_older(newest: dict[int, int]) -> Act:
    """What a broker answers that has only these versions: ApiVersions, or a version that it does not know."""

    async def act(on: Occasion) -> Response:
        on.fire()
        if on.call.api_key != API_VERSIONS_KEY:
            raise ProtocolViolation(f"API key {on.call.api_key} version {on.call.version} is not served")
        row_of = m.ApiVersionsResponse.ApiVersion
        known = newest[API_VERSIONS_KEY]
        if on.call.version > known:
            # The one response that every client can read (KIP-511).
            on.call.version = 0
            row = row_of(api_key=API_VERSIONS_KEY, min_version=0, max_version=known)
            return m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])
        response = await on.handle(on.request)
        if not isinstance(response, m.ApiVersionsResponse):
            return response
        rows = [
            row_of(api_key=row.api_key, min_version=0, max_version=min(row.max_version, newest[row.api_key]))
            for row in response.api_keys
            if row.api_key in newest
        ]
        return copied(response, api_keys=rows)

    return act


def sessionless(request: m.FetchRequest, version: int) -> m.FetchRequest | m.FetchResponse:
    """The Fetch without a session, which names all that it asks for; or the response that makes the client send one."""
    if version < FETCH_SESSION_VERSION or request.session_epoch < 0:
        return request
    if request.session_epoch > 0:
        return m.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    return copied(request, session_id=0, session_epoch=NO_SESSION_EPOCH)


def deep_copy(request: m.ProduceRequest) -> m.ProduceRequest:
    """A copy with records of its own, which can be written to."""
    return copied(
        request,
        topic_data=[
            copied(
                topic,
                partition_data=[
                    copied(data, records=None if data.records is None else memoryview(bytearray(data.records)))
                    for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ],
    )


def release_files(value: object) -> None:
    """Let go of the files in a response, or a part of one, that is not sent."""
    if isinstance(value, FileSlice):
        value.release()
    elif isinstance(value, m.FetchResponse):
        for topic in value.responses:
            for row in topic.partitions:
                release_files(row.records)


def _at_once(request: m.Message) -> m.Message:
    """The request; a Fetch does not wait for records, for an error is answered at once."""
    return copied(request, max_wait_ms=0, min_bytes=0) if isinstance(request, m.FetchRequest) else request
