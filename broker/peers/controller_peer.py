"""The way to the controller, whichever broker it is (reference B.15).

The controller is the broker that the last UpdateMetadata named. It may be gone by now, and a later one not have said so
yet: a broker that does not answer, or answers NOT_CONTROLLER, is asked again after a change of the metadata, or a
moment that grows with each failure, and then the controller that the metadata names is asked. One that hangs keeps its
connections, so `run` watches the metadata: what the former controller was asked is given up as soon as another one has
spoken. Thus a question reaches the controller in the end, if one comes; the deadline says when it is not waited for any
longer. One that was asked and not answered may have been carried out.

Each kind of request has its own connection, as in Kafka: a change of an ISR that waits must not hold back a producer
that wants an id. If this broker is the controller it asks itself.
"""

import math

import trio

from barnabas.broker.config.live import BrokerConfig
from barnabas.broker.metadata import ClusterMetadata
from barnabas.broker.peers.peer import Peers
from barnabas.controller.channels import Peer
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost

BACKOFF_MS_MIN = 50.0
BACKOFF_MS_MAX = 1000.0  # retry.backoff.max.ms of Kafka's clients


class ControllerPeer:
    """Asks the controller, wherever it is."""

    def __init__(self, peers: Peers, config: BrokerConfig, metadata: ClusterMetadata, broker_id: int) -> None:
        self._peers = peers
        self._config = config
        self._metadata = metadata
        self._client_id = str(broker_id)
        self._known: dict[int, tuple[int, Peer]] = {}  # API key -> who was asked last, and how
        self._under_way: dict[trio.CancelScope, int] = {}  # what is being asked, and of whom

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Until cancelled: when there is another controller, give up what the former one was asked."""
        task_status.started()
        while True:
            await self._metadata.changed()
            for scope, controller_id in list(self._under_way.items()):
                if controller_id != self._metadata.controller_id:
                    scope.cancel()

    async def ask(self, request: m.Message, deadline_ms: float = math.inf, version_max: int | None = None) -> m.Message:
        """The controller's answer, which is not NOT_CONTROLLER; PeerLost when none comes within `deadline_ms`.

        It is asked in the highest version that both sides know, none above `version_max`.
        """
        problem = "no controller is known"
        backoff_ms = BACKOFF_MS_MIN
        with trio.move_on_after(deadline_ms / 1000):
            while True:
                controller_id = self._metadata.controller_id
                outcome = await self._ask_once(request, version_max)
                if not isinstance(outcome, str):
                    return outcome
                problem = outcome
                if controller_id != self._metadata.controller_id:
                    continue
                with trio.move_on_after(backoff_ms / 1000):
                    await self._metadata.changed()
                backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)
        raise PeerLost(f"{type(request).__name__} is not answered by a controller: {problem}")

    async def _ask_once(self, request: m.Message, version_max: int | None) -> m.Message | str:
        """The answer, or why there is none."""
        peer = self._peer(asking.key_of(request))
        if peer is None:
            return "no controller is known"
        with trio.CancelScope() as scope:
            self._under_way[scope] = self._metadata.controller_id
            try:
                response = await peer.ask(request, self._config.controller_socket_timeout_ms, version_max)
            except PeerLost as error:
                return str(error)
            finally:
                del self._under_way[scope]
            return "who was asked is not the controller" if _is_refused(response) else response
        return "another is the controller now"

    def _peer(self, api_key: int) -> Peer | None:
        """How to ask whom the metadata names, or None; the connection to an earlier one is closed."""
        controller_id = self._metadata.controller_id
        known_id, peer = self._known.get(api_key, (-1, None))
        if peer is not None and known_id == controller_id:
            return peer
        if peer is not None:
            del self._known[api_key]
            peer.close()
        if controller_id not in self._metadata.brokers:
            return None
        peer = self._peers.controller(controller_id, self._client_id)
        self._known[api_key] = controller_id, peer
        return peer


def _is_refused(response: m.Message) -> bool:
    """Whether a broker says that it is not the controller; of a ControlledShutdown Kafka says it in another way."""
    if isinstance(response, m.ControlledShutdownResponse):
        return response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    return getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
