"""What the members of all groups take in memory, by group (shell).

Members, pending member ids, and groups of which the log has nothing yet are memory that clients choose. When all groups
together would take more than `group.members.max.bytes`, the largest group loses pending ids, the oldest first, then
its newest members. Where none is larger than the one that asks, the group pays of which nothing was heard for longest,
if that is long: a client may also fill the memory with thousands of small groups, and then be silent. Otherwise the
request is refused until there is memory, with an error that clients retry. Members that are loaded from the log count,
but nothing is refused or removed at a load.
"""

from collections import OrderedDict
from itertools import islice

from barnabas.coordinators.groups.classic.state import GROUP_BYTES, Group, text_bytes
from barnabas.coordinators.groups.replay import Groups
from barnabas.coordinators.runtime.shard import Shard
from barnabas.world.memory import Account

# Sheddings for one request: each is an event of a group. A request that needs more is retried.
SHEDDINGS_MAX = 5
# A consumer sends a heartbeat every three seconds, if its application does not say otherwise.
SILENT_SECONDS = 5.0
# Groups that are looked at for a silent one: those in front may wait for a response, which is no silence.
LOOKED_AT_MAX = 100


class Held:
    """What one group takes: the owner in the account."""

    __slots__ = ("group", "heard_at", "held_bytes", "shard")

    def __init__(self, shard: Shard[Groups], group: Group) -> None:
        self.shard = shard
        self.group = group
        self.held_bytes = 0
        self.heard_at = 0.0

    @property
    def is_evictable(self) -> bool:
        """Whether it has something to lose."""
        return bool(self.group.pending_members or self.group.members) or self.is_left_over

    @property
    def is_left_over(self) -> bool:
        """Whether the log has nothing about the group, and it has no member."""
        return not (self.group.pending_members or self.group.members) and self.group.recorded.is_blank


class GroupMemory:
    """The account of all groups of this broker."""

    def __init__(self, limit_bytes: int) -> None:
        self._account = Account[Held](limit_bytes, weighs_time=False, evicted_bytes_min=1)
        self._held: dict[Group, Held] = {}
        # Those that hold something; first the one of which nothing was heard for longest.
        self._by_silence: OrderedDict[Held, None] = OrderedDict()

    @property
    def held_bytes(self) -> int:
        """What all groups take."""
        return self._account.held_bytes

    def count(self, shard: Shard[Groups], group: Group, now: float, *, is_heard: bool) -> None:
        """Count what the group takes now, in place of what was counted before.

        `now` is on trio's clock; `is_heard` if a request of a client is the reason.
        """
        held_bytes = group.held_bytes
        if group.recorded.is_blank:
            held_bytes += GROUP_BYTES + text_bytes(group.group_id)
        held = self._held.get(group)
        if held is None:
            held = self._held[group] = Held(shard, group)
        # Groups are not compared by time.
        self._account.hold(held, held_bytes, 0.0)
        if not held_bytes:
            self._by_silence.pop(held, None)
        # A group that was just loaded counts as heard now, so that it has SILENT_SECONDS for a
        # first request.
        elif is_heard or held not in self._by_silence:
            held.heard_at = now
            self._by_silence[held] = None
            self._by_silence.move_to_end(held)

    def release(self, group: Group) -> None:
        """The group was removed."""
        held = self._held.pop(group, None)
        if held is not None:
            self._account.hold(held, 0, 0.0)
            self._by_silence.pop(held, None)

    def lacks(self, grown_bytes: int) -> bool:
        """Whether there is no memory for so many bytes more."""
        return self._account.held_bytes + grown_bytes > self._account.limit_bytes

    def to_shed(self, asking: Group | None, grown_bytes: int, now: float) -> Held | None:
        """The group that has to lose something so that `asking` may grow; None if `asking` has to wait.

        `now` is on trio's clock.
        """
        largest = self._account.worst(0.0)
        # Pending ids cost their clients nothing, so they go first: also those of the group that asks.
        if largest is None or largest.group.pending_members or largest.is_left_over:
            return largest
        asking_bytes = 0 if asking is None or asking not in self._held else self._held[asking].held_bytes
        if largest.group is asking or largest.held_bytes <= asking_bytes + grown_bytes:
            return self._silent(asking, now)
        return largest

    def _silent(self, asking: Group | None, now: float) -> Held | None:
        """Another group of which nothing was heard for long; None if there is none."""
        for held in islice(self._by_silence, LOOKED_AT_MAX):
            if now - held.heard_at < SILENT_SECONDS:
                break
            if held.group is not asking and not held.group.joins and not held.group.syncs:
                return held
        return None
