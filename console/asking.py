"""What the page asks of Kafka's own handlers, in the name of its caller.

`Asking.ask` hands a request to the handler that answers it on Kafka's port, with the caller's principal and address. So
the page shows nothing that Kafka's port would refuse, and there is no second answer to the same question.

Some answers only another broker has: groups that it coordinates, records that it leads. `ask_at` asks it as this
broker, which may more than the caller. So a view asks `may` first, with the operation that Kafka's handler
asks for: the rights of the cluster are the same at every broker.
"""

from collections.abc import AsyncIterator
from typing import TypeVar

from barnabas.broker.call import Broker, Call
from barnabas.broker.life import Life
from barnabas.broker.server import dispatch
from barnabas.console.exchange import BadRequest, HttpRequest
from barnabas.wire import messages as m
from barnabas.wire.apis import APIS
from barnabas.wire.asking import key_of
from barnabas.wire.errors import PeerLost, error_name
from barnabas.wire.topics import TopicPartition
from barnabas.world.metadata import PartitionInfo, TopicInfo
from barnabas.world.pacing import paced

ANSWER_MS = 2000.0  # of another broker; a page that waits longer looks broken
CLIENT_ID = "barnabas-page"
METADATA_KEY = 3

Expected = TypeVar("Expected", bound=m.Message)

# Errors that are the caller's, not the broker's: 403 and 404 in HTTP.
_STATUS = {
    "TOPIC_AUTHORIZATION_FAILED": 403,
    "GROUP_AUTHORIZATION_FAILED": 403,
    "CLUSTER_AUTHORIZATION_FAILED": 403,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": 403,
    "UNKNOWN_TOPIC_OR_PARTITION": 404,
    "GROUP_ID_NOT_FOUND": 404,
    "OFFSET_OUT_OF_RANGE": 416,
}


class Asking:
    """One caller, and the broker that answers."""

    def __init__(self, broker: Broker, principal: str, address: str) -> None:
        self.broker = broker
        self.principal = principal
        self._address = address

        # A view asks for rights thousands of times, and to read the listeners takes longer than each answer.
        self._listener = broker.config.listener_endpoints[0].listener

    def call(self, api_key: int, version: int) -> Call:
        """The caller, as a handler sees it."""
        broker = self.broker
        return Call(
            api_key=api_key,
            version=version,
            client_id=CLIENT_ID,
            principal=self.principal,
            client_address=self._address,
            listener=self._listener,
            authorizer=None if broker.authorization is None else broker.authorization.authorizer,
        )

    def may(self, operation: str, resource_type: str, name: str = "") -> bool:
        """Whether the caller may do this. A filter: nothing is logged."""
        return self.call(METADATA_KEY, 0).authorize(operation, resource_type, name, is_filter=True)

    async def ask(self, request: m.Message, expected: type[Expected], version_max: int | None = None) -> Expected:
        """This broker's answer to the caller."""
        key = key_of(request)

        # The highest version says most. The response is not encoded, so no client has to know that version.
        version = APIS[key].max_version if version_max is None else version_max
        response = await dispatch.answer(self.broker, self.call(key, version), request)
        assert isinstance(response, expected), "each API has one response"
        return response

    async def ask_at(
        self, broker_id: int, request: m.Message, expected: type[Expected], version_max: int | None = None
    ) -> Expected:
        """A broker's answer: to the caller if it is this one, else to this broker. PeerLost."""
        if broker_id == self.broker.broker_id:
            return await self.ask(request, expected, version_max)

        # The connection is for one request: a page asks a few times a second at most, and while no browser looks no
        # idle connection should be there.
        peer = self.broker.peers.broker(broker_id, CLIENT_ID, negotiates=True)
        try:
            response = await peer.ask(request, ANSWER_MS, version_max)
        finally:
            peer.close()

        # Another version of the broker may answer with what this one does not know.
        if not isinstance(response, expected):
            raise PeerLost(f"broker {broker_id} answered {type(request).__name__} with {type(response).__name__}")
        return response

    # -- topics

    async def topics(self) -> list[TopicInfo]:
        """All topics that Metadata shows to this caller, by name."""
        # The topics are taken from the cache that Metadata is answered from, by the rule of its handler. An answer of
        # Metadata is encoded: to decode ten thousand partitions would take many milliseconds in one step.
        known = self.broker.metadata.topics
        return [known[name] async for name in paced(sorted(known)) if name in known and self.sees(name)]

    def sees(self, topic: str) -> bool:
        """Whether Metadata shows this topic to the caller."""
        return self.may("Describe", "Topic", topic)

    def topic(self, name: str) -> TopicInfo:
        """A topic; BadRequest if there is none, or the caller may not see it: Metadata does not tell which."""
        # Both cases have the same answer, or a stranger would learn from the difference which topics there are.
        info = self.broker.metadata.topics.get(name) if self.sees(name) else None
        if info is None:
            raise BadRequest(f"there is no topic {name!r} that you may describe", status=404)
        return info

    def partition(self, topic: str, index: int) -> PartitionInfo:
        """The state of a partition. BadRequest."""
        info = self.topic(topic).partitions.get(index)
        if info is None:
            raise BadRequest(f"topic {topic!r} has no partition {index}", status=404)
        return info

    async def partitions(self) -> AsyncIterator[tuple[TopicPartition, PartitionInfo]]:
        """Every partition of these topics."""
        for topic in await self.topics():
            # The list is a copy: topics grow while other tasks have their turn.
            async for index, info in paced(list(topic.partitions.items())):
                yield TopicPartition(topic.name, index), info


def asking_for(life: Life, request: HttpRequest) -> Asking:
    """The caller of this request."""
    broker = life.broker
    if broker is None:
        raise BadRequest("the broker does not run", status=503)
    return Asking(broker, request.principal, request.peer_address)


def check(error_code: int, about: str) -> None:
    """BadRequest that names Kafka's error, if there is one."""
    if error_code:
        name = error_name(error_code)
        raise BadRequest(f"{about}: {name}", status=_STATUS.get(name, 502))
