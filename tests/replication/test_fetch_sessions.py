"""Fetch sessions: what is due, what is forgotten, and when there is no room (KIP-227)."""

import random

import trio

from barnabas.replication.fetch_sessions import (
    EVICTION_SECONDS,
    PARTITIONS_PER_SLOT,
    FetchSession,
    FetchSessions,
    Wanted,
)
from barnabas.wire.errors import ErrorCode
from barnabas.world.waiting import Waiter, wake


class Place:
    """A partition, as far as a session cares."""

    def __init__(self) -> None:
        self.waiters: dict[Waiter, None] = {}


def session_of(
    sessions: FetchSessions, now: float = 0.0, slots: int = 10, partitions: int = 1, *, of_follower: bool = False
) -> FetchSession:
    session = sessions.create(now, slots, partitions, of_follower=of_follower)
    assert session is not None
    for number in range(partitions):
        session.want(Wanted(f"t{number}", 0))
    return session


def empty_session(sessions: FetchSessions) -> FetchSession:
    return session_of(sessions, partitions=0)


def watched(session: FetchSession, topic: str) -> tuple[Wanted, Place]:
    wanted, place = Wanted(topic, 0), Place()
    session.want(wanted)
    session.watch(wanted, place)  # type: ignore[arg-type]
    return wanted, place


def test_a_partition_is_due_when_it_is_named_and_then_only_when_it_changes() -> None:
    session = empty_session(FetchSessions(random.Random(1)))
    (one, _), (other, place) = watched(session, "one"), watched(session, "other")
    assert session.take_due() == [one, other]
    assert session.take_due() == []
    wake(place)
    assert session.take_due() == [other]


