"""The transaction coordinator (shell): how requests of transactional producers are answered (reference transactions).

A transactional id belongs to one partition of `__transaction_state`, by its hash. The leader of that partition is its
coordinator. Each event is one synchronous step: decide -> append -> replay. An answer waits until the newest record of
the id is committed, because it depends on it; and a decision is carried out only then (`_act`).
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import trio

from barnabas.coordinators.runtime.placement import Placement
from barnabas.coordinators.runtime.ports import ShardWorld
from barnabas.coordinators.runtime.runtime import Outcome, Runtime, Waits
from barnabas.coordinators.runtime.shard import Shard, Stored
from barnabas.coordinators.runtime.shards import NotExecuted
from barnabas.coordinators.runtime.watch import HighWatermarks
from barnabas.coordinators.transactions.connections import is_overtaken, is_unproved, note_connection
from barnabas.coordinators.transactions.decide import TRANSACTION_NOT_STORED, decide
from barnabas.coordinators.transactions.descriptions import (
    Description,
    Filters,
    Overview,
    describe,
    is_listed,
    overview,
)
from barnabas.coordinators.transactions.events import (
    NEEDS_PRODUCER_ID,
    AddPartitions,
    Answer,
    Decision,
    EndTransaction,
    Event,
    InitProducer,
    MarkersWritten,
    TimeoutPassed,
    Tombstone,
    Unused,
    VerifyPartitions,
)
from barnabas.coordinators.transactions.owed import Debt
from barnabas.coordinators.transactions.records import TransactionLoader, encode_record
from barnabas.coordinators.transactions.sender import Deleted, MarkerSender, OpenPeer
from barnabas.coordinators.transactions.state import (
    PREPARED,
    Producer,
    Status,
    TransactionalId,
    TransactionalIds,
    TransactionRecord,
    replay,
)
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import Batch, build_batch
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TRANSACTION_TOPIC, TopicPartition
from barnabas.world.containment import contained
from barnabas.world.pacing import pace_of_run, paced, portions
from barnabas.world.resting import release, resting

if TYPE_CHECKING:
    from barnabas.storage.disk import InThread
    from barnabas.world.metadata import ClusterMetadata

logger = logging.getLogger(__name__)

# A request that meets the markers of the transaction before waits for them so long. An error would cost the client a
# pause, of 20 ms as a rule, and a busy broker the same request again.
COMPLETION_WAIT_SECONDS = 0.2
PARTITIONS_INLINE_MAX = 1000  # of a transaction; a record with more is made in a thread
IDS_AT_A_TIME = 200  # that are removed in one step, and so in one batch
CONFIRMED_MS = 1000  # for an answer without a record

TransactionShard = Shard[TransactionalIds]


class TransactionConfig(Protocol):
    """Kafka's properties of transactions, under their names in Kafka."""

    @property
    def request_timeout_ms(self) -> int: ...
    @property
    def transaction_abort_timed_out_transaction_cleanup_interval_ms(self) -> int: ...
    @property
    def transaction_remove_expired_transaction_cleanup_interval_ms(self) -> int: ...
    @property
    def transaction_state_log_load_buffer_size(self) -> int: ...
    @property
    def transaction_state_log_num_partitions(self) -> int: ...
    @property
    def transactional_id_expiration_ms(self) -> int: ...


class TransactionWorld(ShardWorld, Protocol):
    """Wall clock and threads (`broker.world.World`)."""

    @property
    def in_request_thread(self) -> "InThread": ...
    @property
    def now_ms(self) -> Callable[[], int]: ...


class Overtaken(NotExecuted):
    """The request came on a connection that its client has given up: it is not executed, and not answered."""


UNPROVED = Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # see `connections.is_unproved`
# The client, or the coordinator itself, asks again, whatever the state will be then.
ASKED_AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class _Made(NamedTuple):
    """A decision that was made in a thread, for the state that the id had then (`_seen`)."""

    seen: tuple[int, bool]
    decision: Decision
    batch: Batch | None


# What the step asks before it decides: the answer to a request that must not be executed, or None.
# Raises Overtaken.
Check = Callable[[TransactionShard, TransactionalId | None], Answer | None]


