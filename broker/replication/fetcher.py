"""A follower at work: what this broker follows of one leader, over one connection (reference C.1-C.4).

Theory of operation. A `Fetcher` is a task. Its round: cut logs whose end is not known to agree with the leader's, ask
for records from each log's end on, take what came. What each answer means is decided in `follower_state.py`; here it is
carried out.

A partition joins and leaves in a synchronous step (`add`, `remove`). So everything that happens after an await looks
first whether the partition is still followed under the same leader epoch: a `Followed` that was replaced is dead.

A partition rests after an error (`replica.fetch.backoff.ms`), and one that failed until the next LeaderAndIsr. A leader
that does not answer lets all its partitions rest. With nothing to ask for the task sleeps until that changes. A fetch
that waits at the leader is given up when a partition joins: it should not wait for that of others.

With `flush.messages` a follower reports, by where it asks to go on, what it has synced: it waits for the flush first,
also for that of records which it wrote as the leader.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio

from barnabas.broker.containment import contained
from barnabas.broker.replication.followed_partition import FIRST_REST_SECONDS, FetcherDeps, Followed
from barnabas.broker.replication.follower_state import (
    EPOCH_IN_FETCH_VERSION,
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
    fetch_request,
    fetcher_index,
    judge,
    judge_epoch_end,
    offset_of,
    offset_request,
    offset_to_begin_at,
    pieces,
)
from barnabas.broker.replication.waiting import wake
from barnabas.storage.disk import StorageError
from barnabas.storage.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, PeerLost, error_name
from barnabas.wire.sentinels import EARLIEST, FETCH_TOPIC_ID_VERSION, LATEST
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

if TYPE_CHECKING:
    from barnabas.storage.log import PartitionLog

logger = logging.getLogger(__name__)

PIECE_BYTES = 1 << 18  # appended in one step, if it is not one batch: about a millisecond
ROWS_AT_A_TIME = 100  # looked at in one step
REST_SECONDS_MIN = 0.01  # the property may be 0
REST_SECONDS_AFTER_MISTAKE = 1.0  # or one that comes with every round would keep the loop busy

Answer = TypeVar("Answer", bound=m.Message)
Arguments = TypeVarTuple("Arguments")

# A log from before leader epochs: nothing but what is committed is sure to be the leader's.
OF_UNKNOWN_EPOCHS = Diverged(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class Fetcher:
    """What is followed of one leader, and the connection to it."""

    def __init__(self, deps: FetcherDeps, leader_id: int, index: int, place: Callable[[Followed], None]) -> None:
        self.leader_id = leader_id
        self.index = index
        self._deps = deps
        self._place = place
        self._fetch_version = deps.fetch_version
        self._peer = deps.open_peer(leader_id, f"broker-{deps.broker_id}-fetcher-{index}")
        self._session = FetchSession()
        self._followed: dict[TopicPartition, Followed] = {}
        self._touched: dict[TopicPartition, None] = {}  # may be wanted from elsewhere than the session knows
        self._resting: dict[Followed, None] = {}
        self._truncating: dict[Followed, None] = {}
        self._wake = trio.Event()
        self._polling: trio.CancelScope | None = None
        self._count = deps.fetcher_count
        self._unsynced: dict[Followed, None] = {}
        self._appended_bytes = 0  # since others had a turn
        self._extra = {"peer": f"broker {leader_id}"}  # its lines in the log are limited

    def add(self, followed: Followed) -> None:
        """Follow this as well."""
        self._followed[followed.key] = followed
        self._touched[followed.key] = None
        if followed.is_truncating:
            self._truncating[followed] = None
        if followed.rests_until > trio.current_time():
            self._resting[followed] = None
        self._note_unsynced(followed)
        self.interrupt()

    def remove(self, key: TopicPartition) -> trio.Event | None:
        """Follow this no more; the end of a truncation that is under way."""
        followed = self._followed.pop(key)
        self._touched[key] = None
        self._resting.pop(followed, None)
        self._truncating.pop(followed, None)
        if not self._followed:
            self.interrupt()
        return followed.cut_ended

    def interrupt(self) -> None:
        """Begin a new round."""
        self._wake.set()
        if self._polling is not None:
            self._polling.cancel()

    # -- the round

    async def run(self) -> None:
        """Fetch until nothing is followed."""
        logger.info("fetcher %d follows broker %d", self.index, self.leader_id)
        try:
            while self._followed:
                with contained(logger, "fetcher %d of broker %d: a round fails", self.index, self.leader_id) as round_:
                    await self._round()
                if round_.failed:
                    self._session.lost()
                    self._rest_all(list(self._followed))
                    await trio.sleep(REST_SECONDS_AFTER_MISTAKE)
        finally:
            self._peer.close()
            logger.info("fetcher %d follows broker %d no more", self.index, self.leader_id)

    async def _round(self) -> None:
        self._wake = trio.Event()
        self._move_away()
        self._end_rests()
        await self._sync()
        await self._truncate()
        self._tell_session()
        if self._session.is_empty:
            await self._sleep()
        else:
            await self._fetch()

    async def _contain(
        self, followed: Followed, work: Callable[[Followed, *Arguments], Awaitable[None]], *args: *Arguments
    ) -> None:
        """Do what concerns one partition: a mistake of ours in it, or damage that nothing else answers for, ends the
        fetching of this partition until its next role, and of no other; as Kafka's `markPartitionFailed`."""
        with contained(logger, "%s fails and is not fetched until its next role", followed.key) as attempt:
            await work(followed, *args)
        if attempt.failed:
            self._mark_failed(followed)

    def _move_away(self) -> None:
        """What belongs to another fetcher, since their number has changed, goes there."""
        count = self._deps.fetcher_count
        if count == self._count:
            return
        self._count = count
        for key, followed in list(self._followed.items()):
            if fetcher_index(key, count) != self.index:
                self.remove(key)
                self._place(followed)

    def _end_rests(self) -> None:
        now = trio.current_time()
        for followed in [each for each in self._resting if each.rests_until <= now]:
            del self._resting[followed]
            self._touched[followed.key] = None

    def _tell_session(self) -> None:
        for key in self._touched:
            followed = self._followed.get(key)
            position = None if followed is None else self._position(followed)
            if position is None:
                self._session.forget(key)
            else:
                self._session.want(key, position)
        self._touched.clear()

    async def _sleep(self) -> None:
        with trio.move_on_at(min((each.rests_until for each in self._resting), default=math.inf)):
            await self._wake.wait()

    def _position(self, followed: Followed) -> Position | None:
        """Where this partition is to be fetched from; None while it is not."""
        log = followed.partition.log
        if log is None or followed.failed or followed in self._resting or followed in self._truncating:
            return None
        if log.acknowledgeable_offset < log.log_end_offset:
            return None  # to ask for what comes next would say that we have it
        return self._position_in(log, followed)

    def _position_in(self, log: "PartitionLog", followed: Followed) -> Position:
        in_fetch = self._fetch_version >= EPOCH_IN_FETCH_VERSION
        epoch = log.epochs.latest_epoch if in_fetch else None
        return Position(
            (log.topic_id if followed.partition.fetched_by_id else None) or ZERO_TOPIC_ID,
            followed.leader_epoch,
            log.log_end_offset,
            -1 if epoch is None else epoch,
            log.log_start_offset,
        )

    def _is_current(self, followed: Followed) -> bool:
        return self._followed.get(followed.key) is followed and followed.partition.log is not None

    # -- fetching

    async def _fetch(self) -> None:
        """One fetch, and what it brought."""
        session, config = self._session, self._deps.config
        by_id = self._fetch_version >= FETCH_TOPIC_ID_VERSION and session.all_have_ids
        version = self._fetch_version if by_id else min(self._fetch_version, FETCH_TOPIC_ID_VERSION - 1)
        asked = session.ask(by_id=by_id)
        limits = FetchLimits(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_max_bytes,
        )
        me = self._deps.broker_id, self._deps.broker_epoch()
        request = fetch_request(asked, limits, version, *me)
        with trio.CancelScope() as self._polling:
            response = await self._ask(request, m.FetchResponse, version)
        interrupted, self._polling = self._polling.cancelled_caught, None
        if interrupted or response is None:
            session.lost()
            if not interrupted:
                self._rest_all(asked.positions)
            return
        rows = session.take(asked, response)
        if isinstance(rows, str):
            logger.info("broker %d: an answer to Fetch cannot be used: %s", self.leader_id, rows, extra=self._extra)
            if asked.is_full:
                self._rest_all(asked.positions)
            return
        await self._take_rows(asked.positions, rows)

    async def _take_rows(
        self, positions: Mapping[TopicPartition, Position], rows: Mapping[TopicPartition, Row]
    ) -> None:
        parted: list[tuple[Followed, Diverged]] = []
        for number, (key, row) in enumerate(rows.items(), 1):
            followed = self._followed.get(key)
            if followed is not None:
                await self._contain(followed, self._take_row, positions[key], row, parted)
            if number % ROWS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        await self._part_all(parted)

    async def _take_row(
        self, followed: Followed, asked: Position, row: Row, parted: list[tuple[Followed, Diverged]]
    ) -> None:
        await self._carry_out(followed, judge(asked, self._position(followed), row), parted)

    async def _carry_out(self, followed: Followed, verdict: Verdict, parted: list[tuple[Followed, Diverged]]) -> None:
        match verdict:
            case Stale():
                self._touched[followed.key] = None  # it stands elsewhere than the session knows
            case Append():
                await self._append(followed, verdict)
            case Diverged():
                parted.append((followed, verdict))
            case OutOfRange():
                await self._come_into_range(followed)
            case Wait():
                self._rest(followed, verdict.code)
            case Fail():
                self._fail(followed, verdict.code)

    async def _append(self, followed: Followed, sent: Append) -> None:
        """Append what the leader sent, a piece at a time, and take over what it says of its log."""
        if not await self._leave_behind(followed, sent.log_start_offset):
            return
        for piece in pieces(sent.records, PIECE_BYTES):
            if not self._is_current(followed) or not await self._append_next(followed, piece):
                return
            self._appended_bytes += len(piece)
            if self._appended_bytes >= PIECE_BYTES:
                self._appended_bytes = 0
                await trio.lowlevel.checkpoint()
        log = followed.partition.log
        if log is not None and self._is_current(followed):
            self._raise_log_start(followed, log, min(sent.log_start_offset, log.log_end_offset))
            followed.next_rest_seconds = FIRST_REST_SECONDS
            followed.partition.follow_to(sent.high_watermark)

    async def _leave_behind(self, followed: Followed, start_offset: int) -> bool:
        """Begin where the leader's log starts, durably, before anything is appended there; False if that fails.

        What we hold between our high watermark and the leader's log start may never have been the leader's: it may be
        of an epoch that the leader has deleted since, so no comparison of epochs finds the difference. Below our log
        start it is never served. But a crash takes back a log start that is not in the checkpoint, and the records
        that follow would let it pass for the leader's log.
        """
        log = followed.partition.log
        if log is None or not followed.partition.high_watermark < start_offset <= log.log_end_offset:
            return True
        self._raise_log_start(followed, log, start_offset)
        logs = self._deps.logs
        try:
            await logs.checkpoints.write_log_starts(logs.directory_of(log))
        except StorageError:
            self._rest(followed, ErrorCode.KAFKA_STORAGE_ERROR)  # if it is still here: a descriptor was lacking
            return False
        return True

    def _raise_log_start(self, followed: Followed, log: "PartitionLog", start_offset: int) -> None:
        if start_offset > log.log_start_offset:
            log.raise_log_start(start_offset)
            self._touched[followed.key] = None

    async def _append_next(self, followed: Followed, piece: memoryview) -> bool:
        """Append what comes next; False if it could not be done."""
        log = followed.partition.log
        first_offset = None if log is None else offset_to_begin_at(piece, log.log_start_offset, log.log_end_offset)
        if log is None or first_offset is None:
            return self._append_piece(followed, piece)
        # The leader's log starts inside a batch (DeleteRecords). The copy has to begin where that batch does, before
        # its own log start, so this log starts over there.
        start_offset = log.log_start_offset
        await self._cut(followed, first_offset, start_over=True, on_cut=lambda: None)
        # The truncation took time: the role may have changed, and then the next role decides what the log holds.
        is_appended = self._is_current(followed) and self._append_piece(followed, piece)
        if is_appended:
            log.raise_log_start(start_offset)
        # Only now, so that the high watermark is never seen below the log start.
        followed.partition.truncated()
        return is_appended

    def _append_piece(self, followed: Followed, piece: memoryview) -> bool:
        """One step of it; False if it could not be done."""
        partition, log = followed.partition, followed.partition.log
        if log is None:
            return False
        try:
            appended = log.append_as_follower(piece, self._deps.world.now_ms())
        except StorageError as error:
            partition.fail_storage(error)
            self._rest(followed, ErrorCode.KAFKA_STORAGE_ERROR)  # if it is still here: a descriptor was lacking
            return False
        self._touched[followed.key] = None
        if isinstance(appended, ErrorCode):
            if appended == ErrorCode.CORRUPT_MESSAGE:
                self._rest(followed, appended)
            else:
                self._fail(followed, appended)
            return False
        self._session.served(followed.key)
        if log.flush_demanded:
            self._deps.flusher.want(log)
        self._note_unsynced(followed)
        wake(partition)
        return True

    def _note_unsynced(self, followed: Followed) -> None:
        """Its log may hold what cannot be reported yet: appended just now, or while this broker led."""
        log = followed.partition.log
        if log is not None and log.acknowledgeable_offset < log.log_end_offset:
            self._unsynced[followed] = None

    async def _sync(self) -> None:
        """Wait until everything that the logs hold may be reported to the leader."""
        while self._unsynced:
            logs = [
                log
                for each in self._unsynced
                if self._is_current(each)
                and (log := each.partition.log) is not None
                and log.acknowledgeable_offset < log.log_end_offset
            ]
            if not logs:
                self._touched |= {each.key: None for each in self._unsynced}
                self._unsynced.clear()
                return
            try:
                await self._deps.flusher.flush(logs)
            except StorageError:
                await trio.lowlevel.checkpoint()  # that directory is offline, and its partitions have left

    # -- where logs part

    async def _truncate(self) -> None:
        """Compare the ends of logs with the leader's, where that is not done by the fetch itself."""
        asking: dict[TopicPartition, Position] = {}
        parted: list[tuple[Followed, Diverged]] = []
        for followed in self._truncating:
            log = followed.partition.log
            if log is None or followed.failed or followed in self._resting:
                continue
            if log.epochs.latest_epoch is None:
                parted.append((followed, OF_UNKNOWN_EPOCHS))
            else:
                position = self._position_in(log, followed)
                asking[followed.key] = position._replace(last_fetched_epoch=log.epochs.latest_epoch)
        await self._part_all(parted)
        if asking:
            await self._ask_epoch_ends(asking)

    async def _ask_epoch_ends(self, asking: dict[TopicPartition, Position]) -> None:
        response = await self._ask(epochs_request(asking, self._deps.broker_id), m.OffsetForLeaderEpochResponse)
        if response is None:
            self._rest_all(asking)
            return
        parted: list[tuple[Followed, Diverged]] = []
        for key, row in epoch_ends(response):
            asked, followed = asking.pop(key, None), self._followed.get(key)
            if asked is not None and followed in self._truncating:
                await self._contain(followed, self._take_epoch_end, asked, row, parted)
        self._rest_all(asking)
        await self._part_all(parted)

    async def _take_epoch_end(
        self, followed: Followed, asked: Position, row: EpochEnd, parted: list[tuple[Followed, Diverged]]
    ) -> None:
        log = followed.partition.log
        now = None if log is None else self._position_in(log, followed)
        await self._carry_out(followed, judge_epoch_end(asked, now, row), parted)

    async def _part_all(self, parted: list[tuple[Followed, Diverged]]) -> None:
        """Cut these logs side by side. What the checkpoints say of a directory is written once for all logs that were
        cut while it was written the last time, however many lose their leader together."""
        async with trio.open_nursery() as nursery:
            for followed, diverged in parted:
                nursery.start_soon(self._contain, followed, self._part, diverged)

    async def _part(self, followed: Followed, diverged: Diverged) -> None:
        """Cut the log where the leader's went another way, as far as is known."""
        log = followed.partition.log
        if log is None or not self._is_current(followed):
            return
        before = log.log_end_offset, log.epochs.latest_epoch
        cut = decide_cut(diverged, log.epochs, log.log_end_offset, followed.partition.high_watermark)
        await self._cut(followed, cut.offset)
        if cut.is_final and followed in self._truncating:
            self._is_in_line(followed)
        elif before == (log.log_end_offset, log.epochs.latest_epoch):
            self._rest(followed, ErrorCode.NONE)  # the same question would have the same answer
        else:
            self._wake.set()  # there is another question to ask

    def _is_in_line(self, followed: Followed) -> None:
        self._truncating.pop(followed, None)
        followed.is_truncating = False
        self._touched[followed.key] = None

    async def _cut(
        self,
        followed: Followed,
        offset: int,
        *,
        start_over: bool = False,
        on_cut: Callable[[], None] | None = None,
    ) -> None:
        log = followed.partition.log
        if log is None:
            return
        truncation = self._deps.logs.truncation
        before, followed.cut_ended = log.log_end_offset, trio.Event()
        try:
            cut = truncation.start_over if start_over else truncation.truncate
            await cut(log, offset, on_cut or followed.partition.truncated)
        except StorageError:
            return  # its directory is offline, and the partition has left
        finally:
            followed.cut_ended.set()
            followed.cut_ended = None
        self._touched[followed.key] = None
        if before != log.log_end_offset:
            logger.info("%s: cut from %d to %d to follow broker %d", log, before, log.log_end_offset, self.leader_id)

    async def _come_into_range(self, followed: Followed) -> None:
        """The leader's log does not hold where we want to go on: it was cut, or has forgotten what we lack."""
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
        if start_offset > log.log_end_offset:
            await self._cut(followed, start_offset, start_over=True)
        else:
            self._rest(followed, ErrorCode.OFFSET_OUT_OF_RANGE)  # it holds it now: ask again, but not in a hurry

    async def _leader_offset(self, followed: Followed, timestamp: int) -> int | None:
        """Where the leader's log ends or starts; None if it does not answer, or the partition has left meanwhile."""
        request = offset_request(followed.key, followed.leader_epoch, timestamp, self._deps.broker_id)
        response = await self._ask(request, m.ListOffsetsResponse)
        if not self._is_current(followed):
            return None
        offset = ErrorCode.NETWORK_EXCEPTION if response is None else offset_of(response)
        if not isinstance(offset, ErrorCode):
            return offset
        if offset == ErrorCode.FENCED_LEADER_EPOCH:
            self._fail(followed, offset)
        else:
            self._rest(followed, offset)
        return None

    # -- what does not go well

    async def _ask(self, request: m.Message, expected: type[Answer], version: int | None = None) -> Answer | None:
        """The leader's answer; None if there is none."""
        try:
            response = await self._peer.ask(request, self._deps.config.replica_socket_timeout_ms, version)
        except PeerLost as lost:
            logger.info("broker %d cannot be followed: %s", self.leader_id, lost, extra=self._extra)
            return None
        if not isinstance(response, expected):
            raise InvariantBroken(f"{response!r} answers {type(request).__name__}")
        return response

    def _rest(self, followed: Followed, code: int) -> None:
        if not self._is_current(followed):
            return
        why = error_name(code)
        logger.info("%s is not fetched from broker %d for a while: %s", followed.key, self.leader_id, why)
        self._rest_all([followed.key])

    def _rest_all(self, keys: Iterable[TopicPartition]) -> None:
        rest_seconds_max = max(self._deps.config.replica_fetch_backoff_ms / 1000, REST_SECONDS_MIN)
        for key in keys:
            followed = self._followed.get(key)
            if followed is not None:
                rest_seconds = min(followed.next_rest_seconds, rest_seconds_max)
                followed.next_rest_seconds = 2 * rest_seconds
                followed.rests_until = trio.current_time() + rest_seconds
                self._resting[followed] = None
                self._touched[key] = None

    def _fail(self, followed: Followed, code: int) -> None:
        if self._is_current(followed):
            logger.warning("%s is not fetched until its next role: %s", followed.key, error_name(code))
            self._mark_failed(followed)

    def _mark_failed(self, followed: Followed) -> None:
        followed.failed = True
        self._touched[followed.key] = None
