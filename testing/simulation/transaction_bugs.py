"""Planted bugs of transactions (`bugs.py`), which the histories of the kind `transactions` must find.

hasty_markers      write the markers of a decision before it is committed
hasty_successor    a new coordinator acts on what it has loaded, committed or not
half_load          serve a log of decisions of which only a part was read
any_coordinator    a partition takes markers of a coordinator that was replaced
init_without_fence InitProducerId aborts an open transaction without raising the epoch
timeout_without_fence
                   so does a timeout
unverified         begin transactions in partitions without asking the coordinator
lasting_guard      a verification is good for another transaction, behind a marker
dirty_stable_offset
                   the last stable offset is the high watermark
early_stable_offset
                   the last stable offset moves when a marker is appended, before it is committed
false_last_stable  the index of aborted transactions says that none was open behind the marker
short_aborted_list a fetch leaves out the last of several aborted transactions
uncut_index        aborted transactions stay in the index although their markers were truncated
closed_snapshot    a snapshot forgets that a transaction is open
hasty_completion   a transaction is complete when the first partition has its marker
any_connection     execute an EndTxn of a connection that its client has given up
any_sender         write markers of a connection that the coordinator has given up
set_back           forget a decision that is not committed in time
early_decision     answer an EndTxn before its decision is committed
any_expected_epoch let a fenced client recover
eternal_debt       go on sending markers after another broker became the coordinator
higher_epoch       take a batch of a higher epoch into an open transaction
whole_chunk_index  a follower indexes aborted transactions behind a whole response
forgotten_offsets  a new group coordinator forgets the offsets of open transactions
lasting_pending    a deletion leaves the pending offsets of open transactions
effective_abort    offsets take effect although their transaction is aborted
any_generation     take offsets of members that the group has replaced
forgotten_opener   producers with an open transaction expire like others
lost_markers       compaction removes an ABORT marker together with the data
hiding_aborted     an aborted record hides older records of its key from compaction
outdated_offsets   answer with committed offsets although another broker may be the coordinator by now
unstable_offsets   answer with committed offsets while a transaction may replace them
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.call import Call
from barnabas.coordinators.groups import coordinator as group_coordinator
from barnabas.coordinators.groups import loader as group_loader
from barnabas.coordinators.groups import offsets as group_offsets
from barnabas.coordinators.groups import replay as groups_replay
from barnabas.coordinators.groups import shards as group_shards
from barnabas.coordinators.groups.classic import committing
from barnabas.coordinators.groups.loader import GroupLoader
from barnabas.coordinators.runtime.loading import Loading
from barnabas.coordinators.runtime.runtime import Outcome
from barnabas.coordinators.runtime.shards import Shards
from barnabas.coordinators.transactions import coordinator, decide, owed, sender
from barnabas.coordinators.transactions.connections import SenderConnections
from barnabas.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.coordinators.transactions.events import EndTransaction
from barnabas.coordinators.transactions.owed import Debt
from barnabas.coordinators.transactions.state import PREPARED, Recorded, Status
from barnabas.storage import producers as storage_producers
from barnabas.storage.compaction import NOTHING, Compaction
from barnabas.storage.decided_transactions import DecidedTransactions
from barnabas.storage.log import PartitionLog
from barnabas.storage.producers import ProducerStates
from barnabas.storage.segments import LogSegments
from barnabas.storage.transaction_index import ROW, TransactionIndex
from barnabas.storage.verification import Verifications
from barnabas.wire.errors import ErrorCode
from barnabas.wire.records import ABORT, control_of
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TRANSACTION_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.coordinators.groups.offsets import CommittedOffsets, OffsetsView
    from barnabas.coordinators.groups.replay import Groups
    from barnabas.coordinators.runtime.shard import Shard
    from barnabas.coordinators.transactions.coordinator import TransactionShard
    from barnabas.coordinators.transactions.events import Decision, InitProducer
    from barnabas.coordinators.transactions.owed import Settled, Taken
    from barnabas.coordinators.transactions.state import TransactionalId, TransactionalIds
    from barnabas.storage.log import Appended
    from barnabas.storage.producers import CompletedTransaction, Duplicate, Origin, Producer
    from barnabas.storage.transaction_index import AbortedTransaction, OpenSaved
    from barnabas.storage.verification import Guard
    from barnabas.wire.record_reader import ControlRecord
    from barnabas.wire.records import BatchHeader
    from barnabas.wire.topics import TopicPartition

Replacement = tuple[object, str, object]


def _act_at_once(self: TransactionCoordinator, shard: "TransactionShard") -> None:
    for known in shard.state.decided.values():
        self._sender.owe(Debt(shard, known))
    shard.state.decided.clear()
    self._watermarks.leave(shard)


def _hasty_markers() -> list[Replacement]:
    return [(TransactionCoordinator, "_act", _act_at_once)]


def _hasty_successor() -> list[Replacement]:
    return [(TransactionCoordinator, "on_serving", _act_at_once)]


def _half_load() -> list[Replacement]:
    right = Shards._load

    async def load(self: "Shards[object]", shard: "Shard[object]") -> None:
        """What cannot be read is left out, as by Kafka."""
        log = shard.partition.log
        if self._topic != TRANSACTION_TOPIC or log is None:
            await right(self, shard)
            return
        loading: Loading[object] = Loading(self._owner.new_loader())
        # The first half is read in one piece and nothing is read after it, as if the rest had
        # failed with an error that was ignored.
        half = log.log_start_offset + (log.log_end_offset - log.log_start_offset) // 2
        read = shard.partition.read(log.log_start_offset, max_bytes=1 << 20, end_offset=half, at_least_one=True)
        if not isinstance(read, ErrorCode) and read.slice is not None:
            loading.load_batches(read.slice.read())
            read.slice.release()
        shard.state = loading.finish()
        self._begin_serving(shard)

    return [(Shards, "_load", load)]


def _any_coordinator() -> list[Replacement]:
    right = ProducerStates.check

    def check(
        self: ProducerStates,
        header: "BatchHeader",
        origin: "Origin",
        *,
        control: "ControlRecord | None" = None,
        guard: "Guard | None" = None,
        is_verifying: bool = False,
    ) -> "Duplicate | ErrorCode":
        """A marker is a marker."""
        refused = right(self, header, origin, control=control, guard=guard, is_verifying=is_verifying)
        return ErrorCode.NONE if refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED else refused

    return [(ProducerStates, "check", check)]


def _without_fence(right: "Callable[..., Decision]") -> "Callable[..., Decision]":
    """As `right` decides, but an abort leaves the epoch as it is."""

    def decide_abort(known: "TransactionalId | None", *event: object, **pending: bool) -> "Decision":
        decision = right(known, *event, **pending)
        record = decision.record
        if known is None or not isinstance(record, Recorded) or record.status is not Status.PREPARE_ABORT:
            return decision
        # The right decision raises the epoch in the record of the abort, which fences the producer
        # that is still writing.
        epoch = known.recorded.producer_epoch
        return replace(decision, record=record._replace(producer_epoch=epoch))

    return decide_abort


def _init_without_fence() -> list[Replacement]:
    return [(decide, "decide_init", _without_fence(decide.decide_init))]


def _timeout_without_fence() -> list[Replacement]:
    return [(decide, "decide_timeout", _without_fence(decide.decide_timeout))]


def _unverified() -> list[Replacement]:
    right = ProducerStates.check

    def begin_verification(*_: object) -> None:
        """What is to be asked?"""

    def check(
        self: ProducerStates,
        header: "BatchHeader",
        origin: "Origin",
        *,
        control: "ControlRecord | None" = None,
        guard: "Guard | None" = None,
        is_verifying: bool = False,
    ) -> "Duplicate | ErrorCode":
        """No proof is needed."""
        return right(self, header, origin, control=control)

    # Both are replaced: without a verification there is no guard, and the right check would refuse
    # the batch for that.
    return [(ProducerStates, "begin_verification", begin_verification), (ProducerStates, "check", check)]


def _lasting_guard() -> list[Replacement]:
    def end(*_: object) -> None:
        """What was proved once is proved."""

    def begin(self: Verifications, producer_id: int, epoch: int, base_sequence: int, now_ms: int) -> "Guard":
        """The sequences of other transactions do not count, or it would be found by them."""
        # An entry has the lowest sequence of the older transaction. A batch with a higher sequence
        # would be refused because it overtakes that one, which would hide the planted bug.
        entry = self._entries.get(producer_id)
        if entry is not None:
            self._entries[producer_id] = entry._replace(epoch=epoch, lowest_sequence=base_sequence)
        return right(self, producer_id, epoch, base_sequence, now_ms)

    right = Verifications.begin
    return [(Verifications, "end", end), (Verifications, "begin", begin)]


def _dirty_stable_offset() -> list[Replacement]:
    def last_stable_offset(_: PartitionLog, high_watermark: int) -> int:
        """What is committed can be read."""
        return high_watermark

    return [(PartitionLog, "last_stable_offset", last_stable_offset)]


def _early_stable_offset() -> list[Replacement]:
    def first_unstable_offset(self: ProducerStates, high_watermark: int) -> int | None:
        """What has a marker is decided."""
        # The right method also looks at transactions whose marker is appended and not committed
        # yet.
        self.forget_committed(high_watermark)
        return next(iter(self._open_transactions), None)

    return [(ProducerStates, "first_unstable_offset", first_unstable_offset)]


def _false_last_stable() -> list[Replacement]:
    right = ProducerStates._complete_transaction

    def complete(
        self: ProducerStates, producer: "Producer", header: "BatchHeader", control: "ControlRecord"
    ) -> "CompletedTransaction | None":
        """Other transactions are others' business."""
        completed = right(self, producer, header, control)
        return None if completed is None else completed._replace(last_stable_offset=completed.last_offset + 1)

    return [(ProducerStates, "_complete_transaction", complete)]


