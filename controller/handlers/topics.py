"""Topics that are created, extended or removed in the metadata store (reference A.4, B.3).

Any broker may create a topic or add partitions to one; the controller watches the store, elects the first leader of
each new partition, and sends the roles to its brokers. From then on clients see the topic.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from barnabas.controller.admin.create_topics import new_topic_id
from barnabas.controller.context import PARTITIONS_IN_A_BATCH, ControllerContext
from barnabas.controller.decide.leaders import partitions_without_leader
from barnabas.controller.decide.replicas import decide_replicas_of_new_partitions
from barnabas.controller.decide.slices import in_whole_topics
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
    """Topics were created, or their nodes removed."""
    await compare_topics(context, await context.store.children(paths.TOPICS, context.watch(event)))


async def compare_topics(context: ControllerContext, names: list[str]) -> None:
    """Bring the image in line with the topics that exist."""
    existing = dict.fromkeys(names)
    for topic in [topic for topic in context.image.topics if topic not in existing]:
        logger.warning("topic %s was removed from the metadata store, not by this controller", topic)
        context.replay(TopicGone(topic))
    new = await read_new_topics(context, names)
    for topic, count in Counter(each.topic for each in new).items():
        logger.info("topic %s was created, with %d partitions", topic, count)
    await _serve_new_partitions(context, new)


async def topic_touched(context: ControllerContext, event: TopicTouched) -> None:
    """A topic's node was written or removed: it may have more partitions."""
    known = context.image.topics.get(event.topic)

    # The topic was deleted, or is not read yet: creation and removal are events of their own,
    # `TopicsTouched`.
    if known is None:
        return
    found = await loading.read_topics(context.store, [event.topic], lambda _: context.watch(event))
    if event.topic not in found:
        return
    assignment = found[event.topic].assignment

    # The topic was removed and created again before this event was handled: the new one's
    # partitions have other logs, so nothing of the former one may stay in the image.
    if (assignment.topic_id or ZERO_TOPIC_ID) != known.topic_id:
        logger.warning("topic %s was replaced in the metadata store, not by this controller", event.topic)
        context.replay(TopicGone(event.topic))
        await _serve_new_partitions(context, await _adopt_topics(context, found))
        return

    # Partitions that the image has are left out: a changed assignment is this controller's own
    # write, which is in the image already. A change that was made by hand counts from the next
    # term on.
    partitions = loading.appeared_partitions(event.topic, assignment)
    added = [each for each in partitions if each.topic_partition.partition not in known.partitions]

    # The new partitions have no logs and no state nodes yet, and their entries are removed with
    # the topic's node.
    if added and context.image.is_deleting(event.topic):
        logger.warning("topic %s is being deleted: its new partitions are ignored", event.topic)
        return
    await context.replay_many(added)
    if added:
        logger.info("topic %s has %d partitions, %d of them new", event.topic, len(known.partitions), len(added))
    await _serve_new_partitions(context, [each.topic_partition for each in added])


async def read_new_topics(context: ControllerContext, names: Iterable[str]) -> list[TopicPartition]:
    """Read and watch the topics that the image lacks; returns their partitions."""
    new = [name for name in names if name not in context.image.topics]
    watches = {name: context.watch(TopicTouched(name)) for name in new}
    return await _adopt_topics(context, await loading.read_topics(context.store, new, watches.__getitem__))


async def _adopt_topics(context: ControllerContext, found: dict[str, loading.FoundTopic]) -> list[TopicPartition]:
    """Add topics to the image, and return their partitions. A topic without an id gets one if our version has ids."""
    partitions: list[TopicPartition] = []

    # Each round adds the topics that have their id, or need none. The others are read again:
    # another broker wrote their node between the read and the write of the id.
    while found:
        lacking = {
            name: topic
            for name, topic in found.items()
            if topic.assignment.topic_id is None and context.metadata_version.topics_have_ids
        }
        ids = await _write_topic_ids(context, lacking)

        # The id is in the store before the topic is in the image: roles and metadata carry it, and the brokers write it
        # into their logs, so no later controller may choose another one.
        for name, topic in found.items():
            topic_id = ids.get(name, topic.assignment.topic_id)
            if topic_id is not None or name not in lacking:
                appeared = loading.appeared_partitions(name, topic.assignment)
                await context.replay_many([TopicAppeared(name, topic_id or ZERO_TOPIC_ID), *appeared])
                partitions += [each.topic_partition for each in appeared]
        refused = [name for name in lacking if name not in ids]

        # No watch is set: that of the first read has fired, and its event sets another.
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
    # Replicas are decided slice by slice, with the leaders: one decision about all of them would
    # be one long step.
    for part in in_whole_topics(topic_partitions, PARTITIONS_IN_A_BATCH):
        await context.elect(part, await context.decide(decide_replicas_of_new_partitions, part))


async def unclean_election_allowed(context: ControllerContext, event: UncleanElectionAllowed) -> None:
    """Elect leaders for partitions whose topic now allows unclean elections."""
    # The properties are read by the election itself, only for topics that need an unclean leader.
    waiting = partitions_without_leader(context.image)
    affected = [each for each in waiting if event.topic is None or each.topic == event.topic]
    await context.elect(affected, Decision())
