"""Frames of each codec that were changed at random: what is read of them here and by Kafka's own readers.

A frame that is read here and not by Kafka would be acknowledged, and no Java consumer would get past it. `REFUSED_HERE`
is all that the other direction allows.
"""

import gzip
import random
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator

import lz4.frame
import pytest
import snappy
import zstandard

from barnabas.wire.compression import Codec, CorruptRecords, open_stream
from compat_tests.kafka import JAVA_DIR, java_command
from tests.wire.bombs import XERIAL

FRAMES = 10_000  # of each codec
REFUSED = "refused"
EMPTY_ZSTD_FRAMES = (b"\x28\xb5\x2f\xfd\x20\0\1\0\0", b"\x28\xb5\x2f\xfd\x50\x2a\x4d\x18\0\0\0\1\0\0")

# Beginnings of our messages for frames that Kafka reads: `wire/compression.py` lists the kinds.
REFUSED_HERE = {
    Codec.GZIP: tuple(f"gzip: {reason}" for reason in ("Error -3", "the stream is truncated")),
    Codec.SNAPPY: ("snappy: the header of a later stream is damaged",),
    Codec.LZ4: (),
    Codec.ZSTD: ("zstd: the stream is truncated", "zstd: the frame header is missing"),
}


class Frames:
    """Frames as writers make them, and what is done to them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def drawn(self, codec: Codec) -> bytes:
        frame = bytearray(WRITERS[codec](self))
        for _ in range(self._chance.choice((0, 1, 1, 1, 2, 3))):
            frame = self._changed(frame)
        return bytes(frame)

    def gzip(self) -> bytes:
        return b"".join(gzip.compress(content, mtime=0) for content in self._contents())

    def snappy(self) -> bytes:
        if self._happens(0.3):
            return snappy.compress(self._content())
        blocks = [snappy.compress(content) for content in self._contents()]
        streams = [struct.pack(">i", len(block)) + block for block in blocks]
        return XERIAL + (XERIAL if self._happens(0.1) else b"").join(streams)

    def lz4(self) -> bytes:
        names = ("store_size", "content_checksum", "block_checksum")
        options = {name: self._happens(0.3) for name in names}
        return lz4.frame.compress(self._content(), block_linked=False, **options)

    def zstd(self) -> bytes:
        checksum, size = self._happens(0.4), self._happens(0.6)
        compressor = zstandard.ZstdCompressor(write_checksum=checksum, write_content_size=size)
        return b"".join(compressor.compress(content) for content in self._contents())

    def _contents(self) -> list[bytes]:
        return [self._content() for _ in range(self._chance.randint(1, 2))]

    def _content(self) -> bytes:
        size = self._chance.choice((0, 1, 20, 200, 3000))
        if self._happens(0.3):
            return self._chance.randbytes(size)
        words = [self._chance.randbytes(self._chance.randint(1, 9)) for _ in range(5)]
        return b"".join(self._chance.choices(words, k=size))[:size]

    def _changed(self, frame: bytearray) -> bytearray:
        # Heads and ends are where the structure is.
        at = self._chance.choice((self._chance.randint(0, 24), len(frame) - self._chance.randint(0, 16)))
        at = max(0, min(at, len(frame))) if self._happens(0.8) else self._chance.randint(0, len(frame))
        piece = self._piece(frame)
        match self._chance.randrange(5):
            case 0 if at < len(frame):
                frame[at] ^= 1 << self._chance.randrange(8)
            case 1:
                del frame[at : at + self._chance.choice((1, 2, 4, 8, len(frame)))]
            case 2:
                frame[at : at + len(piece)] = piece
            case 3:
                frame += piece
            case _:
                frame[at:at] = piece
        return frame

    def _piece(self, frame: bytearray) -> bytes:
        word = self._chance.choice((0, 1, 0x80000000, 0x80000001, 0x7FFFFFFF, 0xFFFFFFFF, len(frame)))
        return self._chance.choice(
            (
                b"\0",
                b"\xff",
                struct.pack("<I", word),
                struct.pack(">I", word),
                bytes(30),
                XERIAL[: self._chance.randint(1, 16)],
                XERIAL,
                b"\1\0\0\0\0",  # a block of lz4 that decompresses to nothing
                b"\x1f\x8b\x08" + bytes(30),
                b"\x51\x2a\x4d\x18\1\0\0\0x",  # a skippable frame of zstd
                *EMPTY_ZSTD_FRAMES,
                bytes(frame[: self._chance.randint(1, 20)]),
                self._chance.randbytes(3),
            )
        )

    def _happens(self, probability: float) -> bool:
        return self._chance.random() < probability


WRITERS: dict[Codec, Callable[[Frames], bytes]] = {
    Codec.GZIP: Frames.gzip,
    Codec.SNAPPY: Frames.snappy,
    Codec.LZ4: Frames.lz4,
    Codec.ZSTD: Frames.zstd,
}


def read_by_kafka(codec: Codec, frames: list[bytes]) -> list[str]:
    given = b"".join(struct.pack(">bi", codec, len(frame)) + frame for frame in frames)
    command = java_command(str(JAVA_DIR / "Decode.java"))
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()


def read_here(codec: Codec, frame: bytes) -> tuple[str, str]:
    """Size and checksum as `Decode.java` prints them, or REFUSED with the reason."""
    size_bytes = checksum = 0
    try:
        for chunk in chunks(codec, frame):
            checksum = zlib.crc32(chunk, checksum)
            size_bytes += len(chunk)
    except CorruptRecords as corrupt:
        return REFUSED, str(corrupt)
    return f"{size_bytes} {checksum}", ""


def chunks(codec: Codec, frame: bytes) -> Iterator[bytes]:
    stream = open_stream(codec, memoryview(frame))
    while chunk := stream.read(4096):
        yield chunk


@pytest.mark.thorough
@pytest.mark.long
@pytest.mark.parametrize("codec", list(WRITERS))
def test_changed_frames_are_read_as_kafkas_own_readers_do(codec) -> None:
    drawing = Frames(seed=codec)
    frames = [drawing.drawn(codec) for _ in range(FRAMES)]
    theirs = read_by_kafka(codec, frames)
    differences, whole = [], 0
    for frame, expected in zip(frames, theirs, strict=True):
        result, reason = read_here(codec, frame)
        whole += result != REFUSED
        if result != expected and not (result == REFUSED and reason.startswith(REFUSED_HERE[codec])):
            differences.append((frame[:60].hex(), len(frame), expected, result, reason))
    assert not differences, f"{len(differences)} of them: {differences[:5]}"
    assert FRAMES / 10 < whole < FRAMES * 9 / 10, "most frames are alike"