def _short_aborted_list() -> list[Replacement]:
    right = LogSegments.aborted_transactions

    def aborted_transactions(self: LogSegments, start_offset: int, end_offset: int) -> "list[AbortedTransaction]":
        """The last one is never there."""
        found = right(self, start_offset, end_offset)
        return found[:-1] if len(found) > 1 else found

    return [(LogSegments, "aborted_transactions", aborted_transactions)]


def _uncut_index() -> list[Replacement]:
    right = TransactionIndex._note

    def cut_at(self: TransactionIndex, offset: int, open_saved: "OpenSaved") -> None:
        """Markers that come again replace their entries."""

    def note(self: TransactionIndex, aborted: "AbortedTransaction") -> None:
        """Whatever the order is."""
        # The list of last offsets must stay in ascending order, or the index would raise an error
        # of its own and hide the planted bug.
        if self._last_markers:
            self._last_markers[-1] = min(self._last_markers[-1], aborted.last_offset - 1)
        right(self, aborted)

    return [(TransactionIndex, "cut_at", cut_at), (TransactionIndex, "_note", note)]


def _closed_snapshot() -> list[Replacement]:
    right = storage_producers.decode_snapshot

    def decode_snapshot(data: bytes) -> "Iterator[Producer]":
        """Nothing is open in a snapshot."""
        for producer in right(data):
            yield producer._replace(first_offset=NO_OFFSET)

    return [(storage_producers, "decode_snapshot", decode_snapshot)]


