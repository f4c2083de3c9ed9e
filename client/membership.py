"""Membership in a consumer group, by the classic protocol: join, heartbeats, commits, leave.

A member has partitions from `join` to the next `join`: it gives all of them up before it joins again (the eager
protocol), because another member may get any of them. It proposes the strategy `range`, which every client knows, so it
shares groups with them.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence

import trio

from barnabas.client.cluster import METADATA_SECONDS, OUTDATED, Cluster
from barnabas.client.errors import check
from barnabas.client.offsets import by_topic, commit_request
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import TopicPartition
from barnabas.wire.versioned_records import version_of

PROTOCOL_TYPE = "consumer"
RANGE = "range"
FORM_VERSION = 1  # of a subscription and of an assignment
VERSION_BYTES = 2
SESSION_SECONDS = 10.0  # after so long without a heartbeat the partitions go to other members
HEARTBEAT_SECONDS = 3.0
REBALANCE_SECONDS = 60.0  # how long the group waits for this member to join again
# How long a join may take: Java's clients let a group wait for them for five minutes.
JOIN_SECONDS = 330.0
LIST_OF_MEMBERS_VERSION = 3  # of LeaveGroup: since Kafka 2.4
NO_MEMBER = ""
NO_GENERATION = -1

# The coordinator knows the member no more, so that it joins as another one.
FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID})
# The generation is over, or will be soon: the member joins again.
REJOIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, *FORGOTTEN})


class Member:
    """One member of a group, for these topics. Each method raises Refused and Unreachable."""

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        self.member_id = NO_MEMBER
        self.must_rejoin = False  # set by heartbeats and commits
        # How many partitions each topic had when this member divided them; None: another member did.
        self._divided: dict[str, int] | None = None
        self._look_at = 0.0
        self._cluster = cluster
        self._group = group
        self._topics = list(topics)
        self._generation = NO_GENERATION

    async def join(self) -> list[TopicPartition]:
        """Join, or join again, and wait until the members of the group have divided the partitions: those of this one.

        The group waits for members that read on, each until its own timeout.
        """
        retry = self._cluster.retry()
        while True:
            joined = await self._join()
            if joined.error_code == ErrorCode.NONE:
                assignment = await self._synchronize(joined)
                if assignment is not None:
                    self.must_rejoin = False
                    return assignment
            elif joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif joined.error_code in REJOIN:
                self._forget_if(joined.error_code)
            elif not await self._cluster.is_other_coordinator(self._group, joined.error_code, retry):
                check(f"group {self._group!r}", joined.error_code)

    async def heartbeat(self) -> None:
        """Say that this member lives; `must_rejoin` then says whether its generation goes on.

        The leader of the group looks now and then whether there are new partitions, which have to be divided, too.
        """
        request = m.HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self.member_id, group_instance_id=None
        )
        response = await self._cluster.ask_coordinator(self._group, request)
        assert isinstance(response, m.HeartbeatResponse)
        await self._note(response.error_code)
        if self._divided is not None and trio.current_time() >= self._look_at:
            self._look_at = trio.current_time() + METADATA_SECONDS
            # The next heartbeat must not be late.
            with trio.move_on_after(HEARTBEAT_SECONDS):
                counts = await self._partition_counts(self._divided)
                self.must_rejoin |= any(counts[topic] > count for topic, count in self._divided.items())

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit where the group goes on; False if the partitions belong to other members by now."""
        if not offsets:
            return True
        retry = self._cluster.retry()
        request = commit_request(self._group, offsets, generation=self._generation, member_id=self.member_id)
        while True:
            response = await self._cluster.ask_coordinator(self._group, request)
            assert isinstance(response, m.OffsetCommitResponse)
            codes = {row.error_code for topic in response.topics for row in topic.partitions}
            moved = next((code for code in sorted(codes) if code in OUTDATED), ErrorCode.NONE)
            if not await self._cluster.is_other_coordinator(self._group, moved, retry):
                break
        for code in sorted(codes):
            await self._note(code)
        return codes <= {ErrorCode.NONE}

    async def leave(self) -> None:
        """Leave the group, so that the others get the partitions at once."""
        if self.member_id == NO_MEMBER:
            return
        identity = m.LeaveGroupRequest.MemberIdentity(member_id=self.member_id, group_instance_id=None)
        request = m.LeaveGroupRequest(group_id=self._group, members=[identity])
        await self._cluster.ask_coordinator(self._group, request, version_min=LIST_OF_MEMBERS_VERSION)
        self.member_id = NO_MEMBER

    async def _note(self, code: int) -> None:
        if code in REJOIN or code in OUTDATED:
            self.must_rejoin = True
            self._forget_if(code)
            # The next request looks for the coordinator, which may be another broker now.
            await self._cluster.is_other_coordinator(self._group, code, self._cluster.retry())
        else:
            check(f"group {self._group!r}", code)

    def _forget_if(self, code: int) -> None:
        if code in FORGOTTEN:
            self.member_id = NO_MEMBER

    async def _join(self) -> m.JoinGroupResponse:
        subscription = m.ConsumerProtocolSubscription(topics=self._topics, user_data=None, owned_partitions=[])
        request = m.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=round(SESSION_SECONDS * 1000),
            rebalance_timeout_ms=round(REBALANCE_SECONDS * 1000),
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=RANGE, metadata=_form(subscription))],
        )
        response = await self._cluster.ask_coordinator(self._group, request, seconds=JOIN_SECONDS)
        assert isinstance(response, m.JoinGroupResponse)
        return response

    async def _synchronize(self, joined: m.JoinGroupResponse) -> list[TopicPartition] | None:
        """What the leader of the group gives this member; None if the group has begun another generation."""
        self.member_id = joined.member_id
        self._generation = joined.generation_id
        self._divided = None
        assignments = await self._assign(joined) if joined.leader == self.member_id else {}
        request = m.SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self.member_id,
            group_instance_id=None,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=[
                m.SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(partitions))
                for member_id, partitions in assignments.items()
            ],
        )
        response = await self._cluster.ask_coordinator(self._group, request, seconds=JOIN_SECONDS)
        assert isinstance(response, m.SyncGroupResponse)
        if response.error_code in REJOIN or response.error_code in OUTDATED:
            self._forget_if(response.error_code)
            return None
        check(f"group {self._group!r}", response.error_code)
        return _partitions_of(response.assignment)

    async def _assign(self, joined: m.JoinGroupResponse) -> dict[str, list[TopicPartition]]:
        """What each member gets: this one is the leader of the group."""
        subscriptions = {}
        for member in joined.members:
            data = member.metadata
            subscriptions[member.member_id] = list(
                m.decode(m.ConsumerProtocolSubscription, _readable(data), data, VERSION_BYTES).topics
            )
        self._divided = await self._partition_counts({name for names in subscriptions.values() for name in names})
        self._look_at = trio.current_time() + METADATA_SECONDS
        return range_assignment(subscriptions, self._divided)

    async def _partition_counts(self, topics: Iterable[str]) -> dict[str, int]:
        # A member may have subscribed to a topic that does not exist yet.
        known = {topic.name: len(topic.partitions) for topic in (await self._cluster.describe()).topics}
        return {topic: known.get(topic, 0) for topic in topics}


def range_assignment(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Member -> partitions: of each topic neighbours, and one more for the first members where it does not divide."""
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        each, more = divmod(partition_counts.get(topic, 0), len(members))
        first = 0
        for number, member in enumerate(members):
            count = each + (1 if number < more else 0)
            assigned[member] += [TopicPartition(topic, index) for index in range(first, first + count)]
            first += count
    return assigned


def _form(message: m.Message) -> bytes:
    return struct.pack(">h", FORM_VERSION) + m.encode(message, FORM_VERSION)


def _readable(data: bytes) -> int:
    # A newer form has further fields behind those of an older one.
    return min(version_of(data), FORM_VERSION)


def _assignment(partitions: Sequence[TopicPartition]) -> bytes:
    rows = [
        m.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]
    return _form(m.ConsumerProtocolAssignment(assigned_partitions=rows, user_data=None))


def _partitions_of(data: bytes) -> list[TopicPartition]:
    # A leader may leave a member without an assignment.
    if not data:
        return []
    assignment = m.decode(m.ConsumerProtocolAssignment, _readable(data), data, VERSION_BYTES)
    return [TopicPartition(row.topic, index) for row in assignment.assigned_partitions for index in row.partitions]
