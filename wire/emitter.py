"""What writes the source of one generated function, of either direction: lines, blocks, runs of fixed-size values."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from barnabas.wire.schema import Field, Schema

ZERO_ID = bytes(16)


class Emitter:
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
        # Tagged fields have a function of their own: they are not sent at their defaults, so the
        # flat code nearly always skips all of them.
        known = [field for field in fields if field.tag is not None and field.exists_in(self.version)]
        known.sort(key=lambda field: field.tag or 0)
        if known:
            self._tagged[name] = known
        return known

    def take_run(self) -> tuple[str, list[str]]:
        """The letters and the variables of the run so far, which ends here."""
        letters = "".join(letter for letter, _ in self._run)
        values = [value for _, value in self._run if value]
        self._run = []
        return letters, values


def default_source(field: Field) -> str:
    if field.is_struct and not field.is_array:
        return f"default_{field.type}"
    value = field.default_value()
    return "ZERO_ID" if value == ZERO_ID else repr(value)
