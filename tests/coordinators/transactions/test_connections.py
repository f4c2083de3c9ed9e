"""The order of connections: a request that was overtaken is not executed."""

from barnabas.coordinators.transactions.connections import (
    SENDER_CLIENT_ID,
    SENDERS_MAX,
    SenderConnections,
    is_overtaken,
    note_connection,
)
from barnabas.coordinators.transactions.state import Producer, Recorded, Status, TransactionalId

OWNER = Producer(7, 3)


def an_id():
    return TransactionalId("id", Recorded(7, 3, 1, Status.EMPTY, {}, 0))


def test_a_request_on_an_older_connection_is_overtaken():
    known = an_id()
    assert not is_overtaken(known, OWNER, 5)
    note_connection(known, OWNER, 5)
    assert not is_overtaken(known, OWNER, 5)
    assert is_overtaken(known, OWNER, 4)
    assert not is_overtaken(known, OWNER, 6)
    note_connection(known, OWNER, 4)
    assert is_overtaken(known, OWNER, 4)


def test_another_producer_overtakes_no_request():
    known = an_id()
    for other in (Producer(7, 2), Producer(8, 3)):
        note_connection(known, other, 9)
        assert not is_overtaken(known, other, 1), "its epoch or id is refused anyway"
    assert not is_overtaken(known, OWNER, 1)
    assert not is_overtaken(None, OWNER, 1)


def test_a_coordinator_is_overtaken_by_its_own_later_connection():
    senders, first, second = SenderConnections(), SENDER_CLIENT_ID.format(1), SENDER_CLIENT_ID.format(2)
    assert not senders.is_overtaken(first, 3)
    assert not senders.is_overtaken(second, 2)
    assert not senders.is_overtaken(first, 4)
    assert senders.is_overtaken(first, 3)
    assert not senders.is_overtaken(first, 4)


def test_administrators_are_not_overtaken():
    senders = SenderConnections()
    for client_id in ("adminclient-1", "", None, "broker-x-txn-marker-sender", "broker-1-txn-marker-sender-2"):
        assert not senders.is_overtaken(client_id, 9)
        assert not senders.is_overtaken(client_id, 1)


def test_a_coordinator_sends_after_its_request_before_on_the_same_connection():
    senders, name = SenderConnections(), SENDER_CLIENT_ID.format(1)
    assert [senders.sent_after(name, 3, mark) for mark in (5, 6)] == [0, 5]
    assert [senders.sent_after(name, 4, mark) for mark in (7, 9)] == [0, 7]
    assert senders.sent_after("adminclient-1", 1, 10) == 10


def test_invented_coordinators_do_not_take_up_memory():
    senders = SenderConnections()
    for number in range(3 * SENDERS_MAX):
        senders.is_overtaken(SENDER_CLIENT_ID.format(number), 1)
        senders.sent_after(SENDER_CLIENT_ID.format(number), 1, number)
    assert len(senders._latest) == len(senders._arrivals) == SENDERS_MAX
