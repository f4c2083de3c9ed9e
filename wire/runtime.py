"""The runtime of generated code: base classes, checks, varints; and `decode` and `encode`, which call that code.

The functions that `codegen` writes call those in the middle of this file. `decode`, `encode` and their variants at its
end find the generated function for a class and a version, call it, and add the name of the message to its errors.
"""

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import cache
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar, dataclass_transform

from barnabas.wire.errors import ProtocolViolation
from barnabas.wire.schema import Schema

# A payload of at least this many bytes stays a piece of its own: to copy it would cost more than to send another piece.
APART_BYTES = 16 * 1024
STRING_BYTES_MAX = 0x7FFF

# The memory of decoded objects, about: measured with CPython 3.11 on 64 bits, headers for the garbage collector
# included.
STRUCT_BYTES, SLOT_BYTES, LIST_BYTES, INT_BYTES = 32, 9, 72, 32
VALUE_BYTES = {"bool": 0, "int8": 0, "uuid": 56, "string": 56, "bytes": 40, "records": 192}
CHARACTER_BYTES = 4  # at most: CPython stores all characters of a string in the width of the widest one
TAG_BYTES = 32  # an unknown tagged field makes no object, but takes as much time as this
SMALL_INTS = range(-5, 257)  # CPython has one object for each of them

# A step of decoding or encoding takes about a millisecond at most, in the worst mixture.
STEP_BYTES = 1 << 16
INTS_AT_A_TIME = 1024
STEP_ROWS = 500  # elements of arrays that are encoded
ROW_BYTES_SHIFT = 10  # a KiB of a string takes the time of an element
TAGS_MAX = 100  # of one struct; Kafka's structs have at most five

_BYTES_LIKE = (bytes, bytearray, memoryview)  # a tuple: `isinstance` takes three times as long with a union


class Malformed(Exception):
    """The reason why a buffer is no message; `decode` adds the name of the message and raises ProtocolViolation."""


@dataclass_transform(kw_only_default=True, eq_default=False)
class Struct:
    """Base of all generated classes: compared by value, printed by field."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]  # mutable, and mypy takes object's __hash__ for a promise
    FIELDS: ClassVar[tuple[str, ...]] = ()
    ARRAYS: ClassVar[tuple[str, ...]] = ()  # the fields that are arrays

    def __eq__(self, other: object) -> bool:
        # The field tuples are compared instead of the classes: a shared default has a class of its
        # own (`shared_default`).
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
    """The default of a struct field, shared by all instances; an assignment to one of its fields raises."""
    shared = cls()
    guarded = type(cls.__name__, (cls,), {"__slots__": (), "__setattr__": _refuse_change})
    guarded.__qualname__ = cls.__qualname__
    # The class is exchanged after the creation, because `__init__` has to assign the fields.
    shared.__class__ = guarded
    return shared


def _refuse_change(self: Struct, name: str, value: object) -> NoReturn:
    raise AttributeError(f"this {type(self).__name__} is the default that all share: assign a new one instead")


# --- Called by generated code -----------------------------------------------------------------------------------------


def more(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte has the top bit set: (value, position behind it)."""
    value = first & 127
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        # Five bytes hold 32 bits. Without the limit a frame full of 0xff would build a number of its own size.
        if shift > 28:
            raise Malformed("a varint is longer than five bytes")
    # Java reads it into an int, where it would be negative.
    if value > 0x7FFFFFFF:
        raise Malformed("a varint is larger than an int32")
    return value, position


def more_of_string(buffer: bytes | memoryview, position: int, first: int) -> tuple[int, int]:
    """`more` for the compact length of a string, which is the size + 1."""
    value, position = more(buffer, position, first)
    # Kafka refuses strings longer than an int16 can count, in flexible versions as well.
    if value - 1 > STRING_BYTES_MAX:
        raise Malformed(f"a string of {value - 1} bytes is longer than {STRING_BYTES_MAX}")
    return value, position


def tag_start(buffer: bytes | memoryview, position: int, end: int) -> tuple[int, int, int]:
    """The head of a tagged field: (tag, end of its value, begin of its value)."""
    tag = buffer[position]
    size = 0
    position += 1
    if tag > 127:
        tag, position = more(buffer, position, tag)
    size = buffer[position]
    position += 1
    if size > 127:
        size, position = more(buffer, position, size)
    # The caller continues at the end of the value, and need not read the value itself.
    if size > end - position:
        raise Malformed(f"tag {tag} claims {size} bytes, {end - position} are left")
    return tag, position + size, position


def skip_tags(buffer: bytes | memoryview, position: int, end: int, count: int) -> int:
    """The position behind `count` tagged fields, for a struct without any in its table."""
    if count > 127:
        count, position = more(buffer, position, count)
    # The number is limited, because each tagged field costs a call, but takes as few as two bytes of the buffer.
    if count > TAGS_MAX:
        crowd("tagged fields", count, end - position)
    for _ in range(count):
        _, position, _ = tag_start(buffer, position, end)
    return position


