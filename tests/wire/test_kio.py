"""Every message and version against kio 0.5.0, an independent codec generated from Kafka 3.9's own definitions.

Both directions: what Barnabas encodes, kio decodes to the same values and encodes to the same bytes; what kio makes up
and encodes, Barnabas decodes to the same values and encodes to the same bytes.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.schema import Field, Schema
from tests.wire.kafka_apis import KAFKA_APIS
from tests.wire.kio_process import answers_of_kio

STRINGS = ("", "a", "topic-1", "Sordini \u010d \U0001f4ef", "s" * 126, "s" * 127)
BLOBS = (b"", b"\x00", bytes(range(256)))
SEEDS = range(4)

# kio knows the protocol of Kafka: no API that Kafka does not have, and not what coordinators write into their topics.
UNKNOWN = {
    "OffsetCommitKey",
    "OffsetCommitValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "TransactionLogKey",
    "TransactionLogValue",
}
COMPARED = sorted(
    name
    for name, schema in m.schemas().items()
    if name not in UNKNOWN and (schema.key is None or schema.key in KAFKA_APIS)
)
VERSIONS = [
    (name, v) for name in COMPARED for v in range(m.schemas()[name].min_version, m.schemas()[name].max_version + 1)
]


def make(schema: Schema, version: int, rng: random.Random) -> m.Message:
    return m.message_class(schema.name)(**make_fields(schema, schema.fields, version, rng))


def make_fields(schema: Schema, fields: tuple[Field, ...], version: int, rng: random.Random) -> dict[str, Any]:
    return {field.name: make_field(schema, field, version, rng) for field in fields if field.exists_in(version)}


def make_field(schema: Schema, field: Field, version: int, rng: random.Random) -> Any:
    if field.nullable_in(version) and rng.random() < 0.3:
        return None
    if field.is_array:
        return [make_one(schema, field, version, rng) for _ in range(rng.choice((0, 1, 3)))]
    return make_one(schema, field, version, rng)


def make_one(schema: Schema, field: Field, version: int, rng: random.Random) -> Any:
    if field.is_struct:
        struct = getattr(m.message_class(schema.name), field.element)
        return struct(**make_fields(schema, schema.fields_of(field), version, rng))
    if field.element.startswith("int"):
        return make_int(field, rng)
    return {
        "bool": lambda: rng.random() < 0.5,
        "float64": lambda: rng.choice((0.0, -1.5, 1e300)),
        "string": lambda: rng.choice(STRINGS),
        "bytes": lambda: rng.choice(BLOBS),
        "records": lambda: rng.choice(BLOBS),
        "uuid": lambda: rng.choice((bytes(16), rng.randbytes(16))),
    }[field.element]()


def make_int(field: Field, rng: random.Random) -> int:
    """An int that kio can represent: it has enum members for error codes, whole seconds in bounds for times."""
    if field.name.endswith("error_code"):
        return int(rng.choice(list(ErrorCode)))
    if field.element == "int64" and field.name.endswith("_ms"):
        never = () if field.name.endswith(("timestamp_ms", "start_time_ms")) else (-1,)  # kio's are always dates
        return rng.choice((*never, 0, 1_700_000_000_000))
    top = 1 << (int(field.element[3:]) - 1)
    return rng.choice((0, 1, -1, top - 1, -top, rng.randrange(-top, top)))


def plain(schema: Schema, fields: tuple[Field, ...], value: Any, version: int) -> list[list[Any]]:
    """A message in the form of the oracle's answers."""
    present = [field for field in fields if field.exists_in(version)]
    return [[field.name, plain_field(schema, field, getattr(value, field.name), version)] for field in present]


def plain_field(schema: Schema, field: Field, value: Any, version: int) -> Any:
    if isinstance(value, list | tuple):
        return [plain_field(schema, field, item, version) for item in value]
    if field.is_struct and value is not None:
        return plain(schema, schema.fields_of(field), value, version)
    return value.hex() if isinstance(value, bytes | memoryview) else value


def questions() -> Iterator[dict[str, Any]]:
    for name, version in VERSIONS:
        for seed in SEEDS:
            made = make(m.schemas()[name], version, random.Random(f"{name} {version} {seed}"))
            yield {"message": name, "version": version, "hex": m.encode(made, version).hex()}
            yield {"message": name, "version": version, "seed": seed}


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, Any]]]]:
    """All questions with kio's answers, by message and version; one run of the oracle."""
    asked = list(questions())
    found: dict[tuple[str, int], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for question, answer in zip(asked, answers_of_kio(asked), strict=True):
        found.setdefault((question["message"], question["version"]), []).append((question, answer))
    return found


@pytest.mark.parametrize("name", COMPARED)
def test_kio_reads_what_barnabas_writes_and_writes_the_same_bytes(name: str, answers: Any) -> None:
    schema = m.schemas()[name]
    for version in range(schema.min_version, schema.max_version + 1):
        for question, answer in answers[name, version]:
            if "hex" in question:
                ours = m.decode(m.message_class(name), version, bytes.fromhex(question["hex"]))
                expected = {"value": plain(schema, schema.fields, ours, version), "hex": question["hex"]}
                assert answer == expected, f"{name} v{version}"


@pytest.mark.parametrize("name", COMPARED)
def test_barnabas_reads_what_kio_writes_and_writes_the_same_bytes(name: str, answers: Any) -> None:
    schema = m.schemas()[name]
    for version in range(schema.min_version, schema.max_version + 1):
        for question, answer in answers[name, version]:
            if "seed" in question:
                assert "error" not in answer, f"{name} v{version}: {answer}"
                theirs = bytes.fromhex(answer["hex"])
                decoded, end = m.decode_from(m.message_class(name), version, theirs, 0)
                assert end == len(theirs), f"{name} v{version}"
                assert plain(schema, schema.fields, decoded, version) == answer["value"], f"{name} v{version}"
                assert m.encode(decoded, version) == theirs, f"{name} v{version}"
