"""Rebalances that run into timeouts, closed connections and second requests of the same member."""

import select
import time

from compat_tests.differential.asking_groups import (
    beat,
    become_stable,
    commit,
    describe,
    described_as,
    join,
    leave,
    sync,
)
from compat_tests.differential.scenario import scenario

SESSION_MS = 1500
SEEN_SECONDS = 0.5  # a rebalance, or the last beat, was so much earlier than its sight at most
SHORT = {"session_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}


def _moment():
    """Let what was just sent arrive before something else is sent over another connection."""
    time.sleep(0.1)


def _waited(since):
    """Whether the time of a session, or of a rebalance, has passed since then."""
    return time.monotonic() - since >= SESSION_MS / 1000 - SEEN_SECONDS


@scenario
def members_that_are_late(side):
    """Who does not join again, and then who does not sync, is dropped after the rebalance timeout."""
    side.await_coordinator()
    group = side.name("one")
    with side.connect("one") as first, side.connect("two") as second:
        one = become_stable(first, group, **SHORT).member_id
        second.send(join(group, **SHORT), 3)
        side.wait(lambda: first.ask(beat(group, 1, one), 3).error_code)
        started = time.monotonic()
        joined = second.receive()
        yield "joined without the late one", joined
        yield "only after its time", _waited(started)
        yield "the late one beats", first.ask(beat(group, 1, one), 3)
        yield "the late one joins", first.ask(join(group, one), 3)
        started = time.monotonic()
        yield "no member synced", described_as(side, group, "Empty")
        yield "empty only after its time", _waited(started)
        yield "who did not sync beats", second.ask(beat(group, joined.generation_id, joined.member_id), 3)


@scenario
def sessions_that_end(side):
    side.await_coordinator()
    group = side.name("one")
    with side.connect("one") as client:
        pending = client.ask(join(group, **SHORT), 5).member_id
        yield "a pending member is described", describe(side, group)
        yield "it leaves", client.ask(leave(group, pending), 1)
        yield "it has left", client.ask(join(group, pending, **SHORT), 5)
        pending = client.ask(join(group, **SHORT), 5).member_id
        time.sleep(SESSION_MS / 1000 + 0.5)  # the pending member is to be forgotten
        yield "it came too late", client.ask(join(group, pending, **SHORT), 5)
        started = time.monotonic()
        joined = become_stable(client, group, **SHORT)
        yield "the session has ended", described_as(side, group, "Empty")
        yield "only after its time", _waited(started)
        yield "it beats", client.ask(beat(group, joined.generation_id, joined.member_id), 3)


@scenario
def a_joining_member_hangs_up(side):
    side.await_coordinator()
    group = side.name("one")
    with side.connect("one") as first:
        one = become_stable(first, group).member_id
        with side.connect("two") as second:
            second.send(join(group), 3)
            side.wait(lambda: first.ask(beat(group, 1, one), 3).error_code)
        _moment()
        yield "described", describe(side, group)
        yield "the other one goes on with it", first.ask(join(group, one), 3)
        yield "completing", describe(side, group)


@scenario
def one_member_asks_twice(side):
    """A second Join or Sync of the same member over another connection takes the place of the first."""
    side.await_coordinator()
    group = side.name("one")
    with side.connect("one") as first, side.connect("two") as second, side.connect("three") as third:
        one = become_stable(first, group).member_id
        second.send(join(group), 3)
        side.wait(lambda: first.ask(beat(group, 1, one), 3).error_code)
        yield "one joins", first.ask(join(group, one), 3)
        two = second.receive().member_id
        third.send(join(group), 3)
        side.wait(lambda: first.ask(beat(group, 2, one), 3).error_code)
        first.send(join(group, one), 3)
        _moment()
        with side.connect("one") as again:
            again.send(join(group, one), 3)
            _moment()
            yield "the first join", first.receive(2)
            second.send(join(group, two), 3)
            yield "the second join", again.receive()
            yield "two", second.receive()
            joined = third.receive()
            yield "three", joined
            generation, three = joined.generation_id, joined.member_id
            second.send(sync(group, generation, two), 3)
            _moment()
            with side.connect("two") as second_again:
                second_again.send(sync(group, generation, two), 3)
                _moment()
                yield "the first sync", second.receive(1)
                shares = {one: b"A", two: b"B", three: b"D"}
                yield "the leader syncs", again.ask(sync(group, generation, one, shares), 3)
                yield "the second sync", second_again.receive()
        second.ask(join(group, two, protocols=(("range", b"changed"),)), 3, seconds=0.3)
        yield "leave while joining", third.ask(leave(group, two), 1)


@scenario
def a_joining_member_leaves(side):
    side.await_coordinator()
    group = side.name("one")
    with side.connect("one") as first, side.connect("two") as second, side.connect("three") as third:
        one = become_stable(first, group).member_id
        two = second.ask(join(group), 5).member_id
        second.send(join(group, two), 5)
        side.wait(lambda: first.ask(beat(group, 1, one), 3).error_code)
        yield "leave", third.ask(leave(group, two), 1)
        yield "its join", second.receive(1)
        yield "described", describe(side, group)


@scenario
def protocols_are_chosen(side):
    """The protocol that all know and most prefer; known only when the round is complete."""
    side.await_coordinator()
    group = side.name("one")
    protocols = [(("x", b""), ("y", b""), ("z", b"")), (("z", b""), ("y", b"")), (("y", b""), ("z", b""), ("x", b""))]
    with side.connect("one") as first, side.connect("two") as second, side.connect("three") as third:
        one = first.ask(join(group, protocols=protocols[0]), 3).member_id
        clients = (second, third)
        for client, wanted in zip(clients, protocols[1:], strict=True):
            client.send(join(group, protocols=wanted), 3)
            _moment()
        yield "preparing", describe(side, group)
        joined = first.ask(join(group, one, protocols=protocols[0]), 3)
        yield "chosen", joined.protocol_name
        yield (
            "the same for all members",
            {client.receive().protocol_name for client in clients} == {joined.protocol_name},
        )


@scenario
def a_sync_waits_while_another_joins(side):
    side.await_coordinator()
    group = side.name("one")
    with side.connect("one") as first, side.connect("two") as second, side.connect("three") as third:
        one = first.ask(join(group), 3).member_id
        second.send(join(group), 3)
        side.wait(lambda: first.ask(beat(group, 1, one), 3).error_code)
        generation = first.ask(join(group, one), 3).generation_id
        two = second.receive().member_id
        second.send(sync(group, generation, two), 3)
        _moment()
        third.send(join(group), 3)
        yield "the waiting sync", second.receive(2)
        yield "the leader syncs too late", first.ask(sync(group, generation, one, {one: b"A"}), 3)
        yield "the leader commits", first.ask(commit(group, [], generation, one), 7)


ROUNDS = 40
LATE_MAX = 4  # of the rounds: on a busy machine a thread of Kafka's may be late


@scenario
def a_leader_that_hurries(side):
    """The member that completes a round syncs at once: the other one has its answer before that is answered."""
    side.await_coordinator()
    late = sum(_is_late(side, side.name(f"group {number}")) for number in range(ROUNDS))
    yield "the other member hears too late", late > LATE_MAX


def _is_late(side, group):
    with side.connect("one") as leader, side.connect("two") as other:
        one = become_stable(leader, group).member_id
        other.send(join(group), 3)
        side.wait(lambda: leader.ask(beat(group, 1, one), 3).error_code)
        joined = leader.ask(join(group, one), 3)
        shares = {row.member_id: b"a" for row in joined.members}
        leader.ask(sync(group, joined.generation_id, one, shares), 3)
        has_heard, _, _ = select.select([other.socket], [], [], 0)
        return not has_heard
