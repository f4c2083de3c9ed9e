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

# The files of `schemas/`: those of the APIs; request and response headers; and what clients and coordinators store
# inside other messages and records.
FAMILIES = (
    *dict.fromkeys(api.family for api in APIS.values()),
    "headers",
    "group_records",
    "transaction_records",
    "consumer_protocol",
)


_classes: dict[str, type[Message]] = {}


@cache
def schemas() -> dict[str, Schema]:
    """Name -> schema of every message."""
    # The tables are imported at the first use, because a start that needs a few messages should not
    # import all of them.
    families = (import_module(f"barnabas.wire.schemas.{family}").SCHEMAS for family in FAMILIES)
    return {schema.name: schema for family in families for schema in family}


def message_class(name: str) -> type[Message]:
    """The class of this message; KeyError if there is none of this name."""
    made = _classes.get(name)
    if made is None:
        # A broker in a thread and its test may use a message for the first time at once. Then both make the class, and
        # `setdefault`, which is one step for all threads, gives both the same one.
        made = _classes.setdefault(name, codegen.make_class(schemas()[name]))
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
    if not name.startswith("_") and name in schemas():
        return message_class(name)
    raise AttributeError(f"module {__name__!r} has no message {name!r}")
