"""Answers questions about messages with kio, an independent codec of Kafka 3.9, in an interpreter that has it.

`test_kio` runs this program once, writes one JSON question a line and reads one JSON answer a line:

    {"message": "FetchRequest", "version": 12, "hex": "..."}  decode these bytes, and encode what was decoded
    {"message": "FetchRequest", "version": 12, "seed": 3}     make up a message, and encode it
    -> {"value": [["max_wait_ms", 500], ...], "hex": "..."}   or {"error": "..."}

A value is a list of [name, value] in the order of the fields: times as milliseconds, bytes and uuids as hex, names as
Barnabas has them. It runs with kio alone and imports nothing of Barnabas.
"""

import dataclasses
import datetime
import importlib
import io
import json
import random
import re
import sys
import uuid
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field, get_field_tag, get_schema_field_type, is_optional

STRINGS = ("", "a", "topic-1", "Klamm \u017e \U0001f3f0", "k" * 130)
BLOBS = (b"", b"\x00", bytes(range(256)))
MODULES = {"Request": "request", "Response": "response", "Header": "header"}


def entity_class(message: str, version: int) -> Any:
    """The class of this message and version: kio has one for each."""
    if message.endswith("Header"):
        folder, module = message, "header"
    else:
        stem = re.fullmatch(r"(\w+?)(Request|Response)?", message)
        assert stem is not None
        folder, module = stem[1], MODULES.get(stem[2] or "", "data")
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", folder).lower()
    return getattr(importlib.import_module(f"kio.schema.{folder}.v{version}.{module}"), message)


def our_name(field: Any) -> str:
    """The field's name in Barnabas: kio drops the unit of a time, and guards keywords by an underscore."""
    timed = field.metadata.get("kafka_type", "").startswith(("timedelta", "datetime"))
    return str(field.name).rstrip("_").replace("k_raft", "kraft") + ("_ms" if timed else "")


def plain(value: Any) -> Any:
    """A decoded value as JSON can hold it."""
    if dataclasses.is_dataclass(value):
        return [
            [our_name(field), plain_field(field, getattr(value, field.name))] for field in dataclasses.fields(value)
        ]
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return value.hex
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, bool | str | float):
        return value
    return int(value)


def plain_field(field: Any, value: Any) -> Any:
    if value is None and field.metadata.get("kafka_type") == "uuid":
        return bytes(16).hex()  # kio has None for the zero uuid
    if value is None and field.metadata.get("kafka_type") == "datetime_i64":
        return -1
    return plain(value)


def make(cls: Any, rng: random.Random) -> Any:
    """A message with made-up values, from kio's own description of its fields."""
    return cls(**{field.name: make_field(field, rng) for field in dataclasses.fields(cls)})


def make_field(field: Any, rng: random.Random) -> Any:
    kind = classify_field(field)
    if is_optional(field) and rng.random() < 0.3:
        return None
    if get_field_tag(field) is not None and rng.random() < 0.3 and field.default is not dataclasses.MISSING:
        return field.default
    if dataclasses.is_dataclass(kind.type_):
        one = lambda: make(kind.type_, rng)  # noqa: E731
    else:
        kafka_type = get_schema_field_type(field)
        one = lambda: make_primitive(kafka_type, rng)  # noqa: E731
    return tuple(one() for _ in range(rng.choice((0, 1, 3)))) if kind.is_array else one()


def make_primitive(kafka_type: str, rng: random.Random) -> Any:
    if kafka_type.startswith("int"):
        top = 1 << (int(kafka_type[3:]) - 1)
        return rng.choice((0, 1, -1, top - 1, -top, rng.randrange(-top, top)))
    return {
        "bool": lambda: rng.random() < 0.5,
        "float64": lambda: rng.choice((0.0, -1.5, 1e300)),
        "string": lambda: rng.choice(STRINGS),
        "bytes": lambda: rng.choice(BLOBS),
        "records": lambda: rng.choice(BLOBS),
        "uuid": lambda: uuid.UUID(int=rng.getrandbits(128)),
        "error_code": lambda: rng.choice(list(ErrorCode)),
        "timedelta_i32": lambda: datetime.timedelta(milliseconds=rng.choice((0, 1, 30_000, 2**31 - 1, -(2**31)))),
        "timedelta_i64": lambda: datetime.timedelta(milliseconds=rng.choice((-1, 0, 86_400_000))),
        "datetime_i64": lambda: datetime.datetime.fromtimestamp(rng.randrange(2**31), datetime.UTC),
    }[kafka_type]()


def answer(question: dict[str, Any]) -> dict[str, Any]:
    cls = entity_class(question["message"], question["version"])
    if "seed" in question:
        entity = make(cls, random.Random(question["seed"]))
    else:
        data = bytes.fromhex(question["hex"])
        entity, size = entity_reader(cls)(data, 0)
        if size != len(data):
            return {"error": f"{len(data) - size} bytes are left over"}
    with io.BytesIO() as buffer:
        entity_writer(cls)(buffer, entity)
        return {"value": plain(entity), "hex": buffer.getvalue().hex()}


def main() -> None:
    for line in sys.stdin:
        question = json.loads(line)
        try:
            reply = answer(question)
        except Exception as error:  # reported to the test, which fails with it
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply))


if __name__ == "__main__":
    main()
