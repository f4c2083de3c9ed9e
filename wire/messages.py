"""The messages of the protocol: `from barnabas.wire import messages as m`, then `m.FetchRequest`, `m.decode(...)`.

One class per message for all its versions, with its structs as attributes (`m.FetchRequest.FetchTopic`), made from the
tables in `schemas/` at its first use. Type checkers read `messages.pyi` instead of this file.
"""

from functools import cache
from importlib import import_module

from barnabas.wire import codegen
from barnabas.wire.apis import APIS, Api
from barnabas.wire.runtime import (
    Buffer,
    Message,
    Payload,
    Records,
    Struct,
    decode,
    decode_from,
    decode_steps,
    encode,
    encode_into,
    encode_steps,
)
from barnabas.wire.schema import Schema

__all__ = [
    "Buffer",
    "Message",
    "Payload",
    "Records",
    "Struct",
    "decode",
    "decode_from",
    "decode_steps",
    "encode",
    "encode_into",
    "encode_steps",
    "message_class",
    "request_class",
    "response_class",
    "schemas",
]

# The files of `schemas/`: those of the APIs, in which each API has a request and a response; request and response
# headers; and what clients and coordinators store inside other messages and records.
API_FAMILIES = {f"{api.name}{kind}": api.family for api in APIS.values() for kind in ("Request", "Response")}
OTHER_FAMILIES = ("headers", "group_records", "transaction_records", "consumer_protocol")
FAMILIES = (*dict.fromkeys(API_FAMILIES.values()), *OTHER_FAMILIES)


_classes: dict[str, type[Message]] = {}


@cache
def _family(family: str) -> dict[str, Schema]:
    # A file is imported at the first use of one of its messages: all files take 10 ms, and a command
    # needs a few messages.
    return {schema.name: schema for schema in import_module(f"barnabas.wire.schemas.{family}").SCHEMAS}


@cache
def schemas() -> dict[str, Schema]:
    """Name -> schema of every message."""
    return {name: schema for family in FAMILIES for name, schema in _family(family).items()}


def _schema_of(name: str) -> Schema | None:
    families = (API_FAMILIES[name],) if name in API_FAMILIES else OTHER_FAMILIES
    return next((_family(family)[name] for family in families if name in _family(family)), None)


def message_class(name: str) -> type[Message]:
    """The class of this message; KeyError if there is none of this name."""
    made = _classes.get(name)
    if made is None:
        # A broker in a thread and its test may use a message for the first time at the same time.
        # Then both make the class, and `setdefault`, which is atomic, gives both the same one.
        schema = _schema_of(name)
        if schema is None:
            raise KeyError(name)
        made = _classes.setdefault(name, codegen.make_class(schema))
        # It is an ordinary attribute of this module from now on, so that `__getattr__` is not
        # called again.
        globals()[name] = made
    return made


def request_class(api: Api) -> type[Message]:
    """The class of the API's request, made on first use."""
    return message_class(api.name + "Request")


def response_class(api: Api) -> type[Message]:
    """The class of the API's response, made on first use."""
    return message_class(api.name + "Response")


def __getattr__(name: str) -> type[Message]:
    # Python asks for names such as `__path__` at each import, which must not load the tables.
    if not name.startswith("_") and _schema_of(name) is not None:
        return message_class(name)
    raise AttributeError(f"module {__name__!r} has no message {name!r}")
