"""Histories of a log directory that crashes: some hundred keep every promise, and broken ones are noticed."""

import pytest

from barnabas.testing.crashes.bugs import BUGS
from barnabas.testing.crashes.history import run_history
from barnabas.testing.crashes.truth import End, Found, Truth, Violated, Written
from barnabas.testing.simulation.bugs import planted

HISTORIES, HISTORIES_A_TEST = 300, 50


@pytest.mark.thorough
@pytest.mark.parametrize("first", range(1, HISTORIES, HISTORIES_A_TEST))
def test_what_is_promised_survives_power_failures_shortages_and_failing_disks(first):
    for seed in range(first, first + HISTORIES_A_TEST):
        assert run_history(seed)["append"] > 0


def test_a_seed_is_a_history():
    assert run_history(17) == run_history(17)


def truth_of(*values: bytes | None, is_compacted: bool = False) -> Truth:
    """One key, with these values one after the other, of which all but the last are durable."""
    truth = Truth(is_compacted=is_compacted, has_retention=False)
    for offset, value in enumerate(values):
        truth.append(offset, [Written(b"k", value, 0)])
        truth.appended(offset, [Written(b"k", value, 0)], has_failed=False)
    truth.durable_offset = len(values) - 1
    return truth


def found(*values: tuple[int, bytes | None], end: int, epochs: list[tuple[int, int]] | None = None) -> Found:
    records = [(offset, Written(b"k", value, 0)) for offset, value in values]
    return Found(records, 0, end, end, [(0, 0)] if epochs is None else epochs)


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (found((0, b"a"), end=1), "ends at 1, before 2"),
        (found((1, b"b"), end=2), "are lost"),
        (found((0, b"a"), (1, b"x"), end=2), "never written"),
        (found((0, b"a"), (0, b"a"), end=2), "do not rise"),
        (found((0, b"a"), (1, b"b"), end=2, epochs=[(1, 0)]), "has epoch 0"),
    ],
)
def test_a_log_that_breaks_a_promise_is_noticed(log, why):
    with pytest.raises(Violated, match=why):
        truth_of(b"a", b"b", b"c").check(log, End.POWER)


def test_a_power_failure_may_take_what_is_not_durable_and_a_kill_nothing():
    log = found((0, b"a"), (1, b"b"), end=2)
    truth_of(b"a", b"b", b"c").check(log, End.POWER)
    with pytest.raises(Violated, match="ends at 2, before 3"):
        truth_of(b"a", b"b", b"c").check(log, End.PROCESS)


def test_a_compacted_log_keeps_the_last_value_and_no_value_that_was_deleted():
    truth_of(b"a", b"b", b"c", is_compacted=True).check(found((1, b"b"), end=2), End.POWER)
    with pytest.raises(Violated, match="is lost"):
        truth_of(b"a", b"b", b"c", is_compacted=True).check(found((0, b"a"), end=2), End.POWER)
    with pytest.raises(Violated, match="is back"):
        truth_of(b"a", None, b"c", is_compacted=True).check(found((0, b"a"), end=2), End.POWER)


# Seeds whose histories show the bug; when a change of the code makes other histories of them, look for new ones with
# python -m barnabas.testing.crashes --bug NAME.
BITES = {
    "early_marker": 1154,
    "forgotten_name": 1542,
    "eager_compaction": 596,
    "trusted_sync": 217,
    "blind_start": 1,
    "late_checkpoint": 11542,
    "unsynced_marker": 1462,
    "forgotten_open": 59,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_breaks_a_promise(bug):
    run_history(BITES[bug])
    with planted([bug], BUGS), pytest.raises(Violated):
        run_history(BITES[bug])
