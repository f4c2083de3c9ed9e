"""Messages, entries of the request log and records as JSON, and messages from JSON (pure).

A message is an object with the fields of `wire/schemas`, whose names are Kafka's in snake_case. Bytes are base64, a
uuid is in Kafka's own text form, and what the request log has left out is {"left_out_bytes": 1234}.
"""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence

from barnabas.testing.errors import FaultError
from barnabas.testing.faults.entries import Entry
from barnabas.testing.faults.faults import Fault
from barnabas.testing.faults.matching import nearest
from barnabas.testing.faults.shortened import Left
from barnabas.testing.looking.records import StoredRecord
from barnabas.wire import messages as m
from barnabas.wire.schema import Field, Schema
from barnabas.wire.topics import topic_id_from_text, topic_id_text

Json = object
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}  # bits


# -- to JSON


def of_value(value: object) -> Json:
    """Whatever a field of a message has."""
    if isinstance(value, m.Struct):
        return {name: of_value(getattr(value, name)) for name in value.FIELDS}
    if isinstance(value, Left):
        return {"left_out_bytes": len(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [of_value(each) for each in value]
    return value


def of_message(message: m.Message | None) -> Json:
    """A message with its fields; None for none."""
    if message is None:
        return None
    return _of_struct(message, message.SCHEMA, message.SCHEMA.fields)


def _of_struct(struct: m.Struct, schema: Schema, fields: Iterable[Field]) -> Json:
    found: dict[str, Json] = {}
    for field in fields:
        # A field that its version lacks has its default here, as in Python.
        value = getattr(struct, field.name)
        if field.is_struct and value is not None:
            inner = schema.fields_of(field)
            rows = value if field.is_array else [value]
            made = [_of_struct(row, schema, inner) for row in rows]
            found[field.name] = made if field.is_array else made[0]
        elif field.element == "uuid" and value is not None:
            # Topic ids are 16 bytes, which base64 would show with padding.
            ids = [topic_id_text(bytes(each)) for each in (value if field.is_array else [value])]
            found[field.name] = ids if field.is_array else ids[0]
        else:
            found[field.name] = of_value(value)
    return found


def of_entry(entry: Entry) -> dict[str, Json]:
    """A request with its response."""
    return {
        "number": entry.number,
        "text": str(entry),
        "api": entry.api,
        "version": entry.version,
        "client_id": entry.client_id,
        "software_name": entry.software_name,
        "software_version": entry.software_version,
        "connection": entry.connection,
        "broker_id": entry.broker_id,
        "time_ms": entry.time_ms,
        "outcome": entry.outcome,
        "errors": entry.errors,
        "fault": entry.fault,
        "producer_id": entry.producer_id,
        "request": of_message(entry.request),
        "response": of_message(entry.response),
    }


def of_fault(fault_id: str, fault: Fault) -> dict[str, Json]:
    """A fault: what it is, how often it fired, and whether it is removed."""
    return {"id": fault_id, "fault": str(fault), "fired": fault.fired, "is_removed": fault.removed.is_set}


def of_record(record: StoredRecord) -> dict[str, Json]:
    """A record; a key, value or header that is no UTF-8 is under another name, as base64."""
    headers = [{"name": name, **_of_bytes("value", value)} for name, value in record.headers]
    return {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **_of_bytes("key", record.key),
        **_of_bytes("value", record.value),
        "headers": headers,
        "producer_id": record.producer_id,
        "transaction": record.transaction,
    }


def _of_bytes(name: str, value: bytes | None) -> dict[str, Json]:
    if value is None:
        return {name: None}
    # Tests compare texts. Bytes that are no text come under a name of their own.
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


# -- from JSON


def message_from(cls: type[m.Message], value: Json) -> m.Message:
    """The message with these fields, others by their defaults. FaultError names what is wrong with it."""
    made = _struct_from(cls, cls, cls.SCHEMA.fields, value, cls.SCHEMA.name)
    assert isinstance(made, m.Message)
    return made


def _struct_from(
    message: type[m.Message], cls: type[m.Struct], fields: Sequence[Field], value: Json, where: str
) -> m.Struct:
    if not isinstance(value, Mapping):
        raise FaultError(f"{where}: an object, not {value!r}")
    # Without this a misspelled field would have its default, and the response would not be the one
    # that was meant.
    by_name = {field.name: field for field in fields}
    for name in value:
        if name not in by_name:
            raise FaultError(f"{where} has no field {name!r}{nearest(name, by_name)}")
    return cls(**{name: _field_from(message, by_name[name], each, f"{where}.{name}") for name, each in value.items()})


def _field_from(message: type[m.Message], field: Field, value: Json, where: str) -> object:
    if value is None and field.nullable is not None:
        return None
    if not field.is_array:
        return _element_from(message, field, value, where)
    if not isinstance(value, list):
        raise FaultError(f"{where}: a list, not {value!r}")
    return [_element_from(message, field, each, f"{where}[{number}]") for number, each in enumerate(value)]


def _element_from(message: type[m.Message], field: Field, value: Json, where: str) -> object:
    if field.is_struct:
        inner: type[m.Struct] = getattr(message, field.element)
        return _struct_from(message, inner, message.SCHEMA.fields_of(field), value, where)
    if field.element == "bool" and isinstance(value, bool):
        return value
    if field.element in INTEGERS and isinstance(value, int) and not isinstance(value, bool):
        # A number beyond the bits of its field could not be encoded, which a client would see as a
        # closed connection.
        limit = 1 << (INTEGERS[field.element] - 1)
        if -limit <= value < limit:
            return value
    if field.element == "float64" and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            # JSON can have half of a surrogate pair, which is no character and cannot be encoded.
            if field.element == "string":
                value.encode("utf-8")
                return value
            if field.element == "uuid":
                return topic_id_from_text(value)
            if field.element in ("bytes", "records"):
                return base64.b64decode(value, validate=True)
        # The text is none of the type, which is said below as of every other value.
        except (ValueError, binascii.Error):
            pass
    raise FaultError(f"{where}: a value of Kafka's type {field.element}, not {value!r}")
