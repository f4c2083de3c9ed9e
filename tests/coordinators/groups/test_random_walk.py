"""Random walks of a group: these invariants hold after each step, whatever the order of events.

- Every request is answered, or waits in the group's table of joins or syncs.
- Within a generation every assignment has one owner: a member, or the static member that replaced it.
- Nothing waits for ever: while the group waits for a member, a timer runs; after all timers the group is empty.
- States follow the table (another transition raises), generations only grow, and counters agree with the members.
- Forgetting the volatile part equals loading the log again.
- The recorded part, pending offsets included, is at each moment what the log says.
- What has a pending offset is neither expired nor removed with its group.
"""

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from barnabas.coordinators.groups.classic.events import (
    JOIN_TIMER,
    DeleteGroup,
    DeleteOffsets,
    Expire,
    Forgotten,
    Heartbeat,
    Loaded,
    PartitionsDeleted,
    Timer,
    TimerKind,
    Waiting,
)
from barnabas.coordinators.groups.classic.sessions import apply_unloaded
from barnabas.coordinators.groups.classic.state import MEMBER_BYTES, Group, GroupState, forget
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

PROTOCOLS = [(("x", b"1"),), (("x", b"1"), ("y", b"1")), (("y", b"1"), ("x", b"1")), (("x", b"2"), ("y", b"2"))]
instances = st.sampled_from([None, None, "i", "j"])
protocols = st.sampled_from(PROTOCOLS)
pick = st.integers(0, 9)
producers = st.sampled_from([1, 2, 3])
keys = st.lists(st.sampled_from([TopicPartition("t", 0), TopicPartition("t", 1)]), min_size=1, unique=True)


