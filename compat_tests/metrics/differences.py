"""How the metrics of Barnabas differ from those of Apache Kafka 3.9.1 with the JMX exporter, each with its reason.

A row is (pattern, reason). A pattern is compared with whole names, with samples as `name{label="value",…}`, or with
what else a test writes. `compared` fails for a difference that no row has, and for a row that no difference needs.
"""

import re
from collections.abc import Iterable, Sequence

Rows = Sequence[tuple[str, str]]

SUMMARIES = "the exporter shows histograms as gauges with a label quantile, and their counts as counters"

# "name: Kafka's type, ours".
TYPES: Rows = (
    (r".*(timems|ms|requestbytes): gauge, summary", SUMMARIES),
    (
        r"kafka_server_socket_server_metrics_\w+_total: gauge, counter",
        "gauges by Strimzi's rules; they only rise",
    ),
)

# "name {labels of Kafka}" and "name {our labels}" that the other one has not.
LABELS: Rows = (
    (
        r"kafka_server_brokertopicmetrics_\w+_total \{topic\}",
        "Kafka begins a series with the first one counted",
    ),
    (r"kafka_network_requestchannel_responsequeuesize \{processor\}", "there are no network threads to tell apart"),
)

# Names that Kafka has and Barnabas has not.
NOT_OURS: Rows = (
    (r"jmx_.*", "the exporter about itself"),
    (r"jvm_.*|process_virtual_memory_bytes", "the Java machine, and what it reserves"),
    (r"kafka_controller_controllerchannelmanager_.*", "queues to brokers: no dashboard that is compared reads them"),
    (r"kafka_controller_controllereventmanager_eventqueuetimems.*", "as above, of events; eventqueuesize is there"),
    (
        r"kafka_controller_controllerstats_\w+rateandtimems.*",
        "times of each kind of event; those of elections are there",
    ),
    (
        r"kafka_controller_kafkacontroller_\w*(todelete|ineligible)\w*count",
        "deletions in detail, beside topicstodeletecount",
    ),
    (r"kafka_controller_kafkacontroller_(fencedbrokercount|zkmigrationstate)", "of KRaft"),
    (r"kafka_server_metadataloader_.*", "of KRaft"),
    (r"kafka_coordinator_transaction_.*", "queues between threads that are not there"),
    (
        r"kafka_log_logcleaner_(deadthreadcount|max_\w+)|kafka_log_logcleanermanager_(max|time)\w+",
        "threads of the cleaner",
    ),
    (r"kafka_utils_throttler_cleaner_io_.*", "log.cleaner.io.max.bytes.per.second in detail"),
    (r"kafka_network_(acceptor|processor)_.*|kafka_network_socketserver_controlplane\w+", "network threads"),
    (r"kafka_network_requestmetrics_(messageconversionstimems|temporarymemorybytes).*", "conversions of old formats"),
    (r"\w+_expired_?connections_?killed_?count", "of connections.max.reauth.ms: they are in connection_close_total"),
    (r"kafka_server_addpartitionstotxnmanager_.*", "checks between brokers of Kafka's transactions, version 2"),
    (
        r"kafka_server_brokertopicmetrics_(invalid(magic|offset)|reassignmentbytes)\w+",
        "parts of others",
    ),
    (r"kafka_server_delayedoperationpurgatory_numdelayedoperations", "purgatorysize is the number that waits"),
    (r"kafka_server_kafkaserver_(linux_disk_\w+|yammer_metrics_count)", "of the machine; of the library of metrics"),
    (r"kafka_server_replicaalterlogdirsmanager_.*|\w+_deadthreadcount", "threads that are not there"),
    (
        r"kafka_server_replicamanager_(\w+latetransactions|producerid)count",
        "see barnabas_transaction_oldest_seconds",
    ),
    (r"kafka_server_sessionexpirelistener_zookeeper(auth|readonly|sasl)\w+", "kinds of sessions with ZooKeeper"),
    (
        r"kafka_server_socket_server_metrics_(io|select|network|request|response|incoming|outgoing)\w*",
        "Java's",
    ),
    (
        r"kafka_server_socket_server_metrics_\w*authentication\w*",
        "reauthentication; rates follow from totals",
    ),
    (r"kafka_server_delayedfetchmetrics_.*", "requests that waited until their time was over: remotetimems"),
    (r"kafka_server_fetcher\w+", "details of a fetcher: bytes and requests, consumerlag is there"),
)

# Names that have an MBean by `metric_table` and that Kafka's scrape has not.
NOT_KAFKAS: Rows = (
    (
        r"kafka_network_socketserver_networkprocessoravgidlepercent",
        "rules give one of its two names",
    ),
    (r"kafka_network_requestmetrics_\w+_sum", "the exporter knows no sums"),
)
# Names that Kafka may have later.
LATER: Rows = (
    (r"kafka_log_logflushstats_logflushrateandtimems.*", "Kafka has it after the first flush"),
    (
        r"kafka_server_socket_server_metrics_connections_software",
        "Kafka has it as long as a client with a name is there",
    ),
)

# Counters and gauges of state whose values differ: Kafka's and ours.
VALUES: Rows = (
    (r"kafka_server_brokertopicmetrics_totalfetchrequests_total\{.*", "Kafka counts all partitions of a session"),
    (r"kafka_network_socketserver_memorypoolavailable\{\}.*", "Kafka has no limit"),
)

# What is no count of the script, nor a state: it depends on time, threads and connections.
NOT_COMPARED: Rows = (
    (r"\w+(_rate|percent|fetchrate|percent_count|memorypoolused)", "of time"),
    (r"\w+(ms|requestbytes)(_count)?", "times, and requests of brokers to each other"),
    (r"kafka_network_requestchannel_\w+|\w+_purgatorysize|\w+_eventqueuesize|\w+_controllerstate", "of the moment"),
    (r"kafka_server_fetchsessioncache_\w+", "sessions of fetchers begin again when partitions come"),
    (r"kafka_server_socket_server_metrics_\w+", "Kafka's controller has connections of its own, and threads"),
    (r"kafka_server_fetcherlagmetrics_consumerlag", "which fetcher has a partition follows from its threads"),
    (r"kafka_server_brokertopicmetrics_replicationbytesout_total", "a Fetch that a follower gives up is sent again"),
    (r"kafka_controller_controllerstats_\w+", "depends on which broker was first"),
    (r"kafka_server_replicamanager_(isrshrinks|isrexpands|failedisrupdates)_total", "followers begin late, or not"),
    (r"kafka_server_sessionexpirelistener_\w+", "depends on ZooKeeper"),
    (r"kafka_controller_kafkacontroller_preferredreplicaimbalancecount", "internal topics are placed by chance"),
)


def compared(found: Iterable[str], *rows: Rows) -> None:
    """Fail unless each difference that was found has a row, and each row of the last table a difference."""
    found = sorted(set(found))
    patterns = [re.compile(pattern) for table in rows for pattern, _ in table]
    too_many = [each for each in found if not any(pattern.fullmatch(each) for pattern in patterns)]
    needless = [pattern for pattern, _ in rows[-1] if not any(re.fullmatch(pattern, each) for each in found)]
    assert not too_many, "\n".join(too_many)
    assert not needless, "\n".join(needless)
