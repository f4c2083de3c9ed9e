"""The check of the copies finds errors: each guarantee is broken once in a made-up history. And what a seed draws."""

import struct

import pytest

from compat_tests.copier.cases import CASES, LAST_SHARE, draw_strikes
from compat_tests.copier.checker import Read, check, count_transactions

NUMBERS = 12


def history(*numbers, partitions=1):
    """These numbers as they are read, each from its partition; every transaction of four leaves a marker behind it."""
    reads, ends = [], dict.fromkeys(range(partitions), 0)
    for number in numbers:
        partition = number % partitions
        ends[partition] += 1 + (ends[partition] % 5 == 4)
        reads.append(Read(partition, ends[partition] - 1, b"%d" % number))
    return reads


def found_in(reads, partitions=1):
    return {finding.kind: finding.text for finding in check(reads, NUMBERS, partitions)}


@pytest.mark.parametrize("partitions", [1, 3])
def test_nothing_is_found_in_what_is_as_it_should_be(partitions):
    assert found_in(history(*range(NUMBERS), partitions=partitions), partitions) == {}


def test_partitions_may_be_read_in_any_order_beside_each_other():
    by_partition = [*range(0, NUMBERS, 3), *range(2, NUMBERS, 3), *range(1, NUMBERS, 3)]
    assert found_in(history(*by_partition, partitions=3), 3) == {}


def test_a_number_that_was_not_read_is_lost():
    assert found_in(history(*range(7), *range(8, NUMBERS))) == {"lost": "7"}


def test_an_aborted_transaction_at_the_end_is_lost_as_well():
    assert found_in(history(*range(NUMBERS - 4))) == {"lost": "8; 9; 10; 11"}


def test_a_number_at_two_offsets_is_doubled():
    """As by a copier that copies again what a predecessor has committed: the numbers begin once more."""
    found = found_in(history(*range(8), *range(4, NUMBERS)))
    assert found["doubled"].startswith("b'4' at 0:5, b'4' at 0:10; ")
    assert found.keys() == {"doubled", "disordered"}


def test_a_number_that_is_read_twice_at_one_offset_is_doubled():
    reads = history(*range(NUMBERS))
    assert found_in([*reads, reads[-1]]) == {"doubled": "b'11' at 0:13, b'11' at 0:13"}


def test_transactions_that_changed_places_are_disordered():
    found = found_in(history(0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7))
    assert found.keys() == {"disordered"}
    assert found["disordered"].startswith("b'4' at 0:10 behind 11; ")
    assert found_in(history(0, 3, 9, 6, 1, 2, 4, 5, 7, 8, 10, 11, partitions=3), 3).keys() == {"disordered"}


def test_a_number_in_another_partition_has_moved():
    reads = history(*range(NUMBERS), partitions=3)
    reads[5] = reads[5]._replace(partition=1, offset=99)
    assert found_in(reads, 3).keys() == {"moved"}


@pytest.mark.parametrize("value", [b"12", b"-1", b"a", b"", None])
def test_what_was_not_written_is_unknown(value):
    assert found_in([*history(*range(NUMBERS)), Read(0, 99, value)]).keys() == {"unknown"}


def test_a_broken_log_does_not_fill_the_report():
    assert found_in([]) == {"lost": "0; 1; 2; 3; 4; ... 12 in all"}


def test_transactions_are_counted_by_their_decisions():
    def state(status):
        return Read(0, 0, struct.pack(">hqhibi", 0, 7, 3, 40_000, status, -1))

    # Empty, twice Ongoing and committed, once Ongoing and aborted; an id that was forgotten
    assert count_transactions([*map(state, (0, 1, 2, 4, 1, 2, 4, 1, 3, 5)), Read(0, 9, None)]) == (2, 1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_victim_is_struck_as_often_as_every_other(case):
    strikes = draw_strikes(case, seed=1)
    assert strikes == draw_strikes(case, seed=1)
    assert strikes != draw_strikes(case, seed=2)
    times = {victim: [strike.victim for strike in strikes].count(victim) for victim in (s.victim for s in strikes)}
    if case.target == "brokers":
        assert times == {1: 2, 2: 2, 3: 2}
    else:
        assert times == dict.fromkeys(range(case.partitions), 4)
    shares = [strike.share for strike in strikes]
    assert shares == sorted(shares)
    assert 0 < shares[0] < shares[-1] < LAST_SHARE
