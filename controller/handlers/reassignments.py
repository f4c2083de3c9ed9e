"""Carrying reassignments through: asked by AlterPartitionReassignments, or in the store as older tools do (B.12).

A reassignment is begun by a request, goes on when the ISR of its partition changes or a broker joins, and
again at the beginning of each term. What was asked for at /admin/reassign_partitions stays there until it is done;
a later request through the API for the same partition takes precedence, and its entry there goes.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from barnabas.controller.context import ControllerContext
from barnabas.controller.decide.leaders import decide_moved_leaders
from barnabas.controller.decide.reassignments import (
    NO_SUCH_PARTITION,
    PartitionRefused,
    decide_added_replicas_online,
    decide_assignments,
    decide_dropped_replicas,
    is_complete,
    plan_move,
)
from barnabas.controller.decide.steps import Decision, Step
from barnabas.controller.events import OngoingReassignmentsAsked, ReassignmentsAsked, ReassignmentsTouched
from barnabas.controller.image import loading
from barnabas.controller.image.state import Assignment, AssignmentsChanged
from barnabas.controller.store import paths
from barnabas.controller.store.paths import Reassignment
from barnabas.controller.store.store import Delete, NodeError, NoNode, Op, SetData
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

logger = logging.getLogger(__name__)

Planned = Mapping[TopicPartition, Assignment]
Outcomes = dict[TopicPartition, PartitionRefused | None]


# Questions -------------------------------------------------------------------------------------------------------


async def reassignments_asked(context: ControllerContext, event: ReassignmentsAsked) -> None:
    """Begin, change or cancel reassignments."""
    outcomes: Outcomes = {}
    planned: dict[TopicPartition, Assignment] = {}
    for topic_partition, target in event.targets.items():
        plan = plan_move(context.image, topic_partition, target)
        if isinstance(plan, PartitionRefused):
            outcomes[topic_partition] = plan
        else:
            planned[topic_partition] = plan
    await _withdraw(context, lambda topic_partition, target: topic_partition in planned)
    outcomes |= await _move(context, planned)
    event.answer({topic_partition: outcomes[topic_partition] for topic_partition in event.targets})


async def ongoing_reassignments_asked(context: ControllerContext, event: OngoingReassignmentsAsked) -> None:
    """Say what is on its way."""
    asked = context.image.moving if event.topic_partitions is None else event.topic_partitions
    moving = (topic_partition for topic_partition in asked if topic_partition in context.image.moving)
    event.answer({each: context.image.partition(each).assignment for each in moving})


# The store's way -------------------------------------------------------------------------------------------------


async def reassignments_touched(context: ControllerContext, event: ReassignmentsTouched) -> None:
    """Begin what was asked for in the store; what cannot be is taken out of there."""
    if await context.store.exists(paths.REASSIGN_PARTITIONS, context.watch(event)) is None:
        return
    found = await _read_requested(context)
    if found is None:
        return
    planned: dict[TopicPartition, Assignment] = {}
    refused: dict[TopicPartition, PartitionRefused] = {}
    for topic_partition, target in found[0].items():
        partition = context.image.find_partition(topic_partition)
        if partition is not None and partition.assignment.is_moving and partition.assignment.target == tuple(target):
            continue  # on its way
        plan = plan_move(context.image, topic_partition, target, to_dead_brokers=True)
        if isinstance(plan, PartitionRefused):
            refused[topic_partition] = plan
        else:
            planned[topic_partition] = plan
    outcomes = await _move(context, planned)
    refused |= {topic_partition: outcome for topic_partition, outcome in outcomes.items() if outcome is not None}
    for topic_partition, why in refused.items():
        logger.warning("%s is not reassigned as %s asks: %s", topic_partition, paths.REASSIGN_PARTITIONS, why.message)
    await _withdraw(context, lambda topic_partition, target: topic_partition in refused)


async def _read_requested(context: ControllerContext) -> tuple[Mapping[TopicPartition, Sequence[int]], int] | None:
    """What is asked for in the store, and the version under which it was read."""
    try:
        data, stat = await context.store.get(paths.REASSIGN_PARTITIONS)
    except NoNode:
        return None
    requested = loading.parse(Reassignment.decode, data, paths.REASSIGN_PARTITIONS)
    return None if requested is None else (requested.partitions, stat.version)


async def _withdraw(context: ControllerContext, is_over: Callable[[TopicPartition, Sequence[int]], bool]) -> None:
    """Take what is over out of the node where it was asked for, and the node when nothing is left in it."""
    while True:
        found = await _read_requested(context)
        if found is None:
            return
        requested, version = found
        left = {each: target for each, target in requested.items() if not is_over(each, target)}
        if left.keys() == requested.keys() and left:
            return
        op: Op = Delete(paths.REASSIGN_PARTITIONS, version)
        if left:
            op = SetData(paths.REASSIGN_PARTITIONS, Reassignment(left).encode(), version)
        (outcome,) = await context.write([[op]])
        if not isinstance(outcome, NodeError):
            return


# The work --------------------------------------------------------------------------------------------------------


async def _move(context: ControllerContext, planned: Planned) -> Outcomes:
    """Write the new assignments, then go on; None for what began."""
    changed = {
        each: assignment
        for each, assignment in planned.items()
        if context.image.partition(each).assignment != assignment
    }
    outcomes: Outcomes = {**dict.fromkeys(planned), **await _write_assignments(context, changed)}
    begun = [topic_partition for topic_partition, outcome in outcomes.items() if outcome is None]
    await go_on_moving(context, begun)
    return outcomes


async def go_on_moving(context: ControllerContext, topic_partitions: Iterable[TopicPartition]) -> None:
    """Complete what can be, or was cancelled; tell everybody of what is on its way."""
    image = context.image
    wanted = [each for each in topic_partitions if not image.is_deleting(each.topic)]
    on_the_way = [each for each in wanted if each in image.moving and not is_complete(image, each)]
    await context.elect(on_the_way, Decision(), choose=decide_moved_leaders)
    await context.commit(decide_dropped_replicas(image, on_the_way))
    complete = [each for each in wanted if each not in image.moving or is_complete(image, each)]
    if complete:
        await _complete(context, complete)


async def complete_moves(context: ControllerContext, topic_partitions: Iterable[TopicPartition]) -> None:
    """The ISRs of these changed: complete what can be."""
    done = [each for each in topic_partitions if each in context.image.moving and is_complete(context.image, each)]
    if done:
        await go_on_moving(context, done)


async def resume_moves(context: ControllerContext, broker_ids: Iterable[int] | None = None) -> None:
    """Go on with every reassignment, or with those that bring partitions to these brokers."""
    joined = None if broker_ids is None else dict.fromkeys(broker_ids)
    await go_on_moving(
        context,
        [
            topic_partition
            for topic_partition in context.image.moving
            if joined is None
            or any(each in joined for each in context.image.partition(topic_partition).assignment.target)
        ],
    )


async def _complete(context: ControllerContext, topic_partitions: list[TopicPartition]) -> None:
    """The target is the assignment from now on; in the store last, so that a fail-over before it repeats all this."""
    image = context.image
    finished = {
        topic_partition: Assignment(image.partition(topic_partition).assignment.target)
        for topic_partition in topic_partitions
    }
    was_moving = {each: assignment for each, assignment in finished.items() if each in image.moving}
    await context.commit(decide_added_replicas_online(image, topic_partitions))
    for topic, assignments in _by_topic(was_moving).items():
        context.replay(AssignmentsChanged(topic, assignments))
    await context.elect(topic_partitions, Decision(), choose=decide_moved_leaders)
    await context.commit(decide_dropped_replicas(image, topic_partitions))
    await _write_assignments(context, was_moving)
    for topic_partition, assignment in finished.items():
        logger.info("%s is on brokers %s now", topic_partition, ", ".join(map(str, assignment.replicas)))
    await _withdraw(context, lambda each, target: each in finished and finished[each].replicas == tuple(target))


async def _write_assignments(context: ControllerContext, planned: Planned) -> Outcomes:
    """Write assignments into their topics' nodes, all of a topic at once; None for what is written."""
    outcomes: Outcomes = dict.fromkeys(planned)
    pending = _by_topic(planned)
    while pending:
        found = await loading.read_topics(context.store, pending, None)
        decision = Decision()
        for topic, assignments in pending.items():
            known = context.image.topics.get(topic)
            step: Step | PartitionRefused = NO_SUCH_PARTITION
            here = found.get(topic)
            if known is not None and here and (here.assignment.topic_id or ZERO_TOPIC_ID) == known.topic_id:
                step = decide_assignments(topic, *here, assignments)
            if isinstance(step, PartitionRefused):
                outcomes |= {TopicPartition(topic, index): step for index in assignments}
            else:
                decision.steps.append(step)
        refused = [step.record for step in await context.commit(decision)]
        pending = {each.topic: pending[each.topic] for each in refused if isinstance(each, AssignmentsChanged)}
    return outcomes


def _by_topic(planned: Planned) -> dict[str, dict[int, Assignment]]:
    topics: dict[str, dict[int, Assignment]] = {}
    for topic_partition, assignment in planned.items():
        topics.setdefault(topic_partition.topic, {})[topic_partition.partition] = assignment
    return topics
