"""Wakes one task when the high watermark of a shard's partition moves.

For decisions that may be acted on only once their record is committed.
"""

import math
from typing import Generic

from barnabas.coordinators.runtime.shard import Shard, State
from barnabas.world.waiting import Waiter, Watched


class HighWatermarks(Generic[State]):
    """The shards of which a task wants to know that records were committed."""

    def __init__(self) -> None:
        # An append alone changes nothing for the task.
        self._waiter = Waiter(sleeps_through_growth=True)
        self._shards: dict[Watched, Shard[State]] = {}

    def watch(self, shard: Shard[State]) -> None:
        """Watch this shard from now on. It counts as moved once: its log may have committed records."""
        # A shard that is watched already must not count as moved: the task would wake itself each
        # time that it has looked at the shard and goes on watching it.
        if self._shards.get(shard.partition) is shard:
            return
        self._shards[shard.partition] = shard
        self._waiter.touch(shard.partition)

    def look_again(self, shard: Shard[State]) -> None:
        """Watch this shard, which counts as moved once more: the task has not done all that it can."""
        self._shards[shard.partition] = shard
        self._waiter.touch(shard.partition)

    def leave(self, shard: Shard[State]) -> None:
        """Ignore this shard from now on."""
        # Another shard of the same partition, from a later election, may be watched by now: it
        # stays.
        if self._shards.get(shard.partition) is shard:
            del self._shards[shard.partition]
            self._waiter.unregister([shard.partition])

    async def moved(self) -> list[Shard[State]]:
        """Wait until a high watermark, or a role, has changed since the last call. The shards of which it has."""
        while True:
            await self._waiter.wait(math.inf)
            # Registers the partitions again before the caller looks at them, so no later change is missed.
            moved = [self._shards[each] for each in self._waiter.take_dirty() if each in self._shards]
            if moved:
                return moved
