"""What groups forget: what expires, and what an administrator deletes."""

import pytest

from barnabas.coordinators.groups.classic.events import (
    DeleteGroup,
    DeleteOffsets,
    DeletionAnswer,
    Expire,
    PartitionsDeleted,
    Waiting,
)
from barnabas.coordinators.groups.classic.state import GroupState
from barnabas.coordinators.groups.offsets import offsets_view, read_offset
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

HOUR_MS = 3_600_000
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
SUBSCRIBED = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def read(scene, group=None):
    view = offsets_view((group or scene.group).recorded, stable_below=None)
    rows = [read_offset(view, each) for each in view.offsets]
    return {row.topic_partition: row.commit.offset if row.commit else None for row in rows}


def expire(scene, after_ms, retention_ms=HOUR_MS):
    scene.now_ms += after_ms
    scene.happen(Expire(retention_ms, list(scene.group.recorded.offsets)))


def delete(scene):
    waiting = Waiting()
    scene.happen(DeleteGroup(waiting))
    return waiting.answer


def delete_offsets(scene, *keys):
    waiting = Waiting()
    scene.happen(DeleteOffsets(waiting, keys))
    return waiting.answer


def subscription(*topics):
    """A consumer's protocols, reading these topics."""
    return (("range", b"\0\0" + m.encode(m.ConsumerProtocolSubscription(topics=list(topics)), 0)),)


# -- what expires


