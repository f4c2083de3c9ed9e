"""Samples of the controller, and of what this broker coordinates: groups and transactions."""

from collections import Counter
from collections.abc import Iterator

import trio

from barnabas.broker.call import Broker
from barnabas.console.lags import GroupLags
from barnabas.console.request_samples import MS
from barnabas.console.samples import Samples, labels_of
from barnabas.controller.controller import Controller
from barnabas.controller.events import IDLE
from barnabas.coordinators.groups.classic.state import Group, GroupState
from barnabas.coordinators.transactions.state import AT_REST, STATUS_NAMES
from barnabas.wire.sentinels import NO_LEADER
from barnabas.world.pacing import paced
from barnabas.world.tally import Histogram

MS_PER_SECOND = 1000
GROUP_STATES = {
    GroupState.STABLE: "numgroupsstable",
    GroupState.PREPARING_REBALANCE: "numgroupspreparingrebalance",
    GroupState.COMPLETING_REBALANCE: "numgroupscompletingrebalance",
    GroupState.EMPTY: "numgroupsempty",
    GroupState.DEAD: "numgroupsdead",
}


async def add_controller(broker: Broker, state: int, samples: Samples) -> None:
    """The controller, if it is this broker; its elections; the broker's state and its sessions with ZooKeeper."""
    now = trio.current_time()
    controller = broker.candidate.controller
    counts = Counter[str]() if controller is None else await _cluster(controller, samples)
    queued = 0 if controller is None else controller.queued_events
    samples.add("kafka_controller_kafkacontroller_activecontrollercount", int(controller is not None))
    doing = IDLE if controller is None else controller.state
    samples.add("kafka_controller_kafkacontroller_controllerstate", doing)
    for name in (
        *("offlinepartitionscount", "preferredreplicaimbalancecount", "globaltopiccount"),
        *("globalpartitioncount", "activebrokercount", "topicstodeletecount"),
    ):
        samples.add(f"kafka_controller_kafkacontroller_{name}", counts[name])

    # Only the controller's image says what is being reassigned: roles name all replicas alike.
    samples.add("kafka_server_replicamanager_reassigningpartitions", counts["reassigning"])
    samples.add("kafka_controller_controllereventmanager_eventqueuesize", queued)

    # These counts outlast the controller's term: if they fell to 0 with it, an unclean election would be hidden.
    elections = broker.candidate.tally
    samples.add("kafka_controller_controllerstats_uncleanleaderelections_total", elections.unclean_elections)
    samples.add("barnabas_leader_elections_total", elections.leader_elections)
    _add_times(
        samples, "kafka_controller_controllerstats_leaderelectionrateandtimems", broker.tally.broker_changes, now
    )
    _add_times(samples, "kafka_log_logflushstats_logflushrateandtimems", broker.tally.flushes, now)
    samples.add("kafka_server_kafkaserver_brokerstate", state)

    # A broker with the embedded store has no ZooKeeper to lose.
    sessions = broker.store.session_tally
    if sessions is not None:
        prefix = "kafka_server_sessionexpirelistener_zookeeper"
        samples.add(f"{prefix}disconnects_total", sessions.disconnects)
        samples.add(f"{prefix}expires_total", sessions.expires)
        samples.add(f"{prefix}syncconnects_total", sessions.connects)
        _add_times(
            samples, "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", broker.tally.store_calls, now
        )


def _add_times(samples: Samples, name: str, histogram: Histogram, now: float) -> None:
    samples.add_summary(name, histogram.counts, histogram.recent(now), MS)


