"""From the bytes of a request to the pieces of its response: decode, handle, encode.

`respond` serves a request of a connection; `answer_own` serves a request of this broker to itself, without bytes.
`HANDLERS` maps API keys to handlers; at import it is compared with what `wire/apis.py` says is served, both ways.

Errors: a handler raises `Refuse` for one error code that concerns the whole request. Any other `Exception` is a bug; it
is logged with its traceback, and the client gets UNKNOWN_SERVER_ERROR in the API's own form (`refused`). This is the
one place that answers after an `Exception` of a single request.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import NamedTuple, cast

import trio

from barnabas.broker.call import ANONYMOUS, Broker, Call
from barnabas.broker.handlers import (
    acls,
    cluster,
    configs,
    fetch,
    group_offsets,
    groups,
    logdirs,
    markers,
    metadata,
    offsets,
    produce,
    producers,
    quotas,
    reassignments,
    replication,
    sasl,
    scram,
    tokens,
    topics,
    transactions,
    versions,
)
from barnabas.broker.interception import Dropped, Interception
from barnabas.broker.server.decoding import (
    CONTROLLER_KEYS,
    NOT_KEPT_KEYS,
    SMALL_FRAME_BYTES,
    Charged,
    Decoding,
    decoded,
)
from barnabas.broker.server.response_errors import count_errors
from barnabas.storage.disk import FileSlice, InThread
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, response_header_version
from barnabas.wire.asking import key_of
from barnabas.wire.errors import ErrorCode, InvariantBroken, ProtocolViolation, Refuse
from barnabas.wire.frame import RequestHeader, UnsupportedRequest, response_prefix
from barnabas.wire.records import Steps
from barnabas.world.encoded import Encoded
from barnabas.world.freeing import take_apart
from barnabas.world.pacing import complete, pace_of_run
from barnabas.world.resting import resting
from barnabas.world.time_spent import TimeSpent, time_spent
from barnabas.world.waiting import DelayedResponse, PendingResponse, Pieces, Watched

logger = logging.getLogger(__name__)

# The largest request that is refused on the event loop. One of its rows has at least two bytes, so this bounds the rows
# of the response.
REFUSED_INLINE_BYTES_MAX = 1 << 11
PRODUCE = 0  # API key
METADATA_THROTTLE_VERSION = 3
INT32_BYTES = 4
# Smaller pieces are joined up to this size: few system calls, little to copy, and memory is freed as pieces are sent.
PIECE_BYTES = 1 << 17

Handler = Callable[..., "m.Message | Awaitable[m.Message | Encoded | DelayedResponse | None] | None"]
Refusal = Callable[..., "m.Message | None"]


class Route(NamedTuple):
    """The handler of one API, and `refuse`, which makes the response with one error code at every place.

    `refuse` is None where the response has one error code, at its top level: `refused` makes such a response.
    """

    handle: Handler
    refuse: Refusal | None = None


HANDLERS: dict[int, Route] = {
    0: Route(produce.produce, produce.refuse_produce),
    1: Route(fetch.fetch, fetch.refuse_fetch),
    2: Route(offsets.list_offsets, offsets.refuse_list_offsets),
    3: Route(metadata.metadata, metadata.refuse_metadata),
    4: Route(replication.leader_and_isr, replication.refuse_leader_and_isr),
    5: Route(replication.stop_replica),
    6: Route(replication.update_metadata),
    7: Route(replication.controlled_shutdown),
    8: Route(group_offsets.offset_commit, group_offsets.refuse_offset_commit),
    9: Route(group_offsets.offset_fetch, group_offsets.refuse_offset_fetch),
    10: Route(groups.find_coordinator, groups.refuse_find_coordinator),
    11: Route(groups.join_group, groups.refuse_join_group),
    12: Route(groups.heartbeat),
    13: Route(groups.leave_group),
    14: Route(groups.sync_group),
    15: Route(groups.describe_groups, groups.refuse_describe_groups),
    16: Route(groups.list_groups),
    17: Route(sasl.sasl_handshake),
    18: Route(versions.api_versions),
    19: Route(topics.create_topics, topics.refuse_create_topics),
    20: Route(topics.delete_topics, topics.refuse_delete_topics),
    21: Route(offsets.delete_records, offsets.refuse_delete_records),
    22: Route(producers.init_producer_id, producers.refuse_init_producer_id),
    23: Route(offsets.offset_for_leader_epoch, offsets.refuse_offset_for_leader_epoch),
    24: Route(transactions.add_partitions_to_txn, transactions.refuse_add_partitions_to_txn),
    25: Route(transactions.add_offsets_to_txn),
    26: Route(transactions.end_txn),
    27: Route(markers.write_txn_markers, markers.refuse_write_txn_markers),
    28: Route(group_offsets.txn_offset_commit, group_offsets.refuse_txn_offset_commit),
    29: Route(acls.describe_acls, acls.refuse_describe_acls),
    30: Route(acls.create_acls, acls.refuse_create_acls),
    31: Route(acls.delete_acls, acls.refuse_delete_acls),
    32: Route(configs.describe_configs, configs.refuse_describe_configs),
    33: Route(configs.alter_configs, configs.refuse_alter_configs),
    34: Route(logdirs.alter_replica_log_dirs, logdirs.refuse_alter_replica_log_dirs),
    35: Route(logdirs.describe_log_dirs),
    36: Route(sasl.sasl_authenticate),
    37: Route(topics.create_partitions, topics.refuse_create_partitions),
    38: Route(tokens.create_delegation_token, tokens.refuse_create_delegation_token),
    39: Route(tokens.renew_delegation_token, tokens.refuse_renew_delegation_token),
    40: Route(tokens.expire_delegation_token, tokens.refuse_expire_delegation_token),
    41: Route(tokens.describe_delegation_token),
    42: Route(groups.delete_groups, groups.refuse_delete_groups),
    43: Route(cluster.elect_leaders, cluster.refuse_elect_leaders),
    44: Route(configs.incremental_alter_configs, configs.refuse_incremental_alter_configs),
    45: Route(reassignments.alter_partition_reassignments, reassignments.refuse_alter_partition_reassignments),
    46: Route(reassignments.list_partition_reassignments, reassignments.refuse_list_partition_reassignments),
    47: Route(group_offsets.offset_delete),
    48: Route(quotas.describe_client_quotas, quotas.refuse_describe_client_quotas),
    49: Route(quotas.alter_client_quotas, quotas.refuse_alter_client_quotas),
    50: Route(scram.describe_user_scram_credentials, scram.refuse_describe_user_scram_credentials),
    51: Route(scram.alter_user_scram_credentials, scram.refuse_alter_user_scram_credentials),
    56: Route(replication.alter_partition),
    57: Route(cluster.update_features),
    60: Route(cluster.describe_cluster),
    61: Route(producers.describe_producers, producers.refuse_describe_producers),
    65: Route(transactions.describe_transactions, transactions.refuse_describe_transactions),
    66: Route(transactions.list_transactions),
    67: Route(producers.allocate_producer_ids),
}

# A key in one table alone would be announced by ApiVersions and fail, or be served and never announced.
_differing = set(HANDLERS) ^ {key for key, api in APIS.items() if api.served}
if _differing:
    where = "a handler of broker/handlers/ in HANDLERS of broker/server/dispatch.py"
    raise InvariantBroken(f"an API that is served in wire/apis.py, and no other, has {where}: {sorted(_differing)}")

# These are exempt from quotas of request time, as in Kafka: LeaderAndIsr, StopReplica,
# UpdateMetadata, ControlledShutdown, WriteTxnMarkers, AlterPartition. A Fetch records its own time,
# unless it is a follower's.
UNTIMED_KEYS = frozenset({1, 4, 5, 6, 7, 27, 56})

_request_class = cache(m.request_class)
# This is looked up once at import, because `iscoroutinefunction` is too slow for every request.
_WAITS = {key: inspect.iscoroutinefunction(route.handle) for key, route in HANDLERS.items()}


async def respond(
    broker: Broker, call: Call, header: RequestHeader, frame: memoryview, charged: Charged
) -> Pieces | PendingResponse:
    """The pieces of the response to one request; none when nothing is to be sent (acks=0).

    `PendingResponse` when the request only waits for its outcome. ProtocolViolation when the frame does not decode as
    the API and version of its header, or when its response cannot be encoded.
    """
    cls = _request_class(APIS[call.api_key])
    # A small request needs no steps.
    if len(frame) <= SMALL_FRAME_BYTES:
        request = m.decode(cls, call.version, frame, header.position)
        return await _respond_to(broker, call, header, request, frame, charged)
    is_control = _is_control(call)
    decoding = Decoding(cls(), call.version, frame, header.position, is_control=is_control)
    # One step decodes an ordinary Produce, because its records stay bytes. `decoded` below costs more than this step.
    decoding.advance(1)
    if not decoding.needs_account:
        return await _respond_to(broker, call, header, decoding.message, frame, charged)
    if is_control:
        charged = charged._replace(turns=broker.turns.of_controllers)
    async with decoded(decoding, charged, _threads_of(broker, call)) as request:
        # The request is handled, and its response encoded, inside the block, whose end may take the request apart.
        return await _respond_to(broker, call, header, request, frame, charged)


async def respond_timed(
    broker: Broker, call: Call, header: RequestHeader, frame: memoryview, charged: Charged
) -> Pieces | PendingResponse:
    """As `respond`, while a quota of request time is set."""
    call.spent = TimeSpent(broker.world.processor_seconds)
    time_spent.set(call.spent)
    try:
        return await call.spent.of(respond(broker, call, header, frame, charged))
    finally:
        time_spent.set(None)
        # The time after the response was made counts as well, without a throttle of its own: as in Kafka.
        _note_time(broker, call)


async def _respond_to(
    broker: Broker, call: Call, header: RequestHeader, request: m.Message, frame: memoryview, charged: Charged
) -> Pieces | PendingResponse:
    interception = broker.interception
    # A request that was begun in the step that read it (`now/`) was shown in that step, and can no longer be changed.
    if interception is not None and interception.is_active and call.begun is None:
        call.seen = interception.see(call, request, frame, header.position, len(frame))
        if call.api_key not in interception.armed_keys:
            interception = None
    else:
        interception = None
    try:
        if interception is None:
            response = await _handle(broker, call, request, len(frame))
        else:
            response = await _intercepted(broker, interception, call, header, request, frame)
    except ProtocolViolation:
        _end_unanswered(call, "refused")
        raise
    if broker.quotas.is_active:
        response = _note_use(broker, call, response, len(frame))
    charged.connection.shapes.learn(broker, call, request, frame, header.position)
    # The outcome is not decided yet: the connection encodes the response later, maybe after it began the next Produce.
    if isinstance(response, DelayedResponse):
        call.begun = None  # it holds the records, which are not read again
        return _Delayed(response, broker, call, header.correlation_id, len(frame))
    if response is None:
        _end_unanswered(call, "no response")
        return []
    return await _encode(broker, call, header.correlation_id, response)


async def _intercepted(
    broker: Broker,
    interception: Interception,
    call: Call,
    header: RequestHeader,
    request: m.Message,
    frame: memoryview,
) -> m.Message | Encoded | DelayedResponse | None:
    """As `_handle`, where a test may change it. Dropped if the connection is closed in place of the response."""
    # `answer` waits for the acknowledgements of a Produce, so the connection handles no other one meanwhile: as in
    # Kafka.
    handle = partial(answer, broker, call, request_bytes=len(frame))
    try:
        return await interception.intercept(call, request, handle)
    except Dropped as dropped:
        if dropped.response is not None:
            dropped.sent = _first_half(await _encode(broker, call, header.correlation_id, dropped.response))
        _end_unanswered(call, "dropped")
        raise


def _end_unanswered(call: Call, outcome: str) -> None:
    if call.seen is not None:
        call.seen.ended(outcome)


def _first_half(pieces: Pieces) -> bytes:
    whole = b"".join(piece.read() if isinstance(piece, FileSlice) else piece for piece in pieces)
    return whole[: len(whole) // 2]


def _note_use(
    broker: Broker, call: Call, response: m.Message | Encoded | DelayedResponse | None, request_bytes: int
) -> m.Message | Encoded | DelayedResponse | None:
    """Record what a request used; the response, which says how long the client is throttled for it.

    The client is throttled also if it does not wait for responses (acks=0).
    """
    quotas = broker.quotas
    throttled_ms = _note_time(broker, call)
    if call.api_key == PRODUCE:
        throttled_ms = max(throttled_ms, quotas.produced.record(*call.quota_user, request_bytes, quotas.now_ms()))
    if not throttled_ms:
        return response
    call.throttle(throttled_ms)
    if isinstance(response, DelayedResponse):
        response.make = partial(_throttled, response.make, throttled_ms)
    elif isinstance(response, Encoded):
        # `Encoded` is Metadata, and its first field the throttle time. Other clients share only the array of topics.
        if call.version >= METADATA_THROTTLE_VERSION:
            head, *others = response.pieces
            return Encoded((throttled_ms.to_bytes(INT32_BYTES, "big") + head[INT32_BYTES:], *others))
    elif response is not None:
        _say_throttled(response, throttled_ms)

    return response


def _note_time(broker: Broker, call: Call) -> int:
    """Record the processor time of a request since this was called last; how long its client is throttled for it."""
    # Requests between brokers are exempt. A caller without ClusterAction is no broker: the time of its refusal counts.
    if call.spent is None or (call.api_key in UNTIMED_KEYS and not call.spent.is_never_exempt):
        return 0
    return broker.quotas.note_time(*call.quota_user, call.spent.take())


def _throttled(make: Callable[[], m.Message], throttled_ms: int) -> m.Message:
    response = make()
    _say_throttled(response, throttled_ms)
    return response


def _say_throttled(response: m.Message, throttled_ms: int) -> None:
    # The encoder leaves the field out in older versions; responses to brokers have none.
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = max(response.throttle_time_ms, throttled_ms)


async def answer(broker: Broker, call: Call, request: m.Message, request_bytes: int = 0) -> m.Message | None:
    """The response to a decoded request; None when nothing is to be sent (acks=0)."""
    response = await _handle(broker, call, request, request_bytes)
    # The caller wants a message, but a cached response exists as bytes only.
    if isinstance(response, Encoded):
        return m.decode(m.response_class(APIS[call.api_key]), call.version, b"".join(response.pieces))
    return await _decided(response) if isinstance(response, DelayedResponse) else response


async def answer_own(broker: Broker, request: m.Message, version: int) -> m.Message | None:
    """The response to a request that this broker sends to itself, without a connection (`peers.peer.SelfPeer`)."""
    # Nothing is encoded, but handlers look at the version. Two senders use this: the controller for its own broker, and
    # this broker if it is the controller. Other brokers' requests of this kind arrive at the control plane listener.
    call = Call(
        api_key=key_of(request),
        version=version,
        client_id=str(broker.broker_id),
        principal=ANONYMOUS,
        client_address="localhost",
        listener=broker.config.control_plane_listener,
    )
    return await answer(broker, call, request)


async def _decided(delayed: DelayedResponse) -> m.Message:
    await delayed.decisions.wait(delayed.deadline)
    return delayed.make()


class _Delayed(PendingResponse):
    """A handler's delayed response, and the request that it answers."""

    __slots__ = ("_broker", "_call", "_correlation_id", "_delayed", "_handled_at", "_request_bytes")

    def __init__(
        self, delayed: DelayedResponse, broker: Broker, call: Call, correlation_id: int, request_bytes: int
    ) -> None:
        super().__init__(delayed.deadline)
        self._delayed = delayed
        self._broker = broker
        self._call = call
        self._correlation_id = correlation_id
        self._request_bytes = request_bytes
        self._handled_at = trio.current_time()

    @property
    def watched(self) -> Sequence[Watched]:
        return self._delayed.decisions.watched

    @property
    def are_made(self) -> bool:
        return self._delayed.decisions.are_made

    def look(self) -> bool:
        return self._delayed.decisions.look()

    async def encode(self) -> Pieces:
        # `make` answers an undecided outcome with the error of a timeout. `_handle` has returned, so a bug in `make`
        # gets no error response any more: the connection has to close.
        try:
            response = self._delayed.make()
        except Exception as error:
            raise _cut_off(self._call, error) from error
        pieces = await _encode(self._broker, self._call, self._correlation_id, response)
        self._count()
        return pieces

    def encode_now(self) -> Pieces | None:
        call = self._call
        body: Pieces = []
        try:
            response = self._delayed.make()
            begun = m.encode_steps(response, call.version, body)
        # This is a bug, and the step belongs to another request: `encode`, in the connection's task, will report it.
        except Exception:
            return None
        if not isinstance(begun, int):
            return None
        if call.tally is not None:
            count_errors(response, call.tally.errors)
        self._count()
        pieces = _framed(call.api_key, call.version, self._correlation_id, begun, body)
        if call.seen is not None:
            call.seen.answered(call.version, pieces)
        return pieces

    def _count(self) -> None:
        call = self._call
        if call.tally is not None:
            total_seconds = pace_of_run().now() - call.began
            waited_seconds = trio.current_time() - self._handled_at
            call.tally.answered(call.version, self._request_bytes, total_seconds, waited_seconds)


