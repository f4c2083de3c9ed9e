"""Deleting topics that are marked for it (reference B.11).

The mark is a node and outlives controllers; everything else of a deletion is rebuilt from it. First all brokers are
sent UpdateMetadata without the topic, then those with replicas StopReplica, and when all have answered, the
topic's nodes are removed and the mark with them. A replica that cannot be reached halts the deletion of its topic until
a broker joins that holds one.
"""

import logging

from barnabas.controller.context import ControllerContext
from barnabas.controller.decide.replicas import decide_deletion_answers, decide_deletions
from barnabas.controller.decide.requests import deleted_partitions
from barnabas.controller.events import DeletionMarksTouched, StopReplicaAnswered
from barnabas.controller.handlers.topics import compare_topics
from barnabas.controller.image import loading
from barnabas.controller.image.state import DeletionMarked, TopicDeleted, TopicGone
from barnabas.controller.store import paths
from barnabas.controller.store.store import ANY_VERSION, Check, Delete
from barnabas.wire.errors import ErrorCode, error_name
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

logger = logging.getLogger(__name__)


async def deletion_marks_touched(context: ControllerContext, event: DeletionMarksTouched) -> None:
    """Begin to delete what was marked."""
    await read_deletion_marks(context)
    await go_on_deleting(context)


async def stop_replica_answered(context: ControllerContext, event: StopReplicaAnswered) -> None:
    """Replicas that are deleted, or could not be."""
    if not context.image.is_current(event.broker):
        return
    errors = {
        TopicPartition(error.topic_name, error.partition_index): error.error_code
        for error in event.response.partition_errors
    }
    refused = event.response.error_code
    codes = {each: refused or errors.get(each, ErrorCode.NONE) for each in deleted_partitions(event.request)}
    failed = [each for each, code in codes.items() if code != ErrorCode.NONE]
    deleted = [each for each, code in codes.items() if code == ErrorCode.NONE]
    broker_id = event.broker.broker_id
    if failed:
        first, why = failed[0], error_name(codes[failed[0]])
        logger.warning("broker %d could not delete %d replicas, %s first: %s", broker_id, len(failed), first, why)
    await context.commit(decide_deletion_answers(context.image, broker_id, deleted, failed))
    await go_on_deleting(context)


async def read_deletion_marks(context: ControllerContext) -> None:
    """Take note of marks; remove those of topics that do not exist, and all when deletion is disabled."""
    marked = await context.store.children(paths.DELETE_TOPICS, context.watch(DeletionMarksTouched()))
    if any(topic not in context.image.topics for topic in marked):
        # Perhaps created so recently that its event is still in the queue; that keeps its watch.
        await compare_topics(context, await context.store.children(paths.TOPICS))
    enabled = context.config.delete_topic_enable
    kept = {topic: None for topic in marked if enabled and topic in context.image.topics}
    await context.write([[Delete(paths.delete_topic(topic))] for topic in marked if topic not in kept])
    for topic in kept:
        if not context.image.is_deleting(topic):
            logger.info("deleting topic %s", topic)
            context.replay(DeletionMarked(topic))


async def go_on_deleting(context: ControllerContext) -> None:
    """The next step of every deletion that can go on."""
    while context.image.deletions:
        refused = await context.commit(decide_deletions(context.image))
        if not refused:
            return
        for step in refused:
            if isinstance(step.record, TopicDeleted):
                await _remove_by_reading(context, step.record.topic)


async def _remove_by_reading(context: ControllerContext, topic: str) -> None:
    """The nodes were not those that we made: remove whatever is there, and the mark once the topic is gone.

    Or it was our own write that removed them, its answer was lost, and the topic was created again: that is another
    one.
    """
    path, marker = paths.topic(topic), paths.delete_topic(topic)
    found = (await loading.read_topics(context.store, [topic], None)).get(topic)
    is_another = found and (found.assignment.topic_id or ZERO_TOPIC_ID) != context.image.topics[topic].topic_id
    if not is_another:
        is_marked = await context.store.exists(marker) is not None
        guard = [Check(marker, ANY_VERSION)] if is_marked else []
        below = await loading.subtree(context.store, path)
        await context.write([*guard, Delete(node)] for node in [*below, path])
        if await context.store.exists(path) is not None:
            return
        await context.write([[Delete(marker)]])
    context.replay(TopicGone(topic))
