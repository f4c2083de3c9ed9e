"""What a broker counts beside its topics: requests by API, connections by listener, and its load (pure).

`Tally` is made first of all parts and hangs on `Broker`. `Call.tally` is the `ApiTally` of the request, so that
counting one costs a few additions. The code that counts is in `server/`; `console/` reads.

A request is *direct* if it waited for nothing: then its whole time is local time, and one histogram holds both. Of one
that waited (a long poll, acks=all, a rebalance) three histograms hold the whole time, the time at work and the wait:
Kafka's TotalTimeMs, LocalTimeMs and RemoteTimeMs.
"""

from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

from barnabas.wire.apis import APIS
from barnabas.wire.errors import ErrorCode
from barnabas.world.tally import LATEST_MAX, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.world.watchdog import Watchdog

FETCH = 1  # API key
# Names and versions of client software that are distinguished. Clients choose them, and each would
# be a series of its own in the exposition.
SOFTWARE_MAX = 100


class WaitingTally:
    """The requests of one API that waited, in s."""

    __slots__ = ("local", "remote", "total")

    def __init__(self) -> None:
        self.total = Histogram()
        self.local = Histogram()
        self.remote = Histogram()


class ApiTally:
    """The requests of one API. What most APIs never need is made when it is needed."""

    __slots__ = ("direct", "errors", "sending", "sizes", "successes", "throttle", "versions", "waiting")

    def __init__(self, version_max: int) -> None:
        self.versions = [0] * (version_max + 1)  # requests by version
        self.errors: dict[int, int] = defaultdict(int)  # error code -> how often a response had it, without `successes`
        self.successes = 0  # the codes NONE of responses made of a shape (`now/`): an integer costs half as much
        self.sizes = Histogram(scale=1)  # of requests, in bytes
        self.direct = Histogram()  # requests that waited for nothing, in s
        self.waiting: WaitingTally | None = None
        self.sending: Histogram | None = None  # of responses that the network did not take at once, in s
        self.throttle: Histogram | None = None  # of clients that were throttled, in s

    @property
    def count(self) -> int:
        """How many requests have been answered."""
        return sum(self.versions)

    def error_counts(self) -> dict[int, int]:
        """Error code -> how often a response had it."""
        successes = self.errors.get(ErrorCode.NONE, 0) + self.successes
        return {**self.errors, ErrorCode.NONE: successes} if successes else dict(self.errors)

    def answered(self, version: int, size_bytes: int, total_seconds: float, waited_seconds: float) -> None:
        """Count a request whose response has been handed to the network."""
        self.versions[version] += 1
        sizes = self.sizes.latest
        sizes.append(size_bytes)
        if waited_seconds:
            self._waited(total_seconds, waited_seconds)
        else:
            self.direct.latest.append(total_seconds)
        # The latest values are put into buckets together, because one at a time would take three times as long. `sizes`
        # grows with every request, so its length decides for `direct`, too.
        if len(sizes) >= LATEST_MAX:
            self.sizes.put_away()
            self.direct.put_away()

    def _waited(self, total_seconds: float, waited_seconds: float) -> None:
        # Most APIs never wait, and three histograms take five kilobytes.
        if self.waiting is None:
            self.waiting = WaitingTally()
        # The two values come from two clocks. In virtual time the total stays 0, because work takes no time there.
        self.waiting.remote.observe(waited_seconds)
        self.waiting.local.observe(max(0.0, total_seconds - waited_seconds))
        self.waiting.total.observe(max(total_seconds, waited_seconds))

    def sent(self, seconds: float) -> None:
        """A response took so long, because the network did not take it at once."""
        if self.sending is None:
            self.sending = Histogram()
        self.sending.observe(seconds)

    def throttled(self, seconds: float) -> None:
        """The client of a request waits for so long before its next one."""
        if self.throttle is None:
            self.throttle = Histogram()
        self.throttle.observe(seconds)


class ListenerTally:
    """The connections of one listener since the start."""

    __slots__ = ("accepted", "closed", "failed_logins", "logins", "refused")

    def __init__(self) -> None:
        self.accepted = 0
        self.closed = 0
        self.refused = 0  # at a limit, or because their client connects too often
        self.logins = 0  # TLS handshakes and SASL logins that were complete
        self.failed_logins = 0


class OpenConnection(Protocol):
    """What is read of a connection (`server.connections.Connection`)."""

    listener: str
    api_key: int
    rests: int
    sending: bool
    software: tuple[str, str] | None

    @property
    def is_at_work(self) -> bool: ...
    @property
    def pipelined_count(self) -> int: ...


class OpenConnections(Protocol):
    """What is read of all connections (`server.connections.Connections`)."""

    def __len__(self) -> int: ...
    def __iter__(self) -> "Iterator[OpenConnection]": ...
    def held_bytes(self) -> int: ...
    def limit_bytes(self) -> int: ...


class Tally:
    """What one broker has counted, and where its load is read."""

    def __init__(self) -> None:
        self.apis = {key: ApiTally(api.max_version) for key, api in APIS.items() if api.served}
        self.follower_fetches = ApiTally(APIS[FETCH].max_version)  # `apis` has those of consumers
        # A listener is known when its first connection comes; the exposition reads all of them.
        self.listeners: dict[str, ListenerTally] = defaultdict(ListenerTally)
        self.flushes = Histogram()  # each round of syncs of a log directory, in s
        self.broker_changes = Histogram()  # the controller's work when a broker has come or gone, in s
        self.store_calls = Histogram()  # calls of ZooKeeper, in s
        # The next two are set by `serve.py` while they exist.
        self.connections: OpenConnections | None = None  # while connections are served
        self.watchdog: Watchdog | None = None  # while steps are timed
        self._software: dict[tuple[str, str], tuple[str, str]] = {}

    def software(self, name: str, version: str) -> tuple[str, str] | None:
        """The one object for this software of clients; None if there are too many kinds to tell apart."""
        # Connections share the object: there may be tens of thousands of them.
        known = self._software.get((name, version))
        if known is None and len(self._software) < SOFTWARE_MAX:
            known = self._software[name, version] = (name, version)
        return known
