"""The metrics of a broker, one row each (pure): the exposition and docs/metrics.md are made from it.

Names and labels are those that Prometheus' JMX exporter gives to Kafka's MBeans by its file `kafka-2_0_0.yml`, with
Strimzi's names for what that file leaves out, and those of kafka_exporter for topics and groups. So dashboards and
alert rules that were written for the three fit. Own names begin with `barnabas_`.

A summary has the quantiles 0.50, 0.75, 0.95, 0.98, 0.99 and 0.999 of the last one to two minutes, and counts since the
start. A gauge or counter that has two kinds of label sets, such as none and `topic`, has both in one family, as Kafka's
MBeans do.
"""

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """Prometheus' types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One family: its name, its type, its labels ("topic?" is a label that some of its samples lack), what it means.

    `mbean`: where the JMX exporter finds the same, or the program whose name it has.
    """

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    mbean: str = ""


COUNTER = Kind.COUNTER
GAUGE = Kind.GAUGE
SUMMARY = Kind.SUMMARY
HISTOGRAM = Kind.HISTOGRAM

NONE: tuple[str, ...] = ()
BY_TOPIC = ("topic?",)
BY_REQUEST = ("request", "quantile")
TOPIC_PARTITION = ("topic", "partition")
GROUP_PARTITION = ("consumergroup", "topic", "partition")
LISTENER = ("listener", "networkProcessor")

EXPORTER = "kafka_exporter"
PROCESS = "the JMX exporter's own"
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")

row = Metric

# fmt: off
# One row is: name, type, labels, what it means, and where it is found beside an Apache Kafka.

