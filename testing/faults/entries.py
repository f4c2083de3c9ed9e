"""One request and its response, as who reads the request log, or a fault, sees it (pure).

What the broker has noted (`noted.py`) is decoded when it is asked for. Sizes take the place of records, of other long
bytes and of secrets.
"""

from typing import Any

from barnabas.testing.faults.noted import (
    ENTRY_BYTES,
    FRAME_BYTES,
    HEAD,
    REQUEST,
    SMALL_BYTES,
    TIME_MS,
    Head,
    Noted,
    shown_request,
    shown_response,
)
from barnabas.testing.faults.row_cuts import FIELDS
from barnabas.testing.faults.rows import LAYOUTS
from barnabas.testing.faults.shortened import Left
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.errors import error_name

NAMES_SHOWN = 3


class Entry:
    """A request of a client and its response. The fields of the request can be read from the entry itself.

    Two entries are equal if they are of the same request.
    """

    def __init__(self, noted: Noted) -> None:
        self._noted = noted

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entry) and other._noted is self._noted

    def __hash__(self) -> int:
        return self._noted.number

    @property
    def head(self) -> Head:
        """What is known without decoding."""
        return Head(*self._noted[HEAD])

    @property
    def number(self) -> int:
        """Rises by one with each request that the log sees."""
        return self._noted.number

    @property
    def time_ms(self) -> int:
        """When it came: since 1970, by the broker's clock."""
        return int(self._noted[TIME_MS])

    @property
    def outcome(self) -> str:
        """How it ended: "answered", "dropped", "refused" (the connection was closed), "no response"; or "waits"."""
        return self._noted.outcome

    @property
    def fault(self) -> str | None:
        """The fault that hit it."""
        return self._noted.fault

    @property
    def size_bytes(self) -> int:
        """The memory that it takes, about, at most."""
        return ENTRY_BYTES + 2 * SMALL_BYTES + self._noted.long_bytes

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
    def broker_id(self) -> int:
        """The broker to which it was sent."""
        return self.head.broker_id

    @property
    def api(self) -> str:
        """The name of the API."""
        return APIS[self.api_key].name

    @property
    def request(self) -> Any:
        """The request, with sizes in place of records and of long bytes."""
        noted = self._noted
        kept = noted[REQUEST]
        # The rest is records, of which the size is shown.
        if isinstance(kept, bytes):
            kept = kept.ljust(noted[FRAME_BYTES], b"\0")
        return shown_request(kept, self.api_key, self.version, self.head.body_start)

    @property
    def response(self) -> Any:
        """The response in the same way; None if there is none, or not yet, or if it is longer than 8 MiB."""
        noted = self._noted
        if noted.response is None:
            return None
        version = self.version if noted.response_version is None else noted.response_version
        return shown_response(noted.response, self.api_key, version)

    @property
    def software_name(self) -> str:
        """The name of the client's software, if the log has seen the beginning of its connection."""
        return self.head.log.software.get((self.broker_id, self.connection), ("", ""))[0]

    @property
    def software_version(self) -> str:
        """The version of that software."""
        return self.head.log.software.get((self.broker_id, self.connection), ("", ""))[1]

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
        return [] if self._noted.response is None else list(dict.fromkeys(_errors_of(self.response)))

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


def _errors_of(struct: m.Struct) -> list[str]:
    found = []
    for name in struct.FIELDS:
        value = getattr(struct, name)
        if name.endswith("error_code") and value:
            found.append(error_name(value))
        elif isinstance(value, list):
            found += [each for element in value if isinstance(element, m.Struct) for each in _errors_of(element)]
    return found
