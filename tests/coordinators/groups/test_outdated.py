"""Committed offsets of topics that do not exist any more: they are not read, whatever the coordinator has missed."""

import pytest
import trio

from barnabas.controller.store.store import StoreError
from barnabas.coordinators.groups.classic.events import CommitOffsetsInTransaction, Transaction, Waiting
from barnabas.coordinators.groups.records import Commit
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition
from tests.coordinators.groups.asking import commit, error_of, fetch, group_of, offsets_of
from tests.coordinators.groups.conftest import TOPIC_ID
from tests.coordinators.groups.houses import while_in_thread

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OTHER_ID, THIRD_ID = bytes(15) + b"\x07", bytes(15) + b"\x08"
HOUR = 3600


def updated(house, topic_id, *, stored=True):
    """UpdateMetadata: topic "t" has this id and two partitions; the store says so, too."""
    update = m.UpdateMetadataRequest
    states = [
        update.UpdateMetadataPartitionState(partition_index=index, leader=0, leader_epoch=0, isr=[0], replicas=[0])
        for index in range(2)
    ]
    topics = [update.UpdateMetadataTopicState(topic_name="t", topic_id=topic_id, partition_states=states)]
    house.groups.runtime.on_partitions_deleted(house.metadata.apply(update(topic_states=topics)))
    if stored:
        house.stored_ids["t"] = topic_id


def disappeared(house):
    """The topic is deleted, while this broker gets no request of the controller."""
    del house.stored_ids["t"]


async def everything(house):
    return offsets_of(await house.ask(fetch()))


async def both(house):
    return offsets_of(await house.ask(fetch(0, 1)))


async def loaded_again(open_house, house):
    """A coordinator that loads the log, and knows the topics that the store had."""
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    again.stored_ids = house.stored_ids
    return again


async def reload(house):
    """This broker loses the partition, and leads it again: its groups are being loaded."""
    log = house.partition.log
    house.resign()
    house.partition.log = log
    house.lead(house.partition.leader_epoch + 1)
    assert house.groups.runtime.serving() == []


# -- the topic has another id


async def test_offsets_of_a_topic_whose_name_was_taken_over_are_not_read(house, autojump_clock):
    await house.ask(commit(500))
    updated(house, OTHER_ID)
    assert await everything(house) == {}
    assert await both(house) == {0: -1, 1: -1}
    await trio.sleep(1)
    assert house.groups.runtime.find(0).state.by_id == {}


async def test_the_new_topic_has_offsets_of_its_own(house, autojump_clock):
    await house.ask(commit(500))
    await house.ask(commit(600, partition=1))
    updated(house, OTHER_ID)
    assert error_of(await house.ask(commit(7))) == 0
    assert await everything(house) == {0: 7}
    await trio.sleep(HOUR)
    assert await everything(house) == {0: 7}


async def test_the_same_topic_keeps_its_offsets_when_its_metadata_arrive_again(house, autojump_clock):
    await house.ask(commit(500))
    updated(house, TOPIC_ID)
    del house.metadata.topics["t"]
    assert await everything(house) == {0: 500}
    await trio.sleep(HOUR)
    updated(house, TOPIC_ID)
    assert await everything(house) == {0: 500}


async def test_topics_without_ids_keep_their_offsets(house, autojump_clock):
    house.know_topic("t", 2, ZERO_TOPIC_ID)
    await house.ask(commit(500))
    updated(house, OTHER_ID)
    await trio.sleep(HOUR)
    assert await everything(house) == {0: 500}


# -- what was loaded


async def test_loaded_offsets_are_of_the_topic_that_existed_then(open_house, house, autojump_clock):
    await house.ask(commit(500))
    again = await loaded_again(open_house, house)
    await trio.sleep(1)
    assert await everything(again) == {0: 500}
    updated(again, OTHER_ID)
    assert await everything(again) == {}
    await trio.sleep(1)
    assert again.groups.runtime.find(0).state.by_id == {}


async def test_loaded_offsets_stay_while_the_metadata_are_behind(open_house, house, autojump_clock):
    updated(house, OTHER_ID)
    await house.ask(commit(7))
    again = await loaded_again(open_house, house)
    # It has missed that the topic was created again, and its former coordinator has not.
    again.know_topic("t", 2, TOPIC_ID)
    again.stored_ids["t"] = OTHER_ID
    await trio.sleep(HOUR)
    assert await everything(again) == {0: 7}
    updated(again, OTHER_ID)
    await trio.sleep(HOUR)
    assert await everything(again) == {0: 7}
    updated(again, THIRD_ID)
    assert await everything(again) == {}


async def test_loaded_offsets_stay_while_there_are_no_metadata(open_house, house, autojump_clock):
    await house.ask(commit(500))
    again = await loaded_again(open_house, house)
    del again.metadata.topics["t"]
    await trio.sleep(HOUR)
    assert await everything(again) == {0: 500}


