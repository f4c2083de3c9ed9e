"""Codecs: round trips, agreement with other implementations, bounded memory, and garbage."""

import gzip
import struct
from contextlib import nullcontext

import aiokafka.codec
import kafka.codec
import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.wire.compression import (
    EMPTY_MAX,
    HELD_MAX_BYTES,
    SNAPPY_BLOCK_MAX_BYTES,
    BeyondLimits,
    Codec,
    CorruptRecords,
    open_small_stream,
    open_stream,
    opening,
)
from barnabas.wire.compressors import compress, open_compressor
from barnabas.wire.errors import ErrorCode
from tests.wire.bombs import XERIAL, empty_snappy_blocks, empty_zstd_blocks, memory_below, zstd_with_window

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"Even a friend, if he were here, could not help you. " * 400


def read_all(codec: int, data: bytes, piece: int = 1000, magic: int = 2) -> bytes:
    stream, pieces = open_stream(codec, memoryview(data), magic), []
    while chunk := stream.read(piece):
        assert len(chunk) <= piece
        pieces.append(chunk)
    assert stream.read(piece) == b""
    return b"".join(pieces)


def refusal(codec: int, data: bytes) -> ErrorCode:
    with pytest.raises(CorruptRecords) as raised:
        read_all(codec, data)
    return raised.value.code


def xerial(*blocks: bytes) -> bytes:
    compressed = [snappy.compress(block) for block in blocks]
    return XERIAL + b"".join(struct.pack(">i", len(block)) + block for block in compressed)


def lz4_frame(data: bytes, **options) -> bytes:
    return lz4.frame.compress(data, **{"block_linked": False, "store_size": False, **options})


def zstd_frame(claimed: int, blocks: list[bytes]) -> bytes:
    """A frame of uncompressed blocks that claims a content size."""
    kinds = [len(block) << 3 | (number == len(blocks)) for number, block in enumerate(blocks, 1)]
    body = b"".join(kind.to_bytes(3, "little") + block for kind, block in zip(kinds, blocks, strict=True))
    return b"\x28\xb5\x2f\xfd\x20" + bytes([claimed]) + body


