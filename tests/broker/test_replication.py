"""Followers that copy their leader: catching up, changing leaders, logs that went different ways (KIP-101, KIP-279)."""

import pytest
import trio

from tests.broker.replication import Group


async def started(nursery, **properties):
    group = await Group(nursery, **properties).start()
    return group, group.topic()


# -- copying


async def test_followers_copy_the_leaders_log(nursery, autojump_clock):
    _, topic = await started(nursery)
    await topic.led_by(1)
    await topic.produce(b"a", b"b")
    await topic.is_copied_to(2, 3, within_seconds=2)
    await topic.produce(b"c")
    await topic.is_copied_to(2, 3, within_seconds=2)
    assert topic.values(3) == [b"a", b"b", b"c"]


async def test_a_follower_that_was_away_catches_up(nursery, autojump_clock):
    group, topic = await started(nursery)
    await topic.led_by(1)
    await topic.produce(b"a")
    await topic.is_copied_to(2, 3)
    await group.crash(2)
    await topic.produce(b"b", b"c")
    await group.start_broker(2)
    await topic.tell(2)
    await topic.is_copied_to(2, 3, within_seconds=2)


async def test_a_follower_of_a_leader_that_is_not_alive_waits_until_it_is(nursery, autojump_clock):
    group, topic = await started(nursery)
    await topic.led_by(1)
    await topic.produce(b"a")
    await topic.is_copied_to(2, 3)
    await group.crash(2)
    await topic.led_by(2, to=[1, 3])
    await trio.sleep(60)
    await group.start_broker(2)
    await topic.tell(2)
    await topic.produce(b"b")
    await topic.is_copied_to(1, 3, within_seconds=3)


async def test_a_follower_keeps_trying_when_its_leader_does_not_answer(nursery, autojump_clock):
    group, topic = await started(nursery)
    await topic.led_by(1)
    await topic.is_copied_to(2, 3)
    await group.crash(1)
    await trio.sleep(60)
    await group.start_broker(1)
    await topic.led_by(1)
    await topic.produce(b"a")
    await topic.is_copied_to(2, 3, within_seconds=3)


@pytest.mark.parametrize("level", ["3.9", "3.4", "3.0", "2.7-IV1", "2.7-IV0", "2.2", "2.0"])
async def test_followers_copy_in_the_versions_of_every_level(nursery, autojump_clock, level):
    group, topic = await started(nursery, inter_broker_protocol_version=level)
    await topic.led_by(1)
    await topic.produce(b"a", b"b")
    await topic.is_copied_to(2, 3)
    await group.crash(1)
    await topic.led_by(2)
    await topic.produce(b"c")
    await topic.is_copied_to(3)
    await group.start_broker(1)
    await topic.tell(1)
    await topic.is_copied_to(1, 3)
    assert topic.values(1) == [b"a", b"b", b"c"]


async def test_a_topic_without_an_id_is_fetched_by_its_name(nursery, autojump_clock):
    group, topic = await started(nursery)
    old = group.topic("old", with_id=False)
    for each in (topic, old):
        await each.led_by(1)
        await each.produce(b"a")
    await topic.is_copied_to(2, 3)
    await old.is_copied_to(2, 3)