async def _handle(
    broker: Broker, call: Call, request: m.Message, request_bytes: int
) -> m.Message | Encoded | DelayedResponse | None:
    route = HANDLERS[call.api_key]
    try:
        # The step that read the request failed (`now/`): the request is refused here, as after a bug of its handler.
        if isinstance(call.begun, Exception):
            raise call.begun
        if _WAITS[call.api_key]:
            return await cast(
                "Awaitable[m.Message | Encoded | DelayedResponse | None]", route.handle(broker, call, request)
            )
        return cast("m.Message | None", route.handle(broker, call, request))
    except Refuse as refusal:
        code = refusal.code
        if call.spent is not None:
            call.spent.is_never_exempt = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    # A malformed request closes its connection, as in Kafka.
    except ProtocolViolation:
        raise
    # A bug costs one response, not a connection with other requests behind this one.
    except Exception:
        _log_failure(call)
        code = ErrorCode.UNKNOWN_SERVER_ERROR

    # A large request has many rows, and its refusal as many: too long for one step of the event loop.
    if route.refuse is None or request_bytes <= REFUSED_INLINE_BYTES_MAX:
        return refused(call.api_key, request, call.version, code)
    return await _threads_of(broker, call)(refused, call.api_key, request, call.version, code)


def _is_control(call: Call) -> bool:
    """Whether a controller may have sent this request: it waits for no work of clients."""
    if call.api_key not in CONTROLLER_KEYS:
        return False
    if call.is_control is None:
        call.is_control = call.authorize("ClusterAction", "Cluster", is_filter=True)
    return call.is_control


