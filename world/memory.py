"""The memory that clients make this broker hold, by owner: `Account` (pure).

The owner that spends most pays. An owner (a connection, or a consumer group) says what it holds, and never waits for
memory. When all owners together hold more than the limit, the worst one is evicted, until the others fit. The worst is
the one that holds most and frees least: a connection is measured by its bytes times the time since it began to hold
about so many. A request that is read, handled and answered at an ordinary pace holds its bytes for milliseconds, so it
is never evicted while others keep half a frame, a waiting request or an unread response for seconds.

The limits are shares of the machine's memory (`request_limit_bytes`, `members_limit_bytes`), or properties.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Generic, Protocol, TypeVar

# Connections that hold less are counted, but not evicted: too many would have to be closed to make room for a request.
EVICTED_BYTES_MIN = 1 << 12
# Owners that are looked at in one size class. The first ones may not be evictable now, because they are being served.
LOOKED_AT_MAX = 100
CLASSES = 64  # of sizes, by powers of two
# Added to the time that an owner has held its bytes, so that of owners that have just begun the largest is the worst.
SOME_SECONDS = 0.01
# Up to this multiple of the limit no owner is evicted while a worse one is being served, because that soon ends.
SPARED_FACTOR = 1.25

# Shares of the machine's memory. A broker on a small machine must leave memory for the page cache; on a large one no
# more than this is held for clients at any time.
REQUESTS_SHARE = 8
REQUESTS_BYTES_MIN = 128 << 20
REQUESTS_BYTES_MAX = 512 << 20
MEMBERS_SHARE = 16
MEMBERS_BYTES_MIN = 48 << 20
MEMBERS_BYTES_MAX = 256 << 20


class Owner(Protocol):
    """What holds memory. Only its account changes `held_bytes`."""

    held_bytes: int

    @property
    def is_evictable(self) -> bool:
        """Whether it may be evicted now, without harm to others."""
        ...


Each = TypeVar("Each", bound=Owner)


class Account(Generic[Each]):
    """What owners hold together.

    `weighs_time` if how long they hold it counts, and not only how much. Owners of less than `evicted_bytes_min` are
    not evicted.
    """

    # Owners by size class (powers of two). Within a class those that have been in it longest come first, so the worst
    # owner is sought among the first of each class. A worse one may be missed, but by a factor of two at most.

    def __init__(
        self, limit_bytes: int, *, weighs_time: bool = True, evicted_bytes_min: int = EVICTED_BYTES_MIN
    ) -> None:
        self.limit_bytes = limit_bytes
        self._evicted_bytes_min = evicted_bytes_min
        self.held_bytes = 0
        self._weighs_time = weighs_time
        self._classes: list[dict[Each, float]] = [{} for _ in range(CLASSES)]

    def hold(self, owner: Each, held_bytes: int, now: float) -> None:
        """Set what this owner holds; `now` is on trio's clock."""
        before_bytes = owner.held_bytes
        self.held_bytes += held_bytes - before_bytes
        owner.held_bytes = held_bytes

        # Most owners hold little at most times, and are in no class.
        least_bytes = self._evicted_bytes_min
        if held_bytes < least_bytes and before_bytes < least_bytes:
            return

        before = self._class_of(before_bytes)
        after = self._class_of(held_bytes)
        if before != after:
            if before:
                self._classes[before].pop(owner, None)
            if after:
                self._classes[after][owner] = now

    @property
    def is_above_limit(self) -> bool:
        """Whether owners are to be evicted."""
        return self.held_bytes > self.limit_bytes

    def to_evict(self, now: float) -> Iterator[Each]:
        """The owners to evict so that the others fit, the worst first. What they hold counts as released.

        None is left to evict while the others are being served, and the last one may exceed the limit alone.
        """
        while self.is_above_limit:
            worst = self.worst(now)
            if worst is None or self._is_alone(worst):
                return
            self.hold(worst, 0, now)
            yield worst

    def _class_of(self, held_bytes: int) -> int:
        """0 for an owner that is not evicted."""
        return held_bytes.bit_length() if held_bytes >= self._evicted_bytes_min else 0

    def _is_alone(self, owner: Each) -> bool:
        return sum(map(len, self._classes)) == len(self._classes[self._class_of(owner.held_bytes)]) == 1

    def worst(self, now: float) -> Each | None:
        """The owner that holds most and frees least, of those that may be evicted; None if there is none."""
        worst: Each | None = None
        highest = 0.0
        highest_served = 0.0
        for owners in self._classes:
            for owner, since in islice(owners.items(), LOOKED_AT_MAX):
                cost = owner.held_bytes * (now - since + SOME_SECONDS if self._weighs_time else 1.0)
                if not owner.is_evictable:
                    highest_served = max(highest_served, cost)
                    continue
                if cost > highest:
                    worst = owner
                    highest = cost
                break

        # If the worst owner is being served, no other pays for it up to SPARED_FACTOR: otherwise well-behaved owners
        # would be evicted while attackers happen to be served.
        is_spared = highest < highest_served and self.held_bytes <= self.limit_bytes * SPARED_FACTOR
        return None if is_spared else worst


def request_limit_bytes(configured_bytes: int, frame_bytes_max: int, machine_bytes: int) -> int:
    """What all connections may hold: `queued.max.request.bytes`, or a share of the machine's memory if that is -1."""
    if configured_bytes > 0:
        return configured_bytes
    share = _share(machine_bytes, REQUESTS_SHARE, REQUESTS_BYTES_MIN, REQUESTS_BYTES_MAX)
    # A smaller limit would let a valid `socket.request.max.bytes` announce frames that cannot be
    # read.
    return max(share, frame_bytes_max)


def members_limit_bytes(configured_bytes: int, machine_bytes: int) -> int:
    """What the members of all groups may hold: `group.members.max.bytes`, or a share of memory if that is -1."""
    if configured_bytes > 0:
        return configured_bytes
    return _share(machine_bytes, MEMBERS_SHARE, MEMBERS_BYTES_MIN, MEMBERS_BYTES_MAX)


def _share(machine_bytes: int, share: int, least_bytes: int, most_bytes: int) -> int:
    return min(max(machine_bytes // share, least_bytes), most_bytes)
