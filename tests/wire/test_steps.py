"""Decoding and encoding in bounded steps: the same values and bytes, and no step that is long."""

import struct

import pytest

from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.runtime import STEP_BYTES, STEP_ROWS, TAGS_MAX

VERSIONS = [
    (make(api), version)
    for api in APIS.values()
    if api.served
    for make in (m.request_class, m.response_class)
    for version in (api.min_version, api.max_version)
]
ELEMENT_BYTES_MAX = 4 * 32767 + 2000  # the longest string, of the widest characters, in a struct of many fields


def decoded(cls, version, data):
    """(the message, what it takes at the end, what it took after each step)"""
    message, marks = cls(), []
    steps = m.decode_steps(message, version, memoryview(bytearray(data)), 0)
    while True:
        try:
            marks.append(next(steps))
        except StopIteration as stop:
            return message, stop.value, marks


def encoded(message, version):
    """(the bytes, the size that was said, how many steps it took)"""
    out, steps = [], 1
    begun = m.encode_steps(message, version, out)
    while not isinstance(begun, int):
        try:
            next(begun)
            steps += 1
        except StopIteration as stop:
            begun = stop.value
    return b"".join(out), begun, steps


def filled(cls, version, depth=3):
    """A message of this class with two elements in every list."""
    message = cls()
    for field in cls.SCHEMA.fields:
        fill(message, field, cls, version, depth)
    return message


def fill(target, field, cls, version, depth):
    if not field.is_array or not field.exists_in(version) or not depth:
        return
    if field.is_struct:
        rows = [getattr(cls, field.element)() for _ in range(2)]
        for row in rows:
            for inner in cls.SCHEMA.fields_of(field):
                fill(row, inner, cls, version, depth - 1)
    else:
        empty = {"string": "é", "bytes": b"b", "uuid": bytes(16), "bool": True}
        rows = [empty.get(field.element, 7)] * 2
    setattr(target, field.name, rows)


@pytest.mark.parametrize(("cls", "version"), VERSIONS, ids=lambda each: getattr(each, "__name__", each))
def test_in_steps_every_message_is_read_and_written_as_at_once(cls, version):
    message = filled(cls, version)
    data = m.encode(message, version)
    assert decoded(cls, version, data)[0] == m.decode(cls, version, data)
    assert encoded(message, version)[:2] == (data, len(data))


def produce_of_empty_topics(count):
    """Three bytes a topic."""
    return b"\0\0\1\0\0\0\0" + varint(count + 1) + b"\1\1\0" * count + b"\0"


def varint(value):
    return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14])


HOSTILE = {
    "empty topics": (m.ProduceRequest, 9, produce_of_empty_topics(20_000)),
    "names of a byte": (m.DescribeGroupsRequest, 4, struct.pack(">i", 20_000) + b"\0\1a" * 20_000 + b"\0"),
    "names that are no UTF-8": (
        m.DescribeGroupsRequest,
        4,
        struct.pack(">i", 20) + (struct.pack(">h", 32767) + b"\xff" * 32767) * 20 + b"\0",
    ),
    "numbers": (
        m.OffsetFetchRequest,
        7,
        b"\2g\2\2t" + varint(30_001) + struct.pack(">i", 1 << 20) * 30_000 + b"\0\0\0",
    ),
    "tags": (m.ProduceRequest, 9, b"\0\0\1\0\0\0\0\x65" + (b"\1\1\x64" + b"\x09\0" * 100) * 100 + b"\0"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_step_makes_more_than_a_bounded_number_of_objects(kind):
    _, size_bytes, marks = decoded(*HOSTILE[kind])
    steps = [end - begin for begin, end in zip([0, *marks], [*marks, size_bytes], strict=True)]
    assert len(steps) > 3
    assert max(steps) <= STEP_BYTES + ELEMENT_BYTES_MAX


def test_more_tags_than_anybody_sends_are_refused():
    cls, version, head = m.ProduceRequest, 9, b"\0\0\1\0\0\0\0\1"
    assert m.decode(cls, version, head + bytes([TAGS_MAX]) + b"\x09\0" * TAGS_MAX).acks == 1
    with pytest.raises(ProtocolViolation, match="tagged fields"):
        m.decode(cls, version, head + bytes([TAGS_MAX + 1]) + b"\x09\0" * (TAGS_MAX + 1))


def test_what_ends_too_early_breaks_the_protocol_in_steps_too():
    data = produce_of_empty_topics(5_000)
    with pytest.raises(ProtocolViolation, match="end within the message"):
        decoded(m.ProduceRequest, 9, data[:-1])


def test_an_answer_of_many_rows_is_written_in_many_steps():
    topics = [m.MetadataResponse.MetadataResponseTopic(name=f"t{number}") for number in range(10 * STEP_ROWS)]
    message = m.MetadataResponse(topics=topics)
    data, size_bytes, steps = encoded(message, 9)
    assert (data, size_bytes) == (m.encode(message, 9), len(data))
    assert steps == 11


@pytest.mark.parametrize("version", [7, 8])
def test_rows_with_long_strings_are_written_a_few_in_a_step(version):
    text = "€" * 4096
    if version == 7:
        row = m.OffsetFetchResponse.OffsetFetchResponsePartition(metadata=text)
        topics = [m.OffsetFetchResponse.OffsetFetchResponseTopic(name="t", partitions=[row] * 500)]
        message = m.OffsetFetchResponse(topics=topics)
    else:
        rows = [m.OffsetFetchResponse.OffsetFetchResponsePartitions(metadata=text)] * 500
        topics = [m.OffsetFetchResponse.OffsetFetchResponseTopics(name="t", partitions=rows)]
        message = m.OffsetFetchResponse(groups=[m.OffsetFetchResponse.OffsetFetchResponseGroup(topics=topics)])
    data, size_bytes, steps = encoded(message, version)
    assert data == m.encode(message, version)
    assert size_bytes == len(data)
    # Six megabytes, and about half of one in a step.
    assert 10 <= steps <= 20


def test_rows_with_short_strings_are_written_in_as_few_steps_as_rows_without():
    names = [m.MetadataRequest.MetadataRequestTopic(name="orders") for _ in range(STEP_ROWS - 1)]
    assert encoded(m.MetadataRequest(topics=names), 9)[2] == 1