def _hasty_completion() -> list[Replacement]:
    right = owed.settle

    def settle(taken: "Taken", errors: "Mapping[int, Mapping[TopicPartition, ErrorCode]]") -> "Settled":
        """One marker is enough to say that the transaction has ended."""
        before = {debt: len(debt.known.unmarked) for debt, _ in taken}
        settled = right(taken, errors)
        for debt, count in before.items():
            # Only a transaction in several partitions can show this bug: a response has marked some
            # of them and not all.
            if 0 < len(debt.known.unmarked) < count:
                debt.known.unmarked.clear()
                settled.paid.append(debt)
        return settled

    return [(sender, "settle", settle)]


def _never(*_: object) -> bool:
    return False


def _any_connection() -> list[Replacement]:
    return [(coordinator, "is_overtaken", _never), (Call, "has_hung_up", _never)]


def _any_sender() -> list[Replacement]:
    return [(SenderConnections, "is_overtaken", _never)]


def _set_back() -> list[Replacement]:
    right = Shards.await_committed

    async def await_committed(
        self: "Shards[TransactionalIds]", shard: "TransactionShard", after_offset: int, timeout_ms: int | None
    ) -> ErrorCode:
        """As Kafka: what is answered as failed did not happen."""
        error: ErrorCode = await right(self, shard, after_offset, timeout_ms)
        if self._topic != TRANSACTION_TOPIC:
            return error
        # The record stays in the log although the state is set back. If it is committed later, the
        # log and the state of this coordinator differ.
        for known in shard.state.by_name.values():
            if error and known.offset == after_offset and known.recorded.status in PREPARED:
                known.recorded = known.recorded._replace(
                    status=Status.ONGOING, partitions=dict(known.recorded.partitions)
                )
                shard.state.decided.pop(known.name, None)
        return error

    return [(Shards, "await_committed", await_committed)]


