"""What clients can make a coordinator hold in memory without a record in the log."""

import sys

import pytest

from barnabas.broker.groups.events import HELD_BYTES_MAX
from barnabas.wire.errors import ErrorCode
from tests.broker.groups.test_coordinator import commit, error_of, join


@pytest.mark.parametrize("letter", ["g", "\N{SPIDER WEB}"])
async def test_the_names_of_groups_take_memory_too(house, autojump_clock, monkeypatch, letter):
    monkeypatch.setattr("barnabas.broker.groups.shards.HELD_BYTES_MAX", 1 << 20)
    names = [f"{letter * 8_000}{number}" for number in range(200)]
    answers = [(await house.ask(join(group_id=name))).error_code for name in names]
    served = answers.count(ErrorCode.MEMBER_ID_REQUIRED)
    assert answers == [ErrorCode.MEMBER_ID_REQUIRED] * served + [ErrorCode.GROUP_MAX_SIZE_REACHED] * (200 - served)
    assert served * sys.getsizeof(names[0]) <= 1 << 20


async def test_a_commit_that_stores_nothing_leaves_no_group(house, autojump_clock):
    assert error_of(await house.ask(commit(5, metadata="m" * 5000))) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert house.groups._shards.find(0).state.by_id == {}
    assert house.groups._groups.room_bytes == HELD_BYTES_MAX
