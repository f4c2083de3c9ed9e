"""What clients can make a coordinator hold in memory without a record in the log; who loses it when others need it."""

import sys

import pytest
import trio

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from tests.coordinators.groups.asking import beat, commit, error_of, join, sync

LIMIT = {"group.members.max.bytes": "1000000", "group.initial.rebalance.delay.ms": "0"}


def wide_join(group_id, size, member_id=""):
    request = join(member_id, group_id=group_id)
    request.protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=bytes(size))]
    return request


async def member_of(house, group_id, size=100):
    """A member of a Stable group; the answer to its JoinGroup."""
    joined = await house.ask(wide_join(group_id, size), version=3)
    assert joined.error_code == 0
    request = sync(joined, [(joined.member_id, b"")])
    request.group_id = group_id
    assert (await house.ask(request)).error_code == 0
    return joined


async def heartbeat_of(house, group_id, joined):
    """The error code that the member gets."""
    request = beat(joined)
    request.group_id = group_id
    return (await house.ask(request)).error_code


async def flood(house, group_id, count):
    """So many pending member ids of a group."""
    for _ in range(count):
        assert (await house.ask(join(group_id=group_id))).error_code == ErrorCode.MEMBER_ID_REQUIRED


async def test_pending_ids_of_one_group_shut_no_other_group_out(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    await flood(house, "evil", 1000)
    first = await house.ask(join(group_id="good"))
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert (await house.ask(join(first.member_id, group_id="good"))).error_code == 0
    assert house.groups._groups._memory.held_bytes <= 1_000_000


async def test_pending_ids_in_a_group_shut_its_own_members_not_out(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    member = await member_of(house, "g")
    await flood(house, "g", 1000)
    answers = []

    async def rejoin():
        answers.append(await house.ask(wide_join("g", 50_000, member.member_id)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(rejoin)
        # Its round waits for the pending ids, up to the rebalance timeout.
        await trio.sleep(1)
        await flood(house, "g", 1000)
    assert [each.error_code for each in answers] == [0]


async def test_a_member_that_grows_takes_the_memory_of_a_larger_group(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    small = await member_of(house, "small")
    large = [await member_of(house, "large", 300_000)]
    again = await house.ask(wide_join("small", 250_000, small.member_id))
    assert again.error_code == 0
    other = await member_of(house, "other", 250_000)
    assert await heartbeat_of(house, "other", other) == 0
    more = await house.ask(wide_join("third", 240_000), version=3)
    assert more.error_code == 0
    assert await heartbeat_of(house, "large", large[0]) == ErrorCode.UNKNOWN_MEMBER_ID
    assert await heartbeat_of(house, "other", other) == 0


async def test_the_largest_group_is_refused_with_an_error_that_clients_retry(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    member = await member_of(house, "g", 700_000)
    refused = await house.ask(wide_join("h", 900_000), version=3)
    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    grown = await house.ask(wide_join("g", 1_010_000, member.member_id))
    assert (grown.error_code, grown.member_id) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, member.member_id)
    assert await heartbeat_of(house, "g", member) == 0
    # Its session ends, as no heartbeat comes.
    await trio.sleep(3600)
    assert (await house.ask(wide_join("h", 900_000), version=3)).error_code == 0


async def fill_with_small_groups(house):
    """Groups of one member each, until there is no memory for another one; their names."""
    names = []
    while True:
        joined = await house.ask(wide_join(f"small {len(names)}", 0), version=3)
        if joined.error_code:
            assert joined.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return names
        names.append(f"small {len(names)}")


async def beat_on(house, group_id, joined, seconds):
    """The error codes of a heartbeat each three seconds."""
    codes = []
    for _ in range(0, seconds, 3):
        await trio.sleep(3)
        codes.append(await heartbeat_of(house, group_id, joined))
    return codes


async def test_many_small_groups_of_which_nothing_is_heard_shut_no_other_group_out(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    good = await member_of(house, "good")
    assert len(await fill_with_small_groups(house)) > 200
    assert await beat_on(house, "good", good, seconds=6) == [0, 0]
    second = await member_of(house, "new", size=500)
    grown = await house.ask(wide_join("good", 2_000, good.member_id))
    assert grown.error_code == 0
    assert await heartbeat_of(house, "new", second) == 0
    assert house.groups._groups._memory.held_bytes <= 1_000_000


async def test_a_group_that_is_heard_loses_nothing_to_a_new_one(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    members = {name: await member_of(house, name, 200_000) for name in ("a", "b", "c", "d")}
    for _ in range(4):
        await trio.sleep(3)
        for name, member in members.items():
            assert await heartbeat_of(house, name, member) == 0
        refused = await house.ask(wide_join("e", 199_000), version=3)
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_member_that_waits_for_its_round_is_not_silent(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    member = await member_of(house, "g", 300_000)
    waiting = []

    async def join_too():
        waiting.append(await house.ask(wide_join("g", 300_000), version=3))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join_too)
        # It waits until the first member has joined again, or its session is over.
        await trio.sleep(8)
        refused = await house.ask(wide_join("h", 650_000), version=3)
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        nursery.cancel_scope.cancel()
    assert waiting == []
    assert await heartbeat_of(house, "g", member) == ErrorCode.REBALANCE_IN_PROGRESS


async def test_a_group_that_was_loaded_has_time_to_be_heard(open_house, autojump_clock):
    house = await open_house(settings=LIMIT)
    await member_of(house, "silent", 450_000)
    member = await member_of(house, "heard", 450_000)
    after = await open_house(house.disk.crash_process(), settings=LIMIT, leader_epoch=2)
    await trio.sleep(1)
    refused = await after.ask(wide_join("new", 500_000), version=3)
    assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await beat_on(after, "heard", member, seconds=6) == [0, 0]
    assert (await after.ask(wide_join("new", 500_000), version=3)).error_code == 0
    assert await heartbeat_of(after, "heard", member) == 0


async def test_a_member_rejoins_as_it_was_though_more_was_loaded_than_there_is_memory_for(open_house, autojump_clock):
    house = await open_house(settings={"group.initial.rebalance.delay.ms": "0"})
    member = await member_of(house, "g", 700_000)
    after = await open_house(
        house.disk.crash_process(), settings=LIMIT | {"group.members.max.bytes": "1000"}, leader_epoch=2
    )
    await trio.sleep(1)
    again = await after.ask(wide_join("g", 700_000, member.member_id))
    assert (again.error_code, again.member_id) == (0, member.member_id)


@pytest.mark.parametrize("letter", ["g", "\N{SPIDER WEB}"])
async def test_the_names_of_groups_take_memory_too(open_house, autojump_clock, letter):
    house = await open_house(settings=LIMIT)
    names = [f"{letter * 8_000}{number}" for number in range(200)]
    for name in names:
        assert (await house.ask(join(group_id=name))).error_code == ErrorCode.MEMBER_ID_REQUIRED
    kept = house.groups.runtime.find(0).state.by_id
    assert names[-1] in kept
    assert sum(sys.getsizeof(name) for name in kept) <= 1_000_000


async def test_a_commit_that_stores_nothing_leaves_no_group(house, autojump_clock):
    assert error_of(await house.ask(commit(5, metadata="m" * 5000))) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert house.groups.runtime.find(0).state.by_id == {}
    assert house.groups._groups._memory.held_bytes == 0