# Kafka's BrokerTopicMetrics. The sums have topics that are gone, too: a counter never falls.
TOPICS = (
    row("kafka_server_brokertopicmetrics_messagesin_total", COUNTER, BY_TOPIC,
        "Records appended as the leader.", "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"),
    row("kafka_server_brokertopicmetrics_bytesin_total", COUNTER, BY_TOPIC,
        "Bytes of batches appended as the leader.", "kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec"),
    row("kafka_server_brokertopicmetrics_bytesout_total", COUNTER, BY_TOPIC,
        "Bytes of records sent to consumers.", "kafka.server:type=BrokerTopicMetrics,name=BytesOutPerSec"),
    row("kafka_server_brokertopicmetrics_bytesrejected_total", COUNTER, BY_TOPIC,
        "Bytes of batches that were too large.", "kafka.server:type=BrokerTopicMetrics,name=BytesRejectedPerSec"),
    row("kafka_server_brokertopicmetrics_totalproducerequests_total", COUNTER, BY_TOPIC,
        "Appends as the leader, one for each partition of a request.",
        "kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec"),
    row("kafka_server_brokertopicmetrics_failedproducerequests_total", COUNTER, BY_TOPIC,
        "Of these, those that failed with an error that clients do not expect.",
        "kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec"),
    row("kafka_server_brokertopicmetrics_totalfetchrequests_total", COUNTER, BY_TOPIC,
        "Partitions that Fetch requests looked at; of a session, those that had changed.",
        "kafka.server:type=BrokerTopicMetrics,name=TotalFetchRequestsPerSec"),
    row("kafka_server_brokertopicmetrics_failedfetchrequests_total", COUNTER, BY_TOPIC,
        "Of these, those that failed with an error that clients do not expect.",
        "kafka.server:type=BrokerTopicMetrics,name=FailedFetchRequestsPerSec"),
    row("kafka_server_brokertopicmetrics_producemessageconversions_total", COUNTER, BY_TOPIC,
        "Records that came in a message format before 0.11.",
        "kafka.server:type=BrokerTopicMetrics,name=ProduceMessageConversionsPerSec"),
    row("kafka_server_brokertopicmetrics_fetchmessageconversions_total", COUNTER, BY_TOPIC,
        "Partitions whose records were rewritten for a client before 0.11.",
        "kafka.server:type=BrokerTopicMetrics,name=FetchMessageConversionsPerSec"),
    row("kafka_server_brokertopicmetrics_replicationbytesin_total", COUNTER, NONE,
        "Bytes of batches appended as a follower.",
        "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesInPerSec"),
    row("kafka_server_brokertopicmetrics_replicationbytesout_total", COUNTER, NONE,
        "Bytes of records sent to followers.", "kafka.server:type=BrokerTopicMetrics,name=ReplicationBytesOutPerSec"),
    row("kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total", COUNTER, NONE,
        "Batches that were damaged.", "kafka.server:type=BrokerTopicMetrics,name=InvalidMessageCrcRecordsPerSec"),
    row("kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total", COUNTER, NONE,
        "Records without a key that compacted topics refused.",
        "kafka.server:type=BrokerTopicMetrics,name=NoKeyCompactedTopicRecordsPerSec"),
)
# A request of a broker to itself is not counted: it comes over no connection.
REQUESTS = (
    row("kafka_network_requestmetrics_requests_total", COUNTER, ("request", "version"),
        "Requests that were answered.", "kafka.network:type=RequestMetrics,name=RequestsPerSec"),
    row("kafka_network_requestmetrics_errors_total", COUNTER, ("request", "error"),
        "Error codes in responses, NONE included; a response may have one for each partition.",
        "kafka.network:type=RequestMetrics,name=ErrorsPerSec"),
    row("kafka_network_requestmetrics_totaltimems", SUMMARY, BY_REQUEST,
        "From the last byte of a request until its response is handed to the network. In ms.",
        "kafka.network:type=RequestMetrics,name=TotalTimeMs"),
    row("kafka_network_requestmetrics_requestqueuetimems", SUMMARY, BY_REQUEST,
        "The wait for a request handler; there is none here. In ms.",
        "kafka.network:type=RequestMetrics,name=RequestQueueTimeMs"),
    row("kafka_network_requestmetrics_localtimems", SUMMARY, BY_REQUEST,
        "The time at work on a request. In ms.", "kafka.network:type=RequestMetrics,name=LocalTimeMs"),
    row("kafka_network_requestmetrics_remotetimems", SUMMARY, BY_REQUEST,
        "The wait for records, followers, members or other brokers. In ms.",
        "kafka.network:type=RequestMetrics,name=RemoteTimeMs"),
    row("kafka_network_requestmetrics_responsequeuetimems", SUMMARY, BY_REQUEST,
        "The wait for a network thread; there is none here. In ms.",
        "kafka.network:type=RequestMetrics,name=ResponseQueueTimeMs"),
    row("kafka_network_requestmetrics_responsesendtimems", SUMMARY, BY_REQUEST,
        "The time to send a response that the network did not take at once. In ms.",
        "kafka.network:type=RequestMetrics,name=ResponseSendTimeMs"),
    row("kafka_network_requestmetrics_throttletimems", SUMMARY, BY_REQUEST,
        "For how long the client was throttled. In ms.", "kafka.network:type=RequestMetrics,name=ThrottleTimeMs"),
    row("kafka_network_requestmetrics_requestbytes", SUMMARY, BY_REQUEST,
        "The size of requests, in bytes.", "kafka.network:type=RequestMetrics,name=RequestBytes"),
    row("barnabas_request_seconds", HISTOGRAM, ("request", "le"),
        "As totaltimems, in seconds: a histogram, which can be added over brokers."),
    row("barnabas_throttled_requests_total", COUNTER, ("request",),
        "Requests for which a quota made their client wait."),
)
# One event loop does the work of Kafka's network threads and request handlers.
NETWORK = (
    row("kafka_network_requestchannel_requestqueuesize", GAUGE, NONE,
        "Requests that are being handled and wait for nothing but their turn.",
        "kafka.network:type=RequestChannel,name=RequestQueueSize"),
    row("kafka_network_requestchannel_responsequeuesize", GAUGE, NONE,
        "Responses that the network has not taken yet.", "kafka.network:type=RequestChannel,name=ResponseQueueSize"),
    row("kafka_network_socketserver_networkprocessoravgidlepercent", GAUGE, NONE,
        "The share of the last minute in which the event loop used no processor.",
        "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"),
    row("kafka_network_socketserver_networkprocessoravgidle_percent", GAUGE, NONE,
        "The same, with Strimzi's name.", "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent"),
    row("kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent", SUMMARY, NONE,
        "Its count is the time in ns in which the event loop used no processor, since the start.",
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"),
    row("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", GAUGE, NONE,
        "As networkprocessoravgidle_percent: one event loop does both.",
        "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent"),
    row("kafka_server_socket_server_metrics_connection_count", GAUGE, LISTENER,
        "Open connections.", "kafka.server:type=socket-server-metrics, connection-count"),
    row("kafka_server_socket_server_metrics_connection_creation_rate", GAUGE, LISTENER,
        "New connections a second, in the last minute.",
        "kafka.server:type=socket-server-metrics, connection-creation-rate"),
    row("kafka_server_socket_server_metrics_connection_close_rate", GAUGE, LISTENER,
        "Connections that ended a second, in the last minute.",
        "kafka.server:type=socket-server-metrics, connection-close-rate"),
    row("kafka_server_socket_server_metrics_connection_creation_total", COUNTER, LISTENER,
        "New connections since the start.", "kafka.server:type=socket-server-metrics, connection-creation-total"),
    row("kafka_server_socket_server_metrics_connection_close_total", COUNTER, LISTENER,
        "Connections that ended since the start.", "kafka.server:type=socket-server-metrics, connection-close-total"),
    row("kafka_server_socket_server_metrics_successful_authentication_total", COUNTER, LISTENER,
        "TLS handshakes and SASL logins that were complete.",
        "kafka.server:type=socket-server-metrics, successful-authentication-total"),
    row("kafka_server_socket_server_metrics_failed_authentication_total", COUNTER, LISTENER,
        "TLS handshakes and SASL logins that failed.",
        "kafka.server:type=socket-server-metrics, failed-authentication-total"),
    row("kafka_server_socket_server_metrics_connections_software", GAUGE,
        ("clientSoftwareName", "clientSoftwareVersion", *LISTENER),
        "Open connections of this software, as clients name it (KIP-511).",
        "kafka.server:type=socket-server-metrics, connections"),
    row("barnabas_connections_refused_total", COUNTER, ("listener",),
        "Connections that were closed at once: at a limit, or because their client connects too often."),
    row("kafka_network_socketserver_memorypoolused", GAUGE, NONE,
        "Bytes that requests and unsent responses of clients take.",
        "kafka.network:type=SocketServer,name=MemoryPoolUsed"),
    row("kafka_network_socketserver_memorypoolavailable", GAUGE, NONE,
        "Bytes that they may still take (queued.max.request.bytes).",
        "kafka.network:type=SocketServer,name=MemoryPoolAvailable"),
    row("kafka_server_delayedoperationpurgatory_purgatorysize", GAUGE, ("delayedOperation",),
        "Requests that wait: for records, acknowledgements, members.",
        "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize"),
    row("kafka_server_fetchsessioncache_numincrementalfetchsessions", GAUGE, NONE,
        "Fetch sessions.", "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions"),
    row("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", GAUGE, NONE,
        "Partitions in fetch sessions.",
        "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached"),
    row("kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total", COUNTER, NONE,
        "Fetch sessions that gave way to others.",
        "kafka.server:type=FetchSessionCache,name=IncrementalFetchSessionEvictionsPerSec"),
)
# The states of partitions are their leader's: a follower keeps no ISR, and has 0 for all of them. So
# sums over all brokers count each partition once.
REPLICAS = (
    row("kafka_server_replicamanager_partitioncount", GAUGE, NONE,
        "Partitions of which this broker has a replica.", "kafka.server:type=ReplicaManager,name=PartitionCount"),
    row("kafka_server_replicamanager_leadercount", GAUGE, NONE,
        "Partitions that it leads.", "kafka.server:type=ReplicaManager,name=LeaderCount"),
    row("kafka_server_replicamanager_underreplicatedpartitions", GAUGE, NONE,
        "Of these, those with a replica outside the ISR.",
        "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions"),
    row("kafka_server_replicamanager_underminisrpartitioncount", GAUGE, NONE,
        "Of these, those whose ISR is smaller than min.insync.replicas.",
        "kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount"),
    row("kafka_server_replicamanager_atminisrpartitioncount", GAUGE, NONE,
        "Of these, those whose ISR is as small as min.insync.replicas.",
        "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount"),
    row("kafka_server_replicamanager_offlinereplicacount", GAUGE, NONE,
        "Replicas here that are on a failed log directory.",
        "kafka.server:type=ReplicaManager,name=OfflineReplicaCount"),
    row("kafka_server_replicamanager_reassigningpartitions", GAUGE, NONE,
        "Partitions that are being reassigned; the controller alone knows, of all brokers.",
        "kafka.server:type=ReplicaManager,name=ReassigningPartitions"),
    row("kafka_server_replicamanager_isrshrinks_total", COUNTER, NONE,
        "ISRs that lost a member, of partitions led here.", "kafka.server:type=ReplicaManager,name=IsrShrinksPerSec"),
    row("kafka_server_replicamanager_isrexpands_total", COUNTER, NONE,
        "ISRs that got a member, of partitions led here.", "kafka.server:type=ReplicaManager,name=IsrExpandsPerSec"),
    row("kafka_server_replicamanager_failedisrupdates_total", COUNTER, NONE,
        "Changes of an ISR that the controller refused.",
        "kafka.server:type=ReplicaManager,name=FailedIsrUpdatesPerSec"),
    row("kafka_cluster_partition_underreplicated", GAUGE, TOPIC_PARTITION,
        "1 if it is led here and a replica is outside the ISR.", "kafka.cluster:type=Partition,name=UnderReplicated"),
    row("kafka_cluster_partition_underminisr", GAUGE, TOPIC_PARTITION,
        "1 if it is led here and the ISR is smaller than min.insync.replicas.",
        "kafka.cluster:type=Partition,name=UnderMinIsr"),
    row("kafka_cluster_partition_atminisr", GAUGE, TOPIC_PARTITION,
        "1 if it is led here and the ISR is as small as min.insync.replicas.",
        "kafka.cluster:type=Partition,name=AtMinIsr"),
    row("kafka_cluster_partition_insyncreplicascount", GAUGE, TOPIC_PARTITION,
        "The size of the ISR if it is led here, else 0.", "kafka.cluster:type=Partition,name=InSyncReplicasCount"),
    row("kafka_cluster_partition_replicascount", GAUGE, TOPIC_PARTITION,
        "How many replicas it has if it is led here, else 0.", "kafka.cluster:type=Partition,name=ReplicasCount"),
    row("kafka_cluster_partition_laststableoffsetlag", GAUGE, TOPIC_PARTITION,
        "Records between the last stable offset and the high watermark.",
        "kafka.cluster:type=Partition,name=LastStableOffsetLag"),
    row("kafka_server_replicafetchermanager_maxlag", GAUGE, ("clientId",),
        "The largest lag of a replica here behind its leader's high watermark, in records.",
        "kafka.server:type=ReplicaFetcherManager,name=MaxLag"),
    row("kafka_server_replicafetchermanager_minfetchrate", GAUGE, ("clientId",),
        "Fetch requests a second of the fetcher here that sends fewest, in the last minute; 0 without fetchers.",
        "kafka.server:type=ReplicaFetcherManager,name=MinFetchRate"),
    row("kafka_server_replicafetchermanager_failedpartitionscount", GAUGE, ("clientId",),
        "Replicas that are not fetched after an error until their next role.",
        "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount"),
    row("kafka_server_fetcherlagmetrics_consumerlag", GAUGE, ("clientId", "topic", "partition"),
        "The lag of a replica here behind its leader's high watermark, in records.",
        "kafka.server:type=FetcherLagMetrics,name=ConsumerLag"),
)
# Each replica has its own log, so a partition has as many series of these as replicas.
LOGS = (
    row("kafka_log_log_size", GAUGE, TOPIC_PARTITION,
        "Bytes of a log's segments.", "kafka.log:type=Log,name=Size"),
    row("kafka_log_log_logstartoffset", GAUGE, TOPIC_PARTITION,
        "The first offset of a log.", "kafka.log:type=Log,name=LogStartOffset"),
    row("kafka_log_log_logendoffset", GAUGE, TOPIC_PARTITION,
        "The offset that the next record gets.", "kafka.log:type=Log,name=LogEndOffset"),
    row("kafka_log_log_numlogsegments", GAUGE, TOPIC_PARTITION,
        "How many segments a log has.", "kafka.log:type=Log,name=NumLogSegments"),
    row("kafka_log_logmanager_offlinelogdirectorycount", GAUGE, NONE,
        "Log directories that failed.", "kafka.log:type=LogManager,name=OfflineLogDirectoryCount"),
    row("kafka_log_logmanager_logdirectoryoffline", GAUGE, ("logDirectory",),
        "1 if this log directory failed.", "kafka.log:type=LogManager,name=LogDirectoryOffline"),
    row("kafka_log_logflushstats_logflushrateandtimems", SUMMARY, ("quantile",),
        "Rounds of syncs, in ms; a round syncs all logs of a directory that want it.",
        "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"),
    row("kafka_log_logcleaner_max_clean_time_secs", GAUGE, NONE,
        "How long the last pass of the log cleaner took, in s.", "kafka.log:type=LogCleaner,name=max-clean-time-secs"),
    row("kafka_log_logcleaner_cleaner_recopy_percent", GAUGE, NONE,
        "Which share of what it read the last pass of the log cleaner wrote again.",
        "kafka.log:type=LogCleaner,name=cleaner-recopy-percent"),
    row("kafka_log_logcleanermanager_uncleanable_partitions_count", GAUGE, ("logDirectory",),
        "Damaged logs that are not cleaned any more.",
        "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count"),
    row("kafka_log_logcleanermanager_uncleanable_bytes", GAUGE, ("logDirectory",),
        "Bytes of these logs.", "kafka.log:type=LogCleanerManager,name=uncleanable-bytes"),
)
# What only the active controller knows is 0 on the other brokers, as in Kafka.
CONTROLLER = (
    row("kafka_controller_kafkacontroller_activecontrollercount", GAUGE, NONE,
        "1 if this broker is the controller.", "kafka.controller:type=KafkaController,name=ActiveControllerCount"),
    row("kafka_controller_kafkacontroller_offlinepartitionscount", GAUGE, NONE,
        "Partitions without a leader; 0 on a broker that is not the controller.",
        "kafka.controller:type=KafkaController,name=OfflinePartitionsCount"),
    row("kafka_controller_kafkacontroller_preferredreplicaimbalancecount", GAUGE, NONE,
        "Partitions that another than their preferred replica leads.",
        "kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount"),
    row("kafka_controller_kafkacontroller_globaltopiccount", GAUGE, NONE,
        "Topics of the cluster; 0 on a broker that is not the controller.",
        "kafka.controller:type=KafkaController,name=GlobalTopicCount"),
    row("kafka_controller_kafkacontroller_globalpartitioncount", GAUGE, NONE,
        "Partitions of the cluster; 0 on a broker that is not the controller.",
        "kafka.controller:type=KafkaController,name=GlobalPartitionCount"),
    row("kafka_controller_kafkacontroller_activebrokercount", GAUGE, NONE,
        "Live brokers; 0 on a broker that is not the controller.",
        "kafka.controller:type=KafkaController,name=ActiveBrokerCount"),
    row("kafka_controller_kafkacontroller_topicstodeletecount", GAUGE, NONE,
        "Topics whose deletion is not complete.", "kafka.controller:type=KafkaController,name=TopicsToDeleteCount"),
    row("kafka_controller_kafkacontroller_controllerstate", GAUGE, NONE,
        "What the controller does, by Kafka's numbers: 0 nothing, 1 begins its term, 2 to 15 a kind of event.",
        "kafka.controller:type=KafkaController,name=ControllerState"),
    row("kafka_controller_controllerstats_uncleanleaderelections_total", COUNTER, NONE,
        "Partitions for which a replica outside the ISR was elected, by this broker.",
        "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec"),
    row("kafka_controller_controllerstats_leaderelectionrateandtimems", SUMMARY, ("quantile",),
        "How long this broker, as the controller, took to handle brokers that came or left, in ms.",
        "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs"),
    row("barnabas_leader_elections_total", COUNTER, NONE,
        "Partitions that got another leader, elected by this broker."),
    row("kafka_controller_controllereventmanager_eventqueuesize", GAUGE, NONE,
        "Events that wait for the controller.", "kafka.controller:type=ControllerEventManager,name=EventQueueSize"),
    row("kafka_server_kafkaserver_brokerstate", GAUGE, NONE,
        "1 starting, 2 loading logs, 3 running, 6 handing over its leadership, 7 stopping.",
        "kafka.server:type=KafkaServer,name=BrokerState"),
    row("kafka_server_sessionexpirelistener_zookeeperdisconnects_total", COUNTER, NONE,
        "Connections with ZooKeeper that were lost.",
        "kafka.server:type=SessionExpireListener,name=ZooKeeperDisconnectsPerSec"),
    row("kafka_server_sessionexpirelistener_zookeeperexpires_total", COUNTER, NONE,
        "Sessions with ZooKeeper that expired.", "kafka.server:type=SessionExpireListener,name=ZooKeeperExpiresPerSec"),
    row("kafka_server_sessionexpirelistener_zookeepersyncconnects_total", COUNTER, NONE,
        "Connections with ZooKeeper.", "kafka.server:type=SessionExpireListener,name=ZooKeeperSyncConnectsPerSec"),
    row("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms", SUMMARY, ("quantile",),
        "How long ZooKeeper took to answer, in ms.",
        "kafka.server:type=ZooKeeperClientMetrics,name=ZooKeeperRequestLatencyMs"),
)
# Each group, and each transactional id, has one coordinator, which alone counts it.
COORDINATORS = (
    row("kafka_coordinator_group_groupmetadatamanager_numgroups", GAUGE, NONE,
        "Groups that this broker coordinates.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups"),
    row("kafka_coordinator_group_groupmetadatamanager_numgroupsstable", GAUGE, NONE,
        "Of these, Stable ones.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsStable"),
    row("kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance", GAUGE, NONE,
        "Of these, those in PreparingRebalance.",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsPreparingRebalance"),
    row("kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance", GAUGE, NONE,
        "Of these, those in CompletingRebalance.",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsCompletingRebalance"),
    row("kafka_coordinator_group_groupmetadatamanager_numgroupsempty", GAUGE, NONE,
        "Of these, Empty ones.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsEmpty"),
    row("kafka_coordinator_group_groupmetadatamanager_numgroupsdead", GAUGE, NONE,
        "Of these, Dead ones.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsDead"),
    row("kafka_coordinator_group_groupmetadatamanager_numoffsets", GAUGE, NONE,
        "Committed offsets of these groups.", "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets"),
    row("barnabas_transactional_ids", GAUGE, ("state",),
        "Transactional ids that this broker coordinates, by their state."),
    row("barnabas_transaction_oldest_seconds", GAUGE, NONE,
        "The age of the oldest open transaction that this broker coordinates; 0 without one."),
)
# kafka_exporter is one process for a cluster. Here one broker shows each fact, so that sums over all brokers are
# right: the leader of a partition, the coordinator of a group, the controller.
TOPICS_AND_GROUPS = (
    row("kafka_brokers", GAUGE, NONE, "Live brokers; the controller alone has it.", EXPORTER),
    row("kafka_topic_partitions", GAUGE, ("topic",), "Partitions; the controller alone has it.", EXPORTER),
    row("kafka_topic_partition_current_offset", GAUGE, TOPIC_PARTITION,
        "The high watermark. The leader has it.", EXPORTER),
    row("kafka_topic_partition_oldest_offset", GAUGE, TOPIC_PARTITION,
        "The first offset. The leader has it.", EXPORTER),
    row("kafka_topic_partition_in_sync_replica", GAUGE, TOPIC_PARTITION,
        "The size of the ISR. The leader has it.", EXPORTER),
    row("kafka_topic_partition_replicas", GAUGE, TOPIC_PARTITION,
        "How many replicas it has. The leader has it.", EXPORTER),
    row("kafka_topic_partition_leader", GAUGE, TOPIC_PARTITION,
        "The leader's id; of one without a leader -1, from the controller. The leader has it.", EXPORTER),
    row("kafka_topic_partition_leader_is_preferred", GAUGE, TOPIC_PARTITION,
        "1 if the preferred replica leads. The leader has it.", EXPORTER),
    row("kafka_topic_partition_under_replicated_partition", GAUGE, TOPIC_PARTITION,
        "1 if a replica is outside the ISR. The leader has it.", EXPORTER),
    row("kafka_consumergroup_members", GAUGE, ("consumergroup",),
        "Members; the coordinator has it.", EXPORTER),
    row("kafka_consumergroup_current_offset", GAUGE, GROUP_PARTITION, "The committed offset.", EXPORTER),
    row("kafka_consumergroup_current_offset_sum", GAUGE, ("consumergroup", "topic"),
        "The sum of the committed offsets.", EXPORTER),
    row("kafka_consumergroup_lag", GAUGE, GROUP_PARTITION,
        "Offsets from the committed one to the high watermark; of a leader elsewhere, at most 5 s old.", EXPORTER),
    row("kafka_consumergroup_lag_sum", GAUGE, ("consumergroup", "topic"), "The sum of the lags.", EXPORTER),
    row("kafka_consumergroup_lag_seconds", GAUGE, GROUP_PARTITION,
        "The age of the first record that the group has not consumed, by its timestamp; 0 if it has consumed all."),
)
# The JMX exporter's names of the process. Its names of the Java machine have no counterpart.
PROCESSES = (
    row("process_cpu_seconds_total", COUNTER, NONE, "Processor time of the process, in s.", PROCESS),
    row("process_resident_memory_bytes", GAUGE, NONE, "Memory of the process.", PROCESS),
    row("process_open_fds", GAUGE, NONE, "Open file descriptors.", PROCESS),
    row("process_max_fds", GAUGE, NONE, "How many it may open.", PROCESS),
    row("process_start_time_seconds", GAUGE, NONE, "When it began, in s since the epoch.", PROCESS),
    row("barnabas_build_info", GAUGE, ("version", "broker_id", "cluster_id"), "1, with the facts as labels."),
    row("barnabas_loop_busy_seconds_total", COUNTER, NONE,
        "Processor time of the event loop's thread, in s."),
    row("barnabas_loop_step_seconds_max", GAUGE, NONE, "The longest step above 2 ms in the last minute."),
    row("barnabas_loop_long_steps_total", COUNTER, NONE, "Steps of the event loop that took more than 2 ms."),
    row("barnabas_series_left_out", GAUGE, NONE,
        "Series of partitions that are missing here: there are more than barnabas.metrics.partitions.max."),
)
# fmt: on

METRICS = (
    *TOPICS,
    *REQUESTS,
    *NETWORK,
    *REPLICAS,
    *LOGS,
    *CONTROLLER,
    *COORDINATORS,
    *TOPICS_AND_GROUPS,
    *PROCESSES,
)
# For `GET /metrics?names=confluent`: Confluent's rules for the JMX exporter keep the whole name of an MBean.
CONFLUENT_NAMES = {
    metric.name: metric.name.removesuffix("_total") + "persec" for metric in METRICS if metric.mbean.endswith("PerSec")
}
