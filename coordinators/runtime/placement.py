"""Which partition of an internal topic a name belongs to, and so which broker coordinates it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.wire.topics import partition_for

if TYPE_CHECKING:
    from barnabas.world.metadata import ClusterMetadata


class Placement:
    """The number of partitions of one internal topic. `configured()` is the number that the topic gets when created."""

    def __init__(self, topic: str, metadata: "ClusterMetadata", configured: Callable[[], int]) -> None:
        self._topic = topic
        self._metadata = metadata
        self._configured = configured
        self._count = 0  # the topic has at least so many; 0 if unknown

    def expect_partitions(self, count: int) -> None:
        """Set the number of partitions, as read from the store at the start; 0 if there is no topic."""
        self._count = count

    def partition_of(self, name: str) -> int:
        """The index of the partition to which this name belongs."""
        # UpdateMetadata arrives in pieces, and partitions that never had a leader are missing in it. With too low a
        # count the name would be in another partition, and its state lost when the count is right. Before the topic
        # exists, the configured count is the one that it will get.
        topic = self._metadata.topics.get(self._topic)
        count = max(self._count, len(topic.partitions) if topic else 0)
        return partition_for(name, count or self._configured())

    def coordinator_of(self, name: str) -> int | None:
        """The broker that leads the name's partition; None without a leader, or without the topic."""
        return self._metadata.leader_of(self._topic, self.partition_of(name))
