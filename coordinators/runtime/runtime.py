"""The way of a request to the state of a coordinator, the same for every coordinator (shell).

As in Kafka's CoordinatorRuntime a coordinator hands in what is decided, and the runtime does
everything else: it finds the shard, appends, replays, and holds the answer until the records on
which it depends are committed. There is no lock: a step is synchronous, so nothing changes within it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from barnabas.coordinators.runtime.placement import Placement
from barnabas.coordinators.runtime.ports import ShardWorld
from barnabas.coordinators.runtime.shard import Shard, State
from barnabas.coordinators.runtime.shards import Owner, Shards
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition

Answer = TypeVar("Answer")
Made = TypeVar("Made")


class Outcome(NamedTuple, Generic[Answer]):
    """The answer that a step gives, and the newest record that it depends on."""

    answer: Answer
    after_offset: int = NO_OFFSET
    # No record was written for it. Another broker may be the coordinator since, and know better.
    rests_on_memory: bool = False


# Whether it is certain that no other broker leads, once it was asked.
Confirmed = dict[Shard[State], ErrorCode]

# One synchronous step. It decides, stores (`Shards.store`) and returns the outcome. Where something
# must be made before, in a thread as a rule, it returns an async function instead, and gets the
# result of that with the shard again.
Step = Callable[[Shard[State], Made | None], Outcome[Answer] | Callable[[], Awaitable[Made]]]


class Waits(NamedTuple):
    """How long an answer may wait; None: it does not wait at all."""

    committed_ms: Callable[[], int | None]  # for the records that it depends on
    confirmed_ms: Callable[[], int | None]  # until it is certain that no other broker leads


class Runtime(Shards[State]):
    """The shards of one internal topic, and the way of requests to them."""

    def __init__(
        self,
        topic: str,
        owner: Owner[State],
        world: ShardWorld,
        placement: Placement,
        slice_bytes: Callable[[], int],
        waits: Waits,
    ) -> None:
        super().__init__(topic, owner, world, slice_bytes)
        self._placement = placement
        self._waits = waits

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """These partitions, of any topic, are being deleted."""
        # The internal topic may be created again with another number of partitions.
        if any(each.topic == self._topic for each in deleted):
            self._placement.expect_partitions(0)
        self._owner.on_partitions_deleted(deleted)

    async def write(
        self,
        key: str,
        act: Step[State, Made, Answer],
        refuse: Callable[[ErrorCode], Answer],
    ) -> Answer:
        """Apply `act` to the shard of `key`, and answer when the records on which the answer depends are committed.

        `refuse` makes an answer of an error: those of `find`, `await_confirmed`, `await_committed`.
        """
        while True:
            shard = self.find(self._placement.partition_of(key))
            if isinstance(shard, ErrorCode):
                return refuse(shard)

            outcome = await self.change(shard, act)
            # There is no outcome if the shard was dropped while something was made for it.
            if outcome is not None:
                error = await self.hold(shard, outcome)
                return refuse(error) if error else outcome.answer

    def write_now(
        self,
        key: str,
        act: Callable[[Shard[State]], Answer],
        refuse: Callable[[ErrorCode], Answer],
    ) -> Answer:
        """As `write`, where nothing is to be made before, and the answer depends on no record."""
        shard = self.find(self._placement.partition_of(key))
        if isinstance(shard, ErrorCode):
            return refuse(shard)
        return self.step(shard, act, shard)

    async def change(self, shard: Shard[State], act: Step[State, Made, Answer]) -> Outcome[Answer] | None:
        """Apply `act` to this shard, without waiting for its records; None if it is dropped before.

        Raises what `act` raises (`Shards.step`).
        """
        made: Made | None = None
        while not shard.refusal:
            result = self.step(shard, act, shard, made)
            if isinstance(result, Outcome):
                return result
            # If the state changes meanwhile, `act` sees that and returns another function.
            made = await result()
        return None

    async def read(
        self,
        key: str,
        look: Callable[[Shard[State]], Awaitable[Outcome[Answer]]],
        refuse: Callable[[ErrorCode], Answer],
        confirmed: Confirmed[State] | None = None,
    ) -> Answer:
        """What `look` sees in the shard of `key`, when the records that it depends on are committed.

        An answer that `rests_on_memory` waits until it is certain, for each shard in `confirmed`
        once, that no other broker leads. `refuse` makes an answer of an error: those of `find`,
        `await_confirmed` and `await_readable`.
        """
        shard = self.find(self._placement.partition_of(key))
        if isinstance(shard, ErrorCode):
            return refuse(shard)

        outcome = await look(shard)
        error = ErrorCode.NONE
        if outcome.rests_on_memory:
            error = await self._confirm(shard, {} if confirmed is None else confirmed)
        error = error or await self.await_shown(shard, outcome.after_offset)
        return refuse(error) if error else outcome.answer

    async def await_shown(self, shard: Shard[State], after_offset: int) -> ErrorCode:
        """`await_readable`, for as long as an answer may wait."""
        timeout_ms = self._waits.committed_ms()
        if timeout_ms is None:
            return ErrorCode.NONE
        return await self.await_readable(shard, after_offset, timeout_ms)

    async def _confirm(self, shard: Shard[State], confirmed: Confirmed[State]) -> ErrorCode:
        timeout_ms = self._waits.confirmed_ms()
        if timeout_ms is not None and shard not in confirmed:
            confirmed[shard] = await self.await_confirmed(shard, timeout_ms)
        return confirmed.get(shard, ErrorCode.NONE)

    async def hold(self, shard: Shard[State], outcome: Outcome[Answer]) -> ErrorCode:
        """Wait until the answer may be given: NONE, or why it cannot be given."""
        # A successor that this broker has not heard of may know a later transaction of a producer,
        # which is lost if its EndTxn gets the answer for the transaction before.
        if outcome.rests_on_memory:
            error = await self._confirm(shard, {})
            if error or shard.is_committed(outcome.after_offset):
                return error
        # The record stays in the log even if it is not committed in time, so it may take effect
        # after an error.
        timeout_ms = self._waits.committed_ms()
        if timeout_ms is None:
            return ErrorCode.NONE
        return await self.await_committed(shard, outcome.after_offset, timeout_ms)
