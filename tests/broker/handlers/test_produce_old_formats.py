"""Produce 0 to 2: messages of formats 0 and 1 become a batch of format 2, and each version says of it what it can."""

import base64
import json
import pathlib

import pytest

from barnabas.wire.downconvert import encode_message
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_reader import Record
from barnabas.wire.records import build_batch, read_batch_header, read_records
from tests.broker.clock import now_ms
from tests.broker.harness import with_topic
from tests.broker.requests import produce_many, produce_request

RECORDED = json.loads((pathlib.Path(__file__).parents[2] / "wire" / "old_formats.json").read_text())
SENT = {row["name"]: bytearray(base64.b64decode(row["sent"])) for row in RECORDED if row["stored"]}
SEVERAL = [name for name in SENT if "," not in name]
KAFKAS = {row["name"]: base64.b64decode(row["stored"]) for row in RECORDED}
VERSIONS = range(3)


def message(value=b"v", magic=1, at=5) -> bytearray:
    return bytearray(encode_message(Record(0, at, b"k", value, []), magic))


async def stored(client, offset=0):
    """The first batch in the log from this offset on: its header, and its records."""
    content = bytes((await client.fetch("t", offset)).records)
    return read_batch_header(content), list(read_records(content))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SEVERAL)
async def test_what_a_consumer_reads_is_what_it_reads_from_kafka(nursery, autojump_clock, name, version):
    _, client = await with_topic(nursery)
    row = await client.produce("t", SENT[name], version=version)
    assert (row.error_code, row.base_offset, row.log_append_time_ms) == (0, 0, -1)
    theirs = read_batch_header(KAFKAS[name])
    header, records = await stored(client)
    assert header[5:] == theirs[5:]  # from the attributes on; the length depends on the compressor
    assert [record._replace(offset=record.offset + theirs.base_offset) for record in records] == list(
        read_records(KAFKAS[name])
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_message_set_is_one_batch_behind_the_last(nursery, autojump_clock, version):
    _, client = await with_topic(nursery)
    for number in range(3):
        row = await client.produce("t", message(b"a") + message(b"b"), version=version)
        assert (row.error_code, row.base_offset) == (0, 2 * number)
    assert await client.read_values("t") == [b"a", b"b"] * 3
    assert (await stored(client, 2))[0].record_count == 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_partition_has_its_own_error(nursery, autojump_clock, version):
    _, client = await with_topic(nursery, 4)
    damaged = message()[:-1] + b"\0"
    asked = {0: message(), 1: damaged, 2: message() + message(magic=0), 3: message(at=-2), 9: message()}
    answer = await client.ask(produce_many({("t", index): records for index, records in asked.items()}), version)
    codes = {row.index: row.error_code for row in answer.responses[0].partition_responses}
    assert codes == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        2: ErrorCode.INVALID_RECORD,
        3: ErrorCode.UNKNOWN_SERVER_ERROR,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert await client.read_values("t") == [b"v"]


@pytest.mark.parametrize(("version", "is_reported"), [(0, False), (1, False), (2, True)])
async def test_the_time_of_the_append_is_reported_from_version_2_on(nursery, autojump_clock, version, is_reported):
    _, client = await with_topic(nursery, message_timestamp_type="LogAppendTime")
    row = await client.produce("t", message(), version=version)
    (record,) = (await stored(client))[1]
    assert row.log_append_time_ms == (record.timestamp if is_reported else -1)
    assert record.timestamp == pytest.approx(now_ms(), abs=100)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("nothing", [bytearray(), message()[:-1]], ids=["empty", "a part"])
async def test_no_whole_message_is_a_success_without_an_offset(nursery, autojump_clock, version, nothing):
    _, client = await with_topic(nursery)
    row = await client.produce("t", nothing, version=version, acks=-1)
    assert (row.error_code, row.base_offset) == (0, -1)
    assert (await client.produce("t", message(), version=version)).base_offset == 0


@pytest.mark.parametrize("version", VERSIONS)
async def test_without_acknowledgement_a_refused_message_closes_the_connection(nursery, autojump_clock, version):
    machine, client = await with_topic(nursery)
    await client.send(produce_request("t", message(b"kept"), acks=0), version)
    await client.send(produce_request("t", message()[:-1] + b"\0", acks=0), version)
    assert await client.is_closed()
    assert await (await machine.connect()).read_values("t") == [b"kept"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_batch_of_format_2_is_stored_as_it_is(nursery, autojump_clock, version):
    _, client = await with_topic(nursery)
    sent = build_batch([(b"k", b"v")], timestamp_ms=5, producer_id=7, producer_epoch=0, base_sequence=0)
    assert (await client.produce("t", bytearray(sent.data), version=version)).error_code == 0
    assert (await stored(client))[0][4:] == sent.header[4:]


async def test_a_small_message_set_needs_no_thread_and_a_large_one_does(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", message(), version=2)
    machine.threads = 0
    await client.produce("t", message() * 10, version=2)
    assert machine.threads == 0
    row = await client.produce("t", message() * 1000, version=2)
    assert (row.error_code, row.base_offset) == (0, 11)
    assert machine.threads == 1
