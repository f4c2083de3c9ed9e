"""Who leads, and who is in sync: every decision that writes the state node of a partition (reference B.3, B.5, B.13).

Theory of operation
-------------------
`decide_leaders` is the rule for whatever happens by itself: a new partition, a dead leader, a dead follower, a broker
that returned. It compares the state node with the replicas that are reachable and writes one new state where they
differ; so a broker's death costs one write a partition, and deciding twice changes nothing.

The other functions are for requests: the preferred leader, a leader at any price, a broker without
leadership, a partition on other brokers. All have the same shape, (image, partitions, rules) -> Decision, for the store
may refuse a state that another broker has written, and then the context asks the same function once more
(`ControllerContext.elect`).

A broker that is about to stop is reachable, and keeps what it leads as long as no other replica can; it is not online,
so it is elected for nothing and taken into no ISR.

Difference from Kafka, which reaches the same states by more writes: a dead broker leaves the ISR in the same write that
elects another leader. When every member of an ISR dies at once, the ISR stays as it is, for each of them holds all
acknowledged records; Kafka removes all but one.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from barnabas.controller.decide.bounces import bounced_members, leader_bounced
from barnabas.controller.decide.elections import ELECTIONS, Candidates, Strategy
from barnabas.controller.decide.steps import Decision, Step, Tell, TellLeaderAndIsr, TellStop
from barnabas.controller.image.state import ClusterImage, Leadership, LeadershipChanged, PartitionImage, ReplicaMoved
from barnabas.controller.image.transitions import ReplicaMove, ReplicaStatus
from barnabas.controller.store import paths
from barnabas.controller.store.paths import RECOVERING, PartitionState
from barnabas.controller.store.store import Create, SetData
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition


class LeaderRules(NamedTuple):
    """What an election depends on besides the image."""

    controller_epoch: int
    unclean_topics: Container[str] = ()
    marks_recovery: bool = True  # an unclean leader is RECOVERING: the level of inter-broker requests knows of it


NONE_DISTRUSTED: Mapping[TopicPartition, Mapping[int, None]] = {}

Choose = Callable[[ClusterImage, Iterable[TopicPartition], LeaderRules], Decision]


# By itself -------------------------------------------------------------------------------------------------------


def decide_leaders(
    image: ClusterImage,
    topic_partitions: Iterable[TopicPartition],
    rules: LeaderRules,
    distrusted: Mapping[TopicPartition, Mapping[int, None]] = NONE_DISTRUSTED,
    bounced_leaders: Container[TopicPartition] = (),
) -> Decision:
    """Bring leader and ISR in line with the replicas that are alive. What cannot have a leader stays without.

    `distrusted` members leave the ISR as if they were dead; a leader that bounced and stays gets a new epoch.
    """
    decision = Decision()
    parents: dict[str, None] = {}
    for topic_partition in topic_partitions:
        if image.is_deleting(topic_partition.topic):
            continue
        leadership = image.partition(topic_partition).leadership
        if leadership is None:
            online = image.online_replicas(topic_partition)
            if online:
                parents[paths.partitions(topic_partition.topic)] = None
                parents[paths.partition(*topic_partition)] = None
                decision.steps.append(_first_leader(topic_partition, online, rules))
        else:
            without = distrusted.get(topic_partition, {})
            renewed = topic_partition in bounced_leaders
            step = _next_leader(image, topic_partition, leadership, rules, without, renewed=renewed)
            if step is not None:
                decision.steps.append(step)
    decision.prepare += [(Create(path),) for path in parents]
    return decision


def decide_leaders_of_new_term(written_zxids: Mapping[TopicPartition, int]) -> Choose:
    """The same, at the beginning of a term: who bounced unseen since a state was written is not in sync (bounces.py).

    A state that is written between reading and deciding is judged by when it was read; that errs to the safe side.
    """

    def decide(image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules) -> Decision:
        wanted = list(topic_partitions)
        bounced = {each: bounced_members(image, each, written_zxids[each]) for each in wanted if each in written_zxids}
        leaders = {each for each in bounced if leader_bounced(image, each, written_zxids[each])}
        return decide_leaders(image, wanted, rules, bounced, leaders)

    return decide


def topics_without_clean_leader(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> dict[str, None]:
    """Topics for which it matters now whether they allow unclean elections."""
    return {
        topic_partition.topic: None
        for topic_partition in topic_partitions
        if not image.is_deleting(topic_partition.topic) and _needs_unclean_leader(image, topic_partition)
    }


def partitions_without_leader(image: ClusterImage) -> list[TopicPartition]:
    """Partitions for which an election may succeed when something changed for the better."""
    return list(image.leaderless)


def _needs_unclean_leader(image: ClusterImage, topic_partition: TopicPartition) -> bool:
    leadership = image.partition(topic_partition).leadership
    online = image.online_replicas(topic_partition)
    if leadership is None or not online or leadership.state.leader in image.reachable_replicas(topic_partition):
        return False
    return not any(replica in online for replica in leadership.state.isr)


def _first_leader(topic_partition: TopicPartition, online: Mapping[int, None], rules: LeaderRules) -> Step:
    isr = tuple(online)
    state = PartitionState(leader=isr[0], leader_epoch=0, controller_epoch=rules.controller_epoch, isr=isr)
    return Step(
        LeadershipChanged(topic_partition, Leadership(state, 0)),
        (Create(paths.partition_state(*topic_partition), state.encode()),),
        (TellLeaderAndIsr(topic_partition, isr, is_new=True),),
    )


def _next_leader(
    image: ClusterImage,
    topic_partition: TopicPartition,
    leadership: Leadership,
    rules: LeaderRules,
    without: Mapping[int, None],
    *,
    renewed: bool,
) -> Step | None:
    """The step to a state that fits the live replicas; None when the present one does, and need not be `renewed`."""
    state, reachable = leadership.state, image.reachable_replicas(topic_partition)
    leader, recovery = state.leader, state.leader_recovery_state
    trusted = tuple(replica for replica in state.isr if replica not in without)
    isr = tuple(replica for replica in trusted if replica in reachable)
    if leader not in reachable or leader in without:
        replicas, online = image.partition(topic_partition).replicas, image.online_replicas(topic_partition)
        unclean = topic_partition.topic in rules.unclean_topics
        elected = ELECTIONS[Strategy.OFFLINE](Candidates(replicas, trusted, online, (), unclean))
        if elected is None:
            leader, isr = NO_LEADER, state.isr  # its members are dead, and each holds all acknowledged records
        else:
            leader, isr = elected.leader, elected.isr
            recovery = RECOVERING if elected.unclean and rules.marks_recovery else recovery
    if (leader, isr) == (state.leader, state.isr) and not renewed:
        return None
    changed = state._replace(leader=leader, isr=isr, leader_recovery_state=recovery)
    return next_epoch(
        topic_partition, leadership, changed, rules, (TellLeaderAndIsr(topic_partition, tuple(reachable)),)
    )


def next_epoch(
    topic_partition: TopicPartition,
    leadership: Leadership,
    state: PartitionState,
    rules: LeaderRules,
    tells: tuple[Tell, ...],
) -> Step:
    """The step from what is written to this state, under the next leader epoch."""
    changed = state._replace(leader_epoch=leadership.state.leader_epoch + 1, controller_epoch=rules.controller_epoch)
    return Step(
        LeadershipChanged(topic_partition, Leadership(changed, leadership.partition_epoch + 1)),
        (SetData(paths.partition_state(*topic_partition), changed.encode(), leadership.partition_epoch),),
        tells,
    )


# On demand -------------------------------------------------------------------------------------------------------


def decide_preferred_leaders(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules
) -> Decision:
    """Let the first assigned replica lead where it can and does not."""
    decision = Decision()
    for topic_partition in topic_partitions:
        partition = image.partition(topic_partition)
        if partition.leadership is None or not can_preferred_lead(image, topic_partition):
            continue
        state, preferred = partition.leadership.state, partition.replicas[0]
        if state.leader != preferred:
            tells = (TellLeaderAndIsr(topic_partition, partition.replicas),)
            changed = state._replace(leader=preferred)
            decision.steps.append(next_epoch(topic_partition, partition.leadership, changed, rules, tells))
    return decision


def can_preferred_lead(image: ClusterImage, topic_partition: TopicPartition) -> bool:
    """Whether the first assigned replica is online and in sync."""
    partition = image.partition(topic_partition)
    if partition.leadership is None:
        return False
    online = image.online_replicas(topic_partition)
    candidates = Candidates(partition.replicas, partition.leadership.state.isr, online)
    return ELECTIONS[Strategy.PREFERRED](candidates) is not None


def decide_leaders_at_any_price(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules
) -> Decision:
    """Elect as always, but let a replica out of sync lead rather than none."""
    wanted = list(topic_partitions)
    unclean = {topic_partition.topic: None for topic_partition in wanted}
    return decide_leaders(image, wanted, rules._replace(unclean_topics=unclean))


class Balance:
    """How much of what it should lead each broker leads; partitions are counted one by one, for there may be many."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._preferring: dict[int, int] = {}  # broker -> partitions that it should lead
        self._led_by_others: dict[int, list[TopicPartition]] = {}  # of those

    def count(self, topic_partition: TopicPartition, partition: PartitionImage) -> None:
        """Count a partition, unless its topic is being deleted."""
        replicas, leadership = partition.replicas, partition.leadership
        if not replicas or self._image.is_deleting(topic_partition.topic):
            return
        self._preferring[replicas[0]] = self._preferring.get(replicas[0], 0) + 1
        if leadership is not None and leadership.state.leader != replicas[0]:
            self._led_by_others.setdefault(replicas[0], []).append(topic_partition)

    def to_restore(self, percentage: int) -> list[TopicPartition]:
        """What preferred replicas do not lead, of live brokers that lack more than so much of what they should.

        None while any partition is being reassigned: what its replicas will be is not settled.
        """
        found: list[TopicPartition] = []
        for broker_id, led_by_others in self._led_by_others.items() if not self._image.moving else ():
            lacking = len(led_by_others) * 100 > percentage * self._preferring[broker_id]
            if lacking and broker_id in self._image.brokers:
                found += led_by_others
        return found


