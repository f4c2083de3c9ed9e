"""Large batches are made in a thread before their step, and used only if the step decides on the same records."""

from functools import partial

import pytest
import trio

from barnabas.coordinators.groups.batches import EXPANSION_MAX, RECORDS_INLINE_MAX, build, is_small, least_bytes
from barnabas.coordinators.groups.classic.events import CommitOffsets, Waiting
from barnabas.coordinators.groups.records import (
    Commit,
    GroupMetadata,
    GroupMetadataRecord,
    OffsetRecord,
    RecordedMember,
    encode_record,
)
from barnabas.wire import messages as m
from barnabas.wire.compression import Codec
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from tests.coordinators.groups.asking import all_of, described, group_of, join, leave, member_of, sync
from tests.coordinators.groups.houses import house_with_partitions, while_in_thread

T0 = TopicPartition("t", 0)
MANY = RECORDS_INLINE_MAX + 20  # members
MAX_BYTES = 1 << 20


def offset(metadata="", group_id="g"):
    return OffsetRecord(group_id, T0, Commit(5, -1, metadata, 1))


def generation(**member):
    said = {"client_id": "c", "client_host": "/h", "member_id": "m"} | member
    return GroupMetadataRecord("g", GroupMetadata(protocol_type="consumer", members=[RecordedMember(**said)]))


# -- how large a batch is


@pytest.mark.parametrize(
    "record",
    [
        offset(),
        offset("€" * 100),
        OffsetRecord("g" * 300, T0, None),
        generation(subscription=bytes(1000), assignment=bytes(500)),
        generation(group_instance_id="i", member_id="𝄞" * 50),
        GroupMetadataRecord("g", None),
    ],
)
def test_a_record_takes_at_least_so_many_bytes(record):
    key, value = encode_record(record)
    assert least_bytes(record) <= len(key) + len(value or b"") + 30 <= 4 * least_bytes(record) + 100


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_is_too_large_is_refused_before_it_is_encoded(codec):
    room = MAX_BYTES * (1 if codec is Codec.NONE else EXPANSION_MAX)
    # The name of this client cannot be encoded. That is an error of its own, unless the size is looked at first.
    records = [generation(assignment=bytes(room), client_id="c" * 40_000)]
    assert build(records, 1, codec, MAX_BYTES) is ErrorCode.MESSAGE_TOO_LARGE
    records = [generation(client_id="c" * 40_000)]
    assert build(records, 1, codec, MAX_BYTES) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_what_is_small_depends_on_the_codec():
    records = [offset("x" * 4000)] * 5
    assert is_small(records, Codec.NONE)
    assert not is_small(records, Codec.GZIP)
    assert not is_small(records * 20, Codec.NONE)


# -- commits


def commit_of(count, metadata):
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition
    rows = [row(partition_index=each, committed_offset=each, committed_metadata=metadata) for each in range(count)]
    return m.OffsetCommitRequest(
        group_id="g", topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=rows)]
    )


async def fetched(house):
    asked = m.OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = await house.ask(m.OffsetFetchRequest(groups=[asked]))
    return {row.partition_index: row.metadata for topic in answer.groups[0].topics for row in topic.partitions}


@pytest.mark.parametrize(
    ("metadata", "codec", "threads"),
    [("so far", 0, 0), ("so far", 1, 0), ("x" * 400, 0, 0), ("x" * 400, 1, 1), ("€" * 4096, 0, 1), ("€" * 4096, 1, 1)],
)
async def test_a_commit_with_long_metadata_is_made_in_a_thread(open_house, autojump_clock, metadata, codec, threads):
    settings = {"offsets.topic.compression.codec": str(codec)}
    house, in_threads = await house_with_partitions(open_house, 80, settings=settings)
    answer = await house.ask(commit_of(80, metadata))
    assert {row.error_code for row in answer.topics[0].partitions} == {0}
    assert len(in_threads) == threads
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    assert await fetched(again) == await fetched(house) == dict.fromkeys(range(80), metadata)


async def test_a_commit_that_is_too_large_is_refused_as_such(open_house, autojump_clock):
    house, threads = await house_with_partitions(open_house, 1000)
    answer = await house.ask(commit_of(1000, "x" * 4096))
    assert {row.error_code for row in answer.topics[0].partitions} == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}
    assert len(threads) == 1


@pytest.mark.parametrize("how", ["DeleteGroups", "OffsetDelete", "expiration"])
async def test_offsets_of_a_group_with_a_long_name_are_removed(open_house, autojump_clock, how):
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    house, _ = await house_with_partitions(open_house, 100, settings=settings)
    group_id = "g" * 32_000
    for start in range(0, 100, 20):
        offsets = {TopicPartition("t", index): Commit(5, -1, "", house.now_ms()) for index in range(start, start + 20)}
        assert not (await house.groups.commit(group_id, CommitOffsets(Waiting(), "", None, -1, offsets))).error
    if how == "DeleteGroups":
        assert await house.groups.delete_group(group_id) == 0
    elif how == "OffsetDelete":
        answer = await house.groups.delete_offsets(group_id, [TopicPartition("t", index) for index in range(100)])
        assert (answer.error, set(answer.codes.values())) == (0, {0})
    else:
        await trio.sleep(70)
    assert house.groups.runtime.find(0).state.by_id == {}


# -- assignments


