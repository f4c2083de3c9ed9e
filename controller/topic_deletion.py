"""Deleting topics that somebody marked (reference B.11).

The mark is a node and outlives controllers; everything else of a deletion is rebuilt from it. First all brokers are
told that the topic is gone, then those that hold replicas are told to delete them, and when all have answered, the
topic's nodes are removed and the mark with them. A replica that cannot be reached halts the deletion of its topic until
a broker joins that holds one.
"""

import logging
from typing import TYPE_CHECKING

from barnabas.controller import loading, paths
from barnabas.controller.decisions import decide_deletion_answers, decide_deletions
from barnabas.controller.events import DeletionMarksTouched, StopReplicaAnswered, error_name
from barnabas.controller.state import DeletionMarked, TopicDeleted, TopicVanished
from barnabas.controller.store import Delete
from barnabas.controller.topic_changes import compare_topics
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

if TYPE_CHECKING:
    from barnabas.controller.controller import Controller

logger = logging.getLogger(__name__)


async def deletion_marks_touched(controller: "Controller", event: DeletionMarksTouched) -> None:
    """Begin to delete what was marked."""
    await read_deletion_marks(controller)
    await go_on_deleting(controller)


async def stop_replica_answered(controller: "Controller", event: StopReplicaAnswered) -> None:
    """Replicas that are deleted, or could not be."""
    if not controller.image.is_current(event.broker):
        return
    errors = {
        TopicPartition(error.topic_name, error.partition_index): error.error_code
        for error in event.response.partition_errors
    }
    deleting = [
        TopicPartition(topic.topic_name, partition.partition_index)
        for topic in event.request.topic_states
        for partition in topic.partition_states
        if partition.delete_partition
    ]
    refused = event.response.error_code
    codes = {each: refused or errors.get(each, ErrorCode.NONE) for each in deleting}
    failed = [each for each, code in codes.items() if code != ErrorCode.NONE]
    deleted = [each for each, code in codes.items() if code == ErrorCode.NONE]
    broker_id = event.broker.broker_id
    if failed:
        first, why = failed[0], error_name(codes[failed[0]])
        logger.warning("broker %d could not delete %d replicas, %s first: %s", broker_id, len(failed), first, why)
    await controller.commit(decide_deletion_answers(controller.image, broker_id, deleted, failed))
    await go_on_deleting(controller)


async def read_deletion_marks(controller: "Controller") -> None:
    """Take note of marks; remove those of topics that do not exist, and all when deletion is disabled."""
    marked = await controller.store.children(paths.DELETE_TOPICS, controller.watch(DeletionMarksTouched()))
    if any(topic not in controller.image.topics for topic in marked):
        # Perhaps created so recently that its event is still in the queue; that keeps its watch.
        await compare_topics(controller, await controller.store.children(paths.TOPICS))
    enabled = controller.config.delete_topic_enable
    kept = {topic: None for topic in marked if enabled and topic in controller.image.topics}
    await controller.write([[Delete(paths.delete_topic(topic))] for topic in marked if topic not in kept])
    for topic in kept:
        if not controller.image.is_deleting(topic):
            logger.info("deleting topic %s", topic)
            controller.replay(DeletionMarked(topic))


async def go_on_deleting(controller: "Controller") -> None:
    """The next step of every deletion that can go on."""
    while controller.image.deletions:
        refused = await controller.commit(decide_deletions(controller.image))
        if not refused:
            return
        for step in refused:
            if isinstance(step.record, TopicDeleted):
                await _remove_by_reading(controller, step.record.topic)


async def _remove_by_reading(controller: "Controller", topic: str) -> None:
    """The nodes were not those that we made: remove whatever is there, and the mark once the topic is gone."""
    path = paths.topic(topic)
    below = await loading.subtree(controller.store, path)
    await controller.write([Delete(node)] for node in [*below, path])
    if await controller.store.exists(path) is None:
        await controller.write([[Delete(paths.delete_topic(topic))]])
        controller.replay(TopicVanished(topic))
