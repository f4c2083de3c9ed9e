"""The current leader and its address, which Produce and Fetch send beside NOT_LEADER_OR_FOLLOWER (KIP-951).

They spare the client a Metadata request.
"""

from typing import NamedTuple

from barnabas.replication.partition import Partition
from barnabas.replication.replicas import Replicas
from barnabas.world.metadata import ClusterMetadata


class LeaderNode(NamedTuple):
    """A leader's address on the listener that the client uses."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class LeaderHints:
    """The leaders that one response names; `nodes` has the address of each of them once."""

    def __init__(self, replicas: Replicas, metadata: ClusterMetadata, listener: str) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._listener = listener
        self.nodes: dict[int, LeaderNode] = {}

    def leader_of(self, topic: str, index: int) -> tuple[int, int] | None:
        """(leader id, leader epoch) as far as this broker knows, or None. Adds the leader to `nodes` if it is alive."""
        hosted = self._replicas.get(topic, index)

        # A hosted partition has its state from LeaderAndIsr, which arrives before UpdateMetadata.
        if isinstance(hosted, Partition):
            leader_id = hosted.leader_id
            leader_epoch = hosted.leader_epoch
        else:
            info = self._metadata.partition(topic, index)
            if info is None:
                return None
            leader_id = info.leader_id
            leader_epoch = info.leader_epoch

        endpoint = self._metadata.endpoint(leader_id, self._listener)

        # Without an address (the leader is not alive, or lacks this listener) the id and epoch are sent alone.
        if endpoint is not None:
            rack = self._metadata.brokers[leader_id].rack
            self.nodes[leader_id] = LeaderNode(leader_id, endpoint.host, endpoint.port, rack)
        return leader_id, leader_epoch
