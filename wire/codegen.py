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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from barnabas.wire import runtime
from barnabas.wire.schema import FIXED, SIZED, Field, Schema

ZERO_ID = bytes(16)

# --- Classes ----------------------------------------------------------------------------------------------------------


def make_class(schema: Schema) -> type[runtime.Message]:
    """The message's class, with the classes of its structs as attributes."""
    structs = schema.all_structs()
    names: dict[str, Any] = {"ZERO_ID": ZERO_ID, "__name__": "barnabas.wire.messages"}
    for name, fields in structs.items():
        names[name] = _make_struct(name, f"{schema.name}.{name}", runtime.Struct, fields, names)
    for fields in (schema.fields, *structs.values()):
        for field in fields:
            # One default for all instances, which refuses changes: a new struct per message would cost more.
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
    message.DECODERS = _Coders(schema, _DecodeEmitter, names, runtime.Malformed)
    message.ENCODERS = _Coders(schema, _EncodeEmitter, names, ValueError)
    message.DECODE_STEPS = _Coders(schema, _DecodeStepsEmitter, names, runtime.Malformed)
    message.ENCODE_STEPS = _Coders(schema, _EncodeStepsEmitter, names, ValueError)
    return message


def _make_struct(name: str, qualified: str, base: type, fields: tuple[Field, ...], names: dict[str, Any]) -> Any:
    """The class of a message or a struct."""
    slots = tuple(field.name for field in fields)
    arrays = tuple(field.name for field in fields if field.is_array)
    attributes = {"__slots__": slots, "FIELDS": slots, "ARRAYS": arrays, "__qualname__": qualified}
    made: Any = type(name, (base,), attributes)
    made.__module__ = names["__name__"]

    # Its `__init__` is generated at the first call, and replaces this one: most classes are imported, but never
    # created.
    def generate(self: object, **values: object) -> None:
        arguments = ", ".join(f"{field.name}={_default_source(field)}" for field in fields)
        lines = [f"def __init__(self, *, {arguments}):", *(f"    self.{slot} = {slot}" for slot in slots)]
        namespace = {**names}
        _run(f"<{qualified}>", lines, namespace)
        made.__init__ = namespace["__init__"]
        made.__init__(self, **values)

    if fields:
        made.__init__ = generate
    return made


def _default_source(field: Field) -> str:
    if field.is_struct and not field.is_array:
        return f"default_{field.type}"
    value = field.default_value()
    return "ZERO_ID" if value == ZERO_ID else repr(value)


def _run(filename: str, lines: list[str], names: dict[str, Any]) -> None:
    """Execute generated source."""
    source = "\n".join(lines) + "\n"
    # Tracebacks and debuggers find the lines here, as those of `<FetchRequest v12 decode>` for example.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)


