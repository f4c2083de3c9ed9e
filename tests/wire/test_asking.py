"""Requests to bytes, bytes to responses, and the versions that two sides agree on."""

import pytest

from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS, response_header_version
from barnabas.wire.errors import ErrorCode, ProtocolViolation
from barnabas.wire.frame import FrameReader, read_request_header

METADATA = 3
Row = m.ApiVersionsResponse.ApiVersion


def answer_frame(response, version, correlation_id, *, key):
    header_version = response_header_version(key, version)
    return m.encode(m.ResponseHeader(correlation_id=correlation_id), header_version) + m.encode(response, version)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (m.ControlledShutdownRequest(broker_id=3), 0),  # the one without a client id
        (m.ControlledShutdownRequest(broker_id=3, broker_epoch=9), 3),
        (m.MetadataRequest(), 12),
        (m.ApiVersionsRequest(client_software_name="n", client_software_version="v"), 4),
    ],
)
def test_a_request_is_one_frame_that_the_other_side_reads(request_, version):
    reader = FrameReader(1 << 20)
    reader.feed(asking.request_frame(request_, version, 77, "me"))
    frame = reader.next_frame()
    header = read_request_header(frame)
    client_id = None if version == 0 else "me"
    assert header[:4] == (request_.API_KEY, version, 77, client_id)
    assert m.decode(type(request_), version, frame, header.position) == request_
    assert reader.pending_bytes == 0


@pytest.mark.parametrize("version", range(APIS[METADATA].max_version + 1))
def test_an_answer_is_read_in_the_version_that_was_asked(version):
    response = m.MetadataResponse(brokers=[m.MetadataResponse.MetadataResponseBroker(node_id=4, host="h", port=1)])
    frame = answer_frame(response, version, 5, key=METADATA)
    assert asking.read_response(frame, asking.Question(METADATA, version, 5)).brokers == response.brokers


def test_an_answer_to_something_else_is_a_violation():
    frame = answer_frame(m.MetadataResponse(), 12, 4, key=METADATA)
    with pytest.raises(ProtocolViolation, match="correlation id 4 instead of 5"):
        asking.read_response(frame, asking.Question(METADATA, 12, 5))


@pytest.mark.parametrize("frame", [b"", b"\0\0", b"\0\0\0\5", b"\0\0\0\5\0" + b"\xff" * 30])
def test_an_answer_that_makes_no_sense_is_a_violation(frame):
    with pytest.raises(ProtocolViolation):
        asking.read_response(frame, asking.Question(METADATA, 12, 5))


def test_what_is_no_request_cannot_be_asked():
    with pytest.raises(TypeError, match="RequestHeader is not a request"):
        asking.request_frame(m.RequestHeader(), 1, 0, "me")


# -- requests in flight


def test_responses_come_in_the_order_of_the_requests():
    in_flight = asking.InFlightRequests("me")
    frames = [memoryview(in_flight.frame(m.MetadataRequest(), version))[4:] for version in (12, 9)]
    assert [read_request_header(frame)[:4] for frame in frames] == [(METADATA, 12, 0, "me"), (METADATA, 9, 1, "me")]
    assert len(in_flight) == 2
    for correlation_id, version in enumerate((12, 9)):
        frame = answer_frame(m.MetadataResponse(controller_id=version), version, correlation_id, key=METADATA)
        assert in_flight.response(frame).controller_id == version
    assert len(in_flight) == 0


def test_a_produce_without_acknowledgement_is_counted_and_not_waited_for():
    in_flight = asking.InFlightRequests(None)
    in_flight.frame(m.ProduceRequest(acks=0), 9)
    assert len(in_flight) == 0
    in_flight.frame(m.MetadataRequest(), 12)
    assert in_flight.response(answer_frame(m.MetadataResponse(), 12, 1, key=METADATA)) == m.MetadataResponse()


def test_an_answer_to_nothing_is_a_violation():
    in_flight = asking.InFlightRequests("me")
    with pytest.raises(ProtocolViolation, match="without a request"):
        in_flight.response(answer_frame(m.MetadataResponse(), 12, 0, key=METADATA))


def test_correlation_ids_begin_again_after_the_largest():
    in_flight = asking.InFlightRequests("me")
    in_flight.correlation_id = asking.CORRELATION_IDS - 1
    assert in_flight.number(m.MetadataRequest(), 12).correlation_id == 0


def test_requests_that_are_forgotten_get_no_answer():
    in_flight = asking.InFlightRequests("me")
    in_flight.frame(m.MetadataRequest(), 12)
    in_flight.forget()
    assert len(in_flight) == 0


# -- versions


def versions(*rows, error_code=0):
    return m.ApiVersionsResponse(
        error_code=error_code,
        api_keys=[Row(api_key=key, min_version=lowest, max_version=highest) for key, lowest, highest in rows],
    )


def test_the_highest_version_that_both_sides_know_is_used():
    theirs = versions((56, 0, 2), (67, 0, 9), (3, 13, 20), (999, 0, 1))
    assert asking.common_versions(theirs) == {56: 2, 67: 0}


def test_no_version_is_above_its_limit():
    assert asking.at_most({56: 3, 67: 0}, {56: 1, 4: 7}) == {56: 1, 67: 0}


def test_api_versions_is_asked_again_in_the_version_that_the_other_side_names():
    theirs = versions((API_VERSIONS_KEY, 0, 3), error_code=ErrorCode.UNSUPPORTED_VERSION)
    frame = answer_frame(theirs, 0, 1, key=API_VERSIONS_KEY)
    read = asking.read_versions(frame, asking.Question(API_VERSIONS_KEY, 4, 1))
    assert asking.version_to_ask_again(read, 4) == 3


def test_a_broker_that_names_no_version_of_it_is_asked_in_the_first():
    refused = versions(error_code=ErrorCode.UNSUPPORTED_VERSION)
    assert asking.version_to_ask_again(refused, 4) == 0


def test_an_answer_without_error_ends_the_asking():
    frame = answer_frame(versions((3, 0, 1)), 4, 1, key=API_VERSIONS_KEY)
    read = asking.read_versions(frame, asking.Question(API_VERSIONS_KEY, 4, 1))
    assert asking.version_to_ask_again(read, 4) is None
    assert asking.common_versions(read) == {3: 1}


@pytest.mark.parametrize(
    ("response", "asked"),
    [
        (versions(error_code=ErrorCode.UNSUPPORTED_VERSION), 0),
        (versions((API_VERSIONS_KEY, 0, 4), error_code=ErrorCode.UNSUPPORTED_VERSION), 4),  # or it went on for ever
        (versions(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED), 4),
    ],
)
def test_a_broker_that_cannot_be_talked_to_is_given_up(response, asked):
    with pytest.raises(ProtocolViolation):
        asking.version_to_ask_again(response, asked)


def test_an_empty_answer_to_api_versions_is_a_violation():
    with pytest.raises(ProtocolViolation):
        asking.read_versions(b"\0\0\0\1", asking.Question(API_VERSIONS_KEY, 4, 1))