async def test_long_assignments_are_made_in_a_thread(open_house, autojump_clock):
    house, threads = await house_with_partitions(open_house, 1)
    joined = await member_of(house)
    answer = await house.ask(sync(joined, [(joined.member_id, b"x" * 300_000)]))
    assert (answer.error_code, len(answer.assignment), len(threads)) == (0, 300_000, 1)
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    assert (await house.ask(sync(joined))).assignment == (await again.ask(sync(joined))).assignment == answer.assignment


async def test_short_assignments_need_no_thread(open_house, autojump_clock):
    house, threads = await house_with_partitions(open_house, 1)
    joined = await member_of(house)
    assert (await house.ask(sync(joined, [(joined.member_id, b"all of it")]))).assignment == b"all of it"
    assert threads == []


async def test_assignments_that_do_not_fit_into_a_record_are_refused(open_house, autojump_clock):
    house, threads = await house_with_partitions(open_house, 1)
    joined = await member_of(house)
    end = house.partition.log.log_end_offset
    answer = await house.ask(sync(joined, [(joined.member_id, bytes(15 << 20))]))
    assert (answer.error_code, len(threads)) == (ErrorCode.UNKNOWN_SERVER_ERROR, 1)
    assert (await described(house)).group_state == "PreparingRebalance"
    assert house.partition.log.log_end_offset == end


async def test_assignments_of_a_generation_that_ends_meanwhile_are_not_stored(open_house, autojump_clock):
    house, _ = await house_with_partitions(open_house, 1)
    a, b = await all_of(member_of(house), member_of(house))
    leader, follower = (a, b) if a.members else (b, a)
    end = house.partition.log.log_end_offset
    while_in_thread(house, partial(house.ask, leave(follower.member_id)))
    answer = await house.ask(sync(leader, [(leader.member_id, bytes(300_000))]))
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert house.partition.log.log_end_offset == end


async def test_assignments_meet_a_group_that_was_loaded_meanwhile(open_house, autojump_clock):
    house, _ = await house_with_partitions(open_house, 1)
    joined = await member_of(house)

    async def elsewhere():
        log = house.partition.log
        house.resign()
        house.partition.log = log
        house.lead(leader_epoch=2)
        await trio.sleep(1)

    while_in_thread(house, elsewhere)
    answer = await house.ask(sync(joined, [(joined.member_id, bytes(300_000))]))
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- static members that return


async def static_group(house):
    """A Stable group of MANY static members, "i0", "i1", …: the answers to their JoinGroups."""
    joined = await all_of(*(house.ask(join(group_instance_id=f"i{number}")) for number in range(MANY)))
    assignments = [(each.member_id, each.member_id.encode()) for each in joined]
    (leader,) = (each for each in joined if each.members)
    asked = sync(leader, assignments)
    asked.group_instance_id = next(one.group_instance_id for one in leader.members if one.member_id == leader.member_id)
    assert (await house.ask(asked)).error_code == 0
    return joined


def members_of(house):
    return {instance: group_of(house).members[who] for instance, who in group_of(house).static_members.items()}


async def test_a_static_member_that_returns_to_a_large_group_needs_a_thread(open_house, autojump_clock):
    house, threads = await house_with_partitions(open_house, 1)
    joined = await static_group(house)
    assert len(threads) == 1
    answer = await house.ask(join(group_instance_id="i7"))
    assert (answer.error_code, answer.generation_id, len(threads)) == (0, 1, 2)
    assert members_of(house)["i7"].assignment == joined[7].member_id.encode()


async def test_many_static_members_return_at_once_and_all_of_them_are_stored(open_house, autojump_clock):
    house, threads = await house_with_partitions(open_house, 1)
    joined = await static_group(house)
    threads.clear()
    answers = await all_of(*(house.ask(join(group_instance_id=f"i{number}")) for number in range(50)))
    assert {(each.error_code, each.generation_id) for each in answers} == {(0, 1)}
    # One after the other: no record has to be made again because another member was faster.
    assert len(threads) == 50
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    await trio.sleep(1)
    for each in (house, again):
        members = members_of(each)
        assert [members[f"i{number}"].member_id for number in range(50)] == [each.member_id for each in answers]
        assert [members[f"i{number}"].assignment.decode() for number in range(MANY)] == [
            one.member_id for one in joined
        ]
    assert house.groups._making._returns == {}


async def test_a_static_member_returns_to_a_group_that_rebalances_meanwhile(open_house, autojump_clock):
    house, _ = await house_with_partitions(open_house, 1)
    joined = await static_group(house)
    while_in_thread(house, partial(house.ask, leave(joined[8].member_id)))
    end = house.partition.log.log_end_offset
    with trio.move_on_after(1):
        await house.ask(join(group_instance_id="i7"))
    assert (await described(house)).group_state == "PreparingRebalance"
    assert members_of(house)["i7"].member_id != joined[7].member_id
    assert house.partition.log.log_end_offset == end


async def test_a_static_member_returns_twice_at_the_same_time(open_house, autojump_clock):
    house, _ = await house_with_partitions(open_house, 1)
    await static_group(house)
    first, second = await all_of(house.ask(join(group_instance_id="i7")), house.ask(join(group_instance_id="i7")))
    assert (first.error_code, second.error_code) == (0, 0)
    assert members_of(house)["i7"].member_id in {first.member_id, second.member_id}
    assert first.member_id != second.member_id
