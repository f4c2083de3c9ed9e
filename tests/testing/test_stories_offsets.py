"""Stories about committed offsets of topics that are deleted, and whose names are taken again."""

import pytest
import trio

from barnabas.testing.simulation.bugs import planted
from barnabas.testing.simulation.offset_bugs import OFFSET_BUGS
from barnabas.testing.simulation.party import Lost
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import GROUP_TOPIC
from tests.testing.stage import play, watch

GROUP = "g"


async def ask_coordinator(stage, request, kind):
    while True:
        try:
            link = await stage.client.broker(await stage.coordinator(GROUP))
            return await link.ask(request, kind)
        except Lost:
            await trio.sleep(0.05)


async def commit(stage, offset: int) -> None:
    row = m.OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name=stage.topic, partitions=[row])
    request = m.OffsetCommitRequest(group_id=GROUP, topics=[topic])
    while (await ask_coordinator(stage, request, m.OffsetCommitResponse)).topics[0].partitions[0].error_code:
        await trio.sleep(0.05)


async def committed(stage) -> int:
    """The committed offset; -1 for none."""
    topic = m.OffsetFetchRequest.OffsetFetchRequestTopics(name=stage.topic, partition_indexes=[0])
    group = m.OffsetFetchRequest.OffsetFetchRequestGroup(
        group_id=GROUP, member_id=None, member_epoch=-1, topics=[topic]
    )
    while True:
        answer = (await ask_coordinator(stage, m.OffsetFetchRequest(groups=[group]), m.OffsetFetchResponse)).groups[0]
        if answer.error_code == ErrorCode.NONE:
            return answer.topics[0].partitions[0].committed_offset
        await trio.sleep(0.05)


async def a_deletion_during_a_load(stage):
    """The coordinator dies; the topic is deleted and made again while the next one loads the groups."""
    await stage.open("t", replicas=[1, 2, 3])
    for number in range(10):
        await stage.write(f"old {number}")
    await commit(stage, 7)
    assert await committed(stage) == 7
    first = await stage.coordinator(GROUP)
    place, second = (each for each in (1, 2, 3) if each != first)
    await stage.reassign([place])
    await stage.until(lambda: stage.in_sync == [place])
    stage.topic = GROUP_TOPIC
    await stage.reassign([first, second])
    await stage.until(lambda: stage.in_sync == sorted([first, second]))
    stage.topic = "t"
    slow = stage.cluster.nodes[second].disk
    slow.slow_seconds = 30.0
    stage.kill(first)
    await stage.until(lambda: stage.leads_offsets(second))
    await stage.delete()
    await stage.open("t", replicas=[place])
    await stage.write("new")
    slow.slow_seconds = 0.0
    assert await committed(stage) == -1


async def a_deletion_that_the_coordinator_misses(stage):
    """It is cut off when the topic is deleted and made again, and hears of the new one by another controller."""
    await stage.open("other", replicas=[1])
    await commit(stage, 1)
    first = await stage.coordinator(GROUP)
    node = stage.cluster.nodes[first]
    while stage.cluster.controller is None or stage.cluster.controller is node:
        for session_id in node.session_ids:
            stage.cluster.store.expire(session_id)
        await trio.sleep(1)
    await stage.until(lambda: stage.leads_offsets(first))
    controller = stage.cluster.controller.broker_id
    (place,) = {1, 2, 3} - {first, controller}
    await stage.open("t", replicas=[place])
    for number in range(10):
        await stage.write(f"old {number}")
    await commit(stage, 7)
    assert await committed(stage) == 7
    stage.cut(first, controller)
    stage.cut(first, place)
    await stage.delete()
    await stage.open("t", replicas=[place])
    await stage.write("new")
    stage.kill(controller)
    await stage.until(lambda: stage.cluster.controller is not None and stage.cluster.controller.broker_id != controller)
    stage.mend(first, controller)
    stage.mend(first, place)
    await stage.until(lambda: stage.known_id(first) == stage.replica(place).log.topic_id)
    assert stage.leads_offsets(first)
    assert await committed(stage) == -1


STORIES = {  # how many replicas the offsets have, and which planted bug the story finds
    a_deletion_during_a_load: ("3", "deaf_while_loading"),
    a_deletion_that_the_coordinator_misses: ("1", "ids_not_compared"),
}


def of_one_partition(replicas: str) -> dict[str, str]:
    return {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": replicas}


@pytest.mark.parametrize("story", STORIES)
def test_a_committed_offset_was_committed_for_the_topic_that_has_its_name(story):
    replicas, _ = STORIES[story]
    play(story, **of_one_partition(replicas))


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("story", STORIES)
def test_the_bug_that_a_story_of_offsets_is_about_is_caught(story, seed):
    replicas, bug = STORIES[story]
    with planted([bug], OFFSET_BUGS):
        checks, _, failure = watch(story, seed=seed, **of_one_partition(replicas))
    assert checks.violations or failure