# A broker that stops ---------------------------------------------------------------------------------------------


def partitions_to_hand_over(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of these partitions that several brokers hold."""
    return [
        topic_partition
        for topic_partition in topic_partitions
        if _can_be_handed_over(image, topic_partition, image.partition(topic_partition))
    ]


def _can_be_handed_over(image: ClusterImage, topic_partition: TopicPartition, partition: PartitionImage) -> bool:
    shared = len(partition.replicas) > 1 and partition.leadership is not None
    return shared and not image.is_deleting(topic_partition.topic)


def led_by(image: ClusterImage, topic_partitions: Iterable[TopicPartition], broker_id: int) -> list[TopicPartition]:
    """Those of these partitions that the broker leads."""
    led = []
    for topic_partition in topic_partitions:
        leadership = image.partition(topic_partition).leadership
        if leadership is not None and leadership.state.leader == broker_id:
            led.append(topic_partition)
    return led


def decide_stopped_followers(
    broker_id: int, image: ClusterImage, topic_partitions: Iterable[TopicPartition]
) -> Decision:
    """The broker stops following; what it leads is another decision."""
    wanted = list(topic_partitions)
    led = dict.fromkeys(led_by(image, wanted, broker_id))
    return Decision(
        [
            Step(
                ReplicaMoved(topic_partition, broker_id, ReplicaMove.STOP),
                tells=(TellStop(topic_partition, broker_id, delete=False),),
            )
            for topic_partition in wanted
            if topic_partition not in led
        ]
    )


def decide_controlled_shutdown(broker_id: int) -> Choose:
    """A broker that is about to stop leads nothing that another in sync can, and leaves the ISRs of what it follows."""

    def decide(image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules) -> Decision:
        decision = Decision()
        for topic_partition in topic_partitions:
            partition = image.partition(topic_partition)
            if partition.leadership is None:
                continue
            if partition.leadership.state.leader == broker_id:
                step = _hand_over_lead(image, topic_partition, partition, partition.leadership, rules)
            else:
                step = _leave_isr(topic_partition, partition, partition.leadership, broker_id, rules)
            if step is not None:
                decision.steps.append(step)
        return decision

    return decide


def _hand_over_lead(
    image: ClusterImage,
    topic_partition: TopicPartition,
    partition: PartitionImage,
    leadership: Leadership,
    rules: LeaderRules,
) -> Step | None:
    state, online = leadership.state, image.online_replicas(topic_partition)
    reachable = image.reachable_replicas(topic_partition)
    leaving = [each for each in reachable if each not in online]
    elected = ELECTIONS[Strategy.CONTROLLED_SHUTDOWN](Candidates(partition.replicas, state.isr, online, leaving))
    if elected is None:
        return None
    changed = state._replace(leader=elected.leader, isr=elected.isr)
    tells = (TellLeaderAndIsr(topic_partition, tuple(reachable)),)
    return next_epoch(topic_partition, leadership, changed, rules, tells)


def _leave_isr(
    topic_partition: TopicPartition,
    partition: PartitionImage,
    leadership: Leadership,
    broker_id: int,
    rules: LeaderRules,
) -> Step | None:
    """Out of the ISR, unless it is the last in it, for then it alone holds every acknowledged record."""
    state = leadership.state
    isr = tuple(replica for replica in state.isr if replica != broker_id)
    if not isr or isr == state.isr:
        return None
    others = tuple(replica for replica in partition.replicas if replica != broker_id)
    tells = (TellLeaderAndIsr(topic_partition, others),)
    return next_epoch(topic_partition, leadership, state._replace(isr=isr), rules, tells)


# A partition that moves ------------------------------------------------------------------------------------------


def decide_moved_leaders(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules
) -> Decision:
    """After a change of the assignment: a new leader epoch; only assigned replicas lead and are in sync.

    Replicas that have just been assigned get the flag that they are new, so that they make their logs. One that is in
    sync already has made it: should it have lost it since, it must not replace it by an empty one.
    """
    decision = Decision()
    for topic_partition in topic_partitions:
        partition = image.partition(topic_partition)
        if partition.leadership is None:
            decision.extend(decide_leaders(image, [topic_partition], rules))
            continue
        state, replicas = partition.leadership.state, partition.replicas
        leader = state.leader
        isr = tuple(replica for replica in state.isr if replica in replicas) or state.isr
        if leader not in image.reachable_replicas(topic_partition):
            candidates = Candidates(replicas, state.isr, image.online_replicas(topic_partition))
            elected = ELECTIONS[Strategy.REASSIGN](candidates)
            leader = NO_LEADER if elected is None else elected.leader
        statuses = partition.replica_statuses
        new = tuple(each for each in replicas if statuses.get(each) is ReplicaStatus.NEW and each not in state.isr)
        old = tuple(each for each in replicas if each not in new)
        tells = (TellLeaderAndIsr(topic_partition, old), TellLeaderAndIsr(topic_partition, new, is_new=True))
        changed = state._replace(leader=leader, isr=isr)
        decision.steps.append(next_epoch(topic_partition, partition.leadership, changed, rules, tells))
    return decision
