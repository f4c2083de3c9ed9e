"""The follower's requests and the meaning of their responses (pure): reference C.2-C.4; KIP-101, 227, 279, 595.

A follower may hold records that its new leader never had. So each Fetch carries the leader epoch of the follower's last
record. The leader looks up where that epoch ends in its own log (`LeaderEpochs`). If it ends before the fetch offset,
the leader returns that end instead of records, and the follower truncates its log there. Before KIP-595 the follower
asked for the end in a request of its own, OffsetForLeaderEpoch, before the first Fetch.

`judge` and `judge_epoch_end` turn a response row into a `Verdict`, which `fetcher.py` carries out. They compare the
follower's position in the request with its position now, and ignore responses that are out of date.

A `FetchSession` is the follower's side of an incremental fetch session: the first request names every partition, later
ones only those that changed, and the leader's responses hold only partitions with news.
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

EPOCH_IN_FETCH_VERSION = 12  # from this version of Fetch on the response reports divergence (KIP-595)
SESSION_EPOCH_MAX = 2**31 - 1

_PREFIX = struct.Struct(">qi")  # of every batch or old message: base offset, number of bytes that follow

Row = m.FetchResponse.PartitionData
EpochEnd = m.OffsetForLeaderEpochResponse.EpochEndOffset


def fetcher_index(key: TopicPartition, fetchers: int) -> int:
    """The index of the fetcher that follows this partition, if its leader has `fetchers` of them. As in Kafka."""
    # Java's int arithmetic wraps, and Kafka's Utils.abs maps the smallest int to 0.
    number = (31 * java_string_hash(key.topic) + key.partition) & 0xFFFFFFFF
    number = number - (1 << 32) if number >= 1 << 31 else number
    return (0 if number == -(1 << 31) else abs(number)) % fetchers


class Position(NamedTuple):
    """A follower's position in one partition, as a Fetch request carries it."""

    topic_id: bytes
    leader_epoch: int
    fetch_offset: int  # its log end offset
    last_fetched_epoch: int  # -1: unknown, or the Fetch version has no such field
    log_start_offset: int  # the leader's DeleteRecords waits until all replicas have deleted (KIP-107)


