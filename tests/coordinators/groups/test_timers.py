"""Timers of many owners in one heap."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.coordinators.groups.timers import NEVER, STOPPED_MIN, Timers


def due(timers, now):
    found = []
    while (one := timers.pop_due(now)) is not None:
        found.append(one)
    return found


def test_timers_fire_in_the_order_of_their_times():
    timers = Timers()
    for name, at in (("late", 3), ("early", 1), ("same", 3)):
        timers.start("g", name, at)
    assert due(timers, 2) == [("g", "early")]
    assert due(timers, 3) == [("g", "late"), ("g", "same")]
    assert timers.next_at == NEVER


def test_a_timer_that_was_moved_to_later_does_not_fire_before():
    timers = Timers()
    timers.start("g", "session", 1)
    timers.start("g", "session", 5)
    assert due(timers, 4) == []
    assert timers.next_at == 5
    assert due(timers, 5) == [("g", "session")]


def test_a_timer_that_was_moved_to_earlier_fires_once():
    timers = Timers()
    timers.start("g", "session", 5)
    timers.start("g", "session", 1)
    assert timers.next_at == 1
    assert due(timers, 9) == [("g", "session")]


def test_a_stopped_timer_does_not_fire():
    timers = Timers()
    timers.start("g", "a", 1)
    timers.start("g", "b", 1)
    timers.start("h", "a", 1)
    timers.stop("g", "a")
    timers.stop("g", "never started")
    timers.stop_all("h")
    assert due(timers, 1) == [("g", "b")]


def test_a_timer_that_is_moved_again_and_again_costs_one_entry():
    timers = Timers()
    for at in range(1000):
        timers.start("g", "session", at)
    assert len(timers._heap) == 1


steps = st.lists(
    st.tuples(st.sampled_from(["start", "stop", "wait"]), st.sampled_from("ab"), st.integers(0, 9)), max_size=60
)


@given(steps)
def test_timers_agree_with_a_table_of_times(taken):
    timers, table, now = Timers(), {}, 0
    for step, name, number in taken:
        if step == "start":
            timers.start("g", name, now + number)
            table[name] = now + number
        elif step == "stop":
            timers.stop("g", name)
            table.pop(name, None)
        else:
            now += number
            expected = sorted(name for name, at in table.items() if at <= now)
            assert sorted(name for _, name in due(timers, now)) == expected
            table = {name: at for name, at in table.items() if at > now}
        assert timers.next_at <= min(table.values(), default=NEVER)


def test_stopped_timers_do_not_stay_in_memory_until_their_time():
    """Each request without a member id starts one of up to 30 minutes, whose name has the client id."""
    timers = Timers()
    timers.start("g", "kept", 5)
    for number in range(5 * STOPPED_MIN):
        timers.start("g", f"member-{number}", 1800)
        timers.stop("g", f"member-{number}")
        timers.start(f"group-{number}", "session", 1800)
        timers.stop_all(f"group-{number}")
    assert len(timers._heap) <= STOPPED_MIN
    assert [deadline.timer for _, _, deadline in timers._heap if deadline.timer] == [("g", "kept")]
    assert due(timers, 2000) == [("g", "kept")]
