"""What tests share with `test_records.py`."""

from barnabas.wire.topics import TopicPartition

NOW_MS = 1_700_000_000_000


HERE = TopicPartition("t", 0)


def varint(number: int) -> bytes:
    value, encoded = (number << 1) ^ (number >> 63), b""
    while value > 127:
        value, encoded = value >> 7, encoded + bytes((value & 127 | 128,))
    return encoded + bytes((value,))


def raw_record(  # every field as a test wants it, also false ones
    index=0, value=b"v", key=None, time=0, headers=b"\0", length=None
) -> bytes:
    fields = [varint(-1) if field is None else varint(len(field)) + field for field in (key, value)]
    body = b"\0" + varint(time) + varint(index) + b"".join(fields) + headers
    return varint(len(body) if length is None else length) + body
