"""One client's connection through the proxy in front of another Kafka: each request goes on, is changed, or is dropped.

A frame that no fault is about, whose response has no addresses in it, passes as it is. Requests are handled one after
the other, as a broker does with those of one connection.
"""

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from barnabas.broker.interception import Dropped, Seen
from barnabas.broker.server.dispatch import answer_unsupported
from barnabas.client.connection import Connection
from barnabas.testing.faults.faults import Faults
from barnabas.testing.faults.intercepting import carry_out
from barnabas.testing.faults.kinds import Occasion, sessionless
from barnabas.testing.faults.matching import is_of_broker
from barnabas.testing.faults.noted import Noted
from barnabas.testing.faults.requests import RequestLog
from barnabas.testing.faults.row_cuts import copied
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, response_header_version, served_apis
from barnabas.wire.asking import Question, read_response, read_versions, request_frame
from barnabas.wire.errors import ErrorCode, ProtocolViolation
from barnabas.wire.frame import FrameReader, UnsupportedRequest, read_request_header, response_prefix
from barnabas.world.net import ConnectionLost, Stream
from barnabas.world.waiting import Pieces

logger = logging.getLogger(__name__)

PRODUCE = 0
FETCH = 1
METADATA = 3
FIND_COORDINATOR = 10
DESCRIBE_CLUSTER = 60
WITH_ADDRESSES = frozenset({METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER, API_VERSIONS_KEY})
# The next version of each would name the new leader with its address in the response (KIP-951),
# and clients would go past the proxy.
NEWEST_VERSIONS = {PRODUCE: 9, FETCH: 15}
REQUEST_BYTES_MAX = 100 << 20  # Kafka's socket.request.max.bytes
RECEIVE_BYTES = 1 << 16
PICTURES_MAX = 100  # different requests of Metadata whose responses are kept
ANONYMOUS = "User:ANONYMOUS"  # who the client is, only the upstream knows

# (broker id, the host and port that the broker gives) -> the local host and port that stand for
# them.
LocalAddress = Callable[[int, str, int], Awaitable[tuple[str, int]]]


@dataclass(slots=True)
class RelayCall:
    """The caller of one request."""

    api_key: int
    version: int
    client_id: str | None
    client_address: str
    connection_number: int
    stream: Stream
    principal: str = ANONYMOUS
    listener: str = "PLAINTEXT"
    seen: Seen | None = None
    throttled_ms: int = 0

    def throttle(self, throttled_ms: int) -> None:
        """Let the connection read no further request for this time, once the response is sent."""
        self.throttled_ms = throttled_ms

    def has_hung_up(self) -> bool:
        """Whether the client has closed the connection. A system call."""
        return self.stream.has_hung_up()


