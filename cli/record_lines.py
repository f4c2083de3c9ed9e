"""Records as lines (pure): JSON that comes back byte by byte, and what a person reads.

A key, a value or the name of a header in JSON is a string if its bytes are UTF-8, null if it is null, and otherwise
`{"base64": "..."}`. So what one command prints, the other writes again unchanged. In a `Line`, as in a `Record`, bytes
of a name that are not UTF-8 are surrogates.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeGuard

from barnabas.cli.when import time_text
from barnabas.wire.record_reader import UNCHANGED

BASE64 = "base64"

# topic, partition, offset, timestamp in ms, key, value, headers
Printed = tuple[str, int, int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]
Form = Callable[[*Printed], bytes]

_ESCAPES = {"\\n": b"\n", "\\t": b"\t", "\\\\": b"\\", "%%": b"%"}
_FIELDS: Mapping[str, Form] = {
    "%t": lambda *record: record[0].encode(),
    "%p": lambda *record: b"%d" % record[1],
    "%o": lambda *record: b"%d" % record[2],
    "%T": lambda *record: time_text(record[3]).encode(),
    "%k": lambda *record: record[4] or b"",
    "%v": lambda *record: record[5] or b"",
    "%h": lambda *record: b",".join(_name_bytes(name) + b"=" + (content or b"") for name, content in record[6]),
}


class Line(NamedTuple):
    """A record that a line describes; what the line leaves out is None, and `timestamp_ms` then is the present."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def to_json(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> str:
    """One record as one line."""
    row = {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "key": _shown(key),
        "value": _shown(value),
        "headers": [[_shown(_name_bytes(name)), _shown(content)] for name, content in headers],
    }
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def from_json(text: str) -> Line:
    """The record of a line; `value` must be there, everything else may be missing. ValueError says what is wrong."""
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: column {error.colno}: {error.msg}") from None
    if not isinstance(row, dict):
        raise ValueError("a line has to be a JSON object with a value")
    if "value" not in row:
        raise ValueError('the object has no "value" (null makes a tombstone)')
    return Line(
        key=_bytes("key", row.get("key")),
        value=_bytes("value", row["value"]),
        headers=[_header(each) for each in _pairs(row.get("headers"))],
        timestamp_ms=_number("timestamp", row.get("timestamp")),
        partition=_number("partition", row.get("partition")),
    )


def text_form(style: str) -> Form:
    r"""How a record is printed in a style.

    %t is the topic, %p the partition, %o the offset, %T the time, %k the key, %v the value, %h the headers; \n, \t
    and \\ are a line break, a tab and a backslash; %% is a percent sign.
    """
    # The style is read once, and not for each record.
    pieces = [_piece(text) for text in re.split(r"(%[tpoTkvh%]|\\[nt\\])", style) if text]

    def form(*record: *Printed) -> bytes:
        return b"".join([piece if isinstance(piece, bytes) else piece(*record) for piece in pieces])

    return form


def _piece(text: str) -> bytes | Form:
    return _ESCAPES.get(text) or _FIELDS.get(text) or text.encode()


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", UNCHANGED)


def _shown(data: bytes | None) -> str | Mapping[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(data).decode("ascii")}


def _bytes(name: str, value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        # A lone surrogate is legal in JSON, and no text.
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{name} is no text: {error.reason}") from None
    if _is_base64(value):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except ValueError as error:
            raise ValueError(f"{name} is no base64: {error}") from None
    # Anything else is JSON that the application wants as such.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _is_base64(value: object) -> TypeGuard[dict[str, str]]:
    return isinstance(value, dict) and value.keys() == {BASE64} and isinstance(value[BASE64], str)


def _pairs(value: object) -> Sequence[object]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [[name, content] for name, content in value.items()]
    if isinstance(value, list):
        return value
    raise ValueError("headers have to be an object, or an array of pairs")


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, list) or len(pair) != 2 or not (isinstance(pair[0], str) or _is_base64(pair[0])):
        raise ValueError("a header has to be a pair of a name and a value")
    name = (_bytes("the name of a header", pair[0]) or b"").decode("utf-8", UNCHANGED)
    return name, _bytes(f"header {pair[0]!r}", pair[1])


def _number(name: str, value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name} has to be a whole number")