def _threads_of(broker: Broker, call: Call) -> InThread:
    """The threads that do the work of this request which is too long for the event loop."""
    return broker.world.in_thread if _is_control(call) else broker.world.in_request_thread


def refused(api_key: int, request: m.Message, version: int, code: ErrorCode) -> m.Message | None:
    """The response with this error code at every place; None when nothing is to be sent (acks=0)."""
    refuse = HANDLERS[api_key].refuse
    if refuse is not None:
        return refuse(request, version, code)
    # The message is null, because the schema's default is mostly an empty string, which clients
    # would show as the message.
    cls = cast("Callable[..., m.Message]", m.response_class(APIS[api_key]))
    return cls(error_code=code, error_message=None) if hasattr(cls, "error_message") else cls(error_code=code)


def answer_unsupported(unsupported: UnsupportedRequest) -> Pieces:
    """The response to an ApiVersions of an unknown version; for any other request, raises `unsupported`.

    It has version 0, which every client can read, UNSUPPORTED_VERSION, and the versions of ApiVersions that are served
    (wire.md 2, KIP-511).
    """
    # Only ApiVersions is sent before the client knows the versions that this broker serves.
    if unsupported.api_key != API_VERSIONS_KEY:
        raise unsupported
    served = APIS[API_VERSIONS_KEY]
    row = m.ApiVersionsResponse.ApiVersion(
        api_key=API_VERSIONS_KEY, min_version=served.min_version, max_version=served.max_version
    )
    response = m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])
    body: Pieces = []
    size_bytes = m.encode_into(response, 0, body)
    return _framed(API_VERSIONS_KEY, 0, unsupported.correlation_id, size_bytes, body)


