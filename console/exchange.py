"""What the HTTP server and its handlers exchange (pure): a request, an answer, and a table of routes."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, unquote

Send: TypeAlias = Callable[[bytes], Awaitable[None]]
Write: TypeAlias = Callable[[Send], Awaitable[None]]

INT64_DIGITS = 19
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"


class HttpRequest(NamedTuple):
    """One request with its whole body."""

    method: str
    path: str  # as it came, still quoted, without the query
    query: Mapping[str, str]  # of a name that is given twice, the last value
    headers: Mapping[str, str]  # names in lower case
    body: bytes
    peer_address: str
    params: Mapping[str, str] = {}  # what stands in the route's braces
    principal: str = ""  # who asks, as the broker knows its clients; empty on a route that is open

    def is_same_site(self) -> bool:
        """Whether no page of another site has caused this request."""
        host = self.headers.get("host", "")
        origin = self.headers.get("origin")
        return origin is None or origin in (f"http://{host}", f"https://{host}")


class Answer(NamedTuple):
    """The response to a request: a body, or a function that writes one piece after the other."""

    status: int
    content_type: str
    body: bytes | Write
    headers: Sequence[tuple[str, str]] = ()


class Route(NamedTuple):
    """A method and a path, in which a segment in braces takes any value, and what answers there.

    `is_open`: it shows nothing that Kafka's port would refuse, so no login is asked for.
    """

    method: str
    path: str
    handle: Callable[[HttpRequest], Awaitable[Answer]]
    is_open: bool = False


class BadRequest(Exception):
    """The request cannot be answered; the text says why, for the person who sent it."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def whole_number(text: str) -> int | None:
    """The number that these decimal digits are; None if they are none, or more than an offset may have."""
    digits = text.lstrip("0") or text[:1]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= INT64_DIGITS else None


def json_answer(value: object, status: int = 200) -> Answer:
    """A JSON document."""
    return Answer(status, JSON, json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def error_answer(status: int, message: str, headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """An error as a JSON document: {"error": "..."}."""
    return json_answer({"error": message}, status)._replace(headers=headers)


def parsed_target(target: str) -> tuple[str, dict[str, str]]:
    """The path and the query of a request's target."""
    path, _, query = target.partition("?")
    return path, dict(parse_qsl(query, keep_blank_values=True))


def parsed_json(body: bytes) -> dict[str, object]:
    """The object that is the body; BadRequest names the place of what is wrong with it."""
    try:
        # `json.loads(body)` would guess UTF-16 and UTF-32, and a person who sends them by mistake learns nothing.
        value = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8: byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise BadRequest(f"the body is no JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    # Python reads no number of more than 4,300 digits.
    except ValueError as error:
        raise BadRequest(f"the body has a number that is too long: {error}") from error
    except RecursionError as error:
        raise BadRequest("the body is no JSON that can be read: it is nested too deeply") from error
    if not isinstance(value, dict):
        raise BadRequest(f"the body has to be a JSON object, and is {type(value).__name__}")
    return value


def routed(routes: Sequence[Route], method: str, path: str) -> tuple[Route, dict[str, str]] | Answer:
    """The route of a request and the values of its braces; an answer if there is none."""
    allowed = []
    segments = path.split("/")
    for route in routes:
        # The table is short, and a page asks a few times a second: no tree is needed.
        params = _matched(route.path.split("/"), segments)
        if params is None:
            continue
        if route.method == method or (route.method, method) == ("GET", "HEAD"):
            return route, params
        allowed.append(route.method)
    # A wrong method is said as such: a person has typed the path correctly.
    if allowed:
        return error_answer(405, f"{path} takes {' and '.join(allowed)}, not {method}", [("allow", ", ".join(allowed))])
    return error_answer(404, f"there is nothing at {path}")


def _matched(template: Sequence[str], segments: Sequence[str]) -> dict[str, str] | None:
    """The values of the braces; None if the path is another one."""
    if len(template) != len(segments):
        return None
    # Segments are compared as they came: "%2E%2E" is a name like any other, and no step upwards.
    params = {}
    for expected, segment in zip(template, segments, strict=True):
        if expected.startswith("{"):
            # Each segment is unquoted by itself: the name of a group may contain a slash.
            params[expected[1:-1]] = unquote(segment)
        elif expected != segment:
            return None
    return params
