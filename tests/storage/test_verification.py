"""KIP-890 at a partition leader: a transaction begins only with the guard that the coordinator has confirmed."""

import pytest

from barnabas.storage.producers import Duplicate, Origin, ProducerStates, encode_snapshot
from barnabas.storage.verification import ENTRIES_MAX, Guard, Verifications
from barnabas.wire.errors import ErrorCode
from barnabas.wire.record_batch import SEQUENCE_MAX
from barnabas.wire.records import ABORT, COMMIT, CONTROL, TRANSACTIONAL, BatchHeader, ControlRecord

PRODUCER = 7
ACCEPTED, REFUSED = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE
OUT_OF_ORDER, FENCED = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH
DAY_MS = 86_400_000


class Leader:
    """The producers of a partition, and batches of one of them."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.offset = 0

    def begin(self, sequence: int = 0, *, epoch: int = 0, now_ms: int = 0) -> Guard | None:
        return self.states.begin_verification(PRODUCER, epoch, sequence, now_ms)

    def header(self, sequence: int, epoch: int, flags: int) -> BatchHeader:
        return BatchHeader(self.offset, 49, 0, 2, 0, flags, 0, 1000, 1000, PRODUCER, epoch, sequence, 1)

    def append(
        self, sequence=0, guard=None, *, epoch=0, flags=TRANSACTIONAL, origin=Origin.CLIENT, is_verifying=True
    ) -> ErrorCode | Duplicate:
        header = self.header(sequence, epoch, flags)
        checked = self.states.check(header, origin, guard=guard, is_verifying=is_verifying)
        if checked is ErrorCode.NONE:
            self.states.update(header)
            self.offset += 1
        return checked

    def mark(self, control_type=COMMIT, *, epoch=0, coordinator_epoch=0, origin=Origin.COORDINATOR) -> ErrorCode:
        header = self.header(-1, epoch, TRANSACTIONAL | CONTROL)
        control = ControlRecord(control_type, coordinator_epoch)
        checked = self.states.check(header, origin, control=control, is_verifying=True)
        if checked is ErrorCode.NONE:
            self.states.update(header, control=control)
            self.offset += 1
        return checked


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_a_transaction_begins_with_its_guard_and_goes_on_without(leader):
    guard = leader.begin()
    assert leader.append(0, guard) is ACCEPTED
    assert leader.begin(1) is None, "a transaction of this epoch is open"
    assert leader.append(1) is ACCEPTED


def test_a_batch_of_an_epoch_below_the_open_transaction_is_fenced_unverified(leader):
    assert leader.append(0, leader.begin(epoch=1), epoch=1) is ACCEPTED
    assert leader.begin(1) is None
    assert leader.append(1) is FENCED


@pytest.mark.parametrize("shown", [None, Guard()], ids=["no guard", "a guard of something else"])
def test_without_its_guard_no_transaction_begins(leader, shown):
    leader.begin()
    assert leader.append(0, shown) is REFUSED
    assert leader.append(0, shown, is_verifying=False) is ACCEPTED


def test_two_batches_that_are_verified_at_the_same_time_share_a_guard(leader):
    assert leader.begin(0) is leader.begin(1)


def test_a_marker_after_the_answer_makes_the_guard_worthless(leader):
    """A planted bug: the guard is not dropped by a marker. The batch would open a transaction that never ends."""
    guard = leader.begin()
    assert leader.mark(ABORT) is ACCEPTED
    assert leader.append(0, guard) is REFUSED
    assert leader.begin() is not guard


def test_data_of_the_producer_makes_an_earlier_guard_worthless(leader):
    guard = leader.begin(0)
    assert leader.append(0, guard) is ACCEPTED
    leader.mark()
    assert leader.append(1, guard) is REFUSED


@pytest.mark.parametrize("flags", [TRANSACTIONAL, TRANSACTIONAL | CONTROL])
def test_what_a_follower_copies_drops_the_guard_as_well(leader, flags):
    guard = leader.begin()
    header = leader.header(0, 0, flags)
    leader.states.update(header, control=ControlRecord(COMMIT, 0) if flags & CONTROL else None)
    assert leader.states.verification_count == 0
    leader.mark()
    assert leader.append(1, guard) is REFUSED


def test_the_repeat_of_a_remembered_batch_is_a_duplicate_whatever_its_guard(leader):
    leader.append(0, leader.begin())
    assert leader.append(0) == Duplicate(0, 0, 1000)


def test_the_numbers_of_a_transaction_that_has_ended_do_not_make_a_duplicate(leader):
    leader.append(0, leader.begin())
    leader.mark()
    assert leader.append(0) is OUT_OF_ORDER
    leader.append(1, leader.begin(1))
    assert leader.append(0) is OUT_OF_ORDER


def test_a_fenced_producer_hears_so_before_its_guard_is_looked_at(leader):
    leader.append(0, leader.begin())
    leader.mark(ABORT, epoch=1)
    assert leader.append(1, epoch=0) is FENCED


def test_a_batch_that_overtook_an_earlier_one_waits_for_it(leader):
    guard = leader.begin(3)
    leader.begin(0)
    assert leader.append(3, guard) is OUT_OF_ORDER
    assert leader.append(0, guard) is ACCEPTED
    assert leader.append(1) is ACCEPTED


def test_an_early_batch_is_remembered_when_its_verification_fails(leader):
    leader.begin(3)
    assert leader.append(5, leader.begin(5)) is OUT_OF_ORDER
    assert leader.append(3, leader.begin(3)) is ACCEPTED


def test_a_higher_epoch_begins_its_own_sequence(leader):
    leader.begin(0, epoch=1)
    guard = leader.begin(4, epoch=2)
    assert leader.append(4, guard, epoch=2) is ACCEPTED


def test_a_false_higher_epoch_does_not_refuse_the_real_producer(leader):
    leader.append(0, leader.begin())
    leader.mark()
    guard = leader.begin(1)
    leader.begin(0, epoch=9)  # refused by the coordinator, so it goes no further
    assert leader.append(1, guard) is ACCEPTED


@pytest.mark.parametrize("is_verifying", [True, False])
@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_a_higher_epoch_never_joins_an_open_transaction(leader, is_verifying, origin):
    """A planted bug: a higher epoch is taken into an open transaction, whose marker is then refused for ever."""
    leader.append(0, leader.begin())
    guard = leader.begin(0, epoch=1)
    assert guard is not None, "it is verified like the first batch of a transaction"
    assert leader.append(0, guard, epoch=1, origin=origin, is_verifying=is_verifying) is REFUSED
    assert leader.mark(ABORT, epoch=1) is ACCEPTED
    assert leader.states.first_unstable_offset(leader.offset) is None
    assert leader.append(0, leader.begin(0, epoch=1), epoch=1, origin=origin) is ACCEPTED


def test_a_plain_batch_needs_no_guard_but_no_open_transaction_either(leader):
    assert leader.append(0, flags=0) is ACCEPTED
    leader.append(1, leader.begin(1))
    assert leader.append(2, flags=0) is REFUSED


def test_offsets_of_a_transaction_need_a_guard_and_no_sequence(leader):
    coordinator = {"origin": Origin.COORDINATOR}
    assert leader.append(0, **coordinator) is REFUSED
    assert leader.append(0, leader.begin(-1), **coordinator) is ACCEPTED
    assert leader.begin(-1) is None
    assert leader.append(0, **coordinator) is ACCEPTED


def test_markers_need_no_guard(leader):
    assert leader.mark() is ACCEPTED
    assert leader.mark(ABORT) is ACCEPTED


def test_a_marker_is_compared_by_its_epoch_first_and_then_by_its_coordinators(leader):
    leader.mark(epoch=3, coordinator_epoch=5)
    assert leader.mark(epoch=2, coordinator_epoch=4) is FENCED
    assert leader.mark(epoch=3, coordinator_epoch=4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert leader.mark(epoch=3, coordinator_epoch=5) is ACCEPTED


# -- how long an entry lives


def test_an_entry_is_forgotten_when_it_was_not_asked_for_in_a_day(leader):
    guard = leader.begin(now_ms=0)
    leader.states.expire(DAY_MS - 1, DAY_MS)
    assert leader.begin(now_ms=1000) is guard
    leader.states.expire(DAY_MS, DAY_MS)
    assert leader.states.verification_count == 1
    leader.states.expire(DAY_MS + 1000, DAY_MS)
    assert leader.states.verification_count == 0
    assert leader.append(0, guard) is REFUSED


def test_so_many_entries_are_held_and_the_oldest_makes_room():
    verifications = Verifications()
    first = verifications.begin(0, 0, 0, 0)
    for producer_id in range(1, ENTRIES_MAX):
        verifications.begin(producer_id, 0, 0, 0)
    assert verifications.begin(0, 0, 0, 1) is first, "asked for again, it is no longer the oldest"
    verifications.begin(ENTRIES_MAX, 0, 0, 2)
    assert len(verifications) == ENTRIES_MAX
    assert verifications.is_proved(0, first)
    assert not verifications.is_overtaking(1, 0, 5)


def test_entries_are_not_persisted(leader):
    guard = leader.begin()
    leader.states.load_snapshot(encode_snapshot(leader.states.entries()), 0, DAY_MS)
    assert leader.append(0, guard) is REFUSED


# -- in a log


def test_a_log_refuses_what_its_producers_refuse_and_writes_nothing(world):
    log = world.open()
    fields = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": 0, "attributes": TRANSACTIONAL}
    options = {"leader_epoch": 0, "origin": Origin.CLIENT, "now_ms": world.now_ms, "is_verifying": True}
    assert log.append_as_leader(world.batch(**fields), **options) is REFUSED
    assert log.log_end_offset == 0
    guard = log.producers.begin_verification(PRODUCER, 0, 0, world.now_ms)
    assert log.append_as_leader(world.batch(**fields), guard=guard, **options).base_offset == 0


def test_sequences_wrap_between_two_batches_that_are_verified():
    leader = Leader()
    # The second one is behind the wrap. Both are refused, and sent again in order.
    leader.begin(SEQUENCE_MAX)
    leader.begin(0)
    assert leader.append(SEQUENCE_MAX, leader.begin(SEQUENCE_MAX)) == ACCEPTED
