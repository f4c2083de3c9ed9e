"""The links of the simulated network: messages from one party to another, and their times of arrival.

A party has a network address of its own: a broker, a client, the metadata store. A `Link` is one direction between two
parties: its latency, and whether it is cut. A `Wire` is one direction of one connection on a link: as with TCP, items
arrive in the order in which they were sent, none is lost while the connection lives, and none arrives twice. While the
link is cut items wait (TCP retransmits them); after too long a time the sender's connection ends.

A wire needs one timer, whatever the number of items on it, and items that were sent at the same moment arrive together.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from barnabas.testing.simulation.schedule import VirtualClock

Payload = TypeVar("Payload")
Payload_contra = TypeVar("Payload_contra", contravariant=True)

LATENCY_SECONDS_MIN, LATENCY_SECONDS_MAX = 0.000_1, 0.001  # of a link, drawn once
JITTER_SHARE = 0.5  # of the latency, drawn for each message
RESEND_SECONDS_MAX = 0.4  # after a cut link was mended, until the sender tries again
GIVE_UP_SECONDS_MIN, GIVE_UP_SECONDS_MAX = 5.0, 20.0  # how long a sender goes on without an acknowledgement


class Link:
    """One direction between two parties."""

    def __init__(self, clock: VirtualClock, rng: random.Random, source: str, target: str) -> None:
        self.clock = clock
        self.rng = rng
        self.source = source
        self.target = target
        self.extra_seconds = 0.0  # a fault: every message takes up to so much longer
        self.cuts = 0  # how many faults cut it now
        self.message_count = 0
        self._latency = rng.uniform(LATENCY_SECONDS_MIN, LATENCY_SECONDS_MAX)
        self._stalled: dict[Wire[object], None] = {}

    @property
    def is_cut(self) -> bool:
        """Whether nothing arrives."""
        return self.cuts > 0

    def latency(self) -> float:
        """How long the next message takes."""
        seconds = self._latency * (1 + JITTER_SHARE * self.rng.random())
        return seconds + self.rng.random() * self.extra_seconds if self.extra_seconds else seconds

    def cut(self) -> None:
        """From now on nothing arrives."""
        self.cuts += 1

    def mend(self) -> None:
        """Take one cut back; what waited is sent again."""
        self.cuts -= 1
        if self.cuts == 0:
            stalled = self._stalled
            self._stalled = {}
            for wire in stalled:
                wire.send_again()

    def stall(self, wire: "Wire[object]") -> None:
        """For `Wire`."""
        self._stalled[wire] = None


class Tap(Protocol[Payload_contra]):
    """Hears of each item of one wire, at the moment when it happens; it changes nothing."""

    def sent(self, item: Payload_contra) -> None:
        """The item is under way."""

    def arrived(self, item: Payload_contra) -> None:
        """The item is about to be handed to the far end."""

    def closed(self) -> None:
        """Whatever is under way is lost."""


class Wire(Generic[Payload]):
    """A connection's one way: `arrive(item)` is called at the far end, `on_dead()` when the near end gives up."""

    __slots__ = (
        "_armed",
        "_arrive",
        "_flying",
        "_last_arrival",
        "_last_sent",
        "_on_dead",
        "_stalls",
        "is_closed",
        "link",
        "tap",
    )

    def __init__(self, link: Link, arrive: Callable[[Payload], None], on_dead: Callable[[], None]) -> None:
        self.link = link
        self.is_closed = False
        self.tap: Tap[Payload] | None = None
        self._arrive = arrive
        self._on_dead = on_dead
        self._flying: deque[tuple[float, Payload]] = deque()
        self._armed = False
        self._last_sent = self._last_arrival = 0.0
        self._stalls = 0

    def send(self, item: Payload) -> None:
        """Let an item travel."""
        if self.is_closed:
            # The sender has not heard yet that the connection is dead. Its message is lost.
            if self.tap is not None:
                self.tap.sent(item)
                self.tap.closed()
            return
        clock = self.link.clock
        now = clock.now
        if self._last_sent != now or not self._flying:
            self._last_sent = now
            self._last_arrival = max(self._last_arrival, now + self.link.latency())
            self.link.message_count += 1
        self._flying.append((self._last_arrival, item))
        if self.tap is not None:
            self.tap.sent(item)
        if not self._armed:
            self._armed = True
            clock.call_at(self._last_arrival, self._due)

    def hold(self, seconds: float) -> None:
        """What is sent from now on arrives after so long at the earliest; other connections are not touched."""
        self._last_arrival = max(self._last_arrival, self.link.clock.now + seconds)

    def release(self) -> None:
        """What was held arrives now."""
        now = self._last_arrival = self.link.clock.now
        if self._flying:
            self._flying = deque((min(at, now), item) for at, item in self._flying)
            self.link.clock.call_in(0, self._due)

    def close(self) -> None:
        """Nothing arrives any more."""
        if self.tap is not None and not self.is_closed:
            self.tap.closed()
        self.is_closed = True
        self._flying.clear()

    def send_again(self) -> None:
        """The link was mended."""
        self._stalls += 1
        self.link.clock.call_in(self.link.rng.random() * RESEND_SECONDS_MAX, self._due)

    def _due(self) -> None:
        if self.is_closed:
            return
        link = self.link
        if link.cuts:
            link.stall(self)  # type: ignore[arg-type]  # a link does not look at what is sent
            patience = link.rng.uniform(GIVE_UP_SECONDS_MIN, GIVE_UP_SECONDS_MAX)
            link.clock.call_in(patience, self._give_up, self._stalls)
            return

        now = link.clock.now
        flying = self._flying
        while flying and flying[0][0] <= now:
            item = flying.popleft()[1]
            if self.tap is not None:
                self.tap.arrived(item)
            self._arrive(item)
        if flying:
            link.clock.call_at(flying[0][0], self._due)
        else:
            self._armed = False

    def _give_up(self, stalls: int) -> None:
        if stalls == self._stalls and not self.is_closed:
            self.close()
            self._on_dead()
