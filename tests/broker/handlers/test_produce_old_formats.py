"""Produce 0 to 2, whose messages of formats 0 and 1 become a batch of format 2: no acknowledgement, and threads."""

import pytest

from barnabas.wire.downconvert import encode_message
from barnabas.wire.record_reader import Record
from tests.broker.harness import with_topic
from tests.broker.requests import produce_request

VERSIONS = range(3)


def message(value=b"v", magic=1, at=5) -> bytearray:
    return bytearray(encode_message(Record(0, at, b"k", value, []), magic))


@pytest.mark.parametrize("version", VERSIONS)
async def test_without_acknowledgement_a_refused_message_closes_the_connection(nursery, autojump_clock, version):
    machine, client = await with_topic(nursery)
    await client.send(produce_request("t", message(b"kept"), acks=0), version)
    await client.send(produce_request("t", message()[:-1] + b"\0", acks=0), version)
    assert await client.is_closed()
    assert await (await machine.connect()).read_values("t") == [b"kept"]


async def test_a_small_message_set_needs_no_thread_and_a_large_one_does(nursery, autojump_clock):
    machine, client = await with_topic(nursery)
    await client.produce("t", message(), version=2)
    machine.threads = 0
    await client.produce("t", message() * 10, version=2)
    assert machine.threads == 0
    row = await client.produce("t", message() * 1000, version=2)
    assert (row.error_code, row.base_offset) == (0, 11)
    assert machine.threads == 1
