"""What a diagram says of a frame: its API, its partitions, its errors, whatever the bytes are."""

import pytest

from barnabas.testing.simulation.diagram.frames import (
    UNREADABLE,
    WHOLE_TOPIC,
    FetchSessions,
    Row,
    read_request,
    read_response,
)
from barnabas.wire import messages as m
from barnabas.wire.apis import response_header_version
from barnabas.wire.asking import Question, request_frame
from barnabas.wire.errors import ErrorCode

TOPIC_ID = b"0123456789abcdef"


def request_of(message, version):
    return read_request(memoryview(request_frame(message, version, 7, "client"))[4:])


def response_of(message, key, version):
    header = m.encode(m.ResponseHeader(correlation_id=7), response_header_version(key, version))
    return read_response(memoryview(header + m.encode(message, version)), Question(key, version, 7))[0]


def produce(acks=-1):
    rows = [m.ProduceRequest.PartitionProduceData(index=3, records=bytes(100))]
    topics = [m.ProduceRequest.TopicProduceData(name="orders", partition_data=rows)]
    return m.ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


def fetch(*offsets, session=(0, -1), forgotten=()):
    rows = [m.FetchRequest.FetchPartition(partition=each, fetch_offset=offset) for each, offset in offsets]
    gone = [m.FetchRequest.ForgottenTopic(topic="orders", partitions=list(forgotten))] if forgotten else []
    return m.FetchRequest(
        session_id=session[0],
        session_epoch=session[1],
        topics=[m.FetchRequest.FetchTopic(topic="orders", partitions=rows)] if rows else [],
        forgotten_topics_data=gone,
    )


def test_a_produce_says_its_acks_its_partition_and_how_many_bytes():
    summary = request_of(produce(), 9).summary
    assert (summary.api, summary.version, summary.words) == ("Produce", 9, "acks=all")
    assert summary.rows == (Row("orders", 3, "", "100 bytes"),)


def test_a_produce_without_acks_has_no_response():
    assert request_of(produce(acks=0), 9).question is None
    assert request_of(produce(acks=1), 9).question == Question(0, 9, 7)


def test_a_response_says_the_error_of_each_partition():
    row = m.ProduceResponse.PartitionProduceResponse
    rows = [row(index=3, base_offset=57), row(index=4, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1)]
    topics = [m.ProduceResponse.TopicProduceResponse(name="orders", partition_responses=rows)]
    summary = response_of(m.ProduceResponse(responses=topics), 0, 9)
    error = "NOT_LEADER_OR_FOLLOWER"
    assert summary.rows == (Row("orders", 3, "", "at 57"), Row("orders", 4, error, ""))
    assert summary.errors == (error,)


def test_an_error_of_the_whole_response_is_said():
    summary = response_of(m.HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS), 12, 4)
    assert (summary.rows, summary.errors) == ((), ("REBALANCE_IN_PROGRESS",))


def test_leader_and_isr_says_who_leads_and_teaches_the_topics_name():
    state = m.LeaderAndIsrRequest.LeaderAndIsrPartitionState(partition_index=0, leader=2, leader_epoch=5, isr=[2, 3])
    topic = m.LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name="orders", topic_id=TOPIC_ID, partition_states=[state]
    )
    summary = request_of(m.LeaderAndIsrRequest(controller_epoch=4, topic_states=[topic]), 7).summary
    assert summary.words == "controller epoch 4"
    assert summary.rows == (Row("orders", 0, "", "leader 2, epoch 5, ISR 2,3"),)
    assert summary.names == {TOPIC_ID: "orders"}


def test_a_topic_that_is_named_by_its_id_only_keeps_the_id():
    topic = m.FetchRequest.FetchTopic(
        topic_id=TOPIC_ID, partitions=[m.FetchRequest.FetchPartition(partition=1, fetch_offset=9)]
    )
    assert request_of(m.FetchRequest(topics=[topic]), 13).summary.rows == (Row(TOPIC_ID, 1, "", "from 9"),)


def test_a_diverging_follower_is_shown_where_its_log_has_to_end():
    epoch = m.FetchResponse.EpochEndOffset(epoch=3, end_offset=120)
    row = m.FetchResponse.PartitionData(partition_index=0, high_watermark=119, diverging_epoch=epoch)
    topics = [m.FetchResponse.FetchableTopicResponse(topic="orders", partitions=[row])]
    summary = response_of(m.FetchResponse(responses=topics), 1, 12)
    assert summary.rows[0].words == "HW 119, diverges: epoch 3 ends at 120"


def test_a_request_for_whole_topics_names_them():
    request = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(name="orders")])
    assert request_of(request, 12).summary.rows == (Row("orders", WHOLE_TOPIC, "", ""),)


def test_names_that_are_no_topics_make_no_rows():
    protocol = m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    summary = request_of(m.JoinGroupRequest(group_id="clerks", protocols=[protocol]), 9).summary
    assert (summary.words, summary.rows) == ("group clerks", ())


@pytest.mark.parametrize("frame", [b"", b"\0", b"\0\0\0\x09", b"\0\0\0\x09\0\0\0\x07\0\x50a"])
def test_a_frame_that_is_no_request_is_unreadable(frame):
    request = read_request(memoryview(frame))
    assert (request.summary.api, request.question) == (UNREADABLE, None)
    assert request.summary.words, "it says what is wrong"


def test_a_request_of_an_unknown_version_is_named_and_may_be_answered():
    request = read_request(memoryview(b"\0\x12\0\x63\0\0\0\x07\0\0"))
    assert (request.summary.api, request.summary.version) == ("ApiVersions", 99)
    assert request.question == Question(18, 99, 7)
    refusal = m.encode(m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)
    assert read_response(memoryview(b"\0\0\0\x07" + refusal), request.question)[0].errors == ("UNSUPPORTED_VERSION",)


def test_a_cut_off_body_leaves_the_name_of_the_api():
    whole = request_frame(produce(), 9, 7, "client")[4:]
    request = read_request(memoryview(whole[:-20]))
    assert (request.summary.api, request.summary.rows, request.message) == ("Produce", (), None)


def test_an_incremental_fetch_is_about_every_partition_of_its_session():
    sessions = FetchSessions()
    first = request_of(fetch((0, 5), (1, 7), session=(0, 0)), 12)
    sessions.answered("broker-1", first.message, first.summary, m.FetchResponse(session_id=99))

    def asked(request, broker="broker-1"):
        read = request_of(request, 12)
        rows = sessions.asked(broker, read.message, read.summary).rows
        return [(row.partition, row.words) for row in rows]

    assert asked(fetch(session=(99, 1))) == [(0, "from 5"), (1, "from 7")]
    assert asked(fetch((1, 9), session=(99, 2))) == [(0, "from 5"), (1, "from 9")]
    assert asked(fetch(session=(99, 3), forgotten=[0])) == [(1, "from 9")]
    assert asked(fetch(session=(99, 3)), broker="broker-2") == [], "another broker has no such session"
