"""What the simulator knows of a partition: the books that its rules are checked with."""

from barnabas.testing.simulation.truth import Shadow, first_difference
from tests.testing.truths import batch, truth_of


def test_what_is_committed_is_found_by_its_offset():
    truth = truth_of(batch(0, count=3), batch(3))
    assert truth.committed_end == 4
    assert truth.committed_at(3) == batch(3)
    assert truth.committed_at(1) is None


def test_a_leader_is_asked_only_for_what_older_leaders_committed():
    truth = truth_of(batch(0))
    truth.commit(batch(1), 2, is_internal=False)
    assert truth.committed_before(1) == 1
    assert truth.committed_before(2) == 1
    assert truth.committed_before(3) == 2


def test_a_sequence_must_rise():
    truth = truth_of(batch(0, producer=7, sequence=0, count=2))
    assert truth.commit(batch(2, producer=7, sequence=2), 0, is_internal=False) is None
    assert "sequence 1 behind" in truth.commit(batch(3, producer=7, sequence=1), 0, is_internal=False)


def test_a_batch_without_a_producer_is_there_once():
    truth = truth_of(batch(0, crc=5))
    assert "is there twice" in truth.commit(batch(1, crc=5), 0, is_internal=False)


def test_what_is_cut_is_lost_and_its_producer_may_write_it_again():
    truth = truth_of(batch(0, producer=7, sequence=0), batch(1, producer=7, sequence=1))
    truth.cut(1, epoch=3, reason="unclean election")
    assert truth.committed_end == 1
    assert truth.is_lost(1, 1001)
    assert not truth.is_lost(0, 1000)
    assert truth.commit(batch(1, epoch=3, producer=7, sequence=1), 3, is_internal=False) is None


def test_what_an_older_leader_still_appends_after_a_cut_is_lost_too():
    truth = truth_of(batch(0), batch(1))
    truth.cut(1, epoch=3, reason="unclean election")
    truth.known[2, 0] = batch(2)
    assert truth.is_lost(2, 1002)


def test_what_an_older_leader_commits_after_an_unclean_election_is_void():
    truth = truth_of(batch(0))
    truth.void_older(3, "unclean election")
    truth.known[1, 2] = batch(1, epoch=2)
    assert truth.void_epoch == 3
    assert truth.committed == [batch(0)]
    assert truth.is_lost(1, 1001)
    assert not truth.is_lost(0, 1000)


def test_a_shadow_knows_what_a_power_failure_took_until_it_is_fetched_again():
    shadow = Shadow(1, [batch(0), batch(1)], end_offset=2)
    shadow.forget(2, 5)
    assert shadow.forgot(2)
    assert shadow.forgot(4)
    assert not shadow.forgot(1)
    shadow.end_offset = 4
    shadow.relearn()
    assert not shadow.forgot(3)
    assert shadow.forgot(4)


def test_the_first_difference_is_where_something_else_is_or_nothing():
    held = [batch(0), batch(1), batch(2)]
    assert first_difference(held, held) is None
    assert first_difference(held[:2], held) is None
    assert first_difference(held, held[:2]) == 2
    assert first_difference(held, [batch(0), batch(1, epoch=1), batch(2)]) == 1


def test_a_replica_with_a_gap_is_not_what_was_committed_wherever_the_gap_is():
    truth = truth_of(batch(0), batch(1), batch(2))
    assert truth.difference(Shadow(1, [batch(0), batch(1), batch(2)]), 0, 3) is None
    assert truth.difference(Shadow(1, [batch(1), batch(2)]), 0, 3) == (batch(1), batch(0))
    assert truth.difference(Shadow(1, [batch(0), batch(2)]), 0, 3) == (batch(2), batch(1))
    assert truth.difference(Shadow(1, [batch(0), batch(1)]), 0, 3) == (None, batch(2))


def test_a_reader_that_goes_on_behind_a_batch_has_skipped_it():
    truth = truth_of(batch(0, count=3), batch(3), batch(4))
    assert truth.skipped(1, 3) is None  # it began inside the first one
    assert truth.skipped(3, 3) is None
    assert truth.skipped(3, 4) == batch(3)
    truth.void_older(5, "unclean election")
    assert truth.skipped(3, 4) is None
