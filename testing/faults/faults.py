"""`Faults`: what a test has its broker do wrong to clients (edge).

The test calls it from its own thread. The broker's loop asks it about each request (`choose`), and what it answers is
carried out there (`kinds.py`). A lock is between the two; neither holds it for longer than a look.

    with LocalBroker(topics=["orders"]) as broker:
        lost = broker.faults.drop("Produce", "after", topic="orders", times=1)
        run_my_program(broker.bootstrap_servers)
        assert lost.fired == 1
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, NamedTuple, Self, Unpack

from barnabas.broker.interception import Caller
from barnabas.testing.errors import FaultError, FaultMissed
from barnabas.testing.faults import kinds
from barnabas.testing.faults.entries import Entry, subjects_text
from barnabas.testing.faults.kafka_releases import newest_versions
from barnabas.testing.faults.kinds import Act, Response
from barnabas.testing.faults.matching import Filter, Match, Matchers, api_key_of, error_of, filter_of
from barnabas.testing.faults.names import ApiName, ErrorName, Release
from barnabas.testing.faults.noted import Noted
from barnabas.testing.faults.removal import Removal
from barnabas.testing.faults.row_cuts import TopicName
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS, Api
from barnabas.wire.errors import ErrorCode

PRODUCE = 0
FETCH = 1
METADATA = 3
WAIT_SECONDS = 5.0
SECONDS_MAX = 36_500 * 86_400  # a hundred years, as of the clock
MS_MAX = (1 << 31) - 1  # of a throttle, as its field has them
SEEN_MAX = 1000  # requests that a fault remembers: one without `times` may hit millions
SEEN_BYTES_MAX = 60 << 20
SIGHTINGS_MAX = 1000  # different requests that are counted
SHOWN_MAX = 12

AnyApi = ApiName | int | Api
AnyError = ErrorName | int | ErrorCode
Sighting = tuple[int, int, str | None, str]  # API, version, client id, and what a request is about
Answer = Callable[[Caller, m.Message, Response], Response]


class Fault:
    """One fault. As a context manager it is removed at the end of the block, and must have fired by then."""

    def __init__(self, faults: "Faults", text: str, requests: Filter, act: Act, matchers: Matchers) -> None:
        self._faults = faults
        self._text = text
        self._act = act
        nth = matchers.get("nth")
        self._nth = 1 if nth is None else nth
        # A fault for the third request is for that one alone.
        self._times = matchers.get("times", None if nth is None else 1)
        self._chance = matchers.get("chance")
        self._random = random.Random(matchers.get("seed", 0))
        self._matched = 0
        self._taken = 0
        self._is_reported = False  # by `check`: one complaint is enough
        self.requests = requests
        self.may_miss = bool(matchers.get("may_miss"))
        # Requests that the fault holds back wait for this, each on the loop of its broker.
        self.removed = Removal()
        self.fired = 0  # how many requests it has hit
        self.seen: list[Entry] = []  # the first of those requests
        self._seen_bytes = 0

    def __repr__(self) -> str:
        return f"<{self._text}, fired {self.fired}>"

    def __str__(self) -> str:
        return self._text

    def wait(self, times: int = 1, seconds: float = WAIT_SECONDS) -> None:
        """Wait until it has fired so often; FaultMissed if it has not in time."""
        if not self._faults.until(lambda: self.fired >= times, seconds):
            raise FaultMissed(
                f"{self} fired {self.fired} of {times} times within {seconds:g} s; {self._faults.sightings()}"
            )

    def remove(self) -> None:
        """End it: no further request is hit, and requests that it holds back go on."""
        self._faults.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()
        # An error of the test itself is the one to be shown: a fault that did not fire is then a
        # consequence.
        if error is None:
            self.check()

    def check(self) -> None:
        """FaultMissed if it never fired, unless it may miss."""
        if not self.fired and not self.may_miss and not self._is_reported:
            self._is_reported = True
            raise FaultMissed(f"{self} never fired, so the test has not tested it; {self._faults.sightings()}")

    # -- on the broker's thread, under the lock

    @property
    def is_spent(self) -> bool:
        """Whether it hits no further request."""
        return self._times is not None and self._taken >= self._times

    def takes(self) -> bool:
        """Whether it hits this request, which matches."""
        # Requests that match are counted even if chance or `times` spares them, because `nth`
        # counts requests.
        self._matched += 1
        if self._matched < self._nth or self.is_spent:
            return False
        if self._chance is not None and self._random.random() >= self._chance:
            return False
        self._taken += 1
        return True

    def spare(self) -> None:
        """A request that it took is not hit: it takes a later one."""
        self._taken -= 1

    def note(self, entry: Entry) -> None:
        """It has hit this request."""
        self.fired += 1
        if len(self.seen) < SEEN_MAX and self._seen_bytes < SEEN_BYTES_MAX:
            self.seen.append(entry)
            self._seen_bytes += entry.size_bytes

    @property
    def act(self) -> Act:
        """What it does."""
        return self._act


class Choice(NamedTuple):
    """The fault that hits a request, and how the request matches."""

    fault: Fault
    match: Match


class Faults:
    """The faults of one broker, or of several. The first one that matches a request wins."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._all: list[Fault] = []
        self._armed: list[Fault] = []
        self.armed_keys: frozenset[int] = frozenset()  # the APIs of which a request may be hit
        self.on_change: list[Callable[[], None]] = []  # called when `armed_keys` may have changed
        self._sightings: Counter[Sighting] = Counter()
        self._is_closed = False

    def __iter__(self) -> Iterator[Fault]:
        return iter(list(self._all))

    def fail(self, api: AnyApi, error: AnyError, *, after: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """The error is the response. With `after` the request is done all the same.

        For a topic, partition, group or transactional id only its rows fail, and the others are done.
        """
        key = api_key_of(api)
        code = error_of(error)
        requests = filter_of(key, matchers)
        # A response of Metadata has errors for topics alone.
        if key == METADATA and not requests.wanted:
            requests = requests._replace(wanted={"topic": None})
        text = f"fail({APIS[key].name}, {code.name}{', after=True' if after else ''}{_text(matchers)})"
        return self._add(text, requests, kinds.fail(code, after=after), matchers)

    def drop(
        self, api: AnyApi, when: Literal["before", "after", "midway"] = "before", **matchers: Unpack[Matchers]
    ) -> Fault:
        """The connection is closed before the request is done, after it, or midway through the response."""
        key = api_key_of(api)
        acts = {"before": kinds.drop_before, "after": kinds.drop_after, "midway": kinds.drop_midway}
        if not isinstance(when, str) or when not in acts:
            raise FaultError(f"drop: 'before', 'after' or 'midway', not {when!r}")
        text = f"drop({APIS[key].name}, {when}{_text(matchers)})"
        return self._add(text, filter_of(key, matchers), acts[when](), matchers)

    def delay(self, api: AnyApi, seconds: float, *, after: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """The request waits before it is done; with `after` its response waits."""
        key = api_key_of(api)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= SECONDS_MAX:
            raise FaultError(f"delay: a number of seconds, not {seconds!r}")
        text = f"delay({APIS[key].name}, {seconds:g} s{', after=True' if after else ''}{_text(matchers)})"
        return self._add(text, filter_of(key, matchers), kinds.delay(seconds, after=after), matchers)

    def hang(self, api: AnyApi, *, after: bool = False, **matchers: Unpack[Matchers]) -> Fault:
        """The request waits until the fault is removed; with `after` it is done, and its response waits."""
        key = api_key_of(api)
        text = f"hang({APIS[key].name}{', after=True' if after else ''}{_text(matchers)})"
        return self._add(text, filter_of(key, matchers), kinds.hang(after=after), matchers)

    def throttle(self, api: AnyApi, ms: int, **matchers: Unpack[Matchers]) -> Fault:
        """The client is throttled for so long, as by a quota."""
        key = api_key_of(api)
        if not isinstance(ms, int) or isinstance(ms, bool) or not 1 <= ms <= MS_MAX:
            raise FaultError(f"throttle: a number of milliseconds from 1 to {MS_MAX}, not {ms!r}")
        if "throttle_time_ms" not in m.response_class(APIS[key]).FIELDS:
            raise FaultError(f"the response of {APIS[key].name} cannot say that a client is throttled")
        return self._add(
            f"throttle({APIS[key].name}, {ms} ms{_text(matchers)})",
            filter_of(key, matchers),
            kinds.throttle(ms),
            matchers,
        )

    def stale(self, api: Literal["Metadata", 3] = "Metadata", **matchers: Unpack[Matchers]) -> Fault:
        """The response is that of before the last change of the metadata since `faults` was first used."""
        key = _one_of("stale", api, METADATA)
        return self._add(f"stale(Metadata{_text(matchers)})", filter_of(key, matchers), kinds.stale(), matchers)

    def corrupt(self, api: Literal["Fetch", "Produce", 0, 1], **matchers: Unpack[Matchers]) -> Fault:
        """One bit of a batch is turned, so that its checksum is wrong: of one that is fetched, or produced."""
        key = _one_of("corrupt", api, FETCH, PRODUCE)
        text = f"corrupt({APIS[key].name}{_text(matchers)})"
        return self._add(text, filter_of(key, matchers), kinds.corrupt(), matchers)

    def duplicate(self, api: Literal["Produce", 0] = "Produce", **matchers: Unpack[Matchers]) -> Fault:
        """The request is done twice, as by a client that has sent it again."""
        key = _one_of("duplicate", api, PRODUCE)
        return self._add(f"duplicate(Produce{_text(matchers)})", filter_of(key, matchers), kinds.duplicate(), matchers)

    def answer(self, api: AnyApi, response: m.Message | Answer, **matchers: Unpack[Matchers]) -> Fault:
        """Any response: a message, and nothing is done; or what a function makes.

        The function gets the call, the request, and the response of the broker, which has done the request. It runs on
        the broker's thread, and returns a response, or None to send none.
        """
        key = api_key_of(api)
        expected = m.response_class(APIS[key])
        if isinstance(response, m.Message):
            if not isinstance(response, expected):
                raise FaultError(f"answer: {APIS[key].name} has a {expected.__name__}, not {type(response).__name__}")
            act = kinds.answer_with(response)
        elif callable(response):
            act = kinds.answer_by(response)
        else:
            raise FaultError(f"answer: a {expected.__name__} or a function that makes one, not {response!r}")
        return self._add(f"answer({APIS[key].name}{_text(matchers)})", filter_of(key, matchers), act, matchers)

    def as_kafka(self, release: Release, **matchers: Unpack[Matchers]) -> Fault:
        """The broker has the APIs and versions of an older Kafka, and refuses others as that does."""
        newest = newest_versions(release)
        act = kinds.as_older(newest)
        requests = filter_of(None, matchers)._replace(newest=newest)
        return self._add(f"as_kafka({release}{_text(matchers)})", requests, act, matchers)

    def clear(self) -> None:
        """Remove all faults, without a check."""
        with self._changed:
            known = self._all
            self._all = []
            self._arm([])
            self._sightings.clear()
        for fault in known:
            # The requests are released outside of the lock, which their loops need to go on.
            fault.removed.set()

    def check(self) -> None:
        """FaultMissed with each fault that never fired, unless it may miss."""
        missed = []
        for fault in list(self._all):
            try:
                fault.check()
            except FaultMissed as error:
                missed.append(str(error))
        if missed:
            raise FaultMissed("\n".join(missed))

    def remove(self, fault: Fault) -> None:
        """As `Fault.remove`."""
        with self._changed:
            # The mark is set under the lock, so that a request which ends meanwhile does not arm
            # the fault again.
            fault.removed.set()
            self._arm([each for each in self._armed if each is not fault])

    def close(self) -> None:
        """The broker is closed: no further fault can be made, and no thread waits for one any more."""
        # New faults are refused before the others are cleared, so that none is left that holds a
        # request back for ever.
        self._is_closed = True
        self.clear()
        with self._changed:
            self._changed.notify_all()

    def until(self, is_there: Callable[[], bool], seconds: float) -> bool:
        """Wait until this holds, which is looked at when a fault fires; whether it does."""
        with self._changed:
            self._changed.wait_for(lambda: is_there() or self._is_closed, seconds)
            return is_there()

    def sightings(self) -> str:
        """What requests came while faults were set."""
        with self._changed:
            seen = list(self._sightings.items())
        if not seen:
            return "no request came while it was set"
        lines = [f"    {count} x {_sighting_text(sighting)}" for sighting, count in seen[:SHOWN_MAX]]
        more = [f"    and {len(seen) - SHOWN_MAX} others"] if len(seen) > SHOWN_MAX else []
        return "\n".join(["requests that came while faults were set:", *lines, *more])

    # -- on the broker's thread

    def may_hit(self, call: Caller) -> bool:
        """Whether a fault is set for requests of this API; `choose` says whether it is for this one."""
        if not self._armed:
            return False
        if call.api_key in self.armed_keys:
            return True
        # This takes no lock and does not look into the request: another API costs little more than
        # without a fault.
        self._sight((call.api_key, call.version, call.client_id, ""))
        return False

    def _sight(self, sighting: "Sighting") -> None:
        # A client may have a new id at each start, so the number of different ones is bounded.
        sightings = self._sightings
        if sighting in sightings or len(sightings) < SIGHTINGS_MAX:
            sightings[sighting] += 1

    def names_fetched_rows(self, *, of_broker: bool) -> bool:
        """Whether a Fetch of a client, or of another broker, has to name all of its partitions."""
        found = (fault.requests for fault in self._armed)
        return any(each.api_key == FETCH and each.wanted and each.brokers >= of_broker for each in found)

    def choose(self, call: Caller, request: m.Message, topic_name: TopicName) -> Choice | None:
        """The fault that hits this request, if there is one."""
        with self._changed:
            # What a request is about is noted, too, because a fault might have been meant for it.
            about = subjects_text(call.api_key, request)
            self._sight((call.api_key, call.version, call.client_id, about))
            for fault in self._armed:
                match = fault.requests.match(call, request, topic_name)
                if match is not None and fault.takes():
                    self._arm([each for each in self._armed if not each.is_spent])
                    return Choice(fault, match)
        return None

    @contextmanager
    def hitting(self, fault: Fault, noted: Noted) -> Iterator[None]:
        """While a fault acts on a request that it has taken.

        If the request ends without the effect, the fault takes a later one: a Fetch may find no records to damage, and
        a client may leave before its response.
        """
        try:
            yield
        except BaseException as error:
            # If a function of the test fails, the fault is used up: the function is not called
            # again for a later request. After a cancellation it is.
            if isinstance(error, Exception):
                noted.fault = str(fault)
            raise
        finally:
            if noted.fault is None:
                self._spare(fault)

    def _spare(self, fault: Fault) -> None:
        with self._changed:
            fault.spare()
            armed = [each for each in self._all if each in self._armed or each is fault]
            if not fault.removed.is_set:
                self._arm(armed)

    def fire(self, fault: Fault, noted: Noted) -> None:
        """A fault shows its effect."""
        with self._changed:
            # This is not counted in `choose`, because a request may be chosen and then wait long
            # for its effect.
            noted.fault = str(fault)
            fault.note(Entry(noted))
            self._changed.notify_all()

    def _add(self, text: str, requests: Filter, act: Act, matchers: Matchers) -> Fault:
        fault = Fault(self, text, requests, act, matchers)
        with self._changed:
            if self._is_closed:
                raise FaultError(f"{text}: the broker was closed")
            self._all.append(fault)
            self._arm([*self._armed, fault])
        return fault

    def _arm(self, faults: list[Fault]) -> None:
        self._armed = faults
        keys = {fault.requests.api_key for fault in faults}
        self.armed_keys = frozenset(APIS if None in keys else (each for each in keys if each is not None))
        for notify in self.on_change:
            notify()


def _one_of(kind: str, api: AnyApi, *keys: int) -> int:
    key = api_key_of(api)
    if key not in keys:
        raise FaultError(f"{kind}: of {' or '.join(APIS[each].name for each in keys)}, not {APIS[key].name}")
    return key


def _sighting_text(sighting: Sighting) -> str:
    api_key, version, client_id, about = sighting
    return f"{APIS[api_key].name} v{version}{about} of {client_id!r}"


def _text(matchers: Matchers) -> str:
    return "".join(f", {name}={value!r}" for name, value in matchers.items())
