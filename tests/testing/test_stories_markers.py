"""Stories about the markers of transactions."""

import pytest
import trio

from barnabas.testing.simulation.bugs import planted
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.marker_bugs import MARKER_BUGS
from barnabas.testing.simulation.transactional import TransactionalPlan, TransactionalWriter
from barnabas.wire.topics import TopicPartition
from tests.testing.stage import play, watch

TRANSACTION_ID, TRANSACTIONAL_ID_KEY = "id", 1


async def a_partition_without_a_leader(stage):
    """The only replica of a partition is down while a transaction with records in it is committed."""
    history = History(stage.cluster.now_ms)
    partition = TopicPartition("t", 0)
    plan = TransactionalPlan(TRANSACTION_ID, [partition], timeout_ms=60_000)
    writer = TransactionalWriter(stage.client, history, plan, stage.checks.transactions)
    writer.calm()
    await writer.init(recovers=False)
    coordinator = await stage.coordinator(TRANSACTION_ID, TRANSACTIONAL_ID_KEY)
    place = next(each for each in (1, 2, 3) if each != coordinator)
    await stage.open("t", replicas=[place])

    attempt = writer.begin()
    await writer.add(attempt, [partition])
    await writer.write(attempt, partition)
    end = stage.end(place)
    stage.kill(place)
    await stage.until(lambda: stage.state.leader == -1)
    await writer.end(attempt, commit=True)
    await trio.sleep(5)
    await stage.start(place)
    await stage.until(lambda: stage.leads(place) and stage.end(place) > end)


STORIES = {a_partition_without_a_leader: "dropped_markers"}  # with the planted bug that each one finds
PROPERTIES = {"transaction_state_log_num_partitions": "1", "transaction_state_log_replication_factor": "3"}


@pytest.mark.parametrize("story", STORIES)
def test_a_story_about_markers_breaks_no_rule(story):
    play(story, **PROPERTIES)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("story", STORIES)
def test_the_bug_that_a_story_of_markers_is_about_is_caught(story, seed):
    with planted([STORIES[story]], MARKER_BUGS):
        checks, _, failure = watch(story, seed=seed, **PROPERTIES)
    assert checks.violations or failure


def test_every_bug_of_markers_has_its_story():
    assert set(STORIES.values()) == MARKER_BUGS.keys()
