"""Elections on request, and those that keep leadership spread (reference B.13).

A preferred election lets the first assigned replica lead where it can. An unclean one lets anybody lead who is alive
where there is no leader. Both are asked for through ElectLeaders, preferred ones also at
/admin/preferred_replica_election, as older tools do; and where a broker leads too little of what it should, the
controller holds them by itself.
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
    """Hold elections where they are needed, and say who leads."""
    outcomes: dict[TopicPartition, int | PartitionRefused] = {}
    electable = []
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
    """The leader, if it is such a one as the election is to bring; of an unclean one, any that will go on to live."""
    partition = context.image.partition(topic_partition)
    leader = None if partition.leadership is None else partition.leadership.state.leader
    if unclean:
        return leader if leader in context.image.brokers and leader not in context.image.shutting_down else None
    return leader if partition.replicas and leader == partition.replicas[0] else None


def _outcome(context: ControllerContext, topic_partition: TopicPartition, *, unclean: bool) -> int | PartitionRefused:
    leader = None
    if context.image.find_partition(topic_partition) is not None:
        leader = _is_led(context, topic_partition, unclean=unclean)
    if leader is not None:
        return leader
    code, strategy = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "PreferredReplicaPartitionLeaderElectionStrategy"
    if unclean:
        code, strategy = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "OfflinePartitionLeaderElectionStrategy(true)"
    return PartitionRefused(code, f"Failed to elect leader for partition {topic_partition} under strategy {strategy}")


async def preferred_elections_touched(context: ControllerContext, event: PreferredElectionsTouched) -> None:
    """Hold the elections that were asked for in the store; no client waits for the outcome."""
    path = paths.PREFERRED_REPLICA_ELECTION
    if await context.store.exists(path, context.watch(event)) is None:
        return
    try:
        data, _ = await context.store.get(path)
    except NoNode:
        return
    asked = loading.parse(PartitionList.decode, data, path)
    if asked is not None:
        await _elect_preferred(context, asked.partitions)
        await context.write([[Delete(path)]])


async def rebalance_due(context: ControllerContext, event: RebalanceDue) -> None:
    """Give brokers back what they should lead, where they lack more than `leader.imbalance.per.broker.percentage`."""
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
    for part in in_slices(dict.fromkeys(topic_partitions), COUNTED_A_SLICE):
        electable += [each for each in part if _why_not(context, each, unclean=False) is None]
        await trio.lowlevel.checkpoint()
    await context.elect(electable, Decision(), choose=decide_preferred_leaders)
