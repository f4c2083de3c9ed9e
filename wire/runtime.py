"""What generated code stands on: base classes, checks, varints, and the four verbs `decode` and `encode`.

Nothing here knows a message. The functions that `codegen` writes call the ones in the middle of this file; the verbs at
its end find the generated function for a class and version, run it, and say in their error which message it was.

A decoder trusts nothing, but it does not test everything either: lengths and counts are compared with the bytes left
before anything is allocated, and what a buffer that merely ends too early makes `struct` or an index raise is turned
into `ProtocolViolation` here, once.
"""

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar

from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.schema import Schema

# A payload of at least this many bytes is not joined with what surrounds it: copying would cost more than a piece does.
APART_BYTES = 16 * 1024
STRING_BYTES_MAX = 0x7FFF

# What decoded objects take in memory, about: measured with CPython 3.11 on 64 bits, the collector's heads included.
STRUCT_BYTES, SLOT_BYTES, LIST_BYTES, INT_BYTES = 32, 9, 72, 32
VALUE_BYTES = {"bool": 0, "int8": 0, "uuid": 56, "string": 56, "bytes": 40, "records": 192}
CHARACTER_BYTES = 4  # at most: one character beyond the others' width widens them all
TAG_BYTES = 32  # an unknown tagged field leaves nothing, but takes as long as this
SMALL_INTS = range(-5, 257)  # which exist once

# A step of decoding or encoding takes about a millisecond at most, in the worst mixture.
STEP_BYTES = 1 << 16
INTS_AT_A_TIME = 1024
STEP_ROWS = 500
TAGS_MAX = 100  # of one struct; Kafka knows five at most

_BYTES_LIKE = (bytes, bytearray, memoryview)  # a tuple: `isinstance` takes three times as long with a union


class Malformed(Exception):
    """Why a buffer is not a message; `decode` adds which message and raises ProtocolViolation."""


class Struct:
    """Base of all generated classes: compared by value, printed by field."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # mutable, and mypy takes object's __hash__ for a promise
    FIELDS: ClassVar[tuple[str, ...]] = ()
    ARRAYS: ClassVar[tuple[str, ...]] = ()  # those that are arrays

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.FIELDS is not self.FIELDS:
            return NotImplemented
        return all(_same(getattr(self, name), getattr(other, name)) for name in self.FIELDS)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={_brief(getattr(self, name))}" for name in self.FIELDS)
        return f"{type(self).__qualname__}({fields})"


class Message(Struct):
    """Base of the generated messages; the versions are those of the schema."""

    __slots__ = ()
    API_KEY: ClassVar[int | None]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int | None]
    SCHEMA: ClassVar[Schema]
    DECODERS: ClassVar[Mapping[int, Callable[..., Any]]]
    ENCODERS: ClassVar[Mapping[int, Callable[..., Any]]]
    DECODE_STEPS: ClassVar[Mapping[int, Callable[..., Any]]]
    ENCODE_STEPS: ClassVar[Mapping[int, Callable[..., Any]]]


def _same(one: Any, other: Any) -> bool:
    """Equality of field values, in which a tuple equals a list of the same elements."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


def _brief(value: Any) -> str:
    return f"<{len(value)} bytes>" if isinstance(value, memoryview) or _is_long(value) else repr(value)


def _is_long(value: Any) -> bool:
    return isinstance(value, bytes | bytearray) and len(value) > 64


def shared_default(cls: type[Struct]) -> Struct:
    """The value that every instance without a struct of its own refers to; changing it in place raises."""
    shared = cls()
    guarded = type(cls.__name__, (cls,), {"__slots__": (), "__setattr__": _refuse_change})
    guarded.__qualname__ = cls.__qualname__
    shared.__class__ = guarded
    return shared


def _refuse_change(self: Struct, name: str, value: object) -> NoReturn:
    raise AttributeError(f"this {type(self).__name__} is the default that all share: assign a new one instead")


# --- What generated code calls ----------------------------------------------------------------------------------------


