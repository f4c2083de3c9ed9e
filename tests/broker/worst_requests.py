"""Requests at their worst, made from the schema tables: each string, bytes field and list of every request, filled.

A `Filling` says what a field is filled with. The strings of a list have SHORT_BYTES each, LONG_BYTES together.
"""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.broker.server.dispatch import HANDLERS
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.compression import Codec
from barnabas.wire.records import build_batch
from barnabas.wire.schema import Field
from tests.broker.clock import now_ms

SHORT_BYTES = 32_000  # nearly as much as a string can have
LONG_BYTES = 2 << 20
ELEMENTS = 20_000  # of a list of small elements
SAMPLED_ELEMENTS = 2000
TOPIC = "t"

Path = tuple[str, ...]

# What a field must hold for a request to get beyond the first look at it. Other names are those of a topic that exists,
# but for the many elements, which all have other names; other numbers are 0.
MEANT = {
    "acks": -1,
    "resource_type": 2,
    "resource_type_filter": 2,
    "validate_only": True,
    "allow_auto_topic_creation": False,
    "operation": 3,
    "permission_type": 3,
    "permission_type_filter": 3,
    "pattern_type_filter": 3,
    "resource_pattern_type": 3,
    "mechanism": 1,
    "iterations": 4096,
    "num_partitions": 0,
    "replication_factor": 1,
    "entity_type": "user",
    "session_timeout_ms": 10_000,
    "broker_epoch": -1,
    "max_lifetime_ms": -1,
    "owner_principal_type": None,
    "owner_principal_name": None,
    "principal_type": "User",
}

# What texts are made of: separators of paths, lists and addresses, what escapes and encodings make longer, what makes
# regular expressions try again.
TEXTS = {
    "letters": "x",
    "slashes": "a/",
    "euros": "€",
    "percents": "%",
    "quotes": '"\\',
    "commas": "a,",
    "colons": "a:",
    "brackets": "((a+)+",
    "digits": "9",
    "spaces": " ",
    "controls": "\x01",
}
FEW_TEXTS = ("euros", "slashes")  # for versions that have other fields than the newest, but the same handler


class Filling(NamedTuple):
    """What a field of a request is filled with."""

    name: str
    count: int  # of elements of the innermost list around the field, or of the field itself if it is a list
    value: Callable[[int], object] | None = None  # of the field in the element with this number; None: as anywhere


NULL = Filling("null", 1)  # often all of them


