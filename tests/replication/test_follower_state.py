"""What a follower asks, and what the answers mean: sessions, stale answers, where logs part, the division of work."""

import struct

import pytest

from barnabas.replication.follower_state import (
    Append,
    Cut,
    Diverged,
    Fail,
    FetchLimits,
    FetchSession,
    OutOfRange,
    Position,
    Stale,
    Wait,
    decide_cut,
    fetch_request,
    fetcher_index,
    judge,
    judge_epoch_end,
    offset_of,
    pieces,
)
from barnabas.storage.epochs import LeaderEpochs
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

T_ID, U_ID = b"t" * 16, b"u" * 16
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": T_ID, "u": U_ID}
LIMITS = FetchLimits(500, 1, 10 << 20, 1 << 20)


def at(offset: int, *, topic="t", leader_epoch=3, epoch=3, start=0) -> Position:
    return Position(IDS.get(topic, ZERO_TOPIC_ID), leader_epoch, offset, epoch, start)


def answer(*keys: TopicPartition, session_id=7, error_code=0, **row) -> m.FetchResponse:
    """An answer about these partitions."""
    return m.FetchResponse(
        error_code=error_code,
        session_id=session_id,
        responses=[
            m.FetchResponse.FetchableTopicResponse(
                topic=key.topic,
                topic_id=IDS[key.topic],
                partitions=[m.FetchResponse.PartitionData(partition_index=key.partition, **row)],
            )
            for key in keys
        ],
    )


def session_of(*keys: TopicPartition) -> FetchSession:
    session = FetchSession()
    for key in keys:
        session.want(key, at(0, topic=key.topic))
    return session


def established(*keys: TopicPartition) -> FetchSession:
    """A session whose first answer has come."""
    session = session_of(*keys)
    assert isinstance(session.take(session.ask(by_id=True), answer(*keys)), dict)
    return session


# -- the session


def test_the_first_fetch_names_everything_and_later_ones_what_changed():
    session = session_of(T0, U0)
    asked = session.ask(by_id=True)
    assert (asked.session_id, asked.session_epoch, list(asked.named)) == (0, 0, [T0, U0])
    assert list(session.take(asked, answer(T0, U0))) == [T0, U0]
    session.want(U0, at(5, topic="u"))
    asked = session.ask(by_id=True)
    assert (asked.session_id, asked.session_epoch, asked.named) == (7, 1, {U0: at(5, topic="u")})
    assert session.take(asked, answer()) == {}
    assert session.ask(by_id=True).named == {}
    assert session.ask(by_id=True).session_epoch == 2


def test_what_is_not_wanted_any_more_is_forgotten_once():
    session = established(T0, T1)
    session.forget(T1)
    asked = session.ask(by_id=True)
    assert (list(asked.forgotten), asked.named) == ([(T1, T_ID)], {})
    session.take(asked, answer())
    assert session.ask(by_id=True).forgotten == []


def test_a_partition_that_comes_back_before_the_next_fetch_costs_nothing():
    session = established(T0)
    session.forget(T0)
    session.want(T0, at(0))
    asked = session.ask(by_id=True)
    assert (asked.named, asked.forgotten) == ({}, [])


def test_a_topic_that_was_made_again_is_forgotten_by_its_old_id():
    session = established(T0)
    session.want(T0, at(0)._replace(topic_id=U_ID))
    asked = session.ask(by_id=True)
    assert (asked.forgotten, list(asked.named)) == ([(T0, T_ID)], [T0])
    assert isinstance(session.take(asked, answer(T0)), str)  # by the old id


def test_a_session_keeps_nothing_of_the_topics_that_came_and_went():
    session = established(T0)
    sizes = set()
    for number in range(100):
        key = TopicPartition(f"brief-{number}", 0)
        session.want(key, at(0)._replace(topic_id=number.to_bytes(16, "big")))
        session.take(session.ask(by_id=True), answer())
        session.forget(key)
        session.take(session.ask(by_id=True), answer())
        sizes.add(sum(len(each) for each in vars(session).values() if isinstance(each, dict)))
    assert len(sizes) == 1


@pytest.mark.parametrize(
    ("code", "session_id"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7)],
)
def test_an_error_of_the_session_leads_to_a_full_fetch(code, session_id):
    session = established(T0, T1)
    session.forget(T1)
    assert isinstance(session.take(session.ask(by_id=True), answer(error_code=code)), str)
    asked = session.ask(by_id=True)
    assert (asked.session_id, asked.session_epoch) == (session_id, 0)
    assert (list(asked.named), asked.forgotten) == ([T0], [])