async def _cluster(controller: Controller, samples: Samples) -> Counter[str]:
    """Counts of the whole cluster; and the samples that only the controller has."""
    # Other tasks run between two topics, so the counts are not of one moment: as in Kafka, where they are
    # read one after the other.
    image = controller.image
    counts = Counter(
        globaltopiccount=len(image.topics),
        activebrokercount=len(image.brokers),
        topicstodeletecount=len(image.deletions),
        reassigning=len(image.moving),
    )
    samples.add("kafka_brokers", len(image.brokers))
    async for name, topic in paced(list(image.topics.items())):
        counts["globalpartitioncount"] += len(topic.partitions)
        samples.add("kafka_topic_partitions", len(topic.partitions), labels_of(topic=name))
        if image.is_deleting(name):
            continue
        async for index, partition in paced(list(topic.partitions.items())):
            leader = NO_LEADER if partition.leadership is None else partition.leadership.state.leader
            if leader not in image.brokers:
                counts["offlinepartitionscount"] += 1
                samples.add("kafka_topic_partition_leader", NO_LEADER, labels_of(topic=name, partition=index))
            # A partition counts also if its preferred replica is dead, as in Kafka.
            if leader != partition.replicas[0]:
                counts["preferredreplicaimbalancecount"] += 1
    return counts


def groups_of(broker: Broker) -> Iterator[Group]:
    """The groups that this broker coordinates."""
    for shard in broker.groups.runtime.serving():
        yield from list(shard.state.by_id.values())


async def add_groups(broker: Broker, lags: GroupLags, series_max: int, samples: Samples) -> int:
    """Groups by state, and what each has consumed. How many series were left out."""
    groups = list(groups_of(broker))
    await lags.refresh(groups)

    states = Counter[GroupState]()
    offsets = 0
    left_out = 0
    shown = 0
    number = 0
    async for group in paced(groups):
        number += 1
        states[group.state] += 1
        offsets += len(group.recorded.offsets)

        # Any client may create groups, so the number of series is limited.
        is_shown = number <= series_max
        if is_shown:
            labels = labels_of(consumergroup=group.group_id)
            samples.add("kafka_consumergroup_members", len(group.members), labels)
        left_out += not is_shown

        sums: dict[str, list[int]] = {}
        async for key, stored in paced(list(group.recorded.offsets.items())):
            # A partition whose leader does not answer has no lag, and one that was deleted none either.
            lag = lags.of(key, stored.commit.offset)
            of_topic = sums.setdefault(key.topic, [0, 0])
            of_topic[0] += stored.commit.offset
            of_topic[1] += lag.records or 0

            if shown >= series_max:
                left_out += 3
                continue
            shown += 1
            place = labels_of(consumergroup=group.group_id, topic=key.topic, partition=key.partition)
            samples.add("kafka_consumergroup_current_offset", stored.commit.offset, place)
            if lag.records is not None:
                samples.add("kafka_consumergroup_lag", lag.records, place)
            if lag.seconds is not None:
                samples.add("kafka_consumergroup_lag_seconds", round(lag.seconds, 3), place)

        # The sums include the partitions that have no series of their own.
        left_out += 0 if is_shown else 2 * len(sums)
        for topic, (offset_sum, lag_sum) in sums.items() if is_shown else ():
            of_group = labels_of(consumergroup=group.group_id, topic=topic)
            samples.add("kafka_consumergroup_current_offset_sum", offset_sum, of_group)
            samples.add("kafka_consumergroup_lag_sum", lag_sum, of_group)

    prefix = "kafka_coordinator_group_groupmetadatamanager_"
    samples.add(f"{prefix}numgroups", len(groups))
    samples.add(f"{prefix}numoffsets", offsets)
    for state, name in GROUP_STATES.items():
        samples.add(f"{prefix}{name}", states[state])
    return left_out


async def add_transactions(broker: Broker, samples: Samples) -> None:
    """Transactional ids by state, and the age of the oldest open transaction."""
    states = Counter[str]()
    now_ms = broker.world.now_ms()
    oldest_ms = 0
    for shard in broker.transactions.runtime.serving():
        async for known in paced(list(shard.state.by_name.values())):
            recorded = known.recorded
            states[STATUS_NAMES[recorded.status]] += 1
            if recorded.status not in AT_REST:
                # An open transaction holds back the consumers with read_committed.
                oldest_ms = max(oldest_ms, now_ms - recorded.start_ms)
    for name in STATUS_NAMES.values():
        samples.add("barnabas_transactional_ids", states[name], labels_of(state=name))
    samples.add("barnabas_transaction_oldest_seconds", oldest_ms / MS_PER_SECOND)
