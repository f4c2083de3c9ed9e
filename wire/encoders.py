"""The source of the generated encoders: message -> bytes."""

from functools import partial

from barnabas.wire import runtime
from barnabas.wire.emitter import Emitter, default_source
from barnabas.wire.schema import FIXED, SIZED, Field, Schema


class EncodeEmitter(Emitter):
    """Emits `encode(o, parts, marks)`: appends pieces to `parts`, and the places of payloads among them to `marks`."""

    verb = "encode"

    def __init__(self, schema: Schema, version: int) -> None:
        super().__init__(schema, version)
        self._pieces: list[str] = []  # expressions that are ready to be appended
        self._locals = 0
        self._long: list[str] = []  # locals with strings of the element that is being encoded
        self._in_tags = False  # a tag section is small and built as a whole, so it has no steps

    def source(self) -> list[str]:
        label = f"{self.schema.name} v{self.version}"
        self.names["varint"] = runtime.VARINTS
        for function in (runtime.size_of, runtime.add_records, runtime.tag_section):
            self.names[function.__name__] = function

        # These get the name of the message and its version, for the error texts.
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
        # A struct without tagged fields has a zero byte ("x" is padding), which is packed with its
        # neighbours.
        if not known:
            self._run.append(("x", ""))
            return
        # Nearly always all tagged fields are at their defaults; then the function that writes them is not called.
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
        return f"{value} is not None" if default is None else f"{value} != {default_source(field)}"

    def _surely_default(self, value: str, field: Field) -> str:
        """A condition under which a tagged field is certainly at its default."""
        # The condition is cheap, but may be false for a default such as an empty list: the tag
        # function then compares exactly.
        if field.is_array:
            return f"{value} == ()"
        same = "is" if field.is_struct or field.default_value() is None else "=="
        return f"{value} {same} {default_source(field)}"

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
        if field.element != "records":
            self._long.append(local)
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
        outer = self._long
        self._long = []
        with self.block(f"for {item} in {local}:"):
            if field.is_struct:
                self._struct(item, field.element, self.schema.fields_of(field))
            else:
                self._field(item, Field(field.name, field.element), var)
            self._flush()
            if self.stepped and not self._in_tags:
                # An element with long strings counts as several: a client may have chosen 32 kB for each string.
                lengths = "".join(f" + (len({each}) >> {runtime.ROW_BYTES_SHIFT})" for each in self._long)
                self.put(f"left -= 1{lengths}")
                with self.block("if left <= 0:"):
                    self.put("yield")
                    self.put(f"left = {runtime.STEP_ROWS}")

        self._long = outer

    def _length(self, value: str, field: Field, letter: str, convert: str, size: str, empty: str) -> str:
        """Emit the length or count of a value; returns the local with the value, which is `empty` if that is null."""
        # The value goes into a local, because it is read twice: for its length and for its content.
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


class EncodeStepsEmitter(EncodeEmitter):
    """Emits `encode_steps(o, parts, marks)`: a generator that yields after every `runtime.STEP_ROWS` elements.

    It yields after fewer if they have long strings. The caller may take the pieces out of the lists between two steps.
    """

    verb = "encode_steps"
    stepped = True