@pytest.mark.parametrize("codec", list(Codec))
@settings(max_examples=25)
@given(data=st.binary(max_size=3000), repeat=st.integers(1, 60), piece=st.integers(1, 5000))
def test_what_is_compressed_is_read_back_in_pieces_of_any_size(codec, data, repeat, piece) -> None:
    assert read_all(codec, compress(codec, data * repeat), max(piece, len(data) * repeat // 50)) == data * repeat


@pytest.mark.parametrize("codec", list(Codec))
@settings(max_examples=20)
@given(pieces=st.lists(st.binary(max_size=50_000), max_size=5))
def test_a_compressor_gives_the_same_content_however_it_is_fed(codec, pieces) -> None:
    compressor = open_compressor(codec)
    data = b"".join(compressor.compress(piece) for piece in pieces) + compressor.flush()
    assert read_all(codec, data, 7000) == b"".join(pieces)


@pytest.mark.parametrize("codec", list(Codec))
def test_skipping_and_reading_alternate(codec) -> None:
    stream = open_stream(codec, memoryview(compress(codec, TEXT)))
    assert stream.skip(1000) == 1000
    assert stream.read(10) == TEXT[1000:1010]
    assert stream.skip(len(TEXT)) == len(TEXT) - 1010
    assert stream.read(1) == b""


@pytest.mark.parametrize("codec", COMPRESSING)
def test_kafka_python_and_aiokafka_read_what_we_write(codec) -> None:
    name = codec.name.lower()
    ours = compress(codec, TEXT)
    assert bytes(getattr(kafka.codec, f"{name}_decode")(ours)) == TEXT
    assert bytes(getattr(aiokafka.codec, f"{name}_decode")(ours)) == TEXT


@pytest.mark.parametrize("library", [kafka.codec, aiokafka.codec], ids=["kafka-python", "aiokafka"])
@pytest.mark.parametrize("codec", COMPRESSING)
def test_we_read_what_kafka_python_and_aiokafka_write(codec, library) -> None:
    assert read_all(codec, bytes(getattr(library, f"{codec.name.lower()}_encode")(TEXT))) == TEXT


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.GZIP, gzip.compress(TEXT[:99]) + gzip.compress(b"") + gzip.compress(TEXT[99:])),
        (Codec.GZIP, gzip.compress(TEXT) + b"no member, so it is ignored, however long"),
        (Codec.GZIP, gzip.compress(TEXT) + gzip.compress(b"")[:11]),
        (Codec.SNAPPY, snappy.compress(TEXT)),
        (Codec.SNAPPY, xerial(TEXT[:99], b"", TEXT[99:])),
        (Codec.SNAPPY, xerial(TEXT[:99]) + xerial(TEXT[99:])),
        (Codec.SNAPPY, XERIAL * 400 + xerial(TEXT)),
        (Codec.SNAPPY, xerial(TEXT) + b"\0\0"),
        (Codec.LZ4, lz4_frame(TEXT, block_checksum=True, content_checksum=True, store_size=True)),
        (Codec.LZ4, lz4_frame(TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
        (Codec.LZ4, lz4_frame(TEXT) + b"ignored"),
        (Codec.LZ4, lz4_frame(TEXT, content_checksum=True)[:-4] + b"no checksum"),
        (Codec.LZ4, lz4_frame(TEXT)[:-4] + b"\0\0\0\x80"),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
        (Codec.ZSTD, zstandard.compress(TEXT[:99]) + zstandard.compress(b"") + zstandard.compress(TEXT[99:])),
        (Codec.ZSTD, struct.pack("<II", 0x184D2A53, 3) + b"abc" + zstandard.compress(TEXT)),
    ],
)
def test_variants_that_java_reads_are_read(codec, data) -> None:
    assert read_all(codec, data) == TEXT


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.GZIP, b""),
        (Codec.GZIP, b"garbage garbage"),
        (Codec.GZIP, gzip.compress(TEXT)[:-1]),
        (Codec.GZIP, gzip.compress(TEXT)[:10] + b"\xff" * 30),
        (Codec.GZIP, gzip.compress(TEXT)[:-1] + b"\x55"),
        (Codec.GZIP, gzip.compress(TEXT) + gzip.compress(TEXT)[:-9]),
        (Codec.SNAPPY, b""),
        (Codec.SNAPPY, b"\xff" * 40),
        (Codec.SNAPPY, snappy.compress(TEXT)[:-1]),
        (Codec.SNAPPY, snappy.compress(TEXT) + b"aa"),
        (Codec.SNAPPY, XERIAL[:12]),
        (Codec.SNAPPY, XERIAL + b"\0\0\0\0" + xerial(TEXT)[16:]),
        (Codec.SNAPPY, xerial(TEXT)[:-1]),
        (Codec.SNAPPY, xerial(TEXT) + b"\0\0\0\x05"),
        *[(Codec.SNAPPY, xerial(TEXT) + XERIAL[:size]) for size in range(4, 16)],
        (Codec.SNAPPY, xerial(TEXT) + XERIAL[:8] + bytes(8) + xerial(TEXT)[16:]),
        (Codec.SNAPPY, xerial(TEXT) + XERIAL[:7] + b"\1" + XERIAL[8:]),
        (Codec.LZ4, b""),
        (Codec.LZ4, b"garbage garbage"),
        (Codec.LZ4, lz4_frame(TEXT)[:-1]),
        (Codec.LZ4, lz4_frame(TEXT)[:-30]),
        (Codec.LZ4, lz4_frame(TEXT)[:6] + b"\0" + lz4_frame(TEXT)[7:]),
        (Codec.LZ4, lz4_frame(TEXT * 20, block_linked=True)),
        (Codec.LZ4, lz4_frame(TEXT)[:7] + struct.pack("<I", 100_000) + bytes(100_004)),
        (Codec.ZSTD, b"garbage garbage"),
        (Codec.ZSTD, zstandard.compress(TEXT)[:-1]),
        (Codec.ZSTD, zstandard.compress(TEXT) + b"ab"),
        (Codec.ZSTD, struct.pack("<II", 0x184D2A50, 100) + b"abc"),
        (Codec.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)[:-1] + b"\x55"),
        (Codec.ZSTD, zstd_with_window(28, [b"small"])),
        (Codec.ZSTD, zstandard.compress(TEXT) + zstd_frame(claimed=200, blocks=[b""])),
        (Codec.ZSTD, zstd_frame(claimed=200, blocks=[b""]) + zstandard.compress(TEXT)),
        (Codec.ZSTD, zstd_frame(claimed=200, blocks=[b"some", b""])),
        (Codec.ZSTD, zstd_frame(claimed=0, blocks=[b"some", b""])),
        (5, b"no such codec"),
    ],
)
def test_garbage_is_an_unknown_server_error_as_from_kafka(codec, data) -> None:
    assert refusal(codec, data) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("end", [b"\0\0\0\x80", b"\1\0\0\0\0"], ids=["uncompressed", "compressed"])