def _texts(names: Sequence[str], count: int) -> Iterator[Filling]:
    for name in names:
        pattern = TEXTS[name]
        text = pattern * (SHORT_BYTES // len(pattern.encode()))
        yield Filling(name, count, lambda number, text=text: f"{text}{number}")


def _subscription(size_bytes: int) -> bytes:
    """A member's subscription with as many topics as fit into it, each with a name of two letters."""
    count = size_bytes // 4
    return struct.pack(">hi", 0, count) + b"\0\2ab" * count + struct.pack(">i", -1)


def _byte_fillings(count: int) -> Iterator[Filling]:
    noise, size_bytes = random.Random(0).randbytes(LONG_BYTES), LONG_BYTES // count
    for name, data in {
        "zeros": bytes(size_bytes),
        "noise": noise[:size_bytes],
        "names": _subscription(size_bytes),
    }.items():
        yield Filling(f"{name} of {size_bytes} bytes", count, lambda number, data=data: data)


def _record_fillings() -> Iterator[Filling]:
    noise = random.Random(0).randbytes(LONG_BYTES)
    values = {"tiny": [b"v"] * 50_000, "zeros": [bytes(LONG_BYTES)], "noise": [noise]}
    for codec in Codec:
        for name, each in values.items():
            batch = bytes(build_batch([(None, value) for value in each], timestamp_ms=now_ms(), codec=codec).data)
            yield Filling(f"{codec.name.lower()} of {name}", 1, lambda number, batch=batch: batch)
    yield Filling("no batch", 1, lambda number: noise)


class Filler:
    """Makes the requests of one API in one version. `meant`: what other fields hold, beside MEANT."""

    def __init__(self, api_key: int, version: int) -> None:
        self.version = version
        self.meant = dict(MEANT)
        self.seed = 0  # other names, so that nothing is known of them
        self._message = m.request_class(APIS[api_key])
        self._schema = m.schemas()[self._message.__name__]
        self._path: Path = ()
        self._repeated: Path = ()
        self._filling = Filling("", 1)

    def leaves(self, fields: Sequence[Field] | None = None, path: Path = ()) -> Iterator[tuple[Path, Field]]:
        """The fields to fill, each with the way to it: ("topics", "name")."""
        for field in self._schema.fields if fields is None else fields:
            if not field.exists_in(self.version):
                continue
            here = (*path, field.name)
            if field.is_array or field.type in ("string", "bytes", "records"):
                yield here, field
            if field.is_struct:
                yield from self.leaves(self._schema.fields_of(field), here)

    def fillings(self, path: Path, field: Field, *, few: bool, elements: int = ELEMENTS) -> Iterator[Filling]:
        """What the field is filled with; `few`: with the worst that is known."""
        is_repeated = self._array_around(path) != ()
        kind = field.element
        if field.nullable_in(self.version):
            yield NULL
        if field.is_array:
            yield Filling("many", elements)
        if kind == "string":
            yield from _texts(FEW_TEXTS if few else tuple(TEXTS), LONG_BYTES // SHORT_BYTES if is_repeated else 1)
        if kind == "bytes":
            yield from _byte_fillings(1)
            if is_repeated:
                yield from _byte_fillings(LONG_BYTES // SHORT_BYTES)
        if kind == "records":
            yield from _record_fillings()

    def request(self, path: Path, filling: Filling) -> m.Message:
        """A request with this field filled, and one element in each other list."""
        self._path, self._filling, self._repeated = path, filling, self._array_around(path)
        return self._message(**self._values(self._schema.fields, (), None))

    def _array_around(self, path: Path) -> Path:
        fields, innermost = self._schema.fields, ()
        for depth, name in enumerate(path, 1):
            (field,) = [each for each in fields if each.name == name]
            if field.is_array:
                innermost = path[:depth]
            if field.is_struct:
                fields = self._schema.fields_of(field)
        return innermost

    def _values(self, fields: Sequence[Field], around: Path, number: int | None) -> dict:
        return {
            field.name: self._value(field, (*around, field.name), number)
            for field in fields
            if field.exists_in(self.version)
        }

    def _value(self, field: Field, here: Path, number: int | None):
        if here == self._path and self._filling is NULL:
            return None
        if field.is_array:
            if here == self._repeated:
                return [self._element(field, here, each) for each in range(self._filling.count)]
            return [self._element(field, here, number)] if field.name not in LEFT_EMPTY else []
        if field.is_struct:
            return self._element(field, here, number)
        return self._scalar(field, field.type, here, number)

    def _element(self, field: Field, here: Path, number: int | None):
        if not field.is_struct:
            return self._scalar(field, field.element, here, number)
        return getattr(self._message, field.element)(**self._values(self._schema.fields_of(field), here, number))

    def _scalar(self, field: Field, kind: str, here: Path, number: int | None):
        if here == self._path and self._filling.value is not None:
            return self._filling.value(self.seed * ELEMENTS + (number or 0))
        if field.name in self.meant:
            return self.meant[field.name]
        if kind == "string":
            return TOPIC if number is None else f"{TOPIC}{self.seed * ELEMENTS + number}"
        if (
            number is not None
            and kind in ("int32", "int64")
            and (field.is_array or "partition" in field.name or field.name == "index")
        ):
            return number
        return field.default_value() if not field.is_array else {"uuid": bytes(16), "bytes": b""}.get(kind, 0)


LEFT_EMPTY = {"configuration_keys"}  # empty: all of them


def shapes(api_key: int) -> list[int]:
    """The versions of an API whose requests have different fields to fill; the newest one comes last."""
    api = APIS[api_key]
    newest = {}
    for version in range(api.min_version, api.max_version + 1):
        newest[tuple(path for path, _ in Filler(api_key, version).leaves())] = version
    return sorted(newest.values())


SERVED = sorted(HANDLERS)