async def test_a_session_that_is_not_used_for_two_minutes_ends(nursery, autojump_clock) -> None:
    sessions = FetchSessions(random.Random(1))
    unused, used = session_of(sessions, trio.current_time()), session_of(sessions, trio.current_time())
    _, place = watched(unused, "left behind")
    nursery.start_soon(sessions.run)
    for epoch in range(1, 10):
        await trio.sleep(EVICTION_SECONDS / 5)
        assert sessions.continue_session(used.session_id, epoch, trio.current_time()) is used
    assert sessions.continue_session(unused.session_id, 1, 0.0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert place.waiters == {}


def test_a_partition_that_its_own_plan_changed_is_watched_on_and_not_due() -> None:
    session = empty_session(FetchSessions(random.Random(1)))
    wanted, place = watched(session, "one")
    session.take_due()
    wake(place)
    session.watch(wanted, place)  # type: ignore[arg-type]
    assert session.take_due() == []
    wake(place)
    assert session.take_due() == [wanted]


def test_left_overs_come_before_what_changed_since() -> None:
    session = empty_session(FetchSessions(random.Random(1)))
    (one, _), (other, place) = watched(session, "one"), watched(session, "other")
    session.take_due()
    wake(place)
    session.due[one] = None
    assert session.take_due() == [one, other]


def test_a_forgotten_partition_is_no_longer_watched() -> None:
    session = empty_session(FetchSessions(random.Random(1)))
    _, place = watched(session, "gone")
    session.forget("gone", 0)
    wake(place)
    assert place.waiters == {}
    assert session.take_due() == []


def test_epochs_must_follow_each_other() -> None:
    sessions = FetchSessions(random.Random(1))
    session = session_of(sessions)
    assert sessions.continue_session(session.session_id, 1, 0.0) is session
    assert sessions.continue_session(session.session_id, 1, 0.0) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert sessions.continue_session(session.session_id, 2, 0.0) is session
    assert sessions.continue_session(session.session_id + 1, 3, 0.0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_the_epoch_after_the_largest_is_one() -> None:
    sessions = FetchSessions(random.Random(1))
    session = session_of(sessions)
    session.epoch = 2**31 - 1
    assert sessions.continue_session(session.session_id, 2**31 - 1, 0.0) is session
    assert session.epoch == 1


async def test_a_full_cache_gives_no_session_until_the_oldest_has_been_idle_for_long() -> None:
    sessions = FetchSessions(random.Random(1))
    first = session_of(sessions, now=0.0, slots=1)
    _, place = watched(first, "one")
    assert sessions.create(EVICTION_SECONDS, slots=1, partition_count=1) is None
    assert sessions.create(EVICTION_SECONDS + 1, slots=1, partition_count=1) is not None
    await sessions.free_closed()
    assert place.waiters == {}, "an evicted session watches nothing"
    assert sessions.continue_session(first.session_id, 1, 0.0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_closed_session_is_freed_in_steps(autojump_clock) -> None:
    sessions = FetchSessions(random.Random(1))
    session = session_of(sessions, partitions=0)
    places = [watched(session, f"t{number}")[1] for number in range(2_000)]
    sessions.close(session.session_id)
    lefts: list[int] = []

    async def look() -> None:
        for _ in range(30):
            lefts.append(len(session.due) + sum(len(place.waiters) for place in places))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        nursery.start_soon(sessions.free_closed)
    assert len(set(lefts)) > 5
    assert not any(place.waiters for place in places)


def test_use_keeps_a_session_from_being_the_oldest() -> None:
    sessions = FetchSessions(random.Random(1))
    first, second = session_of(sessions), session_of(sessions)
    sessions.continue_session(first.session_id, 1, 100.0)
    assert sessions.create(EVICTION_SECONDS + 50, slots=2, partition_count=1) is not None
    assert sessions.continue_session(second.session_id, 1, 200.0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.continue_session(first.session_id, 2, 200.0) is first


def test_a_session_keeps_to_names_and_refusing_ids_costs_no_epoch() -> None:
    sessions = FetchSessions(random.Random(1))
    session = session_of(sessions)
    refused = sessions.continue_session(session.session_id, 1, 0.0, uses_topic_ids=True)
    assert refused == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.continue_session(session.session_id, 1, 0.0) is session


def kept(sessions: FetchSessions, session: FetchSession, now: float) -> None:
    """The session is used, so that it is not idle at that time."""
    assert sessions.continue_session(session.session_id, session.epoch, now) is session


def test_without_slots_there_is_no_session() -> None:
    assert FetchSessions(random.Random(1)).create(0.0, 0, 5, of_follower=True) is None


def test_a_larger_session_displaces_a_smaller_one_that_had_its_two_minutes() -> None:
    sessions = FetchSessions(random.Random(1))
    small, large = session_of(sessions, partitions=2), session_of(sessions, partitions=5)
    kept(sessions, small, EVICTION_SECONDS)
    kept(sessions, large, EVICTION_SECONDS)
    assert sessions.create(EVICTION_SECONDS, 2, 9) is None, "both are too young"
    kept(sessions, small, EVICTION_SECONDS + 1)
    kept(sessions, large, EVICTION_SECONDS + 1)
    assert sessions.create(EVICTION_SECONDS + 1, 2, 2) is None, "it is not larger"
    assert sessions.create(EVICTION_SECONDS + 1, 2, 3) is not None
    assert sessions.continue_session(small.session_id, 3, 0.0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert sessions.continue_session(large.session_id, 3, 0.0) is large


def test_a_follower_displaces_a_consumer_and_no_consumer_displaces_a_follower() -> None:
    sessions = FetchSessions(random.Random(1))
    consumers = session_of(sessions, slots=1, partitions=100)
    followers = session_of(sessions, slots=1, partitions=1, of_follower=True)
    assert sessions.continue_session(consumers.session_id, 1, 0.0) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    kept(sessions, followers, EVICTION_SECONDS + 1)
    assert sessions.create(EVICTION_SECONDS + 1, 1, 100) is None
    assert sessions.create(EVICTION_SECONDS + 1, 1, 1, of_follower=True) is None, "it is not larger"
    assert sessions.create(EVICTION_SECONDS + 1, 1, 2, of_follower=True) is not None


def test_a_young_follower_is_safe_from_other_followers() -> None:
    sessions = FetchSessions(random.Random(1))
    session_of(sessions, slots=1, partitions=1, of_follower=True)
    assert sessions.create(1.0, 1, 100, of_follower=True) is None


def test_sessions_share_so_many_partitions_known_or_not() -> None:
    sessions = FetchSessions(random.Random(1))
    first = session_of(sessions, slots=2, partitions=PARTITIONS_PER_SLOT + 50)
    assert sessions.create(0.0, 2, PARTITIONS_PER_SLOT) is None, "a young session is safe"
    assert sessions.create(EVICTION_SECONDS + 1, 2, 2 * PARTITIONS_PER_SLOT + 1) is None, "too large for itself"
    assert len(sessions) == 1
    assert sessions.create(EVICTION_SECONDS + 1, 2, PARTITIONS_PER_SLOT) is not None
    assert sessions.continue_session(first.session_id, 1, 0.0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
