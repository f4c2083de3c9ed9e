"""A fetcher: the task that copies partitions from one leader over one connection (reference C.1-C.4).

`FetcherPool` adds and removes partitions. Each round of the task truncates logs whose end is not known to agree with
the leader's, sends a Fetch that starts at each log's end, and appends the records of the response. `follower_state.py`
decides what a response means; this file carries the decision out.

`add` and `remove` are synchronous, and a partition may leave during any await. So code after an await first checks that
its `Followed` is still current, that is followed under the same leader epoch (`Following.is_current`).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio

from barnabas.replication.followed_partition import FetcherDeps, Followed, position_of
from barnabas.replication.follower_state import (
    OF_UNKNOWN_EPOCHS,
    Append,
    Diverged,
    EpochEnd,
    Fail,
    FetchLimits,
    FetchSession,
    OutOfRange,
    Position,
    Row,
    Stale,
    Verdict,
    Wait,
    decide_cut,
    epoch_ends,
    epochs_request,
    fetcher_index,
    judge,
    judge_epoch_end,
    offset_of,
    offset_request,
    offset_to_begin_at,
    pieces,
)
from barnabas.replication.following import Following
from barnabas.replication.repeated_fetch import FetchRequests
from barnabas.storage.disk import StorageError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, PeerLost
from barnabas.wire.sentinels import EARLIEST, FETCH_TOPIC_ID_VERSION, LATEST
from barnabas.wire.topics import TopicPartition
from barnabas.world.containment import contained
from barnabas.world.waiting import wake

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 18  # appended between two checkpoints, unless one batch is larger: about a millisecond
ROWS_AT_A_TIME = 100  # response rows handled between two checkpoints
FAILURE = "%s fails and is not fetched until its next role"
DELAY_SECONDS_AFTER_MISTAKE = 1.0  # a bug that fails every round must not keep the event loop busy

Answer = TypeVar("Answer", bound=m.Message)
Arguments = TypeVarTuple("Arguments")


class Fetcher:
    """The partitions that one task follows of one leader, and its connection to the leader."""

    def __init__(self, deps: FetcherDeps, leader_id: int, index: int, place: Callable[[Followed], None]) -> None:
        self.leader_id = leader_id
        self.index = index
        self._deps = deps
        self._place = place
        self._peer = deps.open_peer(leader_id, f"broker-{deps.broker_id}-fetcher-{index}")
        self._session = FetchSession()
        self._requests = FetchRequests()
        self._following = Following(deps, leader_id)
        self._wake = trio.Event()
        # Set while a Fetch is under way. `interrupt` cancels only that request: the leader may hold a Fetch back until
        # records arrive, but answers all others at once.
        self._polling: trio.CancelScope | None = None
        self._is_interrupted = False  # whether `interrupt` cancelled the last Fetch
        self._count = deps.fetcher_count
        self._unsynced: dict[Followed, None] = {}  # partitions whose logs may wait for a flush (`flush.messages`)
        self._appended_bytes = 0  # since the last checkpoint
        self.fetches = 0  # Fetch requests that it has sent
        self._extra = {"peer": f"broker {leader_id}"}  # marks log lines that are rate-limited per peer

    def find(self, key: TopicPartition) -> Followed | None:
        """The state of a partition that is followed here."""
        return self._following.get(key)

    def add(self, followed: Followed) -> None:
        """Follow this partition too, from the next round on, which begins at once."""
        self._following.add(followed)
        # The log may hold records that this broker wrote as the leader and has not synced.
        self._note_unsynced(followed)
        # The Fetch under way may wait `replica.fetch.wait.max.ms` for records of other partitions. To cancel it costs a
        # connection and the fetch session, but a wait would delay writes with acks=all to the new partition.
        self.interrupt()

    def remove(self, key: TopicPartition) -> trio.Event | None:
        """Stop following this partition. Returns the event that ends a running truncation of its log, if any."""
        followed = self._following.remove(key)
        # The partition may stay in `_unsynced`: `_sync` skips partitions that have left.
        # The task ends when no partition is left. Otherwise the Fetch under way goes on, and this partition's rows in
        # the response are ignored.
        if not self._following:
            self.interrupt()
        return followed.cut_ended

    def interrupt(self) -> None:
        """End the sleep or the waiting Fetch of this round, so that the next round begins."""
        self._wake.set()
        if self._polling is not None:
            self._is_interrupted = True
            self._polling.cancel()

    # -- the round

    async def run(self) -> None:
        """Fetch until no partition is followed."""
        logger.info("fetcher %d follows broker %d", self.index, self.leader_id)
        try:
            while self._following:
                with contained(logger, "fetcher %d of broker %d: a round fails", self.index, self.leader_id) as round_:
                    await self._round()
                # The round may have failed between a response and its evaluation, so the session is unknown.
                if round_.failed:
                    self._session.lost()
                    self._following.delay_all([each.key for each in self._following])
                    await trio.sleep(DELAY_SECONDS_AFTER_MISTAKE)
        finally:
            self._peer.close()
            logger.info("fetcher %d follows broker %d no more", self.index, self.leader_id)

    async def _round(self) -> None:
        # A new event comes first: an `interrupt` during the awaits below then ends `_sleep`.
        if self._wake.is_set():
            self._wake = trio.Event()
        self._move_away()
        self._following.resume_delayed()
        # A fetch offset tells the leader that all records before it are durable, so the flush comes before the Fetch.
        if self._unsynced:
            await self._sync()
        # Logs are truncated before `update`, so that those that then agree with the leader's are fetched in this round.
        if self._following.truncating:
            await self._truncate()
        self._following.update(self._session)
        if self._session.is_empty:
            await self._sleep()
        else:
            await self._fetch()

    async def _contain(
        self, followed: Followed, work: Callable[[Followed, *Arguments], Awaitable[None]], *args: *Arguments
    ) -> None:
        """Do the work of one partition. An unexpected exception stops the fetching of this partition alone, until its
        next role; as Kafka's `markPartitionFailed`."""
        with contained(logger, FAILURE, followed.key) as attempt:
            await work(followed, *args)
        if attempt.failed:
            self._following.mark_failed(followed)

    def _move_away(self) -> None:
        """Give partitions to other fetchers after `num.replica.fetchers` changed."""
        count = self._deps.fetcher_count
        if count == self._count:
            return
        self._count = count
        for followed in self._following:
            if fetcher_index(followed.key, count) != self.index:
                # Truncations run within a round and have ended by now, so there is no event to wait for.
                self.remove(followed.key)
                self._place(followed)

    async def _sleep(self) -> None:
        # `next_at` is when the first delay ends. A failed partition waits for its next role, whose `add` sets `_wake`.
        with trio.move_on_at(self._following.next_at):
            await self._wake.wait()

    # -- fetching

    async def _fetch(self) -> None:
        """Send one Fetch and carry out its response."""
        session = self._session
        config = self._deps.config

        # One topic without an id makes the whole request use names, and so an older version, as in
        # Kafka.
        version = self._following.fetch_version
        by_id = version >= FETCH_TOPIC_ID_VERSION and session.all_have_ids
        if not by_id:
            version = min(version, FETCH_TOPIC_ID_VERSION - 1)

        asked = session.ask(by_id=by_id)
        limits = FetchLimits(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_max_bytes,
        )

        # The broker epoch is read for each request: it changes when this broker registers again, and the controller
        # accepts no ISR member by a Fetch of an earlier epoch (KIP-903).
        me = self._deps.broker_id, self._deps.broker_epoch()
        request, body = self._requests.next(asked, limits, version, *me)
        self.fetches += 1
        self._is_interrupted = False
        self._polling = trio.CancelScope()
        response = await self._ask(request, m.FetchResponse, version, body=body, scope=self._polling)
        self._polling = None
        if response is None:
            # The leader may have handled the request, so the state of its side of the session is unknown.
            session.lost()
            if not self._is_interrupted:
                self._following.delay_all(asked.positions)
            return

        rows = session.take(asked, response)
        if isinstance(rows, str):
            logger.info("broker %d: an answer to Fetch cannot be used: %s", self.leader_id, rows, extra=self._extra)

            # After an unusable incremental response a full request follows at once, after an unusable full one a delay.
            if asked.is_full:
                self._following.delay_all(asked.positions)
            return

        await self._take_rows(asked.positions, rows)

    async def _take_rows(
        self, positions: Mapping[TopicPartition, Position], rows: Mapping[TopicPartition, Row]
    ) -> None:
        parted: list[tuple[Followed, Diverged]] = []
        for number, (key, row) in enumerate(rows.items(), 1):
            # The partition may have left during the request. If it has come back, `judge` compares its position.
            followed = self._following.get(key)
            if followed is not None:
                with contained(logger, FAILURE, key) as attempt:
                    verdict = judge(positions[key], self._following.position(followed), row)
                    if not isinstance(verdict, Append) or not self._append_now(followed, verdict):
                        await self._carry_out(followed, verdict, parted)
                if attempt.failed:
                    self._following.mark_failed(followed)
            if number % ROWS_AT_A_TIME == 0 or self._appended_bytes >= PIECE_BYTES:
                await self._give_way()
        # Truncations come last: they wait for threads and the disk, and must not delay the records
        # of other partitions.
        if parted:
            await self._part_all(parted)

    async def _give_way(self) -> None:
        self._appended_bytes = 0
        await trio.lowlevel.checkpoint()

    async def _carry_out(self, followed: Followed, verdict: Verdict, parted: list[tuple[Followed, Diverged]]) -> None:
        match verdict:
            case Stale():
                # The leader's side of the session holds another position than this follower has now.
                self._following.touch(followed)
            case Append():
                await self._append(followed, verdict)
            case Diverged():
                parted.append((followed, verdict))
            case OutOfRange():
                await self._come_into_range(followed)
            case Wait():
                self._following.delay(followed, verdict.code)
            case Fail():
                self._following.fail(followed, verdict.code)

    def _append_now(self, followed: Followed, sent: Append) -> bool:
        """Append the records and take over the offsets, in this step. False, before any change, if that takes several
        steps: with many records, or where the log has to begin elsewhere first."""
        log = followed.partition.log
        records = sent.records
        if log is None or len(records) > PIECE_BYTES or self._is_behind(followed, log, sent.log_start_offset):
            return False
        if offset_to_begin_at(records, log.log_start_offset, log.log_end_offset) is not None:
            return False
        if not records or self._append_piece(followed, records):
            self._take_over(followed, log, sent)
        return True

    async def _append(self, followed: Followed, sent: Append) -> None:
        """As `_append_now`, piece by piece."""
        if not await self._leave_behind(followed, sent.log_start_offset):
            return
        for piece in pieces(sent.records, PIECE_BYTES):
            if not self._following.is_current(followed) or not await self._append_next(followed, piece):
                return
            if self._appended_bytes >= PIECE_BYTES:
                await self._give_way()

        log = followed.partition.log
        if log is not None and self._following.is_current(followed):
            self._take_over(followed, log, sent)

    def _take_over(self, followed: Followed, log: "PartitionLog", sent: Append) -> None:
        """All records are appended: take over the leader's log start offset and high watermark."""
        self._raise_log_start(followed, log, min(sent.log_start_offset, log.log_end_offset))
        followed.has_fetched(log.log_end_offset, sent.high_watermark)
        followed.partition.follow_to(sent.high_watermark)
        if self._deps.throttle is not None and followed.is_covered_by(self._deps.throttle):
            self._deps.throttle.note(len(sent.records))

    def _is_behind(self, followed: Followed, log: "PartitionLog", start_offset: int) -> bool:
        """Whether the leader's log begins above this replica's high watermark, in the middle of its log."""
        return followed.partition.high_watermark < start_offset <= log.log_end_offset

    async def _leave_behind(self, followed: Followed, start_offset: int) -> bool:
        """Raise the log start offset to the leader's, durably, before the append. False if that fails.

        Needed only if the leader's log start offset lies above this replica's high watermark.
        """
        log = followed.partition.log
        # Local records between the high watermark and the leader's log start may never have been in the leader's log:
        # the leader may have deleted their epoch, so no comparison of epochs finds the difference. Below the log start
        # they are never served. But a crash undoes a log start that is not in the checkpoint, and the old records would
        # then be served together with new ones behind them. So the checkpoint is written before the append.
        if log is None or not self._is_behind(followed, log, start_offset):
            return True
        self._raise_log_start(followed, log, start_offset)
        # In the same step, so that the high watermark is never seen below the log start offset.
        followed.partition.truncated()
        logs = self._deps.logs
        try:
            await logs.checkpoints.write_log_starts(logs.directory_of(log))
        except StorageError:
            # If the directory failed, the partition has left and `delay` does nothing. If a descriptor was lacking,
            # the next attempt may succeed.
            self._following.delay(followed, ErrorCode.KAFKA_STORAGE_ERROR)
            return False
        return True

    def _raise_log_start(self, followed: Followed, log: "PartitionLog", start_offset: int) -> None:
        if start_offset > log.log_start_offset:
            log.raise_log_start(start_offset)
            self._following.touch(followed)

    async def _append_next(self, followed: Followed, piece: memoryview) -> bool:
        """Append one piece; False if that failed. The log may start over first."""
        log = followed.partition.log
        first_offset = None if log is None else offset_to_begin_at(piece, log.log_start_offset, log.log_end_offset)
        if log is None or first_offset is None:
            return self._append_piece(followed, piece)
        # The leader's log starts inside a batch (DeleteRecords). This empty log must begin at that batch's first
        # offset, which lies before its own log start offset, so it starts over there.
        start_offset = log.log_start_offset
        # The batch is appended in the same step, even if the role has ended meanwhile. The next role waits for the
        # truncation, and must not find a log that ends before its earlier start: a leader would assign those offsets
        # a second time.
        with trio.CancelScope(shield=True):
            await self._cut(followed, first_offset, start_over=True, on_cut=lambda: None)
        is_appended = self._append_piece(followed, piece)
        if is_appended:
            log.raise_log_start(start_offset)
        # This comes last, so that the high watermark is never seen below the log start offset.
        followed.partition.truncated()
        return is_appended

    def _append_piece(self, followed: Followed, piece: memoryview) -> bool:
        """Append one piece in one synchronous step; False if that failed."""
        partition = followed.partition
        log = followed.partition.log
        if log is None:
            return False
        try:
            appended = log.append_as_follower(piece, self._deps.world.now_ms())
        except StorageError as error:
            partition.fail_storage(error)
            # The batches of the piece before the failed one are appended.
            self._note_appended(followed)

            # This has an effect only if a file descriptor was lacking, as in `_leave_behind`.
            self._following.delay(followed, ErrorCode.KAFKA_STORAGE_ERROR)
            return False

        self._following.touch(followed)
        if isinstance(appended, ErrorCode):
            # A batch that was damaged on the way may be intact the next time. Offsets that do not rise would be sent
            # again, so the partition fails, as in Kafka.
            if appended == ErrorCode.CORRUPT_MESSAGE:
                self._following.delay(followed, appended)
            else:
                self._following.fail(followed, appended)
            return False

        # Bytes of all partitions count together: many small appends without a checkpoint block the event loop as well.
        self._appended_bytes += len(piece)
        self._session.served(followed.key)
        partition.tally.replication_bytes_in += len(piece)
        self._note_appended(followed)
        return True

    def _note_appended(self, followed: Followed) -> None:
        """Start a flush that is due now, and wake what waits for records of this partition."""
        log = followed.partition.log
        if log is not None and log.flush_demanded:
            self._deps.flusher.want(log)
        self._note_unsynced(followed)
        wake(followed.partition)

    def _note_unsynced(self, followed: Followed) -> None:
        """Remember a log whose last records wait for a demanded flush and may not be reported to the leader yet."""
        log = followed.partition.log
        if log is not None and log.acknowledgeable_offset < log.log_end_offset:
            self._unsynced[followed] = None

    async def _sync(self) -> None:
        """Wait for the flushes that `flush.messages` demands before the log ends may be reported to the leader."""
        while self._unsynced:
            # The list is built again after each flush, because partitions join, leave and grow
            # meanwhile.
            logs = [
                log
                for each in self._unsynced
                if self._following.is_current(each)
                and (log := each.partition.log) is not None
                and log.acknowledgeable_offset < log.log_end_offset
            ]
            if not logs:
                for each in self._unsynced:
                    self._following.touch(each)
                self._unsynced.clear()
                return
            try:
                await self._deps.flusher.flush(logs)
            except StorageError:
                # The directory is offline, and its partitions have left. `flush` may have raised without an await.
                await trio.lowlevel.checkpoint()

    # -- truncation of logs that diverge from the leader's

    async def _truncate(self) -> None:
        """Truncate logs before their first Fetch if Fetch cannot compare them with the leader's: its version is older
        than KIP-595, or the log has no leader epochs."""
        asking: dict[TopicPartition, Position] = {}
        parted: list[tuple[Followed, Diverged]] = []
        for followed in self._following.truncating:
            log = followed.partition.log
            if log is None or followed.failed or self._following.is_delayed(followed):
                continue
            if log.epochs.latest_epoch is None:
                parted.append((followed, OF_UNKNOWN_EPOCHS))
            else:
                position = position_of(followed, log, self._following.fetch_version)
                # `position_of` leaves the epoch out for just those Fetch versions that need this request.
                asking[followed.key] = position._replace(last_fetched_epoch=log.epochs.latest_epoch)

        await self._part_all(parted)
        if asking:
            await self._ask_epoch_ends(asking)

    async def _ask_epoch_ends(self, asking: dict[TopicPartition, Position]) -> None:
        response = await self._ask(epochs_request(asking, self._deps.broker_id), m.OffsetForLeaderEpochResponse)
        if response is None:
            self._following.delay_all(asking)
            return
        parted: list[tuple[Followed, Diverged]] = []
        for key, row in epoch_ends(response):
            asked = asking.pop(key, None)
            followed = self._following.get(key)
            # The partition may have left, or come back, while the leader answered.
            if asked is not None and followed in self._following.truncating:
                await self._contain(followed, self._take_epoch_end, asked, row, parted)
        # What remains in `asking` was missing in the response: it is asked about again after a delay.
        self._following.delay_all(asking)
        await self._part_all(parted)

    async def _take_epoch_end(
        self, followed: Followed, asked: Position, row: EpochEnd, parted: list[tuple[Followed, Diverged]]
    ) -> None:
        log = followed.partition.log
        # `Following.position` would be None here, because the log is in `truncating`.
        now = None if log is None else position_of(followed, log, self._following.fetch_version)
        await self._carry_out(followed, judge_epoch_end(asked, now, row), parted)

    async def _part_all(self, parted: list[tuple[Followed, Diverged]]) -> None:
        """Truncate these logs concurrently, each to where it diverges from the leader's."""
        # The list is nearly always empty, and a nursery costs a turn of the scheduler.
        if not parted:
            return
        # Thousands of partitions may lose their leader together. Those whose truncations end while their directory's
        # checkpoints are being written share the next write.
        async with trio.open_nursery() as nursery:
            for followed, diverged in parted:
                nursery.start_soon(self._contain, followed, self._part, diverged)

    async def _part(self, followed: Followed, diverged: Diverged) -> None:
        """Truncate one log to where it diverges from the leader's, as far as this response shows."""
        log = followed.partition.log
        if log is None or not self._following.is_current(followed):
            return
        before = log.log_end_offset, log.epochs.latest_epoch
        cut = decide_cut(diverged, log.epochs, log.log_end_offset, followed.partition.high_watermark)
        await self._cut(followed, cut.offset)
        if cut.is_final and followed in self._following.truncating:
            self._following.is_in_line(followed)
        # If the log is unchanged, the next request would get the same response, so it is delayed.
        elif before == (log.log_end_offset, log.epochs.latest_epoch):
            self._following.delay(followed, ErrorCode.NONE)
        # The next round asks about the new end of the log, and must not sleep first.
        else:
            self._wake.set()

    async def _cut(
        self,
        followed: Followed,
        offset: int,
        *,
        start_over: bool = False,
        on_cut: Callable[[], None] | None = None,
    ) -> None:
        """Truncate the log to end at `offset`; with `start_over` empty it, to begin there. `on_cut` (by default
        `truncated` of the replica) is called when the log has its new end."""
        log = followed.partition.log
        if log is None:
            return
        truncation = self._deps.logs.truncation

        # `FetcherPool.leave` waits for this event, so that no role changes while a thread truncates the log.
        before, followed.cut_ended = log.log_end_offset, trio.Event()
        try:
            cut = truncation.start_over if start_over else truncation.truncate
            await cut(log, offset, on_cut or followed.partition.truncated)
        except StorageError:
            # The directory is offline, and the partition has left.
            return
        finally:
            followed.cut_ended.set()
            followed.cut_ended = None

        self._following.touch(followed)
        if before != log.log_end_offset:
            logger.info("%s: cut from %d to %d to follow broker %d", log, before, log.log_end_offset, self.leader_id)

    async def _come_into_range(self, followed: Followed) -> None:
        """Handle OFFSET_OUT_OF_RANGE: the leader's log ends before this log's end, or starts after it (C.4)."""
        # The end is compared first: an unclean election may have made a shorter log the leader's.
        end_offset = await self._leader_offset(followed, LATEST)
        log = followed.partition.log
        if end_offset is None or log is None:
            return
        if end_offset < log.log_end_offset:
            await self._cut(followed, end_offset)
            return
        start_offset = await self._leader_offset(followed, EARLIEST)
        if start_offset is None:
            return
        # The leader's retention removed records that this log lacks: the copy starts over. `log` is still the current
        # one, as `_leader_offset` returns None if the partition has left.
        if start_offset > log.log_end_offset:
            await self._cut(followed, start_offset, start_over=True)
        # The leader's log includes the offset by now. A pause keeps a repeated error from looping.
        else:
            self._following.delay(followed, ErrorCode.OFFSET_OUT_OF_RANGE)

    async def _leader_offset(self, followed: Followed, timestamp: int) -> int | None:
        """The leader's log end (LATEST) or log start offset (EARLIEST). None after an error, which is handled here, or
        if the partition has left meanwhile."""
        request = offset_request(followed.key, followed.leader_epoch, timestamp, self._deps.broker_id)
        response = await self._ask(request, m.ListOffsetsResponse)
        # The partition may have a new leader by now: then an offset of the old one must not truncate this log.
        if not self._following.is_current(followed):
            return None
        error, offset = (ErrorCode.NETWORK_EXCEPTION, -1) if response is None else offset_of(response)
        if not error:
            return offset
        if error == ErrorCode.FENCED_LEADER_EPOCH:
            self._following.fail(followed, error)
        else:
            self._following.delay(followed, error)
        return None

    # -- errors

    async def _ask(
        self,
        request: m.Message,
        expected: type[Answer],
        version: int | None = None,
        *,
        body: bytes | None = None,
        scope: trio.CancelScope | None = None,
    ) -> Answer | None:
        """The leader's response; None if the connection fails, `replica.socket.timeout.ms` passes, or the scope was
        cancelled."""
        deadline_ms = self._deps.config.replica_socket_timeout_ms
        try:
            response = await self._peer.ask(request, deadline_ms, version, body=body, scope=scope)
        except PeerLost as lost:
            if scope is None or not self._is_interrupted:
                logger.info("broker %d cannot be followed: %s", self.leader_id, lost, extra=self._extra)
            return None
        if not isinstance(response, expected):
            raise InvariantBroken(f"{response!r} answers {type(request).__name__}")
        return response
