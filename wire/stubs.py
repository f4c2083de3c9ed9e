"""The type stub of the generated messages, `messages.pyi`, which `make generated` writes for type checkers."""

from collections.abc import Iterable

from barnabas.wire import messages, runtime
from barnabas.wire.schema import Field, Schema

_STUB_HEAD = '''"""Types of the generated messages. Written by `make generated`; do not edit."""

from collections.abc import Sequence

from barnabas.wire.apis import Api
from barnabas.wire.runtime import (
    {of_runtime},
)
from barnabas.wire.schema import Schema

__all__ = [
    {names},
]

def message_class(name: str) -> type[Message]: ...
def request_class(api: Api) -> type[Message]: ...
def response_class(api: Api) -> type[Message]: ...
def schemas() -> dict[str, Schema]: ...
'''
_STUB_TYPES = {
    "string": "str",
    "bytes": "bytes",
    "records": "memoryview",
    "bool": "bool",
    "float64": "float",
    "uuid": "bytes",
}


def stubs(schemas: Iterable[Schema]) -> str:
    """The text of `messages.pyi`: the classes of these schemas with the types of their fields."""
    names = messages.__all__
    of_runtime = [name for name in names if hasattr(runtime, name)]
    quoted = [f'"{name}"' for name in names]
    lines = [_STUB_HEAD.format(of_runtime=",\n    ".join(of_runtime), names=",\n    ".join(quoted))]
    for schema in sorted(schemas, key=lambda schema: schema.name):
        lines.append(f"class {schema.name}(Message):")
        for name, fields in schema.all_structs().items():
            lines.append(f"    class {name}(Struct):")
            lines += _stub_fields(schema, fields, "        ")
            lines.append("")
        lines += _stub_fields(schema, schema.fields, "    ")
        lines.append("")
    return "\n".join(lines)


def _stub_fields(schema: Schema, fields: tuple[Field, ...], indent: str) -> list[str]:
    # A broker reads the records of requests, which are views of the frame, and writes those of responses, which may
    # also be slices of files.
    held = "Records" if schema.name.endswith("Response") else "memoryview"
    lines = [f"{indent}{field.name}: {_stub_type(schema, field).replace('memoryview', held)} = ..." for field in fields]
    return lines or [f"{indent}pass"]


def _stub_type(schema: Schema, field: Field) -> str:
    name = f"{schema.name}.{field.element}" if field.is_struct else _STUB_TYPES.get(field.element, "int")
    text = f"Sequence[{name}]" if field.is_array else name
    return f"{text} | None" if field.nullable else text
