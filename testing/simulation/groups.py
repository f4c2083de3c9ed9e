"""Members of a group in the simulated cluster: join, sync, heartbeat, read, commit, fetch offsets, leave.

A `Member` behaves like Kafka's consumer with the range assignor, without decoding records: it finds its coordinator,
joins, assigns the partitions if it is the leader, reads the committed offsets of its partitions, fetches from there,
commits, and joins again if a response demands it. Each of its generations, with the partitions that it owned, is passed
to `ownership` (one owner per partition and generation).

It commits only offsets of records that it has read, so the committed offset of a partition never goes back unless
records are lost, or a commit without an answer arrives after a later one.
"""

from collections.abc import Callable, Sequence

import trio

from barnabas.testing.simulation.consumers import FETCH_BYTES, note_read
from barnabas.testing.simulation.history import COMMITTED, RESUMED, UNANSWERED, Event, History
from barnabas.testing.simulation.party import ANSWER_SECONDS, Answer, Link, Lost, Party
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode

HEARTBEAT_SECONDS = 1.0
JOIN_SECONDS = 20.0
FETCH_WAIT_MS = 500
PROTOCOL_TYPE, ASSIGNOR = "consumer", "range"
PROTOCOL_VERSION = 1

TellOwner = Callable[[str, int, str, str, Sequence[int]], None]  # group, generation, member, topic, partitions


class Rejoin(Exception):
    """This generation is over for the member."""


