"""One request and its response, as the request log and the faults remember them (pure).

Records and other long bytes are kept as their sizes, so that an entry is small, and secrets are, too. Messages are kept
encoded, and decoded for who reads them; of large ones, which the broker takes apart, the first rows are copied.
"""

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

from barnabas.broker.interception import Caller
from barnabas.testing.faults.row_cuts import FIELDS
from barnabas.testing.faults.rows import LAYOUTS
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import error_name
from barnabas.wire.record_batch import BATCH_OVERHEAD_BYTES, BatchHeader, read_batch_header, read_kind
from barnabas.wire.schema import Field, Schema

BLOB_BYTES_MAX = 1024
ROWS_MAX = 1000  # of one message
ENTRY_BYTES = 1000  # about
ROW_BYTES = 300
BATCH_MAGIC = 2
SECRETS = {"auth_bytes", "salted_password", "salt", "hmac"}
NAMES_SHOWN = 3
FEW = 50  # rows of an array
# SaslAuthenticate, CreateDelegationToken to DescribeDelegationToken, AlterUserScramCredentials
SECRET_KEYS = frozenset({36, 38, 39, 40, 41, 51})


class Left(NamedTuple):
    """Stands in a kept message for bytes that were left out."""

    size_bytes: int
    head: bytes = b""  # of records: the header of the first batch

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        return f"<{self.size_bytes} bytes>"

    @property
    def batch(self) -> BatchHeader | None:
        """The header of the first batch of records, if it is of format 2."""
        if len(self.head) < BATCH_OVERHEAD_BYTES or read_kind(self.head)[1] != BATCH_MAGIC:
            return None
        return read_batch_header(self.head)


