"""Records as lines (pure): JSON that comes back byte by byte, and what a person reads.

A key or a value in JSON is a string if its bytes are UTF-8, null if it is null, and otherwise `{"base64": "..."}`. So
what one command prints, the other writes again unchanged.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.cli.when import time_text

BASE64 = "base64"


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
        "headers": [[name, _shown(content)] for name, content in headers],
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


def to_text(
    style: str,
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]],
) -> bytes:
    r"""A record in a style with %t topic, %p partition, %o offset, %T time, %k key, %v value, %h headers, \n and \t."""
    parts = {
        b"%t": topic.encode(),
        b"%p": b"%d" % partition,
        b"%o": b"%d" % offset,
        b"%T": time_text(timestamp_ms).encode(),
        b"%k": b"" if key is None else key,
        b"%v": b"" if value is None else value,
        b"%h": b",".join(name.encode() + b"=" + (content or b"") for name, content in headers),
        b"%%": b"%",
        b"\\n": b"\n",
        b"\\t": b"\t",
        b"\\\\": b"\\",
    }
    written = bytearray()
    source = style.encode()
    position = 0
    while position < len(source):
        pair = source[position : position + 2]
        if pair in parts:
            written += parts[pair]
            position += 2
        else:
            written += source[position : position + 1]
            position += 1
    return bytes(written)


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
    if isinstance(value, dict) and value.keys() == {BASE64} and isinstance(value[BASE64], str):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except ValueError as error:
            raise ValueError(f"{name} is no base64: {error}") from None
    # Anything else is JSON that the application wants as such.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _pairs(value: object) -> Sequence[object]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [[name, content] for name, content in value.items()]
    if isinstance(value, list):
        return value
    raise ValueError("headers have to be an object, or an array of pairs")


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise ValueError("a header has to be a pair of a name and a value")
    return pair[0], _bytes(f"header {pair[0]!r}", pair[1])


def _number(name: str, value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name} has to be a whole number")