async def _encode(broker: Broker, call: Call, correlation_id: int, response: m.Message | Encoded) -> Pieces:
    """The pieces of a response. ProtocolViolation when it cannot be encoded."""
    body: Pieces = []
    try:
        if isinstance(response, Encoded):
            body += response.pieces
            size_bytes = sum(map(len, response.pieces))
        else:
            # The first step runs here, and it is the whole of most responses; the others run in a thread.
            begun = m.encode_steps(response, call.version, body)
            # A response of several steps is not looked through for errors: that would take as long as a step.
            if isinstance(begun, int) and call.tally is not None:
                count_errors(response, call.tally.errors)
            size_bytes = begun if isinstance(begun, int) else await _encode_on(broker, call, response, begun)
    except Exception as error:
        raise _cut_off(call, error) from error
    pieces = _framed(call.api_key, call.version, correlation_id, size_bytes, body)
    if call.seen is not None:
        call.seen.answered(call.version, pieces)
    return pieces


async def _encode_on(broker: Broker, call: Call, response: m.Message, begun: Steps[int]) -> int:
    """Complete the encoding of a response with many rows; its size in bytes."""
    in_thread = _threads_of(broker, call)
    try:
        # A Fetch that is cancelled here would leave its file slices open. It enters no room: its plan limits its bytes.
        if isinstance(response, m.FetchResponse):
            with trio.CancelScope(shield=True):
                size_bytes = await complete(begun, in_thread, enters_rooms=False)
        # A controller must not wait for rooms that responses to clients fill.
        elif _is_control(call):
            size_bytes = await complete(begun, in_thread, enters_rooms=False)
        # The request has made its changes, so the connection may be closed for the memory of the response.
        else:
            with resting(keeps_turn=True):
                size_bytes = await complete(begun, in_thread)
    finally:
        # The interpreter would free many rows in one step.
        if call.api_key in NOT_KEPT_KEYS:
            with trio.CancelScope(shield=True):
                await complete(take_apart(response), in_thread)
    return size_bytes


