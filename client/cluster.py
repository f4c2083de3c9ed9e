"""A cluster as a client sees it: its brokers, its topics, and who of the brokers answers what.

    with Cluster(net, [("127.0.0.1", 9092)]) as cluster:
        topics = await cluster.topics(["orders"])
        response = await cluster.ask_leader("orders", 0, request)

The metadata are asked for when they are first needed, and again after an error that says that they are outdated.
`ask_any`, `ask_controller`, `ask_coordinator` and `ask_leader` send a request to the broker that can answer it. What
was not answered at all is sent again, to the next broker, until the deadline; so these requests have to be ones that
may be carried out twice. Error codes inside the responses are the caller's business.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Self

import trio

from barnabas.client.connection import Login
from barnabas.client.errors import Refused, Unreachable, check, nearest_of
from barnabas.client.remote import Bounds, Handshake, RemotePeer
from barnabas.storage.disk import InThread
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost, PeerTooOld
from barnabas.wire.runtime import Struct
from barnabas.wire.sentinels import NO_LEADER
from barnabas.wire.topics import TopicPartition
from barnabas.world.net import Net
from barnabas.world.world import run_inline

CLIENT_ID = "barnabas"
TIMEOUT_SECONDS = 30.0
CONNECT_SECONDS = 5.0
RETRY_SECONDS = 0.1  # doubles up to RETRY_SECONDS_MAX
RETRY_SECONDS_MAX = 1.0
# A new topic has leaders within so long. Who only looks at a topic does not wait for those that are offline.
NEW_LEADER_SECONDS = 1.0
METADATA_SECONDS = 30.0  # how often a client that runs on looks for new partitions
NEW_TOPIC_SECONDS = 1.0  # all brokers have heard of a new topic within so long
# A request has this share of the time: there is some left to ask another broker when one is silent.
ATTEMPTS = 3
BOOTSTRAP_ID = -1  # the number of the first bootstrap address; the others are lower
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
KEY_TYPES = {GROUP_KEY_TYPE: "group", TRANSACTION_KEY_TYPE: "transactional id"}
LISTENER = ""  # a client has one way to connect, so the listener has no name

# The highest version of each API whose fields are used as they are here. Kafka 2.8 and all later ones serve one that is
# not higher: Fetch 13 names topics by their ids, FindCoordinator 4 and OffsetFetch 8 take several keys, DeleteTopics 6
# takes ids.
VERSIONS_MAX: Mapping[int, int] = {1: 12, 9: 7, 10: 3, 20: 5}

# Errors after which another broker may be the one to ask.
OUTDATED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)

# The errors of a topic that there is.
FOUND = frozenset({ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE})


class Place(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int
    listener: str = LISTENER

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Access(NamedTuple):
    """How to get into the cluster: TLS and a login, both None on a PLAINTEXT listener."""

    handshake: Handshake | None = None
    login: Login | None = None


PLAIN_ACCESS = Access()


class Cluster:
    """The brokers of one cluster. Several tasks may ask: requests to one broker go one after the other."""

    def __init__(
        self,
        net: Net,
        bootstrap: Sequence[tuple[str, int]],
        access: Access = PLAIN_ACCESS,
        *,
        client_id: str = CLIENT_ID,
        timeout_seconds: float = TIMEOUT_SECONDS,
        in_thread: InThread = run_inline,
    ) -> None:
        self.timeout_seconds = timeout_seconds
        self.answer_seconds = timeout_seconds / ATTEMPTS
        self.client_id = client_id
        self._net = net
        self._access = access
        self._in_thread = in_thread
        # The ids of brokers are not negative, so these numbers are never those of a broker.
        bootstrap_ids = range(BOOTSTRAP_ID, BOOTSTRAP_ID - len(bootstrap), -1)
        self._bootstrap = dict(zip(bootstrap_ids, (Place(*each) for each in bootstrap), strict=True))
        self._places: dict[int, Place] = {}
        self._peers: dict[int, RemotePeer] = {}
        self._controller_id = -1
        self._asked = -1  # how often any broker was chosen
        self._topics: dict[str, m.MetadataResponse.MetadataResponseTopic] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._seen: set[str] = set()  # topics that there are, or were

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        for peer in list(self._peers.values()):
            peer.close()
        self._peers.clear()

    # -- what there is

    async def describe(self) -> m.MetadataResponse:
        """The brokers, the controller and all topics. Unreachable."""
        return await self._refresh(None)

    async def brokers(self) -> m.MetadataResponse:
        """The brokers and the controller, without topics. Unreachable."""
        return await self._refresh([])

    async def topics(
        self, names: Iterable[str], *, leader_seconds: float | None = None
    ) -> dict[str, m.MetadataResponse.MetadataResponseTopic]:
        """These topics by their names. Refused for the first that does not exist or may not be seen; Unreachable.

        It waits so long for partitions without a leader to get one; None: as long as for an answer.
        """
        wanted = list(names)
        leaders = self.retry(leader_seconds)
        brokers = self.retry(NEW_TOPIC_SECONDS)
        while True:
            found = {topic.name or "": topic for topic in (await self._refresh(wanted)).topics}
            unknown = next((name for name in wanted if name not in found or _is_unknown(found[name])), None)
            if unknown is not None:
                # Brokers hear of a new topic one after the other.
                if await self._is_seen(unknown) and await brokers.pause():
                    continue
                why = f"there is no such topic{nearest_of(unknown, self._seen - {unknown})}"
                raise Refused(f"topic {unknown!r}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)

            errors = {topic.error_code for topic in found.values()}
            errors.update(row.error_code for topic in found.values() for row in topic.partitions)

            # A topic that was just created has no leaders for a moment.
            if ErrorCode.LEADER_NOT_AVAILABLE not in errors or not await leaders.pause():
                break

        for name in wanted:
            if found[name].error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                check(f"topic {name!r}", found[name].error_code)
        # A partition without a leader is no reason to fail: the caller may want its other facts.
        return {name: found[name] for name in wanted}

    async def _is_seen(self, topic: str) -> bool:
        """Whether a topic was there before, or is listed among all: the one answer may be older than the other."""
        # This request, which also brings the nearest name, is sent for an unknown topic only.
        if topic not in self._seen:
            await self.describe()

        return topic in self._seen

    def expect(self, topic: str) -> None:
        """Note a topic that was just created: a broker that does not list it yet soon will."""
        self._seen.add(topic)

    async def leader_of(self, topic: str, partition: int) -> int:
        """The broker that leads a partition, as known at present. Refused, Unreachable."""
        # What was learned last holds until a broker says that it is outdated (`forget`).
        known = self._topics.get(topic) or (await self.topics([topic]))[topic]
        for row in known.partitions:
            if row.partition_index == partition:
                if row.leader_id == NO_LEADER:
                    self._topics.pop(topic, None)
                    raise Refused(f"partition {topic}-{partition}", ErrorCode.LEADER_NOT_AVAILABLE)
                return row.leader_id
        self._topics.pop(topic, None)
        raise Refused(f"partition {topic}-{partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[int, list[TopicPartition]], Refused | None]:
        """The partitions that each broker leads; and the error of one that has no leader. Refused, Unreachable."""
        led: dict[int, list[TopicPartition]] = {}
        failed: Refused | None = None
        leaders: dict[str, dict[int, int]] = {}
        for key in partitions:
            if key.topic not in leaders:
                # The other partitions need not wait for those without a leader.
                known = self._topics.get(key.topic) or (await self.topics([key.topic], leader_seconds=0))[key.topic]
                leaders[key.topic] = {row.partition_index: row.leader_id for row in known.partitions}
            leader = leaders[key.topic].get(key.partition, NO_LEADER)
            if leader != NO_LEADER:
                led.setdefault(leader, []).append(key)
            else:
                self.forget(key.topic)
                failed = Refused(f"partition {key}", ErrorCode.LEADER_NOT_AVAILABLE)
        return led, failed

    def leaderless(self, topic: str) -> set[int]:
        """The partitions of a topic without a leader, as known at present."""
        known = self._topics.get(topic)
        return {row.partition_index for row in known.partitions if row.leader_id == NO_LEADER} if known else set()

    def forget(self, topic: str) -> None:
        """Ask for the leaders of this topic again, before the next request."""
        self._topics.pop(topic, None)

    # -- requests

    async def ask_any(self, request: m.Message, version_min: int = 0) -> m.Message:
        """The response of any broker. Unreachable."""
        return await self._ask(self._any_broker, request, version_min)

    async def ask_broker(
        self, broker_id: int, request: m.Message, version_min: int = 0, *, seconds: float | None = None
    ) -> m.Message:
        """The response of this broker, which is asked once. Unreachable, which says why.

        It waits so long for the response; None: `answer_seconds`.
        """
        # Bootstrap addresses have negative numbers. A broker that came up since may be known by its number alone.
        if broker_id >= 0 and broker_id not in self._places:
            await self._refresh([])
        try:
            return await self._peer(broker_id).ask(
                request, (seconds or self.answer_seconds) * 1000, VERSIONS_MAX.get(request.API_KEY or 0), version_min
            )
        except PeerLost as lost:
            is_known = broker_id in self._places
            who = f"broker {broker_id} at" if is_known else "no Kafka broker at"
            # A bootstrap address has no number of a broker, and what is behind it has answered.
            if isinstance(lost, PeerTooOld) and not is_known:
                who = "the broker at"
            raise Unreachable(f"{who} {self._place(broker_id)}: {_reason(lost, is_known=is_known)}") from lost

    async def ask_controller(self, request: m.Message, version_min: int = 0) -> m.Message:
        """The response of the controller. Unreachable."""
        retry = self.retry()
        while True:
            response = await self._ask(self._controller, request, version_min)
            if not _has_code(response, ErrorCode.NOT_CONTROLLER) or not await retry.pause():
                return response
            self._controller_id = -1

    async def ask_leader(self, topic: str, partition: int, request: m.Message, version_min: int = 0) -> m.Message:
        """The response of the leader of a partition. Refused, Unreachable."""
        return await self._ask(partial(self.leader_of, topic, partition), request, version_min)

    async def ask_coordinator(
        self,
        key: str,
        request: m.Message,
        key_type: int = GROUP_KEY_TYPE,
        version_min: int = 0,
        *,
        seconds: float | None = None,
    ) -> m.Message:
        """The response of the coordinator of a group or a transactional id, within so long. Refused, Unreachable."""
        return await self._ask(partial(self.coordinator_of, key, key_type), request, version_min, seconds)

    async def coordinator_of(self, key: str, key_type: int = GROUP_KEY_TYPE) -> int:
        """The broker that coordinates a group or a transactional id. Refused, Unreachable."""
        known = self._coordinators.get((key_type, key))
        if known is not None:
            return known
        retry = self.retry()
        while True:
            found = await self.ask_any(m.FindCoordinatorRequest(key=key, key_type=key_type))
            assert isinstance(found, m.FindCoordinatorResponse)
            # The topic of the groups is created when the first one is asked for, which takes a moment.
            if found.error_code not in OUTDATED or not await retry.pause():
                break
        check(f"{KEY_TYPES[key_type]} {key!r}", found.error_code, found.error_message)
        # The last metadata may be older than this broker, so its address is taken from here.
        self._places[found.node_id] = Place(found.host, found.port)
        self._coordinators[key_type, key] = found.node_id
        return found.node_id

    async def _ask(
        self,
        choose: Callable[[], Awaitable[int]],
        request: m.Message,
        version_min: int,
        seconds: float | None = None,
    ) -> m.Message:
        """Ask the broker that `choose` names; after a failure to answer, the one that it names then."""
        retry = self.retry()
        while True:
            try:
                return await self.ask_broker(await choose(), request, version_min, seconds=seconds)
            except Unreachable as error:
                # Another attempt does not make the broker newer.
                if isinstance(error.__cause__, PeerTooOld) or not await retry.pause():
                    raise
                # The broker may have died, and its partitions have other leaders by now.
                self._topics.clear()
                self._coordinators.clear()
                # It may have been the controller, and another broker is by now.
                self._controller_id = -1

    def retry(self, seconds: float | None = None) -> "Retry":
        """The pauses between attempts that begin now, for so long; None: as long as for an answer."""
        return Retry(trio.current_time() + (self.timeout_seconds if seconds is None else seconds))

    async def is_other_coordinator(self, key: str, code: int, retry: "Retry", key_type: int = GROUP_KEY_TYPE) -> bool:
        """Whether another broker coordinates this key, or will soon, and there is time to ask it."""
        if code not in OUTDATED:
            return False
        self._coordinators.pop((key_type, key), None)
        return await retry.pause()

    # -- brokers

    async def _refresh(self, names: Sequence[str] | None) -> m.MetadataResponse:
        """Ask any broker for these topics, or for all, and note what it says."""
        topics = None if names is None else [m.MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        response = await self.ask_any(request)
        assert isinstance(response, m.MetadataResponse)
        # Brokers that are gone must not be asked, so the addresses are replaced and not added to.
        self._places = {row.node_id: Place(row.host, row.port) for row in response.brokers}
        self._controller_id = response.controller_id
        self._seen.update(topic.name for topic in response.topics if topic.name and topic.error_code in FOUND)
        self._topics |= {topic.name: topic for topic in response.topics if topic.name and not topic.error_code}
        return response

    async def _any_broker(self) -> int:
        # One that is connected is known to live. Otherwise a different one at each attempt.
        for broker_id, peer in self._peers.items():
            if peer.is_connected:
                return broker_id
        # The bootstrap addresses stay in the list: all brokers that are known may have moved.
        known = [*self._places, *self._bootstrap]
        self._asked += 1
        return known[self._asked % len(known)]

    async def _controller(self) -> int:
        # No topic is named, so the answer is small.
        if self._controller_id not in self._places:
            await self._refresh([])
        if self._controller_id not in self._places:
            raise Unreachable("the cluster has no controller at the moment")
        return self._controller_id

    def _peer(self, broker_id: int) -> RemotePeer:
        # A broker that has moved keeps its number: its address is looked up at each connect.
        peer = self._peers.get(broker_id)
        if peer is None:
            bounds = Bounds(connect_seconds=CONNECT_SECONDS, connect_seconds_max=CONNECT_SECONDS)
            where = partial(self._place, broker_id)
            peer = RemotePeer(self._net, where, self.client_id, bounds=bounds, in_thread=self._in_thread)
            peer.logins = {} if self._access.login is None else {LISTENER: self._access.login}
            peer.handshakes = {} if self._access.handshake is None else {LISTENER: self._access.handshake}
            self._peers[broker_id] = peer
        return peer

    def _place(self, broker_id: int) -> Place | None:
        return self._places.get(broker_id) or self._bootstrap.get(broker_id)


def _is_unknown(topic: m.MetadataResponse.MetadataResponseTopic) -> bool:
    return topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _has_code(part: object, code: ErrorCode) -> bool:
    """Whether a response has this error, for the whole of it or in one of its rows."""
    if not isinstance(part, Struct):
        return False

    rows = (row for name in part.ARRAYS for row in getattr(part, name) or ())
    return getattr(part, "error_code", ErrorCode.NONE) == code or any(_has_code(row, code) for row in rows)


def _reason(lost: PeerLost, *, is_known: bool) -> str:
    """Why a broker was not reached, and what to do where nothing listens."""
    cause = lost.__cause__ and lost.__cause__.__cause__
    if not isinstance(cause, ConnectionRefusedError):
        return str(lost)
    step = "" if is_known else ": start one with `barnabas serve`, or name another with -b HOST:PORT"
    return f"connection refused{step}"


class Retry:
    """Pauses between attempts, each twice as long as the one before, until a deadline."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._seconds = RETRY_SECONDS

    async def pause(self) -> bool:
        """Wait for the next attempt; False, at once, if there is no time for one."""
        # A pause that ends after the deadline would only make the caller wait for the same error.
        if trio.current_time() + self._seconds > self._deadline:
            return False
        await trio.sleep(self._seconds)
        self._seconds = min(2 * self._seconds, RETRY_SECONDS_MAX)
        return True
