"""Counts the error codes in a response (pure): Kafka's ErrorsPerSec counts each place of a response that has a code.

Where a message has its codes is in its schema, so a function for each API is put together at its first response.
"""

from collections.abc import Callable
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


_PLACES: dict[str, _Places] = {}  # by the name of the message: what is made of its schema never changes


def count_errors(response: Message, errors: Errors) -> None:
    """Add each error code of the response, NONE included. Rows that are made while they are encoded are left out."""
    # Most responses are of these two, which have arrays in arrays. Produce comes first, because its requests are
    # smaller.
    if type(response) is m.ProduceResponse:
        for each in response.responses:
            for result in each.partition_responses:
                errors[result.error_code] += 1
    elif type(response) is m.FetchResponse:
        errors[response.error_code] += 1
        for topic in response.responses:
            for row in topic.partitions:
                errors[row.error_code] += 1
    else:
        _count_all(response, errors)


def _count_all(response: Message, errors: Errors) -> None:
    places = _places_of(type(response))
    if places.has_code:
        code = response.error_code  # type: ignore[attr-defined]  # its schema says so
        errors[code] += 1
    for rows in places.rows:
        _count_rows(response, rows, errors)


def _count_rows(holder: Struct, rows: _Rows, errors: Errors) -> None:
    elements = rows.read(holder)
    # Rows that are made while they are encoded (`world/rows.py`) would be made a second time. They are
    # used where a request of a few bytes has hundreds of thousands of them.
    if not isinstance(elements, list | tuple):
        return
    for each in elements:
        if rows.have_code:
            code = each.error_code
            errors[code] += 1
        for inner in rows.inner:
            _count_rows(each, inner, errors)


def _places_of(cls: type[Message]) -> _Places:
    places = _PLACES.get(cls.__name__)
    if places is None:
        schema = cls.SCHEMA
        places = _PLACES[cls.__name__] = _Places(_have_code(schema.fields), _rows_in(schema, schema.fields))
    return places


# A field counts whatever the version is: one that a version lacks is 0, and Kafka counts it so.
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
