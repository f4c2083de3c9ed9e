"""Frames out of arbitrarily cut bytes, and the headers of requests."""

import itertools
import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.broker.process.heap import resident_bytes
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.frame import (
    ARRAY_BYTES_MAX,
    FRAMES_AT_A_TIME,
    HEADER_TAGS_MAX,
    PAGES_BYTES_MIN,
    FrameReader,
    UnsupportedRequest,
    read_request_header,
    response_prefix,
)
from tests.wire.bombs import memory_below

MAX_BYTES = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def request(api_key: int, api_version: int, client_id: bytes | None, rest: bytes) -> memoryview:
    start = struct.pack(">hhi", api_key, api_version, 77)
    name = struct.pack(">h", -1) if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return memoryview(start + name + rest)


def take_all(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.data())
def test_the_same_frames_come_out_however_the_bytes_are_cut(bodies, data) -> None:
    stream, reader, frames = framed(*bodies), FrameReader(MAX_BYTES), []
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        reader.feed(stream[start:end])
        if data.draw(st.booleans()):
            frames += take_all(reader)
    assert frames + take_all(reader) == bodies
    assert reader.pending_bytes == 0


def receive(reader: FrameReader, data: bytes) -> int:
    """As a connection does it: into the frame's own memory if there is some; how many bytes were taken."""
    room = reader.room()
    if room is None:
        reader.feed(data)
        return len(data)
    taken = data[: len(room)]
    with room:
        room[: len(taken)] = taken
    reader.filled(len(taken))
    return len(taken)


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from((1, 30, 500, PAGES_BYTES_MIN, PAGES_BYTES_MIN + 7)), max_size=4),
    st.lists(st.integers(1, ARRAY_BYTES_MAX), min_size=1, max_size=12),
)
def test_the_same_frames_come_out_of_bytes_received_into_their_memory(sizes, pieces) -> None:
    bodies = [random.Random(size).randbytes(size) for size in sizes]
    stream, reader, frames = framed(*bodies), FrameReader(2 * PAGES_BYTES_MIN), []
    position = 0
    for piece_bytes in itertools.cycle(pieces):
        if position == len(stream):
            break
        position += receive(reader, stream[position : position + piece_bytes])
        frames += take_all(reader)
    assert frames == bodies
    assert reader.pending_bytes == 0


def test_a_frame_gets_its_memory_when_a_quarter_has_arrived_and_it_counts_as_pending() -> None:
    reader, body = FrameReader(MAX_BYTES), bytes(range(200)) * 5
    stream = framed(body)
    reader.feed(stream[:200])
    assert (reader.room(), reader.pending_bytes) == (None, 200)
    reader.feed(stream[200:300])
    with reader.room() as room:
        assert len(room) == len(stream) - 300
        room[:100] = stream[300:400]
    reader.filled(100)
    assert (reader.pending_bytes, reader.needed_bytes) == (len(stream), len(stream) - 400)
    reader.feed(stream[400:])  # after a wait
    frame = reader.next_frame()
    frame[0:1] = b"!"
    assert bytes(frame) == b"!" + body[1:]
    assert reader.pending_bytes == 0


@settings(max_examples=60)
@given(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=3))
def test_a_byte_at_a_time_needed_bytes_counts_down_to_each_frame(bodies) -> None:
    reader = FrameReader(MAX_BYTES)
    for body in bodies:
        for position, byte in enumerate(framed(body)):
            assert reader.needed_bytes == (4 - position if position < 4 else 4 + len(body) - position)
            reader.feed(bytes((byte,)))
        assert reader.needed_bytes == 0
        assert take_all(reader) == [body]


def test_a_frame_is_writable_and_its_own() -> None:
    reader, chunk = FrameReader(MAX_BYTES), bytearray(framed(b"first", b"second")[:-1])
    reader.feed(memoryview(chunk))
    chunk[:] = bytes(len(chunk))
    reader.feed(b"d")
    first, second = reader.next_frame(), reader.next_frame()
    first[0:1] = b"F"
    assert (bytes(first), bytes(second)) == (b"First", b"second")


def test_one_whole_frame_in_one_piece_is_also_writable_and_its_own() -> None:
    reader, chunk = FrameReader(MAX_BYTES), bytearray(framed(b"only"))
    reader.feed(chunk)
    chunk[:] = bytes(len(chunk))
    frame = reader.next_frame()
    frame[0:1] = b"O"
    assert bytes(frame) == b"Only"


def test_pending_bytes_counts_frames_not_taken_and_the_beginning_of_the_next() -> None:
    reader = FrameReader(MAX_BYTES)
    reader.feed(framed(b"12345") + b"\0\0\0\x09ab")
    assert reader.pending_bytes == 5 + 6
    reader.next_frame()
    assert reader.pending_bytes == 6