def _cut_off(call: Call, error: Exception) -> ProtocolViolation:
    """Log a response that cannot be encoded (a bug), and return what to raise."""
    # No error can be sent in its place, so the connection closes.
    _log_failure(call)
    return ProtocolViolation(f"our own answer to {APIS[call.api_key].name} cannot be encoded: {error}")


def _framed(api_key: int, version: int, correlation_id: int, size_bytes: int, body: Pieces) -> Pieces:
    """The pieces of a frame: length, header and body. Small neighbours in memory are joined; file slices are not."""
    prefix = response_prefix(size_bytes, correlation_id, response_header_version(api_key, version))

    # The usual response is one piece, so one system call.
    if len(body) == 1 and not isinstance(body[0], FileSlice) and len(body[0]) <= PIECE_BYTES:
        return [prefix + body[0]]
    joined: list[bytes | bytearray | memoryview] = [prefix]
    joined_bytes = 0
    pieces: Pieces = []
    for piece in body:
        # Copying a large piece would cost more than the system call that it saves.
        if isinstance(piece, FileSlice) or len(piece) > PIECE_BYTES:
            pieces += b"".join(joined), piece
            joined = []
            joined_bytes = 0
            continue
        joined.append(piece)
        joined_bytes += len(piece)
        if joined_bytes > PIECE_BYTES:
            pieces.append(b"".join(joined))
            joined = []
            joined_bytes = 0

    if joined:
        pieces.append(b"".join(joined))
    return pieces


def _log_failure(call: Call) -> None:
    logger.exception("%s v%d from client %r failed", APIS[call.api_key].name, call.version, call.client_id)
