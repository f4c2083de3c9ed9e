"""Batches that are damaged, contradict themselves or are of another format: which error, and what is stored."""

import random
import struct
import zlib

import snappy
from crc32c import crc32c

from barnabas.wire.compression import Codec
from compat_tests.differential.asking import MIB, PAST_MS, batch, fetch, produce_one
from compat_tests.differential.scenario import scenario
from tests.wire.bombs import XERIAL

HEADER = 61  # bytes of a batch before its first record
LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_DELTA = 8, 12, 16, 17, 21, 23
BASE_TIME, MAX_TIME, PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE, COUNT = 27, 35, 43, 51, 53, 57
SMALLEST, LARGEST = -(2**31), 2**31 - 1

# A length that is too short makes Kafka read the next batch out of the middle of this one, where the last byte of the
# time is a length and a magic. It answers otherwise when that byte is 1 or 2; in PAST_MS it is always 0.
GOOD = batch(*[(b"k", b"v" * 50)] * 3, at=PAST_MS)
GZIPPED = batch(*[(b"k", b"v" * 50)] * 3, at=1000, codec=1)
SIZE = len(GOOD)


def sealed(data):
    """With the checksum that belongs to it."""
    data = bytearray(data)
    struct.pack_into(">I", data, CRC, crc32c(bytes(data[ATTRIBUTES:])))
    return bytes(data)


def changed(data, *changes, seal=True):
    """With other values at these places: (format, position, value)."""
    data = bytearray(data)
    for layout, position, value in changes:
        struct.pack_into(f">{layout}", data, position, value)
    return sealed(data) if seal else bytes(data)


def with_record(body):
    """A batch of one record, of these bytes."""
    data = GOOD[:HEADER] + bytes([len(body) << 1]) + body
    return changed(data, ("i", LENGTH, len(data) - 12), ("i", COUNT, 1), ("i", LAST_DELTA, 0), ("q", MAX_TIME, 1000))


def old_message(magic, value=b"v"):
    """A message of format 0 or 1."""
    times = struct.pack(">q", 1000) if magic else b""
    body = bytes([magic, 0]) + times + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def lengths_and_checksums():
    yield "good", GOOD
    yield "checksum", GOOD[:-1] + bytes([GOOD[-1] ^ 1])
    yield "checksum field", changed(GOOD, ("I", CRC, 0), seal=False)
    for length in (SIZE + 100, SIZE, SIZE - 11, SIZE - 13, 49, 48, 20, 14, 13, 0, -5, SMALLEST, LARGEST):
        yield f"length {length}", changed(GOOD, ("i", LENGTH, length), seal=False)
    for size in (10, 16, 17, 60, 61, SIZE - 1):
        yield f"only {size} bytes", GOOD[:size]
    yield "two batches", GOOD + GOOD
    for spare in (5, 17, 30):
        yield f"and {spare} bytes of another", GOOD + GOOD[:spare]
        yield f"and {spare} zeros", GOOD + bytes(spare)
    yield "random", random.Random(1).randbytes(200)
    yield "zeros", bytes(200)
    yield "ones", b"\xff" * 200


def header_fields():
    for count in (-1, 0, 1, 2, 4, 7, 1000, LARGEST, SMALLEST):
        yield f"count {count}", changed(GOOD, ("i", COUNT, count))
        yield f"count {count}, gzip", changed(GZIPPED, ("i", COUNT, count))
    for delta in (-1, 0, 1, 3, LARGEST):
        yield f"last delta {delta}", changed(GOOD, ("i", LAST_DELTA, delta))
    for count in (2, 4):
        for name, data in (("", GOOD), (", gzip", GZIPPED)):
            yield f"count {count} and its delta{name}", changed(data, ("i", COUNT, count), ("i", LAST_DELTA, count - 1))
    for magic in (0, 1, 3, 4, -1, 127, -128):
        yield f"magic {magic}", changed(GOOD, ("b", MAGIC, magic), seal=False)
    for magic in (0, 1, 3):
        yield f"magic {magic}, sealed", changed(GOOD, ("b", MAGIC, magic))
    for attributes in (5, 6, 7, 8, 16, 32, 48, 64, 128, 256, -32768):
        yield f"attributes {attributes}", changed(GOOD, ("h", ATTRIBUTES, attributes))
    for offset in (5, -1):
        yield f"base offset {offset}", changed(GOOD, ("q", 0, offset))
    yield "leader epoch 99", changed(GOOD, ("i", LEADER_EPOCH, 99), seal=False)
    for time_ms in (5, -1):
        yield f"largest time {time_ms}", changed(GOOD, ("q", MAX_TIME, time_ms))
    for time_ms in (-1, -(2**63)):
        yield f"base time {time_ms}", changed(GOOD, ("q", BASE_TIME, time_ms))
    producers = [(5, 0, -1), (5, -1, 0), (-1, 0, 0), (-2, 0, 0), (5, -2, 0), (5, 0, -2), (-1, -1, 5), (-1, 5, -1)]
    for producer in producers:
        places = zip("qhi", (PRODUCER_ID, PRODUCER_EPOCH, SEQUENCE), producer, strict=True)
        yield f"producer {producer}", changed(GOOD, *places)


