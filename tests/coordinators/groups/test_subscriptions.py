"""Which topics a generation subscribes to: read once, in steps, in bounded memory."""

import struct

import pytest
import trio

from barnabas.coordinators.groups.classic.subscriptions import BYTES_MAX, EVERYTHING, TOPICS_MAX, reading
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.world.pacing import complete_inline
from tests.broker.steps import StepMeter, outside_steps
from tests.coordinators.groups.asking import beat, commit, error_of, fetch, group_of, join, offsets_of, sync


def subscription(*topics, user_data=None):
    return b"\0\0" + m.encode(m.ConsumerProtocolSubscription(topics=list(topics), user_data=user_data), 0)


def topics_in(*subscriptions):
    return complete_inline(reading(subscriptions))


def test_the_topics_of_all_members_are_found():
    topics = topics_in(subscription("orders", "bills"), subscription("orders"), subscription("mail", user_data=b"x"))
    assert [name in topics for name in ("orders", "bills", "mail", "order", "")] == [True, True, True, False, False]
    assert "orders" not in topics_in(subscription())
    assert "orders" not in topics_in()


def test_later_versions_are_read_as_well():
    latest = m.ConsumerProtocolSubscription.MAX_VERSION
    owned = m.encode(m.ConsumerProtocolSubscription(topics=["orders"], generation_id=7), latest)
    topics = topics_in(struct.pack(">h", latest) + owned)
    assert "orders" in topics
    assert "bills" not in topics


@pytest.mark.parametrize(
    "subscriptions",
    [
        [b""],
        [b"?"],
        [subscription("orders"), subscription("orders")[:-1]],
        [struct.pack(">hi", 0, 1 << 30)],
        [subscription(*(str(number) for number in range(TOPICS_MAX + 1)))],
        [subscription("orders", user_data=bytes((number,)) * (BYTES_MAX // 3)) for number in range(3)],
    ],
)
def test_of_what_cannot_be_read_or_is_too_much_any_topic_may_be_in_use(subscriptions):
    assert topics_in(*subscriptions) is EVERYTHING


def test_many_members_with_the_same_subscription_are_not_too_much():
    topics = topics_in(*[subscription("orders", user_data=bytes(BYTES_MAX // 3))] * 100)
    assert "orders" in topics
    assert "bills" not in topics


def test_a_subscription_of_very_many_names_is_read_in_steps():
    names = [str(number) for number in range(TOPICS_MAX)]
    assert sum(1 for _ in reading([subscription(*names)])) > 20


# -- in a coordinator


async def house_with_a_meter(open_house, **settings):
    """A house, what goes into its threads, and a meter of the steps outside of them."""
    house, threads, meter = await open_house(settings=settings), [], StepMeter()
    in_thread = house.world.in_request_thread

    async def noting(function, *args):
        threads.append(function)
        with outside_steps():
            return await in_thread(function, *args)

    house.world.in_request_thread = noting
    house.know_topic("u", 1)
    return house, threads, meter


async def stable_member(house, metadata):
    """The answer to the JoinGroup of a member that subscribes so, alone in its group, which is Stable."""
    request = join()
    request.protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=metadata)]
    joined = await house.ask(request, 3)
    assert (await house.ask(sync(joined))).error_code == 0
    for topic in ("t", "u"):
        answer = await house.ask(commit(5, member_id=joined.member_id, generation=1, topic=topic))
        assert error_of(answer) == 0
    return joined


async def delete(house, topic):
    """The error code of OffsetDelete for one partition of this topic."""
    partition = m.OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=0)
    topics = [m.OffsetDeleteRequest.OffsetDeleteRequestTopic(name=topic, partitions=[partition])]
    return error_of(await house.ask(m.OffsetDeleteRequest(group_id="g", topics=topics)))


def long_subscription(count):
    """Of topic "t" and many that do not exist."""
    return subscription("t", *(str(number) for number in range(count)))


async def test_a_small_subscription_is_read_without_a_thread(open_house, autojump_clock):
    house, threads, _ = await house_with_a_meter(open_house)
    await stable_member(house, subscription("t"))
    assert await delete(house, "t") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(house, "u") == 0
    assert threads == []


async def test_a_long_subscription_is_read_in_a_thread_and_once_in_a_generation(open_house, autojump_clock):
    house, threads, meter = await house_with_a_meter(open_house)
    joined = await stable_member(house, long_subscription(15_000))
    with meter:
        assert await delete(house, "t") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        read = len(threads)
        assert read > 0
        assert await delete(house, "u") == 0
        assert len(threads) == read
    meter.check()
    again = join(joined.member_id)
    again.protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("u"))]
    assert (await house.ask(again)).generation_id == 2
    assert await delete(house, "t") == 0


async def test_a_generation_that_begins_while_the_last_one_is_read_counts(open_house, autojump_clock):
    house, threads, _ = await house_with_a_meter(open_house)
    joined = await stable_member(house, long_subscription(15_000))
    threads.clear()
    in_thread = house.world.in_request_thread

    async def another_generation(function, *args):
        if not threads:
            again = join(joined.member_id)
            again.protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("u"))]
            threads.append(None)
            await house.ask(again)
        return await in_thread(function, *args)

    house.world.in_request_thread = another_generation
    assert await delete(house, "u") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(house, "t") == 0


@pytest.mark.parametrize("names", [10, 15_000])
async def test_offsets_of_topics_that_are_not_read_expire_without_a_long_step(open_house, autojump_clock, names):
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
    house, threads, meter = await house_with_a_meter(open_house, **settings)
    joined = await stable_member(house, long_subscription(names))
    with meter:
        for _ in range(10):
            await house.ask(beat(joined))
            await trio.sleep(7)
    meter.check()
    assert len(threads) < 20
    assert offsets_of(await house.ask(fetch(0, topic="t"))) == {0: 5}
    assert offsets_of(await house.ask(fetch(0, topic="u"))) == {0: -1}


async def test_a_loaded_group_reads_what_it_subscribes_to_in_the_same_way(open_house, autojump_clock):
    house, _, _ = await house_with_a_meter(open_house)
    await stable_member(house, long_subscription(15_000))
    again = await open_house(house.disk.crash_process(), leader_epoch=2)
    again.know_topic("u", 1)
    await trio.sleep(1)
    assert group_of(again).subscribed is None
    assert await delete(again, "t") == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert await delete(again, "u") == 0
