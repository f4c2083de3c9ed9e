"""From a schema table to classes, decoders and encoders: Python source, generated on first use.

Each message gets a class, and one for each of its structs; each (message, version) that is used gets a flat decoder and
a flat encoder. Flat means: nested structs are inline loops, fields that the version lacks are constants, and
neighbouring fields of fixed size, together with the length or count that follows them, go through one `struct.Struct`.
Such code is five to ten times faster than an interpreter of the table.

An encoder appends pieces to a list, which is joined once. A `records` value that is not bytes (a slice of a file) stays
a piece of its own, so that the network layer can pass it to `sendfile`.

Each direction has a second function from the same emitter, for messages of unknown size: a generator that yields after
each bounded step (`decode_steps`, `encode_steps`).
"""

import linecache
from collections.abc import Callable
from typing import Any

from barnabas.wire import runtime
from barnabas.wire.decoders import DecodeEmitter, DecodeStepsEmitter
from barnabas.wire.emitter import ZERO_ID, Emitter, default_source
from barnabas.wire.encoders import EncodeEmitter, EncodeStepsEmitter
from barnabas.wire.schema import Field, Schema


def make_class(schema: Schema) -> type[runtime.Message]:
    """The message's class, with the classes of its structs as attributes."""
    structs = schema.all_structs()
    names: dict[str, Any] = {"ZERO_ID": ZERO_ID, "__name__": "barnabas.wire.messages"}
    for name, fields in structs.items():
        names[name] = _make_struct(name, f"{schema.name}.{name}", runtime.Struct, fields, names)
    for fields in (schema.fields, *structs.values()):
        for field in fields:
            # All instances share one default, which refuses changes: a new struct per message would
            # cost more.
            if field.is_struct and not field.is_array:
                names[f"default_{field.type}"] = runtime.shared_default(names[field.type])

    message: type[runtime.Message] = _make_struct(schema.name, schema.name, runtime.Message, schema.fields, names)
    names[schema.name] = message
    for name in structs:
        setattr(message, name, names[name])
    message.API_KEY = schema.key
    message.MIN_VERSION = schema.min_version
    message.MAX_VERSION = schema.max_version
    message.FLEXIBLE_FROM = schema.flexible_from
    message.SCHEMA = schema
    message.DECODERS = _Coders(schema, DecodeEmitter, names, runtime.Malformed)
    message.ENCODERS = _Coders(schema, EncodeEmitter, names, ValueError)
    message.DECODE_STEPS = _Coders(schema, DecodeStepsEmitter, names, runtime.Malformed)
    message.ENCODE_STEPS = _Coders(schema, EncodeStepsEmitter, names, ValueError)
    return message


def _make_struct(name: str, qualified: str, base: type, fields: tuple[Field, ...], names: dict[str, Any]) -> Any:
    """The class of a message or a struct."""
    slots = tuple(field.name for field in fields)
    arrays = tuple(field.name for field in fields if field.is_array)
    attributes = {"__slots__": slots, "FIELDS": slots, "ARRAYS": arrays, "__qualname__": qualified}
    made: Any = type(name, (base,), attributes)
    made.__module__ = names["__name__"]

    # The real `__init__` is generated at the first call of this one, and replaces it: most classes
    # are imported, but never instantiated.
    def generate(self: object, **values: object) -> None:
        arguments = ", ".join(f"{field.name}={default_source(field)}" for field in fields)
        lines = [f"def __init__(self, *, {arguments}):", *(f"    self.{slot} = {slot}" for slot in slots)]
        namespace = {**names}
        _run(f"<{qualified}>", lines, namespace)
        made.__init__ = namespace["__init__"]
        made.__init__(self, **values)

    if fields:
        made.__init__ = generate
    return made


def _run(filename: str, lines: list[str], names: dict[str, Any]) -> None:
    """Execute generated source."""
    source = "\n".join(lines) + "\n"
    # Tracebacks and debuggers find the lines here, as those of `<FetchRequest v12 decode>` for example.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)


class _Coders(dict[int, Callable[..., Any]]):
    """Version -> generated function of one message and direction, generated at its first use."""

    def __init__(
        self, schema: Schema, emitter: "type[Emitter]", classes: dict[str, Any], unknown: type[Exception]
    ) -> None:
        super().__init__()
        self._schema = schema
        self._emitter = emitter
        self._classes = classes
        self._unknown = unknown

    def __missing__(self, version: int) -> Callable[..., Any]:
        schema = self._schema
        # A range such as "3+" in the table covers versions that Kafka has not defined yet.
        if not schema.min_version <= version <= schema.max_version:
            raise self._unknown(f"{schema.name} has versions {schema.versions}, not {version}")
        emitter = self._emitter(schema, version)
        lines = emitter.source()
        names = {**self._classes, **emitter.names}
        _run(f"<{schema.name} v{version} {emitter.verb}>", lines, names)
        function: Callable[..., Any] = names[emitter.verb]
        # No lock is needed: two threads may generate the same function, and either one is right.
        self[version] = function
        return function
