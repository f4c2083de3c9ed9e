"""The request log: what clients sent to a broker in a test, and what they got (edge).

It is written on the broker's thread and read on the test's. It keeps the latest entries, up to a number and a size.
"""

import threading
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from operator import attrgetter

from barnabas.broker.interception import Caller
from barnabas.testing.errors import FaultMissed
from barnabas.testing.faults.entries import Entry
from barnabas.testing.faults.matching import api_key_of
from barnabas.testing.faults.names import ApiName
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, Api

API_VERSIONS = 18
ENTRIES_MAX = 10_000
BYTES_MAX = 60 << 20
CONNECTIONS_MAX = 10_000  # whose software is remembered
WAIT_SECONDS = 5.0
SHOWN = 40


class RequestLog:
    """The requests of all APIs; called with an API it gives those of this one: `broker.requests("Produce")`."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self.on_change: list[Callable[[], None]] = []  # called when `is_on` has changed
        self._is_on = False
        self._changed = threading.Condition()
        self._page = self._new_page()
        self._seen = 0
        self.waiting = 0  # threads of tests
        # Broker and number of a connection -> the name and version of the client's software.
        self._software: OrderedDict[tuple[int, int], tuple[str, str]] = OrderedDict()

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
        entries = list(self._page.entries)
        # Who waits for the next ones looks at each change, while the broker waits for the lock: ten thousand old ones
        # must not be looked at each time.
        return entries[bisect_right(entries, after, key=attrgetter("number")) :] if after else entries

    def clear(self) -> None:
        """Forget the requests until now."""
        self._page = self._new_page()

    def _new_page(self) -> "_Page":
        return _Page(self)

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

    def begin(
        self,
        call: Caller,
        request: m.Message | None,
        frame: bytes | memoryview,
        body_start: int,
        size_bytes: int,
        came: tuple[int, int],
        is_kept: bool = True,
    ) -> Entry:
        """A request has come: `came` says to which broker, and when (ms). It is remembered here, or by a fault alone.

        The other arguments are those of `see`.
        """
        self._seen = number = self._seen + 1
        api_key = call.api_key
        connection = call.connection_number
        software = self._software
        head = api_key, call.version, call.client_id, connection, number, came, body_start, size_bytes, software
        if api_key == API_VERSIONS:
            self._note_software(request, came[0], connection)
        if not is_kept:
            return Entry(head, request, frame, None)
        page = self._page
        entry = Entry(head, request, frame, page)
        # Requests that wait count as well: a broker that hangs must not fill the memory.
        page.size_bytes += entry.size_bytes
        page.entries.append(entry)
        if page.size_bytes > self._bytes_max or len(page.entries) > self._entries_max:
            page.forget_oldest(self._entries_max, self._bytes_max)
        return entry

    def _note_software(self, request: m.Message | None, broker_id: int, connection: int) -> None:
        assert isinstance(request, m.ApiVersionsRequest)
        if request.client_software_name:
            named = request.client_software_name, request.client_software_version
            self._software[broker_id, connection] = named
            if len(self._software) > CONNECTIONS_MAX:
                self._software.popitem(last=False)

    def wake(self) -> None:
        """Have threads that wait look again."""
        with self._changed:
            self._changed.notify_all()


class _Page:
    """The entries of a log since it was cleared. Only the broker's thread changes it; others copy the entries.

    That takes no lock, which would cost a request as much as the rest: a deque is appended to and copied in one step
    of the interpreter.
    """

    def __init__(self, log: RequestLog) -> None:
        self.entries: deque[Entry] = deque()
        self.log = log
        self.size_bytes = 0

    def forget_oldest(self, entries_max: int, bytes_max: int) -> None:
        """Forget those that are too many."""
        entries = self.entries
        while len(entries) > entries_max or self.size_bytes > bytes_max:
            oldest = entries.popleft()
            oldest.page = None
            self.size_bytes -= oldest.size_bytes


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