def _early_decision() -> list[Replacement]:
    async def end(
        self: TransactionCoordinator,
        name: str,
        event: EndTransaction,
        connection: int,
        has_hung_up: Callable[[], bool],
    ) -> ErrorCode:
        """The record is written; what is there to wait for?"""
        shard = self.runtime.find(self.placement.partition_of(name))
        if isinstance(shard, ErrorCode):
            return shard
        # The step appends and replays the record, and the answer is returned without a wait for the
        # high watermark.
        outcome = self.runtime.step(shard, partial(self._decide, name, event, None), None)
        if isinstance(outcome, ErrorCode):
            return decide.TRANSACTION_NOT_STORED.get(outcome, outcome)
        assert isinstance(outcome, Outcome)
        error: ErrorCode = outcome.answer.error
        return error

    return [(TransactionCoordinator, "end", end)]


def _any_expected_epoch() -> list[Replacement]:
    right = decide.decide_init

    def decide_init(
        known: "TransactionalId | None", event: "InitProducer", now_ms: int, *, pending: bool
    ) -> "Decision":
        """Who asks gets the next epoch."""
        return right(known, event._replace(expected=None), now_ms, pending=pending)

    return [(decide, "decide_init", decide_init)]


def _eternal_debt() -> list[Replacement]:
    right = Debt.__init__

    def begin(self: Debt, shard: "TransactionShard", known: "TransactionalId") -> None:
        """The epoch of the beginning, as in a queued request."""
        right(self, shard, known)
        _EPOCHS[self] = shard.partition.leader_epoch

    def is_open(self: Debt) -> bool:
        """Whether there are markers to send, whichever broker is the coordinator."""
        return self.known.offset == self.offset and self.known.recorded.status in PREPARED

    # The partition may have heard of a newer epoch, under which another broker is the coordinator.
    # The markers carry the epoch in which the debt began.
    def coordinator_epoch(self: Debt) -> int:
        return _EPOCHS[self]

    return [
        (Debt, "__init__", begin),
        (Debt, "is_open", property(is_open)),
        (Debt, "coordinator_epoch", property(coordinator_epoch)),
    ]


_EPOCHS: dict[Debt, int] = {}


def _higher_epoch() -> list[Replacement]:
    right_begin = ProducerStates.begin_verification
    right_check = ProducerStates._check_transactional

    def begin_verification(
        self: ProducerStates, producer_id: int, epoch: int, base_sequence: int, now_ms: int
    ) -> "Guard | None":
        """A transaction is open: nothing is to be asked, as in Kafka."""
        producer = self.get(producer_id)
        if producer is not None and producer.first_offset != NO_OFFSET:
            return None
        return right_begin(self, producer_id, epoch, base_sequence, now_ms)

    def check_transactional(
        self: ProducerStates, producer: "Producer | None", header: "BatchHeader", *rest: object
    ) -> ErrorCode:
        """It belongs to the open transaction."""
        if producer is not None and producer.first_offset != NO_OFFSET:
            return ErrorCode.NONE
        return right_check(self, producer, header, *rest)  # type: ignore[arg-type]  # as they came

    return [
        (ProducerStates, "begin_verification", begin_verification),
        (ProducerStates, "_check_transactional", check_transactional),
    ]


def _whole_chunk_index() -> list[Replacement]:
    right = PartitionLog.append_as_follower

    def append(self: PartitionLog, *args: object, **kwargs: object) -> "Appended | ErrorCode":
        """First all producers, then the index."""
        # The append may roll a segment, so both the index and its length are noted: the rows that
        # are new in another index are all of its rows.
        before = self.segments.active.transactions, self.segments.active.transactions.count
        appended = right(self, *args, **kwargs)  # type: ignore[arg-type]  # as they came
        index = self.segments.active.transactions
        first = before[1] if before[0] is index else 0
        for number in range(max(first - index.saved_count, 0), index.count - index.saved_count):
            version, producer_id, first_offset, last_offset, _ = ROW.unpack_from(index.unsaved, number * ROW.size)
            opened = self.producers._open_transactions.items()
            # The producers stand at the end of the whole response by now. The right code takes the
            # transactions that were open behind each marker.
            stable = min((at for at, who in opened if who != producer_id), default=last_offset + 1)
            ROW.pack_into(index.unsaved, number * ROW.size, version, producer_id, first_offset, last_offset, stable)
        return appended

    return [(PartitionLog, "append_as_follower", append)]


def _forgotten_offsets() -> list[Replacement]:
    right = GroupLoader.finish

    def finish(self: GroupLoader) -> "Groups":
        """What is open will be written again, will it not?"""
        for group in self._groups.by_id.values():
            group.recorded.pending.clear()
        self._groups.open.clear()
        return right(self)

    return [(GroupLoader, "finish", finish)]


