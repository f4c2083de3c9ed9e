"""Carries out reassignments requested by AlterPartitionReassignments or, by older tools, in the store (B.12).

A reassignment begins with a request. It continues when the ISR of its partition changes, when a broker joins, and at
the beginning of each term. An entry of /admin/reassign_partitions stays there until it is completed or refused.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

import trio

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
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.decide.steps import Decision, Step
from barnabas.controller.events import OngoingReassignmentsAsked, ReassignmentsAsked, ReassignmentsTouched
from barnabas.controller.image import loading
from barnabas.controller.image.state import Assignment, AssignmentsChanged
from barnabas.controller.store import paths
from barnabas.controller.store.paths import Reassignment
from barnabas.controller.store.store import Delete, NodeError, NoNode, Op, SetData
from barnabas.wire.topics import ZERO_TOPIC_ID, TopicPartition

LOOKED_AT_A_SLICE = 500  # partitions, before other tasks get a turn: about a millisecond

logger = logging.getLogger(__name__)

Planned = Mapping[TopicPartition, Assignment]
Outcomes = dict[TopicPartition, PartitionRefused | None]


# Requests of clients ---------------------------------------------------------------------------------------------


async def reassignments_asked(context: ControllerContext, event: ReassignmentsAsked) -> None:
    """Begin, change or cancel reassignments."""
    outcomes: Outcomes = {}
    planned: dict[TopicPartition, Assignment] = {}
    # A request may name every partition of the cluster, so other tasks run after each slice, here and below.
    for part in in_slices(event.targets.items()):
        for topic_partition, target in part:
            plan = plan_move(context.image, topic_partition, target)
            if isinstance(plan, PartitionRefused):
                outcomes[topic_partition] = plan
            else:
                planned[topic_partition] = plan
        await trio.lowlevel.checkpoint()
    # The latest request takes precedence, as in Kafka. So entries in the store for these
    # partitions are removed before the new assignments are written: a controller that is elected
    # in between must not find the older target, and replace the new one by it.
    await _withdraw(context, lambda topic_partition, target: topic_partition in planned)
    outcomes |= await _move(context, planned)
    event.answer({topic_partition: outcomes[topic_partition] for topic_partition in event.targets})


async def ongoing_reassignments_asked(context: ControllerContext, event: OngoingReassignmentsAsked) -> None:
    """Answer the ongoing reassignments."""
    asked = context.image.moving if event.topic_partitions is None else event.topic_partitions
    answer: dict[TopicPartition, Assignment] = {}
    for part in in_slices(asked, LOOKED_AT_A_SLICE):
        answer |= {each: context.image.partition(each).assignment for each in part if each in context.image.moving}
        await trio.lowlevel.checkpoint()
    event.answer(answer)


# Requests in the store -------------------------------------------------------------------------------------------


async def reassignments_touched(context: ControllerContext, event: ReassignmentsTouched) -> None:
    """Begin the reassignments in /admin/reassign_partitions; remove invalid ones from the node."""
    # `exists` and not `get`: only `exists` sets a watch while the node is absent, as it usually is.
    if await context.store.exists(paths.REASSIGN_PARTITIONS, context.watch(event)) is None:
        return
    found = await _read_requested(context)
    if found is None:
        return
    planned: dict[TopicPartition, Assignment] = {}
    refused: dict[TopicPartition, PartitionRefused] = {}
    for part in in_slices(found[0].items()):
        for topic_partition, target in part:
            # A reassignment that is in progress is read again when another entry is removed, and
            # by a new controller. To begin it once more would raise the leader epoch and send all
            # roles again.
            if _is_moving_to(context, topic_partition, target):
                continue

            # As in Kafka, a target broker in the store may be dead: the reassignment waits until
            # it joins.
            plan = plan_move(context.image, topic_partition, target, to_dead_brokers=True)
            if isinstance(plan, PartitionRefused):
                refused[topic_partition] = plan
            else:
                planned[topic_partition] = plan
        await trio.lowlevel.checkpoint()

    outcomes = await _move(context, planned)
    refused |= {topic_partition: outcome for topic_partition, outcome in outcomes.items() if outcome is not None}

    # An invalid entry is removed, or the tools would wait for it, and every later controller would refuse it again.
    for topic_partition, why in refused.items():
        logger.warning("%s is not reassigned as %s asks: %s", topic_partition, paths.REASSIGN_PARTITIONS, why.message)
    await _withdraw(context, lambda topic_partition, target: topic_partition in refused)


def _is_moving_to(context: ControllerContext, topic_partition: TopicPartition, target: Sequence[int]) -> bool:
    partition = context.image.find_partition(topic_partition)
    return partition is not None and partition.assignment.is_moving and partition.assignment.target == tuple(target)


async def _read_requested(context: ControllerContext) -> tuple[Mapping[TopicPartition, Sequence[int]], int] | None:
    """The requested reassignments in the store, and the version of the node; None if it is absent or malformed."""
    try:
        data, stat = await context.store.get(paths.REASSIGN_PARTITIONS)
    except NoNode:
        return None
    requested = loading.parse(Reassignment.decode, data, paths.REASSIGN_PARTITIONS)
    return None if requested is None else (requested.partitions, stat.version)


async def _withdraw(context: ControllerContext, is_over: Callable[[TopicPartition, Sequence[int]], bool]) -> None:
    """Remove partitions from /admin/reassign_partitions, and the node when it is empty.

    Those are removed for which `is_over` is true; it is called with a partition and its requested replicas.
    """
    # The write is conditional, and repeated when it is refused: a tool may replace the content at
    # any time, and an entry that was never read must not be lost.
    while True:
        found = await _read_requested(context)
        if found is None:
            return
        requested, version = found
        left = {each: target for each, target in requested.items() if not is_over(each, target)}
        # A write without a change is left out, because each one fires the watch.
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
    """Write the new assignments, then continue; None for the reassignments that began."""
    # An assignment that stays the same is not written: a request may repeat it, or an entry in the
    # store may be one that a former controller completed but did not remove.
    changed: dict[TopicPartition, Assignment] = {}
    # A cancelled reassignment is complete at once, and `_complete` writes it.
    cancelled: dict[TopicPartition, Assignment] = {}
    for part in in_slices(planned.items(), LOOKED_AT_A_SLICE):
        for each, wanted in part:
            is_over = each in context.image.moving and not wanted.is_moving
            if is_over or context.image.partition(each).assignment != wanted:
                (cancelled if is_over else changed)[each] = wanted
        await trio.lowlevel.checkpoint()
    # The node is written before any role is sent: a new controller learns only from the topic's
    # node which replicas are added and which are to be deleted.
    outcomes: Outcomes = {**dict.fromkeys(planned), **await _write_assignments(context, changed)}
    begun = [each for each, outcome in outcomes.items() if outcome is None and each not in cancelled]
    await go_on_moving(context, begun)
    return outcomes | await _complete(context, cancelled)


async def go_on_moving(context: ControllerContext, topic_partitions: Iterable[TopicPartition]) -> None:
    """Complete reassignments that can complete; send the roles of all others."""
    image = context.image
    # A topic that is being deleted is not moved any more: the deletion takes all its replicas.
    wanted = [each for each in topic_partitions if not image.is_deleting(each.topic)]
    ongoing = await _select(wanted, lambda each: each in image.moving and not is_complete(image, each))
    await context.elect(ongoing, Decision(), choose=decide_moved_leaders)
    # This follows the elections: the replicas of a former target are deleted here, and one of them
    # may have been the leader.
    await context.commit(await context.decide(decide_dropped_replicas, ongoing))
    # Which reassignments are complete is determined after the elections, as these may have read an
    # ISR that completes one. A partition that is not in `moving` gets at most another order of
    # replicas.
    finished: dict[TopicPartition, Assignment] = {}
    complete = await _select(wanted, lambda each: each not in image.moving or is_complete(image, each))
    for part in in_slices(complete, LOOKED_AT_A_SLICE):
        finished |= {each: Assignment(image.partition(each).assignment.target) for each in part}
        await trio.lowlevel.checkpoint()
    await _complete(context, finished)


async def complete_moves(context: ControllerContext, topic_partitions: Iterable[TopicPartition]) -> None:
    """Complete those of these partitions whose ISR now has the whole target."""
    image = context.image
    done = await _select(topic_partitions, lambda each: each in image.moving and is_complete(image, each))
    if done:
        await go_on_moving(context, done)


async def resume_moves(context: ControllerContext, broker_ids: Iterable[int] | None = None) -> None:
    """Continue every reassignment, or those with one of these brokers in the target."""
    moving = list(context.image.moving)
    joined = None if broker_ids is None else dict.fromkeys(broker_ids)
    if joined is not None:
        image = context.image
        moving = await _select(
            moving, lambda each: not joined.keys().isdisjoint(image.partition(each).assignment.target)
        )
    await go_on_moving(context, moving)


async def _select(
    topic_partitions: Iterable[TopicPartition], is_wanted: Callable[[TopicPartition], bool]
) -> list[TopicPartition]:
    """Those of these partitions for which `is_wanted` is true; other tasks run in between."""
    selected: list[TopicPartition] = []
    for part in in_slices(topic_partitions, LOOKED_AT_A_SLICE):
        selected += filter(is_wanted, part)
        await trio.lowlevel.checkpoint()
    return selected


async def _complete(context: ControllerContext, finished: Planned) -> Outcomes:
    """Make these the assignments, of targets or, if cancelled, of origins: phase B of `decide/reassignments.py`."""
    topic_partitions = list(finished)
    if not topic_partitions:
        return {}

    # Only nodes of partitions that were moving are written below: the others have been written
    # already, or need no write.
    was_moving = {each: assignment for each, assignment in finished.items() if each in context.image.moving}
    await context.commit(await context.decide(decide_added_replicas_online, topic_partitions))

    # Here, and only here, the image is ahead of the store. The topic's node must be written last: it alone says which
    # replicas are still to be deleted, so a fail-over before that write repeats this whole function; or, after a
    # cancellation that was not answered yet, continues the reassignment.
    for topic, assignments in _by_topic(was_moving).items():
        context.replay(AssignmentsChanged(topic, assignments))
        await trio.lowlevel.checkpoint()

    # The elections precede the deletion: a removed replica may be the leader, and has to leave the
    # ISR before its log is gone.
    await context.elect(topic_partitions, Decision(), choose=decide_moved_leaders)
    await context.commit(await context.decide(decide_dropped_replicas, topic_partitions))
    outcomes = await _write_assignments(context, was_moving)
    for topic_partition, assignment in finished.items():
        logger.info("%s is on brokers %s now", topic_partition, ", ".join(map(str, assignment.replicas)))

    # The entry in /admin/reassign_partitions is removed after the topic's node is written: if this
    # controller fails in between, the next one finds an entry that is completed already, and
    # removes it. An entry with another target is a later request, and stays.
    await _withdraw(context, lambda each, target: each in finished and finished[each].replicas == tuple(target))
    return outcomes


async def _write_assignments(context: ControllerContext, planned: Planned) -> Outcomes:
    """Write assignments into their topics' nodes, all of a topic at once; None for those that were written."""
    outcomes: Outcomes = dict.fromkeys(planned)
    pending = _by_topic(planned)

    # Any broker may add partitions to a topic, which writes the same node. So each attempt reads the nodes and changes
    # only these partitions, under the version that was read.
    while pending:
        found = await loading.read_topics(context.store, pending, None)
        decision = Decision()
        for topic, assignments in pending.items():
            known = context.image.topics.get(topic)
            step: Step | PartitionRefused = NO_SUCH_PARTITION
            here = found.get(topic)

            # If the topic id differs, the topic was removed and created again, and these
            # assignments are not for its partitions.
            if known is not None and here and (here.assignment.topic_id or ZERO_TOPIC_ID) == known.topic_id:
                step = decide_assignments(topic, *here, assignments)
            if isinstance(step, PartitionRefused):
                outcomes |= {TopicPartition(topic, index): step for index in assignments}
            else:
                decision.steps.append(step)

        # If the answer to a write was lost, the store's second attempt is refused, too. The next
        # round then writes the same content.
        refused = [step.record for step in await context.commit(decision)]
        pending = {each.topic: pending[each.topic] for each in refused if isinstance(each, AssignmentsChanged)}

    return outcomes


def _by_topic(planned: Planned) -> dict[str, dict[int, Assignment]]:
    topics: dict[str, dict[int, Assignment]] = {}
    for topic_partition, assignment in planned.items():
        topics.setdefault(topic_partition.topic, {})[topic_partition.partition] = assignment
    return topics