def contents():
    chance = random.Random(2)
    for codec in (1, 2, 3, 4):
        data = changed(GOOD, ("h", ATTRIBUTES, codec))
        yield f"random bytes as codec {codec}", sealed(data[:HEADER] + chance.randbytes(SIZE - HEADER))
        yield f"nothing as codec {codec}", changed(GOOD[:HEADER], ("i", LENGTH, 49), ("h", ATTRIBUTES, codec))
    yield "no records", changed(GOOD[:HEADER], ("i", LENGTH, 49))
    for delta in (0, -1):
        changes = ("i", LENGTH, 49), ("i", COUNT, 0), ("i", LAST_DELTA, delta)
        yield f"no records, count 0, delta {delta}", changed(GOOD[:HEADER], *changes)
    for position in range(HEADER, min(SIZE, HEADER + 14)):
        flipped = bytearray(GOOD)
        flipped[position] ^= 0xFF
        yield f"byte {position} inverted", sealed(flipped)
    yield "format 0", old_message(0)
    yield "format 1", old_message(1)
    yield "format 1, then 2", old_message(1) + GOOD
    yield "format 2, then 1", GOOD + old_message(1)


RECORDS = {
    "good": b"\0\0\0\x01\x02v\0",
    "attributes 1": b"\x01\0\0\x01\x02v\0",
    "key of -2": b"\0\0\0\x03\x02v\0",
    "value of -2": b"\0\0\0\x01\x03\0",
    "-1 headers": b"\0\0\0\x01\x02v\x01",
    "100 headers": b"\0\0\0\x01\x02v\xc8\x01",
    "header key null": b"\0\0\0\x01\x02v\x02\x01\x02x",
    "header key of -2": b"\0\0\0\x01\x02v\x02\x03\x02x",
    "header value null": b"\0\0\0\x01\x02v\x02\x02k\x01",
    "header value of -2": b"\0\0\0\x01\x02v\x02\x02k\x03",
    "header key not UTF-8": b"\0\0\0\x01\x02v\x02\x02\xff\x01",
    "spare bytes": b"\0\0\0\x01\x02v\0zz",
    "value too long": b"\0\0\0\x01\x20v\0",
    "empty": b"",
    "negative time delta": b"\0\x01\0\x01\x02v\0",
    "offset delta 1": b"\0\0\x02\x01\x02v\0",
    "offset delta -1": b"\0\0\x01\x01\x02v\0",
    "long varint": b"\0\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\0\x01\x02v\0",
}


def frames():
    """Compressed records in frames that a codec's library reads otherwise than Java's readers."""
    records = GOOD[HEADER:]
    size = len(records)
    shapes = [
        ("lz4, an empty block within", Codec.LZ4, lz4_of(records[:-1], b"\0\0\0\x80", records[-1:])),
        ("lz4, an empty compressed block within", Codec.LZ4, lz4_of(records[:-1], b"\1\0\0\0\0", records[-1:])),
        ("lz4, an empty block at the end", Codec.LZ4, lz4_of(records, b"\0\0\0\x80", b"")),
        ("snappy, a header cut off", Codec.SNAPPY, snappy_of(records) + XERIAL[:9]),
        ("snappy, a later header of version 0", Codec.SNAPPY, snappy_of(records) + XERIAL[:8] + bytes(8)),
        ("snappy, a header of version 0", Codec.SNAPPY, XERIAL[:8] + bytes(8) + snappy_of(records)[16:]),
        ("zstd, another size than claimed", Codec.ZSTD, zstd_of(records, size) + zstd_of(b"", 5)),
    ]
    for name, codec, frame in shapes:
        data = GOOD[:HEADER] + frame
        yield name, changed(data, ("i", LENGTH, len(data) - 12), ("h", ATTRIBUTES, codec))


def lz4_of(content, mark, more):
    """A frame of uncompressed blocks, with `mark` between them."""
    header = b"\x04\x22\x4d\x18\x60\x40\x82"
    blocks = [struct.pack("<I", len(block) | 1 << 31) + block if block else b"" for block in (content, more)]
    return header + mark.join(blocks) + bytes(4)


def snappy_of(content):
    block = snappy.compress(content)
    return XERIAL + struct.pack(">i", len(block)) + block


def zstd_of(content, claimed):
    """A frame of one uncompressed block that claims a content size."""
    return b"\x28\xb5\x2f\xfd\x20" + bytes([claimed]) + (len(content) << 3 | 1).to_bytes(3, "little") + content


def damages():
    yield from lengths_and_checksums()
    yield from header_fields()
    yield from contents()
    yield from frames()
    for name, body in RECORDS.items():
        yield f"record: {name}", with_record(body)


def _damaged(side, version, **configs):
    """Every damage in turn, then what the log holds."""
    topic = side.create_topic(f"v{version}", **configs)
    with side.connect() as client:
        for name, records in damages():
            yield f"v{version} {name}", client.ask(produce_one(topic, records), version)
        yield f"v{version} stored", client.ask(fetch([(topic, [(0, 0)])], max_bytes=4 * MIB), 4)


@scenario
def damaged_batches(side):
    for version in (3, 9):
        yield from _damaged(side, version)


@scenario
def damaged_batches_for_a_compacted_topic(side):
    yield from _damaged(side, 9, cleanup_policy="compact")


@scenario
def damaged_batches_for_a_compressing_topic(side):
    yield from _damaged(side, 9, compression_type="gzip")


@scenario
def damaged_batches_for_log_append_time(side):
    yield from _damaged(side, 11, message_timestamp_type="LogAppendTime")
