"""The parts of a schema table: `Schema` and `Field`, with the properties that depend on a version.

The tables in `schemas/` are literals written by hand, one `Schema` per message with all its versions. Each field names
the versions in which it exists. The layout of one version follows from that: which fields are present, whether lengths
are compact, which fields may be null, and the smallest size of an element. The code generator uses only this.

Notation, after Kafka's own message definitions: a version range is "3+", "0-14" or "2"; a type is a primitive
("int32", "string", "uuid" ...), the name of a struct, or either of these after "[]" for an array. A struct's fields
stand in the field that has it, or in the schema's `structs` if two fields share it.
"""

from collections.abc import Iterator
from functools import cache
from typing import Final, NamedTuple

# Primitives of fixed size: the format character of `struct`, and the size in bytes.
FIXED: Final[dict[str, tuple[str, int]]] = {
    "bool": ("?", 1),
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "float64": ("d", 8),
    "uuid": ("16s", 16),
}
# Primitives that begin with their length: the format character of that length in versions that are not flexible.
SIZED: Final[dict[str, str]] = {"string": "h", "bytes": "i", "records": "i"}

_NEWEST = 1 << 15  # above every version, which is an int16
_KAFKA_DEFAULT: Final = object()  # the table has no default for the field: zero, false or empty


@cache
def parse_versions(text: str) -> tuple[int, int]:
    """The first and last version of a range: "3+", "0-14" or "2"."""
    if text.endswith("+"):
        return int(text[:-1]), _NEWEST
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def _covers(versions: str | None, version: int) -> bool:
    if versions is None:
        return False
    first, last = parse_versions(versions)
    return first <= version <= last


class Field(NamedTuple):
    """One field of a message or struct, in all versions.

    `nullable`: the versions in which null is legal. `tag`: the field is in the tagged section under this number, in all
    versions that have it. `ignorable`: the value is dropped when a version without the field is written; without it
    such a value must be the default. `compact=False` keeps the classic length in flexible versions (only for the client
    id of the request header, which a broker must be able to read in versions that it does not support).
    """

    name: str
    type: str
    versions: str = "0+"
    fields: "tuple[Field, ...]" = ()
    nullable: str | None = None
    default: object = _KAFKA_DEFAULT
    tag: int | None = None
    ignorable: bool = False
    compact: bool = True

    @property
    def is_array(self) -> bool:
        return self.type.startswith("[]")

    @property
    def element(self) -> str:
        """The type without the array around it."""
        return self.type.removeprefix("[]")

    @property
    def is_struct(self) -> bool:
        """Whether the field is a struct or an array of structs."""
        return self.element not in FIXED and self.element not in SIZED

    def exists_in(self, version: int) -> bool:
        return _covers(self.versions, version)

    def nullable_in(self, version: int) -> bool:
        return _covers(self.nullable, version)

    def default_value(self) -> object:
        """The default as a Python value; None for a struct, whose default is built from those of its fields."""
        if self.default is not _KAFKA_DEFAULT:
            return self.default
        # This is a tuple: it is shared by all messages, so it must not change.
        if self.is_array:
            return ()
        zeros = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b"", "records": None}
        return None if self.is_struct else zeros.get(self.type, 0)


class Schema(NamedTuple):
    """One message with all its versions. `flexible`: the versions with compact lengths and tagged fields (KIP-482)."""

    name: str
    key: int | None
    versions: str
    flexible: str | None
    fields: tuple[Field, ...] = ()
    structs: tuple[tuple[str, tuple[Field, ...]], ...] = ()

    @property
    def min_version(self) -> int:
        return parse_versions(self.versions)[0]

    @property
    def max_version(self) -> int:
        return parse_versions(self.versions)[1]

    @property
    def flexible_from(self) -> int | None:
        return None if self.flexible is None else parse_versions(self.flexible)[0]

    def is_flexible(self, version: int) -> bool:
        return _covers(self.flexible, version)

    def fields_of(self, field: Field) -> tuple[Field, ...]:
        """The fields of the struct that this field holds: its own, or those of a shared struct."""
        return field.fields or dict(self.structs)[field.element]

    def all_structs(self) -> dict[str, tuple[Field, ...]]:
        """Every struct of the message by name, inner ones before those that hold them."""
        found: dict[str, tuple[Field, ...]] = {}
        for field, fields in self._walk(self.fields):
            found.setdefault(field.element, fields)
        return found

    def _walk(self, fields: tuple[Field, ...]) -> Iterator[tuple[Field, tuple[Field, ...]]]:
        for field in fields:
            if field.is_struct:
                inner = self.fields_of(field)
                yield from self._walk(inner)
                yield field, inner

    @property
    def in_place(self) -> bool:
        """Whether a decoder reads the buffer in place instead of copying it to `bytes` first."""
        # A slice of `bytes` becomes a string in half the time of a slice of a memoryview. But
        # record batches must not be copied, because the leader stamps them in the frame; nor a
        # whole frame to read its header (`key` is None).
        everywhere = (self.fields, *self.all_structs().values())
        return self.key is None or any(field.type == "records" for fields in everywhere for field in fields)

    def smallest_size(self, field: Field, version: int) -> int:
        """The fewest bytes that a value of the field (of an array: one element) takes in this version."""
        # The decoder divides the bytes that are left by this size, to refuse a count that they cannot hold.
        compact = field.compact and self.is_flexible(version)
        if field.element in FIXED:
            return FIXED[field.element][1]
        if field.element in SIZED:
            return 1 if compact else (2 if field.element == "string" else 4)
        size = 1 if self.is_flexible(version) else 0  # the count of tagged fields
        for inner in self.fields_of(field):
            # A tagged field is left out at its default, so it may take no bytes.
            if inner.exists_in(version) and inner.tag is None:
                length = 1 if self.is_flexible(version) else 4
                size += length if inner.is_array else self.smallest_size(inner, version)
        return size