def test_after_a_lost_answer_the_next_fetch_is_full_and_closes_the_session():
    session = established(T0)
    session.ask(by_id=True)
    session.lost()
    asked = session.ask(by_id=True)
    assert (asked.session_id, asked.session_epoch, list(asked.named)) == (7, 0, [T0])


@pytest.mark.parametrize("rows", [[], [T0], [T0, T1, U0]])
def test_a_full_answer_about_other_partitions_is_refused(rows):
    session = session_of(T0, T1)
    assert isinstance(session.take(session.ask(by_id=True), answer(*rows)), str)
    assert session.ask(by_id=True).is_full


def test_an_incremental_answer_about_a_foreign_partition_is_refused():
    session = established(T0)
    assert isinstance(session.take(session.ask(by_id=True), answer(U0)), str)
    assert session.ask(by_id=True).is_full


def test_an_answer_of_another_session_is_refused():
    session = established(T0)
    assert isinstance(session.take(session.ask(by_id=True), answer(session_id=8)), str)


def test_without_a_session_every_fetch_is_full_and_what_was_served_comes_last():
    session = session_of(T0, T1)
    asked = session.ask(by_id=True)
    assert isinstance(session.take(asked, answer(T0, T1, session_id=0)), dict)
    session.served(T0)
    asked = session.ask(by_id=True)
    assert (asked.session_id, asked.session_epoch, list(asked.named)) == (0, 0, [T1, T0])


def test_the_epoch_of_a_session_begins_again_at_1():
    session = established(T0)
    session._epoch = 2**31 - 1
    session.take(session.ask(by_id=True), answer())
    assert session.ask(by_id=True).session_epoch == 1


def test_a_topic_without_an_id_makes_the_whole_fetch_one_by_names():
    session = established(T0)
    assert session.all_have_ids
    session.want(TopicPartition("old", 0), at(0, topic="old"))
    assert not session.all_have_ids
    asked = session.ask(by_id=False)
    assert (asked.session_epoch, len(asked.named)) == (0, 2)
    session.forget(TopicPartition("old", 0))
    assert session.all_have_ids


def test_what_is_asked_stays_what_it_was_while_the_answer_is_on_its_way():
    session = established(T0)
    session.want(T0, at(5))
    asked = session.ask(by_id=True)
    session.want(T0, at(5, leader_epoch=4))
    assert asked.positions[T0] == at(5)


# -- requests


@pytest.mark.parametrize("version", range(7, 18))
def test_every_version_of_a_fetch_says_who_follows_from_where(version):
    session = session_of(T0, T1, U0)
    session.forget(T1)
    for key in (T0, U0):
        session.want(key, at(5, topic=key.topic, epoch=3 if version >= 12 else -1))
    request = fetch_request(session.ask(by_id=version >= 13), LIMITS, version, 2, 99)
    decoded = m.decode(m.FetchRequest, version, m.encode(request, version), 0)
    replica = decoded.replica_state.replica_id if version >= 15 else decoded.replica_id
    assert replica == 2
    assert decoded.replica_state.replica_epoch == (99 if version >= 15 else -1)
    named = [(topic.topic or topic.topic_id, [p.fetch_offset for p in topic.partitions]) for topic in decoded.topics]
    assert named == ([(T_ID, [5]), (U_ID, [5])] if version >= 13 else [("t", [5]), ("u", [5])])


# -- what an answer means


ROW = m.FetchResponse.PartitionData
DIVERGING = m.FetchResponse.EpochEndOffset(epoch=2, end_offset=4)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (ROW(records=b"r", high_watermark=4, log_start_offset=1), Append(memoryview(b"r"), 4, 1)),
        (ROW(records=None, high_watermark=4, log_start_offset=1), Append(memoryview(b""), 4, 1)),
        (ROW(diverging_epoch=DIVERGING, records=b""), Diverged(2, 4)),
        (ROW(error_code=ErrorCode.OFFSET_OUT_OF_RANGE), OutOfRange()),
        (ROW(error_code=ErrorCode.FENCED_LEADER_EPOCH), Fail(ErrorCode.FENCED_LEADER_EPOCH)),
        (ROW(error_code=ErrorCode.UNKNOWN_LEADER_EPOCH), Wait(ErrorCode.UNKNOWN_LEADER_EPOCH)),
        (ROW(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER), Wait(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (ROW(error_code=ErrorCode.UNKNOWN_TOPIC_ID), Wait(ErrorCode.UNKNOWN_TOPIC_ID)),
        (ROW(error_code=ErrorCode.UNKNOWN_SERVER_ERROR), Wait(ErrorCode.UNKNOWN_SERVER_ERROR)),
    ],
)
def test_a_row_means(row, verdict):
    assert judge(at(5), at(5), row) == verdict
    assert judge(at(5), None, row) == Stale()
    assert judge(at(5), at(6), row) == Stale()
    assert judge(at(5), at(5, leader_epoch=4), row) == Stale()
    assert judge(at(5), at(5)._replace(topic_id=b"another topic id"), row) == Stale()


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ({"leader_epoch": 2, "end_offset": 4}, Diverged(2, 4)),
        ({"error_code": ErrorCode.FENCED_LEADER_EPOCH}, Fail(ErrorCode.FENCED_LEADER_EPOCH)),
        ({"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, Wait(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)),
    ],
)
def test_the_end_of_an_epoch_means(row, verdict):
    asked = m.OffsetForLeaderEpochResponse.EpochEndOffset(**row)
    assert judge_epoch_end(at(5), at(5), asked) == verdict
    assert judge_epoch_end(at(5), at(5, leader_epoch=4), asked) == Stale()
    assert judge_epoch_end(at(5), at(5)._replace(topic_id=b"another topic id"), asked) == Stale()


