"""Records as they arrive: portions follow their heads, wherever the network cuts them."""

import random

from barnabas.world.tls_records import HEAD_BYTES, PORTION_BYTES, ArrivedRecords


def record(size_bytes: int) -> bytes:
    return b"\x17\x03\x03" + size_bytes.to_bytes(2) + bytes(size_bytes)


def portions(arrived: ArrivedRecords, records_max: int = 100) -> list[tuple[bytes, int]]:
    found = []
    while arrived.has_portion:
        portion, records = arrived.take(records_max)
        found.append((bytes(portion), records))
    return found


def test_a_portion_has_so_many_records_at_most():
    arrived = ArrivedRecords()
    arrived.add(record(3) * 10)
    assert portions(arrived, 4) == [(record(3) * 4, 4), (record(3) * 4, 4), (record(3) * 2, 2)]


def test_a_large_record_comes_in_portions_and_counts_where_it_begins():
    arrived, large = ArrivedRecords(), record(60_000)
    arrived.add(large + record(1))
    first, second = large[:PORTION_BYTES], large[PORTION_BYTES:] + record(1)
    assert portions(arrived) == [(first, 1), (second, 1)]


def test_a_head_is_kept_until_all_of_it_has_arrived():
    arrived, data = ArrivedRecords(), record(2) * 2
    cut = len(record(2)) + HEAD_BYTES - 1
    arrived.add(data[:cut])
    assert portions(arrived) == [(record(2), 1)]
    arrived.add(data[cut:])
    assert portions(arrived) == [(record(2), 1)]


def test_at_the_end_a_part_of_a_head_is_left():
    arrived = ArrivedRecords()
    arrived.add(record(2) + b"\x17\x03")
    assert portions(arrived) == [(record(2), 1)]
    assert arrived.take_left() == b"\x17\x03"
    assert not arrived.has_portion


def test_whatever_arrives_together_nothing_is_lost_and_each_record_counts_once():
    rng = random.Random(5)
    for _ in range(200):
        arrived, sizes = ArrivedRecords(), [rng.choice((0, 1, 22, 500, 16_384, 40_000)) for _ in range(20)]
        data, records_max = b"".join(map(record, sizes)), rng.choice((1, 3, 100))
        taken, position = [], 0
        while position < len(data):
            step = rng.choice((1, 3, 30, 5_000, 100_000))
            arrived.add(data[position : position + step])
            position += step
            if rng.random() < 0.8:
                taken += portions(arrived, records_max)
        taken += portions(arrived, records_max)
        assert b"".join(portion for portion, _ in taken) == data
        assert sum(records for _, records in taken) == len(sizes)
        assert all(0 < len(portion) <= PORTION_BYTES and records <= records_max for portion, records in taken)


def test_a_record_that_came_alone_need_not_be_cut():
    arrived = ArrivedRecords()
    assert arrived.would_be_one(record(7))
    assert not arrived.would_be_one(record(7)[:-1])
    assert not arrived.would_be_one(record(7) + b"\x17")
    assert not arrived.would_be_one(b"\x17")
    arrived.add(record(7)[:-1])
    assert portions(arrived) == [(record(7)[:-1], 1)]
    assert not arrived.would_be_one(record(7)), "the first byte is the last one of the record before"
    arrived.add(b"\0")
    assert portions(arrived) == [(b"\0", 0)]
    assert arrived.would_be_one(record(7))
