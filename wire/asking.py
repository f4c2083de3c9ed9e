"""The client side of a connection, without I/O: requests to bytes, bytes to responses.

A request is one frame: its header with a correlation id, then its body. The response has the same correlation id. To
read a response its API, version and correlation id must be known: the `Question`. `InFlightRequests` numbers the
requests of one connection and keeps their questions until the responses come, in the order of the requests.

The version of a request is either fixed (between brokers by `inter.broker.protocol.version`, reference
kafka-internals.md, section 0) or the highest that both sides support, by one ApiVersions request per connection
(KIP-35): `common_versions`. A broker that does not support our version of ApiVersions itself responds in version 0 with
error 35, and (since KIP-511) with the version that it supports: `version_to_ask_again`.
"""

import struct
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, request_header_version, response_header_version
from barnabas.wire.errors import ErrorCode, ProtocolViolation
from barnabas.wire.frame import LENGTH_BYTES

LARGE_PARTITIONS = 250  # a request with more partitions takes more than a millisecond to encode

CORRELATION_IDS = 1 << 31  # int32, not negative
CLIENT_IDS_KEPT = 64  # a broker has a client id for each fetcher, and a few others

_HEADER = struct.Struct(">ihhi")  # the length of a frame, API key, version, correlation id
_CORRELATION_ID = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")


class Question(NamedTuple):
    """The facts about a request that are needed to read its response."""

    api_key: int
    version: int
    correlation_id: int


class InFlightRequests:
    """The requests of one connection whose responses have not come yet.

    `client_id` may change between two requests. The first correlation id is 0.
    """

    def __init__(self, client_id: str | None) -> None:
        self.client_id = client_id
        self.correlation_id = -1  # of the last request
        self._questions: deque[Question] = deque()

    def __len__(self) -> int:
        return len(self._questions)

    def frame(self, request: m.Message, version: int) -> bytes:
        """The frame of the next request."""
        question = self.number(request, version)
        return request_frame(request, version, question.correlation_id, self.client_id)

    def number(self, request: m.Message, version: int) -> Question:
        """Count the next request, whose frame the caller makes."""
        self.correlation_id = (self.correlation_id + 1) % CORRELATION_IDS
        question = Question(key_of(request), version, self.correlation_id)
        # A broker sends no response to a Produce with acks=0.
        if not isinstance(request, m.ProduceRequest) or request.acks != 0:
            self._questions.append(question)
        return question

    def take(self) -> Question:
        """The oldest request, which is answered now. ProtocolViolation if there is none."""
        if not self._questions:
            raise ProtocolViolation("a response comes without a request")
        return self._questions.popleft()

    def response(self, frame: m.Buffer) -> m.Message:
        """The response to the oldest request, in this frame (without its length). ProtocolViolation."""
        return read_response(frame, self.take())

    def forget(self) -> None:
        """No response to the requests so far will be read."""
        self._questions.clear()


def key_of(request: m.Message) -> int:
    """The API key of a request; TypeError if the message is none."""
    if request.API_KEY is None:
        raise TypeError(f"{type(request).__name__} is not a request")
    return request.API_KEY


def request_frame(
    request: m.Message, version: int, correlation_id: int, client_id: str | None, body: bytes | None = None
) -> bytes:
    """The frame of a request, its length included. `body`: the encoded request, where the caller has it."""
    key = key_of(request)
    client = _client_fields(request_header_version(key, version), client_id)
    if body is None:
        body = m.encode(request, version)
    length = _HEADER.size - LENGTH_BYTES + len(client) + len(body)
    return b"".join((_HEADER.pack(length, key, version, correlation_id), client, body))


@lru_cache(CLIENT_IDS_KEPT)
def _client_fields(header_version: int, client_id: str | None) -> bytes:
    """What follows the correlation id in the header of each request of a client."""
    return m.encode(m.RequestHeader(client_id=client_id), header_version)[_HEADER.size - LENGTH_BYTES :]


def is_large(request: m.Message) -> bool:
    """Whether this is a request of the controller about more than `LARGE_PARTITIONS` partitions."""
    # LeaderAndIsr, StopReplica and UpdateMetadata have these fields; partitions are grouped by topic only in newer
    # versions.
    topics = getattr(request, "topic_states", ())
    ungrouped = getattr(request, "ungrouped_partition_states", ())
    return len(ungrouped) + sum(len(topic.partition_states) for topic in topics) > LARGE_PARTITIONS


def read_response(frame: m.Buffer, question: Question) -> m.Message:
    """The response in this frame (without its length). ProtocolViolation if it does not belong to this question.

    Its records are views of the frame.
    """
    position = _body_position(frame, question)
    return m.decode(m.response_class(APIS[question.api_key]), question.version, frame, position)


def read_versions(frame: m.Buffer, question: Question) -> m.ApiVersionsResponse:
    """The response to ApiVersions. It is in version 0 if the broker does not support the version of the request."""
    # The error code comes first in every version, and the version of the rest depends on it.
    position = _body_position(frame, question)
    if len(frame) < position + _ERROR_CODE.size:
        raise ProtocolViolation(f"ApiVersions is answered with {len(frame)} bytes")
    (error_code,) = _ERROR_CODE.unpack_from(frame, position)
    version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else question.version
    return m.decode(m.ApiVersionsResponse, version, frame, position)


def version_to_ask_again(response: m.ApiVersionsResponse, asked: int) -> int | None:
    """The version for another ApiVersions request; None if this response lists the APIs.

    ProtocolViolation if another request would not help.
    """
    if response.error_code == ErrorCode.NONE:
        return None
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and asked > 0:
        known = (row.max_version for row in response.api_keys if row.api_key == API_VERSIONS_KEY)
        # Brokers from before KIP-511 list nothing; all of them support version 0.
        version = next(known, 0)
        # Only a lower version is asked next: otherwise a broken peer could make this broker ask for
        # ever.
        if 0 <= version < asked:
            return version
    raise ProtocolViolation(f"ApiVersions v{asked} is answered with error {response.error_code}")


def common_versions(response: m.ApiVersionsResponse) -> dict[int, int]:
    """Key -> the highest version that both sides support; APIs without one are left out."""
    versions = {}
    for row in response.api_keys:
        ours = APIS.get(row.api_key)
        if ours is not None:
            version = min(ours.max_version, row.max_version)
            if version >= max(ours.min_version, row.min_version):
                versions[row.api_key] = version
    return versions


def at_most(versions: Mapping[int, int], limits: Mapping[int, int]) -> dict[int, int]:
    """These versions, each lowered to its limit if there is one."""
    return {key: min(version, limits.get(key, version)) for key, version in versions.items()}


def _body_position(frame: m.Buffer, question: Question) -> int:
    header_version = response_header_version(question.api_key, question.version)
    # Nearly every header is a correlation id, and from version 1 on the byte that says that there are no tags.
    if len(frame) > _CORRELATION_ID.size and (header_version == 0 or not frame[_CORRELATION_ID.size]):
        (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
        position = _CORRELATION_ID.size + header_version
    else:
        header, position = m.decode_from(m.ResponseHeader, header_version, frame, 0)
        correlation_id = header.correlation_id

    # Responses come in the order of the requests. With another id the two sides have lost track, and no later response
    # can be trusted either: the connection closes.
    if correlation_id != question.correlation_id:
        name = APIS[question.api_key].name
        raise ProtocolViolation(
            f"an answer to {name} carries correlation id {correlation_id} instead of {question.correlation_id}"
        )
    return position
