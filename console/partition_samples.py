"""Samples of topics, partitions and logs: read from the partitions that this broker has, in one pass over them."""

from collections import Counter
from typing import NamedTuple

import trio

from barnabas.broker.call import Broker
from barnabas.console.network_samples import Rates
from barnabas.console.samples import Samples, labels_of
from barnabas.replication.partition import Partition
from barnabas.world.pacing import paced, pause_after
from barnabas.world.tally import TopicTally

FETCHER_CLIENT = "Replica"  # Kafka's name of all fetchers of other brokers' partitions
FETCHER_NAME = "ReplicaFetcherThread-{0.index}-{0.leader_id}"  # and of each of them
# Part of the name -> attribute of TopicTally. Kafka has these for each topic and for all together ...
OF_TOPICS = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "bytesrejected": "bytes_rejected",
    "totalproducerequests": "produce_requests",
    "failedproducerequests": "failed_produce_requests",
    "totalfetchrequests": "fetch_requests",
    "failedfetchrequests": "failed_fetch_requests",
    "producemessageconversions": "produce_conversions",
    "fetchmessageconversions": "fetch_conversions",
}
# ... and these for all together alone.
OF_ALL = {
    "replicationbytesin": "replication_bytes_in",
    "replicationbytesout": "replication_bytes_out",
    "invalidmessagecrcrecords": "invalid_crc_records",
    "nokeycompactedtopicrecords": "no_key_records",
}
# The series of one partition: those of each replica, those of its log, and (LEADER_SERIES) those of the leader alone.
PARTITION_SERIES = (
    "kafka_cluster_partition_underreplicated",
    "kafka_cluster_partition_underminisr",
    "kafka_cluster_partition_atminisr",
    "kafka_cluster_partition_insyncreplicascount",
    "kafka_cluster_partition_replicascount",
    "kafka_cluster_partition_laststableoffsetlag",
)
LOG_SERIES = (
    "kafka_log_log_size",
    "kafka_log_log_logstartoffset",
    "kafka_log_log_logendoffset",
    "kafka_log_log_numlogsegments",
)
LEADER_SERIES = (
    "kafka_topic_partition_current_offset",
    "kafka_topic_partition_oldest_offset",
    "kafka_topic_partition_in_sync_replica",
    "kafka_topic_partition_replicas",
    "kafka_topic_partition_leader",
    "kafka_topic_partition_leader_is_preferred",
    "kafka_topic_partition_under_replicated_partition",
)


class InSync(NamedTuple):
    """How the ISR of a partition stands, each 1 or 0; all 0 on a follower."""

    under_replicated: int
    under_min_isr: int
    at_min_isr: int


NOT_LED = InSync(0, 0, 0)


def in_sync(partition: Partition) -> InSync:
    """The ISR beside the replicas and min.insync.replicas, as Kafka compares them."""
    if not partition.is_leader:
        return NOT_LED
    size = len(partition.in_sync_replicas)
    needed = partition.config.min_insync_replicas
    replicas = len(partition.replicas)

    # Kafka compares with the effective minimum: an ISR cannot have more members than there are replicas.
    needed = min(needed, replicas)
    return InSync(int(size < replicas), int(size < needed), int(size == needed))


async def add_topics(broker: Broker, samples: Samples) -> None:
    """What the partitions of each topic have counted, and the sums with those of topics that are gone."""
    # The counts of a topic that has left this broker go into the sum before its series end: the sum must
    # not fall, or a rate would see a restart.
    replicas = broker.replicas
    replicas.forget_tallies()
    total = TopicTally()
    total.add(replicas.past_tally)
    async for topic, tally in paced(sorted(replicas.tallies.items())):
        total.add(tally)
        labels = labels_of(topic=topic)
        for part, attribute in OF_TOPICS.items():
            samples.add(f"kafka_server_brokertopicmetrics_{part}_total", getattr(tally, attribute), labels)

    for part, attribute in (OF_TOPICS | OF_ALL).items():
        samples.add(f"kafka_server_brokertopicmetrics_{part}_total", getattr(total, attribute))

    samples.add("kafka_server_replicamanager_isrshrinks_total", total.isr_shrinks)
    samples.add("kafka_server_replicamanager_isrexpands_total", total.isr_expands)
    samples.add("kafka_server_replicamanager_failedisrupdates_total", total.failed_isr_updates)


