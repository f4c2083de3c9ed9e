"""Who leads instead, and where it is reached: what stands beside an error that means another leader (KIP-951).

A broker that hosts the partition knows from LeaderAndIsr, which comes before UpdateMetadata; any other from the latter.
"""

from typing import NamedTuple

from barnabas.broker.call import Broker
from barnabas.broker.replication.partition import Partition


class LeaderNode(NamedTuple):
    """A leader's address on the listener that the client uses."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class LeaderHints:
    """The leaders that one answer names, and their nodes, each once."""

    def __init__(self, broker: Broker, listener: str) -> None:
        self._broker = broker
        self._listener = listener
        self.nodes: dict[int, LeaderNode] = {}

    def leader_of(self, topic: str, index: int) -> tuple[int, int] | None:
        """(leader, leader epoch) as far as this broker knows."""
        hosted = self._broker.replicas.get(topic, index)
        if isinstance(hosted, Partition):
            leader_id, leader_epoch = hosted.leader_id, hosted.leader_epoch
        else:
            info = self._broker.metadata.partition(topic, index)
            if info is None:
                return None
            leader_id, leader_epoch = info.leader_id, info.leader_epoch
        endpoint = self._broker.metadata.endpoint(leader_id, self._listener)
        if endpoint is not None:
            rack = self._broker.metadata.brokers[leader_id].rack
            self.nodes[leader_id] = LeaderNode(leader_id, endpoint.host, endpoint.port, rack)
        return leader_id, leader_epoch
