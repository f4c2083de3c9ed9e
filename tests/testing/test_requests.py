"""The request log: what clients sent, what they got, and how little of it is kept."""

import tracemalloc

import pytest

from barnabas.broker.call import Call
from barnabas.testing.errors import FaultError, FaultMissed
from barnabas.testing.faults.entries import Entry
from barnabas.testing.faults.requests import RequestLog
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.broker.requests import batch_of, idempotent
from tests.testing.faulty import stage

__all__ = ["stage"]

PRODUCE = 0


@pytest.fixture
async def log(stage):
    stage.log.is_on = True
    return stage.log


async def test_requests_are_kept_with_their_responses(stage, log):
    await stage.client.produce("t", idempotent(0))
    (entry,) = log("Produce")
    assert (entry.api, entry.version, entry.client_id, entry.outcome) == ("Produce", 11, "test", "answered")
    assert (entry.acks, entry.producer_id, entry.errors) == (-1, 7, [])
    assert entry.request.topic_data[0].name == "t"
    assert entry.response.responses[0].partition_responses[0].base_offset == 0
    assert entry.broker_id == stage.machine.serving.broker_id


async def test_records_are_kept_as_their_size(stage, log):
    records = batch_of(b"v" * 100_000)
    await stage.client.produce("t", records)
    await stage.client.fetch("t")
    assert len(log("Produce")[0].topic_data[0].partition_data[0].records) == len(records)
    assert len(log("Fetch")[0].response.responses[0].partitions[0].records) == len(records)
    assert all(entry.size_bytes < 10_000 for entry in log)


async def test_a_secret_is_kept_as_its_size(stage, log):
    await stage.client.ask(m.SaslHandshakeRequest(mechanism="PLAIN"))
    await stage.client.ask(m.SaslAuthenticateRequest(auth_bytes=b"\0alice\0village-1924"))
    assert len(log("SaslAuthenticate")[0].auth_bytes) == 19
    assert b"village" not in bytes(repr(log("SaslAuthenticate")[0].request), "utf-8")


async def test_the_software_of_a_connection_is_known_from_its_first_request(stage, log):
    other = await stage.machine.connect()
    await other.ask(m.ApiVersionsRequest(client_software_name="castle", client_software_version="1.9"))
    await other.metadata("t")
    await stage.client.metadata("t")
    theirs, ours = log("Metadata")
    assert (theirs.software_name, theirs.software_version) == ("castle", "1.9")
    assert (ours.software_name, ours.connection != theirs.connection) == ("", True)


async def test_a_request_without_a_response_is_known(stage, log):
    await stage.client.produce("t", b"v")
    await stage.client.send(m.ProduceRequest(acks=0, timeout_ms=1, topic_data=[]))
    await stage.client.metadata("t")
    assert [entry.outcome for entry in log("Produce")] == ["answered", "no response"]


async def test_errors_and_faults_are_shown(stage, log):
    stage.faults.fail("Produce", "REQUEST_TIMED_OUT", topic="t", after=True, times=1)
    await stage.client.produce("t", b"v")
    (line,) = log("Produce").show().splitlines()
    assert "Produce v11 topic 't' -> REQUEST_TIMED_OUT [fail(Produce, REQUEST_TIMED_OUT, after=True" in line