class Member:
    """One member of one group that reads one topic."""

    isolation_level = 0  # read_uncommitted

    def __init__(
        self, party: Party, history: History, group: str, topic: str, ownership: TellOwner, *, session_ms: int = 6000
    ) -> None:
        self.party = party
        self.group = group
        self.topic = topic
        self.generation = -1  # of which it is a member, -1 for none
        self.owned: list[int] = []
        self.progress_at = 0.0  # when a commit was last acknowledged or nothing was left to commit
        self._history = history
        self._ownership = ownership
        self._session_ms = session_ms
        self._member_id = ""
        self._coordinator_id: int | None = None
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._stopping = False
        self._begins_again = False

    @property
    def is_stable(self) -> bool:
        """Whether it has its share and is heard by its coordinator."""
        return self.generation >= 0

    def calm(self) -> None:
        """Cause no more trouble on purpose."""

    def stop(self) -> None:
        """Leave the group."""
        self._stopping = True

    def begin_again(self) -> None:
        """Leave the group, and join it as a new member."""
        self._begins_again = True

    async def run(self) -> None:
        """Be a member until stopped."""
        while not self._stopping:
            try:
                await self._live_one_generation()
            except (Rejoin, Lost):
                self.generation = -1
                self.owned = []
                await self.party.pause()
        await self._leave()
        self.party.close()

    # -- membership

    async def _live_one_generation(self) -> None:
        link = await self._coordinator()
        await self._join(link)
        await self._resume(link)

        # The join counts as a sign of life, so the first heartbeat is due one interval later.
        beaten = trio.current_time()
        while not self._stopping:
            await self._read()
            await self._commit(link)
            if self._begins_again:
                await self._leave()
                # A new member asks for a new id, so the group counts it as another one.
                self._begins_again = False
                self._member_id = ""
                raise Rejoin
            if trio.current_time() - beaten >= HEARTBEAT_SECONDS:
                beaten = trio.current_time()
                await self._beat(link)
            await trio.sleep(self.party.rng.uniform(0.3, 0.9))

    async def _coordinator(self) -> Link:
        """A connection to the coordinator, looked for if it is not known."""
        if self._coordinator_id is None:
            await self.party.refresh(self.topic)
            brokers = sorted(self.party.view.brokers)
            if not brokers:
                raise Lost("no broker is known")
            # Any broker may be asked, and the choice is drawn so that each of them is.
            link = await self.party.broker(self.party.rng.choice(brokers))
            found = await link.ask(
                m.FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), m.FindCoordinatorResponse
            )
            row = found.coordinators[0]
            if row.error_code:
                raise Lost(f"the coordinator is not known: {row.error_code}")
            self._coordinator_id = row.node_id
            # The metadata of this client may not have the coordinator yet.
            self.party.view.brokers[row.node_id] = (row.host, row.port)

        try:
            return await self.party.broker(self._coordinator_id)
        except Lost:
            self._coordinator_id = None
            raise

    async def _join(self, link: Link) -> None:
        subscription = m.encode(m.ConsumerProtocolSubscription(topics=[self.topic]), PROTOCOL_VERSION)
        metadata = PROTOCOL_VERSION.to_bytes(2) + subscription
        request = m.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=10_000,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata)],
        )
        joined = await self._asked(link, request, m.JoinGroupResponse, JOIN_SECONDS)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            # The first join gets an id and the demand to come again with it (KIP-394).
            self._member_id = joined.member_id
            raise Rejoin
        self._judge(joined.error_code)
        self._member_id = joined.member_id
        assignments = []
        # The leader divides the partitions for all members, and the others send an empty list.
        if joined.leader == joined.member_id:
            await self.party.refresh(self.topic)
            if not self.party.view.partitions_of(self.topic):
                raise Rejoin  # the broker that was asked knows replaced leaders only: no partition is known
            assignments = self._divide([each.member_id for each in joined.members])

        sync = m.SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=assignments,
        )
        synced = await self._asked(link, sync, m.SyncGroupResponse, JOIN_SECONDS)
        self._judge(synced.error_code)
        self._take_assignment(joined.generation_id, synced.assignment)

    def _divide(self, members: list[str]) -> list[m.SyncGroupRequest.SyncGroupRequestAssignment]:
        partitions = self.party.view.partitions_of(self.topic)
        return [
            m.SyncGroupRequest.SyncGroupRequestAssignment(
                member_id=member, assignment=_assignment(self.topic, partitions[number :: len(members)])
            )
            for number, member in enumerate(sorted(members))
        ]

    def _take_assignment(self, generation: int, assignment: bytes) -> None:
        owned: list[int] = []
        if assignment:
            dealt = m.decode(m.ConsumerProtocolAssignment, int.from_bytes(assignment[:2]), assignment, 2)
            owned = [partition for each in dealt.assigned_partitions for partition in each.partitions]
        self.generation = generation
        self.owned = owned
        self.progress_at = trio.current_time()
        # Positions are those of the last generation. The committed offsets are read again before
        # the first fetch.
        self._positions = {}
        self._committed = {}
        self._ownership(self.group, generation, self.party.name, self.topic, owned)

    async def _beat(self, link: Link) -> None:
        request = m.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self._member_id, group_instance_id=None
        )
        self._judge((await self._asked(link, request, m.HeartbeatResponse)).error_code)

    async def _leave(self) -> None:
        if self._coordinator_id is None or not self._member_id:
            return
        try:
            link = await self.party.broker(self._coordinator_id)
            member = m.LeaveGroupRequest.MemberIdentity(member_id=self._member_id)
            await link.ask(m.LeaveGroupRequest(group_id=self.group, members=[member]), m.LeaveGroupResponse)
        except Lost:
            return  # its session ends by itself

    def _judge(self, code: int) -> None:
        """Go on if there is no error; else this generation is over, and perhaps more than that."""
        if code == ErrorCode.NONE:
            return
        # The coordinator has dropped this member, so its id is worth nothing any more.
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator_id = None
        raise Rejoin

    async def _asked(
        self, link: Link, request: m.Message, kind: type[Answer], seconds: float = ANSWER_SECONDS
    ) -> Answer:
        """What the broker answers that was the coordinator when this generation began."""
        try:
            await self.party.renew(link)
            return await link.ask(request, kind, seconds)
        except Lost:
            self._coordinator_id = None
            raise

    # -- offsets

    async def _resume(self, link: Link) -> None:
        """Ask where the group is."""
        if not self.owned:
            return
        # The time before the request counts: a commit that was acknowledged before it must be in
        # the answer.
        asked_ms = self._history.now_ms()
        topics = [m.OffsetFetchRequest.OffsetFetchRequestTopics(name=self.topic, partition_indexes=self.owned)]
        group = m.OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=self.group, member_id=None, member_epoch=-1, topics=topics
        )
        request = m.OffsetFetchRequest(groups=[group], require_stable=True)
        answer = (await self._asked(link, request, m.OffsetFetchResponse)).groups[0]
        self._judge(answer.error_code)
        for row in answer.topics[0].partitions:
            self._judge(row.error_code)
            self._positions[row.partition_index] = max(row.committed_offset, 0)
            self._committed[row.partition_index] = self._positions[row.partition_index]
            self._note(RESUMED, row.partition_index, row.committed_offset, asked_ms)

    async def _commit(self, link: Link) -> None:
        rows = [
            m.OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=partition, committed_offset=position, committed_metadata=""
            )
            for partition, position in self._positions.items()
            if position > self._committed[partition]
        ]
        if not rows:
            return
        request = m.OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self._member_id,
            topics=[m.OffsetCommitRequest.OffsetCommitRequestTopic(name=self.topic, partitions=rows)],
        )
        asked_ms = self._history.now_ms()
        asked = {row.partition_index: row.committed_offset for row in rows}
        try:
            answer = await self._asked(link, request, m.OffsetCommitResponse)
        except Lost:
            # The coordinator may have written these offsets all the same. The rules allow both.
            for partition, offset in asked.items():
                self._note(UNANSWERED, partition, offset, asked_ms)
            raise

        for row in answer.topics[0].partitions:
            self._judge(row.error_code)
            self._committed[row.partition_index] = asked[row.partition_index]
            self._note(COMMITTED, row.partition_index, asked[row.partition_index], asked_ms)

        self.progress_at = trio.current_time()

    def _note(self, kind: str, partition: int, offset: int, asked_ms: int) -> None:
        self._history.note(
            Event(
                self._history.now_ms(),
                kind,
                self.topic,
                partition,
                offset,
                self.party.name,
                -1,
                -1,
                -1,
                0,
                0,
                self.party.view.topic_ids.get(self.topic),
                self.group,
                self.generation,
                asked_ms,
            )
        )

    # -- reading

    async def _read(self) -> None:
        """One fetch from each leader of what we own; trouble with one of them is no trouble with the group."""
        topic = self.topic
        view = self.party.view
        try:
            if topic not in view.topic_ids:
                await self.party.refresh(topic)
            leaders: dict[int, list[int]] = {}
            for partition in self.owned:
                place = view.places.get((topic, partition))
                if place is not None:
                    leaders.setdefault(place.leader_id, []).append(partition)
            for broker_id, partitions in leaders.items():
                await self._fetch(broker_id, partitions, view.topic_ids.get(topic, bytes(16)))
        except Lost:
            view.forget(topic)

    async def _fetch(self, broker_id: int, partitions: list[int], topic_id: bytes) -> None:
        link = await self.party.broker(broker_id)
        rows = [
            m.FetchRequest.FetchPartition(
                partition=partition,
                fetch_offset=self._positions.get(partition, 0),
                partition_max_bytes=FETCH_BYTES,
            )
            for partition in partitions
        ]
        topic = m.FetchRequest.FetchTopic(topic=self.topic, topic_id=topic_id, partitions=rows)
        request = m.FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self.isolation_level,
            topics=[topic],
        )
        answer = await link.ask(request, m.FetchResponse)
        trouble = answer.error_code
        for row in answer.responses[0].partitions if answer.responses else ():
            partition = row.partition_index
            if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._positions[partition] = max(row.log_start_offset, self._positions.get(partition, 0))
            trouble = trouble or row.error_code
            if row.records:
                self._taken(row, topic_id)
                name = self.party.name
                position = self._positions.get(partition, 0)
                end = note_read(self._history, name, self.topic, topic_id, partition, row.records, position)
                self._positions[partition] = max(position, end)

        if trouble:
            raise Lost(f"fetch is answered with {trouble}")

    def _taken(self, row: m.FetchResponse.PartitionData, topic_id: bytes) -> None:
        """Batches were served; for those who look into them."""


def _assignment(topic: str, partitions: Sequence[int]) -> bytes:
    if not partitions:
        return b""
    given = m.ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
    dealt = m.ConsumerProtocolAssignment(assigned_partitions=[given])
    return PROTOCOL_VERSION.to_bytes(2) + m.encode(dealt, PROTOCOL_VERSION)