def more(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte announced more: (value, position behind it)."""
    value, shift = first & 127, 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise Malformed("a varint is longer than five bytes")
    if value > 0x7FFFFFFF:
        raise Malformed("a varint is larger than an int32")
    return value, position


def more_of_string(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """The same for the length of a string, which is one less: Kafka takes none that an int16 could not tell."""
    value, position = more(buffer, position, first)
    if value - 1 > STRING_BYTES_MAX:
        raise Malformed(f"a string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
    return value, position


def tag_start(buffer: bytes | memoryview, position: int, end: int) -> tuple[int, int, int]:
    """The head of a tagged field: (tag, where its value ends, where it begins)."""
    tag, size = buffer[position], 0
    position += 1
    if tag > 127:
        tag, position = more(buffer, position, tag)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = more(buffer, position, size)
    if size > end - position:
        raise Malformed(f"tag {tag} claims {size} bytes, {end - position} are left")
    return tag, position + size, position


def skip_tags(buffer: bytes | memoryview, position: int, end: int, count: int) -> int:
    """The position behind `count` tagged fields, none of which this schema knows."""
    if count > 127:
        count, position = more(buffer, position, count)
    if count > TAGS_MAX:
        crowd("tagged fields", count, end - position)
    for _ in range(count):
        _, position, _ = tag_start(buffer, position, end)
    return position


def ints_bytes(values: tuple[int, ...]) -> int:
    """What these integers take in a list."""
    is_small = min(values) in SMALL_INTS and max(values) in SMALL_INTS
    return len(values) * (SLOT_BYTES if is_small else SLOT_BYTES + INT_BYTES)


def short(field: str, size: int, left: int) -> NoReturn:
    if size == -1:
        raise Malformed(f"{field} must not be null")
    raise Malformed(f"{field} claims {size} bytes, {left} are left")


def crowd(field: str, count: int, left: int) -> NoReturn:
    if count == -1:
        raise Malformed(f"{field} must not be null")
    raise Malformed(f"{field} claims {count} elements in the {left} bytes that are left")


def misfit(field: str) -> NoReturn:
    raise Malformed(f"tagged field {field} does not end where its size says")


def outside(message: str, field: str) -> NoReturn:
    raise ValueError(f"{message} has no field {field}, whose value would be lost")


def null(message: str, field: str) -> NoReturn:
    raise ValueError(f"{message}: {field} must not be null")


def wrong_id(message: str, field: str) -> NoReturn:
    raise ValueError(f"{message}: {field} must be 16 bytes")


def varint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, lowest first, the top bit set on all but the last."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _Varints(dict[int, bytes]):
    """Encoded varints by value: the usual lengths from the table, others computed."""

    def __missing__(self, value: int) -> bytes:
        return varint(value)


class _Many(dict[int, Callable[..., Any]]):
    """Count -> bound method of the `Struct` for so many integers; only small ones are kept."""

    def __init__(self, letter: str, method: str) -> None:
        super().__init__()
        self._letter = letter
        self._method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(struct.Struct(f">{count}{self._letter}"), self._method)
        if count <= 64:
            self[count] = function
        return function


@cache
def many(letter: str, method: str) -> _Many:
    return _Many(letter, method)


@cache
def layout(letters: str) -> struct.Struct:
    return struct.Struct(">" + letters)


VARINTS = _Varints((value, varint(value)) for value in range(1024))


def size_of(payload: Any) -> int:
    """The bytes of a records value: bytes-like, or an object that knows its size."""
    if isinstance(payload, _BYTES_LIKE):
        return len(payload)
    size: int = payload.size_bytes
    return size


def add_records(parts: list[Any], marks: list[int], payload: Any) -> None:
    """Append a payload, and mark its place when it is to stay a piece of its own."""
    if not isinstance(payload, _BYTES_LIKE) or len(payload) >= APART_BYTES:
        marks.append(len(parts))
    parts.append(payload)


def tag_section(tagged: list[tuple[int, list[bytes]]]) -> bytes:
    """The tagged fields that are not default, ascending, each with its size."""
    section = [VARINTS[len(tagged)]]
    for tag, parts in tagged:
        value = b"".join(parts)
        section += (VARINTS[tag], VARINTS[len(value)], value)
    return b"".join(section)


# --- The verbs --------------------------------------------------------------------------------------------------------

Buffer = bytes | bytearray | memoryview


class Payload(Protocol):
    """The value of a `records` field that is not in memory: a slice of a file, sent from there."""

    @property
    def size_bytes(self) -> int: ...


Records = Buffer | Payload
M = TypeVar("M", bound=Message)


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """The message at this position; what follows it is ignored, unknown tagged fields are skipped."""
    return decode_from(cls, version, buffer, position)[0]


def decode_from(cls: type[M], version: int, buffer: Buffer, position: int) -> tuple[M, int]:
    """The message at this position and the position behind it; ProtocolViolation when the bytes are not one."""
    try:
        decoded: tuple[M, int] = cls.DECODERS[version](buffer, position)
        return decoded
    except (struct.error, IndexError, Malformed) as error:
        raise _violation(cls, version, buffer, error) from None


def decode_steps(message: Message, version: int, buffer: Buffer, position: int) -> Generator[int, None, int]:
    """Fill the message in bounded steps, from a buffer of unknown content: returns what it takes in memory.

    Yields what it takes so far, after each step. Where the steps end early, the message holds what was decoded so far.
    """
    cls = type(message)
    try:
        taken_bytes: int = yield from cls.DECODE_STEPS[version](message, buffer, position)
        return taken_bytes
    except (struct.error, IndexError, Malformed) as error:
        raise _violation(cls, version, buffer, error) from None


def _violation(cls: type[Message], version: int, buffer: Buffer, error: Exception) -> ProtocolViolation:
    why = str(error) if isinstance(error, Malformed) else f"{len(buffer)} bytes end within the message"
    return ProtocolViolation(f"{cls.__name__} v{version}: {why}")


def encode(message: Message, version: int) -> bytes:
    """The message as bytes. TypeError when a records value is not in memory.

    ValueError when a value does not fit its field, or when the version lacks a field that is neither ignorable nor at
    its default.
    """
    parts: list[Any] = []
    _fill(message, version, parts, [])
    return b"".join(parts)


def encode_into(message: Message, version: int, out: list[Any]) -> int:
    """Append the message in as few pieces as make sense, and return their size in bytes.

    Everything is joined except `records` that are large or not in memory: each stays a piece, the very object.
    """
    parts: list[Any] = []
    marks: list[int] = []
    _fill(message, version, parts, marks)
    return _take(parts, marks, out)


def encode_steps(message: Message, version: int, out: list[Any]) -> int | Generator[None, None, int]:
    """The same in bounded steps: the size where the first, which is done at once, was all; else the other steps.

    Each appends what it has encoded.
    """
    parts: list[Any] = []
    marks: list[int] = []
    steps = message.ENCODE_STEPS[version](message, parts, marks)
    try:
        for _ in steps:
            return _encode_on(message, version, out, parts, marks, steps)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None
    return _take(parts, marks, out)


def _encode_on(
    message: Message, version: int, out: list[Any], parts: list[Any], marks: list[int], steps: Iterator[None]
) -> Generator[None, None, int]:
    size_bytes = 0
    try:
        while True:
            size_bytes += _take(parts, marks, out)
            parts.clear()
            marks.clear()
            yield
            next(steps)
    except StopIteration:
        return size_bytes + _take(parts, marks, out)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None


def _take(parts: list[Any], marks: list[int], out: list[Any]) -> int:
    """Append these parts to `out`, joined but for those at the marks; their size in bytes."""
    if not marks:
        whole = b"".join(parts)
        if whole:
            out.append(whole)
        return len(whole)
    size_bytes = start = 0
    for mark in marks:
        head = b"".join(parts[start:mark])
        out += (head, parts[mark])
        size_bytes += len(head) + size_of(parts[mark])
        start = mark + 1
    tail = b"".join(parts[start:])
    if tail:
        out.append(tail)
    return size_bytes + len(tail)


def _fill(message: Message, version: int, parts: list[Any], marks: list[int]) -> None:
    try:
        message.ENCODERS[version](message, parts, marks)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None
