"""The source of the generated decoders: bytes -> message."""

from collections.abc import Callable
from functools import partial

from barnabas.wire import runtime
from barnabas.wire.emitter import Emitter, default_source
from barnabas.wire.schema import FIXED, SIZED, Field, Schema


class DecodeEmitter(Emitter):
    """Emits `decode(buf, pos) -> (message, pos)`. `end` is the buffer's size, `n` the length or count just read."""

    # The sender may be hostile. Before a slice is taken, its length is compared with the bytes that
    # are left, and before a list is filled, its count with the bytes that are left divided by the
    # smallest size of an element. A buffer that merely ends too early needs no check: an index or
    # `struct` raises, and `runtime` turns that into an error.

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
            # A slice of `bytes` becomes a string in half the time of a slice of a memoryview. But
            # the copy of the whole buffer to `bytes` costs too much if it holds records.
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
        # This is needed before a loop or a branch, whose lines may run many times or never.
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
                self.put(f"{var}.{field.name} = {default_source(field)}")
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

        # The number is limited, because each tagged field costs a call, but takes as few as two bytes of the buffer.
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

        items = var + "_items"
        item = var + "i"
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


class DecodeStepsEmitter(DecodeEmitter):
    """Emits `decode_steps(o, buf, pos)`: a generator that fills `o`, and returns the bytes of the objects that it made.

    It yields their number so far, after about every `runtime.STEP_BYTES`.
    """

    # Bytes of objects measure both costs of a decoder: its memory and, roughly, its time.

    verb = "decode_steps"
    stepped = True