class FetchLimits(NamedTuple):
    """The limits of one Fetch, from the `replica.fetch.*` properties."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int  # of the whole response
    partition_max_bytes: int


# -- the session


class Asked(NamedTuple):
    """One Fetch: its session fields and its partitions."""

    session_id: int
    session_epoch: int
    by_id: bool
    positions: Mapping[TopicPartition, Position]  # of all wanted partitions
    named: Mapping[TopicPartition, Position]  # the partitions in the request: all, or those that changed
    forgotten: Iterable[tuple[TopicPartition, bytes]]  # partitions that leave the session, with the old topic id

    @property
    def is_full(self) -> bool:
        return self.session_epoch == INITIAL_EPOCH


class FetchSession:
    """The follower's side of an incremental fetch session: the wanted partitions, and what the leader's side holds."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._by_id = False
        self._sent: dict[TopicPartition, Position] = {}  # the positions in the leader's side of the session
        self._news: dict[TopicPartition, Position | None] = {}  # changes against `_sent`; None: not wanted any more
        self._wanted: dict[TopicPartition, None] = {}
        self._without_id: dict[TopicPartition, None] = {}  # the wanted partitions whose topic id is not known
        self._by_topic_id: dict[tuple[bytes, int], TopicPartition] = {}  # the keys of `_sent`, as responses name them

    @property
    def is_empty(self) -> bool:
        """Whether no partition is wanted."""
        return not self._wanted

    @property
    def all_have_ids(self) -> bool:
        """Whether the topic ids of all wanted partitions are known."""
        return not self._without_id

    def want(self, key: TopicPartition, position: Position) -> None:
        """Fetch this partition from this position, from the next Fetch on."""
        self._wanted[key] = None
        self._without_id.pop(key, None)
        if position.topic_id == ZERO_TOPIC_ID:
            self._without_id[key] = None
        # If the leader's side holds this position already, a change that was not sent yet is dropped.
        if self._sent.get(key) == position:
            self._news.pop(key, None)
        else:
            self._news[key] = position

    def forget(self, key: TopicPartition) -> None:
        """Do not fetch this partition, from the next Fetch on."""
        self._wanted.pop(key, None)
        self._without_id.pop(key, None)
        # The leader must learn of it only if its side of the session holds the partition.
        if key in self._sent:
            self._news[key] = None
        else:
            self._news.pop(key, None)

    def ask(self, *, by_id: bool) -> Asked:
        """The next Fetch, for all wanted partitions."""
        # A session uses either names or ids; the leader refuses a change (FETCH_SESSION_TOPIC_ID_ERROR).
        if by_id != self._by_id:
            self.lost()
            self._by_id = by_id
        forgotten = []

        # A topic that was deleted and created again is another topic by id: the old id is forgotten explicitly.
        for key, position in self._news.items():
            sent = self._sent.pop(key, None) if position is None else self._sent.get(key)
            if sent is not None and (position is None or sent.topic_id != position.topic_id):
                self._by_topic_id.pop((sent.topic_id, key.partition), None)
                if position is None or by_id:
                    forgotten.append((key, sent.topic_id))

        named = {key: position for key, position in self._news.items() if position is not None}
        self._sent |= named
        self._by_topic_id |= {(position.topic_id, key.partition): key for key, position in named.items()}
        self._news = {}

        # A full request creates a new session: it names all partitions and has none to forget.
        if self._epoch == INITIAL_EPOCH:
            named = dict(self._sent)
            forgotten = []

        # The response is compared with `_sent` itself, not a copy of thousands of positions: until
        # the next call only their order changes (`served`).
        return Asked(self._session_id, self._epoch, by_id, self._sent, named, forgotten)

    def take(self, asked: Asked, response: m.FetchResponse) -> "dict[TopicPartition, Row] | str":
        """The rows of the last Fetch's response, by partition. Or the reason why it is unusable: the next Fetch is then
        a full one."""
        if response.error_code:
            # The id stays after other errors: a full request that carries an id closes that session
            # at the leader.
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION_ID
            self.lost()
            return f"error {response.error_code}"

        rows = self._rows_of(asked, response)

        # A full response must name exactly the requested partitions, an incremental one a part of them.
        if rows is None or (asked.is_full and len(rows) != len(asked.positions)):
            self.lost()
            return "it speaks of other partitions than were asked for"

        # The leader made no session, so all later requests stay full.
        if response.session_id == NO_SESSION_ID:
            self._session_id = NO_SESSION_ID
            self._epoch = INITIAL_EPOCH
        elif not asked.is_full and response.session_id != asked.session_id:
            self.lost()
            return f"it belongs to session {response.session_id}, not {asked.session_id}"
        else:
            self._session_id = response.session_id

            # The epoch wraps to 1: 0 (INITIAL_EPOCH) would be a full request.
            self._epoch = 1 if asked.session_epoch == SESSION_EPOCH_MAX else asked.session_epoch + 1

        return rows

    def _rows_of(self, asked: Asked, response: m.FetchResponse) -> dict[TopicPartition, Row] | None:
        """The response rows by partition; None if one of them was not requested."""
        rows: dict[TopicPartition, Row] = {}
        for topic in response.responses:
            for row in topic.partitions:
                key: TopicPartition | None
                if asked.by_id:
                    key = self._by_topic_id.get((topic.topic_id, row.partition_index))
                else:
                    key = TopicPartition(topic.topic, row.partition_index)
                if key is None or key not in self._sent:
                    return None
                rows[key] = row
        return rows

    def lost(self) -> None:
        """The state of the leader's side is unknown, e.g. after a lost response: the next request is a full one."""
        self._epoch = INITIAL_EPOCH

    def served(self, key: TopicPartition) -> None:
        """The leader sent records of this partition: move it behind the others for the next full request."""
        # The leader fills a response in the order of the request, up to its byte limit. Java's clients rotate, too.
        position = self._sent.pop(key, None)
        if position is not None:
            self._sent[key] = position


# -- requests


def fetch_request(asked: Asked, limits: FetchLimits, version: int, broker_id: int, broker_epoch: int) -> m.FetchRequest:
    """The FetchRequest in the form of this version."""
    request = m.FetchRequest(
        max_wait_ms=limits.max_wait_ms,
        min_bytes=limits.min_bytes,
        max_bytes=limits.max_bytes,
        session_id=asked.session_id,
        session_epoch=asked.session_epoch,
        topics=_topics_of(asked, limits.partition_max_bytes),
        forgotten_topics_data=_forgotten_topics_of(asked),
    )
    # The broker epoch lets the leader propose this replica for the ISR under its current registration (KIP-903).
    if version >= FETCH_REPLICA_STATE_VERSION:
        request.replica_state = m.FetchRequest.ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch)
    else:
        request.replica_id = broker_id

    return request