def test_an_empty_block_ends_an_lz4_frame_as_in_javas_reader(end) -> None:
    whole = lz4_frame(TEXT)
    assert read_all(Codec.LZ4, whole[:-4] + end + whole[7:]) == TEXT


def test_a_zstd_frame_that_claims_its_content_size_may_end_with_an_empty_block() -> None:
    assert read_all(Codec.ZSTD, zstd_frame(claimed=4, blocks=[b"some", b""])) == b"some"


def test_the_largest_zstd_window_that_java_reads_is_read() -> None:
    assert read_all(Codec.ZSTD, zstd_with_window(27, [b"small"])) == b"small"


def test_an_empty_zstd_stream_is_empty() -> None:
    assert read_all(Codec.ZSTD, b"") == b""


@pytest.mark.parametrize("claim", [2**31 - 1, SNAPPY_BLOCK_MAX_BYTES + 1, 22 * 25])
def test_a_snappy_block_that_claims_too_much_is_refused_before_it_is_allocated(claim) -> None:
    encoded = bytes((claim >> shift & 127) | (128 if shift < 28 else 0) for shift in range(0, 35, 7))
    with memory_below(100_000), pytest.raises(CorruptRecords, match=f"claims to hold {claim}"):
        read_all(Codec.SNAPPY, encoded + bytes(15))


def test_a_snappy_block_is_decompressed_whole_up_to_32_mib():
    largest, larger = (snappy.compress(bytes(HELD_MAX_BYTES + more)) for more in (0, 1))
    assert open_stream(Codec.SNAPPY, memoryview(largest)).skip(HELD_MAX_BYTES + 1) == HELD_MAX_BYTES
    with memory_below(100_000), pytest.raises(BeyondLimits):
        open_stream(Codec.SNAPPY, memoryview(larger)).read(1)


@pytest.mark.parametrize(("log", "is_held"), [(21, False), (25, False), (26, True), (27, True)])
def test_what_fills_a_zstd_window_of_more_than_32_mib_is_limited(log, is_held):
    stream = open_stream(Codec.ZSTD, memoryview(zstd_with_window(log, [bytes(HELD_MAX_BYTES + 1)])))
    assert stream.skip(HELD_MAX_BYTES) == HELD_MAX_BYTES
    with pytest.raises(BeyondLimits) if is_held else nullcontext():
        assert stream.read(10) == b"\0"


MUCH = bytes(9 << 20)


@pytest.mark.parametrize(
    ("codec", "data", "held_bytes"),
    [
        (Codec.GZIP, gzip.compress(MUCH), 0),
        (Codec.SNAPPY, xerial(bytes(32 << 10)) + xerial(bytes(1 << 20))[16:], 1 << 20),
        (Codec.SNAPPY, xerial(*[bytes(32 << 10)] * 40), 0),
        (Codec.SNAPPY, snappy.compress(MUCH), len(MUCH)),
        (Codec.LZ4, lz4_frame(MUCH), 0),
        (Codec.LZ4, lz4_frame(MUCH, block_size=lz4.frame.BLOCKSIZE_MAX4MB), 8 << 20),
        (Codec.ZSTD, compress(Codec.ZSTD, MUCH), 2 << 20),
        (Codec.ZSTD, zstandard.compress(MUCH[:99]) + zstd_with_window(23, [MUCH]), 8 << 20),
        (Codec.ZSTD, zstd_with_window(27, [MUCH]), HELD_MAX_BYTES),
        (Codec.ZSTD, zstandard.ZstdCompressor().compress(bytes(600_000)), 600_000),  # without a window: its content
    ],
)
def test_held_bytes_are_what_a_stream_may_come_to_hold(codec, data, held_bytes):
    assert open_stream(codec, memoryview(data)).held_bytes == held_bytes


