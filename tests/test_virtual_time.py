"""A test whose fixture asks for virtual time runs in virtual time."""

import pytest
import trio


@pytest.fixture
async def scene(autojump_clock):
    return autojump_clock


async def test_the_clock_of_a_fixture_is_the_clock_of_the_test(scene):
    assert trio.lowlevel.current_clock() is scene


async def test_a_clock_that_fixture_and_test_ask_for_is_one(scene, autojump_clock):
    assert trio.lowlevel.current_clock() is scene is autojump_clock


async def test_without_a_clock_time_is_real():
    assert not isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