class Entry:
    """A request of a client and its response. The fields of the request can be read from the entry itself.

    `outcome` is "answered", "dropped" (the connection was closed), "no response" (acks=0), or "waits".
    """

    __slots__ = (
        *(
            "_is_whole",
            "_left",
            "_request",
            "_response",
            "api_key",
            "broker_id",
            "client_id",
            "connection",
            "fault",
            "number",
        ),
        *("outcome", "size_bytes", "software", "time_ms", "version"),
    )

    def __init__(self, call: Caller, request: m.Message) -> None:
        self.api_key = call.api_key
        self.version = call.version
        self.client_id = call.client_id
        self.connection = call.connection_number
        self.number = 0  # rises by one with each request that the log sees
        self.broker_id = 0
        self.time_ms = 0  # since 1970, by the broker's clock
        self.software: tuple[str, str] | None = None  # name and version
        self.size_bytes = ENTRY_BYTES
        self.outcome = "waits"
        self.fault: str | None = None  # the fault that hit it
        self._request: m.Message | bytes = request
        self._response: m.Message | bytes | None = None
        # Of records that were left out: their sizes, and the header of the first batch, in the order of the message.
        self._left: tuple[tuple[int, bytes], ...] = ()
        # The broker takes large requests apart when they are done.
        if call.api_key in SECRET_KEYS or _is_large(request):
            self._request = self._keep(request)
        self._is_whole = self._request is request

    def answered(self, response: m.Message | None) -> None:
        """The request is done, and its response is known."""
        if self._is_whole and isinstance(self._request, m.Message):
            self._request = self._pack(self._request)
        if response is None:
            self.outcome = "no response"
            return
        self.outcome = "answered"
        if self.api_key in SECRET_KEYS or _is_large(response):
            self._response = self._keep(response)
        else:
            self._response = self._pack(response)

    @property
    def api(self) -> str:
        """The name of the API."""
        return APIS[self.api_key].name

    @property
    def request(self) -> Any:
        """The request, with sizes in place of records and of long bytes."""
        return self._read(self._request, m.request_class(APIS[self.api_key]))

    @property
    def response(self) -> Any:
        """The response in the same way; None if there is none, or not yet."""
        return None if self._response is None else self._read(self._response, m.response_class(APIS[self.api_key]))

    @property
    def software_name(self) -> str:
        """The name of the client's software, if the log has seen the beginning of its connection."""
        return "" if self.software is None else self.software[0]

    @property
    def software_version(self) -> str:
        """The version of that software."""
        return "" if self.software is None else self.software[1]

    @property
    def producer_id(self) -> int:
        """Of the first batch of a Produce, or of the request; -1 if it has none."""
        request = self.request
        if not isinstance(request, m.ProduceRequest):
            return int(getattr(request, "producer_id", -1))
        kept: list[object] = [each.records for topic in request.topic_data for each in topic.partition_data]
        headers = [each.batch for each in kept if isinstance(each, Left)]
        return next((header.producer_id for header in headers if header is not None), -1)

    @property
    def errors(self) -> list[str]:
        """The names of the errors in the response, each once."""
        return [] if self._response is None else list(dict.fromkeys(_errors_of(self.response)))

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in m.request_class(APIS[self.api_key]).FIELDS:
            return getattr(self.request, name)
        raise AttributeError(f"neither an entry nor its {self.api} has {name!r}")

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        about = subjects_text(self.api_key, self.request)
        ended = self.outcome if self.outcome != "answered" else ", ".join(self.errors) or "ok"
        hit = f" [{self.fault}]" if self.fault else ""
        client = f"{self.client_id or '-'}#{self.connection}"
        return f"{self.number:4} {client:20} {self.broker_id} {self.api} v{self.version}{about} -> {ended}{hit}"

    def _keep(self, message: m.Message) -> m.Message:
        keeping = _Keeping()
        kept = keeping.of(message, _plan_of(message.SCHEMA.name))
        self.size_bytes += keeping.size_bytes
        assert isinstance(kept, m.Message)
        return kept

    def _pack(self, message: m.Message) -> m.Message | bytes:
        """The message encoded: objects would take more memory, and much of the time of the garbage collector."""
        rows = _rows_with_records(message)
        records = [row.records for row in rows]
        left = [_left_of(each) for each in records]
        for row in rows:
            row.records = None
        try:
            data = m.encode(message, self.version)
        # A response that cannot be sent either.
        except (ValueError, TypeError, AttributeError, struct.error):
            return self._keep(message)
        finally:
            # A response is still to be sent. A request is done, and the memory of its records is the connection's.
            if isinstance(message, m.FetchResponse):
                for response_row, each in zip(rows, records, strict=True):
                    response_row.records = each
        if left:
            self._left = tuple(left)
        self.size_bytes += len(data)
        return data

    def _read(self, kept: m.Message | bytes, cls: type[m.Message]) -> m.Message:
        if isinstance(kept, bytes):
            message = m.decode(cls, self.version, kept)
            for row, (size_bytes, head) in zip(_rows_with_records(message), self._left, strict=False):
                row.records = Left(size_bytes, head) if size_bytes >= 0 else None
        else:
            message = kept
        shown = _Keeping().of(message, _plan_of(message.SCHEMA.name))
        assert isinstance(shown, m.Message)
        return shown


def _rows_with_records(message: m.Message) -> "Sequence[_Row]":
    if isinstance(message, m.ProduceRequest):
        return [data for topic in message.topic_data for data in topic.partition_data]
    if isinstance(message, m.FetchResponse):
        return [row for topic in message.responses for row in topic.partitions]
    return ()


class _Row(Protocol):
    """A struct with records."""

    records: Any


def _left_of(records: object) -> tuple[int, bytes]:
    if isinstance(records, bytes | bytearray | memoryview):
        return len(records), bytes(records[:BATCH_OVERHEAD_BYTES])
    return (-1, b"") if records is None else (_size_bytes(records), b"")


def _is_large(message: m.Message) -> bool:
    """Whether it has so many rows that the broker takes it apart, or that the log should keep only some of them."""
    for name in message.ARRAYS:
        elements = getattr(message, name)
        if not elements:
            continue
        if len(elements) > FEW:
            return True
        for element in elements:
            if isinstance(element, m.Struct):
                for inner in element.ARRAYS:
                    rows = getattr(element, inner)
                    if rows and len(rows) > FEW:
                        return True
    return False


