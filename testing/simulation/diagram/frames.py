"""What a frame on a connection says, in a few words: API, partitions, errors (pure).

    read_request(frame)             ->  the question that its response answers, and a `Summary`
    read_response(frame, question)  ->  a `Summary`

A summary has a `Row` for each partition that the message names, whatever its API is: the rows are found by the names
of fields, which are the same in nearly all of Kafka's messages. `FIELD_WORDS` says which fields of a row are shown, and
`MESSAGE_WORDS` which ones of the whole message.

`FetchSessions` makes incremental fetches readable (KIP-227): such a request names only what is new, and asks for all
partitions of its session. `Talk` finds the request that a response answers.
"""

import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.apis import API_VERSIONS_KEY, APIS
from barnabas.wire.errors import ProtocolViolation, error_name
from barnabas.wire.frame import UnsupportedRequest, read_request_header
from barnabas.wire.topics import ZERO_TOPIC_ID

UNREADABLE = "unreadable"
WHOLE_TOPIC = -1
TOPIC_FIELDS = ("topic_name", "topic", "name")
PARTITION_FIELDS = ("partition_index", "partition", "partition_id", "index")
ARRAYS_OF_PARTITIONS = ("partition_indexes", "partitions")
TOPICS_FIELD = "topics"  # its elements are topics, also where they name no partition
SUMMARY_FIELDS = ("error_code", "partition_error_code")
FULL_EPOCHS = (-1, 0)  # of a fetch session: the request names every partition
NAMES_SHOWN_MAX = 3
_INT32 = struct.Struct(">i")


class Row(NamedTuple):
    """One partition in a message. `topic` is its id where the message has no name; `partition` may be WHOLE_TOPIC."""

    topic: str | bytes
    partition: int
    error: str  # its name; "" if there is none
    words: str


class Summary(NamedTuple):
    """What one message says. `errors` has the names of all errors in it, each once."""

    api: str
    version: int
    words: str = ""
    rows: tuple[Row, ...] = ()
    errors: tuple[str, ...] = ()
    names: Mapping[bytes, str] = {}  # of topics, by id: what this message teaches


class Request(NamedTuple):
    """A request, the question that its response answers (None: there is no response), and the decoded message."""

    summary: Summary
    question: asking.Question | None
    message: m.Message | None


def _number(words: str) -> Callable[[object], str]:
    return lambda value: "" if value == -1 else f"{words} {value}"


def _brokers(words: str) -> Callable[[object], str]:
    def shown(value: object) -> str:
        ids = [getattr(each, "broker_id", each) for each in value] if isinstance(value, list) else []
        return f"{words} {','.join(map(str, ids))}" if ids else ""

    return shown


def _size(value: object) -> str:
    return f"{len(value)} bytes" if isinstance(value, bytes | bytearray | memoryview) and len(value) else ""


def _divergence(value: object) -> str:
    epoch, end_offset = getattr(value, "epoch", -1), getattr(value, "end_offset", -1)
    return f"diverges: epoch {epoch} ends at {end_offset}" if epoch >= 0 else ""


def _several(words: str) -> Callable[[object], str]:
    def shown(value: object) -> str:
        names = [str(each) for each in value] if isinstance(value, list | tuple) else []
        more = ", …" if len(names) > NAMES_SHOWN_MAX else ""
        return f"{words} {', '.join(names[:NAMES_SHOWN_MAX])}{more}" if names else ""

    return shown


def _name(words: str) -> Callable[[object], str]:
    return lambda value: f"{words} {value}" if value else ""


