"""Stories about logs: moved between directories or lost with one, compacted, and searched for a batch."""

import pytest
import trio

from barnabas.testing.simulation.bugs import planted
from barnabas.testing.simulation.leader_rules import SETTLED_SECONDS
from barnabas.testing.simulation.log_bugs import LOG_BUGS
from barnabas.wire.records import build_batch
from tests.testing.stage import play, watch

PATHS = ("/data-a", "/data-b")
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "150",
    "min_cleanable_dirty_ratio": "0",
    "delete_retention_ms": "0",
}
SLOWLY, AT_ONCE = "20", "1000000"
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def other(path: str) -> str:
    return PATHS[path == PATHS[0]]


async def a_part_is_copied(stage, broker_id):
    target = other(stage.directory(broker_id))
    await stage.move(broker_id, target)
    await stage.until(lambda: stage.future(broker_id) is not None and stage.future(broker_id).log_end_offset > 0)
    return target


async def a_deleted_key_in_a_half_copied_table(stage):
    """A table moves; the target fails when a part is copied; the source is compacted; the target works again."""
    await stage.open("t", replicas=[1], **COMPACTED)
    await stage.write("secret", key="K")
    for number in range(30):
        await stage.write(f"filler {number}", key=f"key {number}")
    target = await a_part_is_copied(stage, 1)
    node = stage.cluster.nodes[1]
    node.disk.fail_next("write", path_part=target)
    await stage.until(lambda: node.has_lost_a_directory)
    await stage.write(None, key="K")
    number = 0
    while {"secret", None} & set(stage.values(1)):  # until the tombstone is compacted away as well
        number += 1
        await stage.write(f"more {number}", key=f"key {number % 12}")
        await trio.sleep(1)
    await stage.finish(1)
    node.properties[RATE] = AT_ONCE
    await stage.start(1)
    await stage.until(lambda: stage.future(1) is None or stage.directory(1) == target)
    await stage.write("last", key="L")


async def a_topic_that_is_replaced_during_a_move(stage):
    """Its broker dies during a move, and is without the source when it is back; another topic has the name by then."""
    await stage.open("t", replicas=[1, 2])
    for number in range(5):
        await stage.write(f"old {number}")
    source = stage.directory(1)
    await a_part_is_copied(stage, 1)
    stage.kill(1)
    await stage.reassign([2, 3])
    await stage.until(lambda: stage.in_sync == [2, 3])
    await stage.delete()
    node = stage.cluster.nodes[1]
    node.disk.fail_next("list", path_part=source)
    node.properties[RATE] = AT_ONCE
    await stage.start(1)
    await stage.open("t", replicas=[1, 2])
    for number in range(8):
        await stage.write(f"new {number}")
    await stage.until(lambda: stage.in_sync == [1, 2])
    await trio.sleep(5)  # for a move that would go on
    await stage.finish(1)
    await stage.start(1)
    await stage.until(lambda: stage.in_sync == [1, 2])
    assert stage.values(1) == stage.values(2) == [f"new {number}" for number in range(8)]


async def a_start_without_a_directory(stage):
    """A leader is started again without the directory of its log, while there is no controller that could notice."""
    controller = stage.cluster.controller.broker_id
    leader, follower = (each for each in (1, 2, 3) if each != controller)
    await stage.open("t", replicas=[leader, follower, controller], min_insync_replicas="2")
    written = [f"{number}" for number in range(5)]
    for value in written:
        await stage.write(value)
    node, lost = stage.cluster.nodes[leader], stage.directory(leader)
    await trio.sleep(SETTLED_SECONDS)
    stage.kill(controller)
    await stage.finish(leader)
    stage.checks.lost_directory(leader, lost)
    node.properties["log.dirs"] = other(lost)
    await stage.start(leader)
    assert stage.in_sync == [1, 2, 3]
    await stage.until(lambda: stage.cluster.controller is not None and stage.in_sync != [1, 2, 3])
    await stage.start(controller)
    await stage.until(lambda: stage.in_sync == [1, 2, 3])
    assert await stage.read() == written


