"""Committed offsets: who may commit, what is read back."""

import pytest

from barnabas.coordinators.groups.classic.events import PartitionsDeleted
from barnabas.coordinators.groups.offsets import offsets_view, read_offset
from barnabas.coordinators.groups.offsets import rests_on as rests_on_records
from barnabas.wire.errors import ErrorCode
from barnabas.wire.sentinels import NO_OFFSET
from barnabas.wire.topics import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def read(scene, *wanted, require_stable=False, high_watermark=None):
    high_watermark = len(scene.log) if high_watermark is None else high_watermark
    view = offsets_view(scene.group.recorded, wanted or None, stable_below=high_watermark if require_stable else None)
    rows = [read_offset(view, each) for each in wanted or view.offsets]
    return {row.topic_partition: row.error or (row.commit.offset if row.commit else None) for row in rows}


def rests_on(scene, *wanted):
    view = offsets_view(scene.group.recorded, stable_below=None)
    shown = rests_on_records(view, wanted or view.offsets)
    return shown if wanted else max(shown, view.forgotten_offset)


# -- who may commit


def test_a_member_commits_and_that_counts_as_a_sign_of_life(scene):
    (a,) = scene.stable("a")
    timer = next(iter(scene.timers))
    scene.timers[timer] = 1
    assert scene.commit(5, member_id=a, generation=1).error is ErrorCode.NONE
    assert read(scene, T0) == {T0: 5}
    assert scene.timers[timer] == 10_000


def test_a_member_may_commit_while_the_next_generation_is_prepared(scene):
    a, b = scene.stable("a", "b")
    scene.ask_to_join(a)
    assert scene.commit(member_id=b, generation=1).error is ErrorCode.NONE


def test_commits_are_refused_while_the_group_waits_for_assignments(scene):
    (a,) = scene.joined("a")
    assert scene.commit(member_id=a, generation=1).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_commits_of_other_generations_and_of_strangers_are_refused(scene):
    (a,) = scene.stable("a")
    assert scene.commit(member_id=a, generation=0).error is ErrorCode.ILLEGAL_GENERATION
    assert scene.commit(member_id=a, generation=-1).error is ErrorCode.ILLEGAL_GENERATION
    assert scene.commit(member_id="stranger", generation=1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.log[1:] == []


def test_who_is_in_no_group_commits_only_while_it_has_no_members(scene):
    assert scene.commit(5).error is ErrorCode.NONE
    scene.stable("a")
    assert scene.commit(6).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert read(scene, T0) == {T0: 5}


def test_a_generation_without_members_does_not_commit(scene):
    assert scene.commit(member_id="gone", generation=0).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.commit(member_id="gone", generation=1).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_metadata_that_are_too_large_are_refused_for_their_partition_alone(make_scene):
    scene = make_scene(offset_metadata_max_bytes=3)
    assert scene.commit(5, metadata="abc").too_large == frozenset()
    assert scene.commit(6, metadata="abcd").too_large == {T0}
    assert read(scene, T0) == {T0: 5}


@pytest.mark.parametrize(
    ("metadata", "fits"), [("č" * 3, True), ("\U0001f4ef\U0001f4ef", False), ("\U0001f4efa", True)]
)
def test_metadata_are_measured_as_java_does(make_scene, metadata, fits):
    scene = make_scene(offset_metadata_max_bytes=3)
    assert (not scene.commit(metadata=metadata).too_large) is fits


@pytest.mark.parametrize(
    ("append_error", "expected"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_commit_that_cannot_be_stored_is_refused_and_changes_nothing(scene, append_error, expected):
    scene.commit(5)
    scene.append_error = append_error
    assert scene.commit(6).error is expected
    assert read(scene, T0) == {T0: 5}


# -- what is read back


def test_an_offset_that_was_never_committed_is_not_known(scene):
    assert read(scene, T0) == {T0: None}


def test_all_offsets_of_a_group_are_read_when_none_is_named(scene):
    scene.commit(5, partition=0)
    scene.commit(6, partition=1)
    assert read(scene) == {T0: 5, T1: 6}


def test_an_answer_rests_on_the_newest_record_that_it_shows(scene):
    scene.commit(5, partition=0)
    scene.commit(6, partition=1)
    scene.commit(7, partition=0)
    after = {key: rests_on(scene, key) for key in (T0, T1)}
    assert after == {T0: 2, T1: 1}
    assert rests_on(scene) == 2


def test_not_knowing_rests_on_the_tombstone(scene):
    scene.commit(5)
    scene.commit(6, partition=1)
    scene.happen(PartitionsDeleted(dict.fromkeys([T0, TopicPartition("t", 9)], len(scene.log))))
    assert read(scene) == {T1: 6}
    assert rests_on(scene, T0) == 2
    assert rests_on(scene) == 2


def test_nothing_known_rests_on_nothing(scene):
    assert rests_on(scene, T0) == NO_OFFSET
