"""The brokers' view of the cluster: leaders, controller, coordinators, ISRs.

Any broker may be dead, paused or cut off, so each question is put to one after the other and none is waited for long.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, ProtocolViolation
from compat_tests.cluster.network import Address
from compat_tests.raw import RawClient, ask

ASK_SECONDS = 2.0
GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
METADATA_VERSION = 9
INTERNAL = "__consumer_offsets"


class Unanswered(Exception):
    """No broker has answered."""


class State(NamedTuple):
    """A partition as one broker sees it."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync_replicas: tuple[int, ...]
    error_code: int


class View:
    """Questions to the brokers at these addresses (by id)."""

    def __init__(self, addresses: Mapping[int, Address]) -> None:
        self.addresses = dict(addresses)

    def ask(self, broker: int, request: m.Message, version: int, timeout: float = ASK_SECONDS) -> Any:
        """One question to this broker; Unanswered."""
        host, port = self.addresses[broker]
        try:
            with RawClient(port, host, timeout) as client:
                return ask(client, request, version)
        except (OSError, ProtocolViolation) as error:
            raise Unanswered(f"broker {broker}: {error}") from error

    def ask_any(self, request: m.Message, version: int) -> Any:
        """The first answer of any broker; Unanswered."""
        for broker in self.addresses:
            with contextlib.suppress(Unanswered):
                return self.ask(broker, request, version)
        raise Unanswered("no broker answers")

    # -- metadata

    def metadata(self, broker: int, topics: list[str] | None = None) -> m.MetadataResponse:
        """This broker's Metadata response; of all topics if none is named."""
        wanted = None if topics is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = m.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        return self.ask(broker, request, METADATA_VERSION)

    def partitions(self, broker: int) -> dict[tuple[str, int], State]:
        """All partitions as this broker sees them."""
        return dict(_states(self.metadata(broker)))

    def any_partitions(self) -> dict[tuple[str, int], State]:
        """All partitions as the first broker that answers sees them."""
        for broker in self.addresses:
            with contextlib.suppress(Unanswered):
                return self.partitions(broker)
        raise Unanswered("no broker answers")

    def leader(self, topic: str, partition: int = 0) -> int:
        """The leader's id, -1 for none; Unanswered."""
        state = self.any_partitions().get((topic, partition))
        return -1 if state is None else state.leader

    def controller(self) -> int:
        """The controller's id, -1 for none; Unanswered."""
        request = m.MetadataRequest(topics=[], allow_auto_topic_creation=False)
        return int(self.ask_any(request, METADATA_VERSION).controller_id)

    def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """The id of the coordinator of a group, or of a transactional id; -1 for none; Unanswered."""
        request = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        (found,) = self.ask_any(request, 4).coordinators
        return int(found.node_id) if found.error_code == ErrorCode.NONE else -1

    def group_state(self, group: str) -> tuple[str, int]:
        """The group's state and the number of its members; Unanswered."""
        coordinator = self.coordinator(group)
        if coordinator not in self.addresses:
            return "unknown", 0
        (described,) = self.ask(coordinator, m.DescribeGroupsRequest(groups=[group]), 5).groups
        return str(described.group_state), len(described.members)

    def latest_offset(self, topic: str, partition: int, isolation: int = READ_UNCOMMITTED) -> int:
        """The high watermark, or the last stable offset, in the leader's ListOffsets response; Unanswered."""
        leader = self.leader(topic, partition)
        if leader not in self.addresses:
            raise Unanswered(f"{topic}-{partition} has no leader")
        list_partition = m.ListOffsetsRequest.ListOffsetsPartition(
            partition_index=partition, timestamp=-1, current_leader_epoch=-1
        )
        wanted = m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[list_partition])
        request = m.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[wanted])
        ((listed,),) = [entry.partitions for entry in self.ask(leader, request, 6).topics]
        if listed.error_code != ErrorCode.NONE:
            raise Unanswered(f"{topic}-{partition}: error {listed.error_code}")
        return int(listed.offset)

    def count_partitions(self, topic: str) -> dict[str, int]:
        """The number of this topic's partitions, by its name; empty if there is none; Unanswered."""
        count = sum(name == topic for name, _ in self.any_partitions())
        return {topic: count} if count else {}

    def open_partitions(self, topics: Mapping[str, int]) -> list[str]:
        """The partitions whose last stable offset is behind their high watermark; Unanswered."""
        found = []
        for topic, count in topics.items():
            for partition in range(count):
                stable = self.latest_offset(topic, partition, READ_COMMITTED)
                end = self.latest_offset(topic, partition)
                if stable < end:
                    found.append(f"{topic}-{partition} is stable up to {stable} of {end}")
        return found

    def committed(self, group: str, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The group's committed offsets, -1 for none; Unanswered."""
        coordinator = self.coordinator(group)
        if coordinator not in self.addresses:
            raise Unanswered(f"group {group} has no coordinator")
        wanted = m.OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))
        answer = self.ask(coordinator, m.OffsetFetchRequest(group_id=group, topics=[wanted]), 5)
        if answer.error_code != ErrorCode.NONE:
            raise Unanswered(f"group {group}: error {answer.error_code}")
        return {p.partition_index: p.committed_offset for p in answer.topics[0].partitions}

    # -- health

    def what_is_not_whole(self, brokers: int) -> list[str]:
        """Why the cluster is not whole: a broker that does not answer, or that sees fewer brokers or a short ISR."""
        return [why for broker in self.addresses for why in self._faults_seen_by(broker, brokers)]

    def _faults_seen_by(self, broker: int, brokers: int) -> Iterator[str]:
        try:
            metadata = self.metadata(broker)
        except Unanswered as error:
            yield str(error)
            return
        if len(metadata.brokers) < brokers:
            yield f"broker {broker} sees {sorted(b.node_id for b in metadata.brokers)}"
        for (topic, partition), state in _states(metadata):
            if state.leader < 0 or len(state.in_sync_replicas) < len(state.replicas):
                yield f"broker {broker} sees {topic}-{partition} {state}"


def _states(metadata: m.MetadataResponse) -> Iterator[tuple[tuple[str, int], State]]:
    for topic in metadata.topics:
        for p in topic.partitions:
            state = State(p.leader_id, p.leader_epoch, tuple(p.replica_nodes), tuple(p.isr_nodes), p.error_code)
            yield (topic.name or "", p.partition_index), state