def ints_bytes(values: tuple[int, ...]) -> int:
    """The memory that these integers take in a list."""
    # The extremes decide for all: exact counting would cost more than the decoding.
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
    """An unsigned varint: seven bits a byte, the lowest first, the top bit set on all bytes but the last."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _Varints(dict[int, bytes]):
    """Value -> encoded varint. The values below 1024 are in the dictionary, the others are computed."""

    def __missing__(self, value: int) -> bytes:
        # The result is not kept: lengths come from clients, and there are 2^31 of them.
        return varint(value)


class _Many(dict[int, Callable[..., Any]]):
    """Count -> bound method of the `Struct` for so many integers."""

    def __init__(self, letter: str, method: str) -> None:
        super().__init__()
        self._letter = letter
        self._method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(struct.Struct(f">{count}{self._letter}"), self._method)
        # A client chooses the count, so only the small ones are kept.
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
    """The size of a records value: bytes, or an object with `size_bytes`."""
    if isinstance(payload, _BYTES_LIKE):
        return len(payload)
    size: int = payload.size_bytes
    return size


def add_records(parts: list[Any], marks: list[int], payload: Any) -> None:
    """Append a payload, and mark its place if it has to stay a piece of its own."""
    # A slice of a file is sent from the file; a large payload is not copied.
    if not isinstance(payload, _BYTES_LIKE) or len(payload) >= APART_BYTES:
        marks.append(len(parts))
    parts.append(payload)


def tag_section(tagged: list[tuple[int, list[bytes]]]) -> bytes:
    """The section of these tagged fields, which are ordered by tag."""
    section = [VARINTS[len(tagged)]]
    for tag, parts in tagged:
        value = b"".join(parts)
        section += (VARINTS[tag], VARINTS[len(value)], value)
    return b"".join(section)


# --- Decode and encode ------------------------------------------------------------------------------------------------

Buffer = bytes | bytearray | memoryview


class Payload(Protocol):
    """The value of a `records` field that is not in memory: a slice of a file."""

    @property
    def size_bytes(self) -> int: ...


Records = Buffer | Payload
M = TypeVar("M", bound=Message)


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> M:
    """The message at this position. Bytes that follow it are ignored. ProtocolViolation if it is malformed."""
    # librdkafka sends a few bytes after the body of a Metadata request.
    return decode_from(cls, version, buffer, position)[0]


def decode_from(cls: type[M], version: int, buffer: Buffer, position: int) -> tuple[M, int]:
    """The message at this position, and the position behind it. ProtocolViolation if it is malformed."""
    try:
        decoded: tuple[M, int] = cls.DECODERS[version](buffer, position)
        return decoded
    except (struct.error, IndexError, Malformed) as error:
        raise _violation(cls, version, buffer, error) from None


def decode_steps(message: Message, version: int, buffer: Buffer, position: int) -> Generator[int, None, int]:
    """Fill the message from a buffer in bounded steps; returns the memory that it takes, in bytes.

    Yields the memory that it takes so far, after each step. After an error, or if the generator is closed, the message
    holds the fields decoded so far. ProtocolViolation if it is malformed.
    """
    cls = type(message)
    try:
        taken_bytes: int = yield from cls.DECODE_STEPS[version](message, buffer, position)
        return taken_bytes
    except (struct.error, IndexError, Malformed) as error:
        raise _violation(cls, version, buffer, error) from None


def _violation(cls: type[Message], version: int, buffer: Buffer, error: Exception) -> ProtocolViolation:
    # `struct.error` and IndexError have only one cause, since lengths and counts are checked: the buffer ends too
    # early.
    why = str(error) if isinstance(error, Malformed) else f"{len(buffer)} bytes end within the message"
    return ProtocolViolation(f"{cls.__name__} v{version}: {why}")


def encode(message: Message, version: int) -> bytes:
    """The message as bytes.

    ValueError if a value does not fit its field, or if the version lacks a field that is neither ignorable nor at its
    default. TypeError if a records value is not in memory.
    """
    parts: list[Any] = []
    _fill(message, version, parts, [])
    return b"".join(parts)


def encode_into(message: Message, version: int, out: list[Any]) -> int:
    """Append the message to `out` in pieces; returns their size in bytes. Errors: those of `encode`.

    All is joined except `records` that are large or not in memory: each of them stays a piece, as the same object.
    """
    parts: list[Any] = []
    marks: list[int] = []
    _fill(message, version, parts, marks)
    return _take(parts, marks, out)


def encode_steps(message: Message, version: int, out: list[Any]) -> int | Generator[int, None, int]:
    """`encode_into` in bounded steps. The first step runs at once: if it was the only one, the size is returned, else a
    generator for the others, which returns the size. Each step appends its pieces to `out`, and yields their size so
    far."""
    parts: list[Any] = []
    marks: list[int] = []
    steps = message.ENCODE_STEPS[version](message, parts, marks)
    # One step is enough for nearly all messages: then the loop body never runs, and no generator is
    # needed.
    try:
        for _ in steps:
            return _encode_on(message, version, out, parts, marks, steps)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None
    return _take(parts, marks, out)


def _encode_on(
    message: Message, version: int, out: list[Any], parts: list[Any], marks: list[int], steps: Iterator[None]
) -> Generator[int, None, int]:
    size_bytes = 0
    try:
        # The pieces are joined before each pause, because thousands of small ones take more memory
        # than their bytes.
        while True:
            size_bytes += _take(parts, marks, out)
            parts.clear()
            marks.clear()
            yield size_bytes
            next(steps)
    except StopIteration:
        return size_bytes + _take(parts, marks, out)
    except struct.error as error:
        raise ValueError(f"{type(message).__name__} v{version}: {error}") from None


def _take(parts: list[Any], marks: list[int], out: list[Any]) -> int:
    """Append these parts to `out`, joined except those at the marks; returns their size in bytes."""
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