# Our log: epoch 1 from 0, epoch 3 from 10, epoch 5 from 20, ends at 30; committed up to 8.
@pytest.mark.parametrize(
    ("epoch", "end_offset", "cut"),
    [
        (3, 15, Cut(15, True)),  # the leader's epoch 3 ended earlier than ours
        (3, 25, Cut(20, True)),  # later than ours
        (5, 28, Cut(28, True)),
        (5, 40, Cut(30, True)),
        (4, 40, Cut(20, False)),  # we have no epoch 4: back to the end of 3, and ask again
        (2, 40, Cut(10, False)),
        (0, 40, Cut(0, True)),  # older than anything we have
        (6, 25, Cut(25, True)),  # newer than anything we have
        (-1, -1, Cut(8, True)),  # the leader knows nothing
        (-1, 12, Cut(12, True)),  # a leader that does not name epochs
    ],
)
def test_logs_part(epoch, end_offset, cut):
    epochs = LeaderEpochs([(1, 0), (3, 10), (5, 20)])
    assert decide_cut(Diverged(epoch, end_offset), epochs, 30, 8) == cut


def test_step_by_step_both_logs_come_to_the_last_epoch_that_they_share():
    ours, leaders = LeaderEpochs([(1, 0), (3, 10), (5, 20)]), LeaderEpochs([(1, 0), (4, 12), (6, 18)])
    end, cuts = 30, []
    while True:
        epoch, end_offset = leaders.end_offset_for(ours.latest_epoch, 40)
        if epoch == ours.latest_epoch and end_offset >= end:
            break
        cut = decide_cut(Diverged(epoch, end_offset), ours, end, 0)
        end = cut.offset
        ours.truncate_from_end(end)
        cuts.append(cut)
    assert (end, ours.entries) == (10, [(1, 0)])
    assert cuts == [Cut(20, False), Cut(10, True)]


# -- pieces, and the division of work


def entry(size: int) -> bytes:
    return struct.pack(">qi", 0, size - 12) + bytes(size - 12)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([50], [50]),
        ([50, 50], [100]),
        ([50, 51], [50, 51]),
        ([300], [300]),
        ([30, 300, 30, 30], [30, 300, 60]),
    ],
)
def test_records_are_cut_between_entries(sizes, expected):
    records = b"".join(map(entry, sizes))
    assert [len(piece) for piece in pieces(memoryview(records), 100)] == expected


def test_a_partial_entry_stays_with_the_last_piece():
    records = entry(60) + entry(60) + entry(60)[:20]
    assert [len(piece) for piece in pieces(memoryview(records), 100)] == [60, 80]


# What kafka.server.AbstractFetcherManager.getFetcherId of Kafka 3.9.1 answers.
@pytest.mark.parametrize(
    ("topic", "partition", "count", "index"), [("t", 0, 1, 0), ("orders", 3, 4, 2), ("t", 7, 5, 3)]
)
def test_partitions_are_divided_among_fetchers(topic, partition, count, index):
    assert fetcher_index(TopicPartition(topic, partition), count) == index


@pytest.mark.parametrize(
    ("code", "error"), [(0, 0), (74, ErrorCode.FENCED_LEADER_EPOCH), (999, ErrorCode.UNKNOWN_SERVER_ERROR)]
)
def test_where_the_leaders_log_ends_is_reported_or_why_not(code, error):
    row = m.ListOffsetsResponse.ListOffsetsPartitionResponse(error_code=code, offset=9)
    topic = m.ListOffsetsResponse.ListOffsetsTopicResponse(name="t", partitions=[row])
    assert offset_of(m.ListOffsetsResponse(topics=[topic])) == (error, 9)
