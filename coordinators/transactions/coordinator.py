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
from barnabas.coordinators.runtime.runtime import NotExecuted, Outcome, Runtime, Waits, Write
from barnabas.coordinators.runtime.shard import Shard
from barnabas.coordinators.runtime.watch import HighWatermarks
from barnabas.coordinators.transactions.connections import is_overtaken, is_unproved, note_connection
from barnabas.coordinators.transactions.decide import TRANSACTION_NOT_STORED, decide, is_unused
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
    VerifyPartitions,
)
from barnabas.coordinators.transactions.owed import Debt
from barnabas.coordinators.transactions.records import TransactionLoader, encode_record, is_too_long
from barnabas.coordinators.transactions.sender import Deleted, MarkerSender, OpenPeer, WriteMarker
from barnabas.coordinators.transactions.state import (
    NO_PRODUCER,
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

# A request that comes before all markers of the last transaction are written waits for them so
# long. With an error the client would pause, for 20 ms as a rule, and give a busy broker the same
# request again.
COMPLETION_WAIT_SECONDS = 0.2
PARTITIONS_INLINE_MAX = 1000  # of a transaction; a record with more is made in a thread
VERIFIED_INLINE_MAX = 100  # partitions; each takes less than a microsecond
IDS_AT_A_TIME = 200  # that are removed in one step, and so in one batch
CONFIRMED_MS = 1000  # for the proof that no other broker leads, which an answer without a record needs

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
# The client, or the coordinator itself, asks again on these errors. So they need not wait until the
# state that they show is committed.
ASKED_AGAIN = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class _Made(NamedTuple):
    """A decision and the batch of its record, for the state that the id had then."""

    seen: "Seen"
    decision: Decision
    batch: Batch | ErrorCode  # NONE: there is no record


# The offset of the newest record of an id, and whether that record is uncommitted. While both are
# the same, so is the state of the id.
Seen = tuple[int, bool]


class Asked(NamedTuple):
    """By whom a client's request was sent. `producer`: where the order of its connections counts."""

    connection: int
    has_hung_up: Callable[[], bool]
    producer: Producer = NO_PRODUCER


class TransactionCoordinator:
    """The transactional ids that this broker coordinates. Requests are answered with an `Answer` or an error code.

    `next_producer_id()` gives an id that no producer has, or None; `deleted(partitions)` those that do not exist;
    `write_at_once(partition, ending)` writes a marker into a partition of this broker, if that takes one step.
    """

    def __init__(
        self,
        world: TransactionWorld,
        config: TransactionConfig,
        metadata: "ClusterMetadata",
        open_peer: OpenPeer,
        next_producer_id: Callable[[], Awaitable[int | None]],
        deleted: Deleted,
        write_at_once: WriteMarker,
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
        self._sender = MarkerSender(
            metadata, open_peer, lambda: config.request_timeout_ms, self._complete, deleted, write_at_once
        )
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
        # Empty shards are not logged: the first transaction elects this broker for fifty of them at
        # once.
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
        asked = Asked(connection, has_hung_up)
        answer = await self._ask_patiently(name, event, asked)
        while answer is NEEDS_PRODUCER_ID:
            if is_too_long(name):
                logger.warning("a transactional id of %d characters is too long for a record", len(name))
                return Answer(ErrorCode.UNKNOWN_SERVER_ERROR)
            fresh_id = await self._next_producer_id()
            # The client repeats the request on this error.
            if fresh_id is None:
                return answer
            event = event._replace(fresh_id=fresh_id)
            answer = await self._ask_patiently(name, event, asked)

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
            return (await self.runtime.write(name, partial(self._decide, name, event, None), _not_stored)).error
        return (await self._ask_patiently(name, event, Asked(connection, _stays, event.producer))).error

    async def end(
        self, name: str, event: EndTransaction, connection: int, has_hung_up: Callable[[], bool]
    ) -> ErrorCode:
        """EndTxn: waits until the decision is committed, and not for its markers.

        Raises Overtaken, also if the client `has_hung_up`: it asks again on another connection, maybe when it has begun
        the next transaction.
        """
        asked = Asked(connection, has_hung_up, event.producer)
        return (await self.runtime.write(name, partial(self._decide, name, event, asked), _not_stored)).error

    async def verify(self, name: str, event: VerifyPartitions, deadline: float) -> Answer:
        """AddPartitionsToTxn of a partition leader.

        COORDINATOR_LOAD_IN_PROGRESS if the newest record of the id is not committed by then (trio's clock, s).
        """
        with trio.move_on_at(deadline) as scope:
            answer = await self.runtime.write(name, partial(self._decide, name, event, None), _not_stored)
        # The error is not CONCURRENT_TRANSACTIONS: a client that commits offsets (TxnOffsetCommit)
        # would get it unchanged, and it ends a Java producer.
        if scope.cancelled_caught:
            return Answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return answer

    def verify_now(self, name: str, event: VerifyPartitions) -> Answer | None:
        """As `verify`, if that takes one step; None if not, or if this broker does not serve the id."""
        # For an empty id the handler of the request has an error of its own.
        if name == "" or len(event.partitions) > VERIFIED_INLINE_MAX:
            return None
        shard = self.runtime.serving_at(self.placement.partition_of(name))
        if shard is None:
            return None
        result = self.runtime.step(shard, partial(self._decide, name, event, None), None)
        if not isinstance(result, Outcome) or not shard.is_committed(result.after_offset):
            return None
        answer: Answer = result.answer
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

    async def _ask_patiently(self, name: str, event: Event, asked: Asked) -> Answer:
        """The answer to a request; one that comes too early waits a moment for the end of the transaction before."""
        act = partial(self._decide, name, event, asked)
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

    def _decide(
        self, name: str, event: Event, asked: Asked | None, shard: TransactionShard, made: _Made | None
    ) -> Outcome[Answer] | Write[TransactionalIds, Answer] | Callable[[], Awaitable[_Made]]:
        """What follows from an event. With so many partitions that it takes long, it is made in a thread first.

        `asked` None: the request cannot be overtaken. Raises Overtaken.
        """
        known = shard.state.by_name.get(name)
        is_pending = known is not None and not shard.is_committed(known.offset)
        seen = NO_OFFSET if known is None else known.offset, is_pending
        now_ms = self._world.now_ms()
        if made is not None and made.seen != seen:
            made = None
        if made is None and _is_large(known, event):
            return partial(self._world.in_request_thread, _decide_and_build, seen, known, name, event, now_ms)

        # Whether the request was overtaken is checked in the step that appends, because it may have
        # waited.
        if asked is not None:
            if asked.has_hung_up() or is_overtaken(known, asked.producer, asked.connection):
                raise Overtaken
            if known is not None:
                is_to_prove = shard.is_again and is_unproved(known, asked.producer, asked.connection)
                note_connection(known, asked.producer, asked.connection)
                if is_to_prove:
                    return Outcome(UNPROVED)

        decision = decide(known, event, now_ms, pending=is_pending) if made is None else made.decision
        answer = decision.answer or Answer(ErrorCode.NONE)
        is_held = decision.answer is not None and answer.error not in ASKED_AGAIN
        if decision.record is not None:
            record = TransactionRecord(name, decision.record, decision.previous)
            batch = build_batch([encode_record(record)], timestamp_ms=now_ms) if made is None else made.batch
            # Only Prepare* calls `_act`, which stores Complete* itself if a transaction needs no
            # markers.
            then = partial(self._act, shard) if decision.record.status in PREPARED else None
            return Write(batch, lambda ids, offset: replay(ids, record, offset), answer, is_held, then)

        if not is_held:
            return Outcome(answer)
        # Partition leaders ask at the first batch of each transaction in a partition. That is too
        # often to confirm each time that no other broker leads.
        after_offset = shard.state.forgotten_offset if known is None else known.offset
        return Outcome(answer, after_offset, rests_on_memory=not isinstance(event, VerifyPartitions))

    # -- decisions

    def _act(self, shard: TransactionShard) -> None:
        """Send the markers of the decisions that are committed. The rest of very many follows in later steps."""
        decided = shard.state.decided
        pace = pace_of_run()
        while decided:
            name, known = next(iter(decided.items()))
            # While the record is not committed, a later coordinator may not have it, and decide
            # otherwise.
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
        known = debt.known
        with contained(logger, "%s-%d is loaded again", TRANSACTION_TOPIC, shard.index):
            self.runtime.step(shard, partial(self._decide, known.name, MarkersWritten(), None), None)
        # The completion was not stored, for example because too few replicas are in sync.
        if debt.is_open:
            self._sender.try_later(debt)
        elif known.recorded.status not in PREPARED and known in self._completions:
            release(self._completions.pop(known).set)

    # -- time

    async def _abort_overdue(self) -> None:
        while True:
            await trio.sleep(self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms / 1000)
            for shard in self.runtime.serving():
                await self._abort_overdue_of(shard)

    async def _abort_overdue_of(self, shard: TransactionShard) -> None:
        # Transactions that are still open afterwards: their newest record was not committed, or the
        # abort could not be stored.
        again: list[TransactionalId] = []
        async for known in paced(shard.state.overdue.pop(self._world.now_ms())):
            if shard.refusal:
                return
            logger.info("transactional id %.300r: its transaction has taken too long and is aborted", known.name)
            # `index` sends the event to this partition, whatever `placement` says. `write` does not
            # wait for the commit of the abort, because other transactions are overdue, too.
            with contained(logger, "%s-%d is loaded again", TRANSACTION_TOPIC, shard.index):
                act = partial(self._decide, known.name, TimeoutPassed(), None)
                await self.runtime.write(known.name, act, _not_stored, index=shard.index)
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
                        self._forget(shard, names)
                    await trio.lowlevel.checkpoint()

    def _forget(self, shard: TransactionShard, names: Sequence[str]) -> None:
        """Remove those of the ids that are unused for too long."""
        error = self.runtime.step(shard, partial(self._tombstones, names))
        # An id may have 32 kB, so the tombstones of many may not fit into one batch.
        if error is ErrorCode.MESSAGE_TOO_LARGE and len(names) > 1:
            for some in portions(names, (len(names) + 1) // 2):
                self._forget(shard, some)
        elif isinstance(error, ErrorCode):
            logger.info("unused ids of %s-%d are not removed: %s", TRANSACTION_TOPIC, shard.index, error.name)

    def _tombstones(
        self, names: Sequence[str], shard: TransactionShard, _: None
    ) -> Outcome[None] | Write[TransactionalIds, None]:
        now_ms = self._world.now_ms()
        expiration_ms = self._config.transactional_id_expiration_ms
        records: list[TransactionRecord] = []
        for name in names:
            known = shard.state.by_name.get(name)
            if known is None:
                continue
            is_pending = not shard.is_committed(known.offset)
            if is_unused(known.recorded, now_ms, expiration_ms, pending=is_pending):
                records.append(TransactionRecord(name, None))
        if not records:
            return Outcome(None)
        return Write(_build(records, now_ms), partial(_replay_all, records), None)


def _as_it_is(error: ErrorCode) -> ErrorCode:
    return error


def _not_stored(error: ErrorCode) -> Answer:
    return Answer(TRANSACTION_NOT_STORED.get(error, error))


def _stays() -> bool:
    return False


def _is_large(known: TransactionalId | None, event: Event) -> bool:
    """Whether it takes long to decide on the event, and to encode the record."""
    # The record of Complete* has no partitions.
    if isinstance(event, MarkersWritten):
        return False
    count = len(event.partitions) if isinstance(event, AddPartitions | VerifyPartitions) else 0
    # VerifyPartitions only looks up its own partitions, which takes no longer if the transaction
    # has many.
    if known is not None and not isinstance(event, VerifyPartitions):
        count += len(known.recorded.partitions)
    return count > PARTITIONS_INLINE_MAX


def _build(records: Sequence[TransactionRecord], now_ms: int) -> Batch:
    return build_batch([encode_record(record) for record in records], timestamp_ms=now_ms)


def _replay_all(records: Sequence[TransactionRecord], ids: TransactionalIds, base_offset: int) -> None:
    for offset, record in enumerate(records, base_offset):
        replay(ids, record, offset)


def _decide_and_build(seen: Seen, known: TransactionalId | None, name: str, event: Event, now_ms: int) -> _Made:
    """In a thread: the decision, and the batch of its record. `_decide` compares the state with what it was."""
    _, is_pending = seen
    decision = decide(known, event, now_ms, pending=is_pending)
    if decision.record is None:
        return _Made(seen, decision, ErrorCode.NONE)
    return _Made(seen, decision, _build([TransactionRecord(name, decision.record)], now_ms))
