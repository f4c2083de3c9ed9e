"""Requests to the broker that is the controller (reference B.15).

The controller is the broker that the last UpdateMetadata named; it may be out of date. So `ask` repeats a request that
fails or gets NOT_CONTROLLER, after a change of the metadata or a growing backoff, to the controller that the metadata
names then. It ends with a response or at the deadline. A request without a response may have been carried out.

Each API has its own connection, as in Kafka: an AlterPartition that waits must not delay an AllocateProducerIds. If
this broker is the controller, it asks itself without a connection.
"""

import math

import trio

from barnabas.broker.peers.peer import Peers
from barnabas.config.live import BrokerConfig
from barnabas.controller.channels import Peer
from barnabas.wire import asking
from barnabas.wire import messages as m
from barnabas.wire.errors import ErrorCode, PeerLost
from barnabas.world.metadata import ClusterMetadata

BACKOFF_MS_MIN = 50.0
BACKOFF_MS_MAX = 1000.0  # retry.backoff.max.ms of Kafka's clients


class ControllerPeer:
    """Sends requests to the current controller. `run` must run meanwhile."""

    def __init__(self, peers: Peers, config: BrokerConfig, metadata: ClusterMetadata, broker_id: int) -> None:
        self._peers = peers
        self._config = config
        self._metadata = metadata
        self._client_id = str(broker_id)
        self._known: dict[int, tuple[int, Peer]] = {}  # API key -> controller id of its last request, and the peer
        self._under_way: dict[trio.CancelScope, int] = {}  # scope of each unanswered request -> controller id

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Cancel requests to a former controller as soon as the metadata name another one; until cancelled."""
        task_status.started()
        while True:
            await self._metadata.changed()
            # A former controller that hangs keeps its connection open: only its request's timeout would end the wait.
            for scope, controller_id in list(self._under_way.items()):
                if controller_id != self._metadata.controller_id:
                    scope.cancel()

    async def ask(self, request: m.Message, deadline_ms: float = math.inf, version_max: int | None = None) -> m.Message:
        """The controller's response, which is not NOT_CONTROLLER; PeerLost when none comes within `deadline_ms`.

        The request has the highest version that both sides know, at most `version_max`.
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

                # The metadata changed during the request, so no later change would end the wait below.
                if controller_id != self._metadata.controller_id:
                    continue

                # There is a backoff, because the same controller may answer again without a change
                # of the metadata.
                with trio.move_on_after(backoff_ms / 1000):
                    await self._metadata.changed()
                backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)

        raise PeerLost(f"{type(request).__name__} is not answered by a controller: {problem}")

    async def _ask_once(self, request: m.Message, version_max: int | None) -> m.Message | str:
        """The response, or the reason why there is none, as text."""
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
            return "the broker is not the controller" if _is_refused(response) else response
        return "another broker is the controller now"

    def _peer(self, api_key: int) -> Peer | None:
        """The peer for this API of the controller that the metadata name; None when it is not alive."""
        controller_id = self._metadata.controller_id
        known_id, peer = self._known.get(api_key, (-1, None))
        if peer is not None and known_id == controller_id:
            return peer
        # Tasks that still wait for the former controller get PeerLost from this, and repeat their requests.
        if peer is not None:
            del self._known[api_key]
            peer.close()
        if controller_id not in self._metadata.brokers:
            return None
        peer = self._peers.controller(controller_id, self._client_id)
        self._known[api_key] = controller_id, peer
        return peer


def _is_refused(response: m.Message) -> bool:
    """Whether the response means that the broker is not the controller."""
    # Kafka answers a ControlledShutdown with STALE_CONTROLLER_EPOCH instead of NOT_CONTROLLER.
    if isinstance(response, m.ControlledShutdownResponse):
        return response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    return getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER
