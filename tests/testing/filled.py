"""Requests of any API and version in which every array has elements, each with names of its own."""

from itertools import count

from barnabas.wire import messages as m
from barnabas.wire.apis import APIS


def filled_request(api_key, version, **changes):
    """A request with two elements in each array."""
    message = m.request_class(APIS[api_key])
    request = message(**_fields(message, message.SCHEMA.fields, version, count(1)))
    for name, value in changes.items():
        setattr(request, name, value)
    return request


def _fields(message, fields, version, numbers):
    return {
        field.name: _field(message, field, version, numbers)
        for field in fields
        if field.exists_in(version) and field.tag is None
    }


def _field(message, field, version, numbers):
    if field.is_array:
        return [_one(message, field, version, numbers) for _ in range(2)]
    return _one(message, field, version, numbers)


def _one(message, field, version, numbers):
    if field.is_struct:
        struct = getattr(message, field.element)
        return struct(**_fields(message, message.SCHEMA.fields_of(field), version, numbers))
    number = next(numbers)
    texts = {"string": f"name-{number}", "bytes": b"", "records": None, "uuid": number.to_bytes(16, "big")}
    return texts.get(field.element, {"bool": False, "float64": 0.0}.get(field.element, number % 100))
