"""A client of the simulated cluster: its connections and its metadata cache.

Every client is a `Party` of its own, with its own `Net`, so that the network can cut it off from some brokers and not
from others. It behaves like Kafka's clients: it sends Metadata to any broker, keeps one connection to each broker,
drops metadata that turned out wrong and asks again. The loss of a connection, and `ANSWER_SECONDS` without a response,
both raise `Lost`: it is then unknown whether the broker carried out the request.

A `Link` may have several requests in flight; responses come in the order of the requests, as the protocol demands.

With an `Admission` a party logs in on each connection, and again before its session ends (KIP-368).
"""

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar, TypeVarTuple

import trio

from barnabas.client.connection import Connection
from barnabas.client.login import log_in
from barnabas.security.sasl.client import Credentials, log_in_again_after_ms
from barnabas.security.sasl.exchange import LoginFailed
from barnabas.security.sasl.mechanisms import nonce
from barnabas.testing.simulation.net import SimStream
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of
from barnabas.wire.errors import ErrorCode
from barnabas.wire.topics import ZERO_TOPIC_ID
from barnabas.world.net import ConnectionLost, Net, Stream

# This is shorter than the timeouts of Kafka's clients, so that a history of a minute has many
# requests of which the client does not know the outcome.
ANSWER_SECONDS = 4.0
CONNECT_SECONDS = 2.0
FETCH_BY_NAME_VERSION = 12
CLIENTS_ADD_VERSION = 3
FRAME_BYTES_MAX = 64 << 20
BACK_OFF_SECONDS = 0.1
ABANDONED_MAX = 5  # connections of a party

Answer = TypeVar("Answer", bound=m.Message)
# The seconds until the answer, when the connection last worked, and why there was no answer ("" if
# there was one).
OnServed = Callable[[float, float, str], None]
# These requests wait for other members of the group by design, so the time until their answer says
# nothing about the broker.
WAIT_FOR_MEMBERS = (m.JoinGroupResponse, m.SyncGroupResponse)
Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class Lost(Exception):
    """No answer: the connection is gone, was not made, or nothing came in time."""


class Admission(NamedTuple):
    """How a client logs in, and what it tells of it."""

    credentials: Credentials
    answered: Callable[[m.Message], None]  # with every answer
    failed: Callable[[str], None]  # a login, with the broker's reason


def _version_max(request: m.Message) -> int:
    """Fetch names topics from version 13 on by their ids only, which topics of old clusters do not have.

    AddPartitionsToTxn is for brokers from version 4 on.
    """
    if isinstance(request, m.AddPartitionsToTxnRequest):
        return CLIENTS_ADD_VERSION
    lacks_id = isinstance(request, m.FetchRequest) and any(each.topic_id == ZERO_TOPIC_ID for each in request.topics)
    return FETCH_BY_NAME_VERSION if lacks_id else APIS[key_of(request)].max_version


