"""One request and its response, as the request log and the faults remember them (pure).

The bytes of their frames are kept, and decoded for who reads them: that costs the broker a copy of the request, and of
the response nothing. Of long requests a copy without their records is kept, or one of their first rows. Secrets are
never kept. Who reads an entry gets sizes in place of records, of other long bytes and of secrets.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol

from barnabas.storage.disk import FileSlice
from barnabas.testing.faults.row_cuts import FIELDS
from barnabas.testing.faults.rows import LAYOUTS
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, response_header_version
from barnabas.wire.errors import error_name
from barnabas.wire.record_batch import BATCH_OVERHEAD_BYTES, BatchHeader, read_batch_header, read_kind
from barnabas.wire.schema import Field, Schema
from barnabas.world.waiting import Pieces

PRODUCE = 0
BLOB_BYTES_MAX = 1024  # of a value that is shown
ROWS_MAX = 1000  # of one message
ENTRY_BYTES = 700  # of an entry without its messages, about
ROW_BYTES = 300
REQUEST_BYTES_MAX = 1 << 20  # of a request that is kept as it came
RECORDS_BYTES_MAX = 1 << 15  # of one with records
RESPONSE_BYTES_MAX = 8 << 20  # of one in several pieces; one piece is shorter
BATCH_MAGIC = 2
SECRETS = {"auth_bytes", "salted_password", "salt", "hmac"}
NAMES_SHOWN = 3
# SaslAuthenticate, CreateDelegationToken to DescribeDelegationToken, AlterUserScramCredentials
SECRET_KEYS = frozenset({36, 38, 39, 40, 41, 51})
# Longer requests are copied without their records; those with secrets always.
KEPT_BYTES_MAX = {PRODUCE: RECORDS_BYTES_MAX, **dict.fromkeys(SECRET_KEYS, -1)}
PREFIX_BYTES = 8  # of a response: its length and the correlation id


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


class Log(Protocol):
    """The request log."""

    waiting: int  # threads that wait for a change

    def wake(self) -> None:
        """Have them look again."""


class Page(Protocol):
    """Where a log has its entries."""

    size_bytes: int  # of them all

    @property
    def log(self) -> Log: ...


# The fields of a `Head`. To make one takes as long as the rest of a log's work.
_Head = tuple[int, int, str | None, int, int, tuple[int, int], int, int, Mapping[tuple[int, int], tuple[str, str]]]


class Head(NamedTuple):
    """What is known of a request before it is decoded."""

    api_key: int
    version: int
    client_id: str | None
    connection: int
    number: int
    came: tuple[int, int]  # the broker, and when (ms since 1970)
    body_start: int  # in the frame
    size_bytes: int  # of the frame
    software: Mapping[tuple[int, int], tuple[str, str]]  # broker and connection -> name and version


class Entry:
    """A request of a client and its response. The fields of the request can be read from the entry itself.

    `outcome` is "answered", "dropped" or "refused" (the connection was closed), "no response" (acks=0), or "waits".
    """

    # What most entries have is said once, in the class: each attribute that is set costs a request.
    outcome = "waits"
    fault: str | None = None  # the fault that hit it
    page: Page | None  # where it is in the log; None if no log has it, or has forgotten it
    _response: "_Kept | None" = None
    _response_version: int | None = None  # if it is not that of the request

    def __init__(self, head: _Head, request: m.Message | None, frame: bytes | memoryview, page: Page | None) -> None:
        """`head`: the fields of `Head`. `frame` may end in the records (`interception.py`)."""
        self._head = head
        self.page = page
        kept_bytes = len(frame)
        self._request: _Kept
        # The leader writes into the records, so a frame that is no copy yet is copied.
        if kept_bytes <= KEPT_BYTES_MAX.get(head[0], REQUEST_BYTES_MAX):
            self._request = bytes(frame)
            self.size_bytes = ENTRY_BYTES + kept_bytes
        else:
            assert request is not None, "what was not decoded is short"
            self._request = _copied(request)
            self.size_bytes = ENTRY_BYTES + _memory_of(self._request)

    def answered(self, version: int, pieces: Pieces) -> None:
        """Its response is about to be sent: the pieces of the frame, in this version of the API."""
        self.outcome = "answered"
        kept = pieces[0] if len(pieces) == 1 else None
        # The usual response is one piece that does not change: it is kept without a copy.
        if type(kept) is bytes and version == self._head[1] and self._head[0] not in SECRET_KEYS:
            self._response = kept
            response_bytes = len(kept)
        else:
            response_bytes = self._keep(version, pieces)
        # Both sizes grow by the same bytes, so that the page's is 0 again when all are forgotten. Those that are too
        # many are forgotten when the next request comes.
        self.size_bytes += response_bytes
        page = self.page
        if page is not None:
            page.size_bytes += response_bytes
            if page.log.waiting:
                page.log.wake()

    def _keep(self, version: int, pieces: Pieces) -> int:
        """Keep what may be kept of an unusual response; how much memory it takes."""
        if version != self.version:
            self._response_version = version
        kept = _kept_pieces(pieces)
        if kept is None:
            return 0
        if self.api_key not in SECRET_KEYS:
            self._response = kept
            return sum(len(piece) for piece in kept if isinstance(piece, bytes))
        readable = self._read(kept, version, m.response_class(APIS[self.api_key]), self._response_start)
        self._response = readable
        return _memory_of(readable)

    def ended(self, outcome: str) -> None:
        """It has no response, or only a part of that is sent."""
        self.outcome = outcome
        if self.page is not None and self.page.log.waiting:
            self.page.log.wake()

    @property
    def head(self) -> Head:
        """What is known without decoding."""
        return Head(*self._head)

    @property
    def api_key(self) -> int:
        """The key of the API."""
        return self.head.api_key

    @property
    def version(self) -> int:
        """The version of the API."""
        return self.head.version

    @property
    def client_id(self) -> str | None:
        """What the client calls itself."""
        return self.head.client_id

    @property
    def connection(self) -> int:
        """The number of its connection."""
        return self.head.connection

    @property
    def number(self) -> int:
        """Rises by one with each request that the log sees."""
        return self.head.number

    @property
    def broker_id(self) -> int:
        """The broker to which it was sent."""
        return self.head.came[0]

    @property
    def time_ms(self) -> int:
        """When it came: since 1970, by the broker's clock."""
        return self.head.came[1]

    @property
    def api(self) -> str:
        """The name of the API."""
        return APIS[self.api_key].name

    @property
    def request(self) -> Any:
        """The request, with sizes in place of records and of long bytes."""
        kept = self._request
        # The rest is records, of which the size is shown.
        if isinstance(kept, bytes):
            kept = kept.ljust(self.head.size_bytes, b"\0")
        return self._read(kept, self.version, m.request_class(APIS[self.api_key]), self.head.body_start)

    @property
    def response(self) -> Any:
        """The response in the same way; None if there is none, or not yet, or if it is longer than 8 MiB."""
        if self._response is None:
            return None
        cls = m.response_class(APIS[self.api_key])
        return self._read(self._response, self._version_of_response, cls, self._response_start)

    @property
    def software_name(self) -> str:
        """The name of the client's software, if the log has seen the beginning of its connection."""
        return self.head.software.get((self.broker_id, self.connection), ("", ""))[0]

    @property
    def software_version(self) -> str:
        """The version of that software."""
        return self.head.software.get((self.broker_id, self.connection), ("", ""))[1]

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
        # A client chooses its id, and a terminal obeys what is not printable.
        name = self.client_id or "-"
        client = f"{name if name.isprintable() else repr(name)[1:-1]}#{self.connection}"
        return f"{self.number:4} {client:20} {self.broker_id} {self.api} v{self.version}{about} -> {ended}{hit}"

    @property
    def _response_start(self) -> int:
        return PREFIX_BYTES + response_header_version(self.api_key, self._version_of_response)

    @property
    def _version_of_response(self) -> int:
        return self.version if self._response_version is None else self._response_version

    @staticmethod
    def _read(kept: "_Kept", version: int, cls: type[m.Message], body_start: int) -> m.Message:
        """The message that was kept, as it is shown."""
        if isinstance(kept, m.Message):
            return kept
        whole = kept if isinstance(kept, bytes) else b"".join(map(bytes, kept))
        return _copied(m.decode(cls, version, whole, body_start))