# Field of a row -> how it is shown; "" if there is nothing to show. The words of a row stand in the order of this
# table, and not in that of the fields: a label has room for the first few. -1 is what Kafka sends for "unknown".
FIELD_WORDS: Mapping[str, Callable[[object], str]] = {
    "fetch_offset": _number("from"),
    "base_offset": _number("at"),
    "high_watermark": _number("HW"),
    "records": _size,
    "diverging_epoch": _divergence,
    "committed_offset": _number("offset"),
    "offset": _number("offset"),
    "low_watermark": _number("from"),
    "end_offset": _number("ends at"),
    "leader": _number("leader"),
    "leader_id": _number("leader"),
    "leader_epoch": _number("epoch"),
    "isr": _brokers("ISR"),
    "isr_nodes": _brokers("ISR"),
    "new_isr": _brokers("ISR"),
    "new_isr_with_epochs": _brokers("ISR"),
    "delete_partition": lambda value: "delete" if value else "",
}
# Field of a whole message -> how it is shown. Secrets are not among them: a page may be sent to
# others.
MESSAGE_WORDS: Mapping[str, Callable[[object], str]] = {
    "acks": lambda value: f"acks={'all' if value == -1 else value}",
    "group_id": _name("group"),
    "transactional_id": _name("transactional id"),
    "v3_and_below_transactional_id": _name("transactional id"),
    "coordinator_keys": _several("for"),
    "generation_id": _number("generation"),
    "generation_id_or_member_epoch": _number("generation"),
    "member_id": _name("member"),
    "producer_id": _number("producer"),
    "producer_epoch": _number("epoch"),
    "committed": lambda value: "commit" if value else "abort",
    "controller_epoch": _number("controller epoch"),
    "broker_id": _number("broker"),
    "mechanism": _name("by"),
}


def read_request(frame: memoryview) -> Request:
    """The request in this frame (without its length), as far as it can be read."""
    # Hostile clients send what is no request, or the beginning of one. It is a message all the same, and has its arrow.
    try:
        header = read_request_header(frame)
    except UnsupportedRequest as unknown:
        question = asking.Question(unknown.api_key, unknown.api_version, unknown.correlation_id)
        return Request(Summary(_name_of(unknown.api_key), unknown.api_version, str(unknown)), question, None)
    except ProtocolViolation as violation:
        return Request(Summary(UNREADABLE, -1, str(violation)), None, None)

    question = asking.Question(header.api_key, header.api_version, header.correlation_id)
    api = APIS[header.api_key]
    try:
        message = m.decode(m.request_class(api), header.api_version, frame, header.position)
    except ProtocolViolation as violation:
        return Request(Summary(api.name, header.api_version, str(violation)), question, None)

    # A Produce with acks=0 has no response: a later response of this connection must not be taken for one.
    has_response = not isinstance(message, m.ProduceRequest) or message.acks != 0
    return Request(_summary(api.name, header.api_version, message), question if has_response else None, message)


def read_response(frame: memoryview, question: asking.Question) -> tuple[Summary, m.Message | None]:
    """The response in this frame (without its length), as far as it can be read, and the decoded message."""
    api = _name_of(question.api_key)
    try:
        # A broker that does not support the version of ApiVersions answers in version 0 (KIP-511).
        if question.api_key == API_VERSIONS_KEY:
            message: m.Message = asking.read_versions(frame, question)
        else:
            message = asking.read_response(frame, question)
    except ProtocolViolation as violation:
        return Summary(api, question.version, str(violation)), None
    return _summary(api, question.version, message), message


def _name_of(api_key: int) -> str:
    api = APIS.get(api_key)
    return f"API {api_key}" if api is None else api.name


def _summary(api: str, version: int, message: m.Message) -> Summary:
    # Errors of rows are counted with those of the message, which may have more of them in structs that are no rows.
    names: dict[bytes, str] = {}
    rows = tuple(_rows_below(message, "", names))
    errors = dict.fromkeys([*_errors_in(message), *(row.error for row in rows if row.error)])
    return Summary(api, version, _words(message, MESSAGE_WORDS), rows, tuple(errors), names)


def _words(struct: m.Struct, table: Mapping[str, Callable[[object], str]]) -> str:
    shown = [show(getattr(struct, name)) for name, show in table.items() if name in struct.FIELDS]
    return ", ".join(filter(None, shown))


def _rows_below(struct: m.Struct, topic: str | bytes, names: dict[bytes, str]) -> Iterator[Row]:
    """The rows in the arrays of a struct, of this topic or of those that the elements name."""
    for array in struct.ARRAYS:
        for element in getattr(struct, array) or ():
            if isinstance(element, m.Struct):
                yield from _rows_of(element, array, topic, names)
            # Some requests have numbers in the place of structs: {"name": "orders", "partition_indexes": [0, 1]}.
            elif topic and array in ARRAYS_OF_PARTITIONS:
                yield Row(topic, element, "", "")