async def test_loaded_offsets_stay_while_the_store_cannot_be_read(open_house, house, autojump_clock):
    await house.ask(commit(500))
    again = await loaded_again(open_house, house)

    async def away(topics):
        raise StoreError("away")

    reads = again.groups._groups.outdated._read_topic_ids
    again.groups._groups.outdated._read_topic_ids = away
    await trio.sleep(HOUR)
    assert await everything(again) == {0: 500}
    again.groups._groups.outdated._read_topic_ids = reads
    await trio.sleep(HOUR)
    updated(again, OTHER_ID)
    assert await everything(again) == {}


async def test_offsets_of_a_topic_that_was_deleted_without_a_coordinator_are_removed(open_house, house, autojump_clock):
    await house.ask(commit(500))
    disappeared(house)
    again = await loaded_again(open_house, house)
    del again.metadata.topics["t"]
    await trio.sleep(1)
    assert again.groups.runtime.find(0).state.by_id == {}
    updated(again, OTHER_ID)
    assert await both(again) == {0: -1, 1: -1}


async def test_offsets_committed_while_the_store_is_read_stay(open_house, house, autojump_clock):
    await house.ask(commit(500))
    await house.ask(commit(600, partition=1))
    again = await loaded_again(open_house, house)
    del again.metadata.topics["t"]

    async def created_meanwhile(topics):
        await trio.sleep(1)
        updated(again, OTHER_ID)
        assert error_of(await again.ask(commit(7))) == 0
        return {}

    again.groups._groups.outdated._read_topic_ids = created_meanwhile
    await trio.sleep(3)
    assert await everything(again) == {0: 7}


# -- notices while groups are loaded


async def test_a_topic_that_is_deleted_while_its_groups_are_loaded_leaves_no_offset(house, autojump_clock):
    await house.ask(commit(5))
    await house.ask(commit(6, partition=1))
    await reload(house)
    house.groups.runtime.on_partitions_deleted([T0])
    while not house.groups.runtime.serving():
        await trio.sleep(0.0001)
    assert await both(house) == {0: -1, 1: 6}
    await trio.sleep(1)
    assert list(group_of(house).recorded.offsets) == [T1]
    assert house.groups._groups.outdated._deleted == {}


async def test_a_notice_does_not_wait_for_a_shard_that_is_lost(house, autojump_clock):
    await house.ask(commit(5))
    await reload(house)
    house.groups.runtime.on_partitions_deleted([T0])
    house.resign()
    house.groups.runtime.on_partitions_deleted([T1])
    await trio.sleep(1)
    assert house.groups._groups.outdated._deleted == {}


# -- requests that are under way


@pytest.mark.parametrize("deleted", ["taken over", "gone"])
async def test_a_commit_of_a_topic_that_is_deleted_meanwhile_is_refused(house, autojump_clock, deleted):
    async def delete():
        if deleted == "gone":
            del house.metadata.topics["t"]
        else:
            updated(house, OTHER_ID)

    while_in_thread(house, delete)
    answer = await house.ask(long_commit())
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert house.groups.runtime.find(0).state.by_id == {}


def long_commit():
    """An OffsetCommit that is made in a thread."""
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition
    rows = [row(partition_index=each, committed_offset=5, committed_metadata="x" * 4000) for each in range(2)]
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=rows)]
    return m.OffsetCommitRequest(group_id="g" * 32_000, topics=topics)


def in_transaction(offset, topic_id=TOPIC_ID, key=T0):
    commits = {key: Commit(offset, -1, "", 1, topic_id=topic_id)}
    return CommitOffsetsInTransaction(Waiting(), Transaction(42, 0), "", None, -1, commits)


async def commit_in_transaction(house, offset, topic_id=TOPIC_ID):
    answer = await house.groups.commit_in_transaction("g", in_transaction(offset, topic_id), 1, lambda: False)
    return answer.error


async def test_a_commit_in_a_transaction_is_refused_if_its_topic_was_deleted_meanwhile(house, autojump_clock):
    updated(house, OTHER_ID)
    assert await commit_in_transaction(house, 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert await commit_in_transaction(house, 5, OTHER_ID) is ErrorCode.NONE


async def test_a_transaction_that_ends_after_its_topic_was_deleted_commits_no_offset(house, autojump_clock):
    assert await commit_in_transaction(house, 5) is ErrorCode.NONE
    updated(house, OTHER_ID)
    shard = house.groups.runtime.find(0)
    await trio.sleep(1)
    assert (shard.state.by_id, shard.state.open) == ({}, {})


async def test_an_outdated_offset_does_not_take_what_is_pending_for_the_new_topic_along(house, autojump_clock):
    await house.ask(commit(500))
    updated(house, OTHER_ID)
    assert await commit_in_transaction(house, 5, OTHER_ID) is ErrorCode.NONE
    await trio.sleep(HOUR)
    assert await everything(house) == {}
    assert group_of(house).recorded.pending[T0][42].commit.offset == 5