LAST_BLOCK = b"\1\0\0"
MANY_PARTS = {
    "zstd blocks": (Codec.ZSTD, empty_zstd_blocks(10_000)),
    "zstd blocks of a repeated byte": (
        Codec.ZSTD,
        b"\x28\xb5\x2f\xfd\x00\x50" + b"\x0a\0\0x" * 8000 + LAST_BLOCK,
    ),
    "zstd frames": (Codec.ZSTD, (b"\x28\xb5\x2f\xfd\x20\x00" + LAST_BLOCK) * 3600),
    "zstd skippable frames": (Codec.ZSTD, struct.pack("<II", 0x184D2A50, 0) * 4000),
    "snappy blocks": (Codec.SNAPPY, XERIAL + b"\0\0\0\3\1\0x" * 4600),
    "zstd frames that are checked": (Codec.ZSTD, b"\x28\xb5\x2f\xfd\x20\x01\x08\0\0x\1\0\0" * 2400),
    "lz4 blocks": (Codec.LZ4, lz4_frame(b"x")[:-4] + b"\1\0\0\x80x" * 6500 + bytes(4)),
    "snappy headers": (Codec.SNAPPY, (XERIAL + b"\0\0\0\3\1\0x") + (XERIAL * 100 + b"\0\0\0\3\1\0x") * 20),
}


@pytest.mark.parametrize("kind", MANY_PARTS)
def test_many_small_parts_are_looked_at_in_steps(kind):
    codec, data = MANY_PARTS[kind]
    assert len(data) < 1 << 15
    assert len(list(opening(codec, memoryview(data)))) >= 4
    assert open_small_stream(codec, memoryview(data)) is None
    read_all(codec, data)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.GZIP, gzip.compress(b"") * 2 * EMPTY_MAX),
        (Codec.SNAPPY, empty_snappy_blocks(2 * EMPTY_MAX)),
        (Codec.SNAPPY, XERIAL * 2 * EMPTY_MAX + xerial(TEXT)),
    ],
    ids=["gzip", "snappy", "snappy headers"],
)
def test_what_decompresses_to_nothing_again_and_again_is_refused(codec, data):
    assert refusal(codec, data) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_bomb_is_read_in_little_memory(codec) -> None:
    bomb = memoryview(compress(codec, bytes(30_000_000)))
    with memory_below(500_000):
        assert open_stream(codec, bomb).skip(40_000_000) == 30_000_000


@pytest.mark.parametrize("codec", COMPRESSING)
@settings(max_examples=100)
@given(data=st.data())
def test_a_damaged_stream_raises_nothing_but_corrupt_records(codec, data) -> None:
    damaged = bytearray(compress(codec, TEXT[: data.draw(st.integers(0, 300))]))
    for _ in range(data.draw(st.integers(0, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        assert len(read_all(codec, bytes(damaged))) <= 1 << 20
    except CorruptRecords as error:
        assert error.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_lz4_of_message_format_0_has_another_header_checksum() -> None:
    frame = bytearray(lz4_frame(TEXT, store_size=True))
    frame[14] ^= 0x5A
    assert refusal(Codec.LZ4, bytes(frame)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert read_all(Codec.LZ4, bytes(frame), magic=0) == TEXT


def test_lz4_of_message_format_0_is_refused_when_no_checksum_makes_it_right() -> None:
    for data in (b"", b"garbage garbage garbage"):
        with pytest.raises(CorruptRecords):
            open_stream(Codec.LZ4, memoryview(data), magic=0)


def test_levels_are_those_of_kafka_where_nine_is_the_fast_lz4_compressor() -> None:
    data = b"".join(b"%d " % (number * number) for number in range(5000))
    assert compress(Codec.LZ4, data) == compress(Codec.LZ4, data, 9) != compress(Codec.LZ4, data, 8)
    assert len(compress(Codec.GZIP, data, 1)) > len(compress(Codec.GZIP, data)) == len(compress(Codec.GZIP, data, 6))
    assert compress(Codec.ZSTD, data) == compress(Codec.ZSTD, data, 3) != compress(Codec.ZSTD, data, 19)
