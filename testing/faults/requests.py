"""The request log: what clients sent to a broker in a test, and what they got (edge).

It is written on the broker's thread and read on the test's. It keeps the latest entries, up to a number and a size.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Protocol

from barnabas.broker.interception import Caller
from barnabas.testing.asking import CLIENT_ID
from barnabas.testing.errors import FaultMissed
from barnabas.testing.faults.entries import Entry
from barnabas.testing.faults.matching import MAY_BE_OF_BROKERS, api_key_of, is_of_broker
from barnabas.testing.faults.names import ApiName
from barnabas.testing.faults.noted import (
    ENTRY_BYTES,
    HEAD,
    KEPT_BYTES_MAX,
    REQUEST,
    REQUEST_BYTES_MAX,
    SECRET_KEYS,
    SMALL_BYTES,
    WAITS,
    AnyHead,
    Head,
    Noted,
)
from barnabas.testing.faults.shortened import memory_of, without_records
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, Api

API_VERSIONS = 18
UNUSUAL_KEYS = SECRET_KEYS | {API_VERSIONS}
ENTRIES_MAX = 10_000
BYTES_MAX = 60 << 20
CONNECTIONS_MAX = 10_000  # whose software is remembered
WAIT_SECONDS = 5.0
SHOWN = 40


class Note(Protocol):
    """What notes a request: as `Interception.see`."""

    def __call__(
        self,
        call: Caller,
        request: m.Message | None,
        frame: bytes | memoryview,
        body_start: int,
        frame_bytes: int,
        is_hit: bool = False,
        /,
    ) -> Noted | None: ...


class RequestLog:
    """The requests of all APIs; called with an API it gives those of this one: `broker.requests("Produce")`."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        # A quarter of the memory is for small requests. Their bytes are not counted: `entries_max`
        # limits them.
        self._entries_max = min(entries_max, bytes_max // 4 // (ENTRY_BYTES + 2 * SMALL_BYTES))
        self._long_bytes_max = bytes_max * 3 // 4
        self.on_change: list[Callable[[], None]] = []  # called when `is_on` has changed
        self._is_on = False
        self._changed = threading.Condition()
        # The broker's thread appends, and other threads copy or replace the deque. Each of these is
        # one step of the interpreter, so there is no lock, which would cost a request as much as
        # the rest of its noting.
        self._noted = deque[Noted](maxlen=self._entries_max)
        self._taken_bytes = 0  # at most by long messages: forgotten ones are in it until the next count
        self._seen = 0
        self.waiting = 0  # threads of tests
        # Broker and number of a connection -> the name and version of the client's software.
        self.software: OrderedDict[tuple[int, int], tuple[str, str]] = OrderedDict()

    @property
    def is_on(self) -> bool:
        """Whether requests are written down."""
        return self._is_on

    @is_on.setter
    def is_on(self, is_on: bool) -> None:
        self._is_on = is_on
        for notify in self.on_change:
            notify()

    def __call__(self, api: ApiName | int | Api | None = None, *, client_id: str | None = None) -> "Requests":
        """The requests of one API, or of one client; what comes later is seen as well."""
        return Requests(self, None if api is None else APIS[api_key_of(api)].name, client_id)

    def __len__(self) -> int:
        return len(self.entries())

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries())

    def entries(self, after: int = 0) -> list[Entry]:
        """Those that are kept, oldest first; with `after` those with a larger number."""
        noted = list(self._noted)
        # A thread that waits for further requests calls this at each change, while the broker waits
        # for the lock: ten thousand old requests must not be looked at each time.
        return [
            Entry(each) for each in (noted[bisect_right(noted, after, key=attrgetter("number")) :] if after else noted)
        ]

    def clear(self) -> None:
        """Forget the requests until now."""
        self._noted = deque[Noted](maxlen=self._entries_max)

    def stop(self) -> None:
        """Forget all requests, and write no more until `broker.requests` is used again."""
        self.is_on = False
        self.clear()

    def show(self, last: int = SHOWN) -> str:
        """The latest requests, one a line."""
        return self().show(last)

    def all(self, predicate: Callable[[Entry], bool]) -> bool:
        """Whether there are requests, and all are so."""
        return self().all(predicate)

    def any(self, predicate: Callable[[Entry], bool]) -> bool:
        """Whether one of the requests is so."""
        return self().any(predicate)

    def wait(self, count: int = 1, seconds: float = WAIT_SECONDS) -> list[Entry]:
        """Wait until there are so many requests, with their responses; FaultMissed if there are not in time."""
        return self().wait(count, seconds)

    def until(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Wait until this holds, which is looked at when the log changes; whether it does."""
        with self._changed:
            self.waiting += 1
            try:
                return self._changed.wait_for(is_there, seconds)
            finally:
                self.waiting -= 1

    # -- on the broker's thread

    def noting(self, broker_id: int, now_ms: Callable[[], int]) -> Note:
        """What notes the requests to one broker. It is called as `Interception.see`, for each of them.

        With `is_hit` a fault may hit the request: it is noted for that, if the log is off or a broker has sent it, too.
        """

        def note(
            call: Caller,
            request: m.Message | None,
            frame: bytes | memoryview,
            body_start: int,
            frame_bytes: int,
            is_hit: bool = False,
        ) -> Noted | None:
            # A call that stands for a shape of requests has the head that was made for the first of
            # them.
            first = call.seen
            head = first[0] if type(first) is Noted else _head_of(self, call, request, broker_id, body_start)
            is_of_client = head[2]
            if not is_of_client and not is_hit:
                return None
            self._seen = number = self._seen + 1
            # The leader writes into the records, so a frame that is no copy yet is copied.
            if len(frame) <= SMALL_BYTES and head[0] not in UNUSUAL_KEYS:
                kept = frame if type(frame) is bytes else bytes(frame)
                noted = Noted((head, kept, frame_bytes, number, now_ms(), WAITS))
            else:
                noted = Noted((head, b"", frame_bytes, number, now_ms(), WAITS))
                self._keep(noted, request, frame)
            if is_of_client and self._is_on:
                self._noted.append(noted)
            return noted

        return note

    def _keep(self, noted: Noted, request: m.Message | None, frame: bytes | memoryview) -> None:
        """Keep what may be kept of an unusual request."""
        head = Head(*noted[HEAD])
        if len(frame) <= KEPT_BYTES_MAX.get(head.api_key, REQUEST_BYTES_MAX):
            noted[REQUEST] = bytes(frame)
            noted.long_bytes = len(frame)
        else:
            assert request is not None, "what was not decoded is short"
            noted[REQUEST] = shortened = without_records(request)
            noted.long_bytes = memory_of(shortened)
        # Requests that wait count as well: a broker that hangs must not fill the memory.
        self.take(noted.long_bytes)
        if head.api_key == API_VERSIONS:
            self._note_software(request, head)

    def take(self, size_bytes: int) -> None:
        """A long message is kept, of about this size."""
        self._taken_bytes += size_bytes
        if self._taken_bytes <= self._long_bytes_max:
            return
        # A count takes time for each entry, so an eighth of the room is freed for the time until
        # the next one.
        those = self._noted
        taken_bytes = sum(each.long_bytes for each in those)
        while taken_bytes > self._long_bytes_max * 7 // 8 and those:
            taken_bytes -= those.popleft().long_bytes
        self._taken_bytes = taken_bytes

    def _note_software(self, request: m.Message | None, head: Head) -> None:
        assert isinstance(request, m.ApiVersionsRequest)
        if request.client_software_name:
            named = request.client_software_name, request.client_software_version
            self.software[head.broker_id, head.connection] = named
            if len(self.software) > CONNECTIONS_MAX:
                self.software.popitem(last=False)

    def wake(self) -> None:
        """Have threads that wait look again."""
        with self._changed:
            self._changed.notify_all()


def _head_of(log: RequestLog, call: Caller, request: m.Message | None, broker_id: int, body_start: int) -> AnyHead:
    api_key = call.api_key
    # Requests of this package, such as those of `create_topic`, are no client's.
    is_of_client = call.client_id != CLIENT_ID and (
        request is None or api_key not in MAY_BE_OF_BROKERS or not is_of_broker(api_key, request)
    )
    return api_key, call.version, is_of_client, call.client_id, call.connection_number, broker_id, body_start, log


class Requests:
    """The requests of one API or client in a log; it grows with the log."""

    def __init__(self, log: RequestLog, api: str | None, client_id: str | None) -> None:
        self._log = log
        self._api = api
        self._client_id = client_id

    def __len__(self) -> int:
        return len(self._those())

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._those())

    def __getitem__(self, index: int) -> Entry:
        return self._those()[index]

    def all(self, predicate: Callable[[Entry], bool]) -> bool:
        """Whether there are requests, and all are so."""
        those = self._those()
        return bool(those) and all(map(predicate, those))

    def any(self, predicate: Callable[[Entry], bool]) -> bool:
        """Whether one of the requests is so."""
        return any(map(predicate, self._those()))

    def wait(self, count: int = 1, seconds: float = WAIT_SECONDS) -> list[Entry]:
        """Wait until there are so many requests, with their responses; FaultMissed if there are not in time."""
        ended: list[Entry] = []

        def are_there() -> bool:
            ended[:] = [entry for entry in self._those() if entry.outcome != "waits"]
            return len(ended) >= count

        if not self._log.until(are_there, seconds):
            name = self._api or "request"
            raise FaultMissed(f"{len(ended)} of {count} {name}s within {seconds:g} s; seen:\n{self._log.show()}")
        return ended

    def show(self, last: int = SHOWN) -> str:
        """The latest of them, one a line."""
        return "\n".join(str(entry) for entry in self._those()[-last:])

    def _those(self) -> list[Entry]:
        return [
            entry
            for entry in self._log.entries()
            if self._api in (None, entry.api) and self._client_id in (None, entry.client_id)
        ]
