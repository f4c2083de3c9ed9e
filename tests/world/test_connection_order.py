"""The latest connection of each of several senders."""

from barnabas.world.connection_order import LatestConnections


def test_a_sender_is_overtaken_by_its_own_later_connection_only():
    latest = LatestConnections(10)
    assert not latest.is_overtaken("a", 1)
    latest.note("a", 3)
    latest.note("b", 9)
    assert latest.is_overtaken("a", 2)
    assert not latest.is_overtaken("a", 3)
    assert not latest.is_overtaken("a", 4)
    assert [latest.is_latest("a", each) for each in (2, 3, 4)] == [False, True, False]


def test_a_request_that_was_under_way_takes_no_sender_back():
    latest = LatestConnections(10)
    latest.note("a", 3)
    latest.note("a", 2)
    assert latest.is_overtaken("a", 2)


def test_senders_that_were_noted_longest_ago_make_room():
    latest = LatestConnections(2)
    for sender in ("a", "b", "a", "c"):
        latest.note(sender, 5)
    assert len(latest) == 2
    assert latest.is_overtaken("a", 4)
    assert latest.is_overtaken("c", 4)
    assert not latest.is_overtaken("b", 4)