def _rows_of(element: m.Struct, array: str, topic: str | bytes, names: dict[bytes, str]) -> Iterator[Row]:
    # The names of these fields are nearly the same in all messages, so that one walk fits every API, also those that
    # come later. With a field of another name a diagram lacks a row, and nothing else.
    topic = _topic_of(element, names) or topic
    partition = next((getattr(element, name) for name in PARTITION_FIELDS if name in element.FIELDS), None)
    if topic and isinstance(partition, int):
        yield Row(topic, partition, _error_of(element), _words(element, FIELD_WORDS))
        return

    # Names of other things (protocols of a group, listeners) lie in arrays that are not called topics, and have no
    # partitions below them.
    below = list(_rows_below(element, topic, names))
    if not below and topic and array == TOPICS_FIELD:
        yield Row(topic, WHOLE_TOPIC, _error_of(element), "")
    yield from below


def _topic_of(element: m.Struct, names: dict[bytes, str]) -> str | bytes:
    """The name of the topic, or its id where there is no name; "" if the element names none."""
    name = next((getattr(element, field) for field in TOPIC_FIELDS if field in element.FIELDS), "")
    topic_id: bytes = getattr(element, "topic_id", ZERO_TOPIC_ID) or ZERO_TOPIC_ID
    if isinstance(name, str) and name:
        if topic_id != ZERO_TOPIC_ID:
            names[bytes(topic_id)] = name
        return name
    return b"" if topic_id == ZERO_TOPIC_ID else bytes(topic_id)


def _error_of(struct: m.Struct) -> str:
    code = next((getattr(struct, name) for name in SUMMARY_FIELDS if name in struct.FIELDS), 0)
    return error_name(code) if code else ""


def _errors_in(struct: m.Struct) -> Iterator[str]:
    """The errors of the struct and of all elements in it."""
    if error := _error_of(struct):
        yield error
    for array in struct.ARRAYS:
        for element in getattr(struct, array) or ():
            if isinstance(element, m.Struct):
                yield from _errors_in(element)


class FetchSessions:
    """The fetch sessions of all brokers: what an incremental request asks for.

    The rows of a session stand in the order in which they came. A session that the broker has given up is replaced by
    the next one of the same number.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], dict[tuple[str | bytes, int], Row]] = {}

    def asked(self, broker: str, request: m.FetchRequest, summary: Summary) -> Summary:
        """The summary with every partition that the request is about."""
        rows = self._rows.get((broker, request.session_id))
        # The broker may have forgotten the session, and will say so. Then the request is shown as it is, or with the
        # rows of the session that it believes in.
        if rows is None or request.session_epoch in FULL_EPOCHS:
            return summary
        # Rows of a request take the place of older ones: a follower asks from a higher offset now.
        # What the request forgets is among its rows, too, so it is taken out last.
        for row in summary.rows:
            rows[row.topic, row.partition] = row
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                rows.pop((topic.topic or bytes(topic.topic_id), partition), None)
        return summary._replace(rows=tuple(rows.values()))

    def answered(self, broker: str, request: m.FetchRequest, asked: Summary, response: m.FetchResponse) -> None:
        """A full request made a session: later requests in it are about what this one asked for."""
        if response.session_id > 0 and request.session_epoch in FULL_EPOCHS:
            self._rows[broker, response.session_id] = {(row.topic, row.partition): row for row in asked.rows}


class Talk:
    """The requests of one connection that have no response yet."""

    def __init__(self, sessions: FetchSessions, broker: str) -> None:
        self._sessions = sessions
        self._broker = broker
        self._open: deque[tuple[int, Request]] = deque()

    def asked(self, number: int, frame: memoryview) -> Summary:
        """The message of this number is a request: what it says."""
        request = read_request(frame)
        if isinstance(request.message, m.FetchRequest):
            summary = self._sessions.asked(self._broker, request.message, request.summary)
            request = request._replace(summary=summary)
        if request.question is not None:
            self._open.append((number, request))
        return request.summary

    def answered(self, frame: memoryview) -> tuple[int, Summary] | None:
        """A message is a response: the number of its request, and what it says; None if it answers none.

        Requests before that one will have no response.
        """
        if len(frame) < _INT32.size:
            return None
        # Responses come in the order of the requests, and nothing but the correlation id says which one it is.
        (correlation_id,) = _INT32.unpack_from(frame)
        while self._open:
            number, request = self._open.popleft()
            question = request.question
            if question is None or question.correlation_id != correlation_id:
                continue
            summary, response = read_response(frame, question)
            if isinstance(response, m.FetchResponse) and isinstance(request.message, m.FetchRequest):
                self._sessions.answered(self._broker, request.message, request.summary, response)
            return number, summary
        return None