class Walk(RuleBasedStateMachine):
    """One group and everybody who ever had to do with it."""

    def __init__(self, make_scene):
        super().__init__()
        self.scene = make_scene(group_max_size=4)
        self.asked = []  # everybody who waits or waited
        self.given_up = []
        self.ids = ["stranger"]  # every member id that was in a response
        self.newest = 0
        self.asked_by = {}  # waiting for an assignment -> (generation, member id)
        self.owners = {}  # (generation, assignment) -> member id
        self.assignments = 0

    @property
    def group(self):
        return self.scene.group

    def someone(self, number):
        known = [*self.group.members, *self.group.pending_members, *self.ids[-3:]]
        return known[number % len(known)]

    def note(self, waiting):
        self.asked.append(waiting)
        self.collect_ids()

    def collect_ids(self):
        given = [waiting.answer.member_id for waiting in self.asked if getattr(waiting.answer, "member_id", "")]
        self.ids += [member_id for member_id in given if member_id not in self.ids]

    # -- what may happen

    @rule(instance_id=instances, protocols=protocols, requires_member_id=st.booleans(), new=st.booleans())
    def a_newcomer_joins(self, instance_id, protocols, requires_member_id, new):
        requires_member_id = requires_member_id and instance_id is None
        asked = {"instance_id": instance_id, "requires_member_id": requires_member_id, "skips_assignment": new}
        self.note(self.scene.ask_to_join(protocols=protocols, **asked))

    @rule(number=pick, protocols=protocols)
    def a_known_member_joins(self, number, protocols):
        member_id = self.someone(number)
        self.note(self.scene.ask_to_join(member_id, instance_id=self.instance_of(member_id), protocols=protocols))

    @rule(number=pick, late=st.booleans())
    def a_member_syncs(self, number, late):
        member_id = self.someone(number)
        self.assignments += 1
        assignments = {who: f"{self.assignments}/{index}".encode() for index, who in enumerate(self.group.members)}
        generation = self.group.generation - late
        waiting = self.scene.ask_to_sync(
            member_id, assignments, generation=generation, instance_id=self.instance_of(member_id)
        )
        self.asked_by[waiting] = (generation, member_id)
        self.note(waiting)

    def instance_of(self, member_id):
        member = self.group.members.get(member_id)
        return member.instance_id if member else None

    @rule(number=pick)
    def a_member_beats(self, number):
        waiting = Waiting()
        self.scene.happen(Heartbeat(waiting, self.someone(number), None, self.group.generation))
        assert waiting.answer is not None

    @rule(numbers=st.lists(pick, min_size=1, max_size=3))
    def members_leave(self, numbers):
        leaving = [self.someone(number) for number in numbers]
        assert len(self.scene.leave(*leaving)) == len(leaving)

    @rule(number=pick, simple=st.booleans())
    def a_member_commits(self, number, simple):
        member = {} if simple else {"member_id": self.someone(number), "generation": self.group.generation}
        assert self.scene.commit(number, partition=number % 2, **member) is not None

    @rule(number=pick, producer_id=producers, simple=st.booleans())
    def a_producer_commits(self, number, producer_id, simple):
        member = {} if simple else {"member_id": self.someone(number), "generation": self.group.generation}
        answer = self.scene.commit_in_transaction(number, producer_id=producer_id, partition=number % 2, **member)
        assert answer is not None

    @precondition(lambda self: not self.scene.append_error)
    @rule(producer_id=producers, committed=st.booleans())
    def a_transaction_ends(self, producer_id, committed):
        pending = {key: offsets.get(producer_id) for key, offsets in self.group.recorded.pending.items()}
        before = dict(self.group.recorded.offsets)
        self.scene.end_transaction(committed=committed, producer_id=producer_id)
        for key, stored in pending.items():
            now, known = self.group.recorded.offsets.get(key), before.get(key)
            if committed and stored and (known is None or known.at_offset < stored.at_offset):
                assert now[:2] == stored[:2]
            else:
                assert now == known

    @rule(what=st.sampled_from(["offsets", "partitions", "group"]), keys=keys)
    def something_is_deleted(self, what, keys):
        event = {
            "offsets": DeleteOffsets(Waiting(), keys),
            "partitions": PartitionsDeleted(dict.fromkeys(keys, len(self.scene.log))),
            "group": DeleteGroup(Waiting()),
        }[what]
        tombstones = len(self.scene.log)
        self.scene.happen(event)
        deleted = [key for key in keys if self.scene.has_tombstone_of(key, tombstones)]
        assert not [key for key in deleted if self.group.recorded.has(key)]
        self.begin_again_if_dead()

    @rule()
    def offsets_expire(self):
        pending = {key: dict(offsets) for key, offsets in self.group.recorded.pending.items()}
        kept = {key: each for key, each in self.group.recorded.offsets.items() if key in pending}
        self.scene.happen(Expire(0, list(self.group.recorded.offsets)))
        assert self.group.recorded.pending == pending
        assert kept.items() <= self.group.recorded.offsets.items()
        assert not pending or self.group.state is not GroupState.DEAD
        self.begin_again_if_dead()

    def begin_again_if_dead(self):
        """A group that is gone is created again by the next request."""
        if self.group.state is GroupState.DEAD:
            assert self.scene.reloaded() is None
            del self.scene.groups.by_id["g"]
            self.scene.group = self.scene.groups.get_or_create("g", self.scene.now_ms)
            self.scene.timers.clear()
            self.newest = 0
            self.owners.clear()

    @precondition(lambda self: self.scene.timers)
    @rule(number=pick)
    def time_passes(self, number):
        self.scene.now_ms += 1000
        timers = list(self.scene.timers)
        self.scene.time_is_over(timers[number % len(timers)])

    @precondition(lambda self: any(waiting.answer is None for waiting in self.asked))
    @rule(number=pick)
    def a_connection_goes_away(self, number):
        waiting = [one for one in self.asked if one.answer is None]
        gone = waiting[number % len(waiting)]
        self.asked.remove(gone)
        self.given_up.append(gone)
        self.scene.happen(Forgotten(gone))

    @rule(error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def the_log_refuses_or_takes_records(self, error):
        self.scene.append_error = error

    @rule()
    def another_broker_takes_over(self):
        self.scene.follow(apply_unloaded(self.group, ErrorCode.NOT_COORDINATOR, self.scene.now_ms))
        self.check_that_forgetting_equals_loading()
        forget(self.group)
        self.scene.timers.clear()
        self.newest = self.group.generation
        self.owners.clear()
        self.scene.happen(Loaded())

    def check_that_forgetting_equals_loading(self):
        forgetful = Group("g", self.scene.limits)
        forgetful.recorded = self.group.recorded
        forget(forgetful)
        loaded = self.scene.reloaded() or Group("g", self.scene.limits)
        assert facts_of(forgetful) == facts_of(loaded)

    # -- what always holds

    @invariant()
    def every_request_is_answered_or_waits(self):
        waiting = [*self.group.joins.values(), *self.group.syncs.values()]
        assert all(one.answer is None for one in waiting)
        assert [one for one in self.asked if one.answer is None and one not in waiting] == []
        assert [one for one in self.given_up if one.answer is not None or one in waiting] == []

    @invariant()
    def who_waits_is_a_member_and_waits_for_the_right_thing(self):
        group = self.group
        assert set(group.joins) <= set(group.members)
        assert set(group.syncs) <= set(group.members)
        assert not group.joins or group.state is GroupState.PREPARING_REBALANCE
        assert not group.syncs or group.state is GroupState.COMPLETING_REBALANCE

    @invariant()
    def generations_only_grow(self):
        assert self.group.generation >= self.newest
        self.newest = self.group.generation

    @invariant()
    def an_assignment_has_one_owner(self):
        for waiting in self.asked:
            answer = waiting.answer
            if answer is None or not hasattr(answer, "assignment") or not answer.assignment:
                continue
            generation, member_id = self.asked_by[waiting]
            owner = self.owners.setdefault((generation, answer.assignment), member_id)
            assert owner == member_id or owner not in self.group.members
        self.asked = [waiting for waiting in self.asked if waiting.answer is None]

    @invariant()
    def nothing_waits_for_ever(self):
        group, timers = self.group, self.scene.timers
        assert group.state is not GroupState.PREPARING_REBALANCE or JOIN_TIMER in timers
        for member_id, member in group.members.items():
            waits_for_us = member_id in group.joins or member_id in group.syncs
            assert Timer(TimerKind.MEMBER, member_id) in timers or (waits_for_us and not member.is_new)
        assert all(Timer(TimerKind.MEMBER, member_id) in timers for member_id in group.pending_members)

    @invariant()
    def the_recorded_part_is_what_the_log_says(self):
        loaded = self.scene.replayed()
        assert loaded.open == self.scene.groups.open
        group = loaded.by_id.get("g")
        ours = self.group.recorded
        found = Group("g", self.scene.limits).recorded if group is None else group.recorded
        assert (found.offsets, found.pending, found.metadata) == (ours.offsets, ours.pending, ours.metadata)
        pending = {(key, pid): each for key, offsets in ours.pending.items() for pid, each in offsets.items()}
        assert pending == {
            (key, pid): each for pid, offsets in loaded.open.items() for (_, key), each in offsets.items()
        }

    @invariant()
    def the_bookkeeping_agrees(self):
        group = self.group
        assert group.static_members == {m.instance_id: k for k, m in group.members.items() if m.instance_id is not None}
        counts = {}
        for member in group.members.values():
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert group.protocol_counts == counts
        pending_bytes = sum(MEMBER_BYTES + len(member_id) for member_id in group.pending_members)
        assert group.held_bytes == pending_bytes + sum(member.held_bytes for member in group.members.values())
        assert group.leader_id in group.members or (group.leader_id is None and not group.members)
        assert bool(group.members) or group.state in (GroupState.EMPTY, GroupState.PREPARING_REBALANCE)
        assert not group.members or group.state is not GroupState.EMPTY

    def teardown(self):
        self.scene.append_error = ErrorCode.NONE
        for _ in range(100):
            if not self.scene.timers:
                break
            self.scene.time_is_over(next(iter(self.scene.timers)))
        assert self.group.state is GroupState.EMPTY
        assert [one for one in self.asked if one.answer is None] == []


def facts_of(group):
    members = [
        (m.member_id, m.instance_id, m.session_timeout_ms, m.rebalance_timeout_ms, m.protocols, m.assignment, m.is_new)
        for m in group.members.values()
    ]
    volatile = [
        (name, getattr(group, name)) for name in Group.__slots__ if name not in ("members", "recorded", "limits")
    ]
    recorded = group.recorded
    return members, volatile, recorded.metadata, recorded.offsets, recorded.pending


@pytest.mark.thorough
def test_a_group_keeps_its_promises_whatever_happens(make_scene):
    walk = settings(max_examples=100, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(partial(Walk, make_scene), settings=walk)
