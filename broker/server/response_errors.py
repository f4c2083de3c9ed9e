"""Counts the error codes in a response (pure): Kafka's ErrorsPerSec counts each place of a response that has a code.

Where a message has its codes is in its schema, so a function for each API is put together at its first response.
"""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.runtime import Message, Struct
from barnabas.wire.schema import Field, Schema

CODE = "error_code"

Errors = dict[int, int]  # error code -> how often; one that is missing is 0


class _Rows(NamedTuple):
    """An array of a message or struct, whose elements have codes."""

    read: Callable[[Struct], object]
    have_code: bool  # the elements themselves
    inner: "tuple[_Rows, ...]"  # arrays in the elements


class _Places(NamedTuple):
    """Where a message has its codes."""

    has_code: bool
    rows: tuple[_Rows, ...]


ONE_CODE = _Places(has_code=True, rows=())
_COUNTS: dict[type[Message], Callable[..., None]] = {}  # what is made of a schema never changes


def count_errors(response: Message, errors: Errors) -> None:
    """Add each error code of the response, NONE included. Rows that are made while they are encoded are left out."""
    cls = type(response)
    count = _COUNTS.get(cls)
    if count is None:
        count = _COUNTS[cls] = _count_of(cls)
    count(response, errors)


def _count_of(cls: type[Message]) -> Callable[..., None]:
    # Most responses are of these three classes, whose arrays lie in arrays, or have one code.
    if cls is m.ProduceResponse:
        return _count_produce
    if cls is m.FetchResponse:
        return _count_fetch
    if cls is m.MetadataResponse:
        return _count_metadata
    places = _Places(_have_code(cls.SCHEMA.fields), _rows_in(cls.SCHEMA, cls.SCHEMA.fields))
    return _count_one if places == ONE_CODE else partial(_count_all, places)


def _count_produce(response: m.ProduceResponse, errors: Errors) -> None:
    for each in response.responses:
        for result in each.partition_responses:
            errors[result.error_code] += 1


def _count_fetch(response: m.FetchResponse, errors: Errors) -> None:
    errors[response.error_code] += 1
    for topic in response.responses:
        for row in topic.partitions:
            errors[row.error_code] += 1


def _count_metadata(response: m.MetadataResponse, errors: Errors) -> None:
    for topic in response.topics if isinstance(response.topics, list | tuple) else ():
        errors[topic.error_code] += 1
        for row in topic.partitions if isinstance(topic.partitions, list | tuple) else ():
            errors[row.error_code] += 1


def _count_one(response: m.HeartbeatResponse, errors: Errors) -> None:
    errors[response.error_code] += 1


def _count_all(places: _Places, response: Message, errors: Errors) -> None:
    if places.has_code:
        code = response.error_code  # type: ignore[attr-defined]  # its schema says so
        errors[code] += 1
    for rows in places.rows:
        _count_rows(response, rows, errors)


def _count_rows(holder: Struct, rows: _Rows, errors: Errors) -> None:
    elements = rows.read(holder)
    # The elements of `Rows` (`world/rows.py`) are made while they are encoded: counting would make them a
    # second time, and a request of a few bytes may have hundreds of thousands of them.
    if not isinstance(elements, list | tuple):
        return
    for each in elements:
        if rows.have_code:
            code = each.error_code
            errors[code] += 1
        for inner in rows.inner:
            _count_rows(each, inner, errors)


# A field counts in every version: where a version lacks it, it is 0, which Kafka counts, too.
def _rows_in(schema: Schema, fields: tuple[Field, ...]) -> tuple[_Rows, ...]:
    found = []
    for field in fields:
        if field.is_struct and field.is_array:
            inner = schema.fields_of(field)
            rows = _Rows(attrgetter(field.name), _have_code(inner), _rows_in(schema, inner))
            if rows.have_code or rows.inner:
                found.append(rows)
    return tuple(found)


def _have_code(fields: tuple[Field, ...]) -> bool:
    return any(field.name == CODE for field in fields)