class _Coders(dict[int, Callable[..., Any]]):
    """Version -> generated function of one message and direction, generated at its first use."""

    def __init__(
        self, schema: Schema, emitter: "type[_Emitter]", classes: dict[str, Any], unknown: type[Exception]
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
        # Without a lock: two threads may generate the same function, and either one is right.
        self[version] = function
        return function


# --- Emitters ---------------------------------------------------------------------------------------------------------


class _Emitter:
    """The lines of one generated function, for one message, version and direction."""

    verb: ClassVar[str]
    stepped: ClassVar[bool] = False  # whether the function is a generator that yields after each bounded step

    def __init__(self, schema: Schema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.flexible = schema.is_flexible(version)
        self.names: dict[str, Any] = {}
        self._lines: list[str] = []
        self._indent = ""
        self._run: list[tuple[str, str]] = []  # neighbouring fixed-size values: letter, and variable or expression
        self._tagged: dict[str, list[Field]] = {}  # structs whose tag functions are still to be written

    def source(self) -> list[str]:
        raise NotImplementedError

    def put(self, line: str) -> None:
        self._lines.append(self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.put(head)
        self._indent += "    "
        yield
        self._indent = self._indent[:-4]

    def compact(self, field: Field) -> bool:
        return self.flexible and field.compact

    def tagged_fields(self, name: str, fields: tuple[Field, ...]) -> list[Field]:
        """The struct's tagged fields in this version, by ascending tag; a function for them will be written."""
        # A function of their own: fields at their default are not sent, so the flat code nearly always skips all of
        # them.
        known = [field for field in fields if field.tag is not None and field.exists_in(self.version)]
        known.sort(key=lambda field: field.tag or 0)
        if known:
            self._tagged[name] = known
        return known

    def take_run(self) -> tuple[str, list[str]]:
        """The letters and the variables of the run so far, which ends here."""
        letters, values = "".join(letter for letter, _ in self._run), [value for _, value in self._run if value]
        self._run = []
        return letters, values


class _DecodeEmitter(_Emitter):
    """Emits `decode(buf, pos) -> (message, pos)`. `end` is the buffer's size, `n` the length or count just read."""

    # The buffer comes from a stranger. Before a slice is taken, its length is compared with the bytes that are left,
    # and before a list is filled, its count with the bytes that are left divided by the smallest size of an element. A
    # buffer that merely ends too early needs no check: an index or `struct` raises, and `runtime` turns that into an
    # error.

    verb = "decode"

    def __init__(self, schema: Schema, version: int) -> None:
        super().__init__(schema, version)
        # A copy of a large buffer would be a long step itself.
        self.in_place = schema.in_place or self.stepped
        self._cost = 0  # bytes of objects that the lines since the last `cost +=` make

    def source(self) -> list[str]:
        self.names["new"] = object.__new__
        for function in (
            runtime.ints_bytes,
            runtime.more,
            runtime.more_of_string,
            runtime.short,
            runtime.crowd,
            runtime.misfit,
            runtime.tag_start,
            runtime.skip_tags,
        ):
            self.names[function.__name__] = function
        with self.block(f"def {self.verb}({'o, ' if self.stepped else ''}buf, pos):"):
            # Slices of bytes become strings in half the time, but the copy costs too much where records are in the
            # buffer.
            wanted = "memoryview" if self.in_place else "bytes"
            self.put(f"if type(buf) is not {wanted}: buf = {wanted}(buf)")
            self.put("end = len(buf)")
            if self.stepped:
                self.put(f"cost, mark = 0, {runtime.STEP_BYTES}")
            if not self.stepped:
                self.put(f"o = new({self.schema.name})")
            self._fill("o", self.schema.name, self.schema.fields)
            self._flush()
            self._end_step()
            self.put("return cost" if self.stepped else "return o, pos")
        # A tagged field may be a struct with tagged fields of its own, which adds to the dictionary: hence `while`.
        while self._tagged:
            name, known = self._tagged.popitem()
            with self.block(f"def tags_{name}(o, buf, pos, end, count{', cost' if self.stepped else ''}):"):
                self._tags(known)
        return self._lines

    def _charge(self) -> None:
        """Emit the cost of the lines since the last call."""
        # Needed before a loop or a branch, whose lines may run many times or never.
        if self.stepped and self._cost:
            self.put(f"cost += {self._cost}")
        self._cost = 0

    def _end_step(self) -> None:
        """Emit the end of a step: a `yield` if the cost has grown by a step's worth."""
        self._charge()
        if self.stepped:
            with self.block("if cost > mark:"):
                self.put("yield cost")
                self.put(f"mark = cost + {runtime.STEP_BYTES}")

    def _struct(self, var: str, name: str, fields: tuple[Field, ...]) -> None:
        self.put(f"{var} = new({name})")
        self._fill(var, name, fields)

    def _fill(self, var: str, name: str, fields: tuple[Field, ...]) -> None:
        self._cost += runtime.STRUCT_BYTES + runtime.SLOT_BYTES * len(fields)
        # Every slot is set, also those of fields that this version lacks: `__init__` is not called.
        for field in fields:
            if field.tag is not None or not field.exists_in(self.version):
                self.put(f"{var}.{field.name} = {_default_source(field)}")
        for field in fields:
            if field.tag is None and field.exists_in(self.version):
                self._field(f"{var}.{field.name}", field, var)
        if self.flexible:
            # The count of tagged fields is nearly always 0, one byte: it is read with the fixed-size fields before it.
            self._run.append(("B", "count"))
            self._flush()
            known = self.tagged_fields(name, fields)
            if known and self.stepped:
                self._charge()
                self.put(f"if count: pos, cost = yield from tags_{name}({var}, buf, pos, end, count, cost)")
            else:
                function = f"tags_{name}({var}, " if known else "skip_tags("
                charged = f"; cost += count * {runtime.TAG_BYTES}" if self.stepped else ""
                self.put(f"if count: pos = {function}buf, pos, end, count){charged}")

    def _tags(self, known: list[Field]) -> None:
        self.put("if count > 127: count, pos = more(buf, pos, count)")
        # Each tagged field costs a call, and takes only two bytes of the buffer.
        self.put(f"if count > {runtime.TAGS_MAX}: crowd('tagged fields', count, end - pos)")
        if self.stepped:
            self.put(f"mark = cost + {runtime.STEP_BYTES}")
        with self.block("for _ in range(count):"):
            self._cost += runtime.TAG_BYTES
            self.put("tag, tag_end, pos = tag_start(buf, pos, end)")
            for field in known:
                with self.block(f"if tag == {field.tag}:"):
                    self._field(f"o.{field.name}", field, "o")
                    self._flush()
                    # A value that is longer or shorter than its size would shift everything that follows.
                    self.put(f"if pos != tag_end: misfit({field.name!r})")
            # Unknown tags, which a newer client may send, are skipped by their size.
            self.put("pos = tag_end")
            self._end_step()
        self.put("return pos, cost" if self.stepped else "return pos")

    def _field(self, target: str, field: Field, var: str) -> None:
        if field.is_array:
            self._nullable(target, field, FIXED["int32"][0], partial(self._array, target, field, var))
        elif field.type in FIXED:
            self._run.append((FIXED[field.type][0], target))
            self._cost += runtime.VALUE_BYTES.get(field.type, runtime.INT_BYTES)
        elif field.type in SIZED:
            self._nullable(target, field, SIZED[field.type], partial(self._slice, target, field))
        else:
            # The name grows with the depth, so an inner struct never replaces the variable of an outer one.
            inner = var + "i"
            self._struct(inner, field.type, self.schema.fields_of(field))
            self._flush()
            self.put(f"{target} = {inner}")

    def _nullable(self, target: str, field: Field, letter: str, body: Callable[[], None]) -> None:
        """Emit the read of a length or count into `n` (-1 is null), then the body."""
        # The first byte of a compact length goes into the run of fixed-size values; longer varints are rare.
        if self.compact(field):
            self._run.append(("B", "n"))
            self._flush()
            more = "more_of_string" if field.type == "string" else "more"
            self.put(f"if n > 127: n, pos = {more}(buf, pos, n)")
            self.put("n -= 1")
        else:
            self._run.append((letter, "n"))
            self._flush()
        if field.is_array:
            self._cost += runtime.LIST_BYTES
            self._charge()
        if field.nullable_in(self.version):
            self.put(f"if n == -1: {target} = None")
            with self.block("else:"):
                body()
        else:
            body()

    def _slice(self, target: str, field: Field) -> None:
        self.put("stop = pos + n")
        # A slice behind the end would be cut silently. -1 arrives here only where null is not allowed.
        self.put(f"if n < 0 or stop > end: short({field.name!r}, n, end - pos)")
        value = "buf[pos:stop]"
        # Bytes that are not UTF-8 become U+FFFD, as in Java: some clients send such names.
        if field.element == "string":
            source = f"str({value}, " if self.in_place else f"{value}.decode("
            value = f"{source}'utf-8', 'replace')"
        # A view would keep the whole frame in memory, and is not hashable.
        elif field.element == "bytes" and self.in_place:
            value = f"bytes({value})"
        self.put(f"{target} = {value}")
        self.put("pos = stop")
        self._cost += runtime.VALUE_BYTES[field.element]
        # Records stay a view of the frame, so they cost nothing.
        if self.stepped and field.element != "records":
            self.put("cost += n" if field.element == "bytes" else f"cost += n * {runtime.CHARACTER_BYTES}")

    def _array(self, target: str, field: Field, var: str) -> None:
        # A count that the bytes cannot hold is refused before the first object is made.
        smallest = self.schema.smallest_size(field, self.version)
        room = f"(end - pos) // {smallest}" if smallest > 1 else "end - pos"
        self.put(f"if n < 0 or n > {room}: crowd({field.name!r}, n, end - pos)")
        letter, size = FIXED.get(field.element, ("", 0))
        # An array of integers is one call of `struct`, whatever its length.
        if letter in ("b", "h", "i", "q"):
            self.names[f"many_{letter}"] = runtime.many(letter, "unpack_from")
            if self.stepped:
                self._ints(target, f"{var}_items", letter, size)
                return
            self.put(f"{target} = list(many_{letter}[n](buf, pos))")
            self.put(f"pos += n * {size}")
            return
        items, item = var + "_items", var + "i"
        self.put(f"{target} = {items} = []")
        with self.block("for _ in range(n):"):
            # The struct is appended before it is filled: if the decoding ends early, the message refers to all objects
            # that were made, and the caller can release them in steps.
            if field.is_struct:
                self.put(f"{item} = new({field.element})")
                self.put(f"{items}.append({item})")
                self._fill(item, field.element, self.schema.fields_of(field))
                self._flush()
            else:
                self._field(item, Field(field.name, field.element), var)
                self._flush()
                self.put(f"{items}.append({item})")
            self._cost += runtime.SLOT_BYTES
            self._end_step()

    def _ints(self, target: str, items: str, letter: str, size: int) -> None:
        """Emit the read of `n` integers, at most `INTS_AT_A_TIME` in a step."""
        self.put(f"{target} = {items} = []")
        with self.block("while n > 0:"):
            self.put(f"part = many_{letter}[min(n, {runtime.INTS_AT_A_TIME})](buf, pos)")
            self.put(f"{items} += part")
            self.put(f"n, pos, cost = n - len(part), pos + {size} * len(part), cost + ints_bytes(part)")
            self._end_step()

    def _flush(self) -> None:
        """Emit the read of the run of fixed-size values."""
        letters, targets = self.take_run()
        # An index is faster than `struct` for a single byte.
        if letters == "B":
            self.put(f"{targets[0]} = buf[pos]")
            self.put("pos += 1")
        elif letters:
            fixed = runtime.layout(letters)
            name = f"unpack_{letters.replace('?', 't')}"
            self.names[name] = fixed.unpack_from
            self.put(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = {name}(buf, pos)")
            self.put(f"pos += {fixed.size}")


class _DecodeStepsEmitter(_DecodeEmitter):
    """Emits `decode_steps(o, buf, pos)`: a generator that fills `o`, and returns the bytes of the objects that it made.

    It yields their number so far, after about every `runtime.STEP_BYTES`.
    """

    # Bytes of objects measure both costs of a decoder: its memory and, roughly, its time.

    verb = "decode_steps"
    stepped = True


class _EncodeEmitter(_Emitter):
    """Emits `encode(o, parts, marks)`: appends pieces to `parts`, and the places of payloads among them to `marks`."""

    verb = "encode"

    def __init__(self, schema: Schema, version: int) -> None:
        super().__init__(schema, version)
        self._pieces: list[str] = []  # expressions that are ready to be appended
        self._locals = 0
        self._in_tags = False  # a tag section is small and built as a whole, so it has no steps

    def source(self) -> list[str]:
        label = f"{self.schema.name} v{self.version}"
        self.names["varint"] = runtime.VARINTS
        for function in (runtime.size_of, runtime.add_records, runtime.tag_section):
            self.names[function.__name__] = function
        # Bound to the name of the message and its version, for the error texts.
        for refuse in (runtime.outside, runtime.null, runtime.wrong_id):
            self.names[refuse.__name__] = partial(refuse, label)
        with self.block(f"def {self.verb}(o, parts, marks):"):
            if self.stepped:
                self.put(f"left = {runtime.STEP_ROWS}")
            self._struct("o", self.schema.name, self.schema.fields)
            self._flush()
            if self.stepped:
                # `left` is never 0 here. The line makes the function a generator even if the message has no array.
                self.put("if not left: yield")
            self.put("return parts")
        self._in_tags = True
        while self._tagged:
            name, known = self._tagged.popitem()
            with self.block(f"def tags_{name}(o):"):
                self._tags(known)
        return self._lines

    def _struct(self, var: str, name: str, fields: tuple[Field, ...]) -> None:
        # A value that this version cannot carry must not be lost silently, unless the table calls the field ignorable.
        for field in fields:
            if not field.exists_in(self.version) and not field.ignorable:
                self.put(f"if {self._differs(f'{var}.{field.name}', field)}: outside({field.name!r})")
        for field in fields:
            if field.tag is None and field.exists_in(self.version):
                self._field(f"{var}.{field.name}", field, var)
        if self.flexible:
            self._tag_count(var, name, self.tagged_fields(name, fields))

    def _tag_count(self, var: str, name: str, known: list[Field]) -> None:
        # No tagged fields: a zero byte ("x" is padding), which is packed with its neighbours.
        if not known:
            self._run.append(("x", ""))
            return
        # Nearly always all of them are at their defaults, and the function that writes them is not called.
        usual = " and ".join(self._surely_default(f"{var}.{field.name}", field) for field in known)
        section = self._local()
        self.put(f"{section} = b'\\0' if {usual} else tags_{name}({var})")
        self._piece(section)

    def _tags(self, known: list[Field]) -> None:
        self.put("tagged = []")
        for field in known:
            with self.block(f"if {self._differs(f'o.{field.name}', field)}:"):
                self.put("parts = []")
                self._field(f"o.{field.name}", field, "o")
                self._flush()
                self.put(f"tagged.append(({field.tag}, parts))")
        self.put("return tag_section(tagged)")

    def _differs(self, value: str, field: Field) -> str:
        """A condition: the value is not the default."""
        default = field.default_value()
        if field.is_array:
            return f"{value} is None or len({value})"
        if field.is_struct:
            return f"{value} is not default_{field.type} and {value} != default_{field.type}"
        return f"{value} is not None" if default is None else f"{value} != {_default_source(field)}"

    def _surely_default(self, value: str, field: Field) -> str:
        """A condition under which a tagged field is certainly at its default."""
        # Cheap, and may be false for a default, such as an empty list: the tag function then compares exactly.
        if field.is_array:
            return f"{value} == ()"
        same = "is" if field.is_struct or field.default_value() is None else "=="
        return f"{value} {same} {_default_source(field)}"

    def _field(self, value: str, field: Field, var: str) -> None:
        if field.is_array:
            self._array(value, field, var)
        elif field.type == "uuid":
            local = self._local()
            self.put(f"{local} = {value}")
            self.put(f"if len({local}) != 16: wrong_id({field.name!r})")
            self._run.append(("16s", local))
        elif field.type in FIXED:
            self._run.append((FIXED[field.type][0], value))
        elif field.type in SIZED:
            self._sized(value, field)
        else:
            inner = var + "i"
            self.put(f"{inner} = {value}")
            self._struct(inner, field.type, self.schema.fields_of(field))
            # The next struct may be assigned to the same variable, so no pending expression may refer to it.
            self._flush()

    def _sized(self, value: str, field: Field) -> None:
        convert, size, empty = {
            "string": (".encode()", "len", "b''"),
            "bytes": ("", "len", "b''"),
            "records": ("", "size_of", "None"),
        }[field.element]
        local = self._length(value, field, SIZED[field.element], convert, size, empty)
        # `add_records` appends to `parts` itself, so everything before must be in there.
        if field.element == "records":
            self._flush()
            self.put(f"if {local} is not None: add_records(parts, marks, {local})")
        else:
            self._piece(local)

    def _array(self, value: str, field: Field, var: str) -> None:
        local = self._length(value, field, FIXED["int32"][0], "", "len", "()")
        letter, _ = FIXED.get(field.element, ("", 0))
        if letter in ("b", "h", "i", "q"):
            self.names[f"many_{letter}"] = runtime.many(letter, "pack")
            self._piece(f"many_{letter}[len({local})](*{local})")
            return
        # Pending pieces belong before the loop: inside it they would be appended once per element.
        self._flush()
        item = var + "i"
        with self.block(f"for {item} in {local}:"):
            if field.is_struct:
                self._struct(item, field.element, self.schema.fields_of(field))
            else:
                self._field(item, Field(field.name, field.element), var)
            self._flush()
            if self.stepped and not self._in_tags:
                self.put("left -= 1")
                with self.block("if not left:"):
                    self.put("yield")
                    self.put(f"left = {runtime.STEP_ROWS}")

    def _length(self, value: str, field: Field, letter: str, convert: str, size: str, empty: str) -> str:
        """Emit the length or count of a value; returns the local with the value, which is `empty` if that is null."""
        # A local, because the value is read twice: for its length and for its content.
        local = self._local()
        count = f"{size}({local})"
        if field.nullable_in(self.version):
            self.put(f"{local} = {value}")
            count = f"{local}n"
            self.put(f"if {local} is None: {local}, {count} = {empty}, -1")
            with self.block("else:"):
                if convert:
                    self.put(f"{local} = {local}{convert}")
                self.put(f"{count} = {size}({local})")
        # Null is allowed in other versions only; without the check `len(None)` would raise without the field's name.
        elif field.nullable:
            self.put(f"{local} = {value}")
            self.put(f"if {local} is None: null({field.name!r})")
            if convert:
                self.put(f"{local} = {local}{convert}")
        else:
            self.put(f"{local} = {value}{convert}")
        if self.compact(field):
            self._piece(f"varint[{count} + 1]")
        else:
            self._run.append((letter, count))
        return local

    def _local(self) -> str:
        self._locals += 1
        return f"v{self._locals}"

    def _piece(self, expression: str) -> None:
        self._end_run()
        self._pieces.append(expression)

    def _end_run(self) -> None:
        letters, values = self.take_run()
        # A run of padding alone is a constant.
        if letters.strip("x"):
            name = f"pack_{letters.replace('?', 't')}"
            self.names[name] = runtime.layout(letters).pack
            self._pieces.append(f"{name}({', '.join(values)})")
        elif letters:
            self._pieces.append(repr(bytes(len(letters))))

    def _flush(self) -> None:
        """Emit the pieces that are ready: before a loop or a branch, and at the end."""
        self._end_run()
        if len(self._pieces) == 1:
            self.put(f"parts.append({self._pieces[0]})")
        elif self._pieces:
            self.put(f"parts += ({', '.join(self._pieces)})")
        self._pieces = []


class _EncodeStepsEmitter(_EncodeEmitter):
    """Emits `encode_steps(o, parts, marks)`: a generator that yields after every `runtime.STEP_ROWS` elements.

    The caller may take the pieces out of the lists between two steps.
    """

    verb = "encode_steps"
    stepped = True