class Link:
    """One connection to one broker."""

    def __init__(
        self,
        stream: Stream,
        address: tuple[str, int],
        client_id: str,
        versions: Mapping[int, int],
        admission: Admission | None = None,
        on_served: OnServed | None = None,
    ) -> None:
        self.stream = stream
        self.address = address
        self._versions = versions
        self._admission = admission
        self._log_in_at = -math.inf
        self._connection = Connection(stream, client_id, response_bytes_max=FRAME_BYTES_MAX)
        self._on_served = on_served
        self._asked_at: deque[float] = deque()  # of the requests without an answer
        self._worked_at = trio.current_time()  # when it was made, or the last answer came
        self._may_be_lost = False
        self.is_closed = False

    @property
    def has_requests(self) -> bool:
        """Whether there are requests without an answer."""
        return bool(self._asked_at)

    @property
    def must_log_in(self) -> bool:
        """Whether there is no session, or it ends soon; with requests on their way it is too late for another one."""
        return self._admission is not None and trio.current_time() >= self._log_in_at and not self.has_requests

    async def log_in(self, rng: random.Random) -> None:
        """Log in, or again; Lost if that fails."""
        assert self._admission is not None

        # A login is a dialogue of several requests, each of which waits for its answer. They use
        # the same connection as everything else.
        async def ask(request: m.Message) -> m.Message:
            return await self.ask(request, m.response_class(APIS[key_of(request)]))

        try:
            done = await log_in(ask, self._admission.credentials.login(lambda: nonce(rng), 0), _at_once)
        except LoginFailed as failure:
            self.close()
            self._admission.failed(str(failure))
            raise Lost(str(failure)) from None
        lifetime_ms = done.session_lifetime_ms
        # A client logs in again before the broker would close the connection. The generator spreads
        # clients that logged in together.
        after_ms = math.inf if lifetime_ms is None else log_in_again_after_ms(lifetime_ms, rng)
        self._log_in_at = trio.current_time() + after_ms / 1000

    async def send(self, request: m.Message) -> None:
        """Send a request; `receive` has its answer, if it is one that is answered."""
        key = key_of(request)
        version = min(self._versions.get(key, APIS[key].max_version), _version_max(request))
        in_flight = self._connection.in_flight
        frame = in_flight.frame(request, version)
        # Only a request that gets an answer stays in flight. A Produce with acks=0 does not.
        if len(in_flight) > len(self._asked_at):
            self._asked_at.append(trio.current_time())
        else:
            self._may_be_lost = True  # acks=0: when it fails, the broker closes the connection

        try:
            with trio.fail_after(ANSWER_SECONDS):
                await self.stream.send_all(frame)
        except (ConnectionLost, trio.TooSlowError) as error:
            raise self._lost(str(error)) from None

    async def receive(self, kind: type[Answer], seconds: float = ANSWER_SECONDS) -> Answer:
        """The answer to the oldest request that has none yet."""
        try:
            with trio.fail_after(seconds):
                answer = await self._connection.receive()
        except (ConnectionLost, trio.TooSlowError) as error:
            raise self._lost(str(error) or f"no answer in {seconds} s") from None

        self._worked_at = trio.current_time()
        # Responses come in the order of the requests, so the oldest time is that of this response.
        seconds = self._worked_at - self._asked_at.popleft()
        if self._on_served is not None and not isinstance(answer, WAIT_FOR_MEMBERS):
            self._on_served(seconds, self._worked_at, "")
        if not isinstance(answer, kind):
            raise TypeError(f"{answer!r} instead of a {kind.__name__}")
        if self._admission is not None:
            self._admission.answered(answer)
        return answer

    async def ask(self, request: m.Message, kind: type[Answer], seconds: float = ANSWER_SECONDS) -> Answer:
        """Send a request and wait for its answer."""
        await self.send(request)
        return await self.receive(kind, seconds)

    def delay(self, seconds: float) -> None:
        """What is sent from now on arrives so late, while other connections are as fast as ever."""
        if isinstance(self.stream, SimStream):
            self.stream.hold(seconds)

    def close(self) -> None:
        """No more of this connection."""
        self.is_closed = True
        self.stream.close()

    def _lost(self, why: str) -> Lost:
        # A connection that this client has closed, or one on which an acks=0 request may have
        # failed, is lost without a fault of the broker.
        is_unexpected = self._asked_at and not self.is_closed and not self._may_be_lost
        if self._on_served is not None and is_unexpected:
            seconds = trio.current_time() - self._asked_at[0]
            self._on_served(seconds, self._worked_at, f"by {self.address[0]}: {why}")
        self.close()
        return Lost(why)


async def _at_once(function: Callable[[*Arguments], Result], /, *args: *Arguments) -> Result:
    """A client has no threads."""
    return function(*args)


@dataclass(slots=True)
class Place:
    """One partition as in a Metadata response."""

    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]


@dataclass(slots=True)
class View:
    """What a client believes of the cluster."""

    brokers: dict[int, tuple[str, int]] = field(default_factory=dict)
    controller_id: int = -1
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    places: dict[tuple[str, int], Place] = field(default_factory=dict)
    # The newest leader epochs heard of; under the topic's id, or its name where topics have no ids.
    epochs: dict[tuple[bytes | str, int], int] = field(default_factory=dict)

    def partitions_of(self, topic: str) -> list[int]:
        """The partitions of a topic, as far as is known."""
        return sorted(partition for name, partition in self.places if name == topic)

    def take(self, answer: m.MetadataResponse) -> None:
        """Believe this answer, but nothing of topics of which it names a leader known to be replaced (KIP-320)."""
        self.brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        self.controller_id = answer.controller_id
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.forget(topic.name)
            identity = topic.name if topic.topic_id == ZERO_TOPIC_ID else topic.topic_id
            rows = topic.partitions if topic.error_code == ErrorCode.NONE else ()
            if any(each.leader_epoch < self.epochs.get((identity, each.partition_index), -1) for each in rows):
                continue  # the whole topic is skipped: of a known topic all partitions are known
            for each in rows:
                self.epochs[identity, each.partition_index] = each.leader_epoch
                self.topic_ids[topic.name] = topic.topic_id
                self.places[topic.name, each.partition_index] = Place(
                    each.leader_id, each.leader_epoch, list(each.replica_nodes), list(each.isr_nodes)
                )

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self.topic_ids.pop(topic, None)
        for key in [key for key in self.places if key[0] == topic]:
            del self.places[key]