@pytest.mark.parametrize(
    ("begin", "protocol"),
    [
        (b"\x16\x03\x01\x02\x00\x01", "The client speaks TLS"),
        (b"GET / HTTP/1.1", "The client speaks HTTP"),
        (b"POST /topics HTTP/1.1", "The client speaks HTTP"),
        (b"PRI * HTTP/2.0", "The client speaks HTTP"),
        (b"\x7f\xff\xff\xff\x00", "100$"),
        (b"SSH-2.0-OpenSSH", "100$"),
    ],
)
def test_a_client_of_another_well_known_protocol_is_called_so(begin, protocol):
    reader = FrameReader(100)
    reader.feed(begin)
    with pytest.raises(ProtocolViolation, match=protocol):
        reader.next_frame()


@pytest.mark.parametrize("length", [0, -1, -(2**31), MAX_BYTES + 1, 2**31 - 1])
def test_a_bad_length_ends_the_stream_after_the_frames_before_it(length) -> None:
    reader = FrameReader(MAX_BYTES)
    reader.feed(framed(b"good") + struct.pack(">i", length) + b"rest")
    assert bytes(reader.next_frame()) == b"good"
    with pytest.raises(ProtocolViolation, match="claims"):
        reader.next_frame()
    reader.feed(framed(b"more"))
    with pytest.raises(ProtocolViolation, match="claims"):
        reader.next_frame()
    assert (reader.pending_bytes, reader.needed_bytes) == (0, 0)


def test_a_whole_frame_above_the_limit_is_refused_even_in_one_piece() -> None:
    reader = FrameReader(max_bytes=8)
    reader.feed(framed(b"12345678"))
    reader.feed(framed(b"123456789"))
    assert bytes(reader.next_frame()) == b"12345678"
    with pytest.raises(ProtocolViolation, match="limit is 8"):
        reader.next_frame()


def test_frames_of_a_login_may_be_empty_and_have_a_limit_of_their_own() -> None:
    reader = FrameReader(10, takes_empty=True)
    reader.feed(framed(b"", b"a" * 10, b"") + b"\0\0")
    assert (reader.pending_bytes, reader.needed_bytes) == (12, 0)
    assert take_all(reader) == [b"", b"a" * 10, b""]
    assert (reader.pending_bytes, reader.needed_bytes) == (2, 2)
    reader.become_ordinary(20)
    reader.feed(b"\0\x14" + b"b" * 20)
    assert take_all(reader) == [b"b" * 20]
    reader.feed(framed(b""))
    with pytest.raises(ProtocolViolation, match="a length of 0 bytes"):
        reader.next_frame()
    longer = FrameReader(10, takes_empty=True)
    longer.feed(framed(b"c" * 11))
    with pytest.raises(ProtocolViolation, match="the limit is 10"):
        longer.next_frame()


def test_a_claimed_length_allocates_nothing_before_the_bytes_arrive() -> None:
    reader = FrameReader(max_bytes=2**31 - 1)
    reader.feed(struct.pack(">i", 2**31 - 1) + b"x" * 1000)
    assert reader.pending_bytes == 1004
    assert reader.needed_bytes == 2**31 - 1 - 1000