def subjects_text(api_key: int, request: m.Message) -> str:
    """What a request is about: " group 'g' topic 'a', 'b'"; nothing if it names nothing."""
    text = ""
    for subject, names in FIELDS.items():
        named = [getattr(request, name) for name in names if name in request.FIELDS]
        text += "".join(f" {subject.replace('_', ' ')} {name!r}" for name in named if name)
    for layout in LAYOUTS.get(api_key, ()):
        level = layout.request[0]
        elements = getattr(request, level.field) or ()
        found = [each if level.key is None else getattr(each, level.key) for each in elements[: NAMES_SHOWN + 1]]
        shown = [repr(name) for name in found[:NAMES_SHOWN] if name]
        if shown:
            more = ", …" if len(found) > NAMES_SHOWN else ""
            return f"{text} {level.subject.replace('_', ' ')} {', '.join(shown)}{more}"
    return text


class _Plan(NamedTuple):
    """How a struct is copied: which fields as they are, and which with care."""

    cls: type[m.Struct]
    plain: tuple[str, ...]
    blobs: tuple[str, ...]
    lists: tuple[str, ...]
    structs: "tuple[tuple[str, _Plan], ...]"


@cache
def _plan_of(name: str) -> _Plan:
    message = m.message_class(name)
    return _plan(message, message, message.SCHEMA, message.SCHEMA.fields)


def _plan(cls: type[m.Struct], message: type[m.Message], schema: Schema, fields: Iterable[Field]) -> _Plan:
    plain = []
    blobs = []
    lists = []
    structs = []
    for field in fields:
        if field.is_struct and field.is_array:
            inner: type[m.Struct] = getattr(message, field.element)
            structs.append((field.name, _plan(inner, message, schema, schema.fields_of(field))))
        elif field.is_array:
            lists.append(field.name)
        elif field.type in ("bytes", "records"):
            blobs.append(field.name)
        # A single struct is its default, which all share, or was made for this message.
        else:
            plain.append(field.name)
    return _Plan(cls, tuple(plain), tuple(blobs), tuple(lists), tuple(structs))


class _Keeping:
    """Copies one message, up to its limit of rows."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._rows = 0

    def of(self, struct: m.Struct, plan: _Plan) -> m.Struct:
        """A copy without long bytes."""
        kept = plan.cls.__new__(plan.cls)
        self._rows += 1
        self.size_bytes += ROW_BYTES
        for name in plan.plain:
            setattr(kept, name, getattr(struct, name))
        for name in plan.blobs:
            setattr(kept, name, self._blob(name, getattr(struct, name)))
        for name in plan.lists:
            values = getattr(struct, name)
            setattr(kept, name, values and tuple(values[:ROWS_MAX]))
        for name, inner in plan.structs:
            elements: Sequence[m.Struct] | None = getattr(struct, name)
            setattr(kept, name, elements and self._some(elements, inner))
        return kept

    def _some(self, elements: Sequence[m.Struct], plan: _Plan) -> list[m.Struct]:
        some = []
        for element in elements:
            if self._rows >= ROWS_MAX:
                break
            some.append(self.of(element, plan))
        return some

    def _blob(self, name: str, value: object) -> object:
        if value is None or isinstance(value, Left):
            return value
        if name == "records" and isinstance(value, bytes | bytearray | memoryview):
            return Left(len(value), bytes(value[:BATCH_OVERHEAD_BYTES]))
        if not isinstance(value, bytes | bytearray | memoryview):
            return Left(_size_bytes(value))
        if name in SECRETS or len(value) > BLOB_BYTES_MAX:
            return Left(len(value))
        self.size_bytes += len(value)
        return bytes(value)


def _size_bytes(value: object) -> int:
    """The size of a payload: one piece, or several, each in memory or in a file."""
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(_size_bytes, value))
    return int(getattr(value, "size_bytes", 0))


def _errors_of(struct: m.Struct) -> list[str]:
    found = []
    for name in struct.FIELDS:
        value = getattr(struct, name)
        if name.endswith("error_code") and value:
            found.append(error_name(value))
        elif isinstance(value, list):
            found += [each for element in value if isinstance(element, m.Struct) for each in _errors_of(element)]
    return found
