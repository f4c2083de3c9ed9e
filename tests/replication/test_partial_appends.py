"""What a follower says of itself while it appends a response: after a part of it, and while a checkpoint is written."""

import trio

from tests.broker.replica_group import Group


async def test_a_follower_goes_on_after_a_part_of_a_response_is_appended(nursery, autojump_clock):
    group = await Group.start(nursery, count=2, log_flush_interval_messages="1")
    topic = group.topic("t", replicas=(1, 2))
    await topic.led_by(1)
    await topic.produce(b"a")
    await topic.is_copied_to(2)

    # The next response has six batches, for which the follower needs several segments.
    await group.stop(2)
    await topic.produce(*[b"%d" % number for number in range(6)])
    await group.start_broker(2, log_segment_bytes="150")
    group.machines[2].disk.fail_next("open", "EMFILE", path_part="00000000000000000003.log")
    await topic.led_by(1)
    await topic.is_copied_to(2, within_seconds=60)
    assert not group.machines[2].broker.replicas.logs.offline_directories
    assert [segment.base_offset for segment in topic.replica(2).log.segments] == [0, 1, 3, 5]


async def test_a_high_watermark_is_never_below_the_log_start_offset(nursery, autojump_clock):
    group = await Group.start(nursery, count=2)
    topic = group.topic("t", replicas=(1, 2))
    await topic.led_by(1)
    await topic.produce(b"a", b"b", b"c")
    await topic.is_copied_to(2)
    group.machines[2].thread_seconds = 0.2
    below = []

    async def look():
        while True:
            replica = topic.replica(2)
            if replica.high_watermark < replica.log.log_start_offset:
                below.append((replica.high_watermark, replica.log.log_start_offset))
            await trio.sleep(0.01)

    nursery.start_soon(look)
    for _ in range(3):
        await topic.produce(b"d", acks=-1)
        await topic.delete_records(topic.replica(1).high_watermark)
        await trio.sleep(1)
    assert topic.replica(2).log.log_start_offset == 6
    assert below == []
