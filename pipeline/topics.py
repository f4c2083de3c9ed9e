"""The jobs' requests to a cluster outside Spark (edge): the topics and their settings, log ends, new topics.

Theory of operation. Spark's source gives only the records of a topic, so these requests go through confluent-kafka's
admin client (of the extra `spark`), with settings of librdkafka (`client`). Its errors become `ClusterError`, with the
cluster's error text.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata

TIMEOUT_SECONDS = 30.0
QUIET = {"log_level": "4"}  # of librdkafka: warnings and worse
TOPIC_CONFIG_SOURCE = 1  # DescribeConfigs: set on the topic itself (DYNAMIC_TOPIC_CONFIG)
Partition = tuple[str, int]
Value = TypeVar("Value")


class ClusterError(RuntimeError):
    """The cluster refused a request, or cannot be reached; the message has the client's error text."""


@dataclass(frozen=True)
class Topic:
    """A topic as it would be created."""

    partitions: int
    replication_factor: int
    configs: dict[str, str]


class Cluster:
    """One cluster, by its bootstrap servers."""

    def __init__(self, bootstrap_servers: str, client: Mapping[str, str] | None = None) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.client = dict(client or {})
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> "AdminClient":
        if self._admin is None:
            from confluent_kafka.admin import AdminClient

            self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, **QUIET, **self.client})
        return self._admin

    def cluster_id(self) -> str:
        return str(self._metadata().cluster_id)

    def brokers(self) -> int:
        return len(self._metadata().brokers)

    def partition_counts(self) -> dict[str, int]:
        """Every topic and how many partitions it has."""
        return {name: len(found.partitions) for name, found in self._metadata().topics.items()}

    def describe(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist, with the settings that are not the default."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        metadata = self._metadata().topics
        wanted = [name for name in names if name in metadata]
        asked = {ConfigResource(ResourceType.TOPIC, name): name for name in wanted}
        answers = self.admin.describe_configs(list(asked), request_timeout=TIMEOUT_SECONDS) if asked else {}
        described = {}
        for resource, future in answers.items():
            entries = answered(future).values()
            own = {entry.name: entry.value for entry in entries if entry.source == TOPIC_CONFIG_SOURCE}
            found = metadata[resource.name].partitions
            replicas = max((len(partition.replicas) for partition in found.values()), default=1)
            described[resource.name] = Topic(len(found), replicas, own)
        return {name: described[name] for name in wanted}

    def configs(self, name: str) -> dict[str, str]:
        """Every setting of a topic, defaults included."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, name)
        (future,) = self.admin.describe_configs([resource], request_timeout=TIMEOUT_SECONDS).values()
        return {entry.name: entry.value for entry in answered(future).values()}

    def create(self, topics: Mapping[str, Topic]) -> None:
        """Create topics, and return when their partitions have leaders."""
        from confluent_kafka.admin import NewTopic

        new = [
            NewTopic(name, topic.partitions, topic.replication_factor, config=topic.configs)
            for name, topic in topics.items()
        ]
        for future in self.admin.create_topics(new, request_timeout=TIMEOUT_SECONDS).values() if new else ():
            answered(future)
        self.end_offsets([(name, number) for name, topic in topics.items() for number in range(topic.partitions)])

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The log end of each partition: where the next record goes. The client waits for leaders where it must."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(name, number): OffsetSpec.latest() for name, number in partitions}
        answers = self.admin.list_offsets(asked, request_timeout=TIMEOUT_SECONDS) if asked else {}
        return {(found.topic, found.partition): answered(future).offset for found, future in answers.items()}

    def first_records_since(
        self, partitions: Iterable[Partition], timestamp_ms: int
    ) -> dict[Partition, tuple[int, int]]:
        """Offset and timestamp of each partition's first record of this time or later, of those that have one."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        asked = {TopicPartition(name, number): OffsetSpec.for_timestamp(timestamp_ms) for name, number in partitions}
        answers = self.admin.list_offsets(asked, request_timeout=TIMEOUT_SECONDS) if asked else {}
        found = {(asked.topic, asked.partition): answered(future) for asked, future in answers.items()}
        return {partition: (one.offset, one.timestamp) for partition, one in found.items() if one.offset >= 0}

    def _metadata(self) -> "ClusterMetadata":
        from confluent_kafka import KafkaException

        try:
            return self.admin.list_topics(timeout=TIMEOUT_SECONDS)
        except KafkaException as error:
            raise ClusterError(f"{self.bootstrap_servers}: {said(error)}") from error


def answered(future: "Future[Value]") -> Value:
    """What the cluster answered."""
    from confluent_kafka import KafkaException

    try:
        return future.result()
    except KafkaException as error:
        raise ClusterError(said(error)) from error


def said(error: Exception) -> str:
    """The text of an exception of the client, which holds one error that has name and text."""
    from confluent_kafka import KafkaError

    inner = error.args[0] if error.args else error
    return f"{inner.name()}: {inner.str()}" if isinstance(inner, KafkaError) else str(inner)
