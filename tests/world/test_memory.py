"""The account of memory: which owner is evicted."""

import pytest

from barnabas.world.memory import (
    EVICTED_BYTES_MIN,
    MEMBERS_BYTES_MAX,
    MEMBERS_BYTES_MIN,
    REQUESTS_BYTES_MAX,
    REQUESTS_BYTES_MIN,
    Account,
    members_limit_bytes,
    request_limit_bytes,
)

MIB = 1 << 20


class Owner:
    """What holds memory."""

    def __init__(self, name):
        self.name = name
        self.held_bytes = 0
        self.is_evictable = True


@pytest.fixture
def owners():
    return [Owner(name) for name in "abcd"]


def evicted(account, now=0.0):
    return "".join(owner.name for owner in account.to_evict(now))


def test_no_owner_is_evicted_while_all_fit(owners):
    account = Account(4 * MIB)
    for owner in owners:
        account.hold(owner, MIB, 0.0)
    assert evicted(account, 1000.0) == ""


def test_of_owners_that_have_just_begun_the_largest_is_evicted(owners):
    account = Account(4 * MIB)
    for owner, held in zip(owners, (2 * MIB, MIB, MIB, MIB), strict=True):
        account.hold(owner, held, 0.0)
    assert evicted(account) == "a"
    assert (account.held_bytes, owners[0].held_bytes) == (3 * MIB, 0)


def test_a_small_owner_that_frees_nothing_is_evicted_before_a_large_new_one(owners):
    account = Account(2 * MIB)
    account.hold(owners[0], MIB, 0.0)
    account.hold(owners[1], 2 * MIB, 60.0)
    assert evicted(account, 60.1) == "a"


def test_an_owner_that_grows_a_little_is_as_old_as_before(owners):
    account = Account(2 * MIB)
    for second in range(60):
        account.hold(owners[0], MIB + second, float(second))
    account.hold(owners[1], MIB, 60.0)
    assert evicted(account, 60.0) == "a"


def test_an_owner_that_frees_its_bytes_again_and_again_is_young(owners):
    account = Account(3 * MIB)
    for second in range(60):
        account.hold(owners[0], 2 * MIB, float(second))
        account.hold(owners[0], 0, second + 0.1)
    account.hold(owners[1], MIB, 30.0)
    account.hold(owners[0], 2 * MIB, 60.0)
    account.hold(owners[2], MIB, 60.0)
    assert evicted(account, 60.1) == "b"


def test_owners_that_are_being_served_are_left_and_the_others_evicted(owners):
    account = Account(MIB)
    for second, owner in enumerate(owners):
        account.hold(owner, MIB, float(second))
    owners[0].is_evictable = owners[1].is_evictable = False
    assert evicted(account, 10.0) == "cd"
    owners[0].is_evictable = owners[1].is_evictable = True
    assert evicted(account, 10.0) == "a"


def test_the_last_owner_may_exceed_the_limit_alone(owners):
    account = Account(MIB)
    account.hold(owners[0], 3 * MIB, 0.0)
    account.hold(owners[1], EVICTED_BYTES_MIN - 1, 0.0)
    assert evicted(account, 10.0) == ""


def test_small_owners_count_and_are_not_evicted(owners):
    account = Account(EVICTED_BYTES_MIN)
    for owner in owners:
        account.hold(owner, EVICTED_BYTES_MIN - 1, 0.0)
    assert account.is_above_limit
    assert evicted(account, 10.0) == ""


def test_without_weight_of_time_the_largest_is_evicted(owners):
    account = Account(2 * MIB, weighs_time=False)
    account.hold(owners[0], MIB, 0.0)
    account.hold(owners[1], 2 * MIB, 60.0)
    assert evicted(account, 60.1) == "b"


def test_released_memory_is_forgotten(owners):
    account = Account(MIB)
    for owner in owners:
        account.hold(owner, MIB, 0.0)
    for owner in owners:
        account.hold(owner, 0, 1.0)
    assert (account.held_bytes, account.worst(2.0)) == (0, None)


@pytest.mark.parametrize(
    ("configured", "machine", "expected"),
    [
        (-1, 512 * MIB, REQUESTS_BYTES_MIN),
        (-1, 2048 * MIB, 256 * MIB),
        (-1, 64 << 30, REQUESTS_BYTES_MAX),
        (200 * MIB, 512 * MIB, 200 * MIB),
    ],
)
def test_the_limit_of_requests_is_a_share_of_memory_or_configured(configured, machine, expected):
    assert request_limit_bytes(configured, 100 * MIB, machine) == expected


def test_the_limit_of_requests_admits_the_largest_frame():
    assert request_limit_bytes(-1, 1 << 30, 2 << 30) == 1 << 30


@pytest.mark.parametrize(
    ("configured", "machine", "expected"),
    [(-1, 512 * MIB, MEMBERS_BYTES_MIN), (-1, 2048 * MIB, 128 * MIB), (-1, 64 << 30, MEMBERS_BYTES_MAX), (7, 1, 7)],
)
def test_the_limit_of_members_is_a_share_of_memory_or_configured(configured, machine, expected):
    assert members_limit_bytes(configured, machine) == expected


def test_none_is_evicted_in_place_of_a_worse_one_that_is_served(owners):
    account = Account(4 * MIB)
    account.hold(owners[0], 4 * MIB, 0.0)
    owners[0].is_evictable = False
    account.hold(owners[1], MIB // 2, 1.0)
    assert evicted(account, 1.0) == ""

    # It waits for its client now.
    owners[0].is_evictable = True
    assert evicted(account, 1.0) == "a"


def test_far_above_the_limit_others_are_evicted_while_the_worst_is_served(owners):
    account = Account(4 * MIB)
    account.hold(owners[0], 4 * MIB, 0.0)
    owners[0].is_evictable = False
    account.hold(owners[1], 2 * MIB, 1.0)
    assert evicted(account, 1.0) == "b"
