"""What a follower asks its leader, and what the answers mean (pure): reference C.2-C.4; KIP-101, 227, 279, 595.

Theory of operation. A follower's log is a copy of its leader's, made from the follower's log end on. Two logs that were
written under different leaders may have gone different ways before that: the follower may hold records that its new
leader never had. So each fetch names the leader epoch of the follower's last record. The leader knows where that epoch
ended in its own log (`LeaderEpochs`); if it ended earlier than where the follower wants to go on, the leader answers
with that end instead of records, and the follower cuts its log there. Before KIP-595 the same was asked in a request
of its own, OffsetForLeaderEpoch, before the first fetch.

Everything that is asked carries the leader epoch that the follower knows, and every answer is judged by what the
follower was when it asked: the response to a question that is out of date is ignored.

A `FetchSession` is the follower's end of an incremental session: the first request names every partition, later ones
those that changed, and the leader answers about those that have news.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.storage.entries import SMALLEST_ENTRY_BYTES, span_at
from barnabas.storage.epochs import UNDEFINED_EPOCH, UNDEFINED_OFFSET, LeaderEpochs
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_of
from barnabas.wire.sentinels import (
    FETCH_REPLICA_STATE_VERSION,
    INITIAL_EPOCH,
    NO_SESSION_ID,
)
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition, java_string_hash

EPOCH_IN_FETCH_VERSION = 12  # from here on a fetch finds out where logs parted (KIP-595)
SESSION_EPOCH_MAX = 2**31 - 1

_PREFIX = struct.Struct(">qi")  # of every entry: base offset, bytes that follow

Row = m.FetchResponse.PartitionData
EpochEnd = m.OffsetForLeaderEpochResponse.EpochEndOffset


def fetcher_index(key: TopicPartition, fetchers: int) -> int:
    """Which of a leader's fetchers follows this partition, as Kafka divides them."""
    number = (31 * java_string_hash(key.topic) + key.partition) & 0xFFFFFFFF
    number = number - (1 << 32) if number >= 1 << 31 else number
    return (0 if number == -(1 << 31) else abs(number)) % fetchers


class Position(NamedTuple):
    """Where a follower of a partition stands, as it tells its leader."""

    topic_id: bytes
    leader_epoch: int
    fetch_offset: int  # its log end offset
    last_fetched_epoch: int  # -1: it does not know, or the version has no place for it
    log_start_offset: int


class FetchLimits(NamedTuple):
    """What `replica.fetch.*` allow."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int


# -- the session


class Asked(NamedTuple):
    """One fetch: what it says of the session, and of the partitions."""

    session_id: int
    session_epoch: int
    by_id: bool
    positions: Mapping[TopicPartition, Position]  # everything that is wanted
    named: Mapping[TopicPartition, Position]  # what the request names of it: all, or what changed
    forgotten: Iterable[tuple[TopicPartition, bytes]]  # what is not wanted any more, with its topic's id

    @property
    def is_full(self) -> bool:
        return self.session_epoch == INITIAL_EPOCH


class FetchSession:
    """The follower's end of an incremental fetch session: what is wanted, and what the leader's end holds."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._by_id = False
        self._sent: dict[TopicPartition, Position] = {}
        self._news: dict[TopicPartition, Position | None] = {}  # since then; None: not wanted any more
        self._wanted: dict[TopicPartition, None] = {}
        self._without_id: dict[TopicPartition, None] = {}
        self._names: dict[bytes, str] = {}  # topics by the ids in the leader's end of the session

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wanted."""
        return not self._wanted

    @property
    def all_have_ids(self) -> bool:
        """Whether the topics of all that is wanted can be named by their ids."""
        return not self._without_id

    def want(self, key: TopicPartition, position: Position) -> None:
        """From the next fetch on, this partition from there."""
        self._wanted[key] = None
        self._without_id.pop(key, None)
        if position.topic_id == ZERO_TOPIC_ID:
            self._without_id[key] = None
        if self._sent.get(key) == position:
            self._news.pop(key, None)
        else:
            self._news[key] = position

    def forget(self, key: TopicPartition) -> None:
        """From the next fetch on, nothing of this partition."""
        self._wanted.pop(key, None)
        self._without_id.pop(key, None)
        if key in self._sent:
            self._news[key] = None
        else:
            self._news.pop(key, None)

    def ask(self, *, by_id: bool) -> Asked:
        """The next fetch, of everything that is wanted."""
        if by_id != self._by_id:  # a session keeps to names or to ids
            self.lost()
            self._by_id = by_id
        forgotten = []
        for key, position in self._news.items():
            sent = self._sent.pop(key, None) if position is None else self._sent.get(key)
            if sent is not None and (position is None or (by_id and sent.topic_id != position.topic_id)):
                forgotten.append((key, sent.topic_id))
        named = {key: position for key, position in self._news.items() if position is not None}
        self._sent |= named
        self._news = {}
        if self._epoch == INITIAL_EPOCH:
            named, forgotten = dict(self._sent), []
            self._names.clear()
        self._names |= {position.topic_id: key.topic for key, position in named.items()}
        return Asked(self._session_id, self._epoch, by_id, self._sent, named, forgotten)

    def take(self, asked: Asked, response: m.FetchResponse) -> "dict[TopicPartition, Row] | str":
        """The rows of the answer to the last fetch, by partition; or why it cannot be used: then the next is full."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION_ID
            self.lost()
            return f"error {response.error_code}"
        rows = self._rows_of(asked, response)
        if rows is None or (asked.is_full and len(rows) != len(asked.positions)):
            self.lost()
            return "it speaks of other partitions than were asked for"
        if response.session_id == NO_SESSION_ID:
            self._session_id, self._epoch = NO_SESSION_ID, INITIAL_EPOCH
        elif not asked.is_full and response.session_id != asked.session_id:
            self.lost()
            return f"it belongs to session {response.session_id}, not {asked.session_id}"
        else:
            self._session_id = response.session_id
            self._epoch = 1 if asked.session_epoch == SESSION_EPOCH_MAX else asked.session_epoch + 1
        return rows

    def _rows_of(self, asked: Asked, response: m.FetchResponse) -> dict[TopicPartition, Row] | None:
        """Rows by partition; None if there is one that was not wanted."""
        rows: dict[TopicPartition, Row] = {}
        for topic in response.responses:
            name = self._names.get(topic.topic_id, "") if asked.by_id else topic.topic
            for row in topic.partitions:
                key = TopicPartition(name, row.partition_index)
                if key not in self._sent:
                    return None
                rows[key] = row
        return rows

    def lost(self) -> None:
        """A request was lost, and what the leader's end of the session holds is unknown: the next is a full request."""
        self._epoch = INITIAL_EPOCH

    def served(self, key: TopicPartition) -> None:
        """The leader sent records of this partition: without a session, others come first the next time."""
        position = self._sent.pop(key, None)
        if position is not None:
            self._sent[key] = position


