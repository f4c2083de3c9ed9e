"""What a broker notes of one request of a test, and of its response.

It keeps the bytes of both frames, which costs the broker a copy of the request, and of the response nothing. Of long
requests a copy without their records is kept, or one of their first rows. Secrets are never kept. `Entry` reads it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from barnabas.storage.disk import FileSlice
from barnabas.testing.faults.shortened import memory_of, without_records
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, response_header_version
from barnabas.world.waiting import Pieces

PRODUCE = 0
ENTRY_BYTES = 700  # of a request without its messages, about
SMALL_BYTES = 400  # a frame of this size or less is kept as it is, and not counted
REQUEST_BYTES_MAX = 1 << 20  # of a request that is kept as it came
RECORDS_BYTES_MAX = 1 << 15  # of one with records
RESPONSE_BYTES_MAX = 8 << 20  # of one in several pieces; one piece is shorter
# SaslAuthenticate, CreateDelegationToken to DescribeDelegationToken, AlterUserScramCredentials
SECRET_KEYS = frozenset({36, 38, 39, 40, 41, 51})
# Requests longer than this are copied without their records; those with secrets are always copied.
KEPT_BYTES_MAX = {PRODUCE: RECORDS_BYTES_MAX, **dict.fromkeys(SECRET_KEYS, -1)}
PREFIX_BYTES = 8  # of a response: its length and the correlation id

# The bytes of a message; pieces of them, with sizes in place of what came from files; or a message without long bytes.
Kept = bytes | tuple[bytes | int, ...] | m.Message


class Log(Protocol):
    """The request log."""

    waiting: int  # threads that wait for a change

    @property
    def software(self) -> Mapping[tuple[int, int], tuple[str, str]]:
        """Broker and connection -> the name and version of the client's software."""
        ...

    def take(self, size_bytes: int) -> None:
        """A long message is kept, of about this size."""

    def wake(self) -> None:
        """Have the threads look again."""


# The fields of a `Head` in a plain tuple: to make a `Head` takes as long as all else that a log
# does for a request.
AnyHead = tuple[int, int, bool, str | None, int, int, int, Log]


class Head(NamedTuple):
    """What the requests of one shape have in common (`broker/now/`)."""

    api_key: int
    version: int
    is_of_client: bool  # otherwise a broker has sent it, or this package
    client_id: str | None
    connection: int
    broker_id: int
    body_start: int  # in the frame
    log: Log  # that keeps the request, unless it is noted for a fault only


# Places in a `Noted`.
HEAD, REQUEST, FRAME_BYTES, NUMBER, TIME_MS, RESPONSE = range(6)
WAITS = object()  # in the place of a response


class Noted(list[Any]):
    """A request and its response: what is at the places above, and what few of them have, as attributes.

    Each request makes one, so it has the form that costs the least: it is filled by the interpreter, in one step.
    """

    fault: str | None = None  # the fault that hit it
    long_bytes = 0  # of its long messages, as they are kept
    response_version: int | None = None  # if it is not that of the request
    _ending: str | None = None

    def answered(self, version: int, pieces: Pieces) -> None:
        """Its response is about to be sent: the pieces of the frame, in this version of the API."""
        kept = pieces[0] if len(pieces) == 1 else None
        head = self[0]
        # The usual response is one piece that does not change: it is kept without a copy.
        if type(kept) is bytes and len(kept) <= SMALL_BYTES and version == head[1] and head[0] not in SECRET_KEYS:
            self[5] = kept
        else:
            self._keep(version, pieces)
        if head[7].waiting:
            head[7].wake()

    def _keep(self, version: int, pieces: Pieces) -> None:
        """Keep what may be kept of an unusual response."""
        head = Head(*self[HEAD])
        if version != head.version:
            self.response_version = version
        kept: Kept | None = _kept_pieces(pieces)
        size_bytes = 0
        if isinstance(kept, tuple):
            size_bytes = sum(len(piece) for piece in kept if isinstance(piece, bytes))
        if kept is not None and head.api_key in SECRET_KEYS:
            kept = message = shown_response(kept, head.api_key, version)
            size_bytes = memory_of(message)
        self.long_bytes += size_bytes
        head.log.take(size_bytes)
        # Another thread may read it now.
        self[RESPONSE] = kept

    def ended(self, outcome: str) -> None:
        """It has no response, or only a part of that is sent."""
        self._ending = outcome
        log = self[HEAD][7]
        if log.waiting:
            log.wake()

    @property
    def outcome(self) -> str:
        """How it ended, or "waits"."""
        return self._ending or ("waits" if self[RESPONSE] is WAITS else "answered")

    @property
    def response(self) -> Kept | None:
        """What is kept of the response; None if there is none, or not yet, or nothing was kept."""
        return None if self[RESPONSE] is WAITS else self[RESPONSE]

    @property
    def number(self) -> int:
        """Rises by one with each request that the log sees."""
        return int(self[NUMBER])


def shown_request(kept: Kept, api_key: int, version: int, body_start: int) -> m.Message:
    """The request that was kept, as it is shown."""
    return _read(kept, m.request_class(APIS[api_key]), version, body_start)


def shown_response(kept: Kept, api_key: int, version: int) -> m.Message:
    """The response that was kept, as it is shown."""
    body_start = PREFIX_BYTES + response_header_version(api_key, version)
    return _read(kept, m.response_class(APIS[api_key]), version, body_start)


def _read(kept: Kept, cls: type[m.Message], version: int, body_start: int) -> m.Message:
    if isinstance(kept, m.Message):
        return kept
    whole = kept if isinstance(kept, bytes) else b"".join(map(bytes, kept))
    return without_records(m.decode(cls, version, whole, body_start))


def _kept_pieces(pieces: Pieces) -> tuple[bytes | int, ...] | None:
    """What is kept of a frame in several pieces; None of one that is too long."""
    if sum(len(piece) for piece in pieces if not isinstance(piece, FileSlice)) > RESPONSE_BYTES_MAX:
        return None
    return tuple(piece.size_bytes if isinstance(piece, FileSlice) else bytes(piece) for piece in pieces)
