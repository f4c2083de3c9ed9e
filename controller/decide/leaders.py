"""Leaders and ISRs: every decision that writes the state node of a partition (pure; reference B.3, B.5, B.13).

Theory of operation
-------------------
`decide_leaders` handles changes that no request asked for: a new partition, a dead leader, a dead follower, a broker
that returned. It compares the state node with the replicas that are reachable, and writes one new state if they differ.
So a broker's death costs one write for each partition, and deciding twice changes nothing.

The other functions serve requests: preferred election, unclean election, controlled shutdown, reassignment. All have
the same form, (image, partitions, rules) -> Decision: the store may refuse a state because another broker has written
one, and then the context calls the same function once more (`ControllerContext.elect`).

A broker in controlled shutdown is reachable, and keeps the leaderships that no other replica can take. It does not
count as online, so it is not elected and not added to an ISR.
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
    marks_recovery: bool = True  # an unclean leader is RECOVERING; False below metadata version 3.2-IV0


NONE_DISTRUSTED: Mapping[TopicPartition, Mapping[int, None]] = {}

Choose = Callable[[ClusterImage, Iterable[TopicPartition], LeaderRules], Decision]


# -- without a request


def decide_leaders(
    image: ClusterImage,
    topic_partitions: Iterable[TopicPartition],
    rules: LeaderRules,
    distrusted: Mapping[TopicPartition, Mapping[int, None]] = NONE_DISTRUSTED,
    bounced_leaders: Container[TopicPartition] = (),
) -> Decision:
    """Bring leader and ISR in line with the live replicas. A partition without an electable replica gets no leader.

    `distrusted` members leave the ISR as if they were dead; a leader that bounced and stays gets a new epoch.
    """
    decision = Decision()
    parents: dict[str, None] = {}
    for topic_partition in topic_partitions:
        # A topic that is being deleted is left out: nothing reads its states any more, and their
        # nodes are about to be removed. Kafka's controller elects for it, too.
        if image.is_deleting(topic_partition.topic):
            continue
        leadership = image.partition(topic_partition).leadership
        if leadership is None:
            # A partition without a live replica stays New until a broker with one joins.
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

    # The parents are created once for all partitions of a topic. `prepare` takes it as no error if
    # a parent exists already.
    decision.prepare += [(Create(path),) for path in parents]
    return decision


def decide_leaders_of_new_term(written_zxids: Mapping[TopicPartition, int]) -> Choose:
    """The same at the beginning of a term: brokers that bounced since a state was written are not in sync (bounces.py).

    `written_zxids` has the zxid of each state when it was read.
    """

    def decide(image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules) -> Decision:
        wanted = list(topic_partitions)
        # If another broker writes a state after it was read, the older zxid is still used. That is safe: it may remove
        # members that are in sync, which their leader adds again, but it keeps none that lost records.
        bounced = {each: bounced_members(image, each, written_zxids[each]) for each in wanted if each in written_zxids}
        leaders = {each for each in bounced if leader_bounced(image, each, written_zxids[each])}
        return decide_leaders(image, wanted, rules, bounced, leaders)

    return decide


def topics_without_clean_leader(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> dict[str, None]:
    """Topics with a partition that only an unclean election can give a leader."""
    return {
        topic_partition.topic: None
        for topic_partition in topic_partitions
        if not image.is_deleting(topic_partition.topic) and _needs_unclean_leader(image, topic_partition)
    }


def partitions_without_leader(image: ClusterImage) -> list[TopicPartition]:
    """Partitions for which an election may succeed when a broker joins or unclean elections become allowed."""
    return list(image.leaderless)


def _needs_unclean_leader(image: ClusterImage, topic_partition: TopicPartition) -> bool:
    leadership = image.partition(topic_partition).leadership
    online = image.online_replicas(topic_partition)
    if leadership is None or not online or leadership.state.leader in image.reachable_replicas(topic_partition):
        return False
    return not any(replica in online for replica in leadership.state.isr)


def _first_leader(topic_partition: TopicPartition, online: Mapping[int, None], rules: LeaderRules) -> Step:
    # All live replicas are in sync, because there are no records yet.
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
    """The step to the state that fits the live replicas; None if the current one fits and `renewed` is false."""
    state = leadership.state
    reachable = image.reachable_replicas(topic_partition)
    leader = state.leader
    recovery = state.leader_recovery_state
    trusted = tuple(replica for replica in state.isr if replica not in without)
    isr = tuple(replica for replica in trusted if replica in reachable)

    # A reachable leader need not be online: in controlled shutdown it goes on until another one is
    # elected. But the new leader must be online.
    if leader not in reachable or leader in without:
        replicas = image.partition(topic_partition).replicas
        online = image.online_replicas(topic_partition)
        unclean = topic_partition.topic in rules.unclean_topics
        elected = ELECTIONS[Strategy.OFFLINE](Candidates(replicas, trusted, online, (), unclean))
        if elected is None:
            # No member can lead, but each of them has all acknowledged records. So all stay, and the first one that
            # returns can lead; Kafka removes all but one.
            leader = NO_LEADER
            isr = state.isr
        else:
            # The dead members leave the ISR in this same write; Kafka needs a second one.
            leader = elected.leader
            isr = elected.isr
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
    """The step from the written state to this one, under the next leader epoch."""
    # Every change gets a new leader epoch, except those that the leader requests
    # (`decide/isr.py`): brokers ignore a role whose leader epoch they have already, and followers
    # truncate by leader epochs.
    changed = state._replace(leader_epoch=leadership.state.leader_epoch + 1, controller_epoch=rules.controller_epoch)
    return Step(
        LeadershipChanged(topic_partition, Leadership(changed, leadership.partition_epoch + 1)),
        (SetData(paths.partition_state(*topic_partition), changed.encode(), leadership.partition_epoch),),
        tells,
    )


# -- on request


def decide_preferred_leaders(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules
) -> Decision:
    """Elect the preferred leader of each partition that another replica leads, if it is in sync."""
    decision = Decision()
    for topic_partition in topic_partitions:
        partition = image.partition(topic_partition)
        if partition.leadership is None or not can_preferred_lead(image, topic_partition):
            continue
        state = partition.leadership.state
        preferred = partition.replicas[0]
        # An election without a change would only raise the leader epoch, and clients would look up the leader again.
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
    """Like `decide_leaders`, with unclean elections allowed for these topics."""
    wanted = list(topic_partitions)
    unclean = {topic_partition.topic: None for topic_partition in wanted}
    return decide_leaders(image, wanted, rules._replace(unclean_topics=unclean))


class Balance:
    """Counts, per broker, the partitions of which it is the preferred leader and those that others lead.

    The caller counts them one by one, so that other tasks can run in between.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._preferring: dict[int, int] = {}  # broker -> the number of partitions of which it is the preferred leader
        self._led_by_others: dict[int, list[TopicPartition]] = {}  # broker -> those that another broker leads

    def count(self, topic_partition: TopicPartition, partition: PartitionImage) -> None:
        """Count a partition, unless its topic is being deleted."""
        replicas = partition.replicas
        leadership = partition.leadership
        if not replicas or self._image.is_deleting(topic_partition.topic):
            return
        self._preferring[replicas[0]] = self._preferring.get(replicas[0], 0) + 1
        if leadership is not None and leadership.state.leader != replicas[0]:
            self._led_by_others.setdefault(replicas[0], []).append(topic_partition)

    def to_restore(self, percentage: int) -> list[TopicPartition]:
        """The partitions that are not led by their preferred leader, for live brokers above the imbalance limit."""
        found: list[TopicPartition] = []
        # No partition is found, as in Kafka, while any partition is being reassigned: reassignments
        # move leaders themselves.
        for broker_id, led_by_others in self._led_by_others.items() if not self._image.moving else ():
            lacking = len(led_by_others) * 100 > percentage * self._preferring[broker_id]
            if lacking and broker_id in self._image.brokers:
                found += led_by_others
        return found


