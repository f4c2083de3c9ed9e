"""The epoch cache: the leader epoch of each offset of a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.storage.epochs import LeaderEpochs
from barnabas.wire.errors import InvariantBroken


def three_epochs() -> LeaderEpochs:
    return LeaderEpochs([(0, 0), (2, 40), (3, 95)])


# -- assigning


def test_an_append_of_a_new_epoch_begins_it_and_later_ones_say_nothing_new():
    epochs = LeaderEpochs()
    assert epochs.assign(4, 10)
    assert not epochs.assign(4, 10)
    assert not epochs.assign(4, 11)
    assert epochs.entries == [(4, 10)]


def test_the_latest_epoch_moves_back_when_an_earlier_batch_has_it():
    epochs = three_epochs()
    assert epochs.assign(3, 90)
    assert epochs.entries == [(0, 0), (2, 40), (3, 90)]


def test_an_epoch_drops_those_that_are_not_older():
    epochs = three_epochs()
    assert epochs.assign(2, 120)
    assert epochs.entries == [(0, 0), (2, 120)]


def test_an_epoch_drops_those_that_do_not_begin_before_it():
    epochs = three_epochs()
    assert epochs.assign(7, 40)
    assert epochs.entries == [(0, 0), (7, 40)]


@pytest.mark.parametrize(("epoch", "start_offset"), [(-1, 0), (0, -1)])
def test_negative_epochs_and_offsets_are_our_own_mistake(epoch, start_offset):
    with pytest.raises(InvariantBroken):
        LeaderEpochs().assign(epoch, start_offset)


# -- asking


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),  # undefined
        (0, (0, 40)),
        (1, (0, 40)),  # an epoch in which nothing was written here: the one before
        (2, (2, 95)),
        (3, (3, 120)),  # the latest: the log end
        (4, (-1, -1)),  # not heard of
    ],
)
def test_an_epoch_ends_where_the_next_begins(asked, answer):
    assert three_epochs().end_offset_for(asked, 120) == answer


def test_an_epoch_older_than_all_that_is_known_ends_at_the_first_start():
    assert LeaderEpochs([(5, 30), (6, 50)]).end_offset_for(3, 120) == (3, 30)


def test_nothing_is_known_of_an_empty_log():
    assert LeaderEpochs().end_offset_for(0, 120) == (-1, -1)
    assert LeaderEpochs().latest_epoch is None
    assert LeaderEpochs().epoch_for(0) is None


def test_each_offset_has_the_epoch_that_began_last():
    epochs = LeaderEpochs([(1, 10), (2, 40)])
    assert [epochs.epoch_for(offset) for offset in (9, 10, 39, 40, 1000)] == [None, 1, 1, 2, 2]


# -- truncating


@pytest.mark.parametrize(
    ("offset", "left", "changed"),
    [
        (96, [(0, 0), (2, 40), (3, 95)], False),
        (95, [(0, 0), (2, 40)], True),  # an epoch without an offset is gone
        (41, [(0, 0), (2, 40)], True),
        (0, [], True),
    ],
)
def test_a_log_cut_at_its_end_forgets_the_epochs_that_began_there(offset, left, changed):
    epochs = three_epochs()
    assert epochs.truncate_from_end(offset) is changed
    assert epochs.entries == left


@pytest.mark.parametrize(
    ("offset", "left", "changed"),
    [
        (0, [(0, 0), (2, 40), (3, 95)], False),
        (10, [(0, 10), (2, 40), (3, 95)], True),
        (40, [(2, 40), (3, 95)], True),
        (60, [(2, 60), (3, 95)], True),
        (500, [(3, 500)], True),
    ],
)
def test_a_log_cut_at_its_start_keeps_the_epoch_it_now_begins_in(offset, left, changed):
    epochs = three_epochs()
    assert epochs.truncate_from_start(offset) is changed
    assert epochs.entries == left


def test_a_start_before_all_that_is_known_changes_nothing():
    epochs = LeaderEpochs([(5, 30)])
    assert not epochs.truncate_from_start(20)
    assert epochs.entries == [(5, 30)]


def test_clearing_forgets_everything():
    epochs = three_epochs()
    assert epochs.clear()
    assert not epochs.clear()
    assert epochs.entries == []


# -- against a log that remembers the epoch of each record

runs = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 5)), min_size=1, max_size=8)


@given(runs, st.integers(0, 45), st.integers(0, 45))
def test_the_cache_agrees_with_a_log_that_remembers_each_record(history, start, end):
    epochs, records, epoch = LeaderEpochs(), [], 0
    for epoch_step, record_count in history:
        epoch += epoch_step
        for _ in range(record_count):
            epochs.assign(epoch, len(records))
            records.append(epoch)
    start, end = sorted((min(start, len(records) - 1), min(end, len(records))))
    epochs.truncate_from_end(end)
    epochs.truncate_from_start(start)
    for offset in range(start, end):
        assert epochs.epoch_for(offset) == records[offset]
    for known in {records[offset] for offset in range(start, end)}:
        last = max(offset for offset in range(start, end) if records[offset] == known)
        assert epochs.end_offset_for(known, end) == (known, last + 1)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20)), max_size=12))
def test_both_columns_rise_whatever_is_assigned(assignments):
    epochs = LeaderEpochs(assignments)
    for column in zip(*epochs.entries, strict=True):
        assert list(column) == sorted(set(column))