# -- requests


def fetch_request(asked: Asked, limits: FetchLimits, version: int, broker_id: int, broker_epoch: int) -> m.FetchRequest:
    """The request of a fetch, in a form for this version."""
    request = m.FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        session_id=asked.session_id,
        session_epoch=asked.session_epoch,
        topics=_topics_of(asked, limits.partition_max_bytes),
        forgotten_topics_data=_forgotten_topics_of(asked),
    )
    if version >= FETCH_REPLICA_STATE_VERSION:
        request.replica_state = m.FetchRequest.ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch)
    else:
        request.replica_id = broker_id
    return request


def _topics_of(asked: Asked, partition_max_bytes: int) -> list[m.FetchRequest.FetchTopic]:
    """The named partitions in their order, neighbours of one topic together."""
    topics: list[m.FetchRequest.FetchTopic] = []
    current: str | None = None
    members: list[m.FetchRequest.FetchPartition] = []
    for key, position in asked.named.items():
        if key.topic != current:
            current, members = key.topic, []
            topics.append(m.FetchRequest.FetchTopic(topic=key.topic, topic_id=position.topic_id, partitions=members))
        members.append(
            m.FetchRequest.FetchPartition(
                partition=key.partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.fetch_offset,
                last_fetched_epoch=position.last_fetched_epoch,
                log_start_offset=position.log_start_offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return topics


def _forgotten_topics_of(asked: Asked) -> list[m.FetchRequest.ForgottenTopic]:
    by_topic: dict[tuple[str, bytes], list[int]] = {}
    for key, topic_id in asked.forgotten:
        by_topic.setdefault((key.topic, topic_id), []).append(key.partition)
    return [
        m.FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in by_topic.items()
    ]


def offset_request(key: TopicPartition, leader_epoch: int, timestamp: int, broker_id: int) -> m.ListOffsetsRequest:
    """Where the leader's log ends (LATEST) or starts (EARLIEST)."""
    asked = m.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=key.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name=key.topic, partitions=[asked])
    return m.ListOffsetsRequest(replica_id=broker_id, topics=[topic])


def epochs_request(wanted: Mapping[TopicPartition, Position], broker_id: int) -> m.OffsetForLeaderEpochRequest:
    """Where the epochs of our last records ended in the leader's logs."""
    topics: dict[str, list[m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition]] = {}
    for key, position in wanted.items():
        asked = m.OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=key.partition,
            current_leader_epoch=position.leader_epoch,
            leader_epoch=position.last_fetched_epoch,
        )
        topics.setdefault(key.topic, []).append(asked)
    return m.OffsetForLeaderEpochRequest(
        replica_id=broker_id,
        topics=[
            m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
    )


# -- what an answer means


class Stale(NamedTuple):
    """It answers a question that is out of date."""


class Append(NamedTuple):
    """Records, perhaps none, and where the leader's log starts and is committed."""

    records: memoryview
    high_watermark: int
    log_start_offset: int


class Diverged(NamedTuple):
    """The epoch of our last record ended in the leader's log before our log ends: in this epoch, at this offset."""

    epoch: int
    end_offset: int


class OutOfRange(NamedTuple):
    """The leader's log does not hold the offset where we want to go on."""


class Wait(NamedTuple):
    """Something is not as it should be, and may be soon: leave the partition alone for a while."""

    code: int


class Fail(NamedTuple):
    """The leader knows of a newer leader epoch: nothing is asked of it until LeaderAndIsr tells us of it as well."""

    code: int


Verdict = Stale | Append | Diverged | OutOfRange | Wait | Fail


def judge(asked: Position, now: Position | None, row: Row) -> Verdict:
    """What a row of an answer means to a follower that stood at `asked` and stands at `now` (None: follows no more)."""
    if now is None or not _stands_where(now, asked):
        return Stale()
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OutOfRange()
    if row.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return Fail(row.error_code)
    if row.error_code:
        return Wait(row.error_code)
    if row.diverging_epoch.end_offset != UNDEFINED_OFFSET:
        return Diverged(row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
    records = row.records
    if records is not None and not isinstance(records, (bytes, bytearray, memoryview)):
        return Wait(ErrorCode.CORRUPT_MESSAGE)  # a file cannot have come from another broker
    return Append(memoryview(records or b""), row.high_watermark, row.log_start_offset)


def judge_epoch_end(asked: Position, now: Position | None, row: EpochEnd) -> Stale | Diverged | Wait | Fail:
    """The same of an answer to `epochs_request`."""
    if now is None or not _stands_where(now, asked):
        return Stale()
    if row.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return Fail(row.error_code)
    return Wait(row.error_code) if row.error_code else Diverged(row.leader_epoch, row.end_offset)


def _stands_where(now: Position, asked: Position) -> bool:
    """Whether the answer to what was asked there is of use here. The topic counts: one that was deleted and made again
    may be asked for in the same leader epoch and from the same offset on."""
    return (now.topic_id, now.leader_epoch, now.fetch_offset) == (
        asked.topic_id,
        asked.leader_epoch,
        asked.fetch_offset,
    )


class Cut(NamedTuple):
    """Where to cut the log, and whether the logs agree from then on; otherwise the leader is to be asked again."""

    offset: int
    is_final: bool


def decide_cut(diverged: Diverged, epochs: LeaderEpochs, log_end_offset: int, high_watermark: int) -> Cut:
    """Where two logs part, as far as this answer tells (KIP-279).

    If the leader names an epoch that we do not have, our log is cut where the last one before it ended here, and the
    next question names that one: step by step both arrive at the last epoch that they share.
    """
    epoch, end_offset = diverged
    if end_offset == UNDEFINED_OFFSET:
        return Cut(min(high_watermark, log_end_offset), True)  # it knows nothing of our epoch: what is committed stays
    if epoch == UNDEFINED_EPOCH:
        return Cut(min(end_offset, log_end_offset), True)  # a leader of before KIP-279 does not name it
    known_epoch, known_end_offset = epochs.end_offset_for(epoch, log_end_offset)
    if known_end_offset == UNDEFINED_OFFSET:
        return Cut(min(end_offset, log_end_offset), True)
    if known_epoch == epoch:
        return Cut(min(end_offset, known_end_offset, log_end_offset), True)
    return Cut(min(known_end_offset, log_end_offset), False)


def pieces(records: memoryview, piece_bytes: int) -> Iterator[memoryview]:
    """The same bytes in pieces of whole entries, none larger than this if it is not a single entry."""
    start = end = 0
    while end + _PREFIX.size <= len(records):
        length = _PREFIX.unpack_from(records, end)[1]
        if length < 0 or length > len(records) - end - _PREFIX.size:
            break  # a partial entry, or nonsense: the append will refuse it
        if end > start and end + _PREFIX.size + length - start > piece_bytes:
            yield records[start:end]
            start = end
        end += _PREFIX.size + length
    if start < len(records):
        yield records[start:]


def offset_to_begin_at(records: memoryview, log_start_offset: int, log_end_offset: int) -> int | None:
    """Where an empty log has to begin to take these records: their first batch begins before it and reaches into it."""
    if log_start_offset < log_end_offset or len(records) < SMALLEST_ENTRY_BYTES:
        return None
    first = span_at(records, 0, 0)
    if first is None or not first.base_offset < log_end_offset <= first.last_offset:
        return None
    return first.base_offset


def offset_of(response: m.ListOffsetsResponse) -> int | ErrorCode:
    """What the leader says where its log ends, or starts."""
    for topic in response.topics:
        for row in topic.partitions:
            return error_of(row.error_code) if row.error_code else row.offset
    return ErrorCode.UNKNOWN_SERVER_ERROR


def epoch_ends(response: m.OffsetForLeaderEpochResponse) -> Iterator[tuple[TopicPartition, EpochEnd]]:
    """The rows of an answer to `epochs_request`."""
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.topic, row.partition), row