def test_an_id_that_a_terminal_would_obey_is_shown_in_letters():
    call = Call(PRODUCE, 9, "\x1b]0;taken\n", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    request = m.ProduceRequest(acks=-1, timeout_ms=1, topic_data=[])
    frame = m.encode(request, 9)
    entry = Entry(RequestLog().noting(1, lambda: 0)(call, request, frame, 0, len(frame)))
    assert str(entry).isprintable()
    assert r"\x1b]0;taken\n#" in str(entry)


async def test_views_narrow_the_log_and_grow_with_it(stage, log):
    produced = log("Produce")
    assert len(produced) == 0
    assert not produced.all(lambda entry: True)
    for acks in (1, -1):
        await stage.client.produce("t", b"v", acks=acks)
    assert [entry.acks for entry in produced] == [1, -1]
    assert produced.any(lambda entry: entry.acks == 1)
    assert not produced.all(lambda entry: entry.acks == 1)
    assert log.any(lambda entry: entry.api == "Produce")
    assert len(log(client_id="test")) == len(log)
    assert len(log(client_id="other")) == 0
    assert produced.wait(count=2, seconds=0) == list(produced)


async def test_a_wait_that_fails_shows_what_was_seen(stage, log):
    await stage.client.metadata("t")
    with pytest.raises(FaultMissed, match=r"0 of 1 Produces within 0 s; seen:\n.*Metadata v12 topic 't' -> ok"):
        log("Produce").wait(seconds=0)


async def test_what_is_asked_of_an_unknown_api_is_refused(stage, log):
    with pytest.raises(FaultError, match="is 'Heartbeat' meant"):
        log("HeartBeat")
    await stage.client.metadata("t")
    with pytest.raises(AttributeError, match="neither an entry nor its Metadata has 'acks'"):
        print(log("Metadata")[0].acks)


async def test_nothing_is_kept_before_the_log_is_used_and_after_it_was_stopped(stage):
    await stage.client.metadata("t")
    assert len(stage.log) == 0
    stage.log.is_on = True
    await stage.client.metadata("t")
    assert len(stage.log) == 1
    stage.log.stop()
    await stage.client.metadata("t")
    assert len(stage.log) == 0
    assert not stage.interceptor.is_active


@pytest.mark.parametrize("limits", [{"entries_max": 5}, {"bytes_max": 60_000}])
async def test_the_oldest_entries_are_forgotten(stage, limits):
    log = stage.interceptor._make(stage.faults, RequestLog(**limits)).log
    log.is_on = True
    for _ in range(30):
        await stage.client.metadata("t", "u")
    numbers = [entry.number for entry in log]
    assert numbers[-1] == 30
    assert numbers == list(range(numbers[0], 31))
    assert 1 < len(log) <= 12


def test_what_is_kept_takes_no_more_memory_than_it_may():
    """Small and large messages, and those that are answered when they are forgotten already."""
    bytes_max = 4 << 20
    log = RequestLog(bytes_max=bytes_max)
    log.is_on = True
    note = log.noting(1, lambda: 0)
    call = Call(PRODUCE, 9, "c", "User:ANONYMOUS", "127.0.0.1", "PLAINTEXT")
    tracemalloc.start()
    try:
        for number in range(20_000):
            records = memoryview(bytearray(200 if number % 2 else 20_000))
            data = m.ProduceRequest.PartitionProduceData(index=0, records=records)
            topic = m.ProduceRequest.TopicProduceData(name="t", partition_data=[data])
            request = m.ProduceRequest(acks=-1, timeout_ms=1, topic_data=[topic])
            frame = memoryview(bytearray(m.encode(request, 9)))
            entry = note(call, request, frame, 0, len(frame))
            if number % 3:
                entry.answered(9, [bytes(2000)])
            del records, data, topic, request, frame, entry
        taken_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert bytes_max / 2 < taken_bytes <= bytes_max * 1.05


async def test_a_request_is_shown_as_the_client_has_sent_it(stage, log):
    for _ in range(2):
        await stage.client.produce("t", batch_of(b"v"))
    assert (await stage.client.fetch("t", 1)).records
    headers = [entry.topic_data[0].partition_data[0].records.batch for entry in log("Produce")]
    assert [header.base_offset for header in headers] == [0, 0], "the leader writes into the records"


async def test_of_a_message_with_many_rows_only_the_first_are_kept(stage, log):
    asked = [m.MetadataRequest.MetadataRequestTopic(name=f"topic-{number}") for number in range(3000)]
    await stage.client.ask(m.MetadataRequest(topics=asked, allow_auto_topic_creation=False))
    (entry,) = log("Metadata")
    assert len(entry.topics) == 999
    assert len(entry.response.topics) == 998
    assert {topic.error_code for topic in entry.response.topics} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
