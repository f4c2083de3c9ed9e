"""What the simulator asks of committed offsets: I9."""

import pytest

from barnabas.testing.simulation.group_rules import GroupRules
from barnabas.testing.simulation.history import COMMITTED, RESUMED, UNANSWERED, Event


class Rules:
    """The rules, and what they say is broken."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.rules = GroupRules(lambda rule, text: self.broken.append(rule))

    def event(self, kind: str, offset: int, *, at: int, partition: int = 0) -> Event:
        return Event(at, kind, "steady", partition, offset, "member", -1, -1, -1, 0, -1, group="g", asked_ms=at)


@pytest.fixture
def books():
    return Rules()


def test_a_group_must_not_go_back_behind_an_acknowledged_commit(books):
    books.rules.committed(books.event(COMMITTED, 51, at=1))
    books.rules.committed(books.event(COMMITTED, 76, at=2))
    books.rules.resumed(books.event(RESUMED, 76, at=3))
    assert books.broken == []
    books.rules.resumed(books.event(RESUMED, 51, at=4))
    assert books.broken == ["I9"]


def test_a_commit_without_an_answer_may_arrive_after_a_later_one(books):
    books.rules.unanswered(books.event(UNANSWERED, 58, at=1))
    books.rules.committed(books.event(COMMITTED, 76, at=2))
    books.rules.resumed(books.event(RESUMED, 58, at=3))
    assert books.broken == []


def test_no_other_offset_is_excused_by_a_commit_without_an_answer(books):
    books.rules.unanswered(books.event(UNANSWERED, 58, at=1, partition=0))
    for partition in (0, 1):
        books.rules.committed(books.event(COMMITTED, 76, at=2, partition=partition))
    books.rules.resumed(books.event(RESUMED, 57, at=3, partition=0))
    books.rules.resumed(books.event(RESUMED, 58, at=3, partition=1))
    assert books.broken == ["I9", "I9"]


def test_what_is_lost_as_the_rules_permit_does_not_count(books):
    books.rules.committed(books.event(COMMITTED, 76, at=1))
    books.rules.forgive(0, partition_count=1)
    books.rules.resumed(books.event(RESUMED, -1, at=2))
    assert books.broken == []