def _topics_of(asked: Asked, partition_max_bytes: int) -> list[m.FetchRequest.FetchTopic]:
    """The named partitions in their order; adjacent partitions of one topic share an entry."""
    # The order decides which partitions are served first, so a topic may have several entries.
    topics: list[m.FetchRequest.FetchTopic] = []
    current: str | None = None
    members: list[m.FetchRequest.FetchPartition] = []
    for key, position in asked.named.items():
        if key.topic != current:
            current = key.topic
            members = []
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
    # Unlike in `_topics_of` the order means nothing, so each topic has one entry.
    by_topic: dict[tuple[str, bytes], list[int]] = {}
    for key, topic_id in asked.forgotten:
        by_topic.setdefault((key.topic, topic_id), []).append(key.partition)
    return [
        m.FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in by_topic.items()
    ]


def offset_request(key: TopicPartition, leader_epoch: int, timestamp: int, broker_id: int) -> m.ListOffsetsRequest:
    """ListOffsets for the leader's log end offset (LATEST) or log start offset (EARLIEST)."""
    # A broker that leads under another epoch refuses the request: its offsets must not truncate this replica's log. The
    # replica id matters, too: a consumer would get the high watermark instead of the log end offset.
    asked = m.ListOffsetsRequest.ListOffsetsPartition(
        partition_index=key.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
    )
    topic = m.ListOffsetsRequest.ListOffsetsTopic(name=key.topic, partitions=[asked])
    return m.ListOffsetsRequest(replica_id=broker_id, topics=[topic])


def epochs_request(wanted: Mapping[TopicPartition, Position], broker_id: int) -> m.OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpoch: where in the leader's logs the epochs of the follower's last records end."""
    # Two epochs for each partition. `leader_epoch` is the question: the epoch of this log's last record. A broker that
    # does not lead under `current_leader_epoch` refuses: its history must not truncate this log.
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
    """The response is out of date: the follower's position or role has changed since the request."""


class Append(NamedTuple):
    """Append these records, perhaps none, and take over the leader's high watermark and log start offset."""

    records: memoryview
    high_watermark: int
    log_start_offset: int


class Diverged(NamedTuple):
    """The largest epoch of the leader's log that is <= the follower's last one, and its end offset there. Undefined
    (-1) where the leader knows none."""

    epoch: int
    end_offset: int


# The divergence of a log without leader epochs, which is empty or in a message format from before Kafka 0.11. Nothing
# can be compared, and only committed records are certain to be in the leader's log: `decide_cut` truncates it to its
# high watermark.
OF_UNKNOWN_EPOCHS = Diverged(UNDEFINED_EPOCH, UNDEFINED_OFFSET)


class OutOfRange(NamedTuple):
    """The leader's log does not include the fetch offset."""


class Wait(NamedTuple):
    """A retriable error: the partition is delayed."""

    code: int


class Fail(NamedTuple):
    """The leader has a newer leader epoch: do not fetch until LeaderAndIsr brings the new epoch to this broker."""

    code: int


Verdict = Stale | Append | Diverged | OutOfRange | Wait | Fail


def judge(asked: Position, now: Position | None, row: Row) -> Verdict:
    """The meaning of a Fetch row for a follower whose position was `asked` and is `now` (None: no longer fetched)."""
    # This check comes first, because an error, too, is about the position of the request.
    if now is None or not _stands_where(now, asked):
        return Stale()
    if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return OutOfRange()
    if row.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return Fail(row.error_code)
    if row.error_code:
        return Wait(row.error_code)
    # Divergence comes with error code 0 and without records.
    if row.diverging_epoch.end_offset != UNDEFINED_OFFSET:
        return Diverged(row.diverging_epoch.epoch, row.diverging_epoch.end_offset)
    records = row.records
    # The field may also hold a file slice, but only in responses that this broker sends.
    if records is not None and not isinstance(records, (bytes, bytearray, memoryview)):
        return Wait(ErrorCode.CORRUPT_MESSAGE)
    return Append(memoryview(records or b""), row.high_watermark, row.log_start_offset)


