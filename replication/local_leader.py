"""This broker as the leader of its own future logs (KIP-113): it answers a `Fetcher` without a network.

While a partition moves to another log directory, a future log there copies the partition's current log
(`log_dir_moves.py`). `LocalLeader.ask` serves the fetcher from the current log, whichever role the partition has, up to
the log end offset.

`replica.alter.log.dirs.io.max.bytes.per.second` limits the reads of all these fetchers together (`Pace`).
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

import trio

from barnabas.storage.disk import StorageError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, InvariantBroken, PeerLost
from barnabas.wire.sentinels import EARLIEST
from barnabas.world.waiting import Waiter

if TYPE_CHECKING:
    from barnabas.replication.follower_state import Row
    from barnabas.replication.partition import Partition
    from barnabas.storage.log import PartitionLog
    from barnabas.world.world import World

THROTTLE_SECONDS_MAX = 1.0  # the longest sleep: the rate may be reconfigured meanwhile
THROTTLE_SECONDS_MIN = 0.001  # a shorter wait is skipped: its excess stays and adds up


class MoveConfig(Protocol):
    """The broker properties that this file reads. Implemented by BrokerConfig."""

    @property
    def alter_log_dirs_bytes_per_second(self) -> int: ...


class Hosted(Protocol):
    """The partitions of this broker. Implemented by Replicas."""

    def get(self, topic: str, partition: int) -> "Partition | ErrorCode": ...


class Pace:
    """The rate limit of all moves: `spend` after each read, `wait` before the next one."""

    def __init__(self, config: MoveConfig) -> None:
        self._config = config
        self._excess_bytes = 0.0  # read, but not covered by the rate yet, at `_excess_at`
        self._excess_at = 0.0  # trio's clock, s

    async def wait(self) -> None:
        """Return when reading is allowed."""
        # The rate is asked again after each sleep: all fetchers share it, and another fetcher may have read meanwhile.
        while (seconds := self._throttle_seconds()) > THROTTLE_SECONDS_MIN:
            await trio.sleep(min(seconds, THROTTLE_SECONDS_MAX))

    def spend(self, size_bytes: int) -> None:
        """Count bytes that were read."""
        # The call brings the excess up to the current time.
        self._throttle_seconds()
        # The size is known only after the read. So a large read exceeds the rate at once, and the next wait is longer.
        self._excess_bytes += size_bytes

    def _throttle_seconds(self) -> float:
        rate = self._config.alter_log_dirs_bytes_per_second
        now = trio.current_time()
        self._excess_bytes = max(self._excess_bytes - (now - self._excess_at) * rate, 0.0)
        self._excess_at = now
        # A rate of 0 stops all moves.
        return self._excess_bytes / rate if rate else math.inf


class LocalLeader:
    """Answers Fetch, ListOffsets and OffsetForLeaderEpoch from the current logs. A `Peer` of fetchers.

    Leader epochs in the requests are not checked, because there is only this leader. There are no fetch sessions: the
    response has no session id, so every request is a full one.
    """

    def __init__(self, hosted: Callable[[], Hosted], world: "World", pace: Pace) -> None:
        self._hosted = hosted
        self._world = world
        self._pace = pace

    async def ask(
        self,
        request: m.Message,
        deadline_ms: float,
        version_max: int | None = None,
        *,
        body: bytes | None = None,
        scope: trio.CancelScope | None = None,
    ) -> m.Message:
        """The response. It always comes, so `deadline_ms` is ignored; PeerLost if the scope of a Fetch is cancelled."""
        match request:
            case m.FetchRequest():
                with scope or trio.CancelScope():
                    return await self._fetch(request)
                raise PeerLost("the fetcher has something else to ask")
            case m.ListOffsetsRequest():
                return self._list_offsets(request)
            case m.OffsetForLeaderEpochRequest():
                return self._epoch_ends(request)
        raise InvariantBroken(f"a future log asks {request!r}")

    def close(self) -> None:
        """Does nothing: there is no connection."""

    def _log(self, topic: str, index: int) -> "tuple[Partition, PartitionLog] | ErrorCode":
        partition = self._hosted().get(topic, index)
        if isinstance(partition, ErrorCode):
            return partition
        # During a truncation the end of the log is not certain. The fetcher retries after this error.
        if partition.log is None or partition.log.is_being_cut:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return partition, partition.log

    # -- Fetch

    async def _fetch(self, request: m.FetchRequest) -> m.FetchResponse:
        """Answer at once if there is news; otherwise after the next change that brings news, or after `max_wait_ms`."""
        await self._pace.wait()
        deadline = trio.current_time() + request.max_wait_ms / 1000
        asked = [
            self._hosted().get(topic.topic, each.partition) for topic in request.topics for each in topic.partitions
        ]
        watched = [partition for partition in asked if not isinstance(partition, ErrorCode)]
        waiter = Waiter()

        # The waiter is registered before `_look`, which awaits: a change during it must wake this
        # request. A partition that is not hosted gets an error, which is sent at once, so it needs
        # no waiter.
        waiter.register(watched)
        try:
            while True:
                # This registers the waiter again at the partitions that changed.
                waiter.take_dirty()
                response, is_news = await self._look(request)
                if is_news or not await waiter.wait(deadline):
                    return response
        finally:
            waiter.unregister(watched)

    async def _look(self, request: m.FetchRequest) -> tuple[m.FetchResponse, bool]:
        """A row for each requested partition; and whether any row has records, an error or a divergence."""
        # Any records are news, whatever `min_bytes` is: to wait for more would only save round trips, which cost
        # nothing within one process.
        bytes_left = request.max_bytes
        is_news = False
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                # Partitions are served in the order of the request until its bytes are used up. The fetcher moves the
                # served ones to the end of its next request, so that each gets its turn (`FetchSession.served`).
                row = await self._row(topic.topic, asked, bytes_left)
                size_bytes = len(row.records) if isinstance(row.records, bytes) else 0
                self._pace.spend(size_bytes)
                bytes_left -= size_bytes
                is_news = is_news or bool(size_bytes or row.error_code or row.diverging_epoch.end_offset >= 0)
                rows.append(row)
            topics.append(
                m.FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)
            )

        return m.FetchResponse(responses=topics), is_news

    async def _row(self, topic: str, asked: m.FetchRequest.FetchPartition, bytes_left: int) -> "Row":
        row = m.FetchResponse.PartitionData(partition_index=asked.partition)
        found = self._log(topic, asked.partition)
        if isinstance(found, ErrorCode):
            row.error_code = found
            return row
        partition, log = found

        # The offsets are taken before the read, which awaits.
        row.high_watermark = partition.high_watermark
        row.log_start_offset = log.log_start_offset

        # If this broker as a follower has truncated the current log, the future log has to be truncated, too. Its last
        # epoch shows how far, as for any replica (reference C.3).
        parted = _parted(log, asked.last_fetched_epoch, asked.fetch_offset)
        if parted is not None:
            row.diverging_epoch = m.FetchResponse.EpochEndOffset(epoch=parted[0], end_offset=parted[1])
        else:
            max_bytes = min(asked.partition_max_bytes, bytes_left)
            row.error_code = await self._read(partition, log, asked.fetch_offset, max_bytes, row)

        return row

    async def _read(
        self, partition: "Partition", log: "PartitionLog", offset: int, max_bytes: int, row: "Row"
    ) -> ErrorCode:
        """Put the records from `offset` on into the row; none if the log was truncated meanwhile."""
        generation = log.segments.generation
        try:
            # A batch above the limit must be copied too, unless other partitions have used up the response's bytes.
            read = log.read(offset, max_bytes=max_bytes, end_offset=log.log_end_offset, at_least_one=max_bytes > 0)
            if isinstance(read, ErrorCode):
                return read
            if read.slice is not None:
                # The slice keeps its segment's file open, also if the segment is deleted during the read.
                try:
                    records = await self._world.in_thread(read.slice.read)
                finally:
                    read.slice.release()

                # A truncation or deletion during the read may have removed these records; the next Fetch finds out.
                if generation == log.segments.generation and not log.is_being_cut:
                    row.records = records
        except StorageError as error:
            return partition.fail_storage(error)

        return ErrorCode.NONE

    # -- ListOffsets and OffsetForLeaderEpoch

    def _list_offsets(self, request: m.ListOffsetsRequest) -> m.ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                row = m.ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                found = self._log(topic.name, asked.partition_index)
                if isinstance(found, ErrorCode):
                    row.error_code = found
                # The answer is not the high watermark: the future log has uncommitted records, too, and the fetcher
                # would truncate those above the answer.
                else:
                    log = found[1]
                    row.offset = log.log_start_offset if asked.timestamp == EARLIEST else log.log_end_offset
                rows.append(row)
            topics.append(m.ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return m.ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, request: m.OffsetForLeaderEpochRequest) -> m.OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            rows = []
            for asked in topic.partitions:
                row = m.OffsetForLeaderEpochResponse.EpochEndOffset(partition=asked.partition)
                found = self._log(topic.topic, asked.partition)
                if isinstance(found, ErrorCode):
                    row.error_code = found
                # As for every replica, the latest epoch ends at the log end offset, which uncommitted records reach.
                else:
                    log = found[1]
                    row.leader_epoch, row.end_offset = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
                rows.append(row)
            topics.append(m.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        return m.OffsetForLeaderEpochResponse(topics=topics)


def _parted(log: "PartitionLog", last_epoch: int, offset: int) -> tuple[int, int] | None:
    """(epoch, end offset) where a log that ends at `offset` in `last_epoch` diverges from `log`; None if nowhere."""
    latest = log.epochs.latest_epoch
    # A log without epochs (empty, or in a format from before 0.11) cannot be compared.
    if last_epoch < 0 or latest is None:
        return None
    # A truncation of the current log removed `last_epoch` with all its records. `divergence` returns no end offset for
    # such an epoch, and a row without one would not be news: the future log would never truncate.
    if last_epoch > latest:
        return latest, log.log_end_offset
    return log.epochs.divergence(last_epoch, offset, log.log_end_offset)