class Engine:
    """What all connections of a proxy share: the faults, the log, and what was learned of the topics."""

    def __init__(self, local_address: LocalAddress, now_ms: Callable[[], int]) -> None:
        self.faults = Faults()
        self.log = RequestLog()
        self.local_address = local_address
        self.now_ms = now_ms
        self.connections = 0
        self._names: dict[bytes, str] = {}  # topic id -> name
        # Metadata request -> the response before its last change, and the latest one.
        self._pictures: OrderedDict[tuple[int, bytes], tuple[m.Message, m.Message]] = OrderedDict()

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic whose id some response of Metadata had."""
        return self._names.get(topic_id)

    def picture(self, version: int, request: m.Message, response: m.Message) -> None:
        """The upstream has answered a Metadata request; the response has the addresses of the proxy already."""
        assert isinstance(response, m.MetadataResponse)
        for topic in response.topics:
            if topic.name is not None:
                self._names[bytes(topic.topic_id)] = topic.name
        # Another request is about other topics: its response says nothing of a change.
        key = (version, m.encode(request, version))
        # The response may be changed later, so a copy is kept. A throttle is no change of the
        # metadata.
        kept = copied(response, throttle_time_ms=0)
        before, latest = self._pictures.pop(key, (kept, kept))
        self._pictures[key] = (before, latest) if latest == kept else (latest, kept)
        # A client may ask for other topics each time, and each response may be of thousands of partitions.
        if len(self._pictures) > PICTURES_MAX:
            self._pictures.popitem(last=False)

    def stale(self, version: int, request: m.Message) -> m.Message | None:
        """What a Metadata request was answered with before the last change; None if it was never sent."""
        found = self._pictures.get((version, m.encode(request, version)))
        return None if found is None else found[0]


class Relay:
    """One connection of a client, and one to the broker behind it."""

    def __init__(self, engine: Engine, broker_id: int, client: Stream, upstream: Stream) -> None:
        engine.connections += 1
        self._engine = engine
        self._note = engine.log.noting(broker_id, engine.now_ms)
        self._number = engine.connections
        self._client = client
        self._upstream = Connection(upstream, None)
        self._reader = FrameReader(REQUEST_BYTES_MAX)

    async def run(self) -> None:
        """Until one side closes its connection, or a fault does. ConnectionLost, ProtocolViolation."""
        while True:
            frame = self._reader.next_frame()
            if frame is not None:
                await self._handle(frame)
                continue
            # One request is finished before the next one is read, so responses keep the order of
            # the requests.
            data = await self._client.receive_some(RECEIVE_BYTES)
            if not data:
                return
            self._reader.feed(data)

    async def _handle(self, frame: memoryview) -> None:
        try:
            header = read_request_header(frame)
        except UnsupportedRequest as unsupported:
            # ApiVersions of a version that is not known here; after any other API the connection closes.
            for piece in answer_unsupported(unsupported):
                assert isinstance(piece, bytes)
                await self._client.send_all(piece)
            return

        # The codec is that of a broker, so a fault gets the same message as there.
        call = RelayCall(
            header.api_key, header.api_version, header.client_id, self._client.peer_address, self._number, self._client
        )
        request = m.decode(m.request_class(APIS[call.api_key]), call.version, frame, header.position)
        noted = self._seen(call, request, frame, header.position)
        exchange = _Exchange(self._engine, self._upstream, call, request, header.correlation_id)
        try:
            pieces = await exchange.pieces(frame, noted)
        except Dropped as dropped:
            if dropped.response is not None:
                whole = exchange.framed(dropped.response)
                # The client gets a length and too few bytes behind it, and then the end of the
                # connection.
                await self._client.send_all(whole[: len(whole) // 2])
            _end(noted, "dropped")
            raise ConnectionLost("a fault has closed it") from None
        except ProtocolViolation:
            _end(noted, "refused")
            raise
        if pieces is None:
            _end(noted, "no response")
            return

        # The log has the response before the client does, so that a test finds it there.
        if noted is not None:
            noted.answered(call.version, pieces)
        for piece in pieces:
            assert isinstance(piece, bytes | memoryview)
            await self._client.send_all(piece)
        if call.throttled_ms:
            await trio.sleep(call.throttled_ms / 1000)

    def _seen(self, call: RelayCall, request: m.Message, frame: memoryview, body_start: int) -> Noted | None:
        engine = self._engine
        is_hit = engine.faults.may_hit(call)
        return self._note(call, request, frame, body_start, len(frame), is_hit) if is_hit or engine.log.is_on else None


def _end(noted: Noted | None, outcome: str) -> None:
    if noted is not None:
        noted.ended(outcome)


class _Exchange:
    """One request on its way to the upstream and back."""

    def __init__(
        self, engine: Engine, upstream: Connection, call: RelayCall, request: m.Message, correlation_id: int
    ) -> None:
        self._engine = engine
        self._upstream = upstream
        self._call = call
        self._request = request
        self._correlation_id = correlation_id

    async def pieces(self, frame: memoryview, noted: Noted | None) -> Pieces | None:
        """The frame of the response; None if there is none (acks=0). Dropped, ConnectionLost, ProtocolViolation."""
        if noted is not None and self._call.api_key in self._engine.faults.armed_keys:
            response = await self._intercepted(noted)
        elif self._call.api_key in WITH_ADDRESSES:
            response = await self._ask(self._request)
        # The usual way: nothing is encoded, and the response is not even decoded.
        else:
            # The frame has the client's own correlation id, so the response fits without a change.
            length = len(frame).to_bytes(4, "big")
            answered = await self._exchanged(length + bytes(frame), self._request)
            return None if answered is None else [len(answered).to_bytes(4, "big") + bytes(answered)]
        return None if response is None else [self.framed(response)]

    def framed(self, response: m.Message) -> bytes:
        """A response with its header and length."""
        call = self._call
        # The log keeps these bytes of a response.
        body = m.encode(response, call.version)
        prefix = response_prefix(len(body), self._correlation_id, response_header_version(call.api_key, call.version))
        return prefix + body

    async def _intercepted(self, noted: Noted) -> m.Message | None:
        faults, call, request = self._engine.faults, self._call, self._request
        # While a fault names fetched topics, a Fetch names all that it asks for, as in a broker.
        of_broker = is_of_broker(FETCH, request)
        if isinstance(request, m.FetchRequest) and faults.names_fetched_rows(of_broker=of_broker):
            changed = sessionless(request, call.version)
            if isinstance(changed, m.FetchResponse):
                return changed
            request = changed
        choice = faults.choose(call, request, self._engine.topic_name)
        # The first fault that matches a request is the only one that hits it.
        if choice is None:
            return await self._ask(request)
        occasion = Occasion(
            call=call,
            request=request,
            match=choice.match,
            handle=self._ask,
            handle_stale=self._ask_stale,
            topic_name=self._engine.topic_name,
            removed=choice.fault.removed,
            fire=lambda: faults.fire(choice.fault, noted),
        )
        return await carry_out(faults, choice.fault, occasion, noted)

    async def _ask_stale(self, request: m.Message) -> m.Message | None:
        # Without an earlier response the upstream is asked. Its answer is what the next one is
        # compared with.
        return self._engine.stale(self._call.version, self._request) or await self._ask(request)

    async def _ask(self, request: m.Message) -> m.Message | None:
        """The response of the upstream, with the addresses of this proxy."""
        call = self._call
        sent = request_frame(request, call.version, self._correlation_id, call.client_id)
        answered = await self._exchanged(sent, request)
        if answered is None:
            return None
        question = Question(call.api_key, call.version, self._correlation_id)
        if call.api_key == API_VERSIONS_KEY:
            versions = read_versions(answered, question)
            # An ApiVersions request of a version that the upstream does not know either is answered
            # in version 0.
            if versions.error_code == ErrorCode.UNSUPPORTED_VERSION:
                # The response of version 0 has no tagged fields, which every client can read
                # (KIP-511).
                call.version = 0
            return _limited(versions)
        response = read_response(answered, question)
        await _with_local_addresses(response, self._engine.local_address)
        if call.api_key == METADATA:
            self._engine.picture(call.version, self._request, response)
        return response

    async def _exchanged(self, frame: bytes, request: m.Message) -> memoryview | None:
        await self._upstream.stream.send_all(frame)
        # A broker sends nothing for such a request, and waiting for it would take the response of
        # the next one.
        if isinstance(request, m.ProduceRequest) and request.acks == 0:
            return None
        return await self._upstream.receive_frame()


def _limited(response: m.ApiVersionsResponse) -> m.ApiVersionsResponse:
    """The versions that the upstream serves and that can be decoded here."""
    ours = {api.key: (api.min_version, NEWEST_VERSIONS.get(api.key, api.max_version)) for api in served_apis()}
    # Clients choose from these alone, so nothing comes that cannot be decoded.
    rows = []
    for row in response.api_keys:
        if row.api_key not in ours:
            continue
        oldest, newest = ours[row.api_key]
        row.min_version, row.max_version = max(row.min_version, oldest), min(row.max_version, newest)
        if row.min_version <= row.max_version:
            rows.append(row)
    response.api_keys = rows
    return response


async def _with_local_addresses(response: m.Message, local_address: LocalAddress) -> None:
    """Replace the addresses of brokers by those of the proxy."""
    if isinstance(response, m.MetadataResponse):
        for broker in response.brokers:
            broker.host, broker.port = await local_address(broker.node_id, broker.host, broker.port)
    elif isinstance(response, m.DescribeClusterResponse):
        for member in response.brokers:
            member.host, member.port = await local_address(member.broker_id, member.host, member.port)
    elif isinstance(response, m.FindCoordinatorResponse):
        # A response below version 4 has one coordinator, at its top. An error has no broker.
        if response.node_id >= 0 and response.host:
            response.host, response.port = await local_address(response.node_id, response.host, response.port)
        for found in response.coordinators:
            if found.node_id >= 0 and found.host:
                found.host, found.port = await local_address(found.node_id, found.host, found.port)
