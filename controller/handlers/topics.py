"""Topics that appear, grow or vanish in the metadata store (reference A.4, B.3).

Any broker may create a topic or add partitions to one; the controller notices, gives each new partition its first
leader, and tells the brokers that hold it. That is when the topic exists for clients.
"""

import logging
from collections.abc import Iterable, Mapping

from barnabas.controller.admin.create_topics import new_topic_id
from barnabas.controller.context import ControllerContext
from barnabas.controller.decide.leaders import partitions_without_leader
from barnabas.controller.decide.replicas import decide_replicas_of_new_partitions
from barnabas.controller.decide.steps import Decision
from barnabas.controller.events import TopicsTouched, TopicTouched, UncleanElectionAllowed
from barnabas.controller.image import loading
from barnabas.controller.image.state import TopicAppeared, TopicGone
from barnabas.controller.store import paths
from barnabas.controller.store.paths import TopicAssignment
from barnabas.controller.store.store import NodeError, SetData
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

logger = logging.getLogger(__name__)


async def topics_touched(context: ControllerContext, event: TopicsTouched) -> None:
    """Topics that were created get leaders; one whose node was removed is forgotten."""
    await compare_topics(context, await context.store.children(paths.TOPICS, context.watch(event)))


async def compare_topics(context: ControllerContext, names: list[str]) -> None:
    """Bring the image in line with the topics that exist."""
    existing = dict.fromkeys(names)
    for topic in [topic for topic in context.image.topics if topic not in existing]:
        logger.warning("topic %s was removed from the metadata store, not by this controller", topic)
        context.replay(TopicGone(topic))
    await _serve_new_partitions(context, await read_new_topics(context, names))


async def topic_touched(context: ControllerContext, event: TopicTouched) -> None:
    """The topic may have grown."""
    known = context.image.topics.get(event.topic)
    if known is None:
        return
    found = await loading.read_topics(context.store, [event.topic], lambda _: context.watch(event))
    if event.topic not in found:
        return
    assignment = found[event.topic].assignment
    if (assignment.topic_id or ZERO_TOPIC_ID) != known.topic_id:
        logger.warning("topic %s was replaced in the metadata store, not by this controller", event.topic)
        context.replay(TopicGone(event.topic))
        await _serve_new_partitions(context, await _adopt_topics(context, found))
        return
    partitions = loading.appeared_partitions(event.topic, assignment)
    added = [each for each in partitions if each.topic_partition.partition not in known.partitions]
    if added and context.image.is_deleting(event.topic):
        logger.warning("topic %s is being deleted: its new partitions are ignored", event.topic)
        return
    await context.replay_many(added)
    await _serve_new_partitions(context, [each.topic_partition for each in added])


async def read_new_topics(context: ControllerContext, names: Iterable[str]) -> list[TopicPartition]:
    """Read and watch the topics that the image lacks; returns their partitions."""
    new = [name for name in names if name not in context.image.topics]
    watches = {name: context.watch(TopicTouched(name)) for name in new}
    return await _adopt_topics(context, await loading.read_topics(context.store, new, watches.__getitem__))


async def _adopt_topics(context: ControllerContext, found: dict[str, loading.FoundTopic]) -> list[TopicPartition]:
    """Take topics into the image, and return their partitions. One without an id is given one, if our level has ids."""
    partitions: list[TopicPartition] = []
    while found:
        lacking = {
            name: topic
            for name, topic in found.items()
            if topic.assignment.topic_id is None and context.level.topics_have_ids
        }
        ids = await _write_topic_ids(context, lacking)
        for name, topic in found.items():
            topic_id = ids.get(name, topic.assignment.topic_id)
            if topic_id is not None or name not in lacking:
                appeared = loading.appeared_partitions(name, topic.assignment)
                await context.replay_many([TopicAppeared(name, topic_id or ZERO_TOPIC_ID), *appeared])
                partitions += [each.topic_partition for each in appeared]
        refused = [name for name in lacking if name not in ids]  # written in between
        found = await loading.read_topics(context.store, refused, None)
    return partitions


async def _write_topic_ids(context: ControllerContext, topics: Mapping[str, loading.FoundTopic]) -> dict[str, bytes]:
    """Give topics that were created before topic ids existed an id (KIP-516); returns those that were written."""
    ids = {name: new_topic_id(context.rng) for name in topics}
    outcomes = await context.write(
        [SetData(paths.topic(name), _with_id(topic.assignment, ids[name]).encode(), topic.version)]
        for name, topic in topics.items()
    )
    return {
        name: topic_id
        for (name, topic_id), outcome in zip(ids.items(), outcomes, strict=True)
        if not isinstance(outcome, NodeError)
    }


def _with_id(assignment: TopicAssignment, topic_id: bytes) -> TopicAssignment:
    return TopicAssignment(assignment.partitions, topic_id, assignment.adding, assignment.removing)


async def _serve_new_partitions(context: ControllerContext, topic_partitions: list[TopicPartition]) -> None:
    if topic_partitions:
        decision = decide_replicas_of_new_partitions(context.image, topic_partitions)
        await context.elect(topic_partitions, decision)


async def unclean_election_allowed(context: ControllerContext, event: UncleanElectionAllowed) -> None:
    """Elect where only a replica out of sync can lead."""
    waiting = partitions_without_leader(context.image)
    affected = [each for each in waiting if event.topic is None or each.topic == event.topic]
    await context.elect(affected, Decision())
