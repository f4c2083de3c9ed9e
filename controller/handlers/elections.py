"""Elections on request, and the preferred elections that balance leadership (reference B.13).

A preferred election makes the first assigned replica the leader if it is in sync. An unclean election makes any live
replica the leader of a partition without one. Clients request both by ElectLeaders. Older tools request preferred
elections at /admin/preferred_replica_election, and the controller starts them itself if a broker leads too few of its
preferred partitions.
"""

import logging
from collections.abc import Iterable

import trio

from barnabas.controller.context import ControllerContext
from barnabas.controller.decide.leaders import Balance, decide_leaders_at_any_price, decide_preferred_leaders
from barnabas.controller.decide.reassignments import NO_SUCH_PARTITION, PartitionRefused
from barnabas.controller.decide.slices import in_slices
from barnabas.controller.decide.steps import Decision
from barnabas.controller.events import ElectionAsked, PreferredElectionsTouched, RebalanceDue
from barnabas.controller.image import loading
from barnabas.controller.store import paths
from barnabas.controller.store.paths import PartitionList
from barnabas.controller.store.store import Delete, NoNode
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition

logger = logging.getLogger(__name__)

COUNTED_A_SLICE = 500  # partitions that are only looked at, before other tasks get a turn: about a millisecond

BEING_DELETED = PartitionRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
NOT_NEEDED = PartitionRefused(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")


async def election_asked(context: ControllerContext, event: ElectionAsked) -> None:
    """Elect where it is needed and possible, and answer with the leaders."""
    outcomes: dict[TopicPartition, int | PartitionRefused] = {}
    electable = []

    # A request for all topics names every partition of the cluster, so other tasks run after each slice.
    for part in in_slices(event.topic_partitions, COUNTED_A_SLICE):
        for topic_partition in part:
            refused = _why_not(context, topic_partition, unclean=event.unclean)
            if refused is None:
                electable.append(topic_partition)
            else:
                outcomes[topic_partition] = refused
        await trio.lowlevel.checkpoint()

    choose = decide_leaders_at_any_price if event.unclean else decide_preferred_leaders
    await context.elect(electable, Decision(), choose=choose)

    # The outcome is what the image has now, not what was decided: if another broker has written a state in between, the
    # decision was made again on that state, and possibly there was nothing left to elect.
    for part in in_slices(electable, COUNTED_A_SLICE):
        outcomes |= {each: _outcome(context, each, unclean=event.unclean) for each in part}
        await trio.lowlevel.checkpoint()
    event.answer({topic_partition: outcomes[topic_partition] for topic_partition in event.topic_partitions})


def _why_not(context: ControllerContext, topic_partition: TopicPartition, *, unclean: bool) -> PartitionRefused | None:
    if context.image.find_partition(topic_partition) is None:
        return NO_SUCH_PARTITION
    if context.image.is_deleting(topic_partition.topic):
        return BEING_DELETED
    return NOT_NEEDED if _is_led(context, topic_partition, unclean=unclean) is not None else None


def _is_led(context: ControllerContext, topic_partition: TopicPartition, *, unclean: bool) -> int | None:
    """The current leader if the election is not needed, or has succeeded; otherwise None.

    For a preferred election that is the preferred replica, for an unclean one any live broker.
    """
    partition = context.image.partition(topic_partition)
    leader = None if partition.leadership is None else partition.leadership.state.leader
    # As in Kafka, a leader that is shutting down does not count as live.
    if unclean:
        return leader if leader in context.image.brokers and leader not in context.image.shutting_down else None
    return leader if partition.replicas and leader == partition.replicas[0] else None


def _outcome(context: ControllerContext, topic_partition: TopicPartition, *, unclean: bool) -> int | PartitionRefused:
    leader = None
    if context.image.find_partition(topic_partition) is not None:
        leader = _is_led(context, topic_partition, unclean=unclean)
    if leader is not None:
        return leader
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    strategy = "PreferredReplicaPartitionLeaderElectionStrategy"
    if unclean:
        code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        strategy = "OfflinePartitionLeaderElectionStrategy(true)"
    return PartitionRefused(code, f"Failed to elect leader for partition {topic_partition} under strategy {strategy}")


async def preferred_elections_touched(context: ControllerContext, event: PreferredElectionsTouched) -> None:
    """Hold the elections that an older tool requested in the store; no client waits for the outcome."""
    path = paths.PREFERRED_REPLICA_ELECTION
    # `exists` and not `get`: only `exists` sets a watch while the node is absent, as it usually is.
    if await context.store.exists(path, context.watch(event)) is None:
        return
    try:
        data, _ = await context.store.get(path)
    except NoNode:
        return
    asked = loading.parse(PartitionList.decode, data, path)
    # A malformed node stays: the watch fires when a person removes or replaces it.
    if asked is not None:
        await _elect_preferred(context, asked.partitions)
        # The node is removed last, so that a new controller repeats the elections if this one
        # fails before; elections that have succeeded change nothing then. The tools cannot have
        # replaced the node meanwhile: they only create it, and refuse if it exists.
        await context.write([[Delete(path)]])


async def rebalance_due(context: ControllerContext, event: RebalanceDue) -> None:
    """Elect preferred leaders for brokers whose imbalance exceeds `leader.imbalance.per.broker.percentage`."""
    balance = Balance(context.image)
    for part in in_slices(context.image.partitions(), COUNTED_A_SLICE):
        for topic_partition, partition in part:
            balance.count(topic_partition, partition)
        await trio.lowlevel.checkpoint()
    imbalanced = balance.to_restore(context.config.leader_imbalance_per_broker_percentage)
    if imbalanced:
        logger.info("%d partitions are not led by their preferred replicas", len(imbalanced))
        await _elect_preferred(context, imbalanced)


async def _elect_preferred(context: ControllerContext, topic_partitions: Iterable[TopicPartition]) -> None:
    electable: list[TopicPartition] = []
    # A partition that is named twice would be decided on twice, and the second write would fail: its expected version
    # is the one before the first.
    for part in in_slices(dict.fromkeys(topic_partitions), COUNTED_A_SLICE):
        electable += [each for each in part if _why_not(context, each, unclean=False) is None]
        await trio.lowlevel.checkpoint()
    await context.elect(electable, Decision(), choose=decide_preferred_leaders)
