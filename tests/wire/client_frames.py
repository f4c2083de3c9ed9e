"""Frames as a client sends and reads them, without their lengths: for parts that take no connection."""

from barnabas.wire import messages as m
from barnabas.wire.asking import Question, read_response, request_frame
from barnabas.wire.frame import LENGTH_BYTES

CORRELATION_ID = 7


def frame_of(
    request: m.Message, version: int, correlation_id: int = CORRELATION_ID, client_id: str | None = "test"
) -> memoryview:
    """A request; as in frames that arrive, its bytes may be written to."""
    return memoryview(bytearray(request_frame(request, version, correlation_id, client_id)))[LENGTH_BYTES:]


def response_in(frame: m.Buffer, api_key: int, version: int, correlation_id: int = CORRELATION_ID) -> m.Message:
    """The response to a request of this API and version."""
    return read_response(frame, Question(api_key, version, correlation_id))