# The bytes of a message; pieces of them, with sizes in place of what came from files; or a message without long bytes.
_Kept = bytes | tuple[bytes | int, ...] | m.Message


def _kept_pieces(pieces: Pieces) -> tuple[bytes | int, ...] | None:
    """What is kept of a frame in several pieces; None of one that is too long."""
    if sum(len(piece) for piece in pieces if not isinstance(piece, FileSlice)) > RESPONSE_BYTES_MAX:
        return None
    return tuple(piece.size_bytes if isinstance(piece, FileSlice) else bytes(piece) for piece in pieces)


def _copied(message: m.Message) -> m.Message:
    """A copy without records, other long bytes and secrets, and with the first rows of many."""
    copied = _Copying().of(message, _plan_of(message.SCHEMA.name))
    assert isinstance(copied, m.Message)
    return copied


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


class _Copying:
    """Copies one message, up to its limit of rows."""

    def __init__(self) -> None:
        self._rows = 0

    def of(self, struct: m.Struct, plan: _Plan) -> m.Struct:
        """A copy without long bytes."""
        kept = plan.cls.__new__(plan.cls)
        self._rows += 1
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
        return bytes(value)


def _size_bytes(value: object) -> int:
    """The size of a payload: one piece, or several, each in memory or in a file."""
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value)
    if isinstance(value, list | tuple):
        return sum(map(_size_bytes, value))
    return int(getattr(value, "size_bytes", 0))


def _memory_of(struct: m.Struct) -> int:
    """The memory of a copied struct, with all that is in it, about."""
    size_bytes = ROW_BYTES
    for name in struct.ARRAYS:
        for element in getattr(struct, name) or ():
            size_bytes += _memory_of(element) if isinstance(element, m.Struct) else ROW_BYTES
    return size_bytes


def _errors_of(struct: m.Struct) -> list[str]:
    found = []
    for name in struct.FIELDS:
        value = getattr(struct, name)
        if name.endswith("error_code") and value:
            found.append(error_name(value))
        elif isinstance(value, list):
            found += [each for element in value if isinstance(element, m.Struct) for each in _errors_of(element)]
    return found
