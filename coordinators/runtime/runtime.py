"""The way of a request to the state of a coordinator, the same for every coordinator (shell).

As in Kafka's CoordinatorRuntime a coordinator decides, and the runtime does everything else: it finds
the shard, appends, replays, and holds the answer until the records on which it depends are committed.
There is no lock: a step is synchronous, so nothing changes within it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, overload

from barnabas.coordinators.runtime.placement import Placement
from barnabas.coordinators.runtime.ports import ShardWorld
from barnabas.coordinators.runtime.shard import Shard, State
from barnabas.coordinators.runtime.shards import Owner, Shards
from barnabas.storage.producers import Origin
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import ACKS_ALL, NO_OFFSET
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.storage.verification import Guard
    from barnabas.wire.records import Batch

Answer = TypeVar("Answer")
Made = TypeVar("Made")


class NotExecuted(Exception):
    """Raised by a step that has changed nothing."""


class Outcome(NamedTuple, Generic[Answer]):
    """An answer, and the newest record that it depends on."""

    answer: Answer
    after_offset: int = NO_OFFSET
    # True if no record was written for the answer: another broker may have become the coordinator
    # and have changed the state.
    rests_on_memory: bool = False


class Write(NamedTuple, Generic[State, Answer]):
    """Records to append as one batch, and the answer that is given when they are committed."""

    batch: "Batch | ErrorCode"  # the error: why there is none
    replay: Callable[[State, int], object]  # the change of the state; it gets the offset of the first record
    answer: Answer
    is_held: bool = True  # False: the answer does not depend on the records
    then: Callable[[], object] | None = None  # what follows in the same step
    # The rest is passed on to `append_as_leader`.
    required_acks: int = ACKS_ALL
    guard: "Guard | None" = None
    is_verifying: bool = False


# The shards for which it was asked whether another broker leads: NONE if certainly not, or an
# error.
Confirmed = dict[Shard[State], ErrorCode]

# One synchronous step, which decides. If something must be made first, usually in a thread, it
# returns an async function instead, and is called again with the result of that function and the
# same shard.
Step = Callable[
    [Shard[State], Made | None],
    Outcome[Answer] | Write[State, Answer] | Callable[[], Awaitable[Made]],
]


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
        *,
        index: int | None = None,
    ) -> Answer:
        """Apply `act` to the shard of `key`, and answer when the records on which the answer depends are committed.

        `refuse` makes an answer of an error: those of `find`, `step`, `await_confirmed` and
        `await_committed`. Raises what `step` raises. `index`: the partition, where that does not
        follow from the key.
        """
        made: Made | None = None
        made_for: Shard[State] | None = None
        while True:
            shard = self.find(self._placement.partition_of(key) if index is None else index)
            if isinstance(shard, ErrorCode):
                return refuse(shard)

            result = self.step(shard, act, made if made_for is shard else None)
            if isinstance(result, ErrorCode):
                return refuse(result)
            if not isinstance(result, Outcome):
                # If the state changes meanwhile, `act` sees that and returns another function.
                made = await result()
                made_for = shard
                continue

            # Another broker may lead without this broker's knowledge, and have begun a later
            # transaction of the producer. That one is lost if its EndTxn gets the answer for the
            # transaction before.
            error = await self._confirm(shard, {}) if result.rests_on_memory else ErrorCode.NONE

            # The record stays in the log even if it is not committed in time, so it may take effect
            # after an error.
            if not error and not shard.is_committed(result.after_offset):
                error = await self.await_committed(shard, result.after_offset, self._waits.committed_ms())
            return refuse(error) if error else result.answer

    def write_now(
        self,
        key: str,
        act: Callable[[Shard[State]], Answer],
        refuse: Callable[[ErrorCode], Answer],
    ) -> Answer:
        """As `write`, where `act` makes its steps itself, and the answer depends on no record."""
        shard = self.find(self._placement.partition_of(key))
        return refuse(shard) if isinstance(shard, ErrorCode) else act(shard)

    @overload
    def step(
        self, shard: Shard[State], act: Callable[[Shard[State], None], Outcome[Answer] | Write[State, Answer]]
    ) -> Outcome[Answer] | ErrorCode: ...

    @overload
    def step(
        self, shard: Shard[State], act: Step[State, Made, Answer], made: Made | None
    ) -> Outcome[Answer] | ErrorCode | Callable[[], Awaitable[Made]]: ...

    def step(
        self, shard: Shard[State], act: Step[State, Made, Answer], made: Made | None = None
    ) -> Outcome[Answer] | ErrorCode | Callable[[], Awaitable[Made]]:
        """What `act` decides, and if that is a Write, append the batch, replay it, and do what follows.

        Errors, after which nothing has changed: that of the batch, MESSAGE_TOO_LARGE, and those of
        `append_as_leader`. Raises what `act` raises; the shard is then loaded again from its log,
        unless that is NotExecuted.
        """
        try:
            result = act(shard, made)
            if not isinstance(result, Write):
                return result

            batch = result.batch
            if isinstance(batch, ErrorCode):
                return batch

            # Kafka checks this in the append; here `append_as_leader` takes batches that are already
            # checked. A topic whose batches must be smaller than a marker would keep its transactions
            # open for ever.
            is_too_large = batch.header.size_bytes > shard.partition.config.max_message_bytes
            if is_too_large and not batch.header.is_control:
                return ErrorCode.MESSAGE_TOO_LARGE

            appended = shard.partition.append_as_leader(
                batch,
                Origin.COORDINATOR,
                result.required_acks,
                guard=result.guard,
                is_verifying=result.is_verifying,
            )
            if isinstance(appended, ErrorCode):
                return appended

            result.replay(shard.state, appended.base_offset)
            if result.then is not None:
                result.then()
            return Outcome(result.answer, appended.last_offset if result.is_held else NO_OFFSET)
        except NotExecuted:
            raise
        # The step may have ended anywhere, so the state in memory cannot be trusted. The log is
        # consistent: a batch is appended as a whole or not at all.
        except BaseException:
            self._reload(shard)
            raise

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
        if not error:
            error = await self.await_readable(shard, outcome.after_offset, self._waits.committed_ms())
        return refuse(error) if error else outcome.answer

    async def _confirm(self, shard: Shard[State], confirmed: Confirmed[State]) -> ErrorCode:
        timeout_ms = self._waits.confirmed_ms()
        if timeout_ms is not None and shard not in confirmed:
            confirmed[shard] = await self.await_confirmed(shard, timeout_ms)
        return confirmed.get(shard, ErrorCode.NONE)
