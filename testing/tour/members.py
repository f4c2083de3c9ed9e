"""Members of a consumer group, as the scenes about rebalances lead them step by step (edge: one socket each).

The broker sees what it sees of any consumer: JoinGroup, SyncGroup, Heartbeat. Who reads which partition is decided by
the member that leads the group, and what a member gives up is decided by itself; the broker passes this on unread. So
both protocols differ in `members.py` alone, as in Kafka they differ in the client alone.
"""

import socket
from collections.abc import Mapping, Sequence
from typing import TypeVar

from barnabas.client.blocking import BlockingConnection
from barnabas.testing.errors import LocalBrokerError
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, error_name

HOST = "127.0.0.1"
SECONDS = 10.0
SESSION_TIMEOUT_MS = 1_800_000  # the most that a broker allows: the reader of the tour may take long
JOIN_VERSION = 3
SYNC_VERSION = 2
HEARTBEAT_VERSION = 2
SUBSCRIPTION_VERSION = 1  # from this version on it has the owned partitions (KIP-429)
ASSIGNMENT_VERSION = 0
ASSIGNOR = "tour"

Response = TypeVar("Response", bound=m.Message)


class Member:
    """One consumer of a group that reads one topic."""

    def __init__(self, name: str, group: str, topic: str, port: int) -> None:
        self.name = name
        self.owned: list[int] = []
        self._group = group
        self._topic = topic
        self._member_id = ""
        self._generation = -1
        self._connection = BlockingConnection(socket.create_connection((HOST, port), SECONDS), name)

    def close(self) -> None:
        """Close its connection."""
        self._connection.close()

    def send_join(self) -> None:
        """Ask to join, without waiting: the answer comes when all members have asked."""
        # The eager protocol has given everything up before, so this list is empty then.
        owned = m.ConsumerProtocolSubscription.TopicPartition(topic=self._topic, partitions=self.owned)
        subscription = m.ConsumerProtocolSubscription(topics=[self._topic], owned_partitions=[owned])
        metadata = SUBSCRIPTION_VERSION.to_bytes(2) + m.encode(subscription, SUBSCRIPTION_VERSION)
        request = m.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata)],
        )
        self._connection.request(request, JOIN_VERSION)

    def joined(self) -> None:
        """Wait for the answer. LocalBrokerError if it is an error."""
        # The id is new at the first time, and the generation each time.
        response = self._answer(m.JoinGroupResponse)
        self._check("JoinGroup", response.error_code)
        self._member_id = response.member_id
        self._generation = response.generation_id

    def send_sync(self, shares: Mapping["Member", Sequence[int]]) -> None:
        """Ask for its share, without waiting. The member that leads sends the shares of all."""
        # The broker hands each share to its member, and does not look into it.
        assignments = [
            m.SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member._member_id, assignment=self._assignment(partitions)
            )
            for member, partitions in shares.items()
        ]
        request = m.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            assignments=assignments,
        )
        self._connection.request(request, SYNC_VERSION)

    def synced(self) -> list[int]:
        """Wait for its share, which it does not begin to read yet. LocalBrokerError if it is an error."""
        response = self._answer(m.SyncGroupResponse)
        self._check("SyncGroup", response.error_code)
        data = bytes(response.assignment)
        assigned = m.decode(m.ConsumerProtocolAssignment, int.from_bytes(data[:2]), data, 2)
        return [index for each in assigned.assigned_partitions for index in each.partitions]

    def must_rejoin(self) -> bool:
        """Send a heartbeat: whether the group rebalances. LocalBrokerError for another error."""
        request = m.HeartbeatRequest(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        self._connection.request(request, HEARTBEAT_VERSION)

        # This error is how a member hears of a rebalance: the broker has no other way to say so.
        code = self._answer(m.HeartbeatResponse).error_code
        if code != ErrorCode.REBALANCE_IN_PROGRESS:
            self._check("Heartbeat", code)
        return code == ErrorCode.REBALANCE_IN_PROGRESS

    def _assignment(self, partitions: Sequence[int]) -> bytes:
        part = m.ConsumerProtocolAssignment.TopicPartition(topic=self._topic, partitions=list(partitions))
        assigned = m.ConsumerProtocolAssignment(assigned_partitions=[part])
        return ASSIGNMENT_VERSION.to_bytes(2) + m.encode(assigned, ASSIGNMENT_VERSION)

    def _answer(self, wanted: type[Response]) -> Response:
        response = self._connection.response()
        assert isinstance(response, wanted)
        return response

    def _check(self, what: str, code: int) -> None:
        if code:
            raise LocalBrokerError(f"member {self.name}: {what}: {error_name(code)}")
