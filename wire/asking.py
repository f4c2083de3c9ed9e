"""The asking side of a connection, without any I/O: requests to bytes, bytes to responses.

*Theory of operation.* A request goes out as one frame: its header with a correlation id, then its body. The answer
brings the correlation id back; anything else in its place means that the two sides no longer agree where they are, and
the connection is of no use any more (`ProtocolViolation`). What must be known to read an answer is what was asked, at
which version and under which id: a `Question`.

Which version to ask in is either fixed (brokers ask each other in the versions that `inter.broker.protocol.version`
implies, reference kafka-internals.md, section 0) or the highest that both sides know, learned by ApiVersions once a
connection (KIP-35): `common_versions`. A broker that does not know our version of ApiVersions itself answers in version
0 with error 35, and (since KIP-511) with the version that it does know: `version_to_ask_again`.
"""

import struct
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, request_header_version, response_class, response_header_version
from barnabas.wire.errors import ErrorCode, ProtocolViolation

LARGE_PARTITIONS = 250  # a request that speaks of more of them takes above a millisecond to encode

_LENGTH = struct.Struct(">i")
_ERROR_CODE = struct.Struct(">h")


class Question(NamedTuple):
    """What must be known of a request to read its answer."""

    api_key: int
    version: int
    correlation_id: int


def key_of(request: m.Message) -> int:
    """The API key of a request; TypeError when it is none."""
    if request.API_KEY is None:
        raise TypeError(f"{type(request).__name__} is not a request")
    return request.API_KEY


def request_frame(request: m.Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The bytes of a request, its length first."""
    key = key_of(request)
    header = m.RequestHeader(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    head = m.encode(header, request_header_version(key, version))
    body = m.encode(request, version)
    return b"".join((_LENGTH.pack(len(head) + len(body)), head, body))


def is_large(request: m.Message) -> bool:
    """Whether this is one of those in which a controller speaks of many partitions at once."""
    topics = getattr(request, "topic_states", ())
    ungrouped = getattr(request, "ungrouped_partition_states", ())
    return len(ungrouped) + sum(len(topic.partition_states) for topic in topics) > LARGE_PARTITIONS


def read_response(frame: m.Buffer, question: Question) -> m.Message:
    """The answer in this frame (without its length); ProtocolViolation when it is not one to this question.

    Records in it are views of the frame.
    """
    position = _body_position(frame, question)
    return m.decode(response_class(APIS[question.api_key]), question.version, frame, position)


def read_versions(frame: m.Buffer, question: Question) -> m.ApiVersionsResponse:
    """The answer to ApiVersions, which comes in version 0 whatever was asked when that version is not known."""
    position = _body_position(frame, question)
    if len(frame) < position + _ERROR_CODE.size:
        raise ProtocolViolation(f"ApiVersions is answered with {len(frame)} bytes")
    (error_code,) = _ERROR_CODE.unpack_from(frame, position)
    version = 0 if error_code == ErrorCode.UNSUPPORTED_VERSION else question.version
    return m.decode(m.ApiVersionsResponse, version, frame, position)


def version_to_ask_again(response: m.ApiVersionsResponse, asked: int) -> int | None:
    """In which version to ask ApiVersions once more; None when this answer says what there is.

    ProtocolViolation when it makes no sense to ask again.
    """
    if response.error_code == ErrorCode.NONE:
        return None
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and asked > 0:
        known = (row.max_version for row in response.api_keys if row.api_key == API_VERSIONS_KEY)
        version = next(known, 0)  # before KIP-511 nothing is listed, and version 0 is what everybody knows
        if 0 <= version < asked:
            return version
    raise ProtocolViolation(f"ApiVersions v{asked} is answered with error {response.error_code}")


def common_versions(response: m.ApiVersionsResponse) -> dict[int, int]:
    """Key -> the highest version that both sides know; what has none is left out."""
    versions = {}
    for row in response.api_keys:
        ours = APIS.get(row.api_key)
        if ours is not None:
            version = min(ours.max_version, row.max_version)
            if version >= max(ours.min_version, row.min_version):
                versions[row.api_key] = version
    return versions


def at_most(versions: Mapping[int, int], limits: Mapping[int, int]) -> dict[int, int]:
    """The same, none above its limit; what has no limit stays as it is."""
    return {key: min(version, limits.get(key, version)) for key, version in versions.items()}


def _body_position(frame: m.Buffer, question: Question) -> int:
    header_version = response_header_version(question.api_key, question.version)
    header, position = m.decode_from(m.ResponseHeader, header_version, frame, 0)
    if header.correlation_id != question.correlation_id:
        name = APIS[question.api_key].name
        raise ProtocolViolation(
            f"an answer to {name} carries correlation id {header.correlation_id} instead of {question.correlation_id}"
        )
    return position