def judge_epoch_end(asked: Position, now: Position | None, row: EpochEnd) -> Stale | Diverged | Wait | Fail:
    """As `judge`, for a row of the OffsetForLeaderEpoch response."""
    if now is None or not _stands_where(now, asked):
        return Stale()
    if row.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return Fail(row.error_code)
    return Wait(row.error_code) if row.error_code else Diverged(row.leader_epoch, row.end_offset)


def _stands_where(now: Position, asked: Position) -> bool:
    """Whether a response to a request from position `asked` still fits position `now`."""
    # The topic id counts: a topic that was deleted and created again may have the same leader epoch and fetch offset.
    # The log start offset does not: records for the log's end fit whatever was deleted at its beginning.
    return (now.topic_id, now.leader_epoch, now.fetch_offset) == (
        asked.topic_id,
        asked.leader_epoch,
        asked.fetch_offset,
    )


class Cut(NamedTuple):
    """Where to truncate the log. If `is_final`, the logs then agree; otherwise the leader must be asked again."""

    offset: int
    is_final: bool


def decide_cut(diverged: Diverged, epochs: LeaderEpochs, log_end_offset: int, high_watermark: int) -> Cut:
    """Where two logs diverge, as far as this response shows (KIP-279). `epochs` are the follower's."""
    epoch, end_offset = diverged
    # The leader knows nothing about the follower's epoch: only committed records are certain to be in both logs.
    if end_offset == UNDEFINED_OFFSET:
        return Cut(min(high_watermark, log_end_offset), True)
    # A leader from before KIP-279 does not send the epoch, so there is nothing to compare.
    if epoch == UNDEFINED_EPOCH:
        return Cut(min(end_offset, log_end_offset), True)
    known_epoch, known_end_offset = epochs.end_offset_for(epoch, log_end_offset)
    if known_end_offset == UNDEFINED_OFFSET:
        return Cut(min(end_offset, log_end_offset), True)
    # Both logs have the epoch: they agree up to the smaller of its two ends.
    if known_epoch == epoch:
        return Cut(min(end_offset, known_end_offset, log_end_offset), True)
    # The follower does not have the leader's epoch. It truncates to the end of its last epoch before that one, and the
    # next request carries this older epoch: step by step both arrive at the last epoch that they share.
    return Cut(min(known_end_offset, log_end_offset), False)


def pieces(records: memoryview, piece_bytes: int) -> Iterator[memoryview]:
    """Split the records into pieces of whole batches, each of at most `piece_bytes` or one larger batch."""
    start = end = 0
    while end + _PREFIX.size <= len(records):
        length = _PREFIX.unpack_from(records, end)[1]
        # The byte limit may cut the last batch: it ends the records, and the append skips it. A damaged length is left
        # to the append, too, which refuses it.
        if length < 0 or length > len(records) - end - _PREFIX.size:
            break
        if end > start and end + _PREFIX.size + length - start > piece_bytes:
            yield records[start:end]
            start = end
        end += _PREFIX.size + length
    if start < len(records):
        yield records[start:]


def offset_to_begin_at(records: memoryview, log_start_offset: int, log_end_offset: int) -> int | None:
    """The offset at which an empty log must start over before it can take these records; None if it need not.

    It must if the first batch begins before the log end offset and ends at or after it.
    """
    # Only the empty log of a follower needs this: with records, the leader's next batch starts at the log end.
    if log_start_offset < log_end_offset or len(records) < SMALLEST_ENTRY_BYTES:
        return None
    first = span_at(records, 0, 0)
    if first is None or not first.base_offset < log_end_offset <= first.last_offset:
        return None
    return first.base_offset


def offset_of(response: m.ListOffsetsResponse) -> tuple[ErrorCode, int]:
    """(error, offset) of the row in the ListOffsets response to `offset_request`."""
    # One partition was requested, so the first row is the answer; a response without rows is an error.
    for topic in response.topics:
        for row in topic.partitions:
            return error_of(row.error_code), row.offset
    return ErrorCode.UNKNOWN_SERVER_ERROR, -1


def epoch_ends(response: m.OffsetForLeaderEpochResponse) -> Iterator[tuple[TopicPartition, EpochEnd]]:
    """The rows of the OffsetForLeaderEpoch response, by partition."""
    for topic in response.topics:
        for row in topic.partitions:
            yield TopicPartition(topic.topic, row.partition), row