class TransactionCoordinator:
    """The transactional ids that this broker coordinates. Requests are answered with an `Answer` or an error code.

    `next_producer_id()` gives an id that no producer has, or None; `deleted(partitions)` those that do not exist.
    """

    def __init__(
        self,
        world: TransactionWorld,
        config: TransactionConfig,
        metadata: "ClusterMetadata",
        open_peer: OpenPeer,
        next_producer_id: Callable[[], Awaitable[int | None]],
        deleted: Deleted,
    ) -> None:
        self._world = world
        self._config = config
        self._next_producer_id = next_producer_id
        self.placement = Placement(TRANSACTION_TOPIC, metadata, lambda: config.transaction_state_log_num_partitions)
        self.runtime = Runtime(
            TRANSACTION_TOPIC,
            self,
            world,
            self.placement,
            lambda: config.transaction_state_log_load_buffer_size,
            Waits(lambda: config.request_timeout_ms, lambda: CONFIRMED_MS),
        )
        self._sender = MarkerSender(metadata, open_peer, lambda: config.request_timeout_ms, self._complete, deleted)
        self._watermarks: HighWatermarks[TransactionalIds] = HighWatermarks()

        # Requests wait here for the last marker. The keys are weak, because ids are dropped with
        # their shard.
        self._completions: WeakKeyDictionary[TransactionalId, trio.Event] = WeakKeyDictionary()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load ids, send markers, abort transactions that take too long, and forget unused ids, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.runtime.load)
            await nursery.start(self._sender.run)
            nursery.start_soon(self._act_on_commits)
            nursery.start_soon(self._abort_overdue)
            nursery.start_soon(self._forget_unused)
            task_status.started()

    # -- as the owner of the shards

    def new_state(self) -> TransactionalIds:
        """No ids."""
        return TransactionalIds()

    def new_loader(self) -> TransactionLoader:
        """What makes the ids of a log."""
        return TransactionLoader()

    async def before_serving(self, shard: TransactionShard) -> None:
        """Nothing is to be prepared: the log says all that counts."""

    def on_serving(self, shard: TransactionShard) -> None:
        """Carry out the decisions that the former coordinator has left."""
        # The first transaction elects this broker for fifty empty partitions at once.
        if shard.state.by_name:
            count = len(shard.state.by_name)
            logger.info("coordinates %d transactional ids of %s-%d", count, TRANSACTION_TOPIC, shard.index)
        self._act(shard)

    def on_unloaded(self, shard: TransactionShard, error: ErrorCode) -> None:
        """Requests that wait see for themselves that the shard is gone; so do the markers (`Debt.is_open`)."""
        self._watermarks.leave(shard)

    def on_partitions_deleted(self, deleted: Sequence[TopicPartition]) -> None:
        """They need no markers, which `MarkerSender` sees in the store."""

    # -- requests

    async def init_producer(
        self, name: str, event: InitProducer, connection: int, has_hung_up: Callable[[], bool]
    ) -> Answer:
        """InitProducerId. COORDINATOR_LOAD_IN_PROGRESS also if there is no producer id to be had.

        Raises Overtaken if the client `has_hung_up`: it has repeated its request, and this one would fence it.
        """
        check = partial(_refuse_abandoned, has_hung_up)
        answer = await self._ask_patiently(name, event, check)
        while answer is NEEDS_PRODUCER_ID:
            fresh_id = await self._next_producer_id()
            # The client repeats the request on this error.
            if fresh_id is None:
                return answer
            event = event._replace(fresh_id=fresh_id)
            answer = await self._ask_patiently(name, event, check)

        shard = self.runtime.serving_at(self.placement.partition_of(name))
        known = None if shard is None else shard.state.by_name.get(name)
        if known is not None:
            note_connection(known, answer.producer, connection)
        return answer

    async def add_partitions(self, name: str, event: AddPartitions, connection: int | None) -> ErrorCode:
        """AddPartitionsToTxn, AddOffsetsToTxn. Raises Overtaken.

        `connection` None: a broker asks in the producer's name, for several at once. It does not wait for markers.
        """
        if connection is None:
            act = partial(self._step, name, event, _executes)
            return (await self.runtime.write(name, act, _not_stored)).error
        check = partial(_refuse_overtaken, event.producer, connection, _stays)
        return (await self._ask_patiently(name, event, check)).error

    async def end(
        self, name: str, event: EndTransaction, connection: int, has_hung_up: Callable[[], bool]
    ) -> ErrorCode:
        """EndTxn: waits until the decision is committed, and not for its markers.

        Raises Overtaken, also if the client `has_hung_up`: it asks again on another connection, maybe when it has begun
        the next transaction.
        """
        check = partial(_refuse_overtaken, event.producer, connection, has_hung_up)
        act = partial(self._step, name, event, check)
        return (await self.runtime.write(name, act, _not_stored)).error

    async def verify(self, name: str, event: VerifyPartitions, deadline: float) -> Answer:
        """AddPartitionsToTxn of a partition leader.

        COORDINATOR_LOAD_IN_PROGRESS if the newest record of the id is not committed by then (trio's clock, s).
        """
        with trio.move_on_at(deadline) as scope:
            answer = await self.runtime.write(name, partial(self._step, name, event, _executes), _not_stored)
        # The error is not CONCURRENT_TRANSACTIONS, which reaches a client that commits offsets as
        # it is, and ends a Java producer.
        if scope.cancelled_caught:
            return Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return answer

    async def describe(self, name: str) -> Description | ErrorCode:
        """DescribeTransactions. Error for an unknown id: TRANSACTIONAL_ID_NOT_FOUND."""

        async def look(shard: TransactionShard) -> Outcome[Description | ErrorCode]:
            known = shard.state.by_name.get(name)
            if known is None:
                return Outcome(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, shard.state.forgotten_offset)
            return Outcome(describe(known), known.offset)

        return await self.runtime.read(name, look, _as_it_is)

    async def list(self, filters: Filters) -> Sequence[Overview] | ErrorCode:
        """ListTransactions. COORDINATOR_LOAD_IN_PROGRESS while any shard of this broker is being loaded."""
        listed: list[Overview] = []
        now_ms = self._world.now_ms()
        for shard in self.runtime:
            if shard.refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return shard.refusal

            # Nothing is known of a shard that cannot be loaded.
            if shard.refusal:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            after_offset = NO_OFFSET

            # The list is a copy, because ids come and go at the checkpoints.
            async for known in paced(list(shard.state.by_name.values())):
                if is_listed(known, filters, now_ms):
                    listed.append(overview(known))
                    after_offset = max(after_offset, known.offset)
            if not_readable := await self.runtime.await_readable(shard, after_offset, self._config.request_timeout_ms):
                return not_readable

        return listed

    # -- from an event to its consequences

    async def _ask_patiently(self, name: str, event: Event, check: Check) -> Answer:
        """The answer to a request; one that comes too early waits a moment for the end of the transaction before."""
        act = partial(self._step, name, event, check)
        deadline = trio.current_time() + COMPLETION_WAIT_SECONDS
        while True:
            answer = await self.runtime.write(name, act, _not_stored)
            if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return answer
            if not await self._settled(name, deadline):
                return answer

    async def _settled(self, name: str, deadline: float) -> bool:
        """Wait until the id has no pending record and no markers under way; False if that takes too long."""
        shard = self.runtime.serving_at(self.placement.partition_of(name))
        while shard is not None and trio.current_time() < deadline:
            known = shard.state.by_name.get(name)
            if known is None or shard.refusal:
                return True
            if not shard.is_committed(known.offset):
                left_ms = int(1000 * (deadline - trio.current_time()))
                if await self.runtime.await_committed(shard, known.offset, left_ms):
                    return False
            elif known.recorded.status in PREPARED:
                event = self._completions.setdefault(known, trio.Event())
                with trio.move_on_at(deadline), resting():
                    await event.wait()
            else:
                return True

        return False

    def _step(
        self, name: str, event: Event, check: Check, shard: TransactionShard, made: _Made | None
    ) -> Outcome[Answer] | Callable[[], Awaitable[_Made]]:
        """Decide, store and replay. What has so many partitions that it takes long is made in a thread first."""
        state = shard.state
        known = state.by_name.get(name)
        is_pending = self._is_pending(shard, known)
        seen = _seen(known, is_pending)
        now_ms = self._world.now_ms()
        if _is_large(known, event) and (made is None or made.seen != seen):
            return partial(self._world.in_request_thread, _decide_and_build, seen, known, name, event, now_ms)

        # The check is in the step that appends, because the request may have waited.
        refused = check(shard, known)
        if refused is not None:
            return Outcome(refused)

        if made is None or made.seen != seen:
            decision = decide(known, event, now_ms, pending=is_pending)
            batch = None
        else:
            decision = made.decision
            batch = made.batch

        answer = decision.answer or Answer(ErrorCode.NONE)
        after_offset = state.forgotten_offset if known is None else known.offset
        if decision.record is not None:
            stored = self._store(shard, name, decision, batch)
            if stored.error_code:
                return Outcome(_not_stored(stored.error_code))
            after_offset = stored.last_offset

        if answer.error in ASKED_AGAIN:
            return Outcome(answer)

        # A leader's question comes with the first batch of a transaction in a partition, too often to be confirmed.
        if decision.record is None and not isinstance(event, VerifyPartitions):
            return Outcome(answer, after_offset, rests_on_memory=True)
        return Outcome(answer, NO_OFFSET if shard.is_committed(after_offset) else after_offset)

    def _store(self, shard: TransactionShard, name: str, decision: Decision, batch: Batch | None) -> Stored:
        record = _record_of(name, decision)
        now_ms = self._world.now_ms()
        stored = self.runtime.store(
            shard,
            lambda: build_batch([encode_record(record)], timestamp_ms=now_ms) if batch is None else batch,
            lambda state, offset: replay(state, record, offset),
        )
        known = shard.state.by_name.get(name)
        if stored.error_code or known is None:
            return stored
        known.previous = decision.previous

        # A prepared state alone calls `_act`: that stores the completion of transactions without
        # markers, by this function.
        if known.recorded.status in PREPARED:
            self._act(shard)
        else:
            completion = self._completions.pop(known, None)
            if completion is not None:
                release(completion.set)

        return stored

    def _is_pending(self, shard: TransactionShard, known: TransactionalId | None) -> bool:
        return known is not None and not shard.is_committed(known.offset)

    # -- decisions

    def _act(self, shard: TransactionShard) -> None:
        """Send the markers of the decisions that are committed. The rest of very many follows in later steps."""
        decided = shard.state.decided
        pace = pace_of_run()
        while decided:
            name, known = next(iter(decided.items()))
            # A later coordinator may not have this record, and decide otherwise.
            if not shard.is_committed(known.offset):
                self._watermarks.watch(shard)
                return
            del decided[name]
            self._sender.owe(Debt(shard, known))
            if pace.is_over():
                self._watermarks.look_again(shard)
                return
        self._watermarks.leave(shard)

    async def _act_on_commits(self) -> None:
        while True:
            for shard in await self._watermarks.moved():
                if not shard.refusal:
                    self._act(shard)
                await pace_of_run().give_way()

    def _complete(self, debt: Debt) -> None:
        """Each partition has its marker: the next transaction of the id may begin."""
        if not debt.is_open:
            return
        shard = debt.shard
        name = debt.known.name
        with contained(logger, "%s-%d is loaded again", TRANSACTION_TOPIC, shard.index):
            self.runtime.step(shard, self._step, name, MarkersWritten(), _executes, shard, None)
        # Too few replicas are in sync, for example.
        if debt.is_open:
            self._sender.try_later(debt)

    # -- time

    async def _abort_overdue(self) -> None:
        while True:
            await trio.sleep(self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000)
            for shard in self.runtime.serving():
                await self._abort_overdue_of(shard)

    async def _abort_overdue_of(self, shard: TransactionShard) -> None:
        # Its newest record is not committed, or the abort could not be stored.
        again: list[TransactionalId] = []
        async for known in paced(shard.state.overdue.pop(self._world.now_ms())):
            if shard.refusal:
                return
            logger.info("transactional id %.300r: its transaction has taken too long and is aborted", known.name)
            # The event goes to this shard, whatever `placement` says, and the commit is not
            # awaited, because others are overdue, too.
            with contained(logger, "%s-%d is loaded again", TRANSACTION_TOPIC, shard.index):
                await self.runtime.change(shard, partial(self._step, known.name, TimeoutPassed(), _executes))
            if known.recorded.status is Status.ONGOING:
                again.append(known)
        for known in again:
            shard.state.overdue.watch(known)

    async def _forget_unused(self) -> None:
        while True:
            await trio.sleep(self._config.transaction_remove_expired_transaction_cleanup_interval_ms / 1000)
            for shard in self.runtime.serving():
                for names in portions(list(shard.state.by_name), IDS_AT_A_TIME):
                    if shard.refusal:
                        break
                    with contained(logger, "%s-%d is loaded again", TRANSACTION_TOPIC, shard.index):
                        self.runtime.step(shard, self._forget, shard, names)
                    await trio.lowlevel.checkpoint()

    def _forget(self, shard: TransactionShard, names: Sequence[str]) -> None:
        """Remove those of the ids that are unused for too long."""
        unused = Unused(self._config.transactional_id_expiration_ms)
        now_ms = self._world.now_ms()
        records: list[TransactionRecord] = []
        for name in names:
            known = shard.state.by_name.get(name)
            decision = decide(known, unused, now_ms, pending=self._is_pending(shard, known))
            if decision.record is not None:
                records.append(_record_of(name, decision))
        if records:
            self._store_tombstones(shard, records, now_ms)

    def _store_tombstones(self, shard: TransactionShard, records: Sequence[TransactionRecord], now_ms: int) -> None:
        stored = self.runtime.store(shard, partial(_build, records, now_ms), partial(_replay_all, records))
        # Ids may have 32 kB each.
        if stored.error_code is ErrorCode.MESSAGE_TOO_LARGE and len(records) > 1:
            for some in portions(records, (len(records) + 1) // 2):
                self._store_tombstones(shard, some, now_ms)
        elif stored.error_code:
            logger.info(
                "unused ids of %s-%d are not removed: %s", TRANSACTION_TOPIC, shard.index, stored.error_code.name
            )


def _as_it_is(error: ErrorCode) -> ErrorCode:
    return error


def _not_stored(error: ErrorCode) -> Answer:
    return Answer(TRANSACTION_NOT_STORED.get(error, error))


def _stays() -> bool:
    return False


def _executes(*_: object) -> Answer | None:
    """A `Check` of what cannot be overtaken."""
    return None


def _refuse_abandoned(has_hung_up: Callable[[], bool], *_: object) -> Answer | None:
    if has_hung_up():
        raise Overtaken
    return None


def _refuse_overtaken(
    producer: Producer,
    connection: int,
    has_hung_up: Callable[[], bool],
    shard: TransactionShard,
    known: TransactionalId | None,
) -> Answer | None:
    """A `Check` of a request for which the order of the producer's connections counts. It notes this connection."""
    if has_hung_up() or is_overtaken(known, producer, connection):
        raise Overtaken
    if known is None:
        return None
    is_to_prove = shard.is_again and is_unproved(known, producer, connection)
    note_connection(known, producer, connection)
    return UNPROVED if is_to_prove else None


def _is_large(known: TransactionalId | None, event: Event) -> bool:
    """Whether it takes long to decide on the event, and to encode the record."""
    # The record has no partitions.
    if isinstance(event, MarkersWritten):
        return False
    count = len(event.partitions) if isinstance(event, AddPartitions | VerifyPartitions) else 0
    # To look partitions up takes no longer if there are many.
    if known is not None and not isinstance(event, VerifyPartitions):
        count += len(known.recorded.partitions)
    return count > PARTITIONS_INLINE_MAX


def _seen(known: TransactionalId | None, is_pending: bool) -> tuple[int, bool]:
    """The offset of the id's newest record: its state is the same as long as that is. And whether it is committed."""
    return NO_OFFSET if known is None else known.offset, is_pending


def _record_of(name: str, decision: Decision) -> TransactionRecord:
    recorded = decision.record
    return TransactionRecord(name, None if recorded is None or isinstance(recorded, Tombstone) else recorded)


def _build(records: Sequence[TransactionRecord], now_ms: int) -> Batch:
    return build_batch([encode_record(record) for record in records], timestamp_ms=now_ms)


def _replay_all(records: Sequence[TransactionRecord], state: TransactionalIds, base_offset: int) -> None:
    for offset, record in enumerate(records, base_offset):
        replay(state, record, offset)


def _decide_and_build(
    seen: tuple[int, bool], known: TransactionalId | None, name: str, event: Event, now_ms: int
) -> _Made:
    """In a thread: the decision, and the batch of its record. `_step` compares the state with what it was."""
    _, is_pending = seen
    decision = decide(known, event, now_ms, pending=is_pending)
    if decision.record is None:
        return _Made(seen, decision, None)
    return _Made(seen, decision, _build([_record_of(name, decision)], now_ms))