class Party:
    """One client: `name` is what the network, the history and the story know it by."""

    def __init__(
        self,
        name: str,
        net: Net,
        bootstrap: Iterable[tuple[str, int]],
        rng: random.Random,
        versions: Mapping[int, int] | None = None,
        admission: Admission | None = None,
    ) -> None:
        self.name = name
        self.rng = rng
        self.view = View()
        self.on_served: OnServed | None = None
        self._net = net
        self.bootstrap = list(bootstrap)
        self._versions = versions or {}
        self._admission = admission
        self._links: dict[tuple[str, int], Link] = {}
        self._abandoned: list[Link] = []

    async def pause(self, seconds: float = BACK_OFF_SECONDS) -> None:
        """Back off for about so long."""
        await trio.sleep(seconds * self.rng.uniform(0.5, 1.5))

    async def refresh(self, *topics: str) -> None:
        """Send Metadata to one of the brokers; Lost if there is no response."""
        asked = [m.MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        request = m.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        addresses = list(self.view.brokers.values()) + self.bootstrap
        # The next response on a busy connection belongs to another request, so this prefers an
        # address without any.
        busy = {address for address, link in self._links.items() if link.has_requests and not link.is_closed}
        free = [each for each in addresses if each not in busy]
        link = await self.link(*self.rng.choice(free or addresses))
        self.view.take(await link.ask(request, m.MetadataResponse))

    async def leader_of(self, topic: str, partition: int) -> Link:
        """A connection to the leader as far as we know it; Lost when there is none, and Metadata is asked again."""
        place = self.view.places.get((topic, partition))
        if place is None or place.leader_id not in self.view.brokers:
            await self.refresh(topic)
            place = self.view.places.get((topic, partition))
        if place is None:
            raise Lost(f"{topic}-{partition} is not known")
        return await self.broker(place.leader_id)

    async def broker(self, broker_id: int) -> Link:
        """A connection to this broker."""
        address = self.view.brokers.get(broker_id)
        if address is None:
            raise Lost(f"broker {broker_id} is not known")
        return await self.link(*address)

    async def controller(self) -> Link:
        """A connection to the controller, as some broker names it."""
        await self.refresh()
        return await self.broker(self.view.controller_id)

    async def link(self, host: str, port: int) -> Link:
        """The connection to this address, made if need be."""
        link = self._links.get((host, port))
        # A lost connection stays in the table until its address is asked for again.
        if link is None or link.is_closed:
            link = self._links[host, port] = await self._connect(host, port)
        await self.renew(link)
        return link

    async def renew(self, link: Link) -> None:
        """Log in, or again, on a connection of this client whose session ends soon. Lost."""
        if not link.must_log_in:
            return
        is_kept = self._links.get(link.address) is link

        # No other task of this client may use the connection meanwhile.
        if is_kept:
            del self._links[link.address]
        await link.log_in(self.rng)
        if is_kept:
            self._links[link.address] = link

    async def another_link(self, host: str, port: int) -> Link:
        """A connection of its own, which the caller closes."""
        link = await self._connect(host, port)
        if link.must_log_in:
            await link.log_in(self.rng)
        return link

    async def _connect(self, host: str, port: int) -> Link:
        try:
            with trio.fail_after(CONNECT_SECONDS):
                stream = await self._net.connect(host, port)
        except (ConnectionLost, OSError, trio.TooSlowError) as error:
            raise Lost(f"{host}:{port}: {error}") from None
        return Link(stream, (host, port), self.name, self._versions, self._admission, self.on_served)

    def abandon(self, link: Link) -> None:
        """Use this connection no more; what was sent on it may still arrive, and the broker hears of no end."""
        for address in [address for address, each in self._links.items() if each is link]:
            del self._links[address]
        # A real client may leave sockets behind in the same way. Their number is bounded, so the
        # oldest one is closed.
        self._abandoned.append(link)
        if len(self._abandoned) > ABANDONED_MAX:
            self._abandoned.pop(0).close()

    def mistrust(self, topic: str, partition: int) -> None:
        """What is known of this partition turned out wrong."""
        self.view.places.pop((topic, partition), None)

    def close(self) -> None:
        """Close all connections."""
        for link in (*self._links.values(), *self._abandoned):
            link.close()