def _lasting_pending() -> list[Replacement]:
    def drop_pending(*_: object) -> None:
        """What is pending is not there yet."""

    return [(groups_replay, "_drop_pending", drop_pending)]


def _effective_abort() -> list[Replacement]:
    right = groups_replay.replay_marker

    def replay_marker(groups: "Groups", producer_id: int, offset: int, *, committed: bool) -> None:
        """A marker ends a transaction."""
        right(groups, producer_id, offset, committed=True)

    return [(module, "replay_marker", replay_marker) for module in (group_shards, group_loader)]


def _any_generation() -> list[Replacement]:
    def refusal(*_: object) -> ErrorCode:
        """Its transactional id is enough."""
        return ErrorCode.NONE

    return [(committing, "_refusal_in_transaction", refusal)]


def _unstable_offsets() -> list[Replacement]:
    right = group_offsets.offsets_view

    def view(
        committed: "CommittedOffsets",
        wanted: "Iterable[TopicPartition] | None" = None,
        *,
        stable_below: int | None,
    ) -> "OffsetsView":
        """What is committed is committed."""
        return right(committed, wanted, stable_below=None)

    return [(group_coordinator, "offsets_view", view)]


def _forgotten_opener() -> list[Replacement]:
    def is_expired(now_ms: int, producer_id_expiration_ms: int, last_timestamp: int, _: int) -> bool:
        """Nothing was heard of it."""
        return now_ms - last_timestamp >= producer_id_expiration_ms

    return [(storage_producers, "_is_expired", is_expired)]


def _lost_markers() -> list[Replacement]:
    right = DecidedTransactions.meet_marker

    def sifted_marker(
        self: Compaction, window: bytes, position: int, header: "BatchHeader"
    ) -> "bytes | bytearray | None":
        """Its transaction has no data any more."""
        control = control_of(memoryview(window)[position : position + header.size_bytes])
        may_go, _ = right(self._transactions, header, control)
        is_abort = control is not None and control.type == ABORT
        return self._without_records(header) if is_abort or control is None else NOTHING if may_go else None

    return [(Compaction, "_sifted_marker", sifted_marker)]


def _hiding_aborted() -> list[Replacement]:
    right = Compaction._is_committed_data

    def is_committed_data(self: Compaction, window: bytes, position: int, header: "BatchHeader") -> bool:
        """What is newer is newer."""
        right(self, window, position, header)
        return not header.is_control

    return [(Compaction, "_is_committed_data", is_committed_data)]


def _outdated_offsets() -> list[Replacement]:
    async def await_confirmed(self: "Shards[object]", shard: "Shard[object]", timeout_ms: int) -> ErrorCode:
        """A leader leads."""
        return ErrorCode.NONE

    return [(Shards, "await_confirmed", await_confirmed)]


TRANSACTION_BUGS: dict[str, Callable[[], list[Replacement]]] = {
    "hasty_markers": _hasty_markers,
    "hasty_successor": _hasty_successor,
    "half_load": _half_load,
    "any_coordinator": _any_coordinator,
    "init_without_fence": _init_without_fence,
    "timeout_without_fence": _timeout_without_fence,
    "unverified": _unverified,
    "lasting_guard": _lasting_guard,
    "dirty_stable_offset": _dirty_stable_offset,
    "early_stable_offset": _early_stable_offset,
    "false_last_stable": _false_last_stable,
    "short_aborted_list": _short_aborted_list,
    "uncut_index": _uncut_index,
    "closed_snapshot": _closed_snapshot,
    "hasty_completion": _hasty_completion,
    "any_connection": _any_connection,
    "any_sender": _any_sender,
    "set_back": _set_back,
    "early_decision": _early_decision,
    "any_expected_epoch": _any_expected_epoch,
    "eternal_debt": _eternal_debt,
    "higher_epoch": _higher_epoch,
    "whole_chunk_index": _whole_chunk_index,
    "forgotten_offsets": _forgotten_offsets,
    "lasting_pending": _lasting_pending,
    "effective_abort": _effective_abort,
    "any_generation": _any_generation,
    "forgotten_opener": _forgotten_opener,
    "lost_markers": _lost_markers,
    "hiding_aborted": _hiding_aborted,
    "outdated_offsets": _outdated_offsets,
    "unstable_offsets": _unstable_offsets,
}
