"""Messages without what is long or secret, as the request log shows them (pure).

In place of records, of other long bytes and of secrets they have sizes, and of many rows the first.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.record_batch import BATCH_OVERHEAD_BYTES, BatchHeader, read_batch_header, read_kind
from barnabas.wire.schema import Field, Schema

BLOB_BYTES_MAX = 1024  # of a value that is shown
ROWS_MAX = 1000  # of one message
ROW_BYTES = 300
BATCH_MAGIC = 2
SECRETS = {"auth_bytes", "salted_password", "salt", "hmac"}


class Left(NamedTuple):
    """Stands in a kept message for bytes that were left out."""

    size_bytes: int
    head: bytes = b""  # of records: the header of the first batch

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        return f"<{self.size_bytes} bytes>"

    @property
    def batch(self) -> BatchHeader | None:
        """The header of the first batch of records, if it is of format 2."""
        if len(self.head) < BATCH_OVERHEAD_BYTES or read_kind(self.head)[1] != BATCH_MAGIC:
            return None
        return read_batch_header(self.head)


def without_records(message: m.Message) -> m.Message:
    """A copy, which shares no bytes that may change."""
    copied = _Copying().of(message, _plan_of(message.SCHEMA.name))
    assert isinstance(copied, m.Message)
    return copied


class _Plan(NamedTuple):
    """How a struct is copied: which fields as they are, and which with care."""

    cls: type[m.Struct]
    plain: tuple[str, ...]
    blobs: tuple[str, ...]
    lists: tuple[str, ...]
    structs: "tuple[tuple[str, _Plan], ...]"


@cache
def _plan_of(name: str) -> _Plan:
    message = m.message_class(name)
    return _plan(message, message, message.SCHEMA, message.SCHEMA.fields)


def _plan(cls: type[m.Struct], message: type[m.Message], schema: Schema, fields: Iterable[Field]) -> _Plan:
    plain = []
    blobs = []
    lists = []
    structs = []
    for field in fields:
        if field.is_struct and field.is_array:
            inner: type[m.Struct] = getattr(message, field.element)
            structs.append((field.name, _plan(inner, message, schema, schema.fields_of(field))))
        elif field.is_array:
            lists.append(field.name)
        elif field.type in ("bytes", "records"):
            blobs.append(field.name)
        # A single struct is the default that all messages share, or was made for this message: no
        # copy is needed.
        else:
            plain.append(field.name)
    return _Plan(cls, tuple(plain), tuple(blobs), tuple(lists), tuple(structs))


class _Copying:
    """Copies one message, up to its limit of rows."""

    def __init__(self) -> None:
        self._rows = 0

    def of(self, struct: m.Struct, plan: _Plan) -> m.Struct:
        """A copy without long bytes."""
        kept = plan.cls.__new__(plan.cls)
        self._rows += 1
        for name in plan.plain:
            setattr(kept, name, getattr(struct, name))
        for name in plan.blobs:
            setattr(kept, name, self._blob(name, getattr(struct, name)))
        for name in plan.lists:
            values = getattr(struct, name)
            setattr(kept, name, values and tuple(values[:ROWS_MAX]))
        for name, inner in plan.structs:
            elements: Sequence[m.Struct] | None = getattr(struct, name)
            setattr(kept, name, elements and self._some(elements, inner))
        return kept

    def _some(self, elements: Sequence[m.Struct], plan: _Plan) -> list[m.Struct]:
        some = []
        for element in elements:
            if self._rows >= ROWS_MAX:
                break
            some.append(self.of(element, plan))
        return some

    def _blob(self, name: str, value: object) -> object:
        if value is None or isinstance(value, Left):
            return value
        if name == "records" and isinstance(value, bytes | bytearray | memoryview):
            return Left(len(value), bytes(value[:BATCH_OVERHEAD_BYTES]))
        if not isinstance(value, bytes | bytearray | memoryview):
            return Left(_size_bytes(value))
        if name in SECRETS or len(value) > BLOB_BYTES_MAX:
            return Left(len(value))
        return bytes(value)


def _size_bytes(value: object) -> int:
    """The size of a payload: one piece, or several, each in memory or in a file."""
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(_size_bytes, value))
    return int(getattr(value, "size_bytes", 0))


def memory_of(struct: m.Struct) -> int:
    """The memory of a copied struct, with all that is in it, about."""
    size_bytes = ROW_BYTES
    for name in struct.ARRAYS:
        for element in getattr(struct, name) or ():
            size_bytes += memory_of(element) if isinstance(element, m.Struct) else ROW_BYTES
    return size_bytes