async def a_topic_that_is_compacted_by_mistake(stage):
    """Records without keys; cleanup.policy is changed, and set back while the first pass runs."""
    await stage.open("t", replicas=[1], segment_bytes="500", min_cleanable_dirty_ratio="0")
    stage.checks.truths.compacted_topics.add("t")
    for number in range(60):
        await stage.write(f"{number}")
    await stage.configure(cleanup_policy="compact")
    await stage.until(lambda: stage.replica(1).log.is_being_cleaned)
    await stage.configure(cleanup_policy="delete")
    await trio.sleep(60)
    assert stage.values(1) == [f"{number}" for number in range(60)]


async def a_new_topic_during_a_slow_sync(stage):
    """A move is about to end, and waits for a device with much to write; a topic is created meanwhile."""
    await stage.open("t", replicas=[1], segment_bytes="150")
    for number in range(5):
        await stage.write(f"{number}")
    await stage.until(lambda: stage.replica(1).log.recovery_point > 0)
    stage.cluster.nodes[1].disk.slow_sync_seconds = 20.0
    moved_to = other(stage.directory(1))
    await stage.move(1, moved_to)
    await trio.sleep(1)
    assert stage.directory(1) != moved_to, "the sync is not over"
    began = stage.now
    await stage.open("other", replicas=[1])
    await stage.write("served")
    assert stage.now - began < 1


async def a_retry_of_an_old_batch(stage):
    """Seven batches are answered and then the first one comes again, whose answer was lost."""
    await stage.open("t", replicas=[1, 2, 3])
    batches = [
        build_batch(
            [(None, b"%d" % number)],
            timestamp_ms=stage.cluster.now_ms(),
            producer_id=7,
            producer_epoch=0,
            base_sequence=number,
        )
        for number in range(7)
    ]
    offsets = [await stage.send(batch) for batch in batches]
    assert offsets == [*range(7)]
    assert await stage.send(batches[0]) == 0
    assert stage.end(1) == 7


DIRECTORIES = {"log_dirs": ",".join(PATHS)}
SLOW_MOVES = DIRECTORIES | {"replica_alter_log_dirs_io_max_bytes_per_second": SLOWLY}
STORIES = {  # how many brokers, their properties, and which planted bug the story finds
    a_deleted_key_in_a_half_copied_table: (1, SLOW_MOVES | {"log_cleaner_backoff_ms": "1000"}, "continued_copy"),
    a_topic_that_is_replaced_during_a_move: (3, SLOW_MOVES, "copy_by_name"),
    a_new_topic_during_a_slow_sync: (1, DIRECTORIES, "lock_over_swaps"),
    a_start_without_a_directory: (3, DIRECTORIES | {"controlled_shutdown_enable": "false"}, "forgotten_siblings"),
    a_retry_of_an_old_batch: (3, {}, "forgotten_batches"),
    a_topic_that_is_compacted_by_mistake: (
        1,
        {"log_cleaner_backoff_ms": "1000", "log_cleaner_io_max_bytes_per_second": "100"},
        "lasting_permit",
    ),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_story_about_logs_breaks_no_rule(story):
    brokers, properties, _ = STORIES[story]
    play(story, brokers=brokers, **properties)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("story", STORIES)
def test_the_bug_that_a_story_is_about_is_caught(story, seed, mistakes):
    brokers, properties, bug = STORIES[story]
    with planted([bug], LOG_BUGS):
        checks, _, failure = watch(story, brokers=brokers, seed=seed, **properties)
    assert checks.violations or failure
    mistakes.take()  # some bugs are caught by their tracebacks


def test_every_bug_of_logs_has_its_story():
    assert {bug for _, _, bug in STORIES.values()} == LOG_BUGS.keys()