def test_a_large_frame_that_arrives_in_pieces_is_writable_and_its_own() -> None:
    bodies = [bytes(range(256)) * (PAGES_BYTES_MIN // 200), b"after", bytes(PAGES_BYTES_MIN)]
    stream, reader, frames = framed(*bodies), FrameReader(2 * PAGES_BYTES_MIN), []
    for start in range(0, len(stream), 100_000):
        reader.feed(stream[start : start + 100_000])
        assert reader.needed_bytes >= 0
        while (frame := reader.next_frame()) is not None:
            frame[0] = frame[0]
            frames.append(frame)
    assert [bytes(frame) for frame in frames] == bodies
    assert reader.pending_bytes == 0


def test_a_large_frame_takes_the_memory_of_what_has_arrived() -> None:
    before, readers = resident_bytes(), [FrameReader(2**31 - 1) for _ in range(20)]
    for reader in readers:
        reader.feed((2**31 - 1).to_bytes(4, "big"))
        reader.feed(b"x" * (2 * ARRAY_BYTES_MAX))
        assert reader.pending_bytes == 2 * ARRAY_BYTES_MAX + 4
    assert resident_bytes() - before < 4 * len(readers) * ARRAY_BYTES_MAX


@pytest.mark.parametrize("before", [b"", b"\0\0"], ids=["whole", "behind a part of a length"])
def test_frames_of_a_byte_each_take_little_more_memory_than_their_bytes(before) -> None:
    bodies, reader = [b"x"] * 10_000, FrameReader(MAX_BYTES)
    stream = framed(*bodies)
    reader.feed(before)
    with memory_below(2 * len(stream)):
        reader.feed(memoryview(stream)[len(before) :])
        assert len(bodies) < reader.pending_bytes < 5 * len(bodies)
    assert take_all(reader) == bodies
    assert reader.pending_bytes == 0


def test_what_arrives_behind_many_frames_that_are_not_taken_yet_keeps_its_place() -> None:
    bodies, reader = [bytes((number,)) for number in range(3 * FRAMES_AT_A_TIME)], FrameReader(MAX_BYTES)
    reader.feed(framed(*bodies)[:-3])
    assert reader.needed_bytes == 0
    reader.feed(framed(*bodies)[-3:] + framed(b"last") + b"\0\0\0\5a")
    for body in (*bodies, b"last"):
        assert bytes(reader.peek()) == body
        assert bytes(reader.next_frame()) == body
    assert (reader.next_frame(), reader.peek(), reader.needed_bytes) == (None, None, 4)


def test_header_version_1_has_a_client_id_and_no_tags() -> None:
    header = read_request_header(request(1, 11, b"me", b"body"))
    assert header == (1, 11, 77, "me", 12)


def test_header_version_2_keeps_the_client_id_and_skips_tags_it_does_not_know() -> None:
    tags = b"\x02" + b"\x05\x03abc" + b"\xff\x01\x01z"
    frame = request(1, 12, b"me", tags + b"body")
    header = read_request_header(frame)
    assert (header.client_id, bytes(frame[header.position :])) == ("me", b"body")


def test_a_header_with_more_tags_than_anybody_sends_is_refused_before_they_are_read() -> None:
    def header(count: int) -> bytes:
        return bytes([count]) + b"\x05\x00" * count

    assert read_request_header(request(3, 9, None, header(HEADER_TAGS_MAX))).position == 11 + 2 * HEADER_TAGS_MAX
    with pytest.raises(ProtocolViolation, match="101 tagged fields"):
        read_request_header(request(3, 9, None, header(HEADER_TAGS_MAX + 1)))
    with pytest.raises(ProtocolViolation, match="tagged fields"):
        read_request_header(request(3, 9, None, b"\xff\xff\xff\xff\x07"))


def test_a_client_id_may_be_null_or_empty() -> None:
    assert read_request_header(request(3, 1, None, b"")).client_id is None
    assert read_request_header(request(3, 9, None, b"\0"))[3:] == (None, 11)
    assert read_request_header(request(3, 9, b"", b"\0"))[3:] == ("", 11)


def test_a_client_id_that_is_not_utf8_is_served_all_the_same() -> None:
    assert read_request_header(request(3, 1, "bücher".encode("latin-1"), b"")).client_id == "b\ufffdcher"


@pytest.mark.parametrize(("key", "version"), [(18, 5), (0, 99), (999, 0), (-1, 0), (1, -1), (58, 0)])
def test_what_is_not_served_is_reported_with_what_is_known_of_it(key, version) -> None:
    with pytest.raises(UnsupportedRequest) as raised:
        read_request_header(memoryview(struct.pack(">hhi", key, version, 9)))
    error = raised.value
    assert (error.api_key, error.api_version, error.correlation_id) == (key, version, 9)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\x03\0\x01\0\0\0",
        b"\0\x03\0\x01\0\0\0\x07",
        bytes(request(3, 1, b"abc", b"")[:-1]),
        bytes(request(3, 9, b"abc", b"")),
        bytes(request(3, 9, b"abc", b"\x01\x00")),
        bytes(request(3, 9, b"abc", b"\x01\x00\x05ab")),
        bytes(request(3, 9, b"abc", b"\x80\x80\x80\x80\x80\x00")),
        struct.pack(">hhih", 3, 1, 7, -2) + b"abcd",
    ],
)
def test_a_malformed_header_breaks_the_protocol(frame) -> None:
    with pytest.raises(ProtocolViolation):
        read_request_header(memoryview(frame))


@settings(max_examples=60)
@given(st.sampled_from([(0, 9), (1, 12), (3, 1), (18, 3)]), st.binary(max_size=30))
def test_arbitrary_bytes_behind_a_served_version_never_raise_anything_else(api, rest) -> None:
    frame = memoryview(struct.pack(">hhi", *api, 1) + rest)
    try:
        header = read_request_header(frame)
    except ProtocolViolation:
        return
    assert 8 < header.position <= len(frame)


def test_a_response_is_preceded_by_its_length_and_the_correlation_id() -> None:
    assert response_prefix(10, 77, 0) == struct.pack(">ii", 14, 77)
    assert response_prefix(10, 77, 1) == struct.pack(">ii", 15, 77) + b"\0"
