"""Produce of batches that cost far more than they weigh: refused or checked in steps, while others are served."""

import pytest

from barnabas.wire.errors import ErrorCode
from tests.broker.harness import with_topic
from tests.broker.requests import batch_of
from tests.wire.bombs import header_bomb, value_bomb

TOPICS = [{}, {"compression_type": "lz4"}, {"cleanup_policy": "compact"}, {"message_timestamp_type": "LogAppendTime"}]


@pytest.mark.parametrize("configs", TOPICS)
@pytest.mark.parametrize("key", [b"\x01", b"\x02k"])
async def test_a_record_with_millions_of_headers_is_refused_without_a_thread(nursery, autojump_clock, configs, key):
    machine, client = await with_topic(nursery, **configs)
    visits = machine.threads
    batch = header_bomb(1 << 22, key=key)
    assert (await client.produce("t", batch)).error_code == ErrorCode.INVALID_RECORD
    assert machine.threads == visits
    assert (await client.produce("t", batch_of(b"v", key=b"k"))).base_offset == 0


async def test_a_small_batch_is_checked_without_a_thread(nursery, autojump_clock):
    machine, client = await with_topic(nursery, compression_type="gzip")
    visits = machine.threads
    assert (await client.produce("t", b"v")).error_code == 0
    assert machine.threads == visits


@pytest.mark.parametrize("values", [[bytes(1_000_000)], [bytes(100)] * 9000], ids=["one record", "small records"])
async def test_a_batch_of_a_megabyte_visits_the_threads_once(nursery, autojump_clock, values):
    machine, client = await with_topic(nursery)
    visits = machine.threads
    assert (await client.produce("t", batch_of(*values))).error_code == 0
    assert machine.threads == visits + 1


async def test_what_decompresses_to_much_is_checked_in_a_thread_and_stored(nursery, autojump_clock):
    machine, client = await with_topic(nursery, cleanup_policy="compact")
    visits = machine.threads
    batch = value_bomb(5_000_000)
    assert (await client.produce("t", batch)).error_code == 0
    assert machine.threads > visits
    assert await client.read_values("t") == [bytes(5_000_000)]


@pytest.mark.parametrize("configs", TOPICS)
async def test_a_batch_that_decompresses_to_more_than_128_mib_is_refused(nursery, autojump_clock, configs):
    _, client = await with_topic(nursery, **configs)
    assert (await client.produce("t", value_bomb(1 << 28))).error_code == ErrorCode.INVALID_RECORD
    assert await client.read_values("t") == []