async def add_partitions(broker: Broker, partitions_max: int, samples: Samples) -> int:
    """Each partition, up to `partitions_max` of them, and the sums of all. How many series were left out."""
    sums = Counter[str]()
    left_out = 0
    number = 0
    async for partition in paced(list(broker.replicas)):
        state = in_sync(partition)

        # The sums have every partition, whether or not it has series of its own.
        sums["partitioncount"] += 1
        sums["leadercount"] += partition.is_leader
        sums["underreplicatedpartitions"] += state.under_replicated
        sums["underminisrpartitioncount"] += state.under_min_isr
        sums["atminisrpartitioncount"] += state.at_min_isr
        sums["offlinereplicacount"] += partition.log is None

        if number < partitions_max:
            number += 1
            _add_partition(partition, state, samples)
        else:
            left_out += len(PARTITION_SERIES) + len(LOG_SERIES) + (len(LEADER_SERIES) if partition.is_leader else 0)

    for name in (
        *("partitioncount", "leadercount", "underreplicatedpartitions"),
        *("underminisrpartitioncount", "atminisrpartitioncount", "offlinereplicacount"),
    ):
        samples.add(f"kafka_server_replicamanager_{name}", sums[name])
    return left_out


def _add_partition(partition: Partition, state: InSync, samples: Samples) -> None:
    topic, index = partition.topic_partition

    # A topic's name has no character that a label would escape.
    labels = f'{{topic="{topic}",partition="{index}"}}'
    is_leader = partition.is_leader
    in_sync_count = len(partition.in_sync_replicas) if is_leader else 0
    replica_count = len(partition.replicas) if is_leader else 0

    log = partition.log
    high_watermark = partition.high_watermark
    behind = 0 if log is None else max(0, high_watermark - log.last_stable_offset(high_watermark))
    _add_each(samples, PARTITION_SERIES, (*state, in_sync_count, replica_count, behind), labels)
    if log is None:
        return

    start_offset = log.log_start_offset
    segments = len(log.segments)
    _add_each(samples, LOG_SERIES, (log.size_bytes, start_offset, log.log_end_offset, segments), labels)
    if not is_leader:
        return

    # The rest is kafka_exporter's, which asks the leader for it.
    leader_id = partition.leader_id
    is_preferred = int(partition.replicas[:1] == [leader_id])
    values = (high_watermark, start_offset, in_sync_count, replica_count, leader_id, is_preferred)
    _add_each(samples, LEADER_SERIES, (*values, state.under_replicated), labels)


def _add_each(samples: Samples, names: tuple[str, ...], values: tuple[int, ...], labels: str) -> None:
    # `Samples.add` for several, without as many calls: this runs for each of thousands of partitions.
    lines = samples.lines
    for name, value in zip(names, values, strict=True):
        lines[name].append(f"{name}{labels} {value}")


async def add_fetchers(broker: Broker, rates: Rates, partitions_max: int, samples: Samples) -> int:
    """How often fetchers ask, and the lag of the replicas here. How many series were left out."""
    # The lag is that of the last response: a fetcher that gets none has a leader that does not answer,
    # which other metrics show.
    largest = 0
    failed = 0
    number = 0
    client = labels_of(clientId=FETCHER_CLIENT)
    async for fetcher, followed in paced(list(broker.fetchers)):
        number += 1
        largest = max(largest, followed.lag)
        failed += followed.failed
        if number <= partitions_max:
            topic, index = followed.key
            labels = labels_of(clientId=FETCHER_NAME.format(fetcher), topic=topic, partition=index)
            samples.add("kafka_server_fetcherlagmetrics_consumerlag", followed.lag, labels)

    samples.add("kafka_server_replicafetchermanager_maxlag", largest, client)
    slowest = min(rates.of_fetchers(broker.fetchers.running, trio.current_time()), default=0.0)
    samples.add("kafka_server_replicafetchermanager_minfetchrate", round(slowest, 6), client)
    samples.add("kafka_server_replicafetchermanager_failedpartitionscount", failed, client)
    return max(0, number - partitions_max)


async def add_directories(broker: Broker, samples: Samples) -> None:
    """Log directories, their syncs, and compaction."""
    logs = broker.replicas.logs
    offline = logs.offline_directories
    uncleanable = Counter[str]()
    uncleanable_bytes = Counter[str]()
    for log in logs.cleaner.uncleanable:
        path = logs.directory_of(log).path
        uncleanable[path] += 1
        uncleanable_bytes[path] += log.size_bytes
        await pause_after()

    samples.add("kafka_log_logmanager_offlinelogdirectorycount", len(offline))
    for path in sorted({*offline, *logs.online_directories}):
        labels = labels_of(logDirectory=path)
        samples.add("kafka_log_logmanager_logdirectoryoffline", int(path in offline), labels)
        samples.add("kafka_log_logcleanermanager_uncleanable_partitions_count", uncleanable[path], labels)
        samples.add("kafka_log_logcleanermanager_uncleanable_bytes", uncleanable_bytes[path], labels)
    # Kafka has these for each of its cleaner threads and shows the largest. Here passes have no threads
    # of their own.
    last = logs.cleaner.last_pass
    copied_share = last.written_bytes / last.read_bytes if last.read_bytes else 0.0
    samples.add("kafka_log_logcleaner_max_clean_time_secs", round(last.seconds, 3))
    samples.add("kafka_log_logcleaner_cleaner_recopy_percent", round(100 * copied_share, 3))