# -- controlled shutdown


def partitions_to_act_on(image: ClusterImage, topic_partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Those of these partitions that a controlled shutdown changes."""
    # A partition with one replica cannot get another leader: to name it in the answer would only delay the shutdown.
    return [
        topic_partition
        for topic_partition in topic_partitions
        if len(image.partition(topic_partition).replicas) > 1
        and image.partition(topic_partition).leadership is not None
        and not image.is_deleting(topic_partition.topic)
    ]


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
    """Stop this broker's followers; its leaderships are a separate decision."""
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
    """Move every leadership that another in-sync replica can take, and remove the broker from the other ISRs."""

    def decide(image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules) -> Decision:
        decision = Decision()
        for topic_partition in topic_partitions:
            partition = image.partition(topic_partition)
            if partition.leadership is None:
                continue
            if partition.leadership.state.leader == broker_id:
                step = _move_leadership(image, topic_partition, partition, partition.leadership, rules)
            else:
                step = _remove_from_isr(topic_partition, partition, partition.leadership, broker_id, rules)
            if step is not None:
                decision.steps.append(step)
        return decision

    return decide


def _move_leadership(
    image: ClusterImage,
    topic_partition: TopicPartition,
    partition: PartitionImage,
    leadership: Leadership,
    rules: LeaderRules,
) -> Step | None:
    state = leadership.state
    online = image.online_replicas(topic_partition)
    reachable = image.reachable_replicas(topic_partition)
    leaving = [each for each in reachable if each not in online]
    # If no replica can be elected, the broker keeps this leadership. The answer names the
    # partition, and the broker asks again; a follower may have caught up by then.
    elected = ELECTIONS[Strategy.CONTROLLED_SHUTDOWN](Candidates(partition.replicas, state.isr, online, leaving))
    if elected is None:
        return None
    changed = state._replace(leader=elected.leader, isr=elected.isr)
    # The broker that is shutting down gets the request, too: it must stop accepting records for
    # this partition.
    tells = (TellLeaderAndIsr(topic_partition, tuple(reachable)),)
    return next_epoch(topic_partition, leadership, changed, rules, tells)


def _remove_from_isr(
    topic_partition: TopicPartition,
    partition: PartitionImage,
    leadership: Leadership,
    broker_id: int,
    rules: LeaderRules,
) -> Step | None:
    """Remove the broker from the ISR, unless it is the only member: then only it has every acknowledged record."""
    state = leadership.state
    # The controller does this at once: the leader would notice only after
    # `replica.lag.time.max.ms`, and until then no record would be acknowledged to a producer with
    # acks=all.
    isr = tuple(replica for replica in state.isr if replica != broker_id)
    if not isr or isr == state.isr:
        return None
    others = tuple(replica for replica in partition.replicas if replica != broker_id)
    tells = (TellLeaderAndIsr(topic_partition, others),)
    return next_epoch(topic_partition, leadership, state._replace(isr=isr), rules, tells)


# -- reassignment


def decide_moved_leaders(
    image: ClusterImage, topic_partitions: Iterable[TopicPartition], rules: LeaderRules
) -> Decision:
    """After a change of the assignment: a new leader epoch; only assigned replicas lead and are in sync."""
    decision = Decision()
    for topic_partition in topic_partitions:
        partition = image.partition(topic_partition)

        # If the partition never had a leader, there is nothing to copy.
        if partition.leadership is None:
            decision.extend(decide_leaders(image, [topic_partition], rules))
            continue
        state = partition.leadership.state
        replicas = partition.replicas
        leader = state.leader

        # The ISR is never empty: if no assigned replica is in sync, the former members stay, and
        # are not deleted (`decide_dropped_replicas`).
        isr = tuple(replica for replica in state.isr if replica in replicas) or state.isr
        if leader not in image.reachable_replicas(topic_partition):
            candidates = Candidates(replicas, state.isr, image.online_replicas(topic_partition))
            elected = ELECTIONS[Strategy.REASSIGN](candidates)
            leader = NO_LEADER if elected is None else elected.leader

        # Newly assigned replicas get `is_new`, so that they create their logs. A replica in the
        # ISR does not: if its log was lost, an empty one must not replace it.
        statuses = partition.replica_statuses
        new = tuple(each for each in replicas if statuses.get(each) is ReplicaStatus.NEW and each not in state.isr)
        old = tuple(each for each in replicas if each not in new)
        tells = (TellLeaderAndIsr(topic_partition, old), TellLeaderAndIsr(topic_partition, new, is_new=True))
        changed = state._replace(leader=leader, isr=isr)
        decision.steps.append(next_epoch(topic_partition, partition.leadership, changed, rules, tells))

    return decision