def test_offsets_of_a_group_without_protocol_expire_after_their_commit(scene):
    scene.commit(5)
    scene.now_ms += HOUR_MS // 2
    scene.commit(6, partition=1)
    expire(scene, HOUR_MS // 2)
    assert read(scene) == {T1: 6}


def test_offsets_of_a_group_that_had_members_expire_after_it_became_empty(scene):
    (a,) = scene.stable("a")
    scene.commit(5, member_id=a, generation=1)
    scene.now_ms += 3 * HOUR_MS
    scene.leave(a)
    expire(scene, HOUR_MS - 1)
    assert read(scene) == {T0: 5}
    expire(scene, 1)
    assert read(scene) == {}
    assert scene.group.state is GroupState.DEAD
    assert scene.reloaded() is None


def test_a_stable_group_keeps_the_offsets_of_the_topics_it_reads(scene):
    (a,) = scene.stable("a")  # reads topic "t"
    scene.commit(5, member_id=a, generation=1)
    scene.commit(6, member_id=a, generation=1, topic="given up")
    expire(scene, HOUR_MS)
    assert read(scene) == {T0: 5}
    assert list(scene.reloaded().members) == [a]


def test_a_stable_group_whose_subscriptions_cannot_be_read_keeps_everything(scene):
    scene.ask_to_join(protocols=(("range", b"?"),))
    scene.begin()
    scene.ask_to_sync(scene.group.leader_id)
    scene.commit(5, member_id=scene.group.leader_id, generation=1, topic="given up")
    expire(scene, HOUR_MS)
    assert read(scene) == {TopicPartition("given up", 0): 5}


def test_a_group_that_rebalances_keeps_everything(scene):
    (a,) = scene.joined("a")
    scene.commit(5, member_id=a, generation=1, topic="other")
    expire(scene, HOUR_MS)
    assert scene.group.state is GroupState.COMPLETING_REBALANCE


def test_a_time_that_the_client_asked_for_wins(scene):
    scene.commit(5, partition=0, expire_timestamp_ms=scene.now_ms + 10)
    scene.commit(6, partition=1, expire_timestamp_ms=scene.now_ms + 9 * HOUR_MS)
    expire(scene, 10)
    assert read(scene) == {T1: 6}
    expire(scene, 2 * HOUR_MS)
    assert read(scene) == {T1: 6}


def test_a_group_of_which_nothing_is_left_ends_with_a_tombstone_of_its_own(scene):
    (a,) = scene.stable("a")
    scene.leave(a)
    expire(scene, 0)
    assert scene.group.state is GroupState.DEAD
    assert scene.log[-1][1] is None


def test_a_group_that_stored_nothing_ends_without_a_trace(scene):
    expire(scene, 0)
    assert scene.group.state is GroupState.DEAD
    assert scene.log == []


def test_a_group_whose_only_member_is_about_to_join_does_not_end(scene):
    scene.ask_to_join(requires_member_id=True)
    expire(scene, 0)
    assert scene.group.state is GroupState.EMPTY


def test_offsets_of_an_open_transaction_keep_a_group_alive(scene):
    scene.commit_in_transaction(9)
    expire(scene, 9 * HOUR_MS)
    assert scene.group.state is GroupState.EMPTY


def test_an_offset_that_a_transaction_is_about_to_replace_does_not_expire(scene):
    scene.commit(5)
    scene.commit(5, partition=1)
    scene.commit_in_transaction(9)
    expire(scene, 9 * HOUR_MS)
    assert read(scene) == {T0: 5}
    scene.end_transaction(committed=True)
    assert read(scene) == {T0: 9}
    expire(scene, 9 * HOUR_MS)
    assert scene.group.state is GroupState.DEAD


def test_what_could_not_be_forgotten_is_tried_again(scene):
    scene.commit(5)
    scene.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    expire(scene, HOUR_MS)
    assert read(scene) == {T0: 5}
    scene.append_error = ErrorCode.NONE
    expire(scene, 0)
    assert scene.group.state is GroupState.DEAD


# -- what is deleted


def test_a_deleted_group_leaves_nothing_behind(scene):
    (a,) = scene.stable("a")
    scene.commit(5, member_id=a, generation=1)
    scene.commit(6, member_id=a, generation=1, partition=1)
    scene.leave(a)
    assert delete(scene) is ErrorCode.NONE
    assert scene.group.state is GroupState.DEAD
    assert [value for _, value in scene.log[-3:]] == [None, None, None]
    assert scene.reloaded() is None


@pytest.mark.parametrize("get_there", ["joined", "stable"])
def test_a_group_with_members_is_not_deleted(scene, get_there):
    getattr(scene, get_there)("a")
    stored = list(scene.log)
    assert delete(scene) is ErrorCode.NON_EMPTY_GROUP
    assert scene.log == stored


def test_a_deletion_that_is_not_stored_deletes_nothing(scene):
    scene.commit(5)
    scene.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert delete(scene) is ErrorCode.NOT_COORDINATOR
    assert delete_offsets(scene, T0) == DeletionAnswer(ErrorCode.NOT_COORDINATOR, {})
    assert (scene.group.state, read(scene)) == (GroupState.EMPTY, {T0: 5})


def test_the_end_of_a_transaction_finds_nothing_of_a_deleted_group(scene):
    scene.commit(5)
    scene.commit_in_transaction(9, partition=1)
    assert delete(scene) is ErrorCode.NONE
    assert scene.group.state is GroupState.DEAD
    scene.end_transaction(committed=True)
    assert scene.reloaded() is None


@pytest.mark.parametrize("how", ["OffsetDelete", "deletion of the topic"])
def test_a_deleted_offset_does_not_come_back_with_the_end_of_a_transaction(scene, how):
    scene.commit(5, partition=1)
    scene.commit(6)
    scene.commit_in_transaction(9)
    scene.commit_in_transaction(9, topic="u")  # has no committed offset
    scene.commit_in_transaction(9, producer_id=43)
    if how == "OffsetDelete":
        assert delete_offsets(scene, T0, U0).codes == {T0: ErrorCode.NONE, U0: ErrorCode.NONE}
    else:
        scene.happen(PartitionsDeleted(dict.fromkeys([T0, U0], len(scene.log))))
    assert (scene.group.recorded.pending, scene.groups.open) == ({}, {})
    for producer_id in (42, 43):
        scene.end_transaction(committed=True, producer_id=producer_id)
    assert read(scene) == read(scene, scene.reloaded()) == {T1: 5}


def test_a_group_that_has_only_pending_offsets_dies_with_them(scene):
    scene.commit_in_transaction(9)
    scene.commit_in_transaction(9, partition=1)
    delete_offsets(scene, T0)
    assert scene.group.state is GroupState.EMPTY
    delete_offsets(scene, T1)
    assert scene.group.state is GroupState.DEAD


def test_offsets_of_a_group_without_members_are_deleted_and_with_the_last_the_group(scene):
    scene.commit(5)
    scene.commit(6, partition=1)
    assert delete_offsets(scene, T0, U0) == (ErrorCode.NONE, {T0: ErrorCode.NONE, U0: ErrorCode.NONE})
    assert (read(scene), scene.group.state) == ({T1: 6}, GroupState.EMPTY)
    delete_offsets(scene, T1)
    assert scene.group.state is GroupState.DEAD
    assert scene.reloaded() is None


def test_offsets_of_topics_that_members_read_are_kept(scene):
    (a,) = scene.stable("a")  # reads topic "t"
    scene.commit(5, member_id=a, generation=1)
    scene.commit(6, member_id=a, generation=1, topic="u")
    assert delete_offsets(scene, U0, T0) == (ErrorCode.NONE, {T0: SUBSCRIBED, U0: ErrorCode.NONE})
    assert (read(scene), scene.group.state) == ({T0: 5}, GroupState.STABLE)


def test_what_the_last_generation_read_counts_until_the_next_one_begins(scene):
    a, b = (scene.ask_to_join(protocols=subscription("t")) for _ in "ab")
    scene.begin()
    scene.ask_to_join(a.answer.member_id, protocols=subscription("u"))
    assert delete_offsets(scene, T0, U0).codes == {T0: SUBSCRIBED, U0: ErrorCode.NONE}
    scene.ask_to_join(b.answer.member_id, protocols=subscription("u"))
    assert delete_offsets(scene, T0, U0).codes == {T0: ErrorCode.NONE, U0: SUBSCRIBED}


def test_before_the_first_generation_any_topic_may_be_read(scene):
    scene.ask_to_join(protocols=subscription("t"))
    assert delete_offsets(scene, U0).codes == {U0: SUBSCRIBED}


def test_a_loaded_group_knows_what_its_members_read(scene):
    scene.stable("a")
    scene.group = scene.groups.by_id["g"] = scene.reloaded()
    assert delete_offsets(scene, T0, U0).codes == {T0: SUBSCRIBED, U0: ErrorCode.NONE}


def test_of_what_is_no_consumer_group_no_one_knows_what_it_reads(scene):
    scene.ask_to_join(protocol_type="connect")
    scene.begin()
    assert delete_offsets(scene, T0) == (ErrorCode.NON_EMPTY_GROUP, {})


def test_what_cannot_be_read_as_a_subscription_may_be_any(scene):
    scene.ask_to_join(protocols=(("range", b"?"),))
    scene.begin()
    assert delete_offsets(scene, U0).codes == {U0: SUBSCRIBED}


def test_a_group_that_dies_with_its_last_offset_takes_handed_out_ids_along(scene):
    scene.commit(5)
    scene.ask_to_join(requires_member_id=True)
    assert delete_offsets(scene, T0).codes == {T0: ErrorCode.NONE}
    assert scene.group.state is GroupState.DEAD


def test_the_deletion_of_other_topics_does_not_end_an_empty_group(scene):
    (member,) = scene.stable("a")
    scene.leave(member)
    assert scene.group.state is GroupState.EMPTY
    scene.happen(PartitionsDeleted({}))
    scene.happen(PartitionsDeleted(dict.fromkeys([T0, U0], len(scene.log))))
    assert scene.group.state is GroupState.EMPTY
    assert scene.reloaded().generation == scene.group.generation > 0
