"""Deleting topics that are marked for it (reference B.11).

The marker is a node and outlives controllers; the rest of a deletion's state is rebuilt from it. First all brokers are
sent UpdateMetadata without the topic, then the brokers with replicas StopReplica, and when all have answered, the
topic's nodes are removed, the marker last. A replica on a dead broker or a failed disk halts the deletion of its topic
until a broker with a replica joins, or notifies the controller of its log directories.
"""

import logging

import trio

from barnabas.controller.context import ControllerContext
from barnabas.controller.decide.replicas import decide_deletion_answers, decide_deletions
from barnabas.controller.decide.requests import deleted_partitions
from barnabas.controller.decide.steps import Decision
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
    """Begin the deletion of topics that were marked."""
    await read_deletion_marks(context)
    await go_on_deleting(context)


async def stop_replica_answered(context: ControllerContext, event: StopReplicaAnswered) -> None:
    """A broker has deleted replicas, or could not delete them."""
    # An answer of an earlier registration does not count. When that registration ended, the
    # deletion of these replicas was halted, and when the broker joined again it was sent a new
    # StopReplica.
    if not context.image.is_current(event.broker):
        return

    # The request says which replicas were to be deleted. The response also lists those that only stop, and it lists
    # none if the request was refused as a whole.
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
        first = failed[0]
        why = error_name(codes[failed[0]])
        logger.warning("broker %d could not delete %d replicas, %s first: %s", broker_id, len(failed), first, why)

    await context.commit(decide_deletion_answers(context.image, broker_id, deleted, failed))

    # This may have been the last answer that a topic waited for.
    await go_on_deleting(context)


async def read_deletion_marks(context: ControllerContext) -> None:
    """Read the markers; remove those of topics that do not exist, and all of them if deletion is disabled."""
    marked = await context.store.children(paths.DELETE_TOPICS, context.watch(DeletionMarksTouched()))
    if any(topic not in context.image.topics for topic in marked):
        # The topic may have been created so recently that its event is still in the queue. To
        # remove the marker then would lose the request to delete it. No watch is set here: the
        # queued event sets it.
        await compare_topics(context, await context.store.children(paths.TOPICS))
    enabled = context.config.delete_topic_enable
    kept = {topic: None for topic in marked if enabled and topic in context.image.topics}
    await context.write([[Delete(paths.delete_topic(topic))] for topic in marked if topic not in kept])
    # If the deletion is in progress already, to mark the topic again would reset its progress.
    for topic in kept:
        if not context.image.is_deleting(topic):
            logger.info("deleting topic %s", topic)
            context.replay(DeletionMarked(topic))


async def go_on_deleting(context: ControllerContext) -> None:
    """Take the next step of every deletion that does not wait for an answer or a broker."""
    # The loop goes on after a refused removal: it may have to be tried again, and other topics have
    # their next step.
    while context.image.deletions:
        decision = Decision()
        for part in decide_deletions(context.image):
            decision.extend(part)
            await trio.lowlevel.checkpoint()
        refused = await context.commit(decision)
        if not refused:
            return
        for step in refused:
            if isinstance(step.record, TopicDeleted):
                await _remove_by_reading(context, step.record.topic)


async def _remove_by_reading(context: ControllerContext, topic: str) -> None:
    """A deletion was refused because the nodes had changed: remove those that exist now, and then the marker."""
    path = paths.topic(topic)
    marker = paths.delete_topic(topic)
    # If an earlier attempt succeeded and its answer was lost, the topic may have been created
    # again: then its id differs, and nothing of it may be removed.
    found = (await loading.read_topics(context.store, [topic], None)).get(topic)
    is_another = found and (found.assignment.topic_id or ZERO_TOPIC_ID) != context.image.topics[topic].topic_id
    if not is_another:
        # No broker creates the topic as long as the marker exists, so each removal checks the
        # marker: a topic that was created again after these reads keeps its nodes.
        is_marked = await context.store.exists(marker) is not None
        guard = [Check(marker, ANY_VERSION)] if is_marked else []
        below = await loading.subtree(context.store, path)
        await context.write([*guard, Delete(node)] for node in [*below, path])
        # If the topic's node still exists, a node was created below it meanwhile, and the caller
        # tries again. The marker must outlive the topic's node, or a new controller would take the
        # rest for a topic that exists.
        if await context.store.exists(path) is not None:
            return
        await context.write([[Delete(marker)]])
    # This is not TopicDeleted, which demands that every replica was deleted. If the topic was
    # created again, its event follows, and it joins the image as a new one.
    context.replay(TopicGone(topic))
